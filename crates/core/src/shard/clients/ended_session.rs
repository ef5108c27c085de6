//! The remains of an ended session, which are handed on.
//!
//! A session ends at once: its client identifier is free, its end is recorded, its will is
//! published, and it gets no more messages. Its remains may be very many: filters in the
//! subscription tree, held messages, unfinished deliveries, a queue. The remains are handed on in
//! portions, in this order, over several turns if one is not enough.
//!
//! The subscription tree identifies a session by its slot. So the slot is freed only after the last
//! filter has left the tree. Otherwise a new session in the same slot would get the messages of the
//! ended one.
//!
//! Each delivery ends in the batch that records its new owner or its drop. If the broker dies in
//! between, the store still has the other deliveries, without their session. After the start,
//! members of shared groups get them from an
//! [`crate::shard::features::orphaned_queues::OrphanedQueue`].

use crate::events::drop_reports::DropReceiver;
use crate::mqtt::charge::Charge;
use crate::mqtt::packet::QoS;
use crate::persistence::rows::PagedOut;
use crate::session::Session;
use crate::session::drops::{DropReason, Dropped, ReceiverState};
use crate::session::outbound::delivery::Delivery;
use crate::session::outbound::in_flight_packet::Unacked;
use crate::session::outbound::queue::Queue;
use crate::session::outbound::sender::Sender;
use crate::session::outbound::window::InFlight;
use crate::session::session_redelivery::SessionRedelivery;
use crate::session::subscriptions::Drained;
use crate::shard::Shard;
use crate::shard::clients::session_entry::{HeldMessage, SessionEntry};
use crate::shard::core::Core;
use crate::shard::features::hold;
use crate::shard::turn::work::Job;
use crate::slots::SessionId;
use crate::time::Instant;
use std::collections::VecDeque;
use std::sync::Arc;

/// The remains of a session that has ended.
#[derive(Debug)]
pub(crate) struct EndedSession {
    pub id: SessionId,
    pub client_id: Box<str>,
    pub redelivery: Arc<SessionRedelivery>,
    stored: bool,
    filters: Drained,
    /// True if the slot was freed, because the subscription tree has no filter of the session.
    is_out: bool,
    held: VecDeque<HeldMessage>,
    sender: Sender,
    /// Shared messages of the queue's head for which no member has room now.
    paged_out: VecDeque<PagedOut>,
    /// The bytes of this struct and of the client identifier. The other fields have their own
    /// charges.
    _charge: Charge,
}

