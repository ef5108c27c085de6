//! The sending half of a session: from its queue into its in-flight window and to the connection.
//! [`Sender::has_quota`] bounds how many messages are in flight.

use crate::mqtt::charge::{Recount, Recounted};
use crate::mqtt::codec::{AckKind, PacketType};
use crate::mqtt::packet::{Acknowledgement, PacketId, QoS};
use crate::mqtt::subscription_ids::SubscriptionIds;
use crate::persistence::rows::{Body, SessionRow};
use crate::session::counters::Counters;
use crate::session::drops::{DropReason, Dropped, Drops};
use crate::session::outbound::delivery::Delivery;
use crate::session::outbound::on_demand::OnDemand;
use crate::session::outbound::outgoing::{OutgoingMessage, SendBuffers, SentDelivery};
use crate::session::outbound::overdue::StalledPackets;
use crate::session::outbound::queue::{Queue, QueueLimits};
use crate::session::outbound::retry::Outlives;
use crate::session::outbound::stall::{SocketView, Stall, StallCause};
use crate::session::outbound::transmission::Look;
use crate::session::outbound::window::{InFlight, Quota, Received};
use crate::session::policy::SendPolicy;
use crate::session::session_redelivery::SessionRedelivery;
use crate::session::slow_deliveries::AckedDelivery;
use crate::session::wire::{Sending, Unsendable, Wire};
use crate::time::Instant;
use std::rc::Rc;
use std::sync::Arc;

/// Number of full windows that a session may leave unfinished over all its connections.
const CARRIED_OVER: usize = 4;

/// Messages that one call of [`Sender::pump`] handles at most: 0.3 ms. The caller goes on when
/// these are written, or in a later turn if all of them were dropped.
pub const PUMPED_AT_ONCE: usize = 1_024;

/// Unfinished messages at most, so that some of the 65,535 identifiers are always free.
const MOST_UNFINISHED: usize = 60_000;

/// Queue and in-flight window of one session.
#[derive(Debug)]
pub struct Sender {
    /// The QoS 1 and 2 messages that were sent and are not finished.
    pub window: OnDemand<InFlight>,
    /// The messages that wait for a place in the window.
    pub queue: OnDemand<Queue>,
    /// The redelivery settings of the session.
    pub(super) redelivery: Arc<SessionRedelivery>,
}

impl Sender {
    /// Creates an empty sending half.
    pub fn new(redelivery: Arc<SessionRedelivery>) -> Sender {
        Sender { window: OnDemand::UNUSED, queue: OnDemand::UNUSED, redelivery }
    }

    /// Returns the session's redelivery settings.
    pub fn redelivery(&self) -> &Arc<SessionRedelivery> {
        &self.redelivery
    }

    /// Sets the redelivery settings once the client is known. The settings also hold for
    /// messages in flight.
    pub fn set_redelivery(&mut self, redelivery: Arc<SessionRedelivery>) {
        if !Arc::ptr_eq(&self.redelivery, &redelivery)
            && let Some(window) = self.window.get_mut()
        {
            window.forget_rules();
        }
        self.redelivery = redelivery;
    }

    /// True if a new QoS 1 or 2 message can be sent at once: nothing older waits, and window and
    /// outbox have room.
    pub fn is_clear(&self, wire: &Wire, policy: &SendPolicy) -> bool {
        !self.has_waiting() && self.has_quota(wire, policy) && wire.outbox.len() < policy.outbox
    }

    /// Sends a new message to the connected client: appends the PUBLISH to the outbox and counts it.
    /// Above QoS 0 the message takes a place in the window first, and only if [`Self::is_clear`]. The
    /// delivery is recorded if the session is stored.
    ///
    /// # Errors
    /// The packet cannot be sent to the client. Then the window and the outbox are as before.
    #[inline]
    pub fn send_new(
        &mut self,
        now: Instant,
        new: SentDelivery<'_>,
        outgoing: &mut OutgoingMessage<'_>,
        wire: &mut Wire,
        buffers: &mut SendBuffers,
        counters: &mut Counters,
    ) -> Result<(), Unsendable> {
        let SentDelivery { qos, retain, ids, mark, share, row } = new;
        let packet_id = (qos != QoS::AtMostOnce).then(|| {
            let message = outgoing.message(&mut buffers.bytes).clone();
            let (ids, share) = (SubscriptionIds::from_several(ids), share.cloned());
            let delivery = Delivery { message, ids, qos, retain, mark, share, stored: None };
            self.begin(now, delivery, row, &mut outgoing.body, wire)
        });
        let sending = Sending { dup: false, qos, retain, packet_id, ids };
        if let Err(unsendable) = outgoing.put(now, sending, wire, buffers) {
            if packet_id.is_some() {
                self.undo();
            }
            return Err(unsendable);
        }
        counters.sent.count(qos, outgoing.parts.payload.len());
        if packet_id.is_some()
            && let Some(last) = self.window.get_mut().and_then(|window| window.last_sent())
        {
            last.transmission.end_offset = wire.outbox.end_offset();
        }
        Ok(())
    }

