//! Barriers: points in the order between this shard and every other one.
//!
//! The shard sends a barrier to each peer behind everything that the peer must know. A peer answers
//! in the order in which it took that in. When all have answered, what waits for the barrier is in
//! force in every shard. Costs two items for each peer.

use crate::shard::answer::Answer;
use crate::shard::slots::{ConnectionId, SessionId};
use hashbrown::HashMap;

/// The barriers that some peer has not passed yet.
#[derive(Debug, Default)]
pub(crate) struct Barriers {
    raised: HashMap<u64, PeerBarrier, foldhash::fast::FixedState>,
    /// The token of the last one.
    last: u64,
}

#[derive(Debug)]
struct PeerBarrier {
    /// Peers that have not passed it.
    remaining: usize,
    then: AfterBarrier,
}

/// Work that waits for a barrier.
#[derive(Debug)]
pub(crate) enum AfterBarrier {
    /// SUBACK or UNSUBACK is sent.
    Answer { connection: ConnectionId, session: SessionId, answer: Answer },
    /// The queues that were orphaned before the start go to the members of groups, since all of
    /// these are known now.
    ReadOrphanedQueues,
}

impl Barriers {
    /// Raises a barrier before `peers` peers, one at least. Returns its token.
    pub(crate) fn raise(&mut self, peers: usize, then: AfterBarrier) -> u64 {
        self.last += 1;
        self.raised.insert(self.last, PeerBarrier { remaining: peers, then });
        self.last
    }

    /// Notes that one peer more has passed a barrier. Returns what waits for it if that was the
    /// last peer.
    pub(crate) fn pass(&mut self, token: u64) -> Option<AfterBarrier> {
        let barrier = self.raised.get_mut(&token)?;
        barrier.remaining = barrier.remaining.saturating_sub(1);
        if barrier.remaining > 0 {
            return None;
        }
        self.raised.remove(&token).map(|barrier| barrier.then)
    }

    /// Returns how many barriers stand.
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
        assert!(barriers.pass(first).is_none());
        assert!(barriers.pass(second).is_some() && barriers.pass(second).is_none());
        assert_eq!(barriers.len(), 1);
        assert!(barriers.pass(first).is_some());
        assert_eq!(barriers.len(), 0);
    }
}