impl EndedSession {
    /// Returns the remains of a session that was just removed from the shard.
    pub(crate) fn new(id: SessionId, session_entry: SessionEntry) -> EndedSession {
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
            paged_out: VecDeque::new(),
            _charge: Charge::new(size_of::<EndedSession>() + client_id.len()),
            client_id,
        }
    }

    /// Hands on the remains of the session until this turn is over. A job in later turns does the
    /// rest.
    pub(crate) fn hand_on(mut self, now: Instant, shard: &mut Shard) {
        if !self.hand_on_portion(now, shard) {
            shard.work.later([Job::End(Box::new(self))]);
        }
    }

    /// Continues [`Self::hand_on`] in a later turn. Returns the job that is left.
    pub(crate) fn go_on(mut self: Box<Self>, now: Instant, shard: &mut Shard) -> Option<Job> {
        // The dead letters of the last portion are published before the next portion adds more.
        let is_done = shard.core.dead_letters.is_empty() && self.hand_on_portion(now, shard);
        (!is_done).then_some(Job::End(self))
    }

    /// Hands on as many items as this turn has steps for, and at least one. Returns true if no item
    /// is left.
    fn hand_on_portion(&mut self, now: Instant, shard: &mut Shard) -> bool {
        while self.hand_on_one(now, shard) {
            if shard.core.turn.is_over() {
                return false;
            }
        }
        true
    }

    /// Hands on the next item. The order is: filters, held messages, deliveries in flight,
    /// releases, the queue, and unread deliveries. Returns false if none is left, or if an orphaned
    /// queue got all that was left.
    fn hand_on_one(&mut self, now: Instant, shard: &mut Shard) -> bool {
        if let Some(filter) = self.filters.next() {
            shard.core.turn.spend_filter(&filter);
            shard.routes.leave_filter(self.id, &filter, &mut shard.core);
            return true;
        }
        if !self.is_out {
            self.is_out = true;
            shard.fans.session_ended(self.id.slot);
            shard.core.sessions.release(self.id.slot);
        }
        // A stored delivery ends with two records: of the entry and of the message.
        let steps = if self.stored { 2 } else { 1 };
        if let Some(held) = self.held.pop_front() {
            shard.core.turn.spend(steps);
            hold::refuse(now, held, self, shard);
        } else if let Some(unfinished) = self.sender.window.get_mut().and_then(InFlight::pop_publish) {
            shard.core.turn.spend(steps);
            self.hand_on_unfinished(now, unfinished, shard);
        } else if self.sender.window.get_mut().is_some_and(InFlight::pop_release) {
            shard.core.turn.spend(1);
        } else if let Some(queued) = self.sender.queue.get_mut().and_then(Queue::pop) {
            shard.core.turn.spend(steps);
            self.hand_on_queued(now, queued, shard);
        } else {
            return self.hand_on_unread(now, shard);
        }
        true
    }

    /// Hands on a delivery that was in flight. A shared QoS 1 message goes to another member or
    /// waits in an orphaned queue. Any other message is dropped.
    fn hand_on_unfinished(&self, now: Instant, unfinished: Unacked, shard: &mut Shard) {
        let Delivery { message, qos, mark, share, stored, .. } = &unfinished.delivery;
        match share {
            // 5.0 [MQTT-4.8.2-5]: QoS 2 that was begun with this member goes to nobody else.
            Some(share) if *qos == QoS::AtLeastOnce => {
                shard.core.counters.objectives.passed_on(*mark);
                shard.routes.share_again_or_keep(
                    now,
                    message.clone(),
                    share,
                    stored.is_some(),
                    &mut shard.core,
                );
            }
            _ => self.report_drop(unfinished.into_drop(DropReason::SessionEnded), &mut shard.core),
        }
    }

    /// Hands on a delivery from the queue. A shared message goes to another member or waits in an
    /// orphaned queue. Any other message is dropped.
    fn hand_on_queued(&mut self, now: Instant, queued: Delivery, shard: &mut Shard) {
        let Some(share) = &queued.share else {
            return self.report_drop(queued.to_drop(DropReason::SessionEnded), &mut shard.core);
        };
        shard.core.counters.objectives.passed_on(queued.mark);
        let (routes, core) = (&mut shard.routes, &mut shard.core);
        match queued.stored {
            None => routes.share_again_or_keep(now, queued.message, share, false, core),
            // The stored entry becomes part of an orphaned queue, because no member of the group
            // has room now.
            Some(entry) if routes.must_wait(now, &queued.message, share, core).is_some() => {
                self.paged_out.extend(entry.page_out());
            }
            Some(_ends) => {
                routes.share_again(now, queued.message, share, true, None, core);
            }
        }
    }

    /// Hands on deliveries that are only in the store. A message must be read if it may go to
    /// another member or may become a dead letter. If no message has to be read, drops one delivery
    /// and returns true, or returns false if none is left. Otherwise moves all of them to an
    /// orphaned queue and returns false.
    fn hand_on_unread(&mut self, now: Instant, shard: &mut Shard) -> bool {
        let reads = self.sender.queue.has_shared_paged_out() || self.redelivery.keep_what_waits();
        if !reads && let Some(rows) = self.sender.queue.get_mut().and_then(Queue::pop_paged_out) {
            shard.core.turn.spend(2);
            self.report_drop(Dropped::paged_out(DropReason::SessionEnded, rows), &mut shard.core);
            return true;
        }
        let paged_out = std::mem::take(&mut self.paged_out);
        let unread = self.sender.queue.get_mut().map(Queue::take_paged_out).unwrap_or_default();
        shard.core.turn.spend_bytes((paged_out.len() + unread.len()) * size_of::<PagedOut>());
        shard.routes.leave_unread(now, self, paged_out, unread, &mut shard.core);
        false
    }

    /// Reports a message that is dropped because its session has ended.
    pub(crate) fn report_drop(&self, lost: Dropped, core: &mut Core) {
        let EndedSession { client_id, redelivery, stored, .. } = self;
        let (stored, state) = (*stored, ReceiverState::None);
        core.drop_for(&DropReceiver { client_id, redelivery, stored, state }, lost);
    }
}
