//! The queue: messages that wait because their receiver is away, its window is full, or its socket
//! takes no bytes.
//!
//! The queue is bounded in number and bytes. Each message is counted in full in each queue. A
//! message beyond the bound is decided by policy, after expired entries have made room. Control
//! packets are never queued.
//!
//! Only the head of a long stored queue is in memory. Behind it stand parked entries without their
//! messages, about 110 B each with their bodies. Pages of them are read back as the head drains.

use crate::mqtt::charge::{Charge, Recount, Recounted};
use crate::mqtt::message::Message;
use crate::mqtt::packet::{PacketId, QoS};
use crate::mqtt::subscription_ids::SubscriptionIds;
use crate::persistence::records::{BodyNumber, EntryNumber, ReadEntry};
use crate::persistence::rows::{Entry, Parked};
use crate::session::drops::{DropReason, Dropped, Drops};
use crate::session::objectives::DeliveryMark;
use crate::session::outbound::parked::{PAGE_BYTES, ParkedEntries};
use crate::session::outbound::portion::{Portion, Selection, take_portion};
use crate::session::wire::Sending;
use crate::time::Instant;
use std::collections::VecDeque;
use std::sync::Arc;

/// A message with the fields that its delivery adds.
#[derive(Debug)]
pub struct Delivery {
    /// The message.
    pub message: Message,
    /// The Subscription Identifiers.
    pub ids: SubscriptionIds,
    /// The lower of published and granted QoS.
    pub qos: QoS,
    /// The RETAIN flag.
    pub retain: bool,
    /// The delivery objective that counts the delivery.
    pub mark: DeliveryMark,
    /// The shared subscription that the message came by, in full; `None` without one. At the end of
    /// the session, another member of the group may get the message.
    pub share: Option<Arc<Box<str>>>,
    /// The row in the store; `None` if the delivery is not stored. Dropping the delivery ends the
    /// row.
    pub stored: Option<Box<Entry>>,
}

impl Delivery {
    /// Returns the fields of a PUBLISH that is sent for the first time.
    pub fn sending(&self, packet_id: Option<PacketId>) -> Sending<'_> {
        let Delivery { qos, retain, ids, .. } = self;
        Sending { dup: false, qos: *qos, retain: *retain, packet_id, ids: ids.as_slice() }
    }

    /// Returns true if this is the stored delivery with this number.
    pub fn is_entry(&self, number: EntryNumber) -> bool {
        self.stored.as_ref().is_some_and(|stored| stored.number() == number)
    }

    /// Returns the bytes that count in a queue: the message in full, and its Subscription
    /// Identifiers.
    pub fn size(&self) -> usize {
        self.message.size() + self.ids.size()
    }

    /// Returns the selection of a portion that takes the delivery if `is_taken` returns true for
    /// its message. A shared delivery is the last one that a portion takes, because another member
    /// may get it, which costs more.
    pub fn selection(&self, is_taken: &mut impl FnMut(&Message) -> bool) -> Selection {
        if !is_taken(&self.message) {
            return Selection::Keep;
        }
        if self.share.is_some() { Selection::TakeLast } else { Selection::Take }
    }

    /// Returns the drop of this delivery, which was never sent to the session. The stored row ends
    /// with the delivery itself.
    pub fn to_drop(&self, cause: DropReason) -> Dropped {
        Dropped::unsent(cause, self.message.clone()).counted_by(self.mark)
    }
}

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

impl QueueLimits {
    /// Returns true if a queue of this many messages takes one more, with `bytes` in all.
    pub fn admit(&self, messages: usize, bytes: usize) -> bool {
        messages < self.messages && bytes <= self.bytes
    }
}

