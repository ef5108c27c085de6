//! The queue: messages that wait because their receiver is away, its window is full, or its socket
//! takes no bytes.
//!
//! The queue is bounded in number and bytes. Each message is counted in full in each queue. A
//! message beyond the bound is decided by policy, after expired entries have made room. Control
//! packets are never queued.
//!
//! A new message drops only as many expired messages as it needs for its room. Other expired
//! messages stay until their room is needed or they would be sent, so that one delivery never drops
//! a whole queue.
//!
//! Only the head of a long stored queue is in memory. Behind it are paged-out entries without their
//! messages, about 110 B each with their bodies. Pages of them are read back as the head drains.

use crate::mqtt::charge::{Charge, Recount, Recounted};
use crate::mqtt::message::Message;
use crate::mqtt::packet::QoS;
use crate::named_enum::named_enum;
use crate::persistence::records::{BodyNumber, EntryNumber, ReadEntry, RecoveredEntry};
use crate::persistence::rows::PagedOut;
use crate::session::drops::{DropReason, Dropped, Drops};
use crate::session::outbound::delivery::Delivery;
use crate::session::outbound::expiry_times::ExpiryTimes;
use crate::session::outbound::on_demand::Empty;
use crate::session::outbound::paged_out::{PAGE_BYTES, PagedOutEntries};
use crate::session::outbound::portion::{Portion, Selection, take_portion};
use crate::time::Instant;
use std::collections::VecDeque;

/// A delivery in a queue, as an operator names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queued {
    /// The number of a place, from [`Queue::view_from`].
    Place(u64),
    /// The number of a stored delivery.
    Stored(EntryNumber),
}

/// The bounds of a queue.
#[derive(Clone, Debug)]
pub struct QueueLimits {
    /// Maximum number of messages.
    pub messages: usize,
    /// Maximum bytes, each message in full.
    pub bytes: usize,
    /// The policy for a message beyond the bounds.
    pub policy: QueuePolicy,
}

/// The bounds of the queue of one session alone. `None` leaves the operator's bound for all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueBounds {
    /// Maximum number of messages.
    pub messages: Option<usize>,
    /// Maximum bytes, each message in full.
    pub bytes: Option<usize>,
}

impl QueueLimits {
    /// Returns these limits with the bounds of one session.
    pub fn within(self, own: &QueueBounds) -> QueueLimits {
        let (messages, bytes) = (own.messages.unwrap_or(self.messages), own.bytes.unwrap_or(self.bytes));
        QueueLimits { messages, bytes, ..self }
    }

    /// Returns true if a queue of this many messages takes one more, with `bytes` in all.
    pub fn admit(&self, messages: usize, bytes: usize) -> bool {
        messages < self.messages && bytes <= self.bytes
    }
}

named_enum! {
    /// The policy for a message whose receiver's queue is full. Expired entries are evicted before
    /// the policy applies.
    #[derive(Default)]
    pub enum QueuePolicy {
        /// The message is refused. Its publisher gets 0x97 where nobody else took the message, if
        /// its version has a reason code.
        #[default]
        Refuse = "refuse",
        /// The oldest queued messages are dropped.
        DropOldest = "drop_oldest",
        /// A connected receiver is disconnected. Its queue stays with its session. The message is
        /// refused.
        Disconnect = "disconnect",
        /// The publisher's acknowledgement waits for room, for `limits.hold_timeout` at most.
        Hold = "hold",
    }
}

/// The queue is full, and its policy does not make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueFull;

/// Number of deliveries that a stored queue keeps in memory with their messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// For a client that is away.
    Offline = 64,
    /// For a connected client.
    Online = 256,
    /// For a queue whose dropped or expired messages may become dead letters, which need the
    /// message.
    All = i32::MAX as isize,
}

impl Head {
    /// Returns the bytes of messages after which the next message is paged out, even if fewer than
    /// the number are in memory. The bound is larger for a connected client, because messages in
    /// memory need not be read back.
    const fn bytes(self) -> usize {
        match self {
            Head::Offline => PAGE_BYTES,
            Head::Online => 16 * PAGE_BYTES,
            Head::All => usize::MAX,
        }
    }
}

