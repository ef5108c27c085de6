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
use crate::mqtt::packet::QoS;
use crate::mqtt::subscription_ids::SubscriptionIds;
use crate::persistence::records::{BodyNumber, EntryNumber, ReadEntry};
use crate::persistence::rows::{Entry, Parked};
use crate::session::drops::{DropReason, Dropped, Drops};
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
    /// The shared subscription that the message came by, in full; `None` without one. At the end of
    /// the session, another member of the group may get the message.
    pub share: Option<Arc<Box<str>>>,
    /// The row in the store; `None` if the delivery is not stored. Dropping the delivery ends the
    /// row.
    pub stored: Option<Box<Entry>>,
}

impl Delivery {
    /// Returns the bytes that count in a queue: the message in full, and its Subscription
    /// Identifiers.
    pub fn size(&self) -> usize {
        self.message.size() + self.ids.size()
    }
}

/// Entries in one page at most.
const PAGE: usize = 64;

/// Bytes after which no more entries are added to a page.
const PAGE_BYTES: usize = 256 * 1024;

/// Returns the first page of parked entries and the bytes of its messages.
pub fn page_of(entries: &VecDeque<Parked>) -> (Vec<(EntryNumber, BodyNumber)>, usize) {
    let mut bytes = 0;
    let page = entries.iter().take(PAGE).take_while(|e| {
        let has_room = bytes < PAGE_BYTES;
        bytes += if has_room { e.size() } else { 0 };
        has_room
    });
    let named = page.filter_map(|e| Some((e.number(), e.body()?))).collect();
    (named, bytes)
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
    parked: VecDeque<Parked>,
    /// True while the first page of `parked` is being read.
    is_reading: bool,
    /// True if the shard knows that the queue waits for its turn to read a page.
    waits_for_turn: bool,
    /// True if some entry of `parked` came by a shared subscription since `parked` was last empty.
    shared: bool,
    /// Bytes of all deliveries, each with its message in full.
    bytes: usize,
    /// The part of `bytes` that is Subscription Identifiers of `parked`. Each entry that leaves
    /// takes an equal share: an exact figure would cost space in each entry, and entries of one
    /// session are much alike.
    parked_ids: usize,
    /// The charge of `entries` and `parked` beside the messages.
    charge: Charge,
    /// The charge of the messages that are being read.
    reserved: Charge,
    /// Number of entries at QoS 0. While there are any, later QoS 0 messages go behind them.
    at_most_once: u32,
    /// No entry expires before this time. So a full queue is searched only if some entry may have
    /// expired.
    earliest_expiry: Instant,
}

