//! Shared messages that no member has room for now, and the messages that ended sessions left in
//! the store alone.
//!
//! | where a message comes from | where it waits |
//! |---|---|
//! | the head of a queue, in memory, of a session that ended | in memory, or in the store where it is stored |
//! | the tail of that queue, in the store alone | in the store |
//! | a peer, whose session ended, and all members refused it here | as above |
//!
//! Another member gets it as soon as one of this shard has room in messages and in bytes. The room
//! of members in other shards is not known here. Where this shard has members too, the others are
//! asked with one message at each regular work, and with whole pages while they take them. Who
//! refuses keeps the message in its own shard, where its members' room is known.
//!
//! Dead letters may be due for what is in the store alone, so all of it is read back: one session's
//! after the other's, a page at a time, however many end at once. Until then it stays in the store:
//! after a crash, or a stop, it is taken up again, and what was not shared is counted.
//!
//! Bounds: what waits in memory was in a queue before, within its bounds, and counts against
//! `limits.memory` as it did there: publishes are refused while that is used up. What waits in the
//! store takes some 110 B of memory each.

use crate::mqtt::charge::{Charge, Recount, Recounted};
use crate::mqtt::message::Message;
use crate::mqtt::outcome::Outcome;
use crate::mqtt::packet::QoS;
use crate::mqtt::subscription_ids::SubscriptionIds;
use crate::persistence::records::{ReadEntry, SessionKey};
use crate::persistence::rows::{Body, NewDelivery, Parked};
use crate::session::drops::{DropReason, Dropped};
use crate::session::outbound::parked::page_of;
use crate::session::session_redelivery::SessionRedelivery;
use crate::shard::durability::gates::PageRequest;
use crate::shard::exchange::barrier::AfterBarrier;
use crate::shard::exchange::outbound::Gate;
use crate::shard::route::Routing;
use crate::shard::share::SharedDelivery;
use crate::shard::slots::Id;
use crate::shard::slots::SessionId;
use crate::time::Instant;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

/// In place of a session that ended before the broker started.
const BEFORE_THE_START: SessionId = Id::new(u32::MAX, u32::MAX);

/// In place of a session, of messages that all members of their group refused.
const REFUSED_BY_ALL: SessionId = Id::new(u32::MAX, u32::MAX - 1);

/// Messages in memory that are offered in one turn at most.
const OFFERED_AT_ONCE: usize = 256;

/// Maximum number of orphaned queues that are compared with a session each time it has acknowledged
/// something.
const ASKED_FOR: usize = 8;

/// Maximum number of orphaned queues that one turn looks at.
const LOOKED_AT: usize = 64;

/// The messages that one session left, or that a group could not take.
#[derive(Debug)]
pub(crate) struct OrphanedQueue {
    /// Which session it was; nothing has its slot and generation any more.
    session: SessionId,
    /// Not known of those that ended before the start, and of several.
    client_id: Option<Box<str>>,
    redelivery: Arc<SessionRedelivery>,
    /// In memory. Older than what is `left`, unless several sessions left it.
    kept: VecDeque<OrphanedMessage>,
    left: VecDeque<Parked>,
    /// What the first of them waits for.
    blocked: Option<Blocked>,
    peers: Peers,
    /// Of the rows and the client id, as long as they were at most.
    charge: Charge,
}

impl OrphanedQueue {
    /// After the rows have grown. They keep their room until the orphaned queue is settled.
    fn account(&mut self) {
        let id = self.client_id.as_ref().map_or(0, |id| id.len());
        let rows =
            self.left.capacity() * size_of::<Parked>() + self.kept.capacity() * size_of::<OrphanedMessage>();
        self.charge.set(size_of::<OrphanedQueue>() + id + rows);
    }
}

/// The rows keep their room until the orphaned queue is settled.
impl Recount for OrphanedQueues {
    fn recount(&self) -> Recounted {
        let mut all = Recounted { held: self.reserved.bytes(), charged: self.reserved.bytes() };
        for orphaned_queue in &self.waiting {
            let id = orphaned_queue.client_id.as_ref().map_or(0, |id| id.len());
            let left = orphaned_queue.left.capacity() * size_of::<Parked>();
            all.held += size_of::<OrphanedQueue>()
                + id
                + left
                + orphaned_queue.kept.capacity() * size_of::<OrphanedMessage>();
            all.charged += orphaned_queue.charge.bytes();
        }
        all
    }
}