/// The queued deliveries of one session, in order.
#[derive(Debug)]
pub struct Queue {
    entries: VecDeque<Delivery>,
    /// The paged-out entries, behind `entries`.
    paged_out: PagedOutEntries,
    /// Bytes of all deliveries, each with its message in full.
    bytes: usize,
    /// The charge of `entries` and `paged_out` beside the messages.
    charge: Charge,
    /// Number of entries at QoS 0. While there are any, later QoS 0 messages go behind them.
    at_most_once: u32,
    /// The number of the oldest entry in memory, for operators. The numbers of the others follow
    /// without a gap. Every number is new after an entry between two others was removed.
    front: u64,
    /// The expiry times of `entries`, and of the paged-out entries behind them.
    expiry: ExpiryTimes,
}

/// Deliveries that are searched for expired ones at first, at least, when a new one needs room.
const SEARCHED: usize = 4;

/// Deliveries that are moved for each searched delivery, where expired deliveries are behind
/// others.
const MOVED: usize = 64;

/// Maximum number of deliveries that a new delivery drops, plus one for each [`DROPPED_BYTES`] of
/// its size. In a queue within its bounds this number always makes room. The operator may have
/// lowered the bounds: then the queue comes down to them with the next deliveries.
const DROPPED: usize = 1_024;

/// A size that every message exceeds.
const DROPPED_BYTES: usize = 32;

/// Returns the largest number of deliveries that a new one of `size` bytes drops.
fn most_dropped(size: usize) -> usize {
    DROPPED + size / DROPPED_BYTES
}

impl Empty for Queue {
    const NEW: Queue = Queue {
        entries: VecDeque::new(),
        paged_out: PagedOutEntries::NEW,
        bytes: 0,
        charge: Charge::NONE,
        at_most_once: 0,
        front: 0,
        expiry: ExpiryTimes::NEW,
    };
    const UNUSED: &Queue = &Queue::NEW;
}

impl Queue {
    /// Returns the number of deliveries, paged-out ones included.
    pub fn len(&self) -> usize {
        self.entries.len() + self.paged_out.len()
    }

