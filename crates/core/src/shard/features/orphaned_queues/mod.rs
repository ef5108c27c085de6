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
//! The messages in memory were in a queue before, within the bounds of that queue. These messages
//! count against `limits.memory` as before, and publishes are refused while that limit is reached.
//! A message that waits in the store takes some 110 B of memory.

mod settling;

use crate::durability::publication::Publication;
use crate::login::access_rules::AccessRules;
use crate::mqtt::charge::{Charge, Recount, Recounted};
use crate::mqtt::message::Message;
use crate::mqtt::subscription_ids::SubscriptionIds;
use crate::persistence::records::SessionKey;
use crate::persistence::rows::{NewDelivery, PagedOut};
use crate::session::session_redelivery::SessionRedelivery;
use crate::shard::core::Core;
use crate::shard::share::{PeerOffers, WantedRoom};
use crate::slots::{NoSession, SessionId};
use crate::time::Instant;
use std::collections::VecDeque;
use std::sync::Arc;

/// The session of queues whose messages no member of their group had room for. Some of these
/// messages were never offered.
const REFUSED_BY_ALL: SessionId = NoSession::RefusedByAll.id();

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
    left: VecDeque<PagedOut>,
    /// The room that the first message waits for.
    blocked: Option<Blocked>,
    /// The offers to members in other shards.
    peers: PeerOffers,
    /// The charge of the client id, and of the rows at their largest.
    charge: Charge,
}

impl OrphanedQueue {
    /// Updates the charge after the rows have grown. The rows keep their capacity until the queue
    /// is settled, so no update is due when they shrink.
    fn account(&mut self) {
        let id = self.client_id.as_ref().map_or(0, |id| id.len());
        let rows = self.left.capacity() * size_of::<PagedOut>()
            + self.kept.capacity() * size_of::<OrphanedMessage>();
        self.charge.set(size_of::<OrphanedQueue>() + id + rows);
    }
}

/// Counts the capacity of the rows, because the rows keep it until the queue is settled.
impl Recount for OrphanedQueues {
    fn recount(&self) -> Recounted {
        let mut all = Recounted { in_use: self.reserved.bytes(), charged: self.reserved.bytes() };
        for orphaned_queue in &self.waiting {
            let id = orphaned_queue.client_id.as_ref().map_or(0, |id| id.len());
            let left = orphaned_queue.left.capacity() * size_of::<PagedOut>();
            all.in_use += size_of::<OrphanedQueue>()
                + id
                + left
                + orphaned_queue.kept.capacity() * size_of::<OrphanedMessage>();
            all.charged += orphaned_queue.charge.bytes();
            if let Some(blocked) = &orphaned_queue.blocked {
                all.in_use += blocked.topic.len();
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

    fn wanted(&self) -> WantedRoom<'_> {
        WantedRoom { share: &self.share, topic: &self.topic, size: self.size }
    }
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

    /// Appends a message that no member of its group has room for, in the store if the publication
    /// is atomic, else in memory.
    pub(crate) fn keep(
        &mut self,
        message: &Message,
        share: &Arc<Box<str>>,
        publication: &mut Publication<'_>,
        core: &Core,
    ) {
        let write_buffer = core.durability.write_buffer().filter(|_| publication.atomic);
        let key = write_buffer.map(|l| *self.key.get_or_insert_with(|| l.session_key()));
        let nobody = core.sessions.rules().nobody();
        let orphaned_queue = self.last_of(REFUSED_BY_ALL, nobody, PeerOffers::No);
        if orphaned_queue.kept.is_empty() && orphaned_queue.left.is_empty() {
            orphaned_queue.blocked = Some(Blocked::new(message, share, &core.access));
        }
        if let Some((write_buffer, key)) = write_buffer.zip(key) {
            let body = publication.outgoing.body.get_or_insert_with(|| write_buffer.body(message));
            let (retain, ids) = (message.header().retain, &SubscriptionIds::None);
            let qos = message.header().qos;
            let entry = write_buffer.entry(
                key,
                body,
                NewDelivery { qos, retain, ids, share: Some(share), flight: None },
            );
            orphaned_queue.left.extend(entry.page_out());
        } else {
            orphaned_queue
                .kept
                .push_back(OrphanedMessage { message: message.clone(), share: Arc::clone(share) });
        }
        orphaned_queue.account();
    }

    /// Lets the first [`LOOKED_AT`] queues offer one message to peers that refused before.
    fn ask_peers(&mut self) {
        for orphaned_queue in self.waiting.iter_mut().take(LOOKED_AT).filter(|e| e.peers == PeerOffers::No) {
            orphaned_queue.peers = PeerOffers::Once;
        }
    }

    /// Returns the last queue if it belongs to the same session, else a new queue at the end.
    fn last_of(
        &mut self,
        session: SessionId,
        redelivery: &Arc<SessionRedelivery>,
        peers: PeerOffers,
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

#[cfg(test)]
mod tests;
