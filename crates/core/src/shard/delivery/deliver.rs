//! The delivery of a message to a session: the message is sent, queued, held or dropped.

use crate::durability::publication::Publication;
use crate::mqtt::charge::{Budget, Charge};
use crate::mqtt::outcome::Outcome;
use crate::mqtt::packet::QoS;
use crate::mqtt::subscription_ids::SubscriptionIds;
use crate::persistence::records::Lsn;
use crate::routing::subscription_tree::ShardId;
use crate::session::counters::Counters;
use crate::session::drops::{DropReason, Dropped, ReceiverState};
use crate::session::objectives::DeliveryMark;
use crate::session::outbound::delivery::Delivery;
use crate::session::outbound::outgoing::{SendBuffers, SentDelivery};
use crate::session::outbound::queue::{QueueLimits, QueuePolicy};
use crate::session::outbox::Pool;
use crate::shard::clients::connection::Connection;
use crate::shard::clients::pause::Pause;
use crate::shard::clients::session_entry::{HELD, HeldMessage, SessionEntry};
use crate::shard::core::Core;
use crate::shard::delivery::target::Target;
use crate::shard::settings::ShardSettings;
use crate::shard::turn::effects::Effects;
use crate::shard::turn::glob_steps;
use crate::shard::turn::scratch::Scratch;
use crate::slots::ConnectionId;
use crate::time::Instant;

/// Bytes in an outbox from which on its receiver gets no more QoS 0 while the memory budget is
/// exceeded. Admission checks the memory for one copy of a message, but each of many outboxes may
/// get a copy. Bytes that were appended since the last flush are not charged yet. The check adds
/// them to the budget.
const SLOW: usize = 16 * 1024;

impl Core {
    /// Delivers a message to a session: sends, queues, holds or drops the message. Reports the
    /// drops that this caused. Returns the outcome for this receiver. A session that has ended gets
    /// nothing, although the subscription tree may still have its filters.
    pub(crate) fn deliver(
        &mut self,
        now: Instant,
        target: &Target<'_>,
        publication: &mut Publication<'_>,
    ) -> Outcome {
        // The open batch has the record of the message's origin, and gets the records of its
        // receivers. So nothing of the message may leave before that batch is committed.
        let atomic = if publication.atomic { self.durability.pending() } else { None };
        let Core { connections, sessions, access, settings, counters, scratch, effects, turn, .. } = self;
        let Scratch { pool, sending: buffers, .. } = scratch;
        // The session has ended. Its filters leave the subscription tree later.
        let Some((id, session_entry)) = sessions.at_mut(target.session.0) else { return Outcome::Unmatched };
        if access.are_on() && !session_entry.may_read(access, publication.outgoing.parts.topic, turn) {
            // A shared message goes to another member.
            return if target.share.is_some() { Outcome::Refused } else { Outcome::Unmatched };
        }
        let connection = session_entry.connection.and_then(|id| Some((id, connections.get_mut(id)?)));
        let mut handover = Handover {
            connection,
            session_entry,
            target,
            // 3.1.1 [MQTT-3.8.4-6], 5.0 [MQTT-3.8.4-8]
            qos: publication.outgoing.parts.qos.min(target.qos),
            // 3.1.1 [MQTT-3.3.1-9]; 5.0 [MQTT-3.3.1-12], [MQTT-3.3.1-13]
            retain: publication.outgoing.parts.retain && target.retain_as_published,
            atomic,
            settings,
            counters,
            buffers,
        };
        let (outcome, follow_up) = match handover.eligibility(&self.shared.budget, effects.unflushed) {
            Eligibility::Absent => return Outcome::Unmatched,
            Eligibility::OutboxFull => (handover.refuse(DropReason::OutboxFull, publication), FollowUp::None),
            Eligibility::SendNow => (handover.send_now(now, publication, pool, effects), FollowUp::None),
            Eligibility::Queue => {
                if handover.session_entry.holds() {
                    // Messages in the queue may have expired and made room since the last look.
                    // Held messages come before this message, and are admitted at the end of the
                    // turn. If they were admitted here, the answers to their publishers could begin
                    // another publication in the midst of this one.
                    self.turn.after_deliveries.to_admit.push(id);
                }
                let (outcome, follow_up) = handover.queue_or_hold(now, publication, self.peers.here());
                let qos = handover.qos;
                if self.tracer.is_on() {
                    self.recorder().add_kept(now, id, publication, (qos, outcome));
                }
                (outcome, follow_up)
            }
        };
        match follow_up {
            FollowUp::None => {}
            FollowUp::RegisterSession => self.sessions.register(id, &mut self.effects),
            // The connection is closed at the end of the turn. Otherwise its will would be routed
            // in the midst of this publication.
            FollowUp::Disconnect(id) => self.turn.after_deliveries.overfull.push(id),
        }
        self.report_drops(id);
        outcome
    }
}