    /// True if nothing is queued.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.paged_out.is_empty()
    }

    /// Iterates over the deliveries in memory from a place on, each with the number of deliveries
    /// before it and the number of its place. A place that is gone means the oldest delivery. Costs
    /// nothing for the deliveries before it.
    pub fn view_from(&self, place: u64) -> impl Iterator<Item = (usize, u64, &Delivery)> {
        let skipped = usize::try_from(place.saturating_sub(self.front)).unwrap_or(usize::MAX);
        let view = self.entries.iter().enumerate().skip(skipped);
        view.map(|(ahead, delivery)| (ahead, self.front + ahead as u64, delivery))
    }

    /// Iterates over the paged-out entries from this one on, in their order.
    pub fn view_paged_out_from(&self, number: EntryNumber) -> impl Iterator<Item = &PagedOut> {
        self.paged_out.view_from(number)
    }

    /// Returns the number of paged-out entries.
    pub fn paged_out(&self) -> usize {
        self.paged_out.len()
    }

    /// Removes a delivery in memory. Returns `None` if it is not in memory any more. Costs a pass
    /// over the deliveries.
    pub fn remove(&mut self, which: &Queued) -> Option<Delivery> {
        let at = match which {
            Queued::Place(number) => usize::try_from(number.checked_sub(self.front)?).ok()?,
            Queued::Stored(entry) => self.entries.iter().position(|delivery| delivery.is_entry(*entry))?,
        };
        if at == 0 {
            return self.pop();
        }
        let delivery = self.entries.remove(at)?;
        self.expiry.remove(at);
        self.front += self.entries.len() as u64 + 2;
        self.bytes -= delivery.size();
        self.at_most_once -= u32::from(delivery.qos == QoS::AtMostOnce);
        Some(delivery)
    }

    /// Removes a paged-out entry. Returns false if it is not paged out. Costs a pass over the
    /// entries.
    pub fn remove_paged_out(&mut self, entry: EntryNumber) -> bool {
        let Some((at, bytes)) = self.paged_out.remove(entry) else { return false };
        self.expiry.remove(self.entries.len() + at);
        self.bytes -= bytes;
        self.account();
        true
    }

    /// Returns the bytes of the deliveries, each with its message in full.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the number of the oldest stored delivery. Later ones have higher numbers. Looks at
    /// the first eight in memory: those at QoS 0 are not stored.
    pub fn oldest_stored(&self) -> Option<EntryNumber> {
        if self.entries.is_empty() {
            return self.paged_out.first().map(PagedOut::number);
        }
        let stored = |delivery: &Delivery| Some(delivery.stored.as_ref()?.number());
        self.entries.iter().take(8).find_map(stored)
    }

    /// True if a QoS 0 delivery is queued.
    pub fn has_at_most_once(&self) -> bool {
        self.at_most_once > 0
    }

    /// Appends a delivery within the limits. May drop expired or, by policy, the oldest deliveries.
    ///
    /// # Errors
    /// [`QueueFull`] if the policy does not drop the oldest, or if the message alone exceeds the
    /// bound.
    pub fn push(
        &mut self,
        now: Instant,
        mut delivery: Delivery,
        head: Head,
        limits: &QueueLimits,
        drops: &mut Drops,
    ) -> Result<(), QueueFull> {
        let size = delivery.size();
        self.make_room(now, size, limits, drops);
        if limits.policy == QueuePolicy::DropOldest && size <= limits.bytes {
            for _ in 0..most_dropped(size) {
                if self.has_room(size, limits) {
                    break;
                }
                let Some(oldest) = self.take_oldest(DropReason::QueueOverflow) else { break };
                drops.lose(oldest);
            }
        }
        if !self.has_room(size, limits) {
            // This entry never stood for the message: another receiver or a dead letter is recorded
            // before the publisher's gate is made.
            if let Some(entry) = &mut delivery.stored {
                entry.done();
            }
            return Err(QueueFull);
        }
        self.append(delivery, head);
        Ok(())
    }

    /// Drops the oldest deliveries, at most `most`. Returns their number.
    pub fn drop_oldest(&mut self, most: usize, cause: DropReason, drops: &mut Drops) -> usize {
        let oldest = std::iter::from_fn(|| self.take_oldest(cause)).take(most);
        let dropped = oldest.map(|oldest| drops.lose(oldest)).count();
        self.give_back_rows();
        dropped
    }

    /// Drops the oldest delivery and returns it, or `None` if the queue is empty. A paged-out entry
    /// is counted like any other, but has no message for a dead letter.
    fn take_oldest(&mut self, cause: DropReason) -> Option<Dropped> {
        if let Some(oldest) = self.pop() {
            return Some(oldest.to_drop(cause));
        }
        let number = self.pop_paged_out()?.number();
        let (mark, _) = self.paged_out.take_mark(number);
        Some(Dropped::new(cause, None).counted_by(mark))
    }

    /// Charges the rows, which may have grown or shrunk. If they have not, this costs two
    /// multiplications and a comparison.
    fn account(&mut self) {
        self.charge.set(self.rows());
    }

    fn rows(&self) -> usize {
        self.entries.capacity() * size_of::<Delivery>() + self.paged_out.row_bytes() + self.expiry.row()
    }

    /// Appends a delivery whatever the limits say: for retained messages at a SUBSCRIBE, which the
    /// retained store bounds. A delivery beyond `head` is paged out, if it is stored.
    pub fn append(&mut self, mut delivery: Delivery, head: Head) {
        // While nothing is paged out, all bytes are in memory.
        let is_long = self.entries.len() >= head as usize || self.bytes >= head.bytes();
        let behind = !self.paged_out.is_empty() || is_long;
        self.bytes += delivery.size();
        self.at_most_once += u32::from(delivery.qos == QoS::AtMostOnce);
        let (others, expires) = (self.len(), delivery.message.header().expires);
        match delivery.stored.take_if(|_| behind) {
            Some(entry) => {
                self.expiry.insert(others, others, expires);
                self.paged_out.page_out(*entry, &delivery);
            }
            None => {
                self.expiry.insert(self.entries.len(), others, expires);
                self.entries.push_back(delivery);
            }
        }
        self.account();
    }

    /// Restores a delivery from the store at the start of the broker, as a paged-out entry. All
    /// restores come in the order of the entry numbers.
    pub fn restore(&mut self, entry: PagedOut, recovered: &RecoveredEntry) {
        self.expiry.insert(self.len(), self.len(), entry.expires());
        self.bytes += self.paged_out.restore(entry, recovered);
        self.account();
    }

    /// True if it is time to read a page and none is being read.
    pub fn wants_page(&self) -> bool {
        let is_short = self.entries.len() < Head::Offline as usize / 2;
        self.paged_out.has_next_page() && is_short && self.has_less_than_a_page()
    }

    /// Returns true if the messages in memory take less than a page. Looks at 32 deliveries at
    /// most, because the caller checks their number first.
    fn has_less_than_a_page(&self) -> bool {
        self.entries.iter().map(Delivery::size).sum::<usize>() < PAGE_BYTES
    }

    /// Records that the queue waits for its turn to read a page. Returns true if it did not wait
    /// before.
    pub fn wait_for_page(&mut self) -> bool {
        self.paged_out.wait_for_turn()
    }

    /// Records that the queue's turn has come.
    pub fn page_waited_for(&mut self) {
        self.paged_out.turn_came();
    }

    /// Returns the next entries to read, or `None` if it is not time or a page is being read.
    pub fn next_page(&mut self) -> Option<Vec<(EntryNumber, BodyNumber)>> {
        self.wants_page().then(|| self.paged_out.begin_page())
    }

    /// Takes a page that was read. `wanted` is the request, and `read` has the entries that the
    /// store found. An entry that the store did not find is dropped.
    pub fn take_page(
        &mut self,
        wanted: &[(EntryNumber, BodyNumber)],
        read: Vec<ReadEntry>,
        drops: &mut Drops,
    ) {
        self.paged_out.end_page();
        let mut read = read.into_iter().peekable();
        for (number, _) in wanted {
            let found = read.next_if(|r| r.number == *number);
            // The entry expired or was dropped since the request.
            let Some((stored, bytes)) = self.paged_out.pop_if(*number) else { continue };
            let (mark, audit) = self.paged_out.take_mark(*number);
            self.bytes -= bytes;
            let Some(ReadEntry { message, qos, retain, ids, share, .. }) = found else {
                self.expiry.remove(self.entries.len());
                drops.lose(Dropped::new(DropReason::Unreadable, None).counted_by(mark));
                continue;
            };
            let message = message.with_audit(audit);
            let delivery = Delivery { message, ids, qos, retain, mark, share, stored: stored.fetched() };
            self.bytes += delivery.size();
            self.entries.push_back(delivery);
        }
        self.give_back_rows();
    }

    /// Frees the rows of a drained queue. A short queue keeps its rows.
    fn give_back_rows(&mut self) {
        if self.entries.is_empty() && self.entries.capacity() > 256 {
            self.entries = VecDeque::new();
        }
        self.paged_out.give_back_row();
        self.account();
    }

    /// Returns the oldest delivery in memory, without removing it.
    pub fn front(&self) -> Option<&Delivery> {
        self.entries.front()
    }

    /// Returns the place of the oldest delivery that was paged out.
    pub fn first_paged_out(&self) -> Option<(EntryNumber, BodyNumber)> {
        let first = self.paged_out.first()?;
        Some((first.number(), first.body()?))
    }

    /// Removes the oldest delivery in memory.
    pub fn pop(&mut self) -> Option<Delivery> {
        let delivery = self.entries.pop_front()?;
        self.expiry.pop();
        self.front += 1;
        self.bytes -= delivery.size();
        self.at_most_once -= u32::from(delivery.qos == QoS::AtMostOnce);
        if self.entries.is_empty() {
            self.give_back_rows();
        }
        Some(delivery)
    }

    /// Looks at `most` deliveries in memory, from the one with this number on, and removes those
    /// for which `is_taken` returns true. Ends behind the first shared delivery that is removed. A
    /// number that is gone means the oldest delivery. Paged-out entries stay, because their
    /// messages are not known.
    pub fn take_where(
        &mut self,
        number: u64,
        most: usize,
        mut is_taken: impl FnMut(&Message) -> bool,
    ) -> Portion<Delivery> {
        let (len, from) = (self.entries.len(), number.saturating_sub(self.front));
        let from = usize::try_from(from).unwrap_or(usize::MAX).min(len);
        let mut selections = Vec::new();
        let select = |delivery: &Delivery| {
            selections.push(delivery.selection(&mut is_taken));
            selections.last().copied().unwrap_or(Selection::Keep)
        };
        let mut portion = take_portion(&mut self.entries, from, most, select);
        if !portion.taken.is_empty() {
            self.expiry.take(from, &selections);
            self.front += len as u64 + 1;
            for delivery in &portion.taken {
                self.bytes -= delivery.size();
                self.at_most_once -= u32::from(delivery.qos == QoS::AtMostOnce);
            }
            self.give_back_rows();
        }
        let next = from + portion.looked_at - portion.taken.len();
        portion.next = (next < self.entries.len()).then(|| self.front + next as u64);
        portion
    }

    /// True if some paged-out entry came by a shared subscription.
    pub fn has_shared_paged_out(&self) -> bool {
        self.paged_out.has_shared()
    }

    /// Removes the oldest paged-out entry.
    pub fn pop_paged_out(&mut self) -> Option<PagedOut> {
        let (oldest, bytes) = self.paged_out.pop()?;
        self.expiry.remove(self.entries.len());
        self.bytes -= bytes;
        self.account();
        Some(oldest)
    }

    /// Returns true if the queue has half of the messages or bytes that it may have.
    pub fn is_half_full(&self, limits: &QueueLimits) -> bool {
        self.len() >= limits.messages / 2 || self.bytes >= limits.bytes / 2
    }

    /// Estimates [`Self::make_room`] without a change. Also true if some delivery may have expired,
    /// which could make room.
    pub fn may_have_room(&self, now: Instant, size: usize, limits: &QueueLimits) -> bool {
        self.has_room(size, limits) || self.expiry.may_have_expired(now)
    }

    /// Removes all paged-out entries, when nothing else is left.
    pub fn take_paged_out(&mut self) -> VecDeque<PagedOut> {
        self.bytes = 0;
        self.expiry.clear();
        let paged_out = self.paged_out.take();
        self.account();
        paged_out
    }

    /// True if a message of this size fits as the queue is.
    pub fn has_room(&self, size: usize, limits: &QueueLimits) -> bool {
        limits.admit(self.len(), self.bytes + size)
    }

    /// Drops as many expired deliveries as a message of this size needs the room of. Returns true
    /// if the message fits then.
    pub fn make_room(&mut self, now: Instant, size: usize, limits: &QueueLimits, drops: &mut Drops) -> bool {
        if self.has_room(size, limits) {
            return true;
        }
        let (mut searched, mut left) = (SEARCHED.max(self.surplus(size, limits)), most_dropped(size));
        while !self.has_room(size, limits) && size <= limits.bytes && left > 0 {
            let Some(first) = self.expiry.first_expired(now) else { break };
            drops.spend_bytes(first * size_of::<Instant>());
            let dropped = self.drop_expired(now, first, searched.min(left), drops);
            // The first one has expired, so some were dropped.
            left = left.saturating_sub(dropped.max(1));
            searched *= 2;
        }
        self.has_room(size, limits)
    }

    /// Estimates how many deliveries have to leave before a message of this size fits. All count as
    /// equally large.
    fn surplus(&self, size: usize, limits: &QueueLimits) -> usize {
        let average = self.bytes / self.len().max(1);
        let bytes = (self.bytes + size).saturating_sub(limits.bytes);
        (self.len() + 1).saturating_sub(limits.messages).max(bytes.div_ceil(average.max(1)))
    }

    /// Drops the expired ones among the deliveries from the place `first` on: among `most` of them,
    /// or more if that many others have to be moved. Returns the number of drops.
    fn drop_expired(&mut self, now: Instant, first: usize, most: usize, drops: &mut Drops) -> usize {
        let in_memory = self.entries.len();
        let (from, of) =
            if first < in_memory { (first, in_memory) } else { (first - in_memory, self.paged_out.len()) };
        let most = most.max(from.min(of - from) / MOVED).min(of - from);
        let selections = self.expiry.select_expired(first, most, now);
        self.expiry.take(first, &selections);
        let dropped = if first < in_memory {
            self.drop_selected(from, &selections, drops)
        } else {
            let (dropped, bytes) = self.paged_out.drop_selected(from, &selections, drops);
            self.bytes -= bytes;
            dropped
        };
        self.account();
        dropped
    }

    /// Drops deliveries in memory, from the place `from` on, because they have expired. Returns
    /// their number.
    fn drop_selected(&mut self, from: usize, selections: &[Selection], drops: &mut Drops) -> usize {
        let (len, mut next) = (self.entries.len(), selections.iter());
        let select = |_: &Delivery| next.next().copied().unwrap_or(Selection::Keep);
        let expired = take_portion(&mut self.entries, from, selections.len(), select);
        drops.spend_bytes(expired.moved * size_of::<Delivery>());
        let dropped = expired.taken.len();
        for delivery in expired.taken {
            drops.lose(delivery.to_drop(DropReason::Expired));
            self.bytes -= delivery.size();
            self.at_most_once -= u32::from(delivery.qos == QoS::AtMostOnce);
        }
        // If only the oldest went, the others keep their numbers, and a check goes on where it was.
        let is_oldest = from == 0 && selections.iter().take(dropped).all(|s| *s != Selection::Keep);
        self.front += if is_oldest { dropped as u64 } else { len as u64 + 1 };
        dropped
    }
}

impl Recount for Queue {
    fn recount(&self) -> Recounted {
        Recounted { in_use: self.rows(), charged: self.charge.bytes() }
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
