//! The sending half of a session: from its queue into its in-flight window and to the connection.

use crate::mqtt::charge::{Recount, Recounted};
use crate::mqtt::codec::{AckKind, PacketType};
use crate::mqtt::message::Message;
use crate::mqtt::packet::{PacketId, QoS, ReasonCode};
use crate::mqtt::subscription_ids::SubscriptionIds;
use crate::persistence::records::{BodyNumber, EntryNumber, Flight, ReadEntry};
use crate::persistence::rows::{Entry, Parked};
use crate::session::counters::Counters;
use crate::session::drops::{DropReason, Dropped, Drops};
use crate::session::outbound::in_flight_packet::{InFlightView, Unacked};
use crate::session::outbound::queue::{Delivery, Head, Queue, QueueFull, QueueLimits};
use crate::session::outbound::window::{InFlight, Quota, Received};
use crate::session::packet_notes::AuditedAck;
use crate::session::policy::SendPolicy;
use crate::session::session_redelivery::SessionRedelivery;
use crate::session::wire::{Sending, Wire};
use crate::time::Instant;
use std::collections::VecDeque;
use std::sync::Arc;

/// Number of full windows that a session may leave unfinished over all its connections.
const CARRIED_OVER: usize = 4;

/// Unfinished messages at most, so that some of the 65,535 identifiers are always free.
const MOST_UNFINISHED: usize = 60_000;

/// Queue and in-flight window of one session.
#[derive(Debug)]
pub struct Sender {
    /// `None` until a QoS 1 or 2 message is sent: 8 bytes for a session that only publishes.
    pub(super) window: Option<Box<InFlight>>,
    /// `None` until a message is queued.
    pub(super) queue: Option<Box<Queue>>,
    /// The redelivery settings of the session.
    pub(super) redelivery: Arc<SessionRedelivery>,
}

impl Sender {
    /// Creates an empty sending half.
    pub fn new(redelivery: Arc<SessionRedelivery>) -> Sender {
        Sender { window: None, queue: None, redelivery }
    }

