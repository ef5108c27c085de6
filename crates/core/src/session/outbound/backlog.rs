//! The queue of a session, which takes memory only from its first message on.

use crate::mqtt::charge::{Recount, Recounted};
use crate::mqtt::message::Message;
use crate::mqtt::subscription_ids::SubscriptionIds;
use crate::persistence::records::{BodyNumber, EntryNumber, ReadEntry};
use crate::persistence::rows::Parked;
use crate::session::drops::{DropReason, Drops};
use crate::session::outbound::portion::Portion;
use crate::session::outbound::queue::{Delivery, Head, Queue, QueueFull, QueueLimits};
use crate::time::Instant;
use std::collections::VecDeque;

/// The messages of one session that wait for a place in its in-flight window. 8 bytes while no
/// message was queued.
#[derive(Debug, Default)]
pub struct Backlog(Option<Box<Queue>>);

impl Backlog {
    /// Returns the queue, if a message was ever queued.
    pub(super) fn queue(&self) -> Option<&Queue> {
        self.0.as_deref()
    }

    /// Returns the queue, if a message was ever queued.
    pub(super) fn queue_mut(&mut self) -> Option<&mut Queue> {
        self.0.as_deref_mut()
    }

    /// Iterates over the deliveries that are in memory, in their order, each with the number of its
    /// place.
    pub fn view(&self) -> impl Iterator<Item = (u64, &Delivery)> {
        self.0.iter().flat_map(|queue| queue.view_from(0))
    }

    /// Iterates over the deliveries that are in memory from a place on, each with the number of
    /// deliveries before it, and with the number of its place. Costs nothing for those before it.
    pub fn view_from(&self, number: u64) -> impl Iterator<Item = (usize, u64, &Delivery)> {
        self.0.iter().flat_map(move |queue| {
            let view = queue.view_from(number);
            view.map(|(place, delivery)| (queue.ahead_of(place), place, delivery))
        })
    }

    /// Iterates over the deliveries whose messages are in the store alone from an entry on, in
    /// their order. Costs a binary search.
    pub fn view_parked_from(&self, number: EntryNumber) -> impl Iterator<Item = &Parked> {
        self.0.iter().flat_map(move |queue| queue.view_parked_from(number))
    }

    /// Returns the number of deliveries whose messages are in the store alone.
    pub fn parked(&self) -> usize {
        self.0.as_deref().map_or(0, Queue::parked)
    }

    /// True if nothing waits.
    pub fn is_empty(&self) -> bool {
        self.0.as_deref().is_none_or(Queue::is_empty)
    }

    /// True if a new QoS 0 message must go behind others in the queue, to keep its order.
    pub fn has_at_most_once(&self) -> bool {
        self.0.as_deref().is_some_and(Queue::has_at_most_once)
    }

    /// Returns true if the queue has half of the messages or bytes that it may have.
    pub fn is_half_full(&self, limits: &QueueLimits) -> bool {
        self.len() >= limits.messages / 2 || self.bytes() >= limits.bytes / 2
    }

    /// Appends a delivery.
    ///
    /// # Errors
    /// [`QueueFull`], under the conditions of [`Queue::push`].
    pub fn push(
        &mut self,
        now: Instant,
        delivery: Delivery,
        head: Head,
        limits: &QueueLimits,
        drops: &mut Drops,
    ) -> Result<(), QueueFull> {
        self.0.get_or_insert_default().push(now, delivery, head, limits, drops)
    }

    /// Returns true if the queue takes a message of this size, after expired deliveries were
    /// dropped.
    pub fn make_room(&mut self, now: Instant, size: usize, limits: &QueueLimits, drops: &mut Drops) -> bool {
        match &mut self.0 {
            Some(queue) => queue.make_room(now, size, limits, drops),
            None => limits.admit(0, size),
        }
    }

    /// Estimates [`Self::make_room`] without a change. Also true if some delivery may have expired,
    /// which could make room.
    pub fn may_have_room(&self, now: Instant, size: usize, limits: &QueueLimits) -> bool {
        match &self.0 {
            Some(queue) => queue.has_room(size, limits) || queue.may_have_expired(now),
            None => limits.admit(0, size),
        }
    }