    /// Moves a new message into the window, and records it if the session has a `row`. The caller
    /// writes the packet now. Returns its Packet Identifier.
    // A call costs 27 instructions a message.
    #[inline]
    fn begin(
        &mut self,
        now: Instant,
        delivery: Delivery,
        row: Option<&SessionRow>,
        body: &mut Option<Rc<Body>>,
        wire: &mut Wire,
    ) -> PacketId {
        let due = self.redelivery.first_due(now, &delivery.message, wire);
        let unacked = self.window.or_create().push(now, delivery, due);
        let flight = unacked.flight();
        unacked.delivery.record(row, body, Some(flight));
        if unacked.delivery.qos == QoS::ExactlyOnce {
            // The identifier is committed before the client sees it. Otherwise a crash could give
            // it to another message, which the client would discard as a repetition.
            wire.wait_for(unacked.delivery.stored.as_deref());
        }
        unacked.transmission.packet_id()
    }

    /// Removes the newest message of the window, because its packet could not be written.
    fn undo(&mut self) -> Option<Delivery> {
        Some(self.window.get_mut()?.remove_newest()?.delivery)
    }

    /// Returns true if the queue takes a message of this size, after expired deliveries were
    /// dropped.
    pub fn make_room(&mut self, now: Instant, size: usize, limits: &QueueLimits, drops: &mut Drops) -> bool {
        self.queue.has_room(size, limits)
            || self.queue.get_mut().is_some_and(|queue| queue.make_room(now, size, limits, drops))
    }

    /// True if [`Self::pump`] has something to send.
    pub fn has_waiting(&self) -> bool {
        !self.queue.is_empty() || self.window.has_unsent()
    }

    /// Begins a connection. PUBRELs are sent at once, outside the quota. PUBLISHes follow with
    /// [`Self::pump`].
    // 3.1.1 and 5.0 [MQTT-4.4.0-1]
    pub fn resume(&mut self, now: Instant, wire: &mut Wire, counters: &mut Counters) {
        let Some(window) = self.window.get_mut() else { return };
        window.begin_connection();
        for release in window.releases() {
            counters.steps += 1;
            counters.redelivered.returned_releases += 1;
            counters.packets_sent.count(PacketType::Pubrel);
            release.write(now, wire, &self.redelivery.under(release.matched));
        }
    }

    /// Sends as much as window, outbox and the client's limits allow, but handles at most
    /// [`PUMPED_AT_ONCE`] messages. Messages in flight before this connection go first, in their
    /// order; the queue follows.
    #[inline]
    pub fn pump(&mut self, now: Instant, wire: &mut Wire, policy: &SendPolicy, counters: &mut Counters) {
        // Called with every acknowledgement, and usually nothing waits.
        if self.has_waiting() {
            self.send_waiting(now, wire, policy, counters);
        }
    }

    fn send_waiting(&mut self, now: Instant, wire: &mut Wire, policy: &SendPolicy, counters: &mut Counters) {
        if wire.queue_waits {
            return;
        }
        let mut handled = 0..PUMPED_AT_ONCE;
        while self.window.has_unsent() {
            if handled.next().is_none() || !self.has_quota(wire, policy) || wire.outbox.len() >= policy.outbox
            {
                return;
            }
            counters.steps += 1;
            self.resend_carried_over(now, wire, counters);
        }
        while let Some(front) = self.queue.front() {
            if handled.next().is_none() || wire.outbox.len() >= policy.outbox {
                return;
            }
            if front.message.is_expired(now) {
                // 5.0 [MQTT-3.3.2-5]
                if let Some(expired) = self.queue.get_mut().and_then(Queue::pop) {
                    counters.drops.lose(expired.to_drop(DropReason::Expired));
                }
                continue;
            }
            if front.qos != QoS::AtMostOnce && !self.has_quota(wire, policy) {
                return;
            }
            if let Some(delivery) = self.queue.get_mut().and_then(Queue::pop) {
                counters.steps += 1;
                self.send(now, delivery, wire, counters);
            }
        }
    }

