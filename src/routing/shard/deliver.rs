//! One message to one session.

use super::connection::{Connection, Pause};
use super::effects::Why;
use super::hold::{HELD, Held};
use super::record::owe;
use super::route::{Framed, Publication, Target};
use super::slots::Id;
use super::{Resident, Shard};
use crate::mqtt::charge::Charge;
use crate::mqtt::packet::{QoS, ReasonCode};
use crate::mqtt::session::loss::{LossCause, Lost};
use crate::mqtt::session::queue::{Delivery, Full, QueuePolicy};
use crate::mqtt::session::receiver::Outcome;
use crate::mqtt::session::sender::Tally;
use crate::mqtt::session::subscription::SubscriptionIds;
use crate::mqtt::session::wire::{Frame, FrameKind, FrameParts, Sending, TooLarge};
use crate::time::Instant;
use std::sync::Arc;

/// Bytes in an outbox beyond which a receiver gets no more QoS 0 while the memory is used up: a message is admitted once, and
/// fanned out to many. What was appended since the last flush is not on the account yet.
const SLOW: usize = 16 * 1024;

impl Shard {
    /// Delivers a publication to a session, which exists if it is in the index.
    pub(super) fn deliver(
        &mut self,
        now: Instant,
        target: &Target<'_>,
        publication: &mut Publication<'_>,
    ) -> Outcome {
        self.deliver_shared(now, target, publication, None)
    }

    /// The same; `share` is the shared subscription that it goes by, if any.
    pub(super) fn deliver_shared(
        &mut self,
        now: Instant,
        target: &Target<'_>,
        publication: &mut Publication<'_>,
        share: Option<&Arc<Box<str>>>,
    ) -> Outcome {
        let outcome = self.hand_over(now, target, publication, share);
        if self.tally.losses.are_untold()
            && let Some((id, _)) = self.sessions.at(target.session.0)
        {
            self.settle_losses(id);
        }
        outcome
    }

