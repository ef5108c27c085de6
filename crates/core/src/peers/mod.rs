//! Messages between the shards of one broker: peer batches. One with publications is answered by a
//! ticket.
//!
//! `Peers` owns the items that this shard sends to its peers, and the gates that wait for the
//! answers of the peers. `Peers` knows sessions and connections only by their identifiers.
//!
//! | file | concern |
//! |---|---|
//! | `peer_batch` | a peer batch as data |
//! | `outbound` | the next batch, the unanswered batches, and the bound on them |
//! | `underway` | a peer batch that is being taken apart, as data |
//! | `barrier` | points in the order between shards, for SUBACK |
//! | `answer` | the SUBACK or UNSUBACK that waits for a barrier |
//!
//! The shard takes a peer batch apart (`shard/delivery/peer_batches.rs`), and commits a publication
//! of several shards (`durability/transaction.rs`).

pub(crate) mod answer;
pub(crate) mod barrier;
pub mod outbound;
pub mod peer_batch;
pub(crate) mod underway;

use crate::mqtt::charge::Recounted;
use crate::persistence::records::Lsn;
use crate::routing::retained_order::Place;
use crate::routing::subscription_tree::{ShardId, ShardSet};
use crate::slots::ConnectionId;
use barrier::{AfterBarrier, Barriers};
use outbound::Peer;
use peer_batch::{Item, PeerBatch};

/// The items that one shard sends to its peers and gets from them.
#[derive(Debug)]
pub(crate) struct Peers {
    here: ShardId,
    /// The peers by shard number. The entry of this shard stays empty.
    all: Vec<Peer>,
    barriers: Barriers,
    /// The publishers that wait until peers have room, each once, with these peers.
    waiting_for_peer: Vec<(ConnectionId, ShardSet)>,
}

impl Peers {
    /// Returns the peers of the shard `here`, in a broker of `shards` shards.
    pub(crate) fn new(here: ShardId, shards: u8) -> Peers {
        Peers {
            here,
            all: (0..shards).map(|_| Peer::default()).collect(),
            barriers: Barriers::default(),
            waiting_for_peer: Vec::new(),
        }
    }

    /// Returns this shard.
    #[inline]
    pub(crate) fn here(&self) -> ShardId {
        self.here
    }

    /// Returns the number of shards of the broker, with this one.
    pub(crate) fn shards(&self) -> u8 {
        self.all.len() as u8
    }

    /// Returns one peer, or `None` if the broker has no such shard.
    #[inline]
    pub(crate) fn peer(&mut self, shard: ShardId) -> Option<&mut Peer> {
        self.all.get_mut(usize::from(shard.0))
    }

    /// Returns all shards other than this one.
    pub(crate) fn others(&mut self) -> impl Iterator<Item = &mut Peer> {
        let here = usize::from(self.here.0);
        self.all.iter_mut().enumerate().filter(move |(at, _)| *at != here).map(|(_, peer)| peer)
    }

    /// Returns true if some peer has an item for its next batch.
    pub(crate) fn has_outgoing(&self) -> bool {
        self.all.iter().any(Peer::has_outgoing)
    }

    /// Returns true if some peer has as many unanswered publications as it may have.
    pub(crate) fn is_any_full(&self) -> bool {
        self.all.iter().any(Peer::is_full)
    }

    /// Ends the turn. Appends one batch to `batches` for each peer that has items.
    pub(crate) fn seal(&mut self, batches: &mut Vec<(ShardId, PeerBatch)>) {
        for (at, peer) in self.all.iter_mut().enumerate() {
            batches.extend(peer.seal(self.here).map(|batch| (ShardId(at as u8), batch)));
        }
    }

    /// Ends a turn in which no batch may be sealed. The items stay here and grow from turn to turn,
    /// so their charge is updated.
    pub(crate) fn account(&mut self) {
        self.all.iter_mut().for_each(Peer::account);
    }

    /// Notes that the batch `lsn` and all before it are committed. Answers that waited for this
    /// commit are sent.
    pub(crate) fn committed(&mut self, lsn: Lsn) {
        self.all.iter_mut().for_each(|peer| peer.committed(lsn));
    }

    /// Returns the bytes that peers may have to store for publications that they have not answered.
    pub(crate) fn unsettled_bytes(&self) -> usize {
        self.all.iter().map(Peer::unsettled_bytes).sum()
    }

    /// Returns the number of publications that peers have not answered, or hold.
    pub(crate) fn unsettled(&self) -> usize {
        self.all.iter().map(Peer::unsettled).sum()
    }

    /// Returns the number of peer batches with publications that the peers have not answered.
    pub(crate) fn pending_batches(&self) -> usize {
        self.all.iter().map(Peer::pending_batches).sum()
    }

    /// Adds a publisher that waits until each of the peers in `full` has room.
    pub(crate) fn wait_for(&mut self, id: ConnectionId, full: ShardSet) {
        self.waiting_for_peer.push((id, full));
    }