    /// Iterates over all unfinished packets: PUBLISHes oldest first, then PUBRELs.
    pub fn view_in_flight(&self) -> impl Iterator<Item = InFlightView<'_>> {
        self.window.iter().flat_map(|window| window.view())
    }

    /// Iterates over the queued deliveries that are in memory, in their order, each with the number
    /// of its place.
    pub fn view_queue(&self) -> impl Iterator<Item = (u64, &Delivery)> {
        self.queue.iter().flat_map(|queue| queue.view_from(0))
    }

    /// Iterates over the queued deliveries whose messages are in the store alone, in their order.
    pub fn view_parked(&self) -> impl Iterator<Item = &Parked> {
        self.queue.iter().flat_map(|queue| queue.view_parked())
    }

    /// Returns the session's redelivery settings.
    pub fn redelivery(&self) -> &Arc<SessionRedelivery> {
        &self.redelivery
    }

    /// Sets the redelivery settings once the client is known. The settings also hold for
    /// messages in flight.
    pub fn set_terms(&mut self, redelivery: Arc<SessionRedelivery>) {
        if !Arc::ptr_eq(&self.redelivery, &redelivery)
            && let Some(window) = &mut self.window
        {
            window.forget_rules();
        }
        self.redelivery = redelivery;
    }

    /// True if a new QoS 1 or 2 message can be sent at once: nothing older waits, and window and
    /// outbox have room.
    pub fn is_clear(&self, wire: &Wire, policy: &SendPolicy) -> bool {
        self.queue.as_deref().is_none_or(Queue::is_empty)
            && !self.has_unsent()
            && self.has_quota(wire, policy)
            && wire.outbox.len() < policy.outbox
    }

    /// True if a new QoS 0 message must go behind others in the queue, to keep its order.
    pub fn holds_at_most_once(&self) -> bool {
        self.queue.as_deref().is_some_and(Queue::has_at_most_once)
    }

    /// Moves a message into the window; the caller writes its packet now. Returns its place there.
    /// Only if [`Self::is_clear`].
    pub fn begin(&mut self, now: Instant, delivery: Delivery, wire: &Wire) -> &mut Unacked {
        let due = self.redelivery.first_due(now, &delivery.message, wire);
        self.window.get_or_insert_default().push(now, delivery, due)
    }

    /// Records the end offset of the packet that was written for the newest message.
    pub fn written(&mut self, end_offset: u64) {
        if let Some(last) = self.window.as_mut().and_then(|window| window.last_sent()) {
            last.transmission.end_offset = end_offset;
        }
    }

    /// Removes the newest message, because its packet could not be written.
    pub fn undo(&mut self, id: PacketId) -> Option<Delivery> {
        let window = self.window.as_mut()?;
        let undone = window.acknowledge(id).or_else(|| window.reject(id));
        undone.map(|p| p.delivery)
    }

    /// Appends a delivery to the queue.
    ///
    /// # Errors
    /// [`QueueFull`], under the conditions of [`Queue::push`].
    pub fn enqueue(
        &mut self,
        now: Instant,
        delivery: Delivery,
        head: Head,
        limits: &QueueLimits,
        drops: &mut Drops,
    ) -> Result<(), QueueFull> {
        self.queue.get_or_insert_default().push(now, delivery, head, limits, drops)
    }

    /// Returns true if the queue takes a message of this size, after expired deliveries were
    /// dropped.
    pub fn make_room(&mut self, now: Instant, size: usize, limits: &QueueLimits, drops: &mut Drops) -> bool {
        match &mut self.queue {
            Some(queue) => queue.make_room(now, size, limits, drops),
            None => limits.admit(0, size),
        }
    }

    /// Estimates [`Self::make_room`] without a change. Also true if some delivery may have expired,
    /// which could make room.
    pub fn may_have_room(&self, now: Instant, size: usize, limits: &QueueLimits) -> bool {
        match &self.queue {
            Some(queue) => queue.has_room(size, limits) || queue.may_have_expired(now),
            None => limits.admit(0, size),
        }
    }

    /// True if [`Self::pump`] has something to send.
    pub fn has_waiting(&self) -> bool {
        self.queue.as_deref().is_some_and(|q| !q.is_empty()) || self.has_unsent()
    }

    /// Appends a delivery whatever the limits say: for retained messages at a SUBSCRIBE.
    pub fn enqueue_retained(&mut self, delivery: Delivery) {
        self.queue.get_or_insert_default().append(delivery, Head::Online);
    }

    /// Restores a queued delivery from the store. All restores come in the order of the entry
    /// numbers.
    pub fn restore_queued(&mut self, entry: Parked, shared: bool, ids: u32) {
        self.queue.get_or_insert_default().restore(entry, shared, SubscriptionIds::size_of(ids));
    }

    /// Restores a delivery that was sent and not acknowledged.
    pub fn restore_sent(&mut self, now: Instant, delivery: Delivery, flight: Flight) {
        self.window.get_or_insert_default().restore(now, delivery, flight);
    }

    /// Restores a delivery whose PUBREC came and whose PUBCOMP is pending.
    pub fn restore_release(&mut self, now: Instant, entry: Box<Entry>, flight: Flight) {
        self.window.get_or_insert_default().restore_release(now, entry, flight);
    }

    /// True if it is time to read a page from the store.
    pub fn wants_page(&self) -> bool {
        self.queue.as_deref().is_some_and(Queue::wants_page)
    }

    /// Records that the queue waits for its turn to read a page. Returns true if it did not wait
    /// before.
    pub fn wait_for_page(&mut self) -> bool {
        self.queue.get_or_insert_default().wait_for_page()
    }

    /// Records that the queue's turn has come.
    pub fn page_waited_for(&mut self) {
        if let Some(queue) = &mut self.queue {
            queue.page_waited_for();
        }
    }

    /// Returns the entries to read from the store, or `None` if it is not time.
    pub fn next_page(&mut self) -> Option<Vec<(EntryNumber, BodyNumber)>> {
        self.queue.as_mut()?.next_page()
    }

    /// Takes a page that was read from the store, as [`Queue::take_page`].
    pub fn take_page(
        &mut self,
        wanted: &[(EntryNumber, BodyNumber)],
        read: Vec<ReadEntry>,
        drops: &mut Drops,
    ) {
        if let Some(queue) = &mut self.queue {
            queue.take_page(wanted, read, drops);
        }
    }

    /// Returns the number of queued deliveries.
    pub fn queued(&self) -> usize {
        self.queue.as_deref().map_or(0, Queue::len)
    }

    /// Returns the bytes of the queued messages, each in full.
    pub fn queued_bytes(&self) -> usize {
        self.queue.as_deref().map_or(0, Queue::bytes)
    }

    /// Returns the number of messages in the in-flight window.
    pub fn in_flight(&self) -> usize {
        self.window.as_deref().map_or(0, InFlight::len)
    }

    /// Ends the connection, whose socket took `written` bytes.
    pub fn end_connection(&mut self, written: u64) {
        if let Some(window) = &mut self.window {
            window.end_connection(written);
        }
    }

    /// Begins a connection. PUBRELs are sent at once, outside the quota. PUBLISHes follow with
    /// [`Self::pump`].
    // 3.1.1 and 5.0 [MQTT-4.4.0-1]
    pub fn resume(&mut self, now: Instant, wire: &mut Wire, counters: &mut Counters) {
        let Some(window) = &mut self.window else { return };
        window.begin_connection();
        for release in window.releases() {
            counters.redelivered.returned_releases += 1;
            counters.packets_sent.count(PacketType::Pubrel);
            release.write(now, wire, &self.redelivery.under(release.matched));
        }
    }

    /// Sends as much as window, outbox and the client's limits allow. Messages in flight before
    /// this connection go first, in their order; the queue follows.
    #[inline]
    pub fn pump(&mut self, now: Instant, wire: &mut Wire, policy: &SendPolicy, counters: &mut Counters) {
        // Called with every acknowledgement, and usually nothing waits.
        if self.has_waiting() {
            self.send_waiting(now, wire, policy, counters);
        }
    }

    fn send_waiting(&mut self, now: Instant, wire: &mut Wire, policy: &SendPolicy, counters: &mut Counters) {
        while self.has_unsent() {
            if !self.has_quota(wire, policy) || wire.outbox.len() >= policy.outbox {
                return;
            }
            self.resend_carried_over(now, wire, counters);
        }
        while let Some(front) = self.queue.as_deref().and_then(Queue::front) {
            if wire.outbox.len() >= policy.outbox {
                return;
            }
            if front.message.is_expired(now) {
                // 5.0 [MQTT-3.3.2-5]
                if let Some(expired) = self.pop_queued() {
                    counters.drops.lose(expired.to_drop(DropReason::Expired));
                }
                continue;
            }
            if front.qos != QoS::AtMostOnce && !self.has_quota(wire, policy) {
                return;
            }
            if let Some(delivery) = self.pop_queued() {
                self.send(now, delivery, wire, counters);
            }
        }
    }

    /// Handles a PUBACK. Returns true if it finished a message. The code of a 5.0 client may be
    /// negative.
    pub fn acknowledge(
        &mut self,
        now: Instant,
        id: PacketId,
        reason: ReasonCode,
        counters: &mut Counters,
    ) -> bool {
        let finished = self.window.as_mut().and_then(|window| window.acknowledge(id));
        let Some(mut finished) = finished else { return false };
        let audit = finished.delivery.message.audit();
        if audit.is_some() {
            counters.audited.push(AuditedAck { audit, kind: AckKind::Puback, packet_id: id, reason });
        }
        counters.puback_time.add(now.millis_since(finished.transmission.first_sent));
        if let Some(entry) = finished.delivery.stored.as_mut().filter(|_| !reason.is_error()) {
            entry.done();
        }
        if reason.is_error() {
            counters.drops.lose(finished.into_drop(DropReason::NegativelyAcknowledged, Some(reason)));
        } else {
            counters.objectives.acknowledged(now, finished.delivery.mark);
        }
        true
    }

    /// Handles a PUBREC and answers with PUBREL if the exchange is known. Returns true if it is.
    pub fn receive(
        &mut self,
        now: Instant,
        id: PacketId,
        reason: ReasonCode,
        wire: &mut Wire,
        counters: &mut Counters,
    ) -> bool {
        let Some(window) = &mut self.window else { return false };
        if reason.is_error() {
            let Some(finished) = window.reject(id) else { return false };
            counters.pubrec_time.add(now.millis_since(finished.transmission.first_sent));
            counters.drops.lose(finished.into_drop(DropReason::NegativelyAcknowledged, Some(reason)));
            return true;
        }
        let topic = if self.redelivery.differ_by_topic() { window.topic(id) } else { None };
        let matched = topic.map(|topic| self.redelivery.matched(topic));
        match window.receive(id) {
            received @ (Received::Release { .. } | Received::Again) => {
                if let Received::Release { mark, audit } = received {
                    counters.objectives.acknowledged(now, mark);
                    if audit.is_some() {
                        let (kind, packet_id) = (AckKind::Pubrec, id);
                        counters.audited.push(AuditedAck { audit, kind, packet_id, reason });
                    }
                }
                if let Some(release) = window.release_mut(id) {
                    if received != Received::Again {
                        counters.pubrec_time.add(now.millis_since(release.transmission.first_sent));
                    }
                    counters.packets_sent.count(PacketType::Pubrel);
                    release.matched = matched.unwrap_or(release.matched);
                    release.write(now, wire, &self.redelivery.under(release.matched));
                }
                true
            }
            Received::Unknown => false,
        }
    }

    /// Returns the acknowledgement that the packet with this identifier waits for, if its kind is
    /// not `came`. Called only if `came` finished nothing. A repeated PUBREC while PUBCOMP is
    /// pending is lawful.
    pub fn contradicts(&self, came: AckKind, id: PacketId) -> Option<AckKind> {
        let awaited = self.window.as_ref()?.awaited(id)?;
        (awaited != came && (came, awaited) != (AckKind::Pubrec, AckKind::Pubcomp)).then_some(awaited)
    }

    /// Handles a PUBCOMP. Returns true if it finished a message.
    pub fn complete(&mut self, id: PacketId) -> bool {
        self.window.as_mut().is_some_and(|window| window.complete(id))
    }

    /// Returns the earliest due time in the window, or [`Instant::NEVER`].
    pub fn earliest_due(&self) -> Instant {
        self.window.as_deref().map_or(Instant::NEVER, InFlight::earliest_due)
    }

    /// Returns the earlier due time of the newest PUBLISH and the newest PUBREL, or
    /// [`Instant::NEVER`]. Costs no pass over the window. A caller that has registered
    /// [`Self::earliest_due`] before needs only this time after a send, unless redelivery policies
    /// differ by topic.
    pub fn newest_due(&self) -> Instant {
        self.window.as_deref().map_or(Instant::NEVER, InFlight::newest_due)
    }

    /// Drops a message that its receiver has and does not acknowledge. Returns true if the message
    /// was in flight.
    pub(super) fn drop_exhausted(&mut self, number: u64, quota: Quota, drops: &mut Drops) -> bool {
        let removed = self.window.as_mut().and_then(|window| window.remove_publish(number, quota));
        let Some(p) = removed else { return false };
        drops.lose(p.into_drop(DropReason::Exhausted, None));
        true
    }

    /// Removes the queued deliveries in memory for which `is_taken` returns true, and returns them
    /// in their order. Parked entries stay, because their messages are not known.
    pub fn take_queued_where(&mut self, is_taken: impl FnMut(&Message) -> bool) -> Vec<Delivery> {
        self.queue.as_mut().map_or_else(Vec::new, |queue| queue.take_where(is_taken))
    }

    /// Removes the unfinished PUBLISHes for which `is_taken` returns true, and returns them in
    /// their order. Called only while the session has no connection.
    pub fn take_unfinished_where(&mut self, is_taken: impl FnMut(&Message) -> bool) -> Vec<Unacked> {
        self.window.as_mut().map_or_else(Vec::new, |window| window.take_where(is_taken))
    }

    /// Removes the oldest unfinished PUBLISH of a session that has ended, sent or not.
    pub fn pop_unfinished(&mut self) -> Option<Unacked> {
        self.window.as_mut()?.pop_publish()
    }

    /// Removes the oldest PUBREL of a session that has ended. Returns true if there was one.
    pub fn pop_release(&mut self) -> bool {
        self.window.as_mut().is_some_and(|window| window.pop_release())
    }

    /// Removes the oldest queued delivery in memory of a session that has ended.
    pub fn pop_queued(&mut self) -> Option<Delivery> {
        self.queue.as_mut()?.pop()
    }

    /// Returns true if some entry is parked, so that its message is only in the store.
    pub fn has_unread(&self) -> bool {
        self.queue.as_deref().is_some_and(Queue::has_unread)
    }

    /// True if some parked entry came by a shared subscription.
    pub fn has_shared_unread(&self) -> bool {
        self.queue.as_deref().is_some_and(Queue::has_shared_unread)
    }

    /// Removes the oldest parked entry of a session that has ended.
    pub fn pop_unread(&mut self) -> Option<Parked> {
        self.queue.as_mut()?.pop_unread()
    }

    /// Removes all parked entries of a session that has ended.
    pub fn take_unread(&mut self) -> VecDeque<Parked> {
        self.queue.as_mut().map_or_else(VecDeque::new, |queue| queue.take_unread())
    }

    /// True if another PUBLISH may be sent. Two bounds hold: the client's Receive Maximum, and the
    /// unfinished messages of one session over all its connections. PUBRELs that were carried over
    /// hold no quota, so without the second bound a client that never sends PUBCOMP would use up
    /// the identifiers.
    pub fn has_quota(&self, wire: &Wire, policy: &SendPolicy) -> bool {
        let most = (usize::from(policy.in_flight) * CARRIED_OVER).min(MOST_UNFINISHED);
        match &self.window {
            Some(window) => {
                window.quota_used() < usize::from(wire.window) && (window.has_unsent() || window.len() < most)
            }
            None => wire.window > 0 && most > 0,
        }
    }

    /// True if PUBLISHes of an earlier connection wait to be sent again.
    fn has_unsent(&self) -> bool {
        self.window.as_deref().is_some_and(InFlight::has_unsent)
    }

    fn resend_carried_over(&mut self, now: Instant, wire: &mut Wire, counters: &mut Counters) {
        let Some(window) = &mut self.window else { return };
        let Some(p) = window.first_unsent() else { return };
        // 3.1.1 and 5.0 [MQTT-3.3.1-1]; a packet that never left the broker is sent for the first
        // time.
        let dup = p.transmission.transmissions > 0;
        let sending = Sending { dup, ..p.delivery.sending(Some(p.packet_id())) };
        if p.delivery.qos == QoS::ExactlyOnce {
            // The identifier may wait for its commit since an earlier connection.
            wire.wait_for(p.delivery.stored.as_deref());
        }
        if wire.put_publish(now, &p.delivery.message, sending).is_err() {
            // 5.0 [MQTT-3.1.2-25]
            if let Some(p) = window.remove_unsent() {
                counters.drops.lose(p.into_drop(DropReason::TooLarge, None));
            }
            return;
        }
        p.sent_again(now);
        let due = self.redelivery.first_due(now, &p.delivery.message, wire);
        p.transmission.written(due, wire);
        p.record();
        counters.sent.count(p.delivery.qos, p.delivery.message.payload().len());
        counters.redelivered.returned_publishes += 1;
        window.mark_sent();
    }

    fn send(&mut self, now: Instant, delivery: Delivery, wire: &mut Wire, counters: &mut Counters) {
        if delivery.qos == QoS::AtMostOnce {
            match wire.put_publish(now, &delivery.message, delivery.sending(None)) {
                Ok(()) => counters.sent.count(QoS::AtMostOnce, delivery.message.payload().len()),
                Err(_) => counters.drops.lose(Dropped::unsent(DropReason::TooLarge, delivery.message)),
            }
            return;
        }
        let due = self.redelivery.first_due(now, &delivery.message, wire);
        let p = self.window.get_or_insert_default().push(now, delivery, due);
        let id = p.packet_id();
        p.record_place();
        if p.delivery.qos == QoS::ExactlyOnce {
            // The identifier is recorded before the client sees it.
            wire.wait_for(p.delivery.stored.as_deref());
        }
        if wire.put_publish(now, &p.delivery.message, p.delivery.sending(Some(id))).is_err() {
            if let Some(unsent) = self.undo(id) {
                counters.drops.lose(unsent.to_drop(DropReason::TooLarge));
            }
            return;
        }
        p.transmission.end_offset = wire.outbox.end_offset();
        counters.sent.count(p.delivery.qos, p.delivery.message.payload().len());
    }
}

impl Recount for Sender {
    fn recount(&self) -> Recounted {
        let queue = self.queue.as_deref().map_or_else(Recounted::default, Recount::recount);
        let window = self.window.as_deref().map_or_else(Recounted::default, Recount::recount);
        Recounted { held: queue.held + window.held, charged: queue.charged + window.charged }
    }
}

#[cfg(test)]
#[path = "sender_tests.rs"]
mod tests;
