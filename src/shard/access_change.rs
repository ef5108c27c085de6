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

use crate::mqtt::packet::QoS;
use crate::session::drops::DropReason;
use crate::session::outbound::queue::Delivery;
use crate::shard::core::Core;
use crate::shard::lifecycle::Lifecycle;
use crate::shard::slots::SessionId;
use crate::shard::work::Job;
use crate::time::Instant;

/// Maximum number of slots of sessions that one turn looks at.
const SLOTS: u32 = 2_000;

impl Lifecycle<'_> {
    /// Checks the messages of a session if the rules or its user have changed since the last check.
    /// Drops those that its client may not read, with the reason `not_authorized`.
    pub(crate) fn check_queue(&mut self, now: Instant, id: SessionId) {
        let Core { sessions, access, .. } = &mut *self.core;
        if access.are_on() && sessions.get_mut(id).is_some_and(|entry| entry.is_unchecked(access)) {
            self.drop_unreadable(now, id);
        }
    }

    /// Drops the messages in memory that the client of a session may not read. Shared messages go
    /// to another member of their group.
    pub(crate) fn drop_unreadable(&mut self, now: Instant, id: SessionId) {
        let Core { sessions, access, counters, turn, .. } = &mut *self.core;
        if !access.are_on() {
            return;
        }
        let Some(session_entry) = sessions.get_mut(id) else { return };
        let (in_flight, queued) = session_entry.take_unreadable(access);
        if in_flight.is_empty() && queued.is_empty() {
            return;
        }
        turn.charge(u32::try_from(in_flight.len() + queued.len()).unwrap_or(u32::MAX));
        let mut shared: Vec<Delivery> = Vec::new();
        for unacked in in_flight {
            // 5.0 [MQTT-4.8.2-5]: QoS 2 that was begun with this member goes to nobody else.
            if unacked.delivery.share.is_some() && unacked.delivery.qos == QoS::AtLeastOnce {
                shared.push(unacked.delivery);
            } else {
                counters.drops.lose(unacked.into_drop(DropReason::NotAuthorized, None));
            }
        }
        for delivery in queued {
            if delivery.share.is_some() {
                shared.push(delivery);
            } else {
                counters.drops.lose(delivery.to_drop(DropReason::NotAuthorized));
            }
        }
        self.core.report_drops(id);
        // The new owner of a message is recorded in the batch that ends its old entry.
        self.core.durability.begin();
        for Delivery { message, mark, share, stored, .. } in shared {
            self.core.counters.objectives.passed_on(mark);
            if let Some(share) = share {
                self.routing().sharing().share_again_or_keep(now, message, &share, stored.is_some());
            }
        }
    }

    /// Checks the queues of some sessions, because the rules have changed, and finds out which
    /// sessions are guarded. Begins at the slot `from`. Returns the job that is left.
    pub(crate) fn walk_after_change(&mut self, now: Instant, from: u32) -> Option<Job> {
        let end = self.core.sessions.end_of_slots();
        let until = end.min(from.saturating_add(SLOTS));
        for slot in from..until {
            self.core.turn.charge(1);
            self.check_slot(now, slot);
            if self.core.turn.is_over() {
                return (slot + 1 < end).then_some(Job::RulesChanged { from: slot + 1 });
            }
        }
        (until < end).then_some(Job::RulesChanged { from: until })
    }

    fn check_slot(&mut self, now: Instant, slot: u32) {
        let Core { sessions, access, .. } = &mut *self.core;
        let Some((id, session_entry)) = sessions.at_mut(slot) else { return };
        if !session_entry.is_unchecked(access) {
            return;
        }
        // The queue is checked first, while every session counts as guarded. Its messages may have
        // come by filters that the session has no more.
        self.drop_unreadable(now, id);
        let Core { sessions, access, turn, .. } = &mut *self.core;
        if let Some(session_entry) = sessions.get_mut(id) {
            turn.charge(session_entry.renew_guard(access));
        }
        self.after_session_change(now, id);
    }
}
