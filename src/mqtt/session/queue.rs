//! Messages that wait for their receiver: while it is away, while its window is full, while its socket takes nothing.
//!
//! Bounded in number and bytes; each message is charged its full size in each queue. What the bound does not admit is
//! decided by policy, after expired entries have made room. Control packets are never in here.
//!
//! Of a long queue whose deliveries are in the store, only the head is in memory: behind it stand entries without their
//! messages, some 110 B each, bodies included, which are read back in pages as the head drains.

use super::loss::{LossCause, Losses, Lost};
use super::seldom::Empty;
use super::subscription::SubscriptionIds;
use crate::journal::ledger::{Entry, Parked};
use crate::journal::record::{BodyNumber, EntryNumber, ReadEntry};
use crate::mqtt::charge::{Charge, Recount, Recounted};
use crate::mqtt::message::Message;
use crate::mqtt::packet::QoS;
use crate::time::Instant;
use std::collections::VecDeque;
use std::sync::Arc;

/// A message with what its delivery adds to it.
#[derive(Debug)]
pub struct Delivery {
    pub message: Message,
    pub ids: SubscriptionIds,
    /// The lower of publish and granted QoS.
    pub qos: QoS,
    pub retain: bool,
    /// The shared subscription it came by, in full: at the end of the session it may be another member's.
    pub share: Option<Arc<Box<str>>>,
    /// Its row in the store, if it has one: gone with it.
    pub stored: Option<Box<Entry>>,
}

impl Delivery {
    /// Bytes that it is charged with in a queue: its message in full, and its Subscription Identifiers.
    pub fn size(&self) -> usize {
        self.message.size() + self.ids.size()
    }
}

/// Entries that are read back at once, at most,
const PAGE: usize = 64;

/// and their bytes: no more are added to a page that has so many.
const PAGE_BYTES: usize = 256 * 1024;

/// What a queue had whose messages are in the store alone.
#[derive(Debug)]
pub struct Unread {
    pub entries: VecDeque<Parked>,
    /// Whether any of them may have come by a shared subscription.
    pub shared: bool,
}

/// What to read of entries: the first of them, and how many bytes their messages are.
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
    pub messages: usize,
    pub bytes: usize,
    pub policy: QueuePolicy,
}

/// What happens to a message that a full queue cannot take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueuePolicy {
    /// It is refused, and the publisher told where the version can tell.
    Refuse,
    /// The oldest waiting messages go.
    DropOldest,
    /// A connected receiver is disconnected (its session stays); the message is refused.
    Disconnect,
    /// The publisher's acknowledgement waits for room.
    Hold,
}

/// The queue is full, and its policy does not make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Deliveries that a queue keeps in memory, messages included, where the store has the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// Of a client that is away: nobody takes them soon.
    Offline = 64,
    Online = 256,
    /// Where what is dropped or expires is to become a dead letter, which takes the message.
    All = i32::MAX as isize,
}

/// Deliveries in order.
#[derive(Debug)]
pub struct Queue {
    entries: VecDeque<Delivery>,
    /// Those behind them whose messages are in the store alone.
    paged: VecDeque<Parked>,
    /// Whether the first of `paged` were asked for.
    asked: bool,
    /// Whether its shard knows that it waits for its turn to ask.
    waits: bool,
    /// Whether any of `paged` came by a shared subscription since it was last empty.
    shared: bool,
    /// Of all deliveries, each with its message in full.
    bytes: usize,
    /// How much of `bytes` are Subscription Identifiers of `paged`. It is taken away in equal parts: each entry would have to
    /// know its own, and those of one session are much alike.
    paged_ids: usize,
    /// What `entries` and `paged` take beside the messages.
    charge: Charge,
    /// Of the messages that were asked for.
    reserved: Charge,
    /// Entries at QoS 0: while there are any, later QoS 0 messages go behind them.
    at_most_once: u32,
    /// No entry expires before this; so a full queue is searched for expired ones only when there can be one.
    earliest_expiry: Instant,
}

thread_local! {
    static NOTHING: &'static Queue = Box::leak(Box::default());
}

impl Default for Queue {
    fn default() -> Queue {
        Queue::new()
    }
}

impl Empty for Queue {
    fn empty() -> &'static Queue {
        NOTHING.with(|nothing| *nothing)
    }
}

impl Queue {
    const fn new() -> Queue {
        Queue {
            entries: VecDeque::new(),
            paged: VecDeque::new(),
            asked: false,
            waits: false,
            shared: false,
            bytes: 0,
            paged_ids: 0,
            charge: Charge::NONE,
            reserved: Charge::NONE,
            at_most_once: 0,
            earliest_expiry: Instant::NEVER,
        }
    }

