//! Messages that a client may no longer read, because the rules of the ACL or the user of its
//! session have changed.
//!
//! | message | its end |
//! |---|---|
//! | in a queue, in memory | dropped or passed on to its group when the rules or the user change |
//! | in a queue, only in the store | the same, when it is read |
//! | held under the queue policy `hold` | the same, when its place becomes free |
//! | in flight | the same, but only without a connection; else the client has it or soon will |
//!
//! After a change of the rules, a job walks over the sessions, [`SLOTS`] in a turn. Each new
//! delivery is checked from the change on. A message that leaves its queue before the walk comes to
//! it is delivered, as if it had left before the change.
//!
//! The messages of one session are checked in portions, because a session may have many. The
//! session keeps the place of the next message. So a walk, a return and a page from the store all
//! continue the same check, and a further change or another user lets it begin anew. When a client
//! returns, its queue is not sent until the check is complete. The job [`Job::QueueCheck`]
//! completes it in later turns.
//!
//! Each portion records the end of a message and its new owner in one batch. After a crash the
//! messages that were not checked are in the store, and are checked when they are read.

use crate::mqtt::packet::QoS;
use crate::session::drops::DropReason;
use crate::session::outbound::delivery::Delivery;
use crate::session::outbound::in_flight_packet::Unacked;
use crate::shard::Shard;
use crate::shard::clients::session_entry::{SessionEntry, Unreadable};
use crate::shard::core::Core;
use crate::shard::turn::work::Job;
use crate::slots::{ConnectionId, SessionId};
use crate::time::Instant;

/// Maximum number of slots of sessions that one turn looks at.
const SLOTS: u32 = 2_000;

/// Steps of a turn that the record of a session takes.
const RECORD_STEPS: u32 = 4;

/// Maximum number of messages that are checked before the steps of the turn are looked at again.
const MESSAGES: usize = 256;

/// The progress of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Check {
    /// All messages of the session are checked, or the session has ended.
    Complete,
    /// The check continues in a later turn.
    Left,
}

/// The check of one session's messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueCheck {
    pub now: Instant,
    pub session: SessionId,
}

impl QueueCheck {
    /// Checks the messages of a session if the rules or its user have changed since the last check.
    /// Drops those that its client may not read, with the reason `not_authorized`. If the messages
    /// are more than this turn can check, a job checks the others, and `connection` is sent none
    /// until then.
    pub(crate) fn begin(self, connection: Option<ConnectionId>, shard: &mut Shard) {
        let Core { sessions, access, .. } = &mut shard.core;
        let is_unchecked =
            access.are_on() && sessions.get_mut(self.session).is_some_and(|entry| entry.is_unchecked(access));
        if is_unchecked && self.check_portion(shard) == Check::Left {
            if let Some(connection) = connection.and_then(|id| shard.core.connections.get_mut(id)) {
                connection.wire.queue_waits = true;
            }
            shard.work.later([Job::QueueCheck(self.session)]);
        }
    }

    /// Continues [`Self::begin`] in a later turn. Returns the job that is left.
    pub(crate) fn go_on(self, shard: &mut Shard) -> Option<Job> {
        shard.core.turn.spend(1);
        // The dead letters of the last portion are published before the next portion adds more.
        if !shard.core.dead_letters.is_empty() || self.check_portion(shard) == Check::Left {
            return Some(Job::QueueCheck(self.session));
        }
        self.end(shard);
        None
    }

    /// Checks messages of a session until this turn is over, and at least one.
    fn check_portion(self, shard: &mut Shard) -> Check {
        let mut most = shard.core.turn.at_once();
        loop {
            let decisions = most / shard.core.access.most_steps("").saturating_add(1);
            let most_messages = usize::try_from(decisions).unwrap_or(MESSAGES).clamp(1, MESSAGES);
            if self.drop_unreadable(most_messages, shard) == Check::Complete {
                return Check::Complete;
            }
            if shard.core.turn.is_over() {
                return Check::Left;
            }
            most = shard.core.turn.left();
        }
    }

