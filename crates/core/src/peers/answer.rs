//! SUBACK or UNSUBACK before it is sent, and the requests for retained messages, as data.

use crate::mqtt::charge::Charge;
use crate::mqtt::packet::{PacketId, QoS, ReasonCode};
use crate::routing::retained::Cursor;
use crate::routing::retained_order::{Place, Reading, RetainedOrder};
use crate::session::subscriptions::AnswerKind;
use crate::slots::{ConnectionId, SessionId};
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use std::hash::BuildHasher;

/// Number of requests above which a filter is found by its hash.
const FEW_REQUESTS: usize = 8;

/// The answer to one SUBSCRIBE or UNSUBSCRIBE.
#[derive(Debug)]
pub(crate) struct Answer {
    pub packet_id: PacketId,
    pub kind: AnswerKind,
    pub reasons: Vec<ReasonCode>,
    pub retained: RetainedRequests,
}

impl Answer {
    /// Returns an answer without reason codes, for a packet with this number of filters.
    pub(crate) fn new(kind: AnswerKind, packet_id: PacketId, filters: usize) -> Answer {
        Answer {
            packet_id,
            kind,
            reasons: Vec::with_capacity(filters),
            retained: RetainedRequests::default(),
        }
    }
}

/// A request for the retained messages that match one filter.
#[derive(Debug)]
pub(crate) struct RetainedRequest {
    pub filter: Box<str>,
    pub qos: QoS,
    pub subscription_id: u32,
    /// The place at which the subscription was inserted.
    pub inserted: Place,
}

/// The requests of one SUBSCRIBE for retained messages. A filter has one request, even if the
/// packet names it several times.
#[derive(Debug, Default)]
pub(crate) struct RetainedRequests {
    pub requests: Vec<RetainedRequest>,
    /// `None` without a request.
    pub reading: Option<Reading>,
    /// Positions in `requests`, by the hash of the filter. Empty if there are few requests.
    index: HashTable<u32>,
    hasher: RandomState,
}

impl RetainedRequests {
    /// Adds a request for a filter. If the filter has a request already, the request gets these
    /// options, because the last subscription of a packet counts.
    pub(crate) fn add(&mut self, filter: &str, qos: QoS, subscription_id: u32, order: &mut RetainedOrder) {
        if self.update(filter, qos, subscription_id) {
            return;
        }
        self.reading.get_or_insert_with(|| order.begin_reading());
        let inserted = order.last();
        self.requests.push(RetainedRequest { filter: filter.into(), qos, subscription_id, inserted });
        let RetainedRequests { requests, index, hasher, .. } = self;
        let hash = |at: &u32| requests.get(*at as usize).map_or(0, |w| hasher.hash_one(&*w.filter));
        if requests.len() > FEW_REQUESTS {
            // The first time, all earlier requests are added to the index too.
            let first = if index.is_empty() { 0 } else { requests.len() - 1 };
            for at in first..requests.len() {
                let at = at as u32;
                index.insert_unique(hash(&at), at, hash);
            }
        }
    }

    /// Gives these options to the request for a filter. Returns false if the filter has none.
    pub(crate) fn update(&mut self, filter: &str, qos: QoS, subscription_id: u32) -> bool {
        let Some(request) = self.find(filter) else { return false };
        (request.qos, request.subscription_id) = (qos, subscription_id);
        true
    }

    fn find(&mut self, filter: &str) -> Option<&mut RetainedRequest> {
        let RetainedRequests { requests, index, hasher, .. } = self;
        if index.is_empty() {
            return requests.iter_mut().find(|w| *w.filter == *filter);
        }
        let same = |at: &u32| requests.get(*at as usize).is_some_and(|w| *w.filter == *filter);
        let at = *index.find(hasher.hash_one(filter), same)?;
        requests.get_mut(at as usize)
    }

    /// Returns the bytes that the requests take on the heap.
    pub(crate) fn memory(&self) -> usize {
        self.requests.capacity() * size_of::<RetainedRequest>()
            + self.requests.iter().map(|w| w.filter.len()).sum::<usize>()
    }
}

/// The work of queueing retained messages for a session, over several turns.
#[derive(Debug)]
pub(crate) struct RetainedDelivery {
    pub connection: ConnectionId,
    pub session: SessionId,
    pub requests: Vec<RetainedRequest>,
    /// The position of the first request that is not complete.
    pub next: usize,
    /// The progress of the search for that request.
    pub cursor: Cursor,
    pub reading: Reading,
    /// True if SUBACK waits until the last portion is recorded.
    pub is_gated: bool,
    pub _charge: Charge,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::subscription_tree::ShardId;

    #[test]
    fn a_filter_that_is_named_again_is_asked_for_once_with_its_last_options() {
        for different in [1, FEW_REQUESTS, 1_000] {
            let mut requests = RetainedRequests::default();
            let mut order = RetainedOrder::new(ShardId(0));
            for round in 0..3 {
                for n in 0..different {
                    let filter = format!("f/{n}");
                    if round == 2 {
                        assert!(requests.update(&filter, QoS::AtMostOnce, round));
                    } else {
                        requests.add(&filter, QoS::AtMostOnce, round, &mut order);
                    }
                }
            }
            assert!(!requests.update("not wanted", QoS::AtMostOnce, 9));
            let row: Vec<_> =
                requests.requests.iter().map(|w| (w.filter.to_string(), w.subscription_id)).collect();
            assert_eq!(row, (0..different).map(|n| (format!("f/{n}"), 2)).collect::<Vec<_>>());
        }
    }
}