    pub fn len(&self) -> usize {
        self.entries.len() + self.paged.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.paged.is_empty()
    }

    /// Bytes of the deliveries, each with its message in full.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn has_at_most_once(&self) -> bool {
        self.at_most_once > 0
    }

    /// Takes a delivery in at the end, within the limits.
    ///
    /// # Errors
    /// [`Full`] where the policy is not to drop the oldest, and where the message alone exceeds the bound.
    pub fn push(
        &mut self,
        now: Instant,
        mut delivery: Delivery,
        head: Head,
        limits: &QueueLimits,
        losses: &mut Losses,
    ) -> Result<(), Full> {
        let size = delivery.size();
        self.make_room(now, size, limits, losses);
        if limits.policy == QueuePolicy::DropOldest && size <= limits.bytes {
            while !self.has_room(size, limits)
                && let Some(lost) = self.drop_oldest()
            {
                losses.lose(lost);
            }
        }
        if !self.has_room(size, limits) {
            // Never owed: whoever else is to have it, or a dead letter, is seen to before its publisher's gate is made.
            if let Some(entry) = &mut delivery.stored {
                entry.done();
            }
            return Err(Full);
        }
        self.append(delivery, head);
        Ok(())
    }

    /// What went, if there was anything. One whose message is in the store alone is counted like any other, but there is
    /// nothing to make a dead letter of.
    fn drop_oldest(&mut self) -> Option<Lost> {
        if let Some(oldest) = self.pop() {
            return Some(Lost::unsent(LossCause::QueueOverflow, oldest.message));
        }
        let oldest = self.paged.pop_front()?;
        self.forget_paged(&oldest);
        Some(Lost::new(LossCause::QueueOverflow, None))
    }

    /// An entry was taken out of `paged`.
    fn forget_paged(&mut self, entry: &Parked) {
        let ids = self.paged_ids / (self.paged.len() + 1);
        self.paged_ids -= ids;
        self.bytes -= entry.size() + ids;
    }

    /// The rows have grown or shrunk, perhaps. Where they have not: two multiplications and a comparison.
    fn account(&mut self) {
        self.charge.set(self.rows());
    }

    fn rows(&self) -> usize {
        self.entries.capacity() * size_of::<Delivery>() + self.paged.capacity() * size_of::<Parked>()
    }

    /// Takes a delivery in whatever the limits say: for retained messages at a SUBSCRIBE, which their own store
    /// bounds.
    pub fn append(&mut self, mut delivery: Delivery, head: Head) {
        self.bytes += delivery.size();
        self.at_most_once += u32::from(delivery.qos == QoS::AtMostOnce);
        self.earliest_expiry = self.earliest_expiry.min(delivery.message.header().expires);
        let behind = !self.paged.is_empty() || self.entries.len() >= head as usize;
        match delivery.stored.take_if(|_| behind) {
            Some(entry) => {
                self.shared = delivery.share.is_some() || self.shared && !self.paged.is_empty();
                self.paged_ids += delivery.ids.size();
                self.paged.extend(entry.park());
            }
            None => self.entries.push_back(delivery),
        }
        self.account();
    }

    /// A delivery that the store has, behind all others: at the start.
    pub fn restore(&mut self, entry: Parked, shared: bool) {
        self.shared |= shared;
        self.bytes += entry.size();
        self.earliest_expiry = self.earliest_expiry.min(entry.expires());
        self.paged.push_back(entry);
        self.account();
    }

    /// Whether it is time to read entries back, and they were not asked for.
    pub fn wants_page(&self) -> bool {
        !self.asked && !self.paged.is_empty() && self.entries.len() < Head::Offline as usize / 2
    }

    /// Notes that the queue waits for its turn to ask. Returns whether it did not wait before.
    pub fn wait_for_page(&mut self) -> bool {
        !std::mem::replace(&mut self.waits, true)
    }

    /// Its turn has come.
    pub fn page_waited_for(&mut self) {
        self.waits = false;
    }

    /// The next entries to read back, if it is time and they were not asked for.
    pub fn next_page(&mut self) -> Option<Vec<(EntryNumber, BodyNumber)>> {
        if !self.wants_page() {
            return None;
        }
        self.asked = true;
        let (page, bytes) = page_of(&self.paged);
        // On the account from here on: many are asked for before the first comes.
        self.reserved.set(bytes);
        Some(page)
    }

    /// What was asked for came: `wanted` as it was asked, `read` what there was of it. What is missing is given up.
    pub fn take_page(
        &mut self,
        wanted: &[(EntryNumber, BodyNumber)],
        read: Vec<ReadEntry>,
        losses: &mut Losses,
    ) {
        self.asked = false;
        self.reserved.set(0);
        let mut read = read.into_iter().peekable();
        for (number, _) in wanted {
            let found = read.next_if(|r| r.number == *number);
            // Expired or dropped since it was asked for.
            let Some(stored) = self.paged.pop_front_if(|e| e.number() == *number) else { continue };
            self.forget_paged(&stored);
            let Some(ReadEntry { message, qos, retain, ids, share, .. }) = found else {
                losses.lose(Lost::new(LossCause::Unreadable, None));
                continue;
            };
            let delivery = Delivery { message, ids, qos, retain, share, stored: stored.fetched() };
            self.bytes += delivery.size();
            self.entries.push_back(delivery);
        }
        self.give_back_rows();
    }

    /// A drained backlog gives its room back; a short queue keeps its.
    fn give_back_rows(&mut self) {
        if self.entries.is_empty() && self.entries.capacity() > 256 {
            self.entries = VecDeque::new();
        }
        if self.paged.capacity() > 256 && self.paged.len() * 4 <= self.paged.capacity() {
            self.paged.shrink_to(self.paged.len() * 2);
        }
        self.account();
    }

    pub fn front(&self) -> Option<&Delivery> {
        self.entries.front()
    }

    pub fn pop(&mut self) -> Option<Delivery> {
        let delivery = self.entries.pop_front()?;
        self.bytes -= delivery.size();
        self.at_most_once -= u32::from(delivery.qos == QoS::AtMostOnce);
        if self.entries.is_empty() {
            if self.paged.is_empty() {
                self.earliest_expiry = Instant::NEVER;
            }
            self.give_back_rows();
        }
        Some(delivery)
    }

    /// Empties it.
    pub fn drain(&mut self) -> (impl Iterator<Item = Delivery>, Unread) {
        let Queue { entries, paged, shared, .. } = std::mem::take(self);
        (entries.into_iter(), Unread { entries: paged, shared })
    }

    /// Whether a message of this size fits as it is.
    pub fn has_room(&self, size: usize, limits: &QueueLimits) -> bool {
        self.len() < limits.messages && self.bytes + size <= limits.bytes
    }

    /// Whether something in it may have expired.
    pub fn may_have_expired(&self, now: Instant) -> bool {
        self.earliest_expiry <= now
    }

    /// Whether a message of this size fits once what has expired is gone.
    pub fn make_room(
        &mut self,
        now: Instant,
        size: usize,
        limits: &QueueLimits,
        losses: &mut Losses,
    ) -> bool {
        if !self.has_room(size, limits) {
            self.drop_expired(now, losses);
        }
        self.has_room(size, limits)
    }

    fn drop_expired(&mut self, now: Instant, losses: &mut Losses) {
        if self.earliest_expiry > now {
            return;
        }
        let Queue { entries, paged, bytes, paged_ids, at_most_once, earliest_expiry, .. } = self;
        *earliest_expiry = Instant::NEVER;
        entries.retain(|d| {
            let expired = d.message.is_expired(now);
            if expired {
                losses.lose(Lost::unsent(LossCause::Expired, d.message.clone()));
                *bytes -= d.size();
                *at_most_once -= u32::from(d.qos == QoS::AtMostOnce);
            } else {
                *earliest_expiry = (*earliest_expiry).min(d.message.header().expires);
            }
            !expired
        });
        let mut left = paged.len();
        paged.retain(|e| {
            let expired = e.expires() <= now;
            if expired {
                // As in `forget_paged`.
                let ids = *paged_ids / left.max(1);
                *paged_ids -= ids;
                *bytes -= ids;
                left -= 1;
                // Without its message, as in `drop_oldest`.
                losses.lose(Lost::new(LossCause::Expired, None));
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
mod tests {
    use super::*;
    use crate::journal::ledger::Ledger;
    use crate::mqtt::charge;
    use crate::mqtt::message::Parts;
    use std::rc::Rc;

    fn delivery(expires: Instant) -> Delivery {
        let parts = Parts {
            qos: QoS::AtLeastOnce,
            retain: false,
            expires,
            topic: "t",
            forwarded: &[],
            payload: &[0; 100],
        };
        Delivery {
            message: Message::new(parts, &mut Vec::new()),
            ids: SubscriptionIds::None,
            qos: QoS::AtLeastOnce,
            retain: false,
            share: None,
            stored: None,
        }
    }

    fn limits(policy: QueuePolicy) -> QueueLimits {
        QueueLimits { messages: 3, bytes: 10_000, policy }
    }

    #[test]
    fn expired_entries_make_room_before_anything_is_refused() {
        let (mut q, mut losses) = (Queue::default(), Losses::default());
        let l = limits(QueuePolicy::Refuse);
        let soon = Instant::from_millis(10);
        for expires in [Instant::NEVER, soon, Instant::NEVER] {
            assert_eq!(q.push(Instant::ZERO, delivery(expires), Head::Online, &l, &mut losses), Ok(()));
        }
        assert_eq!(q.push(Instant::ZERO, delivery(Instant::NEVER), Head::Online, &l, &mut losses), Err(Full));
        assert_eq!(q.push(soon, delivery(Instant::NEVER), Head::Online, &l, &mut losses), Ok(()));
        assert_eq!((q.len(), losses.of(LossCause::Expired), losses.total()), (3, 1, 1));
    }

    #[test]
    fn drop_oldest_keeps_the_newest_and_counts_what_went() {
        let (mut q, mut losses) = (Queue::default(), Losses::default());
        let l = limits(QueuePolicy::DropOldest);
        for _ in 0..5 {
            assert_eq!(
                q.push(Instant::ZERO, delivery(Instant::NEVER), Head::Online, &l, &mut losses),
                Ok(())
            );
        }
        assert_eq!((q.len(), losses.of(LossCause::QueueOverflow)), (3, 2));
    }

    #[test]
    fn what_the_store_alone_has_is_dropped_and_told_of_without_its_message() {
        let (mut q, mut losses) = (Queue::default(), Losses::default());
        let (ledger, waiting) = (Ledger::new(0, 0), delivery(Instant::NEVER));
        let body = ledger.body(&waiting.message);
        for _ in 0..3 {
            q.restore(
                ledger.known_entry(EntryNumber(1), Some(Rc::clone(&body))).park().expect("it has a body"),
                false,
            );
        }
        let l = limits(QueuePolicy::DropOldest);
        assert_eq!(q.push(Instant::ZERO, waiting, Head::Offline, &l, &mut losses), Ok(()));
        assert_eq!((q.len(), losses.of(LossCause::QueueOverflow)), (3, 1));
        assert!(losses.take_untold().iter().all(|lost| lost.message.is_none()));
    }

    #[test]
    fn a_page_of_large_messages_is_bounded_by_bytes_and_on_the_account_when_it_is_asked_for() {
        let (mut q, mut losses) = (Queue::default(), Losses::default());
        let ledger = Ledger::new(0, 0);
        for n in 0..64 {
            let body = ledger.known_body(BodyNumber(n), 100_000, Instant::NEVER);
            let parked = ledger.known_entry(EntryNumber(n), Some(body)).park();
            q.restore(parked.expect("it has a body"), false);
        }
        let before = charge::unreported();
        let page = q.next_page().expect("a page");
        assert_eq!((page.len(), charge::unreported() - before), (3, 300_000));
        q.take_page(&page, Vec::new(), &mut losses);
        assert!(charge::unreported() < before);
    }

    #[test]
    fn subscription_identifiers_are_charged_in_the_queue_and_on_the_account() {
        let (mut q, mut losses) = (Queue::default(), Losses::default());
        let many: Vec<u32> = (1..=8_192).collect();
        let l = QueueLimits { messages: 1_000, bytes: 100_000, policy: QueuePolicy::Refuse };
        let before = charge::unreported();
        let taken = (0..100).take_while(|_| {
            let ids = SubscriptionIds::from_several(&many);
            let delivery = Delivery { ids, ..delivery(Instant::NEVER) };
            q.push(Instant::ZERO, delivery, Head::Online, &l, &mut losses).is_ok()
        });
        assert_eq!(taken.count(), 3);
        assert!(charge::unreported() - before > 3 * 4 * 8_192);
        while q.pop().is_some() {}
        assert_eq!(q.bytes(), 0);
    }

    #[test]
    fn bytes_are_charged_in_full_and_given_back() {
        let (mut q, mut losses) = (Queue::default(), Losses::default());
        let size = delivery(Instant::NEVER).message.size();
        let l = QueueLimits { messages: 100, bytes: 2 * size, policy: QueuePolicy::Refuse };
        assert_eq!(q.push(Instant::ZERO, delivery(Instant::NEVER), Head::Online, &l, &mut losses), Ok(()));
        assert_eq!(q.push(Instant::ZERO, delivery(Instant::NEVER), Head::Online, &l, &mut losses), Ok(()));
        assert_eq!(q.push(Instant::ZERO, delivery(Instant::NEVER), Head::Online, &l, &mut losses), Err(Full));
        q.pop();
        assert_eq!(q.bytes(), size);
        q.pop();
        assert_eq!(q.bytes(), 0);
    }
}