/// A shared message that waits in memory.
#[derive(Debug)]
struct OrphanedMessage {
    message: Message,
    /// The full filter, `$share/...`.
    share: Arc<Box<str>>,
}

/// The room that the first message waits for: in this group, for this size.
#[derive(Debug)]
struct Blocked {
    share: Arc<Box<str>>,
    size: usize,
    /// When there is nothing to wait for any more.
    expires: Instant,
}

/// Whether members in other shards are offered anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peers {
    /// They took the last.
    Freely,
    /// One message, to see.
    Once,
    /// They refused the last: not before the next regular work.
    No,
}

/// In the order in which their sessions ended, as long as there is room.
#[derive(Debug, Default)]
pub(crate) struct OrphanedQueues {
    waiting: VecDeque<OrphanedQueue>,
    /// Whether a page of the first was asked for.
    is_reading: bool,
    /// Of its messages.
    reserved: Charge,
    /// Whether peers have yet to tell, at the start, which of their sessions are in which group.
    members_are_unknown: bool,
    /// Messages of the first that other shards have yet to answer for.
    underway: u32,
    /// Whether one of them was refused.
    refused: bool,
    /// Something may have room that had none.
    nudged: bool,
    /// Under which entries are stored that belong to no session.
    key: Option<SessionKey>,
}

impl OrphanedQueues {
    /// Deliveries that are not settled.
    pub(crate) fn unsettled(&self) -> usize {
        let waiting =
            self.waiting.iter().map(|orphaned_queue| orphaned_queue.kept.len() + orphaned_queue.left.len());
        waiting.sum::<usize>() + self.underway as usize
    }

    /// Whether nothing waits: all that most calls have to ask.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn is_nudged(&self) -> bool {
        self.nudged && !self.is_reading && !self.members_are_unknown && self.underway == 0
    }

    /// Something has changed that an orphaned queue may wait for: it is looked at when the turn
    /// ends.
    fn nudge(&mut self) {
        self.nudged = !self.waiting.is_empty();
    }

    /// Some group has lost a member: the last of this shard, maybe, that would tell of its room, or
    /// the last of all.
    pub(crate) fn member_left(&mut self) {
        self.ask_peers();
        self.nudge();
    }

    fn ask_peers(&mut self) {
        for orphaned_queue in self.waiting.iter_mut().take(LOOKED_AT).filter(|e| e.peers == Peers::No) {
            orphaned_queue.peers = Peers::Once;
        }
    }

    /// The last orphaned queue, if it takes more of this kind; else a new one.
    fn last_of(
        &mut self,
        session: SessionId,
        redelivery: &Arc<SessionRedelivery>,
        peers: Peers,
    ) -> &mut OrphanedQueue {
        if self.waiting.back().is_none_or(|last| last.session != session) {
            let (redelivery, kept, left) = (Arc::clone(redelivery), VecDeque::new(), VecDeque::new());
            let charge = Charge::NONE;
            let orphaned_queue = OrphanedQueue {
                session,
                client_id: None,
                redelivery,
                kept,
                left,
                blocked: None,
                peers,
                charge,
            };
            self.waiting.push_back(orphaned_queue);
        }
        let last = self.waiting.len() - 1;
        &mut self.waiting[last]
    }
}

