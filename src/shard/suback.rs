//! SUBACK and UNSUBACK, and the retained messages behind a SUBACK.
//!
//! The retained messages that a SUBSCRIBE asks for are walked and queued in portions, in later
//! turns where one does not do for them, with the connection paused meanwhile. What changes in
//! between is seen if it is ahead; else it arrives live, because the subscription is in force. To a
//! session that is in the store SUBACK promises what is retained, so SUBACK leaves when the last
//! portion is committed: until then the outbox is held behind it.

use crate::mqtt::charge::Charge;
use crate::mqtt::message::Message;
use crate::mqtt::packet::{PacketId, QoS, ReasonCode};
use crate::mqtt::subscription_ids::SubscriptionIds;
use crate::persistence::records::Lsn;
use crate::routing::retained::{Cursor, SearchProgress};
use crate::session::drops::{DropReason, Dropped};
use crate::session::outbound::queue::Delivery;
use crate::session::subscriptions::AnswerKind;
use crate::shard::Shard;
use crate::shard::admission::Change;
use crate::shard::durability::session_records::record_delivery;
use crate::shard::slots::{ConnectionId, SessionId};
use crate::shard::turn::Job;
use crate::time::Instant;
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use std::hash::BuildHasher;

/// Retained messages that are looked at while their store is locked.
const AT_ONCE: usize = 1_000;

/// Number of requests above which one is found by its hash.
const FEW_REQUESTS: usize = 8;

/// Bytes of retained messages that are written for the price of a step.
const SENT_BYTES: usize = 64;

/// What a SUBSCRIBE or UNSUBSCRIBE is answered with.
#[derive(Debug)]
pub(super) struct Answer {
    packet_id: PacketId,
    kind: AnswerKind,
    pub reasons: Vec<ReasonCode>,
    /// Filters that were refused for want of room, and for want of what.
    pub refused: usize,
    pub what: &'static str,
    pub retained: RetainedRequests,
}

