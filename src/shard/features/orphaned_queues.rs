//! Orphaned queues: shared messages of ended sessions that no member has room for now, and the
//! messages that ended sessions left in the store.
//!
//! | origin of the message | place where it waits |
//! |---|---|
//! | delivery of an ended session, in memory | store if the message is stored, else memory |
//! | tail of its queue, only in the store | store |
//! | a peer whose session ended, if all members refused the message here | as in the first row |
//!
//! Another member gets the message as soon as a member of this shard has room for it, in messages
//! and in bytes. A shard does not know the room of members in other shards. If the group has
//! members in this shard too, and another shard refused a message, each housekeeping offers one
//! message of each queue to the other shards. While the other shards take messages, this shard
//! offers whole pages. If all members refuse a message, the last shard that was asked keeps it,
//! because that shard knows when its own members have room.
//!
//! The unread messages of a session come here if one of them is shared or may become a dead letter.
//! All of them are then read back. One page is read at a time, one queue after the other, even if
//! many sessions end at once. Until then a message stays in the store, so a crash or a stop does
//! not lose it. The broker takes the stored messages up again at its next start, and drops and
//! counts those that no shared subscription delivered.
//!
//! # Bounds
//!
//! The messages in memory were in a queue before, within the bounds of that queue. They count
//! against `limits.memory` as before, and publishes are refused while that is used up. A message
//! that waits in the store takes some 110 B of memory.

use crate::mqtt::charge::{Charge, Recount, Recounted};
use crate::mqtt::message::Message;
use crate::mqtt::outcome::Outcome;
use crate::mqtt::packet::QoS;
use crate::mqtt::subscription_ids::SubscriptionIds;
use crate::persistence::records::{ReadEntry, SessionKey};
use crate::persistence::rows::{NewDelivery, Parked};
use crate::session::drops::{DropReason, Dropped};
use crate::session::outbound::parked::page_of;
use crate::session::session_redelivery::SessionRedelivery;
use crate::shard::access::AccessRules;
use crate::shard::core::Core;
use crate::shard::durability::gates::PageRequest;
use crate::shard::exchange::barrier::AfterBarrier;
use crate::shard::exchange::outbound::Gate;
use crate::shard::exchange::outbound::Readers;
use crate::shard::publication::Publication;
use crate::shard::route::Routing;
use crate::shard::share::SharedDelivery;
use crate::shard::slots::Id;
use crate::shard::slots::SessionId;
use crate::time::Instant;
use std::collections::VecDeque;
use std::sync::Arc;

/// The session of the queue whose messages were left before the broker started. No session has this
/// slot.
const BEFORE_THE_START: SessionId = Id::new(u32::MAX, u32::MAX);

/// The session of queues whose messages no member of their group had room for. Some of these
/// messages were never offered. No session has this slot.
const REFUSED_BY_ALL: SessionId = Id::new(u32::MAX, u32::MAX - 1);

/// Maximum number of messages in memory that one turn offers from one queue.
const OFFERED_AT_ONCE: usize = 256;

/// Maximum number of orphaned queues that are compared with a session each time its client has
/// acknowledged a packet.
const COMPARED: usize = 8;

/// Maximum number of orphaned queues that one turn looks at.
const LOOKED_AT: usize = 64;

/// The messages that one session left, or that no member of their group had room for.
#[derive(Debug)]
pub(crate) struct OrphanedQueue {
    /// The session that left the messages, or a placeholder. No live session has this slot and
    /// generation.
    session: SessionId,
    /// `None` for messages that were left before the start, and for messages of several sessions.
    client_id: Option<Box<str>>,
    redelivery: Arc<SessionRedelivery>,
    /// The messages in memory. Only a queue of [`REFUSED_BY_ALL`] has such messages.
    kept: VecDeque<OrphanedMessage>,
    /// The messages in the store.
    left: VecDeque<Parked>,
    /// The room that the first message waits for.
    blocked: Option<Blocked>,
    /// The offers to members in other shards.
    peers: Peers,
    /// The charge of the client id, and of the rows at their largest.
    charge: Charge,
}

impl OrphanedQueue {
    /// Updates the charge after the rows have grown. The rows keep their capacity until the queue
    /// is settled, so no update is due when they shrink.
    fn account(&mut self) {
        let id = self.client_id.as_ref().map_or(0, |id| id.len());
        let rows =
            self.left.capacity() * size_of::<Parked>() + self.kept.capacity() * size_of::<OrphanedMessage>();
        self.charge.set(size_of::<OrphanedQueue>() + id + rows);
    }
}

/// Counts the capacity of the rows, because the rows keep it until the queue is settled.
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
            if let Some(blocked) = &orphaned_queue.blocked {
                all.held += blocked.topic.len();
                all.charged += blocked.charge.bytes();
            }
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

