//! Peer barriers: points in the order between this shard and every other one.
//!
//! The shard sends a barrier to each peer, behind all items that the peer must handle first. A peer
//! answers the barrier after it has handled these items. When all peers have answered, the items
//! are in force in every shard, and the work that waits for the barrier is done. A barrier costs
//! two items for each peer.

use crate::peers::answer::Answer;
use crate::routing::retained_order::Place;
use crate::routing::subscription_tree::ShardId;
use crate::slots::{ConnectionId, SessionId};
use hashbrown::HashMap;

/// The barriers that some peer has not passed yet.
#[derive(Debug, Default)]
pub(crate) struct Barriers {
    raised: HashMap<u64, PeerBarrier, foldhash::fast::FixedState>,
    /// The token of the latest barrier.
    last: u64,
}

#[derive(Debug)]
struct PeerBarrier {
    /// Number of peers that have not passed the barrier.
    remaining: usize,
    then: AfterBarrier,
}

/// Work that waits for a barrier.
#[derive(Debug)]
pub(crate) enum AfterBarrier {
    /// SUBACK or UNSUBACK is sent.
    Answer { connection: ConnectionId, session: SessionId, answer: Answer },
    /// The messages that were left before the start are read and offered, because the members of
    /// every group are known now.
    ReadOrphanedQueues,
}

impl Barriers {
    /// Raises a barrier for `peers` peers, at least one. Returns the token of the barrier.
    pub(crate) fn raise(&mut self, peers: usize, then: AfterBarrier) -> u64 {
        self.last += 1;
        self.raised.insert(self.last, PeerBarrier { remaining: peers, then });
        self.last
    }

    /// Notes that another peer has passed a barrier, at this place of its own order. Returns the
    /// work that waits for the barrier if that was the last peer.
    pub(crate) fn pass(&mut self, token: u64, (peer, at): (ShardId, Place)) -> Option<AfterBarrier> {
        let barrier = self.raised.get_mut(&token)?;
        if let AfterBarrier::Answer { answer, .. } = &mut barrier.then
            && let Some(reading) = &mut answer.retained.reading
        {
            reading.passed_by(peer, at);
        }
        barrier.remaining = barrier.remaining.saturating_sub(1);
        if barrier.remaining > 0 {
            return None;
        }
        self.raised.remove(&token).map(|barrier| barrier.then)
    }

    /// Returns the number of barriers that some peer has not passed.
    pub(crate) fn len(&self) -> usize {
        self.raised.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_for_a_barrier_comes_with_the_last_peer_and_once() {
        let mut barriers = Barriers::default();
        let first = barriers.raise(2, AfterBarrier::ReadOrphanedQueues);
        let second = barriers.raise(1, AfterBarrier::ReadOrphanedQueues);
        let (one, two) = ((ShardId(1), 0), (ShardId(2), 0));
        assert!(barriers.pass(first, one).is_none());
        assert!(barriers.pass(second, one).is_some() && barriers.pass(second, two).is_none());
        assert_eq!(barriers.len(), 1);
        assert!(barriers.pass(first, two).is_some());
        assert_eq!(barriers.len(), 0);
    }
}