impl Answer {
    pub fn new(kind: AnswerKind, packet_id: PacketId, filters: usize) -> Answer {
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
struct RetainedRequest {
    filter: Box<str>,
    qos: QoS,
    subscription_id: u32,
}

/// What a SUBSCRIBE asks for of what is retained: each filter once, however often it is named.
#[derive(Debug, Default)]
pub(super) struct RetainedRequests {
    requests: Vec<RetainedRequest>,
    /// Places in `requests`, by the hash of the filter; empty while there are few.
    index: HashTable<u32>,
    hasher: RandomState,
}

impl RetainedRequests {
    /// A filter was named, `wanted` with its retained messages; if it was wanted before, the last
    /// options hold.
    pub fn ask(&mut self, filter: &str, qos: QoS, subscription_id: u32, wanted: bool) {
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

    fn memory(&self) -> usize {
        self.requests.capacity() * size_of::<RetainedRequest>()
            + self.requests.iter().map(|w| w.filter.len()).sum::<usize>()
    }
}

/// Retained messages on their way to a session.
#[derive(Debug)]
pub(super) struct RetainedDelivery {
    pub connection: ConnectionId,
    session: SessionId,
    requests: Vec<RetainedRequest>,
    /// The first request that is not done with, and how far it is.
    next: usize,
    cursor: Cursor,
    /// Whether SUBACK waits for the last of it.
    held: bool,
    _charge: Charge,
}

impl Shard {
    /// Writes SUBACK or UNSUBACK, then what is retained. A connection that is gone gets neither;
    /// its session keeps the subscription. Returns the job that is left.
    pub(super) fn answer(
        &mut self,
        now: Instant,
        id: ConnectionId,
        session: SessionId,
        answer: Answer,
    ) -> Option<Job> {
        let Answer { packet_id, kind, reasons, retained, .. } = answer;
        let held = !retained.requests.is_empty() && self.is_stored(session);
        if self.is_stored(session) && !held {
            self.hold_until_commit(id);
        }
        let Shard { connections, scratch, unflushed, .. } = self;
        let connection = connections.get_mut(id).filter(|c| c.session == Some(session))?;
        if held {
            connection.wire.outbox.hold();
        }
        connection.wire.outbox.lend(&mut scratch.pool);
        *unflushed += reasons.len();
        let _ = connection.wire.put(&kind.packet(packet_id, reasons));
        self.touch(id);
        if retained.requests.is_empty() {
            return None;
        }
        let _charge = Charge::new(retained.memory());
        let RetainedRequests { requests, .. } = retained;
        let retaining = RetainedDelivery {
            connection: id,
            session,
            requests,
            next: 0,
            cursor: Cursor::default(),
            held,
            _charge,
        };
        let job = Box::new(retaining);
        if self.turn.is_over() { Some(Job::Retained(job)) } else { self.go_on_with_retained(now, job) }
    }

    /// Goes on with the retained messages of a SUBSCRIBE; the job that is left. The session gets
    /// all of them, even if its connection is gone or another: a SUBACK may have been read.
    pub(super) fn go_on_with_retained(
        &mut self,
        now: Instant,
        mut retaining: Box<RetainedDelivery>,
    ) -> Option<Job> {
        let RetainedDelivery { connection, session, held, .. } = *retaining;
        while retaining.next < retaining.requests.len() && self.sessions.get(session).is_some() {
            self.queue_retained(now, &mut retaining);
            if self.turn.is_over() {
                break;
            }
        }
        self.send_retained(now, session);
        if retaining.next < retaining.requests.len() && self.sessions.get(session).is_some() {
            return Some(Job::Retained(retaining));
        }
        if held && let Some(write_buffer) = self.write_buffer() {
            // What it came to is recorded, the last of it in the batch that is being filled.
            write_buffer.begin();
            let lsn = write_buffer.lsn();
            self.release(connection, lsn);
        }
        None
    }

    fn release(&mut self, id: ConnectionId, lsn: Lsn) {
        if let Some(connection) = self.connections.get_mut(id) {
            connection.wire.outbox.release(lsn);
        }
        self.touch(id);
    }

    /// Queues retained messages that match, beyond the queue's own limit: each is a reference, and
    /// there are at most as many more as are retained. The window and the outbox pace them.
    // 3.1.1 [MQTT-3.3.1-8]
    fn queue_retained(&mut self, now: Instant, retaining: &mut RetainedDelivery) {
        let RetainedDelivery { session, ref requests, ref mut next, ref mut cursor, .. } = *retaining;
        let Some(request) = requests.get(*next) else { return };
        let mut found = Vec::new();
        // One that matches costs up to four steps.
        let most = AT_ONCE.min((self.turn.left() / 4).max(1) as usize);
        let mut left = most;
        // In parts, so that other shards' retained messages do not wait for all of it.
        let progress =
            self.shared.retained().matching_from(cursor, &request.filter, now, &mut left, &mut found);
        self.turn.charge(1 + (most - left) as u32);
        if progress == SearchProgress::Done {
            let connection = self.sessions.get(session).and_then(|r| r.connection);
            found.extend(connection.and_then(|id| self.granted_message(id, &request.filter)));
            *next += 1;
            *cursor = Cursor::default();
        }
        self.queue_found(session, request, found);
    }

    fn queue_found(&mut self, session: SessionId, request: &RetainedRequest, mut found: Vec<Message>) {
        let all = self.shared.retained().len();
        self.drop_beyond_room(session, request.qos, &mut found);
        let Shard { sessions, settings, counters, turn, .. } = self;
        let Some(session_entry) = sessions.get_mut(session) else { return };
        // Each of them is a row in the store too, if there is one.
        let steps = if session_entry.session.row().is_some() { 3 } else { 1 };
        turn.charge(found.len() as u32 * steps);
        // A client that asks again and again and acknowledges nothing gets them once.
        let most = session_entry.session.queue_limits(&settings.session.send).messages + all;
        let room = most.saturating_sub(session_entry.session.sender.queued());
        let beyond = found.split_off(room.min(found.len()));
        for message in beyond {
            counters.drops.lose(Dropped::unsent(DropReason::QueueRefused, message));
        }
        for message in found {
            let qos = message.header().qos.min(request.qos);
            let ids = SubscriptionIds::from_index(request.subscription_id);
            let mut delivery = Delivery { message, ids, qos, retain: true, share: None, stored: None };
            if qos != QoS::AtMostOnce {
                delivery.stored = record_delivery(session_entry.session.row(), &mut None, &delivery, None);
            }
            session_entry.session.sender.enqueue_retained(delivery);
        }
        self.report_drops(session);
    }

    /// Drops and counts those of the messages that there is no memory or disk for. Each takes a
    /// place in the queue, whatever its message takes: some 50 B, for as many as are retained and
    /// each client. In the store each is a row of its own.
    ///
    /// The subscription holds all the same: a client that subscribes again at each return must not
    /// be refused for it.
    fn drop_beyond_room(&mut self, session: SessionId, qos: QoS, found: &mut Vec<Message>) {
        if !self.is_short() {
            return;
        }
        let (is_stored, mut bytes) = (self.is_stored(session), 0);
        for message in std::mem::take(found) {
            let stored = is_stored && message.header().qos.min(qos) != QoS::AtMostOnce;
            let more = if stored { bytes + message.size() } else { bytes };
            match self.admits(Change::Recall { bytes: more, stored }) {
                Ok(()) => {
                    bytes = more;
                    found.push(message);
                }
                Err(want) => self.counters.drops.lose(Dropped::unsent(want.cause(), message)),
            }
        }
    }

    /// Sends of what is queued what the window and the outbox take.
    fn send_retained(&mut self, now: Instant, session: SessionId) {
        let Shard { connections, sessions, settings, counters, scratch, unflushed, turn, .. } = self;
        let Some(session_entry) = sessions.get_mut(session) else { return };
        let at = session_entry.connection.and_then(|id| connections.get_mut(id));
        let Some(connection) = at else { return };
        connection.wire.outbox.lend(&mut scratch.pool);
        let before = connection.wire.outbox.len();
        session_entry.session.sender.pump(now, &mut connection.wire, &settings.session.send, counters);
        let appended = connection.wire.outbox.len().saturating_sub(before);
        *unflushed += appended;
        turn.charge((appended / SENT_BYTES) as u32);
        self.after_session_change(now, session);
    }
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
                    requests.ask(&format!("f/{n}"), QoS::AtMostOnce, round, round != 2);
                }
            }
            requests.ask("not wanted", QoS::AtMostOnce, 9, false);
            let row: Vec<_> =
                requests.requests.iter().map(|w| (w.filter.to_string(), w.subscription_id)).collect();
            assert_eq!(row, (0..different).map(|n| (format!("f/{n}"), 2)).collect::<Vec<_>>());
        }
    }
}