/// The room that the first message of a queue waits for.
#[derive(Debug)]
struct Blocked {
    share: Arc<Box<str>>,
    /// The Topic Name; empty if every client may read every topic.
    topic: Box<str>,
    size: usize,
    /// The time at which the message expires. The wait ends then.
    expires: Instant,
    /// The charge of the topic.
    charge: Charge,
}

impl Blocked {
    /// Returns the room that a message waits for. `access` are the rules in force.
    fn new(message: &Message, share: &Arc<Box<str>>, access: &AccessRules) -> Blocked {
        let topic: Box<str> = if access.are_on() { message.topic().into() } else { Box::default() };
        let charge = Charge::new(topic.len());
        let (size, expires) = (message.size(), message.header().expires);
        Blocked { share: Arc::clone(share), topic, size, expires, charge }
    }

    fn wanted(&self) -> Wanted<'_> {
        Wanted { share: &self.share, topic: &self.topic, size: self.size }
    }
}

/// Room for one message in a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    /// The full filter, `$share/...`.
    pub share: &'a str,
    /// The Topic Name of the message.
    pub topic: &'a str,
    /// The size of the message in bytes.
    pub size: usize,
}

/// The offers that an orphaned queue makes to members in other shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peers {
    /// Any number of messages, because no other shard refused the last ones.
    Freely,
    /// One message, to find out if another shard has room.
    Once,
    /// None until the next housekeeping or until a member leaves, because another shard refused a
    /// message or has not answered. A group without members in this shard is an exception (see
    /// [`Routing::may_offer`]).
    No,
}

/// The orphaned queues of one shard, in the order in which their sessions ended. A queue that no
/// member has room for moves to the back.
#[derive(Debug, Default)]
pub(crate) struct OrphanedQueues {
    waiting: VecDeque<OrphanedQueue>,
    /// True while a page of the first queue is being read.
    is_reading: bool,
    /// The charge of the messages of that page.
    reserved: Charge,
    /// True at the start, until every peer has reported which of its sessions are in which group.
    members_are_unknown: bool,
    /// Number of messages of the first queue that other shards have not answered yet.
    underway: u32,
    /// True if another shard refused one of these messages.
    refused: bool,
    /// True if something that had no room may have room now.
    nudged: bool,
    /// Number of queues that the present pass has not looked at.
    pass: usize,
    /// The key under which entries are stored that belong to no session.
    key: Option<SessionKey>,
}

impl OrphanedQueues {
    /// Puts back the first queue after its page. A queue whose next message has no member with room
    /// goes behind the others. An empty queue ends.
    fn put_back(&mut self, queue: OrphanedQueue) {
        if queue.blocked.is_some() && self.underway == 0 {
            self.waiting.push_back(queue);
        } else if !queue.kept.is_empty() || !queue.left.is_empty() || self.underway > 0 {
            // The queue stays first even if it is empty, because the answers to come are for the
            // first queue.
            self.waiting.push_front(queue);
        }
    }

    /// Returns the number of messages that wait, or that another shard has not answered.
    pub(crate) fn unsettled(&self) -> usize {
        let waiting =
            self.waiting.iter().map(|orphaned_queue| orphaned_queue.kept.len() + orphaned_queue.left.len());
        waiting.sum::<usize>() + self.underway as usize
    }

    /// Returns true if no queue waits. Most callers need only this check.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns true if the queues should be looked at when the turn ends.
    pub(crate) fn is_nudged(&self) -> bool {
        self.nudged && !self.is_reading && !self.members_are_unknown && self.underway == 0
    }

    /// Marks the queues to be looked at when the turn ends, because something changed that a queue
    /// may wait for.
    pub(crate) fn nudge(&mut self) {
        self.begin_pass();
        self.nudged = self.pass > 0;
    }

    /// Begins a pass over the first [`LOOKED_AT`] queues.
    fn begin_pass(&mut self) {
        self.pass = LOOKED_AT.min(self.waiting.len());
    }

    /// Notes that a group lost a member. The queues may have waited for that member to report room,
    /// and it may have been the last one of this shard or of the group. So the queues are looked at
    /// again, and each may offer a message to peers.
    pub(crate) fn member_left(&mut self) {
        self.ask_peers();
        self.nudge();
    }

    /// Notes that the rules of the ACL have changed, so that other members may read the messages.
    pub(crate) fn rules_changed(&mut self) {
        self.ask_peers();
        self.nudge();
    }

    /// Lets the first [`LOOKED_AT`] queues offer one message to peers that refused before.
    fn ask_peers(&mut self) {
        for orphaned_queue in self.waiting.iter_mut().take(LOOKED_AT).filter(|e| e.peers == Peers::No) {
            orphaned_queue.peers = Peers::Once;
        }
    }