/// The decision about one receiver. The decision itself changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Eligibility {
    /// The message goes into the outbox.
    SendNow,
    /// The message goes to [`Handover::queue_or_hold`].
    Queue,
    /// The receiver is not connected, and only a connected receiver gets QoS 0.
    Absent,
    /// The message is QoS 0, and the outbox is full. Half an outbox counts as full while a message
    /// of QoS 1 or 2 waits, and [`SLOW`] bytes while the memory budget is exceeded. Behind other
    /// QoS 0 messages in the queue, half a queue counts as full.
    OutboxFull,
}

/// A step that needs the whole shard, after the borrow of the receiver has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FollowUp {
    None,
    /// A message is held, so the end of its hold needs a deadline.
    RegisterSession,
    /// The queue is full, and the policy is to disconnect.
    Disconnect(ConnectionId),
}

/// One receiver of a publication, with the parts of the shard that a delivery touches.
struct Handover<'s, 't> {
    /// `None` while the client is away.
    connection: Option<(ConnectionId, &'s mut Connection)>,
    session_entry: &'s mut SessionEntry,
    target: &'t Target<'t>,
    /// The lower of publish and granted QoS.
    qos: QoS,
    retain: bool,
    /// The batch that must be committed before any packet of the message leaves, if there is one.
    atomic: Option<Lsn>,
    settings: &'s ShardSettings,
    counters: &'s mut Counters,
    buffers: &'s mut SendBuffers,
}

impl Handover<'_, '_> {
    /// Decides what happens to the message. `unflushed` is the number of bytes in outboxes that are
    /// not charged to `budget` yet.
    #[inline]
    fn eligibility(&self, budget: &Budget, unflushed: usize) -> Eligibility {
        let sender = &self.session_entry.session.sender;
        let policy = &self.settings.session.send;
        match &self.connection {
            None if self.qos == QoS::AtMostOnce => Eligibility::Absent,
            None => Eligibility::Queue,
            Some((_, connection)) if self.qos == QoS::AtMostOnce => {
                let waiting = connection.wire.outbox.len();
                let is_owed = || waiting >= policy.outbox || sender.has_waiting();
                if sender.queue.has_at_most_once() {
                    let limits = self.session_entry.queue_limits(policy);
                    if sender.queue.is_half_full(&limits) {
                        Eligibility::OutboxFull
                    } else {
                        Eligibility::Queue
                    }
                } else if waiting >= policy.at_most_once_share() && is_owed()
                    || waiting >= SLOW && budget.is_exceeded_with(unflushed)
                {
                    Eligibility::OutboxFull
                } else {
                    Eligibility::SendNow
                }
            }
            Some((_, connection)) => {
                let is_clear = !self.session_entry.holds() && sender.is_clear(&connection.wire, policy);
                if is_clear { Eligibility::SendNow } else { Eligibility::Queue }
            }
        }
    }