/// The policy for a message that a full queue cannot take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueuePolicy {
    /// The message is refused. The publisher is told if its version has a reason code.
    Refuse,
    /// The oldest queued messages are dropped.
    DropOldest,
    /// A connected receiver is disconnected and keeps its session. The message is refused.
    Disconnect,
    /// The publisher's acknowledgement waits until the queue has room.
    Hold,
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
    /// Returns the bytes of messages after which the next message is parked, even if fewer than the
    /// number are in memory. The bound is larger for a connected client, because messages in memory
    /// need not be read back.
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
    /// The parked entries, which stand behind `entries`.
    parked: ParkedEntries,
    /// Bytes of all deliveries, each with its message in full.
    bytes: usize,
    /// The charge of `entries` and `parked` beside the messages.
    charge: Charge,
    /// Number of entries at QoS 0. While there are any, later QoS 0 messages go behind them.
    at_most_once: u32,
    /// The number of the oldest entry in memory, for operators. The numbers of the others follow
    /// without a gap. Every number is new after an entry between two others was removed.
    front: u64,
    /// No entry expires before this time. So a full queue is searched only if some entry may have
    /// expired.
    earliest_expiry: Instant,
}

impl Default for Queue {
    fn default() -> Queue {
        Queue {
            entries: VecDeque::new(),
            parked: ParkedEntries::default(),
            bytes: 0,
            charge: Charge::NONE,
            at_most_once: 0,
            front: 0,
            earliest_expiry: Instant::NEVER,
        }
    }
}

impl Queue {
    /// Returns the number of deliveries, parked ones included.
    pub fn len(&self) -> usize {
        self.entries.len() + self.parked.len()
    }

