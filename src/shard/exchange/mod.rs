//! Messages between the shards of one broker: one batch per peer and turn, answered by one ticket.
//!
//! `Exchange` owns what this shard has for its peers and from them. It knows no session and no
//! connection but by identifier.
//!
//! | file | concern |
//! |---|---|
//! | `outbound` | what a batch carries, what a peer has not answered yet, and when a publisher has to wait |
//! | `underway`, `inbound` | a peer's batch that is taken apart, as data; the code that takes it apart |
//! | `barrier` | points in the order between shards, for SUBACK |
//! | `transaction` | publications that several shards commit together or not at all |

pub(crate) mod barrier;
mod inbound;
pub mod outbound;
mod transaction;
pub(crate) mod underway;

use crate::mqtt::charge::Recounted;
use crate::persistence::records::Lsn;
use crate::routing::subscription_tree::{ShardId, ShardSet};
use crate::shard::slots::ConnectionId;
use barrier::{AfterBarrier, Barriers};
use outbound::{Item, Peer, PeerBatch};

/// What one shard exchanges with all others.
#[derive(Debug)]
pub(crate) struct Exchange {
    here: ShardId,
    /// By shard. The place of this shard stays empty.
    peers: Vec<Peer>,
    barriers: Barriers,
    /// Publishers that wait until peers have room, each once, with the peers.
    waiting_for_peer: Vec<(ConnectionId, ShardSet)>,
}

impl Exchange {
    /// The exchange of the shard `here` of `shards`.
    pub(crate) fn new(here: ShardId, shards: u8) -> Exchange {
        Exchange {
            here,
            peers: (0..shards).map(|_| Peer::default()).collect(),
            barriers: Barriers::default(),
            waiting_for_peer: Vec::new(),
        }
    }

    /// Returns how many shards the broker has, this one included.
    pub(crate) fn shards(&self) -> u8 {
        self.peers.len() as u8
    }

    /// Returns what is exchanged with one shard; `None` if the broker has no such shard.
    #[inline]
    pub(crate) fn peer(&mut self, shard: ShardId) -> Option<&mut Peer> {
        self.peers.get_mut(usize::from(shard.0))
    }

    /// The shards other than this one.
    pub(crate) fn others(&mut self) -> impl Iterator<Item = &mut Peer> {
        let here = usize::from(self.here.0);
        self.peers.iter_mut().enumerate().filter(move |(at, _)| *at != here).map(|(_, peer)| peer)
    }

    /// True if something is there for the next batches.
    pub(crate) fn has_outgoing(&self) -> bool {
        self.peers.iter().any(Peer::has_outgoing)
    }

    /// True if some peer has as much from here as it should.
    pub(crate) fn is_any_full(&self) -> bool {
        self.peers.iter().any(Peer::is_full)
    }

    /// Ends the turn: adds the batch for each peer that is sent one.
    pub(crate) fn seal(&mut self, batches: &mut Vec<(ShardId, PeerBatch)>) {
        for (at, peer) in self.peers.iter_mut().enumerate() {
            batches.extend(peer.seal(self.here).map(|batch| (ShardId(at as u8), batch)));
        }
    }

    /// Ends the turn where nothing may be sealed: what waits grows from turn to turn, and is
    /// charged.
    pub(crate) fn account(&mut self) {
        self.peers.iter_mut().for_each(Peer::account);
    }

    /// Notes that everything up to this batch is committed.
    pub(crate) fn committed(&mut self, lsn: Lsn) {
        self.peers.iter_mut().for_each(|peer| peer.committed(lsn));
    }

    /// Returns the bytes that peers may have to store of publications that they have not answered.
    pub(crate) fn unsettled_bytes(&self) -> usize {
        self.peers.iter().map(Peer::unsettled_bytes).sum()
    }

    /// Returns how many publications peers have not answered, or hold.
    pub(crate) fn unsettled(&self) -> usize {
        self.peers.iter().map(Peer::unsettled).sum()
    }

    /// Notes a publisher that waits until each of these peers has room.
    pub(crate) fn wait_for(&mut self, id: ConnectionId, full: ShardSet) {
        self.waiting_for_peer.push((id, full));
    }

    /// Returns the publishers that wait for nobody any more, now that this peer has room, if it
    /// has. A publisher that waits for one peer does not wait for others.
    pub(crate) fn freed_by(&mut self, shard: ShardId) -> Vec<ConnectionId> {
        if !self.peers.get(usize::from(shard.0)).is_some_and(Peer::has_room) {
            return Vec::new();
        }
        let freed = |(_, full): &mut (ConnectionId, ShardSet)| full.remove(shard) && full.is_empty();
        self.waiting_for_peer.extract_if(.., freed).map(|(id, _)| id).collect()
    }

    /// Returns how many publishers wait for peers.
    pub(crate) fn waiting_for_peer(&self) -> usize {
        self.waiting_for_peer.len()
    }

    /// Raises a barrier before all peers, of which there is one at least.
    pub(crate) fn raise_barrier(&mut self, then: AfterBarrier) {
        let token = self.barriers.raise(self.peers.len() - 1, then);
        for peer in self.others() {
            peer.send(Item::PeerBarrier { token });
        }
    }

    /// Notes that one peer more has passed a barrier. Returns what waits for it if that was the
    /// last peer.
    pub(crate) fn pass_barrier(&mut self, token: u64) -> Option<AfterBarrier> {
        self.barriers.pass(token)
    }

    /// Returns how many barriers some peer has not passed.
    pub(crate) fn barriers(&self) -> usize {
        self.barriers.len()
    }

    /// Recounts what each peer has on the account.
    pub(crate) fn recount(&self) -> impl Iterator<Item = Recounted> {
        self.peers.iter().map(crate::mqtt::charge::Recount::recount)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::slots::Id;

    #[test]
    fn a_publisher_is_freed_when_the_last_peer_that_it_waits_for_has_room() {
        let mut exchange = Exchange::new(ShardId(0), 3);
        let publisher = Id::new(7, 0);
        let mut full = ShardSet::EMPTY;
        full.insert(ShardId(1));
        full.insert(ShardId(2));
        exchange.wait_for(publisher, full);
        assert_eq!(exchange.freed_by(ShardId(1)), []);
        assert_eq!(exchange.freed_by(ShardId(2)), [publisher]);
        assert_eq!(exchange.waiting_for_peer(), 0);
    }

    #[test]
    fn a_barrier_goes_to_every_other_shard_and_not_to_this_one() {
        let mut exchange = Exchange::new(ShardId(1), 3);
        exchange.raise_barrier(AfterBarrier::ReadOrphanedQueues);
        let mut batches = Vec::new();
        exchange.seal(&mut batches);
        assert_eq!(batches.iter().map(|(to, _)| to.0).collect::<Vec<_>>(), [0, 2]);
        assert!(exchange.pass_barrier(1).is_none() && exchange.pass_barrier(1).is_some());
    }
}