    /// Sends the message at once. A message that cannot be sent to this client, because its packet is
    /// larger than the client allows for example, counts as delivered for the publisher, and as a
    /// drop for the operator.
    #[inline]
    fn send_now(
        &mut self,
        now: Instant,
        publication: &mut Publication<'_>,
        pool: &mut Pool,
        effects: &mut Effects,
    ) -> Outcome {
        let Handover { session_entry, target, qos, retain, atomic, settings, counters, buffers, .. } = self;
        // Only a connected receiver is sent a message at once.
        let Some((id, connection)) = &mut self.connection else { return Outcome::Unmatched };
        let mark = match *qos {
            QoS::AtMostOnce => DeliveryMark::NONE,
            _ => begin(now, publication, session_entry, counters, ReceiverState::Connected),
        };
        if let Some(lsn) = *atomic {
            connection.wire.outbox.gate_until_commit(lsn);
        }
        let (qos, retain, ids, share) = (*qos, *retain, target.ids, target.share);
        let (sender, row) = session_entry.session.sender_and_row();
        let new = SentDelivery { qos, retain, ids, mark, share, row };
        let before = connection.begin_write(pool);
        let outgoing = &mut publication.outgoing;
        if let Err(unsendable) = sender.send_new(now, new, outgoing, &mut connection.wire, buffers, counters)
        {
            if qos != QoS::AtMostOnce {
                counters.objectives.dropped(mark);
            }
            drop_message(session_entry, unsendable.drop_reason(), publication, buffers, counters);
            return Outcome::Taken;
        }
        connection.end_write(before, *id, effects);
        if qos != QoS::AtMostOnce {
            connection.register_retransmit(now, *id, sender, settings.expiry_interval, effects);
        }
        Outcome::Taken
    }

    /// Puts the message into the queue. If the queue has no room, the queue policy decides: the
    /// message is held, or the oldest messages are dropped, or this message is refused. A message
    /// without a gate is never held.
    fn queue_or_hold(
        &mut self,
        now: Instant,
        publication: &mut Publication<'_>,
        here: ShardId,
    ) -> (Outcome, FollowUp) {
        let Handover { session_entry, target, qos, retain, .. } = self;
        let (message, share) =
            (publication.outgoing.message(&mut self.buffers.bytes).clone(), target.share.cloned());
        let ids = SubscriptionIds::from_several(target.ids);
        let mut mark = DeliveryMark::waiting(now);
        if *qos != QoS::AtMostOnce {
            let state =
                if self.connection.is_some() { ReceiverState::Connected } else { ReceiverState::Away };
            let begun = begin(now, publication, session_entry, self.counters, state);
            if !begun.is_counted() && state == ReceiverState::Connected {
                // Its acknowledgement tells then how long the message waited in the queue, too.
                mark = DeliveryMark::queued(now);
            } else if !begun.is_none() {
                mark = begun;
            }
        }
        let mut delivery = Delivery { message, ids, qos: *qos, retain: *retain, mark, share, stored: None };
        if *qos != QoS::AtMostOnce {
            delivery.record(session_entry.session.row(), &mut publication.outgoing.body, None);
        }
        let limits = session_entry.queue_limits(&self.settings.session.send);
        if let Some(gate) = publication.gate
            && *qos != QoS::AtMostOnce
            && !self.starves(publication, here)
            && self.session_entry.must_hold(now, &delivery, &limits, &mut self.counters.drops)
        {
            publication.held = publication.held.saturating_add(1);
            let (until, charge) = (now + self.settings.hold_timeout, Charge::new(HELD));
            self.session_entry.hold(HeldMessage { delivery, gate, until, _charge: charge });
            return (Outcome::Unmatched, FollowUp::RegisterSession);
        }
        self.queue(now, delivery, &limits, publication)
    }

    /// Returns true if the receiver may be unable to make room, so that a hold could last until its
    /// timeout. A client that is not read until its own PUBLISH packets are answered cannot
    /// acknowledge anything. Nothing is held for such a client, or for the publisher of this
    /// message.
    fn starves(&self, publication: &Publication<'_>, here: ShardId) -> bool {
        let waits = self.connection.as_ref().is_some_and(|(_, c)| c.pauses.has(Pause::Unanswered));
        let session = self.target.session;
        waits || publication.publisher.is_some_and(|p| p.session == session && p.shard == here)
    }