    /// Handles a PUBACK of the client `receiver`. Returns true if it finished a message. The code
    /// of a 5.0 client may be negative.
    pub fn acknowledge(
        &mut self,
        now: Instant,
        ack: &Acknowledgement<'_>,
        receiver: &str,
        counters: &mut Counters,
    ) -> bool {
        let (id, reason) = (ack.packet_id, ack.reason);
        let finished = self.window.get_mut().and_then(|window| window.acknowledge(id));
        let Some(mut finished) = finished else { return false };
        let first_sent = finished.transmission.first_sent;
        let took_ms = now.millis_since(first_sent);
        counters.puback_time.add(took_ms);
        if let Some(entry) = finished.delivery.stored.as_mut().filter(|_| !reason.is_error()) {
            entry.done();
        }
        if reason.is_error() {
            counters.note_audited(&finished.delivery.message, AckKind::Puback, ack);
            counters.drops.lose(finished.into_drop(DropReason::NegativelyAcknowledged).refused_by(ack));
        } else if !AckedDelivery::is_usual(finished.delivery.mark, took_ms) {
            let Delivery { message, mark, .. } = &finished.delivery;
            let delivery = AckedDelivery { receiver, message, first_sent, mark: *mark };
            counters.note_delivered(now, &delivery, AckKind::Puback, ack);
        }
        true
    }

    /// Handles a PUBREC of the client `receiver`, and answers with PUBREL if the exchange is known.
    /// Returns true if it is.
    pub fn receive(
        &mut self,
        now: Instant,
        ack: &Acknowledgement<'_>,
        receiver: &str,
        wire: &mut Wire,
        counters: &mut Counters,
    ) -> bool {
        let (id, reason) = (ack.packet_id, ack.reason);
        let Some(window) = self.window.get_mut() else { return false };
        if reason.is_error() {
            let Some(finished) = window.reject(id) else { return false };
            counters.pubrec_time.add(now.millis_since(finished.transmission.first_sent));
            counters.drops.lose(finished.into_drop(DropReason::NegativelyAcknowledged).refused_by(ack));
            return true;
        }
        let topic = if self.redelivery.differ_by_topic() { window.topic(id) } else { None };
        let matched = topic.map(|topic| self.redelivery.matched(topic));
        let received = window.receive(now, id);
        if matches!(received, Received::Unknown) {
            return false;
        }
        let Some(release) = window.release_mut(id) else { return true };
        if let Received::Release { mark, message } = &received {
            let (mark, first_sent) = (*mark, release.transmission.first_sent);
            let took_ms = now.millis_since(first_sent);
            counters.pubrec_time.add(took_ms);
            if !AckedDelivery::is_usual(mark, took_ms) {
                let delivery = AckedDelivery { receiver, message, first_sent, mark };
                counters.note_delivered(now, &delivery, AckKind::Pubrec, ack);
            }
        }
        counters.packets_sent.count(PacketType::Pubrel);
        release.matched = matched.unwrap_or(release.matched);
        release.write(now, wire, &self.redelivery.under(release.matched));
        true
    }

    /// Returns the acknowledgement that the packet with this identifier waits for, if its kind is
    /// not `came`. Called only if `came` finished nothing. A repeated PUBREC while PUBCOMP is
    /// pending is lawful.
    pub fn contradicts(&self, came: AckKind, id: PacketId) -> Option<AckKind> {
        let awaited = self.window.awaited(id)?;
        (awaited != came && (came, awaited) != (AckKind::Pubrec, AckKind::Pubcomp)).then_some(awaited)
    }

    /// Finds the overdue acknowledgements of a 5.0 connection. Each packet is due again one ack
    /// timeout from now. A message that was sent as often as allowed is dropped instead.
    // 5.0 [MQTT-4.4.0-1]: nothing is written.
    pub fn overdue(
        &mut self,
        now: Instant,
        view: SocketView,
        outlives: Outlives,
        wire: &Wire,
        drops: &mut Drops,
    ) -> StalledPackets {
        let Some(window) = self.window.get_mut() else { return StalledPackets::default() };
        let look = Look::new(now, view, wire);
        let (found, given_up) = StalledPackets::find(&look, outlives, wire, window, &self.redelivery);
        let quota = if found.disconnect.is_some() { Quota::Free } else { Quota::Forfeited };
        for number in given_up {
            self.drop_exhausted(number, quota, drops);
        }
        found
    }

