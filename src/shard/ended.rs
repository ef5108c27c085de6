//! Sessions that have ended and still have something to hand on.
//!
//! A session ends at once: its client id is free, the store is told, its will goes out, and nothing
//! reaches it any more. What it leaves may be very much: filters in the index, messages that
//! publishers wait with, unfinished messages, a queue. That is worked off in portions, over several
//! turns where one does not do. The order is the one of the steps below.
//!
//! The index names a session by its slot. So the slot is free when its last filter has left the
//! index, and not before: no session that begins in between is taken for this one.
//!
//! Each message that is owed ends on its own, in the batch that says who has it from then on. If
//! the broker dies in between, the store has the rest without its session: members of shared groups
//! get it after the start, as they get an
//! [`crate::shard::features::orphaned_queues::OrphanedQueue`].

use crate::mqtt::charge::Charge;
use crate::mqtt::packet::QoS;
use crate::persistence::rows::Parked;
use crate::session::Session;
use crate::session::drops::{DropReason, Dropped};
use crate::session::outbound::in_flight_packet::Unacked;
use crate::session::outbound::queue::Delivery;
use crate::session::outbound::sender::Sender;
use crate::session::session_redelivery::SessionRedelivery;
use crate::session::subscriptions::Drained;
use crate::shard::Shard;
use crate::shard::session_entry::{HeldMessage, SessionEntry};
use crate::shard::slots::SessionId;
use crate::shard::turn::Job;
use crate::time::Instant;
use std::collections::VecDeque;
use std::sync::Arc;

/// Bytes of a filter that are taken out of the index for the price of a step: two or three levels.
const FILTER_BYTES: usize = 8;

/// What a session leaves that has ended.
#[derive(Debug)]
pub(super) struct EndedSession {
    id: SessionId,
    client_id: Box<str>,
    redelivery: Arc<SessionRedelivery>,
    stored: bool,
    filters: Drained,
    /// Whether nothing names its slot any more.
    is_out: bool,
    held: VecDeque<HeldMessage>,
    sender: Sender,
    /// Shared messages of its queue's head for which nobody has room now.
    parked: VecDeque<Parked>,
    /// Of the struct and the client id; what it owns is charged by itself.
    _charge: Charge,
}

impl EndedSession {
    pub fn new(id: SessionId, session_entry: SessionEntry) -> EndedSession {
        let (session, held) = session_entry.into_parts();
        let stored = session.row().is_some();
        let Session { client_id, sender, subscriptions, .. } = session;
        EndedSession {
            id,
            redelivery: Arc::clone(sender.redelivery()),
            stored,
            filters: subscriptions.drain(),
            is_out: false,
            held,
            sender,
            parked: VecDeque::new(),
            _charge: Charge::new(size_of::<EndedSession>() + client_id.len()),
            client_id,
        }
    }
}

impl Shard {
    /// Hands on what a session leaves that has ended, as far as this turn goes; the rest in later
    /// turns.
    pub(super) fn hand_on(&mut self, now: Instant, mut ended: EndedSession) {
        if !self.hand_on_portion(now, &mut ended) {
            self.later(Job::End(Box::new(ended)));
        }
    }

    /// The same of one that was put off; the job that is left.
    pub(super) fn go_on_with_end(&mut self, now: Instant, mut ended: Box<EndedSession>) -> Option<Job> {
        // The dead letters of a portion are posted before the next one makes more.
        let is_done = self.dead_letters.is_empty() && self.hand_on_portion(now, &mut ended);
        (!is_done).then_some(Job::End(ended))
    }

    /// As much as this turn has steps for, and one thing at least. Returns whether that was all.
    fn hand_on_portion(&mut self, now: Instant, ended: &mut EndedSession) -> bool {
        while self.hand_on_one(now, ended) {
            if self.turn.is_over() {
                return false;
            }
        }
        true
    }

    /// The next thing. Returns whether there was one.
    fn hand_on_one(&mut self, now: Instant, ended: &mut EndedSession) -> bool {
        if let Some(filter) = ended.filters.next() {
            self.turn.charge(1 + (filter.len() / FILTER_BYTES) as u32);
            self.leave_filter(ended.id, &filter);
            return true;
        }
        if !ended.is_out {
            ended.is_out = true;
            self.fans.session_ended(ended.id.slot);
            self.sessions.release(ended.id.slot);
        }
        // Each message that is stored ends with two records.
        let steps = if ended.stored { 2 } else { 1 };
        if let Some(held) = ended.held.pop_front() {
            self.turn.charge(steps);
            self.refuse_held(now, held, ended);
        } else if let Some(unfinished) = ended.sender.pop_unfinished() {
            self.turn.charge(steps);
            self.hand_on_unfinished(now, unfinished, ended);
        } else if ended.sender.pop_release() {
            self.turn.charge(1);
        } else if let Some(queued) = ended.sender.pop_queued() {
            self.turn.charge(steps);
            self.hand_on_queued(now, queued, ended);
        } else {
            return self.hand_on_unread(now, ended);
        }
        true
    }

    fn hand_on_unfinished(&mut self, now: Instant, unfinished: Unacked, ended: &EndedSession) {
        let Delivery { message, qos, share, stored, .. } = &unfinished.delivery;
        match share {
            // 5.0 [MQTT-4.8.2-5]: QoS 2 that was begun with this member goes to nobody else.
            Some(share) if *qos == QoS::AtLeastOnce => {
                self.share_again_or_keep(now, message.clone(), share, stored.is_some());
            }
            _ => self.lose_with_end(ended, unfinished.lost(DropReason::SessionEnded, None)),
        }
    }

    fn hand_on_queued(&mut self, now: Instant, queued: Delivery, ended: &mut EndedSession) {
        let Delivery { message, share, stored, .. } = queued;
        match (share, stored) {
            // Its row stays as it is: nobody has room now.
            (Some(share), Some(entry)) if self.must_wait(now, &message, &share) => {
                ended.parked.extend(entry.park());
            }
            (Some(share), entry) => self.share_again_or_keep(now, message, &share, entry.is_some()),
            (None, _entry) => self.lose_with_end(ended, Dropped::unsent(DropReason::SessionEnded, message)),
        }
    }

    /// What is in the store alone: all of it at once becomes an orphaned queue where it has to be
    /// read, else it is lost one by one.
    fn hand_on_unread(&mut self, now: Instant, ended: &mut EndedSession) -> bool {
        let reads = ended.sender.has_shared_unread() || ended.redelivery.keep_what_waits();
        if !reads && let Some(_ends) = ended.sender.pop_unread() {
            self.turn.charge(2);
            self.lose_with_end(ended, Dropped::new(DropReason::SessionEnded, None));
            return true;
        }
        let (parked, unread) = (std::mem::take(&mut ended.parked), ended.sender.take_unread());
        self.turn.charge_bytes((parked.len() + unread.len()) * size_of::<Parked>());
        self.leave_unread(now, ended.id, &ended.client_id, &ended.redelivery, parked, unread);
        false
    }

    pub(super) fn lose_with_end(&mut self, ended: &EndedSession, lost: Dropped) {
        self.drop_with_session(&ended.client_id, &ended.redelivery, lost, ended.stored);
    }
}