    /// Puts the message into the queue. The message is refused if the queue has no room and its
    /// policy makes none. The message is also refused if it would pass held messages. Under the
    /// policy `disconnect`, the refusal of a QoS 1 or 2 message also disconnects a connected
    /// receiver.
    fn queue(
        &mut self,
        now: Instant,
        delivery: Delivery,
        limits: &QueueLimits,
        publication: &mut Publication<'_>,
    ) -> (Outcome, FollowUp) {
        let Handover { session_entry, qos, .. } = self;
        let is_acknowledged = *qos != QoS::AtMostOnce;
        // A message must not pass a held message, which may be an earlier one of the same
        // publisher. Wills and dead letters have no order with other messages, so they may pass.
        let has_order = publication.gate.is_some() || self.target.share.is_some();
        let passes = is_acknowledged && has_order && session_entry.holds();
        let head = session_entry.head();
        let mark = delivery.mark;
        let drops = &mut self.counters.drops;
        let queue = &mut session_entry.session.sender.queue;
        if passes || queue.or_create().push(now, delivery, head, limits, drops).is_err() {
            match self.target.share {
                Some(_) => self.counters.objectives.passed_on(mark),
                None => self.counters.objectives.dropped(mark),
            }
            let outcome = self.refuse(DropReason::QueueRefused, publication);
            return match self.session_entry.connection {
                Some(id) if limits.policy == QueuePolicy::Disconnect && is_acknowledged => {
                    (outcome, FollowUp::Disconnect(id))
                }
                _ => (outcome, FollowUp::None),
            };
        }
        // A stored QoS 2 delivery waits for its commit by itself. For any other, the outbox waits
        // until the origin of the message is committed.
        let waits = *qos == QoS::ExactlyOnce && session_entry.session.row().is_some();
        if let (Some(lsn), Some((_, connection)), false) = (self.atomic, &mut self.connection, waits) {
            connection.wire.outbox.gate_until_commit(lsn);
        }
        (Outcome::Taken, FollowUp::None)
    }

    /// Refuses the message. Counts a drop if the message is not shared. A shared message is not
    /// dropped yet, because another member may take it.
    #[cold]
    fn refuse(&mut self, cause: DropReason, publication: &mut Publication<'_>) -> Outcome {
        if self.target.share.is_none() {
            drop_message(self.session_entry, cause, publication, self.buffers, self.counters);
        }
        Outcome::Refused
    }
}

/// Begins a delivery above QoS 0 for its objective. Without objectives and traces this costs one
/// branch.
#[inline]
fn begin(
    now: Instant,
    publication: &mut Publication<'_>,
    session_entry: &mut SessionEntry,
    counters: &mut Counters,
    receiver: ReceiverState,
) -> DeliveryMark {
    match counters.objectives.are_marked() {
        false => DeliveryMark::NONE,
        true => begin_marked(now, publication, session_entry, counters, receiver),
    }
}

/// Does so where there are objectives or traces. Not inlined, to keep the code of deliveries small.
#[inline(never)]
fn begin_marked(
    now: Instant,
    publication: &mut Publication<'_>,
    session_entry: &mut SessionEntry,
    counters: &mut Counters,
    receiver: ReceiverState,
) -> DeliveryMark {
    let looked_at = session_entry.find_objectives(&counters.objectives);
    counters.steps = counters.steps.saturating_add(glob_steps(looked_at));
    let of_topic = publication.objectives(&counters.objectives);
    let mark = counters.objectives.begin(now, of_topic, session_entry.objectives(), receiver);
    mark.or_traced(publication.outgoing.audit)
}

/// Drops the message for this session, and counts the drop with its topic. Builds the
/// [`Message`](crate::mqtt::message::Message) only if a dead letter needs it. Not inlined, to keep
/// the code of deliveries small.
#[cold]
fn drop_message(
    session_entry: &SessionEntry,
    cause: DropReason,
    publication: &mut Publication<'_>,
    buffers: &mut SendBuffers,
    counters: &mut Counters,
) {
    let wanted = session_entry
        .session
        .sender
        .redelivery()
        .of(publication.outgoing.parts.topic)
        .wants_dead_letter(cause);
    let message = (wanted || publication.outgoing.audit.is_some())
        .then(|| publication.outgoing.message(&mut buffers.bytes).clone());
    counters.drops.lose(Dropped::new(cause, message).on(publication.outgoing.parts.topic));
}
