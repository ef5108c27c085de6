//! Settles the orphaned queues: takes in messages of ended sessions, and offers them to the groups.

use super::{Blocked, OrphanedMessage, OrphanedQueue, OrphanedQueues};
use crate::durability::read_requests::PageRequest;
use crate::events::drop_reports::DropReceiver;
use crate::mqtt::message::Message;
use crate::mqtt::outcome::Outcome;
use crate::mqtt::packet::QoS;
use crate::peers::barrier::AfterBarrier;
use crate::peers::peer_batch::ReportTo;
use crate::persistence::records::ReadEntry;
use crate::persistence::rows::PagedOut;
use crate::session::drops::{DropReason, Dropped, ReceiverState};
use crate::session::outbound::paged_out::page_of;
use crate::shard::clients::ended_session::EndedSession;
use crate::shard::core::Core;
use crate::shard::share::{PeerOffers, SharedDelivery, WantedRoom};
use crate::shard::subscriptions::routes::Routes;
use crate::slots::{NoSession, SessionId};
use crate::time::Instant;
use std::collections::VecDeque;
use std::sync::Arc;

/// The session of the queue whose messages were left before the broker started.
const BEFORE_THE_START: SessionId = NoSession::BeforeTheStart.id();

/// Maximum number of messages in memory that one turn offers from one queue.
const OFFERED_AT_ONCE: usize = 256;

/// Maximum number of orphaned queues that are compared with a session each time its client has
/// acknowledged a packet.
const COMPARED: usize = 8;

/// The orphaned queues, settled.
impl Routes {
    /// Takes in the messages that an ended session left in the store. `paged_out` are shared
    /// messages from the head of its queue for which no member has room now. `unread` is the tail
    /// of the queue, with newer messages. A message in `unread` that did not come by a shared
    /// subscription is dropped and counted when it is read.
    pub(crate) fn leave_unread(
        &mut self,
        now: Instant,
        ended: &EndedSession,
        paged_out: VecDeque<PagedOut>,
        mut unread: VecDeque<PagedOut>,
        core: &mut Core,
    ) {
        if paged_out.is_empty() && unread.is_empty() {
            return;
        }
        let orphaned_queue = self.orphaned_queues.last_of(ended.id, &ended.redelivery, PeerOffers::Freely);
        orphaned_queue.client_id.get_or_insert_with(|| ended.client_id.clone());
        if orphaned_queue.left.is_empty() && paged_out.is_empty() {
            orphaned_queue.left = unread;
        } else {
            orphaned_queue.left.extend(paged_out);
            orphaned_queue.left.append(&mut unread);
        }
        orphaned_queue.account();
        self.settle_orphaned_queues(now, core);
    }

    /// Takes in, at the start of the broker, the messages that sessions left in an earlier run. The
    /// messages are read when the members of every group are known.
    pub(crate) fn leave_orphans(&mut self, now: Instant, left: VecDeque<PagedOut>, core: &mut Core) {
        if left.is_empty() {
            return;
        }
        let nobody = Arc::clone(core.sessions.rules().nobody());
        let orphaned_queue = self.orphaned_queues.last_of(BEFORE_THE_START, &nobody, PeerOffers::Freely);
        orphaned_queue.left.extend(left);
        orphaned_queue.account();
        self.orphaned_queues.members_are_unknown = core.peers.shards() > 1;
        if self.orphaned_queues.members_are_unknown {
            core.peers.raise_barrier(AfterBarrier::ReadOrphanedQueues);
        }
        self.settle_orphaned_queues(now, core);
    }

    /// Notes that the members of every group are known.
    pub(crate) fn members_are_known(&mut self, now: Instant, core: &mut Core) {
        self.orphaned_queues.members_are_unknown = false;
        self.settle_orphaned_queues(now, core);
    }

    /// Offers messages to members in other shards again. Part of the housekeeping.
    pub(crate) fn ask_for_orphaned_queues(&mut self, now: Instant, core: &mut Core) {
        self.orphaned_queues.ask_peers();
        self.settle_orphaned_queues(now, core);
    }