    /// Appends a delivery whatever the limits say: for retained messages at a SUBSCRIBE.
    pub fn append_retained(&mut self, delivery: Delivery, head: Head) {
        self.0.get_or_insert_default().append(delivery, head);
    }

    /// Restores a delivery from the store. All restores come in the order of the entry numbers.
    pub fn restore(&mut self, entry: Parked, shared: bool, ids: u32) {
        self.0.get_or_insert_default().restore(entry, shared, SubscriptionIds::size_of(ids));
    }

    /// True if it is time to read a page from the store.
    pub fn wants_page(&self) -> bool {
        self.0.as_deref().is_some_and(Queue::wants_page)
    }

    /// Records that the queue waits for its turn to read a page. Returns true if it did not wait
    /// before.
    pub fn wait_for_page(&mut self) -> bool {
        self.0.get_or_insert_default().wait_for_page()
    }

    /// Records that the queue's turn has come.
    pub fn page_waited_for(&mut self) {
        if let Some(queue) = &mut self.0 {
            queue.page_waited_for();
        }
    }

    /// Returns the entries to read from the store, or `None` if it is not time.
    pub fn next_page(&mut self) -> Option<Vec<(EntryNumber, BodyNumber)>> {
        self.0.as_mut()?.next_page()
    }

    /// Takes a page that was read from the store, as [`Queue::take_page`].
    pub fn take_page(
        &mut self,
        wanted: &[(EntryNumber, BodyNumber)],
        read: Vec<ReadEntry>,
        drops: &mut Drops,
    ) {
        if let Some(queue) = &mut self.0 {
            queue.take_page(wanted, read, drops);
        }
    }

    /// Returns the number of deliveries.
    pub fn len(&self) -> usize {
        self.0.as_deref().map_or(0, Queue::len)
    }

    /// Returns the bytes of the messages, each in full.
    pub fn bytes(&self) -> usize {
        self.0.as_deref().map_or(0, Queue::bytes)
    }

    /// Returns the first delivery, if its message is in memory.
    pub fn front(&self) -> Option<&Delivery> {
        self.0.as_deref()?.front()
    }

    /// Removes the first delivery, if its message is in memory.
    pub fn pop(&mut self) -> Option<Delivery> {
        self.0.as_mut()?.pop()
    }

    /// Removes deliveries in memory for which `is_taken` returns true, as [`Queue::take_where`].
    pub fn take_where(
        &mut self,
        number: u64,
        most: usize,
        is_taken: impl FnMut(&Message) -> bool,
    ) -> Portion<Delivery> {
        self.0.as_mut().map_or_else(Portion::default, |queue| queue.take_where(number, most, is_taken))
    }

    /// Drops the oldest deliveries, at most `most`. Returns their number.
    pub fn drop_oldest(&mut self, most: usize, cause: DropReason, drops: &mut Drops) -> usize {
        self.0.as_mut().map_or(0, |queue| queue.drop_oldest(most, cause, drops))
    }

    /// Returns true if some entry is parked, so that its message is only in the store.
    pub fn has_unread(&self) -> bool {
        self.0.as_deref().is_some_and(Queue::has_unread)
    }

    /// True if some parked entry came by a shared subscription.
    pub fn has_shared_unread(&self) -> bool {
        self.0.as_deref().is_some_and(Queue::has_shared_unread)
    }

    /// Removes the oldest parked entry of a session that has ended.
    pub fn pop_unread(&mut self) -> Option<Parked> {
        self.0.as_mut()?.pop_unread()
    }

    /// Removes all parked entries of a session that has ended.
    pub fn take_unread(&mut self) -> VecDeque<Parked> {
        self.0.as_mut().map_or_else(VecDeque::new, |queue| queue.take_unread())
    }
}

impl Recount for Backlog {
    fn recount(&self) -> Recounted {
        self.0.as_deref().map_or_else(Recounted::default, Recount::recount)
    }
}
