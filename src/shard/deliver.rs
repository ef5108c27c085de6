//! One message to one session: eligibility, then send now, queue, hold or drop.

use crate::mqtt::charge::{Budget, Charge};
use crate::mqtt::outcome::Outcome;
use crate::mqtt::packet::QoS;
use crate::mqtt::subscription_ids::SubscriptionIds;
use crate::persistence::records::Lsn;
use crate::routing::subscription_tree::ShardId;
use crate::session::counters::Counters;
use crate::session::drops::{DropReason, Dropped};
use crate::session::outbound::queue::{Delivery, QueueLimits, QueuePolicy};
use crate::session::outbox::Pool;
use crate::session::wire::{Frame, FrameKind, FrameParts, Sending, TooLarge};
use crate::shard::connection::{Connection, Pause};
use crate::shard::core::Core;
use crate::shard::durability::session_records::record_delivery;
use crate::shard::publication::{Framed, Publication, Target};
use crate::shard::scratch::Scratch;
use crate::shard::session_entry::{HELD, HeldMessage, SessionEntry};
use crate::shard::settings::ShardSettings;
use crate::shard::slots::ConnectionId;
use crate::time::Instant;
use std::sync::Arc;

/// Bytes in an outbox beyond which a receiver gets no more QoS 0 while the memory is used up: a
/// message is admitted once, and fanned out to many. Bytes that were appended since the last flush
/// are not on the account yet.
const SLOW: usize = 16 * 1024;

impl Core {
    /// Delivers a publication to a session. A session that has ended gets nothing, though the
    /// subscription tree may still name it.
    pub(crate) fn deliver(
        &mut self,
        now: Instant,
        target: &Target<'_>,
        publication: &mut Publication<'_>,
    ) -> Outcome {
        self.deliver_shared(now, target, publication, None)
    }

    /// Does the same. `share` is the shared subscription that the message goes by, if any.
    pub(crate) fn deliver_shared(
        &mut self,
        now: Instant,
        target: &Target<'_>,
        publication: &mut Publication<'_>,
        share: Option<&Arc<Box<str>>>,
    ) -> Outcome {
        let outcome = self.hand_over(now, target, publication, share);
        if self.counters.drops.are_unreported()
            && let Some((id, _)) = self.sessions.at(target.session.0)
        {
            self.report_drops(id);
        }
        outcome
    }

    /// Hands a publication to one session: eligibility, then send now, queue, hold or drop.
    fn hand_over(
        &mut self,
        now: Instant,
        target: &Target<'_>,
        publication: &mut Publication<'_>,
        share: Option<&Arc<Box<str>>>,
    ) -> Outcome {
        // The origin of the message is recorded already, and its receivers will be, both in the
        // batch that is being filled.
        let atomic = if publication.atomic { self.durability.pending() } else { None };
        let Core { connections, sessions, settings, counters, scratch: buffers, effects, .. } = self;
        let Scratch { pool, frames, bytes: scratch, .. } = buffers;
        let Some((id, session_entry)) = sessions.at_mut(target.session.0) else { return Outcome::Unmatched };
        let connection = session_entry.connection.and_then(|id| Some((id, connections.get_mut(id)?)));
        let mut handover = Handover {
            connection,
            session_entry,
            target,
            // 3.1.1 [MQTT-3.8.4-6], 5.0 [MQTT-3.8.4-8]
            qos: publication.parts.qos.min(target.qos),
            // 3.1.1 [MQTT-3.3.1-9]; 5.0 [MQTT-3.3.1-12], [MQTT-3.3.1-13]
            retain: publication.parts.retain && target.retain_as_published,
            share,
            atomic,
            settings,
            counters,
            scratch,
        };
        let (outcome, follow_up) = match handover.eligibility(&self.shared.budget, effects.unflushed) {
            Eligibility::Absent => return Outcome::Unmatched,
            Eligibility::OutboxFull => return handover.refuse(DropReason::OutboxFull, publication),
            Eligibility::SendNow => {
                let out = Out { pool, frames, dirty: &mut effects.dirty, unflushed: &mut effects.unflushed };
                handover.send_now(now, publication, out)
            }
            Eligibility::Queue => {
                if handover.session_entry.holds() {
                    // Messages that expired since may have made room, which is for the held ones.
                    // They are admitted at the end of the turn: to answer their publishers may lead
                    // to another publication in the midst of this one.
                    self.after_deliveries.to_admit.push(id);
                }
                handover.queue_or_hold(now, publication, self.here)
            }
        };
        match follow_up {
            FollowUp::None => {}
            FollowUp::RegisterRetransmit(id) => self.register_retransmit(now, id),
            FollowUp::RegisterSession => self.sessions.register(id, &mut self.effects),
            // At the end of the turn: its will would be routed in the midst of this publication.
            FollowUp::Disconnect(id) => self.after_deliveries.overfull.push(id),
        }
        outcome
    }
}