impl Default for Queue {
    fn default() -> Queue {
        Queue {
            entries: VecDeque::new(),
            parked: VecDeque::new(),
            is_reading: false,
            waits_for_turn: false,
            shared: false,
            bytes: 0,
            parked_ids: 0,
            charge: Charge::NONE,
            reserved: Charge::NONE,
            at_most_once: 0,
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
                && let Some(lost) = self.drop_oldest()
            {
                drops.lose(lost);
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

    /// Drops the oldest delivery and returns it, or `None` if the queue is empty. A parked entry is
    /// counted like any other, but has no message for a dead letter.
    fn drop_oldest(&mut self) -> Option<Dropped> {
        if let Some(oldest) = self.pop() {
            return Some(Dropped::unsent(DropReason::QueueOverflow, oldest.message));
        }
        let oldest = self.parked.pop_front()?;
        self.forget_parked(&oldest);
        Some(Dropped::new(DropReason::QueueOverflow, None))
    }

    /// Adjusts the figures for an entry that was removed from `parked`.
    fn forget_parked(&mut self, entry: &Parked) {
        let ids = self.parked_ids / (self.parked.len() + 1);
        self.parked_ids -= ids;
        self.bytes -= entry.size() + ids;
    }

    /// Charges the rows, which may have grown or shrunk. If they have not, this costs two
    /// multiplications and a comparison.
    fn account(&mut self) {
        self.charge.set(self.rows());
    }

    fn rows(&self) -> usize {
        self.entries.capacity() * size_of::<Delivery>() + self.parked.capacity() * size_of::<Parked>()
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
                self.shared = delivery.share.is_some() || self.shared && !self.parked.is_empty();
                self.parked_ids += delivery.ids.size();
                self.parked.extend(entry.park());
            }
            None => self.entries.push_back(delivery),
        }
        self.account();
    }

    /// Appends a parked entry at the start of the broker. `ids` is the size of its Subscription
    /// Identifiers in bytes.
    pub fn restore(&mut self, entry: Parked, shared: bool, ids: usize) {
        self.shared |= shared;
        self.bytes += entry.size() + ids;
        self.parked_ids += ids;
        self.earliest_expiry = self.earliest_expiry.min(entry.expires());
        self.parked.push_back(entry);
        self.account();
    }

    /// True if it is time to read a page and none is being read.
    pub fn wants_page(&self) -> bool {
        let is_short = self.entries.len() < Head::Offline as usize / 2;
        !self.is_reading && !self.parked.is_empty() && is_short && self.has_less_than_a_page()
    }

    /// Returns true if the messages in memory take less than a page. Looks at 32 deliveries at most,
    /// because the caller checks their number first.
    fn has_less_than_a_page(&self) -> bool {
        self.entries.iter().map(Delivery::size).sum::<usize>() < PAGE_BYTES
    }

    /// Records that the queue waits for its turn to read a page. Returns true if it did not wait
    /// before.
    pub fn wait_for_page(&mut self) -> bool {
        !std::mem::replace(&mut self.waits_for_turn, true)
    }

    /// Records that the queue's turn has come.
    pub fn page_waited_for(&mut self) {
        self.waits_for_turn = false;
    }

    /// Returns the next entries to read, or `None` if it is not time or a page is being read.
    pub fn next_page(&mut self) -> Option<Vec<(EntryNumber, BodyNumber)>> {
        if !self.wants_page() {
            return None;
        }
        self.is_reading = true;
        let (page, bytes) = page_of(&self.parked);
        // Charged from now on, because many pages are requested before the first one arrives.
        self.reserved.set(bytes + self.parked_ids / self.parked.len().max(1) * page.len());
        Some(page)
    }

    /// Takes a page that was read. `wanted` is the request, and `read` has the entries that the
    /// store found. An entry that the store did not find is dropped.
    pub fn take_page(
        &mut self,
        wanted: &[(EntryNumber, BodyNumber)],
        read: Vec<ReadEntry>,
        drops: &mut Drops,
    ) {
        self.is_reading = false;
        self.reserved.set(0);
        let mut read = read.into_iter().peekable();
        for (number, _) in wanted {
            let found = read.next_if(|r| r.number == *number);
            // The entry expired or was dropped since the request.
            let Some(stored) = self.parked.pop_front_if(|e| e.number() == *number) else { continue };
            self.forget_parked(&stored);
            let Some(ReadEntry { message, qos, retain, ids, share, .. }) = found else {
                drops.lose(Dropped::new(DropReason::Unreadable, None));
                continue;
            };
            let delivery = Delivery { message, ids, qos, retain, share, stored: stored.fetched() };
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
        if self.parked.capacity() > 256 && self.parked.len() * 4 <= self.parked.capacity() {
            self.parked.shrink_to(self.parked.len() * 2);
        }
        self.account();
    }

    /// Returns the oldest delivery in memory, without removing it.
    pub fn front(&self) -> Option<&Delivery> {
        self.entries.front()
    }

    /// Removes the oldest delivery in memory.
    pub fn pop(&mut self) -> Option<Delivery> {
        let delivery = self.entries.pop_front()?;
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

    /// True if some parked entry came by a shared subscription.
    pub fn has_shared_unread(&self) -> bool {
        self.shared && !self.parked.is_empty()
    }

    /// Removes the oldest parked entry.
    pub fn pop_unread(&mut self) -> Option<Parked> {
        let oldest = self.parked.pop_front()?;
        self.forget_parked(&oldest);
        Some(oldest)
    }

    /// Removes all parked entries, when nothing else is left.
    pub fn take_unread(&mut self) -> VecDeque<Parked> {
        (self.bytes, self.parked_ids) = (0, 0);
        let unread = std::mem::take(&mut self.parked);
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
        let Queue { entries, parked, bytes, parked_ids, at_most_once, earliest_expiry, .. } = self;
        *earliest_expiry = Instant::NEVER;
        entries.retain(|d| {
            let expired = d.message.is_expired(now);
            if expired {
                drops.lose(Dropped::unsent(DropReason::Expired, d.message.clone()));
                *bytes -= d.size();
                *at_most_once -= u32::from(d.qos == QoS::AtMostOnce);
            } else {
                *earliest_expiry = (*earliest_expiry).min(d.message.header().expires);
            }
            !expired
        });
        let mut left = parked.len();
        parked.retain(|e| {
            let expired = e.expires() <= now;
            if expired {
                // The same share as in `forget_parked`.
                let ids = *parked_ids / left.max(1);
                *parked_ids -= ids;
                *bytes -= ids;
                left -= 1;
                // Without its message, as in `drop_oldest`.
                drops.lose(Dropped::new(DropReason::Expired, None));
                *bytes -= e.size();
            } else {
                *earliest_expiry = (*earliest_expiry).min(e.expires());
            }
            !expired
        });
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