    /// Returns the unacknowledged packet that was sent first. The state of the socket is not known
    /// here, so the cause is always the application.
    pub fn oldest_unacknowledged(&self, now: Instant) -> Option<Stall> {
        self.window.oldest(now, |_| StallCause::Application)
    }

    /// Returns the unacknowledged packet that was sent first on a live connection, with its cause.
    pub fn oldest_diagnosed(&self, now: Instant, view: SocketView, wire: &Wire) -> Option<Stall> {
        let peer_has = view.peer_has(wire.outbox.written());
        let cause = |end_offset| StallCause::of(end_offset, peer_has, view);
        let oldest = self.window.oldest(now, cause)?;
        Some(Stall { view, ..oldest })
    }

    /// Drops a message that its receiver has and does not acknowledge. Returns true if the message
    /// was in flight.
    pub(super) fn drop_exhausted(&mut self, number: u64, quota: Quota, drops: &mut Drops) -> bool {
        let removed = self.window.get_mut().and_then(|window| window.remove_publish(number, quota));
        let Some(p) = removed else { return false };
        drops.lose(p.into_drop(DropReason::Exhausted));
        true
    }

    /// True if another PUBLISH may be sent. Two bounds hold: the client's Receive Maximum, and the
    /// unfinished messages of one session over all its connections. PUBRELs that were carried over
    /// hold no quota, so without the second bound a client that never sends PUBCOMP would use up
    /// the identifiers.
    pub fn has_quota(&self, wire: &Wire, policy: &SendPolicy) -> bool {
        let most = (usize::from(policy.in_flight) * CARRIED_OVER).min(MOST_UNFINISHED);
        let window = &*self.window;
        window.quota_used() < usize::from(wire.window) && (window.has_unsent() || window.len() < most)
    }

    fn resend_carried_over(&mut self, now: Instant, wire: &mut Wire, counters: &mut Counters) {
        let Some(window) = self.window.get_mut() else { return };
        let Some(p) = window.first_unsent() else { return };
        // 3.1.1 and 5.0 [MQTT-3.3.1-1]; a packet that never left the broker is sent for the first
        // time.
        let dup = p.transmission.transmissions > 0;
        let sending = Sending { dup, ..p.delivery.sending(Some(p.transmission.packet_id())) };
        if p.delivery.qos == QoS::ExactlyOnce {
            // The identifier may wait for its commit since an earlier connection.
            wire.wait_for(p.delivery.stored.as_deref());
        }
        if let Err(unsendable) = wire.put_publish(now, &p.delivery.message, sending) {
            // 5.0 [MQTT-3.1.2-25]
            if let Some(p) = window.remove_unsent() {
                counters.drops.lose(p.into_drop(unsendable.drop_reason()));
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
                Err(unsendable) => {
                    counters.drops.lose(Dropped::unsent(unsendable.drop_reason(), delivery.message));
                }
            }
            return;
        }
        let due = self.redelivery.first_due(now, &delivery.message, wire);
        let p = self.window.or_create().push(now, delivery, due);
        let id = p.transmission.packet_id();
        p.record_place();
        if p.delivery.qos == QoS::ExactlyOnce {
            // The identifier is recorded before the client sees it.
            wire.wait_for(p.delivery.stored.as_deref());
        }
        if let Err(unsendable) = wire.put_publish(now, &p.delivery.message, p.delivery.sending(Some(id))) {
            if let Some(unsent) = self.undo() {
                counters.drops.lose(unsent.to_drop(unsendable.drop_reason()));
            }
            return;
        }
        p.transmission.end_offset = wire.outbox.end_offset();
        counters.sent.count(p.delivery.qos, p.delivery.message.payload().len());
    }
}

impl Recount for Sender {
    fn recount(&self) -> Recounted {
        let (queue, window) = (self.queue.recount(), self.window.recount());
        Recounted { in_use: queue.in_use + window.in_use, charged: queue.charged + window.charged }
    }
}

#[cfg(test)]
#[path = "sender_tests.rs"]
mod tests;
