//! The answer to a SUBSCRIBE or UNSUBSCRIBE, and the retained messages that it asks for, as data.

use crate::mqtt::charge::Charge;
use crate::mqtt::packet::{PacketId, QoS, ReasonCode};
use crate::routing::retained::Cursor;
use crate::session::subscriptions::AnswerKind;
use crate::shard::slots::{ConnectionId, SessionId};
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use std::hash::BuildHasher;

/// Number of requests above which one is found by its hash.
const FEW_REQUESTS: usize = 8;

/// The answer to one SUBSCRIBE or UNSUBSCRIBE.
#[derive(Debug)]
pub(crate) struct Answer {
    pub packet_id: PacketId,
    pub kind: AnswerKind,
    pub reasons: Vec<ReasonCode>,
    /// Number of filters that were refused because a limit is reached.
    pub refused: usize,
    /// The limit.
    pub what: &'static str,
    pub retained: RetainedRequests,
}

impl Answer {
    /// Returns an answer without reason codes, for a packet with this number of filters.
    pub(crate) fn new(kind: AnswerKind, packet_id: PacketId, filters: usize) -> Answer {
        Answer {
            packet_id,
            kind,
            reasons: Vec::with_capacity(filters),
            refused: 0,
            what: "",
            retained: RetainedRequests::default(),
        }
    }
}

/// Retained messages to send once a subscription is in force.
#[derive(Debug)]
pub(crate) struct RetainedRequest {
    pub filter: Box<str>,
    pub qos: QoS,
    pub subscription_id: u32,
}

/// The retained messages that a SUBSCRIBE asks for: each filter once, however often it is named.
#[derive(Debug, Default)]
pub(crate) struct RetainedRequests {
    pub requests: Vec<RetainedRequest>,
    /// Places in `requests`, by the hash of the filter; empty while there are few.
    index: HashTable<u32>,
    hasher: RandomState,
}

impl RetainedRequests {
    /// Adds a filter if `wanted`. A filter that stands there already gets these options.
    pub(crate) fn add(&mut self, filter: &str, qos: QoS, subscription_id: u32, wanted: bool) {
        if let Some(request) = self.find(filter) {
            (request.qos, request.subscription_id) = (qos, subscription_id);
            return;
        }
        if !wanted {
            return;
        }
        self.requests.push(RetainedRequest { filter: filter.into(), qos, subscription_id });
        let RetainedRequests { requests, index, hasher } = self;
        let hash = |at: &u32| requests.get(*at as usize).map_or(0, |w| hasher.hash_one(&*w.filter));
        if requests.len() > FEW_REQUESTS {
            // All of them when there are no longer few.
            let first = if index.is_empty() { 0 } else { requests.len() - 1 };
            for at in first..requests.len() {
                let at = at as u32;
                index.insert_unique(hash(&at), at, hash);
            }
        }
    }

    fn find(&mut self, filter: &str) -> Option<&mut RetainedRequest> {
        let RetainedRequests { requests, index, hasher } = self;
        if index.is_empty() {
            return requests.iter_mut().find(|w| *w.filter == *filter);
        }
        let same = |at: &u32| requests.get(*at as usize).is_some_and(|w| *w.filter == *filter);
        let at = *index.find(hasher.hash_one(filter), same)?;
        requests.get_mut(at as usize)
    }

    /// Returns the bytes of the requests, on the heap.
    pub(crate) fn memory(&self) -> usize {
        self.requests.capacity() * size_of::<RetainedRequest>()
            + self.requests.iter().map(|w| w.filter.len()).sum::<usize>()
    }
}

/// Retained messages on their way to a session.
#[derive(Debug)]
pub(crate) struct RetainedDelivery {
    pub connection: ConnectionId,
    pub session: SessionId,
    pub requests: Vec<RetainedRequest>,
    /// The first request that is not complete, and its position.
    pub next: usize,
    pub cursor: Cursor,
    /// True if SUBACK is held until the last portion is recorded.
    pub held: bool,
    pub _charge: Charge,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_is_named_again_is_asked_for_once_with_its_last_options() {
        for different in [1, FEW_REQUESTS, 1_000] {
            let mut requests = RetainedRequests::default();
            for round in 0..3 {
                for n in 0..different {
                    requests.add(&format!("f/{n}"), QoS::AtMostOnce, round, round != 2);
                }
            }
            requests.add("not wanted", QoS::AtMostOnce, 9, false);
            let row: Vec<_> =
                requests.requests.iter().map(|w| (w.filter.to_string(), w.subscription_id)).collect();
            assert_eq!(row, (0..different).map(|n| (format!("f/{n}"), 2)).collect::<Vec<_>>());
        }
    }
}