    /// Notes that a session of this shard may have room. If the first message of one of the first
    /// [`COMPARED`] queues waits for this room, the queues are looked at when the turn ends.
    pub(crate) fn has_room_for_orphaned_queues(&mut self, now: Instant, id: SessionId, core: &mut Core) {
        let Core { sessions, access, settings, turn, .. } = core;
        // The session has ended.
        let Some(session_entry) = sessions.get_mut(id) else { return };
        let policy = &settings.session.send;
        let mut blocked =
            self.orphaned_queues.waiting.iter().take(COMPARED).filter_map(|e| e.blocked.as_ref());
        let may = blocked.any(|Blocked { share, topic, size, .. }| {
            session_entry.session.subscriptions.contains(share)
                && session_entry.has_room_for_orphaned(now, *size, policy)
                && (!access.are_on() || session_entry.may_read(access, topic, turn))
        });
        if may {
            self.orphaned_queues.nudge();
        }
    }

    /// Offers messages to groups that may have room, as many as this turn allows. Looks at
    /// `LOOKED_AT` queues at most. Requests a page if the next messages of a queue are only in
    /// the store. Does nothing while a page is being read, an answer of another shard is pending,
    /// the members of the groups are unknown, or the broker stops.
    pub(crate) fn settle_orphaned_queues(&mut self, now: Instant, core: &mut Core) {
        self.orphaned_queues.begin_pass();
        self.go_on_settling(now, core);
    }

    /// Goes on with the present pass, as [`Self::settle_orphaned_queues`] does.
    pub(crate) fn go_on_settling(&mut self, now: Instant, core: &mut Core) {
        self.orphaned_queues.nudged = false;
        let mut is_first = true;
        while self.orphaned_queues.pass > 0 {
            if !std::mem::take(&mut is_first) && core.turn.is_over() {
                // A later turn looks at the other queues of this pass. A new pass would look at the
                // same queues again, without an end.
                self.orphaned_queues.nudged = true;
                return;
            }
            self.orphaned_queues.pass -= 1;
            let OrphanedQueues { waiting, is_reading, members_are_unknown, underway, .. } =
                &mut self.orphaned_queues;
            if *is_reading || *members_are_unknown || core.durability.is_stopping() || *underway > 0 {
                return;
            }
            // All queues are settled.
            let Some(mut orphaned_queue) = waiting.pop_front() else { return };
            if let Some(blocked) = &orphaned_queue.blocked
                && blocked.expires > now
                && !self.may_offer(now, blocked.wanted(), orphaned_queue.peers, core)
            {
                self.orphaned_queues.waiting.push_back(orphaned_queue);
                continue;
            }
            orphaned_queue.blocked = None;
            self.offer_kept(now, &mut orphaned_queue, core);
            let is_underway = self.orphaned_queues.underway > 0;
            let is_empty = orphaned_queue.kept.is_empty() && orphaned_queue.left.is_empty();
            if is_underway || is_empty || orphaned_queue.blocked.is_some() {
                self.orphaned_queues.put_back(orphaned_queue);
                if is_underway {
                    return;
                }
                continue;
            }
            if !orphaned_queue.kept.is_empty() {
                // A later turn offers the rest.
                self.orphaned_queues.waiting.push_front(orphaned_queue);
                return self.orphaned_queues.nudge();
            }
            let (wanted, bytes) = page_of(&orphaned_queue.left);
            let request = PageRequest { session: orphaned_queue.session, wanted };
            self.orphaned_queues.reserved.set(bytes);
            self.orphaned_queues.waiting.push_front(orphaned_queue);
            self.orphaned_queues.is_reading = true;
            return core.durability.read_back(request, &mut core.effects.reads);
        }
    }

    /// Offers the messages in memory of a queue until no member has room, [`OFFERED_AT_ONCE`] of
    /// them at most.
    fn offer_kept(&mut self, now: Instant, orphaned_queue: &mut OrphanedQueue, core: &mut Core) {
        for at in 0..OFFERED_AT_ONCE {
            if at > 0 && core.turn.is_over() {
                return;
            }
            // Nothing is left in memory.
            let Some(front) = orphaned_queue.kept.pop_front() else { return };
            let blocked = self.blocked(now, &front.message, &front.share, orphaned_queue.peers, core);
            if blocked.is_some() {
                orphaned_queue.kept.push_front(front);
                orphaned_queue.blocked = blocked;
                return;
            }
            let OrphanedMessage { message, share } = front;
            core.turn.spend(1);
            self.offer_orphaned(now, message, &share, false, &mut orphaned_queue.peers, core);
        }
    }