    /// Checks `most` messages in memory. Drops those that the client of the session may not read.
    /// Shared messages go to another member of their group.
    fn drop_unreadable(self, most: usize, shard: &mut Shard) -> Check {
        let Core { sessions, access, counters, turn, .. } = &mut shard.core;
        let Some(session_entry) = sessions.get_mut(self.session).filter(|_| access.are_on()) else {
            return Check::Complete;
        };
        let Some(Unreadable { in_flight, queued }) = session_entry.take_unreadable(access, most, turn) else {
            return Check::Complete;
        };
        let progress = if queued.next.is_some() { Check::Left } else { Check::Complete };
        let taken = in_flight.taken.len() + queued.taken.len();
        turn.spend((in_flight.looked_at + queued.looked_at + taken) as u32);
        turn.spend_bytes(in_flight.moved * size_of::<Unacked>() + queued.moved * size_of::<Delivery>());
        if taken == 0 {
            return progress;
        }
        let mut shared: Vec<Delivery> = Vec::new();
        for unacked in in_flight.taken {
            // 5.0 [MQTT-4.8.2-5]: QoS 2 that was begun with this member goes to nobody else.
            if unacked.delivery.share.is_some() && unacked.delivery.qos == QoS::AtLeastOnce {
                shared.push(unacked.delivery);
            } else {
                counters.drops.lose(unacked.into_drop(DropReason::NotAuthorized));
            }
        }
        for delivery in queued.taken {
            if delivery.share.is_some() {
                shared.push(delivery);
            } else {
                counters.drops.lose(delivery.to_drop(DropReason::NotAuthorized));
            }
        }
        shard.core.report_drops(self.session);
        // The new owner of a message is recorded in the batch that ends its old entry.
        shard.core.durability.begin();
        for Delivery { message, mark, share, stored, .. } in shared {
            shard.core.counters.objectives.passed_on(mark);
            if let Some(share) = share {
                shard.routes.share_again_or_keep(
                    self.now,
                    message,
                    &share,
                    stored.is_some(),
                    &mut shard.core,
                );
            }
        }
        progress
    }

    /// Sends the queue of a session if it was withheld until the end of its check. Held messages
    /// take the places of the messages that were dropped.
    fn end(self, shard: &mut Shard) {
        if let Some(mut client) = shard.core.client_of(self.session)
            && std::mem::take(&mut client.connection.wire.queue_waits)
        {
            client.pump(self.now);
        }
        shard.after_session_change(self.now, self.session);
    }
}

/// Checks the queues of some sessions, because the rules have changed, and finds out which
/// sessions are guarded. Begins at the slot `from`. Returns the job that is left.
pub(crate) fn walk_after_change(now: Instant, from: u32, shard: &mut Shard) -> Option<Job> {
    if !shard.core.dead_letters.is_empty() {
        return Some(Job::RulesChanged { from });
    }
    let end = shard.core.sessions.end_of_slots();
    let until = end.min(from.saturating_add(SLOTS));
    for slot in from..until {
        shard.core.turn.spend(1);
        if check_slot(now, slot, shard) == Check::Left {
            return Some(Job::RulesChanged { from: slot });
        }
        if shard.core.turn.is_over() {
            return (slot + 1 < end).then_some(Job::RulesChanged { from: slot + 1 });
        }
    }
    (until < end).then_some(Job::RulesChanged { from: until })
}

fn check_slot(now: Instant, slot: u32, shard: &mut Shard) -> Check {
    let Core { sessions, access, .. } = &mut shard.core;
    // The slot is free.
    let Some((id, session_entry)) = sessions.at_mut(slot) else { return Check::Complete };
    if !session_entry.is_unchecked(access) {
        // A page of its queue was checked before this walk came.
        record_rules(id, &mut shard.core);
        return Check::Complete;
    }
    let check = QueueCheck { now, session: id };
    // The queue is checked first, while every session counts as guarded. Its messages may have
    // come by filters that the session has no more.
    if check.check_portion(shard) == Check::Left {
        return Check::Left;
    }
    let Core { sessions, access, turn, .. } = &mut shard.core;
    if let Some(session_entry) = sessions.get_mut(id) {
        turn.spend(session_entry.renew_guard(access));
    }
    record_rules(id, &mut shard.core);
    check.end(shard);
    Check::Complete
}

/// Records a session whose listener has another name now, or an ACL file that it did not have.
/// Otherwise a restart would find the rules by the name before. A full store has no room for
/// all sessions at once, so the session is recorded with its next change then.
fn record_rules(id: SessionId, core: &mut Core) {
    let Core { sessions, shared, turn, .. } = core;
    if !shared.is_store_full() && sessions.get_mut(id).is_some_and(SessionEntry::has_unrecorded_rules) {
        turn.spend(RECORD_STEPS);
        core.record_session(id);
    }
}