/// The decision about one receiver, before anything changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Eligibility {
    /// The message goes into the outbox.
    SendNow,
    /// The message goes into the queue, or waits outside it under the policy `hold`.
    Queue,
    /// The receiver is not connected, and QoS 0 is for those who are.
    Absent,
    /// The receiver does not take its QoS 0 messages fast enough.
    OutboxFull,
}

/// A step that needs the whole shard, done once the receiver is no longer borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FollowUp {
    None,
    /// The packet may be due before the deadline that the expiry actor knows.
    RegisterRetransmit(ConnectionId),
    /// A message is held, for a limited time.
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
    /// The shared subscription that the message goes by, if any.
    share: Option<&'t Arc<Box<str>>>,
    /// Nothing of the message leaves before this batch is committed.
    atomic: Option<Lsn>,
    settings: &'s ShardSettings,
    counters: &'s mut Counters,
    scratch: &'s mut Vec<u8>,
}

/// The parts of the shard that a PUBLISH in an outbox touches beside the receiver.
struct Out<'s> {
    pool: &'s mut Pool,
    frames: &'s mut [Frame; FrameKind::COUNT],
    dirty: &'s mut Vec<ConnectionId>,
    unflushed: &'s mut usize,
}

impl Handover<'_, '_> {
    /// Decides what happens with the message. `unflushed` bytes are in outboxes and not on the
    /// account yet.
    #[inline]
    fn eligibility(&self, budget: &Budget, unflushed: usize) -> Eligibility {
        let sender = &self.session_entry.session.sender;
        let policy = &self.settings.session.send;
        match &self.connection {
            None if self.qos == QoS::AtMostOnce => Eligibility::Absent,
            None => Eligibility::Queue,
            Some((_, connection)) if self.qos == QoS::AtMostOnce => {
                let waiting = connection.wire.outbox.len();
                if sender.holds_at_most_once() {
                    Eligibility::Queue
                } else if waiting >= policy.outbox || waiting >= SLOW && budget.is_exceeded_with(unflushed) {
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

    /// Appends the PUBLISH to the outbox. Above QoS 0 the message takes a place in the in-flight
    /// window first.
    #[inline]
    fn send_now(
        &mut self,
        now: Instant,
        publication: &mut Publication<'_>,
        out: Out<'_>,
    ) -> (Outcome, FollowUp) {
        let Handover {
            session_entry, target, qos, retain, share, atomic, settings, counters, scratch, ..
        } = self;
        let Some((id, connection)) = &mut self.connection else {
            return (Outcome::Unmatched, FollowUp::None);
        };
        connection.wire.outbox.lend(out.pool);
        let before = connection.wire.outbox.len();
        if let Some(lsn) = *atomic {
            connection.wire.outbox.hold_until_commit(lsn);
        }
        let packet_id = (*qos != QoS::AtMostOnce).then(|| {
            let message = publication.message(scratch).clone();
            let ids = SubscriptionIds::from_several(target.ids);
            let share = share.cloned();
            let delivery = Delivery { message, ids, qos: *qos, retain: *retain, share, stored: None };
            let row = session_entry.session.row().cloned();
            let unacked = session_entry.session.sender.begin(now, delivery, &connection.wire);
            let flight = Some(unacked.flight());
            let entry = record_delivery(row.as_ref(), &mut publication.body, &unacked.delivery, flight);
            unacked.delivery.stored = entry;
            if *qos == QoS::ExactlyOnce {
                // Its identifier is recorded before it is shown.
                connection.wire.wait_for(unacked.delivery.stored.as_deref());
            }
            unacked.packet_id()
        });
        let sending = Sending { dup: false, qos: *qos, retain: *retain, packet_id, ids: target.ids };
        if let Err(TooLarge) = write(now, connection, sending, publication, out.frames, scratch) {
            // The message counts as delivered. The drop is counted.
            if let Some(packet_id) = packet_id {
                session_entry.session.sender.undo(packet_id);
            }
            drop_message(session_entry, DropReason::TooLarge, publication, scratch, counters);
            return (Outcome::Taken, FollowUp::None);
        }
        counters.sent += 1;
        *out.unflushed += connection.wire.outbox.len() - before;
        connection.mark_dirty(*id, out.dirty);
        if packet_id.is_none() {
            return (Outcome::Taken, FollowUp::None);
        }
        let sender = &mut session_entry.session.sender;
        sender.written(connection.wire.outbox.end_offset());
        if connection.expects_acknowledgement(sender, settings.expiry_interval) {
            (Outcome::Taken, FollowUp::None)
        } else {
            (Outcome::Taken, FollowUp::RegisterRetransmit(*id))
        }
    }

    /// Puts the message into the queue, or beside it under the policy `hold`. Refuses it if there
    /// is no room.
    fn queue_or_hold(
        &mut self,
        now: Instant,
        publication: &mut Publication<'_>,
        here: ShardId,
    ) -> (Outcome, FollowUp) {
        let Handover { session_entry, target, qos, retain, share, .. } = self;
        let (message, share) = (publication.message(self.scratch).clone(), share.cloned());
        let ids = SubscriptionIds::from_several(target.ids);
        let mut delivery = Delivery { message, ids, qos: *qos, retain: *retain, share, stored: None };
        if *qos != QoS::AtMostOnce {
            delivery.stored =
                record_delivery(session_entry.session.row(), &mut publication.body, &delivery, None);
        }
        let limits = session_entry.session.queue_limits(&self.settings.session.send);
        if let Some(gate) = publication.gate
            && *qos != QoS::AtMostOnce
            && !self.starves(publication, here)
            && self.session_entry.must_hold(now, &delivery, limits, &mut self.counters.drops)
        {
            publication.held = publication.held.saturating_add(1);
            let (until, charge) = (now + self.settings.hold_timeout, Charge::new(HELD));
            self.session_entry.hold(HeldMessage { delivery, gate, until, _charge: charge });
            return (Outcome::Unmatched, FollowUp::RegisterSession);
        }
        self.queue(now, delivery, limits, publication)
    }

    /// True if the receiver is not read until its own PUBLISHes are answered. Such a client cannot
    /// acknowledge the messages whose end would make room, so nothing is held for it.
    fn starves(&self, publication: &Publication<'_>, here: ShardId) -> bool {
        let waits = self.connection.as_ref().is_some_and(|(_, c)| c.pauses.has(Pause::Unanswered));
        let session = self.target.session;
        waits || publication.publisher.is_some_and(|p| p.session == session && p.shard == here)
    }

    fn queue(
        &mut self,
        now: Instant,
        delivery: Delivery,
        limits: &QueueLimits,
        publication: &mut Publication<'_>,
    ) -> (Outcome, FollowUp) {
        let Handover { session_entry, qos, .. } = self;
        let is_acknowledged = *qos != QoS::AtMostOnce;
        // A publisher's next message does not pass a held one. Wills and dead letters have no order
        // with others.
        let has_order = publication.gate.is_some() || self.share.is_some();
        let passes = is_acknowledged && has_order && session_entry.holds();
        let head = session_entry.head();
        let drops = &mut self.counters.drops;
        if passes || session_entry.session.sender.enqueue(now, delivery, head, limits, drops).is_err() {
            let outcome = self.refuse(DropReason::QueueRefused, publication);
            return match self.session_entry.connection {
                Some(id) if limits.policy == QueuePolicy::Disconnect && is_acknowledged => {
                    (outcome, FollowUp::Disconnect(id))
                }
                _ => (outcome, FollowUp::None),
            };
        }
        // Without a row of its own, only the outbox holds the message back until its origin is
        // recorded.
        let has_row = is_acknowledged && session_entry.session.row().is_some();
        if let (Some(lsn), Some((_, connection)), false) = (self.atomic, &mut self.connection, has_row) {
            connection.wire.outbox.hold_until_commit(lsn);
        }
        (Outcome::Taken, FollowUp::None)
    }

    /// Refuses the message. A shared message is not dropped yet: another member may take it.
    #[cold]
    fn refuse(&mut self, cause: DropReason, publication: &mut Publication<'_>) -> Outcome {
        if self.share.is_none() {
            drop_message(self.session_entry, cause, publication, self.scratch, self.counters);
        }
        Outcome::Refused
    }
}

/// Bytes of properties of a message that is laid out in a frame. The frames keep their room, and
/// are not on the row: six kinds of less than 192 KiB are 17 MiB of 16 threads.
const MOST_FRAMED: usize = 64 * 1024;

/// Appends the PUBLISH; where it is the same for all receivers of its kind, from the second on from
/// a frame that is laid out once.
fn write(
    now: Instant,
    connection: &mut Connection,
    sending: Sending<'_>,
    publication: &mut Publication<'_>,
    frames: &mut [Frame; FrameKind::COUNT],
    scratch: &mut Vec<u8>,
) -> Result<(), TooLarge> {
    let wire = &mut connection.wire;
    if !sending.ids.is_empty() || !wire.takes_frames() || sending.retain {
        return wire.put_publish(now, publication.message(scratch), sending);
    }
    let kind = FrameKind::of(wire.version, sending.qos) as usize;
    let (frame, framed) = (&mut frames[kind], &mut publication.framed[kind]);
    let before = *framed;
    if before != Framed::LaidOut {
        let parts = publication.parts;
        let in_parts = before == Framed::Unsent || parts.forwarded.len() > MOST_FRAMED;
        *framed = if in_parts { Framed::Once } else { Framed::LaidOut };
        if Frame::shares(parts.payload) {
            publication.message(scratch);
        }
        let large = publication.existing().and_then(|m| m.large_payload());
        let parts = FrameParts {
            topic: parts.topic,
            forwarded: parts.forwarded,
            payload: parts.payload,
            expires: parts.expires,
            qos: sending.qos,
            retain: false,
        };
        if in_parts {
            return wire.put_parts(now, parts, sending.packet_id, large);
        }
        frame.lay_out(now, wire.version, parts, large.is_some());
    }
    let large = if frame.is_shared() { publication.existing().and_then(|m| m.large_payload()) } else { None };
    wire.put_frame(frame, sending.packet_id, large)
}

/// Drops the message for this session. Not inlined, so that it stays out of the way of deliveries.
/// The message gets a body only if a dead letter needs one.
#[cold]
fn drop_message(
    session_entry: &SessionEntry,
    cause: DropReason,
    publication: &mut Publication<'_>,
    scratch: &mut Vec<u8>,
    counters: &mut Counters,
) {
    let wanted =
        session_entry.session.sender.redelivery().of(publication.parts.topic).wants_dead_letter(cause);
    let message = wanted.then(|| publication.message(scratch).clone());
    counters.drops.lose(Dropped::new(cause, message));
}