    /// Returns the room that the message waits for, or `None` if the message can be offered now, or
    /// has expired.
    fn blocked(
        &mut self,
        now: Instant,
        message: &Message,
        share: &Arc<Box<str>>,
        peers: PeerOffers,
        core: &mut Core,
    ) -> Option<Blocked> {
        let wanted = WantedRoom { share, topic: message.topic(), size: message.size() };
        let may = message.header().expires <= now || self.may_offer(now, wanted, peers, core);
        (!may).then(|| Blocked::new(message, share, &core.access))
    }

    /// Offers a message to its group. Counts it as underway if another shard will answer for it.
    fn offer_orphaned(
        &mut self,
        now: Instant,
        message: Message,
        share: &Arc<Box<str>>,
        stored: bool,
        peers: &mut PeerOffers,
        core: &mut Core,
    ) {
        // No shard answers for a QoS 0 message.
        let gate = (message.header().qos != QoS::AtMostOnce).then_some(ReportTo::OrphanedQueue);
        if let SharedDelivery::Underway { .. } = self.share_again(now, message, share, stored, gate, core)
            && gate.is_some()
        {
            self.orphaned_queues.underway += 1;
            if *peers == PeerOffers::Once {
                *peers = PeerOffers::No;
            }
        }
    }

    /// Takes in another shard's answer for a message of the first queue. With the last answer, the
    /// queues are settled again.
    pub(crate) fn orphaned_queue_answered(&mut self, now: Instant, outcome: Outcome, core: &mut Core) {
        let OrphanedQueues { waiting, underway, refused, .. } = &mut self.orphaned_queues;
        *underway = underway.saturating_sub(1);
        *refused |= outcome != Outcome::Taken;
        if *underway > 0 {
            return;
        }
        let peers = if std::mem::take(refused) { PeerOffers::No } else { PeerOffers::Freely };
        if let Some(first) = waiting.front_mut() {
            first.peers = peers;
        }
        self.settle_orphaned_queues(now, core);
    }

    /// Takes in a page that was read for a session that does not exist any more. Either the first
    /// queue requested the page, or its session did so before it ended.
    pub(crate) fn take_page_of_orphaned_queue(
        &mut self,
        now: Instant,
        request: &PageRequest,
        read: Vec<ReadEntry>,
        core: &mut Core,
    ) {
        if core.durability.is_stopping() {
            return;
        }
        let wanted = request.wanted.first().map(|(number, _)| *number);
        let is_reading = self.orphaned_queues.is_reading;
        // While a page is being read, messages that no member had room for may join the first queue
        // in memory. Nothing was in memory when this queue requested the page. So these messages
        // are newer, and the page goes first. If the session requested the page before it ended,
        // its queue has no messages in memory.
        let is_its = |e: &mut OrphanedQueue| {
            e.session == request.session
                && (is_reading || e.kept.is_empty())
                && e.left.front().map(PagedOut::number) == wanted
        };
        let Some(mut orphaned_queue) = self.orphaned_queues.waiting.pop_front_if(is_its) else {
            return;
        };
        self.orphaned_queues.is_reading = false;
        self.orphaned_queues.reserved.set(0);
        // The batch is begun, so that no packet leaves before the new owner of its message is
        // recorded.
        core.durability.begin();
        let mut read = read.into_iter().peekable();
        for (number, _) in &request.wanted {
            let found = read.next_if(|r| r.number == *number);
            if let Some(ReadEntry { message, share: Some(share), .. }) = &found
                && let Some(blocked) = self.blocked(now, message, share, orphaned_queue.peers, core)
            {
                orphaned_queue.blocked = Some(blocked);
                break;
            }
            // The old entry ends when `_ends` is dropped. The end is recorded in the same batch as
            // the new owner of the message.
            let Some(_ends) = orphaned_queue.left.pop_front_if(|e| e.number() == *number) else { continue };
            let lost = match found {
                Some(ReadEntry { message, share: Some(share), .. }) => {
                    self.offer_orphaned(now, message, &share, true, &mut orphaned_queue.peers, core);
                    continue;
                }
                Some(ReadEntry { message, .. }) => Dropped::unsent(DropReason::SessionEnded, message),
                None => Dropped::new(DropReason::Unreadable, None),
            };
            match &orphaned_queue.client_id {
                Some(client_id) => {
                    let (redelivery, state) = (&orphaned_queue.redelivery, ReceiverState::None);
                    core.drop_for(&DropReceiver { client_id, redelivery, stored: true, state }, lost);
                }
                None => core.drop_of_nobody(&lost),
            }
        }
        self.orphaned_queues.put_back(orphaned_queue);
        self.settle_orphaned_queues(now, core);
    }
}