    fn hand_over(
        &mut self,
        now: Instant,
        target: &Target<'_>,
        publication: &mut Publication<'_>,
        share: Option<&Arc<Box<str>>>,
    ) -> Outcome {
        // What it comes from is recorded already, what it leads to will be: either way in the batch that is being filled.
        let whole = if publication.whole { self.ledger().and_then(|l| l.pending()) } else { None };
        let Shard {
            connections,
            sessions,
            settings,
            tally,
            pool,
            frames,
            scratch,
            effects,
            here,
            to_admit,
            common,
            unflushed,
            ..
        } = self;
        let policy = &settings.session.send;
        let Some((Id { generation, .. }, resident)) = sessions.at_mut(target.session.0) else {
            return Outcome::Unmatched;
        };
        // 3.1.1 [MQTT-3.8.4-6], 5.0 [MQTT-3.8.4-8]
        let qos = publication.parts.qos.min(target.qos);
        // 3.1.1 [MQTT-3.3.1-9]; 5.0 [MQTT-3.3.1-12], [MQTT-3.3.1-13]
        let retain = publication.parts.retain && target.retain_as_published;
        let mut at = resident.connection.and_then(|id| Some((id, connections.get_mut(id)?)));
        let sends = match &at {
            Some((_, connection)) if qos == QoS::AtMostOnce => {
                if !resident.session.sender.holds_at_most_once()
                    && (connection.wire.outbox.len() >= policy.outbox
                        || connection.wire.outbox.len() >= SLOW && common.budget.is_exceeded_with(*unflushed))
                {
                    if share.is_none() {
                        lose(resident, LossCause::OutboxFull, publication, scratch, tally);
                    }
                    return Outcome::Refused;
                }
                !resident.session.sender.holds_at_most_once()
            }
            Some((_, connection)) => {
                !resident.holds() && resident.session.sender.is_clear(&connection.wire, policy)
            }
            // QoS 0 is for those who are there.
            None if qos == QoS::AtMostOnce => return Outcome::Unmatched,
            None => false,
        };
        if let Some((id, connection)) = &mut at
            && sends
        {
            connection.wire.outbox.lend(pool);
            let before = connection.wire.outbox.len();
            if let Some(lsn) = whole {
                connection.wire.outbox.fence(lsn);
            }
            let packet_id = (qos != QoS::AtMostOnce).then(|| {
                let message = publication.message(scratch).clone();
                let ids = SubscriptionIds::from_several(target.ids);
                let delivery = Delivery { message, ids, qos, retain, share: share.cloned(), stored: None };
                let account = resident.session.account().cloned();
                let unacked = resident.session.sender.begin(now, delivery, &connection.wire);
                let flight = Some(unacked.flight());
                let entry = owe(account.as_ref(), &mut publication.body, &unacked.delivery, flight);
                unacked.delivery.stored = entry;
                if qos == QoS::ExactlyOnce {
                    // Its identifier is recorded before it is shown.
                    connection.wire.wait_for(unacked.delivery.stored.as_deref());
                }
                unacked.packet_id()
            });
            let sending = Sending { dup: false, qos, retain, packet_id, ids: target.ids };
            let written = write(now, connection, sending, publication, frames, scratch);
            return match written {
                Ok(()) => {
                    if packet_id.is_some() {
                        resident.session.sender.written(connection.wire.outbox.end_offset());
                    }
                    tally.sent += 1;
                    self.unflushed += connection.wire.outbox.len() - before;
                    connection.mark_dirty(*id, &mut effects.dirty);
                    if packet_id.is_some() {
                        let id = *id;
                        self.register_retransmit(now, id);
                    }
                    Outcome::Taken
                }
                Err(TooLarge) => {
                    // It counts as delivered: no stall, no quota, but the loss is counted. 5.0 [MQTT-3.1.2-25]
                    if let Some(id) = packet_id {
                        resident.session.sender.undo(id);
                    }
                    lose(resident, LossCause::TooLarge, publication, scratch, tally);
                    Outcome::Taken
                }
            };
        }
        // A receiver that is not read until its own PUBLISHes are answered cannot acknowledge what would make room.
        let waits = at.as_ref().is_some_and(|(_, connection)| connection.pauses.has(Pause::Unanswered));
        let own = publication.publisher.is_some_and(|p| p.session == target.session && p.shard == *here);
        let starves = waits || own;
        if resident.holds() {
            // What has expired since may have made room, and that is for those who wait for it. Not now: to answer their
            // publishers may lead to a publication in the midst of this one.
            to_admit.push(Id::new(target.session.0, generation));
        }
        let message = publication.message(scratch).clone();
        let ids = SubscriptionIds::from_several(target.ids);
        let mut delivery = Delivery { message, ids, qos, retain, share: share.cloned(), stored: None };
        if qos != QoS::AtMostOnce {
            delivery.stored = owe(resident.session.account(), &mut publication.body, &delivery, None);
        }
        let limits = resident.session.queue_limits(policy);
        if let Some(gate) = publication.gate
            && qos != QoS::AtMostOnce
            && !starves
            && resident.must_hold(now, &delivery, limits, &mut tally.losses)
        {
            publication.held = publication.held.saturating_add(1);
            let (until, charge) = (now + settings.hold_timeout, Charge::new(HELD));
            resident.hold(Held { delivery, gate, until, _charge: charge });
            let id = Id::new(target.session.0, generation);
            self.register_session(id);
            return Outcome::Unmatched;
        }
        // A publisher's next message does not pass one that is held. Wills and dead letters have no order with others.
        let waits = publication.gate.is_some() || share.is_some();
        let passes = qos != QoS::AtMostOnce && waits && resident.holds();
        let head = resident.head();
        let sender = &mut resident.session.sender;
        let taken =
            if passes { Err(Full) } else { sender.enqueue(now, delivery, head, limits, &mut tally.losses) };
        match taken {
            Ok(()) => {
                // Without a row of its own nothing else holds it back until it is recorded whose it was.
                let has_row = qos != QoS::AtMostOnce && resident.session.account().is_some();
                if let (Some(lsn), Some((_, connection)), false) = (whole, &mut at, has_row) {
                    connection.wire.outbox.fence(lsn);
                }
                Outcome::Taken
            }
            Err(_) => {
                // A share may yet be another member's.
                if share.is_none() {
                    lose(resident, LossCause::QueueRefused, publication, scratch, tally);
                }
                if limits.policy == QueuePolicy::Disconnect && qos != QoS::AtMostOnce {
                    // Not now: its will would be routed in the midst of this publication.
                    self.overfull.extend(resident.connection);
                }
                Outcome::Refused
            }
        }
    }

    /// The policy `hold`: receivers of which some wait for room that there may be.
    pub(super) fn admit_held_of_all(&mut self, now: Instant) {
        for id in std::mem::take(&mut self.to_admit) {
            self.admit_held(now, id);
        }
    }

    /// The policy `disconnect`: connected receivers that do not keep up are told and cut; their sessions stay.
    pub(super) fn cut_overfull(&mut self, now: Instant) {
        for id in std::mem::take(&mut self.overfull) {
            self.cut(now, id, Some(ReasonCode::QUOTA_EXCEEDED), Why::QueueFull);
        }
    }
}

/// Appends the PUBLISH; where it is the same for all receivers of its kind, from the second on from a frame that is laid out once.
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
        *framed = if before == Framed::Unsent { Framed::Once } else { Framed::LaidOut };
        let parts = publication.parts;
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
        if before == Framed::Unsent {
            return wire.put_parts(now, parts, sending.packet_id, large);
        }
        frame.lay_out(now, wire.version, parts, large.is_some());
    }
    let large = if frame.is_shared() { publication.existing().and_then(|m| m.large_payload()) } else { None };
    wire.put_frame(frame, sending.packet_id, large)
}

/// The session does not get it. Kept out of the way of what is delivered. It has a body only where a dead letter needs one, or had one already.
#[cold]
fn lose(
    resident: &Resident,
    cause: LossCause,
    publication: &mut Publication<'_>,
    scratch: &mut Vec<u8>,
    tally: &mut Tally,
) {
    let wanted = resident.session.sender.terms().of(publication.parts.topic).wants_letter(cause);
    let message = wanted.then(|| publication.message(scratch).clone());
    tally.losses.lose(Lost::new(cause, message));
}
