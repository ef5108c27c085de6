//! A peer batch that is being taken apart, as data.

use crate::mqtt::charge::Charge;
use crate::mqtt::outcome::Outcome;
use crate::peers::outbound::{Needs, Readiness};
use crate::peers::peer_batch::{Item, PeerBatch};
use crate::routing::subscription_tree::ShardId;

/// A peer batch that is being taken apart, and the position in it.
#[derive(Debug)]
pub(crate) struct Underway {
    /// The shard that sent the batch.
    pub from: ShardId,
    /// The number of the batch.
    pub number: u64,
    /// The items that are not handled yet.
    pub items: std::vec::IntoIter<Item>,
    /// The items other than publications. These items are handled after all publications.
    pub others: Vec<Item>,
    /// Number of publications that are complete.
    pub publications: u32,
    /// As in [`Item::Ticket`].
    pub not_taken: Vec<(u32, Outcome)>,
    /// As in [`Item::Ticket`].
    pub deferred: Vec<(u32, u32)>,
    /// The commits that the ticket must wait for.
    pub needs: Needs,
    /// True if the batch takes more than one turn. Its ticket is then promised.
    pub put_off: bool,
    /// The charge of `items`, and of the items that move from there to `others`.
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
            deferred: Vec::new(),
            needs: Needs::default(),
            put_off: false,
            _charge: peer_batch.charge,
        }
    }

    /// Notes the outcome of the next publication. `deferred` is the number of answers that follow
    /// the ticket.
    pub(crate) fn delivered(&mut self, outcome: Outcome, deferred: u32, readiness: Readiness) {
        self.needs.add(readiness);
        if deferred > 0 {
            self.deferred.push((self.publications, deferred));
        }
        if outcome != Outcome::Taken {
            self.not_taken.push((self.publications, outcome));
        }
        self.publications += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_names_only_publications_that_nobody_took_or_that_are_held() {
        let mut underway =
            Underway::new(PeerBatch { from: ShardId(1), number: 7, items: Vec::new(), charge: Charge::NONE });
        underway.delivered(Outcome::Taken, 0, Readiness::Now);
        underway.delivered(Outcome::Refused, 0, Readiness::Now);
        underway.delivered(Outcome::Taken, 2, Readiness::Now);
        underway.delivered(Outcome::Unmatched, 1, Readiness::Now);
        assert_eq!(underway.publications, 4);
        assert_eq!(underway.not_taken, [(1, Outcome::Refused), (3, Outcome::Unmatched)]);
        assert_eq!(underway.deferred, [(2, 2), (3, 1)]);
    }
}