    /// True if nothing is queued.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.parked.is_empty()
    }

    /// Iterates over the deliveries that are in memory, in their order.
    pub fn view(&self) -> impl Iterator<Item = &Delivery> {
        self.entries.iter()
    }

    /// Iterates over the deliveries in memory from the one with this number on, each with its
    /// number. A number that is gone stands for the oldest one.
    pub fn view_from(&self, number: u64) -> impl Iterator<Item = (u64, &Delivery)> {
        let skipped = number.saturating_sub(self.front);
        let first = self.front + skipped;
        (first..).zip(self.entries.iter().skip(usize::try_from(skipped).unwrap_or(usize::MAX)))
    }

    /// Iterates over the parked entries, in their order.
    pub fn view_parked(&self) -> impl Iterator<Item = &Parked> {
        self.parked.view()
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
        self.front += self.entries.len() as u64 + 2;
        self.bytes -= delivery.size();
        self.at_most_once -= u32::from(delivery.qos == QoS::AtMostOnce);
        Some(delivery)
    }

    /// Removes a parked entry. Returns false if it is not parked. Costs a pass over the entries.
    pub fn remove_parked(&mut self, entry: EntryNumber) -> bool {
        let Some(bytes) = self.parked.remove(entry) else { return false };
        self.bytes -= bytes;
        self.account();
        true
    }

    /// Returns the bytes of the deliveries, each with its message in full.
    pub fn bytes(&self) -> usize {
        self.bytes
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
            while !self.has_room(size, limits)
                && let Some(oldest) = self.take_oldest(DropReason::QueueOverflow)
            {
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

    /// Drops the oldest delivery and returns it, or `None` if the queue is empty. A parked entry is
    /// counted like any other, but has no message for a dead letter.
    fn take_oldest(&mut self, cause: DropReason) -> Option<Dropped> {
        if let Some(oldest) = self.pop() {
            return Some(oldest.to_drop(cause));
        }
        let number = self.pop_unread()?.number();
        let (mark, _) = self.parked.take_mark(number);
        Some(Dropped::new(cause, None).counted_by(mark))
    }

    /// Charges the rows, which may have grown or shrunk. If they have not, this costs two
    /// multiplications and a comparison.
    fn account(&mut self) {
        self.charge.set(self.rows());
    }

    fn rows(&self) -> usize {
        self.entries.capacity() * size_of::<Delivery>() + self.parked.row_bytes()
    }

    /// Appends a delivery whatever the limits say: for retained messages at a SUBSCRIBE, which the
    /// retained store bounds. A delivery beyond `head` is parked, if it is stored.
    pub fn append(&mut self, mut delivery: Delivery, head: Head) {
        // While nothing is parked, all bytes are in memory.
        let is_long = self.entries.len() >= head as usize || self.bytes >= head.bytes();
        let behind = !self.parked.is_empty() || is_long;
        self.bytes += delivery.size();
        self.at_most_once += u32::from(delivery.qos == QoS::AtMostOnce);
        self.earliest_expiry = self.earliest_expiry.min(delivery.message.header().expires);
        match delivery.stored.take_if(|_| behind) {
            Some(entry) => {
                self.parked.keep_mark(&entry, delivery.mark, delivery.message.audit());
                self.parked.park(*entry, delivery.share.is_some(), delivery.ids.size());
            }
            None => self.entries.push_back(delivery),
        }
        self.account();
    }

    /// Appends a parked entry at the start of the broker. `ids` is the size of its Subscription
    /// Identifiers in bytes.
    pub fn restore(&mut self, entry: Parked, shared: bool, ids: usize) {
        self.bytes += entry.size() + ids;
        self.earliest_expiry = self.earliest_expiry.min(entry.expires());
        self.parked.restore(entry, shared, ids);
        self.account();
    }

    /// True if it is time to read a page and none is being read.
    pub fn wants_page(&self) -> bool {
        let is_short = self.entries.len() < Head::Offline as usize / 2;
        self.parked.has_next_page() && is_short && self.has_less_than_a_page()
    }

    /// Returns true if the messages in memory take less than a page. Looks at 32 deliveries at
    /// most, because the caller checks their number first.
    fn has_less_than_a_page(&self) -> bool {
        self.entries.iter().map(Delivery::size).sum::<usize>() < PAGE_BYTES
    }

    /// Records that the queue waits for its turn to read a page. Returns true if it did not wait
    /// before.
    pub fn wait_for_page(&mut self) -> bool {
        self.parked.wait_for_turn()
    }

    /// Records that the queue's turn has come.
    pub fn page_waited_for(&mut self) {
        self.parked.turn_came();
    }

    /// Returns the next entries to read, or `None` if it is not time or a page is being read.
    pub fn next_page(&mut self) -> Option<Vec<(EntryNumber, BodyNumber)>> {
        self.wants_page().then(|| self.parked.begin_page())
    }

    /// Takes a page that was read. `wanted` is the request, and `read` has the entries that the
    /// store found. An entry that the store did not find is dropped.
    pub fn take_page(
        &mut self,
        wanted: &[(EntryNumber, BodyNumber)],
        read: Vec<ReadEntry>,
        drops: &mut Drops,
    ) {
        self.parked.end_page();
        let mut read = read.into_iter().peekable();
        for (number, _) in wanted {
            let found = read.next_if(|r| r.number == *number);
            // The entry expired or was dropped since the request.
            let Some((stored, bytes)) = self.parked.pop_if(*number) else { continue };
            let (mark, audit) = self.parked.take_mark(*number);
            self.bytes -= bytes;
            let Some(ReadEntry { message, qos, retain, ids, share, .. }) = found else {
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

    /// Frees the rows of a drained backlog. A short queue keeps its rows.
    fn give_back_rows(&mut self) {
        if self.entries.is_empty() && self.entries.capacity() > 256 {
            self.entries = VecDeque::new();
        }
        self.parked.give_back_row();
        self.account();
    }

    /// Returns the oldest delivery in memory, without removing it.
    pub fn front(&self) -> Option<&Delivery> {
        self.entries.front()
    }

    /// Removes the oldest delivery in memory.
    pub fn pop(&mut self) -> Option<Delivery> {
        let delivery = self.entries.pop_front()?;
        self.front += 1;
        self.bytes -= delivery.size();
        self.at_most_once -= u32::from(delivery.qos == QoS::AtMostOnce);
        if self.entries.is_empty() {
            if self.parked.is_empty() {
                self.earliest_expiry = Instant::NEVER;
            }
            self.give_back_rows();
        }
        Some(delivery)
    }

    /// Looks at `most` deliveries in memory, from the one with this number on, and removes those
    /// for which `is_taken` returns true. Ends behind the first shared delivery that is removed. A
    /// number that is gone stands for the oldest delivery. Parked entries stay, because their
    /// messages are not known.
    pub fn take_where(
        &mut self,
        number: u64,
        most: usize,
        mut is_taken: impl FnMut(&Message) -> bool,
    ) -> Portion<Delivery> {
        let (len, from) = (self.entries.len(), number.saturating_sub(self.front));
        let from = usize::try_from(from).unwrap_or(usize::MAX).min(len);
        let select = |delivery: &Delivery| delivery.selection(&mut is_taken);
        let mut portion = take_portion(&mut self.entries, from, most, select);
        if !portion.taken.is_empty() {
            self.front += len as u64 + 1;
            for delivery in &portion.taken {
                self.bytes -= delivery.size();
                self.at_most_once -= u32::from(delivery.qos == QoS::AtMostOnce);
            }
            if self.is_empty() {
                self.earliest_expiry = Instant::NEVER;
            }
            self.give_back_rows();
        }
        let next = from + portion.looked_at - portion.taken.len();
        portion.next = (next < self.entries.len()).then(|| self.front + next as u64);
        portion
    }

    /// Returns true if some entry is parked, so that its message is only in the store.
    pub fn has_unread(&self) -> bool {
        !self.parked.is_empty()
    }

    /// True if some parked entry came by a shared subscription.
    pub fn has_shared_unread(&self) -> bool {
        self.parked.has_shared()
    }

    /// Removes the oldest parked entry.
    pub fn pop_unread(&mut self) -> Option<Parked> {
        let (oldest, bytes) = self.parked.pop()?;
        self.bytes -= bytes;
        Some(oldest)
    }

    /// Removes all parked entries, when nothing else is left.
    pub fn take_unread(&mut self) -> VecDeque<Parked> {
        self.bytes = 0;
        let unread = self.parked.take();
        self.account();
        unread
    }

    /// True if a message of this size fits as the queue is.
    pub fn has_room(&self, size: usize, limits: &QueueLimits) -> bool {
        limits.admit(self.len(), self.bytes + size)
    }

    /// True if some delivery may have expired.
    pub fn may_have_expired(&self, now: Instant) -> bool {
        self.earliest_expiry <= now
    }

    /// Drops expired deliveries if a message of this size does not fit. Returns true if the message
    /// fits then.
    pub fn make_room(&mut self, now: Instant, size: usize, limits: &QueueLimits, drops: &mut Drops) -> bool {
        if !self.has_room(size, limits) {
            self.drop_expired(now, drops);
        }
        self.has_room(size, limits)
    }

    fn drop_expired(&mut self, now: Instant, drops: &mut Drops) {
        if self.earliest_expiry > now {
            return;
        }
        let Queue { entries, parked, bytes, at_most_once, earliest_expiry, front, .. } = self;
        *earliest_expiry = Instant::NEVER;
        let len = entries.len();
        let oldest = entries.iter().take_while(|d| d.message.is_expired(now)).count();
        entries.retain(|d| {
            let expired = d.message.is_expired(now);
            if expired {
                drops.lose(d.to_drop(DropReason::Expired));
                *bytes -= d.size();
                *at_most_once -= u32::from(d.qos == QoS::AtMostOnce);
            } else {
                *earliest_expiry = (*earliest_expiry).min(d.message.header().expires);
            }
            !expired
        });
        // If only the oldest went, the others keep their numbers, and a check goes on where it was.
        let removed = len - entries.len();
        let skipped = if removed == oldest { removed } else { len + 1 };
        *front += skipped as u64;
        let (expired_bytes, earliest_parked) = parked.drop_expired(now, drops);
        *bytes -= expired_bytes;
        *earliest_expiry = (*earliest_expiry).min(earliest_parked);
    }
}

impl Recount for Queue {
    fn recount(&self) -> Recounted {
        Recounted { held: self.rows(), charged: self.charge.bytes() }
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
