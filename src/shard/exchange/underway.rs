//! A batch from a peer that is being taken apart, as data.

use crate::mqtt::charge::Charge;
use crate::mqtt::outcome::Outcome;
use crate::routing::subscription_tree::ShardId;
use crate::shard::exchange::outbound::{Item, Needs, PeerBatch, Readiness};

/// A batch from a peer, and how far it is.
#[derive(Debug)]
pub(crate) struct Underway {
    pub from: ShardId,
    pub number: u64,
    pub items: std::vec::IntoIter<Item>,
    /// Items other than publications. They are handled after all publications.
    pub others: Vec<Item>,
    /// Number of publications so far.
    pub publications: u32,
    pub not_taken: Vec<(u32, Outcome)>,
    pub held: Vec<(u32, u32)>,
    pub needs: Needs,
    /// True if the batch took more than one turn, so that its ticket is promised.
    pub put_off: bool,
    /// Of `items`, and of those that move from there to `others`.
    _charge: Charge,
}

impl Underway {
    /// Begins to take a batch apart.
    pub(crate) fn new(peer_batch: PeerBatch) -> Underway {
        Underway {
            from: peer_batch.from,
            number: peer_batch.number,
            items: peer_batch.items.into_iter(),
            others: Vec::new(),
            publications: 0,
            not_taken: Vec::new(),
            held: Vec::new(),
            needs: Needs::default(),
            put_off: false,
            _charge: peer_batch.charge,
        }
    }

    /// Notes that the next publication was delivered. `held` is the number of answers that follow
    /// its ticket.
    pub(crate) fn delivered(&mut self, outcome: Outcome, held: u32, readiness: Readiness) {
        self.needs.add(readiness);
        if held > 0 {
            self.held.push((self.publications, held));
        }
        if outcome != Outcome::Taken {
            self.not_taken.push((self.publications, outcome));
        }
        self.publications += 1;
    }
}