    /// Removes and returns the publishers that wait for no other peer, if the peer `shard` has room
    /// now. Otherwise returns none. A publisher that also waits for other peers stays.
    pub(crate) fn freed_by(&mut self, shard: ShardId) -> Vec<ConnectionId> {
        if !self.all.get(usize::from(shard.0)).is_some_and(Peer::has_room) {
            return Vec::new();
        }
        let freed = |(_, full): &mut (ConnectionId, ShardSet)| full.remove(shard) && full.is_empty();
        self.waiting_for_peer.extract_if(.., freed).map(|(id, _)| id).collect()
    }

    /// Returns the number of publishers that wait for peers.
    pub(crate) fn waiting_for_peer(&self) -> usize {
        self.waiting_for_peer.len()
    }

    /// Sends a barrier to all peers. `then` is done when all peers have passed the barrier. The
    /// broker must have at least one peer.
    pub(crate) fn raise_barrier(&mut self, then: AfterBarrier) {
        let token = self.barriers.raise(self.all.len() - 1, then);
        for peer in self.others() {
            peer.send(Item::PeerBarrier { token });
        }
    }

    /// Notes that one more peer has passed a barrier, at a place of its own order. Returns the work
    /// that waits for the barrier if that was the last peer.
    pub(crate) fn pass_barrier(&mut self, token: u64, by: (ShardId, Place)) -> Option<AfterBarrier> {
        self.barriers.pass(token, by)
    }

    /// Returns the number of barriers that some peer has not passed.
    pub(crate) fn barriers(&self) -> usize {
        self.barriers.len()
    }

    /// Recounts the charge of each peer.
    pub(crate) fn recount(&self) -> impl Iterator<Item = Recounted> {
        self.all.iter().map(crate::mqtt::charge::Recount::recount)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slots::Id;

    #[test]
    fn a_publisher_is_freed_when_the_last_peer_that_it_waits_for_has_room() {
        let mut peers = Peers::new(ShardId(0), 3);
        let publisher = Id::new(7, 0);
        let mut full = ShardSet::EMPTY;
        full.insert(ShardId(1));
        full.insert(ShardId(2));
        peers.wait_for(publisher, full);
        assert_eq!(peers.freed_by(ShardId(1)), []);
        assert_eq!(peers.freed_by(ShardId(2)), [publisher]);
        assert_eq!(peers.waiting_for_peer(), 0);
    }

    /// The peers of a broker of three shards in which the peer 1 has as many publications as it may
    /// have.
    fn full() -> Peers {
        let mut peers = Peers::new(ShardId(0), 3);
        while !peers.is_any_full() {
            let peer = peers.peer(ShardId(1)).expect("three shards");
            peer.publish(Item::PeerBarrier { token: 1 }, 1, None);
        }
        peers
    }

    #[test]
    fn a_publisher_stays_until_the_peer_has_room_and_a_turn_makes_none() {
        let mut peers = full();
        let publisher = Id::new(7, 0);
        let mut full = ShardSet::EMPTY;
        full.insert(ShardId(1));
        peers.wait_for(publisher, full);
        assert_eq!(peers.freed_by(ShardId(1)), []);
        peers.seal(&mut Vec::new());
        assert!(peers.is_any_full(), "a batch without a ticket counts");
        assert_eq!(peers.freed_by(ShardId(1)), []);
        assert!(peers.unsettled() > 0 && peers.unsettled_bytes() >= peers.unsettled());
        peers.peer(ShardId(1)).expect("three shards").settle(1);
        assert_eq!((peers.unsettled(), peers.unsettled_bytes()), (0, 0));
        assert_eq!(peers.freed_by(ShardId(1)), [publisher]);
        assert_eq!(peers.freed_by(ShardId(1)), [], "once");
    }

    #[test]
    fn a_peer_without_items_gets_no_batch() {
        let mut peers = full();
        let mut batches = Vec::new();
        assert!(peers.has_outgoing());
        peers.seal(&mut batches);
        assert_eq!(batches.iter().map(|(to, batch)| (to.0, batch.from.0)).collect::<Vec<_>>(), [(1, 0)]);
        assert!(!peers.has_outgoing());
        peers.seal(&mut batches);
        assert_eq!(batches.len(), 1);
    }

    #[test]
    fn there_is_no_peer_beyond_the_shards_of_the_broker() {
        let mut peers = Peers::new(ShardId(0), 2);
        assert_eq!((peers.shards(), peers.others().count()), (2, 1));
        assert!(peers.peer(ShardId(2)).is_none());
        assert_eq!(peers.freed_by(ShardId(2)), []);
    }

    #[test]
    fn a_barrier_goes_to_every_other_shard_and_not_to_this_one() {
        let mut peers = Peers::new(ShardId(1), 3);
        peers.raise_barrier(AfterBarrier::ReadOrphanedQueues);
        let mut batches = Vec::new();
        peers.seal(&mut batches);
        assert_eq!(batches.iter().map(|(to, _)| to.0).collect::<Vec<_>>(), [0, 2]);
        let mut pass = |peer| peers.pass_barrier(1, (ShardId(peer), 0));
        assert!(pass(0).is_none() && pass(2).is_some());
    }
}