impl Routing<'_> {
    /// A session has ended. `parked`: shared messages of its queue's head for which nobody has room
    /// now, older than what is `unread`, which is to be read back. Of that what is not shared is
    /// counted as lost when it is read.
    pub(crate) fn leave_unread(
        &mut self,
        now: Instant,
        session: SessionId,
        client_id: &str,
        redelivery: &Arc<SessionRedelivery>,
        parked: VecDeque<Parked>,
        mut unread: VecDeque<Parked>,
    ) {
        if parked.is_empty() && unread.is_empty() {
            return;
        }
        let orphaned_queue = self.routes.orphaned_queues.last_of(session, redelivery, Peers::Freely);
        orphaned_queue.client_id.get_or_insert_with(|| client_id.into());
        if orphaned_queue.left.is_empty() && parked.is_empty() {
            orphaned_queue.left = unread;
        } else {
            orphaned_queue.left.extend(parked);
            orphaned_queue.left.append(&mut unread);
        }
        orphaned_queue.account();
        self.settle_orphaned_queues(now);
    }

    /// At the start: what sessions had left that ended before. It is read when the members of every
    /// group are known.
    pub(crate) fn leave_orphans(&mut self, now: Instant, left: VecDeque<Parked>) {
        if left.is_empty() {
            return;
        }
        let nobody = Arc::clone(self.core.sessions.rules().nobody());
        let orphaned_queue = self.routes.orphaned_queues.last_of(BEFORE_THE_START, &nobody, Peers::Freely);
        orphaned_queue.left.extend(left);
        orphaned_queue.account();
        self.routes.orphaned_queues.members_are_unknown = self.core.exchange.shards() > 1;
        if self.routes.orphaned_queues.members_are_unknown {
            self.core.exchange.raise_barrier(AfterBarrier::ReadOrphanedQueues);
        }
        self.settle_orphaned_queues(now);
    }

    /// Notes that the members of every group are known.
    pub(crate) fn members_are_known(&mut self, now: Instant) {
        self.routes.orphaned_queues.members_are_unknown = false;
        self.settle_orphaned_queues(now);
    }

    /// A message is owed to a group of which no member takes it now: it waits for one that does.
    /// `stored`: it was in the store, and stays there, recorded in the batch or part in which it
    /// left its session. `body`: what other entries of it here refer to. Returns false if it is to
    /// be lost: no queue can ever take it.
    pub(crate) fn keep_owed(
        &mut self,
        now: Instant,
        message: &Message,
        share: &Arc<Box<str>>,
        stored: bool,
        body: &mut Option<Rc<Body>>,
    ) -> bool {
        let (size, qos) = (message.size(), message.header().qos);
        if qos == QoS::AtMostOnce || size > self.core.settings.largest_queue_bytes(&self.core.durability) {
            return false;
        }
        let write_buffer = self.core.durability.write_buffer().filter(|_| stored).cloned();
        let nobody = Arc::clone(self.core.sessions.rules().nobody());
        let key = write_buffer
            .as_ref()
            .map(|l| *self.routes.orphaned_queues.key.get_or_insert_with(|| l.session_key()));
        // Who refused last is of this shard, and tells when it has room. Where nobody here is in
        // the group any more, it goes on.
        let has_member_here = self.room_in_group(now, share, size).is_some_and(|room| room.members_here);
        let orphaned_queue = self.routes.orphaned_queues.last_of(REFUSED_BY_ALL, &nobody, Peers::No);
        if orphaned_queue.kept.is_empty() && orphaned_queue.left.is_empty() {
            let expires = message.header().expires;
            orphaned_queue.blocked = Some(Blocked { share: Arc::clone(share), size, expires });
        }
        if let Some((write_buffer, key)) = write_buffer.zip(key) {
            let body = body.get_or_insert_with(|| write_buffer.body(message));
            let (retain, ids) = (message.header().retain, &SubscriptionIds::None);
            let entry = write_buffer.entry(
                key,
                body,
                NewDelivery { qos, retain, ids, share: Some(share), flight: None },
            );
            orphaned_queue.left.extend(entry.park());
        } else {
            orphaned_queue
                .kept
                .push_back(OrphanedMessage { message: message.clone(), share: Arc::clone(share) });
        }
        orphaned_queue.account();
        if !has_member_here {
            self.routes.orphaned_queues.nudge();
        }
        true
    }

    /// Offers messages to members in other shards again. Part of the regular work.
    pub(crate) fn ask_for_orphaned_queues(&mut self, now: Instant) {
        self.routes.orphaned_queues.ask_peers();
        self.settle_orphaned_queues(now);
    }

    /// A session of this shard may have room: is it what one of the first orphaned queues waits
    /// for?
    pub(crate) fn has_room_for_orphaned_queues(&mut self, now: Instant, id: SessionId) {
        let Some(session_entry) = self.core.sessions.get(id) else { return };
        let policy = &self.core.settings.session.send;
        let mut blocked =
            self.routes.orphaned_queues.waiting.iter().take(ASKED_FOR).filter_map(|e| e.blocked.as_ref());
        let may = blocked.any(|Blocked { share, size, .. }| {
            session_entry.session.subscriptions.contains(share)
                && session_entry.has_room_for_owed(now, *size, policy)
        });
        self.routes.orphaned_queues.nudged |= may;
    }

    /// Gives messages to members that have room, as many as this turn allows.
    pub(crate) fn settle_orphaned_queues(&mut self, now: Instant) {
        self.routes.orphaned_queues.nudged = false;
        for at in 0..LOOKED_AT.min(self.routes.orphaned_queues.waiting.len()) {
            if at > 0 && self.core.turn.is_over() {
                // The others in another turn.
                return self.routes.orphaned_queues.nudge();
            }
            let OrphanedQueues { waiting, is_reading, members_are_unknown, underway, .. } =
                &mut self.routes.orphaned_queues;
            if *is_reading || *members_are_unknown || self.core.durability.is_stopping() || *underway > 0 {
                return;
            }
            let Some(mut orphaned_queue) = waiting.pop_front() else { return };
            if let Some(Blocked { share, size, expires }) = &orphaned_queue.blocked
                && *expires > now
                && !self.may_offer(now, share, *size, orphaned_queue.peers)
            {
                self.routes.orphaned_queues.waiting.push_back(orphaned_queue);
                continue;
            }
            orphaned_queue.blocked = None;
            self.offer_kept(now, &mut orphaned_queue);
            if self.routes.orphaned_queues.underway > 0 {
                // Even empty: the answers are for the first.
                return self.routes.orphaned_queues.waiting.push_front(orphaned_queue);
            }
            if orphaned_queue.kept.is_empty() && orphaned_queue.left.is_empty() {
                continue;
            }
            if orphaned_queue.blocked.is_some() {
                self.routes.orphaned_queues.waiting.push_back(orphaned_queue);
                continue;
            }
            if !orphaned_queue.kept.is_empty() {
                // The rest in another turn.
                self.routes.orphaned_queues.waiting.push_front(orphaned_queue);
                return self.routes.orphaned_queues.nudge();
            }
            let (wanted, bytes) = page_of(&orphaned_queue.left);
            let request = PageRequest { session: orphaned_queue.session, wanted };
            self.routes.orphaned_queues.reserved.set(bytes);
            self.routes.orphaned_queues.waiting.push_front(orphaned_queue);
            self.routes.orphaned_queues.is_reading = true;
            return self.core.durability.read_back(request, &mut self.core.effects);
        }
    }

    /// Returns true if no member may take a shared message now.
    pub(crate) fn must_wait(&mut self, now: Instant, message: &Message, share: &str) -> bool {
        let size = message.size();
        size <= self.core.settings.largest_queue_bytes(&self.core.durability)
            && !message.is_expired(now)
            && !self.may_offer(now, share, size, Peers::Freely)
    }

    /// Returns true if a shared message of this size may be offered: a member of this shard has
    /// room, or those of peers may have. Also true for a group that is gone, because there is
    /// nothing to wait for.
    pub(crate) fn may_offer(&mut self, now: Instant, share: &str, size: usize, peers: Peers) -> bool {
        match self.room_in_group(now, share, size) {
            // Without a member here, whose room would be known, it is better off with a shard that
            // has one.
            Some(GroupRoom { here, members_here, elsewhere }) => {
                here || elsewhere && (peers != Peers::No || !members_here)
            }
            None => true,
        }
    }

    /// Offers what an orphaned queue has in memory, a bounded number, until there is no room.
    fn offer_kept(&mut self, now: Instant, orphaned_queue: &mut OrphanedQueue) {
        for at in 0..OFFERED_AT_ONCE {
            if at > 0 && self.core.turn.is_over() {
                return;
            }
            let Some(OrphanedMessage { message, share }) = orphaned_queue.kept.front() else { return };
            if !self.is_to_be_offered(now, message, share, &mut orphaned_queue.blocked, orphaned_queue.peers)
            {
                return;
            }
            let Some(OrphanedMessage { message, share }) = orphaned_queue.kept.pop_front() else { return };
            self.core.turn.charge(1);
            self.offer_owed(now, message, &share, false, &mut orphaned_queue.peers);
        }
    }

    fn is_to_be_offered(
        &mut self,
        now: Instant,
        message: &Message,
        share: &Arc<Box<str>>,
        blocked: &mut Option<Blocked>,
        peers: Peers,
    ) -> bool {
        let (size, expires) = (message.size(), message.header().expires);
        if expires <= now || self.may_offer(now, share, size, peers) {
            return true;
        }
        *blocked = Some(Blocked { share: Arc::clone(share), size, expires });
        false
    }

    fn offer_owed(
        &mut self,
        now: Instant,
        message: Message,
        share: &Arc<Box<str>>,
        stored: bool,
        peers: &mut Peers,
    ) {
        // QoS 0 is answered by nobody.
        let gate = (message.header().qos != QoS::AtMostOnce).then_some(Gate::OrphanedQueue);
        if let SharedDelivery::Underway { .. } = self.share_again(now, message, share, stored, gate)
            && gate.is_some()
        {
            self.routes.orphaned_queues.underway += 1;
            if *peers == Peers::Once {
                *peers = Peers::No;
            }
        }
    }

    /// Takes in another shard's answer to a message of the first orphaned queue.
    pub(crate) fn orphaned_queue_answered(&mut self, now: Instant, outcome: Outcome) {
        let OrphanedQueues { waiting, underway, refused, .. } = &mut self.routes.orphaned_queues;
        *underway = underway.saturating_sub(1);
        *refused |= outcome != Outcome::Taken;
        if *underway > 0 {
            return;
        }
        let peers = if std::mem::take(refused) { Peers::No } else { Peers::Freely };
        if let Some(first) = waiting.front_mut() {
            first.peers = peers;
        }
        self.settle_orphaned_queues(now);
    }

    /// A page came for no session that there is. One that was asked for before its session ended
    /// may be of an orphaned queue, too.
    pub(crate) fn take_page_of_orphaned_queue(
        &mut self,
        now: Instant,
        request: &PageRequest,
        read: Vec<ReadEntry>,
    ) {
        if self.core.durability.is_stopping() {
            return;
        }
        let wanted = request.wanted.first().map(|(number, _)| *number);
        // While a page is on its way, what is refused by all may join the orphaned queue in memory.
        // Nothing was there when the page was asked for. A page that the session had asked for
        // itself does not pass what is older, in memory.
        let is_reading = self.routes.orphaned_queues.is_reading;
        let is_its = |e: &mut OrphanedQueue| {
            e.session == request.session
                && (is_reading || e.kept.is_empty())
                && e.left.front().map(Parked::number) == wanted
        };
        let Some(mut orphaned_queue) = self.routes.orphaned_queues.waiting.pop_front_if(is_its) else {
            return;
        };
        self.routes.orphaned_queues.is_reading = false;
        self.routes.orphaned_queues.reserved.set(0);
        if let Some(write_buffer) = self.core.durability.write_buffer() {
            // Nothing leaves before it is recorded whose it was.
            write_buffer.begin();
        }
        let mut read = read.into_iter().peekable();
        for (number, _) in &request.wanted {
            let found = read.next_if(|r| r.number == *number);
            if let Some(ReadEntry { message, share: Some(share), .. }) = &found
                && !self.is_to_be_offered(
                    now,
                    message,
                    share,
                    &mut orphaned_queue.blocked,
                    orphaned_queue.peers,
                )
            {
                break;
            }
            // It ends with this turn, in the batch that says who has it now.
            let Some(_ends) = orphaned_queue.left.pop_front_if(|e| e.number() == *number) else { continue };
            let lost = match found {
                Some(ReadEntry { message, share: Some(share), .. }) => {
                    self.offer_owed(now, message, &share, true, &mut orphaned_queue.peers);
                    continue;
                }
                Some(ReadEntry { message, .. }) => Dropped::unsent(DropReason::SessionEnded, message),
                None => Dropped::new(DropReason::Unreadable, None),
            };
            match &orphaned_queue.client_id {
                Some(client_id) => {
                    self.core.drop_with_session(client_id, &orphaned_queue.redelivery, lost, true)
                }
                None => self.core.drop_of_unknown(lost.cause),
            }
        }
        if orphaned_queue.blocked.is_some() && self.routes.orphaned_queues.underway == 0 {
            self.routes.orphaned_queues.waiting.push_back(orphaned_queue);
        } else if !orphaned_queue.kept.is_empty()
            || !orphaned_queue.left.is_empty()
            || self.routes.orphaned_queues.underway > 0
        {
            // Even empty: the answers are for the first.
            self.routes.orphaned_queues.waiting.push_front(orphaned_queue);
        }
        self.settle_orphaned_queues(now);
    }
}

/// The members of a group that may take a message.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GroupRoom {
    /// A member of this shard has room.
    pub here: bool,
    /// Members of this shard were among those that were looked at.
    pub members_here: bool,
    /// There are members in other shards, of whom that is not known.
    pub elsewhere: bool,
}