    /// Returns the last queue if it belongs to the same session, else a new queue at the end.
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
    /// Takes in the messages that an ended session left in the store. `parked` are shared messages
    /// from the head of its queue for which no member has room now. `unread` is the tail of the
    /// queue, with newer messages. A message in `unread` that did not come by a shared subscription
    /// is dropped and counted when it is read.
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

    /// Takes in, at the start of the broker, the messages that sessions left in an earlier run. The
    /// messages are read when the members of every group are known.
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

    /// Keeps a message until a member of its group takes it, because no member has room now. If the
    /// publication is atomic, the message was in the store and stays there: the batch or part that
    /// records the end of its old entry records the new entry too. The publication has the stored
    /// body that all entries of the message in this shard share. It is made if there is none.
    /// Returns false if no queue can ever take the message, because it is too large or QoS 0. The
    /// caller then drops the message.
    pub(crate) fn keep_owed(
        &mut self,
        now: Instant,
        message: &Message,
        share: &Arc<Box<str>>,
        publication: &mut Publication<'_>,
    ) -> bool {
        let (size, qos) = (message.size(), message.header().qos);
        let most = self.core.durability.largest_queue_bytes(&self.core.settings.session.send);
        if qos == QoS::AtMostOnce || size > most {
            return false;
        }
        let write_buffer = self.core.durability.write_buffer().filter(|_| publication.atomic).cloned();
        let nobody = Arc::clone(self.core.sessions.rules().nobody());
        let key = write_buffer
            .as_ref()
            .map(|l| *self.routes.orphaned_queues.key.get_or_insert_with(|| l.session_key()));
        // A member of this shard that refused the message reports when it has room. If the group
        // has no member in this shard, no report would come. The queue is then looked at when the
        // turn ends.
        let wanted = Wanted { share, topic: message.topic(), size };
        let has_member_here = publication.readers == Readers::In(self.core.here)
            || self.room_in_group(now, wanted).is_some_and(|room| room.members_here);
        let orphaned_queue = self.routes.orphaned_queues.last_of(REFUSED_BY_ALL, &nobody, Peers::No);
        if orphaned_queue.kept.is_empty() && orphaned_queue.left.is_empty() {
            orphaned_queue.blocked = Some(Blocked::new(message, share, &self.core.access));
        }
        if let Some((write_buffer, key)) = write_buffer.zip(key) {
            let body = publication.body.get_or_insert_with(|| write_buffer.body(message));
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

    /// Offers messages to members in other shards again. Part of the housekeeping.
    pub(crate) fn ask_for_orphaned_queues(&mut self, now: Instant) {
        self.routes.orphaned_queues.ask_peers();
        self.settle_orphaned_queues(now);
    }

    /// Notes that a session of this shard may have room. If the first message of one of the first
    /// [`COMPARED`] queues waits for this room, the queues are looked at when the turn ends.
    pub(crate) fn has_room_for_orphaned_queues(&mut self, now: Instant, id: SessionId) {
        let Core { sessions, access, settings, .. } = &mut *self.core;
        let Some(session_entry) = sessions.get_mut(id) else { return };
        let policy = &settings.session.send;
        let mut blocked =
            self.routes.orphaned_queues.waiting.iter().take(COMPARED).filter_map(|e| e.blocked.as_ref());
        let may = blocked.any(|Blocked { share, topic, size, .. }| {
            session_entry.session.subscriptions.contains(share)
                && session_entry.has_room_for_owed(now, *size, policy)
                && (!access.are_on() || session_entry.may_read(access, topic))
        });
        if may {
            self.routes.orphaned_queues.nudge();
        }
    }

    /// Offers messages to groups that may have room, as many as this turn allows. Looks at
    /// [`LOOKED_AT`] queues at most. Requests a page if the next messages of a queue are only in
    /// the store. Does nothing while a page is being read, an answer of another shard is pending,
    /// the members of the groups are unknown, or the broker stops.
    pub(crate) fn settle_orphaned_queues(&mut self, now: Instant) {
        self.routes.orphaned_queues.begin_pass();
        self.go_on_settling(now);
    }

    /// Goes on with the present pass, as [`Self::settle_orphaned_queues`] does.
    pub(crate) fn go_on_settling(&mut self, now: Instant) {
        self.routes.orphaned_queues.nudged = false;
        let mut is_first = true;
        while self.routes.orphaned_queues.pass > 0 {
            if !std::mem::take(&mut is_first) && self.core.turn.is_over() {
                // A later turn looks at the other queues of this pass. A new pass would look at the
                // same queues again, without an end.
                self.routes.orphaned_queues.nudged = true;
                return;
            }
            self.routes.orphaned_queues.pass -= 1;
            let OrphanedQueues { waiting, is_reading, members_are_unknown, underway, .. } =
                &mut self.routes.orphaned_queues;
            if *is_reading || *members_are_unknown || self.core.durability.is_stopping() || *underway > 0 {
                return;
            }
            let Some(mut orphaned_queue) = waiting.pop_front() else { return };
            if let Some(blocked) = &orphaned_queue.blocked
                && blocked.expires > now
                && !self.may_offer(now, blocked.wanted(), orphaned_queue.peers)
            {
                self.routes.orphaned_queues.waiting.push_back(orphaned_queue);
                continue;
            }
            orphaned_queue.blocked = None;
            self.offer_kept(now, &mut orphaned_queue);
            if self.routes.orphaned_queues.underway > 0 {
                // The queue stays first even if it is empty, because the answers to come are
                // for the first queue.
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
                // A later turn offers the rest.
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

    /// Returns true if the message must wait because no member of the group has room for it now. An
    /// expired message does not wait, nor does one that is too large for every queue.
    pub(crate) fn must_wait(&mut self, now: Instant, message: &Message, share: &str) -> bool {
        let size = message.size();
        size <= self.core.durability.largest_queue_bytes(&self.core.settings.session.send)
            && !message.is_expired(now)
            && !self.may_offer(now, Wanted { share, topic: message.topic(), size }, Peers::Freely)
    }

    /// Returns true if a shared message may be offered: a member of this shard has room, or a
    /// member in another shard may have room and `peers` allows the offer. Also true if this shard
    /// has too many members to look at, or if the group is gone or no member may read the message,
    /// because there is nothing to wait for.
    pub(crate) fn may_offer(&mut self, now: Instant, wanted: Wanted<'_>, peers: Peers) -> bool {
        match self.room_in_group(now, wanted) {
            // If the group has no member in this shard that may read the message, this shard never
            // learns of room. A shard with such a member does, so the message is sent there even
            // after a refusal.
            Some(GroupRoom { here, is_unsure, members_here, denied_here, elsewhere }) => {
                let may = if elsewhere {
                    peers != Peers::No || !members_here
                } else {
                    !members_here && denied_here
                };
                here || is_unsure || may
            }
            None => true,
        }
    }

    /// Offers the messages in memory of a queue until no member has room, [`OFFERED_AT_ONCE`] of
    /// them at most.
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

    /// Returns true if the message can be offered now, or has expired. Otherwise sets `blocked` to
    /// the room that the message waits for.
    fn is_to_be_offered(
        &mut self,
        now: Instant,
        message: &Message,
        share: &Arc<Box<str>>,
        blocked: &mut Option<Blocked>,
        peers: Peers,
    ) -> bool {
        let wanted = Wanted { share, topic: message.topic(), size: message.size() };
        if message.header().expires <= now || self.may_offer(now, wanted, peers) {
            return true;
        }
        *blocked = Some(Blocked::new(message, share, &self.core.access));
        false
    }

    /// Offers a message to its group. Counts it as underway if another shard will answer for it.
    fn offer_owed(
        &mut self,
        now: Instant,
        message: Message,
        share: &Arc<Box<str>>,
        stored: bool,
        peers: &mut Peers,
    ) {
        // No shard answers for a QoS 0 message.
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

    /// Takes in another shard's answer for a message of the first queue. With the last answer, the
    /// queues are settled again.
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

    /// Takes in a page that was read for a session that does not exist any more. Either the first
    /// queue requested the page, or its session did so before it ended.
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
        let is_reading = self.routes.orphaned_queues.is_reading;
        // While a page is being read, messages that no member had room for may join the first queue
        // in memory. Nothing was in memory when this queue requested the page. So these messages
        // are newer, and the page goes first. If the session requested the page before it ended,
        // its queue has no messages in memory.
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
            // The batch is begun, so that no packet leaves before the new owner of its message is
            // recorded.
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
            // The old entry ends when `_ends` is dropped. That is recorded in the same batch as the
            // new owner of the message.
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
        self.routes.orphaned_queues.put_back(orphaned_queue);
        self.settle_orphaned_queues(now);
    }
}

/// The room for one message in a group, as far as this shard knows it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GroupRoom {
    /// True if a member of this shard that may read the message has room.
    pub here: bool,
    /// True if this shard has too many members to look at all of them.
    pub is_unsure: bool,
    /// True if some of the members that were looked at are in this shard and may read the message.
    pub members_here: bool,
    /// True if some of the members that were looked at are in this shard and may not read the
    /// message.
    pub denied_here: bool,
    /// True if some members are in other shards. Their room is not known.
    pub elsewhere: bool,
}

#[cfg(test)]
#[path = "orphaned_queues_tests.rs"]
mod tests;
