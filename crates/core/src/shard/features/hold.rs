//! The queue policy `hold`: a message for a full queue waits outside the queue until the queue has
//! room or the time is up. The publisher's acknowledgement waits with the message.
//!
//! A shared message that every member refuses is held with one member. This shard chooses the
//! member of its own that holds the fewest messages. Without such a member, another shard chooses.
//! The message stays with that member until its queue has room, and goes to another member only if
//! the session ends.
//!
//! The number of held messages is bounded, because each publisher has at most Receive Maximum
//! unacknowledged messages.

use crate::durability::publication::Publication;
use crate::mqtt::outcome::Outcome;
use crate::peers::peer_batch::{Offered, ReportTo};
use crate::session::drops::{DropReason, Dropped};
use crate::session::outbound::delivery::Delivery;
use crate::shard::Shard;
use crate::shard::clients::ended_session::EndedSession;
use crate::shard::clients::session_entry::HeldMessage;
use crate::shard::core::Core;
use crate::shard::share::SharedDelivery;
use crate::slots::SessionId;
use crate::time::Instant;
use std::sync::Arc;

/// Moves held messages into the queue of a session, in order, as long as the queue has room.
/// Answers the gate of each message when the records so far are committed. Goes on in the next turn
/// if this one is over.
pub(crate) fn admit(now: Instant, id: SessionId, shard: &mut Shard) {
    let mut was_over = false;
    loop {
        let Core { sessions, access, settings, counters, turn, .. } = &mut shard.core;
        // The session has ended, or holds nothing more.
        let Some(session_entry) = sessions.get_mut(id).filter(|entry| entry.holds()) else { return };
        let size = session_entry.first_held().map_or(0, |front| front.delivery.size());
        if was_over {
            return shard.core.turn.after_deliveries.to_admit.push(id);
        }
        let limits = session_entry.queue_limits(&settings.session.send);
        if !session_entry.session.sender.make_room(now, size, &limits, &mut counters.drops) {
            return shard.core.report_drops(id);
        }
        // The room was made for the size of this message.
        let Some(HeldMessage { delivery, gate, .. }) = session_entry.pop_held() else { return };
        if access.are_on() && !session_entry.may_read(access, delivery.message.topic(), turn) {
            end_unreadable(now, id, delivery, gate, shard);
            was_over = is_over_with_one(shard);
            continue;
        }
        let head = session_entry.head();
        let sender = &mut session_entry.session.sender;
        let taken = sender.queue.or_create().push(now, delivery, head, &limits, &mut counters.drops).is_ok();
        if let Some(mut client) = shard.core.client_of(id) {
            client.pump(now);
        }
        shard.core.report_drops(id);
        shard.answer_when_committed(now, gate, if taken { Outcome::Taken } else { Outcome::Refused });
        was_over = is_over_with_one(shard);
    }
}

/// Charges one held message that has left. Returns true if the turn is over.
fn is_over_with_one(shard: &mut Shard) -> bool {
    shard.core.spend_senders();
    shard.core.turn.spend(1);
    shard.core.turn.is_over()
}

/// Ends a held message that the client may not read, because the rules or the user of the
/// session have changed. A shared message goes to another member of the group.
fn end_unreadable(now: Instant, id: SessionId, delivery: Delivery, gate: ReportTo, shard: &mut Shard) {
    shard.core.report_drops(id);
    if let Some(share) = &delivery.share {
        return pass_on(now, &delivery, share, gate, shard);
    }
    shard.core.counters.drops.lose(delivery.to_drop(DropReason::NotAuthorized));
    shard.core.report_drops(id);
    shard.answer_when_committed(now, gate, Outcome::Refused);
}

/// Drops the held messages of a session whose time is up, and answers their gates with
/// `HeldTooLong`. Goes on in a later turn if this one is over.
pub(crate) fn refuse_overdue(now: Instant, id: SessionId, shard: &mut Shard) {
    while let Some(session_entry) = shard.core.sessions.get_mut(id)
        && session_entry.held_until() <= now
        && let Some(HeldMessage { gate, delivery, .. }) = session_entry.pop_held()
    {
        shard.core.counters.drops.lose(delivery.to_drop(DropReason::QueueRefused));
        shard.core.report_drops(id);
        shard.answer_gate(now, gate, Outcome::HeldTooLong);
        if is_over_with_one(shard) {
            return shard.work.session_due(id);
        }
    }
}

/// Ends one held message of a session that ended. A shared message goes to another member of
/// the group; any other message is dropped.
pub(crate) fn refuse(now: Instant, held: HeldMessage, ended: &EndedSession, shard: &mut Shard) {
    let HeldMessage { gate, delivery, .. } = held;
    if let Some(share) = &delivery.share {
        return pass_on(now, &delivery, share, gate, shard);
    }
    ended.report_drop(delivery.to_drop(DropReason::SessionEnded), &mut shard.core);
    shard.answer_when_committed(now, gate, Outcome::Refused);
}

/// Gives a held message to another member of the group, or lets another member hold it. The
/// batch that records the new owner also ends the old entry.
fn pass_on(now: Instant, held: &Delivery, share: &Arc<Box<str>>, gate: ReportTo, shard: &mut Shard) {
    shard.core.counters.objectives.passed_on(held.mark);
    let mut publication = Publication::of(&held.message, None);
    publication.atomic = held.stored.is_some();
    let nobody = (Offered::InTurn(Vec::new()), DropReason::SessionEnded);
    match shard.routes.share_by_name(now, share, &mut publication, nobody, Some(gate), &mut shard.core) {
        SharedDelivery::Held | SharedDelivery::Underway { .. } => {}
        SharedDelivery::Settled(Outcome::Taken) => shard.answer_when_committed(now, gate, Outcome::Taken),
        SharedDelivery::Settled(outcome) => {
            if outcome == Outcome::Unmatched {
                let lost = Dropped::unsent(DropReason::SessionEnded, held.message.clone());
                shard.core.drop_of_group(share, lost, publication.atomic);
            }
            shard.answer_when_committed(now, gate, Outcome::Refused);
        }
    }
}
