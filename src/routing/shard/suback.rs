//! SUBACK and UNSUBACK, and the retained messages behind a SUBACK.
//!
//! The retained messages that a SUBSCRIBE asks for are walked and queued in portions, in later turns where one does not do for
//! them, with the connection paused meanwhile. What changes in between is seen if it is ahead; else it arrives live, because
//! the subscription is in force. To a session that is in the store SUBACK promises what is retained, so SUBACK leaves when
//! the last portion is committed: until then the outbox is held behind it.

use super::record::owe;
use super::turn::Job;
use super::{ConnectionId, SessionId, Shard};
use crate::journal::record::Lsn;
use crate::mqtt::charge::Charge;
use crate::mqtt::message::Message;
use crate::mqtt::packet::{Packet, PacketId, Properties, QoS, ReasonCode, Suback, Unsuback};
use crate::mqtt::session::loss::{LossCause, Lost};
use crate::mqtt::session::queue::Delivery;
use crate::mqtt::session::subscription::SubscriptionIds;
use crate::routing::retained::{Cursor, Progress};
use crate::time::Instant;
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use std::hash::BuildHasher;

/// Retained messages that are looked at while their store is locked.
const AT_ONCE: usize = 1_000;

/// Wishes beyond which one is found by its hash.
const FEW_WISHES: usize = 8;

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
    pub retained: Wishes,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum AnswerKind {
    Suback,
    Unsuback,
}

impl Answer {
    pub fn new(kind: AnswerKind, packet_id: PacketId, filters: usize) -> Answer {
        Answer {
            packet_id,
            kind,
            reasons: Vec::with_capacity(filters),
            refused: 0,
            what: "",
            retained: Wishes::default(),
        }
    }
}

/// Retained messages to send once a subscription is in force.
#[derive(Debug)]
struct Wish {
    filter: Box<str>,
    qos: QoS,
    subscription_id: u32,
}

/// What a SUBSCRIBE asks for of what is retained: each filter once, however often it is named.
#[derive(Debug, Default)]
pub(super) struct Wishes {
    wishes: Vec<Wish>,
    /// Places in `wishes`, by the hash of the filter; empty while there are few.
    index: HashTable<u32>,
    hasher: RandomState,
}

impl Wishes {
    /// A filter was named, `wanted` with its retained messages; if it was wanted before, the last options hold.
    pub fn ask(&mut self, filter: &str, qos: QoS, subscription_id: u32, wanted: bool) {
        if let Some(wish) = self.find(filter) {
            (wish.qos, wish.subscription_id) = (qos, subscription_id);
            return;
        }
        if !wanted {
            return;
        }
        self.wishes.push(Wish { filter: filter.into(), qos, subscription_id });
        let Wishes { wishes, index, hasher } = self;
        let hash = |at: &u32| wishes.get(*at as usize).map_or(0, |w| hasher.hash_one(&*w.filter));
        if wishes.len() > FEW_WISHES {
            // All of them when there are no longer few.
            let first = if index.is_empty() { 0 } else { wishes.len() - 1 };
            for at in first..wishes.len() {
                let at = at as u32;
                index.insert_unique(hash(&at), at, hash);
            }
        }
    }

    fn find(&mut self, filter: &str) -> Option<&mut Wish> {
        let Wishes { wishes, index, hasher } = self;
        if index.is_empty() {
            return wishes.iter_mut().find(|w| *w.filter == *filter);
        }
        let same = |at: &u32| wishes.get(*at as usize).is_some_and(|w| *w.filter == *filter);
        let at = *index.find(hasher.hash_one(filter), same)?;
        wishes.get_mut(at as usize)
    }

    fn memory(&self) -> usize {
        self.wishes.capacity() * size_of::<Wish>() + self.wishes.iter().map(|w| w.filter.len()).sum::<usize>()
    }
}

/// Retained messages on their way to a session.
#[derive(Debug)]
pub(super) struct Retaining {
    pub connection: ConnectionId,
    session: SessionId,
    wishes: Vec<Wish>,
    /// The first wish that is not done with, and how far it is.
    next: usize,
    cursor: Cursor,
    /// Whether SUBACK waits for the last of it.
    held: bool,
    _charge: Charge,
}

impl Shard {
    /// Writes SUBACK or UNSUBACK, then what is retained. A connection that is gone gets neither; its session keeps the
    /// subscription. Returns the job that is left.
    // 3.1.1 and 5.0 [MQTT-3.8.4-1], [MQTT-3.8.4-2], [MQTT-3.10.4-4], [MQTT-3.10.4-5]
    pub(super) fn answer(
        &mut self,
        now: Instant,
        id: ConnectionId,
        session: SessionId,
        answer: Answer,
    ) -> Option<Job> {
        let Answer { packet_id, kind, reasons, retained, .. } = answer;
        let held = !retained.wishes.is_empty() && self.is_stored(session);
        if self.is_stored(session) && !held {
            self.fence(id);
        }
        let Shard { connections, pool, unflushed, .. } = self;
        let connection = connections.get_mut(id).filter(|c| c.session == Some(session))?;
        if held {
            connection.wire.outbox.hold();
        }
        connection.wire.outbox.lend(pool);
        *unflushed += reasons.len();
        let properties = Properties::EMPTY;
        let packet = match kind {
            AnswerKind::Suback => Packet::Suback(Suback { packet_id, properties, reasons }),
            AnswerKind::Unsuback => Packet::Unsuback(Unsuback { packet_id, properties, reasons }),
        };
        let _ = connection.wire.put(&packet);
        self.touch(id);
        if retained.wishes.is_empty() {
            return None;
        }
        let _charge = Charge::new(retained.memory());
        let Wishes { wishes, .. } = retained;
        let retaining =
            Retaining { connection: id, session, wishes, next: 0, cursor: Cursor::default(), held, _charge };
        let job = Box::new(retaining);
        if self.turn.is_over() { Some(Job::Retained(job)) } else { self.go_on_with_retained(now, job) }
    }

    /// Goes on with the retained messages of a SUBSCRIBE; the job that is left. The session gets all of them, even if its
    /// connection is gone or another: a SUBACK may have been read.
    pub(super) fn go_on_with_retained(&mut self, now: Instant, mut retaining: Box<Retaining>) -> Option<Job> {
        let Retaining { connection, session, held, .. } = *retaining;
        while retaining.next < retaining.wishes.len() && self.sessions.get(session).is_some() {
            self.queue_retained(now, &mut retaining);
            if self.turn.is_over() {
                break;
            }
        }
        self.send_retained(now, session);
        if retaining.next < retaining.wishes.len() && self.sessions.get(session).is_some() {
            return Some(Job::Retained(retaining));
        }
        if held && let Some(ledger) = self.ledger() {
            // What it came to is recorded, the last of it in the batch that is being filled.
            ledger.begin();
            let lsn = ledger.lsn();
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

    /// Queues retained messages that match, beyond the queue's own limit: each is a reference, and there are at most as
    /// many more as are retained. The window and the outbox pace them.
    // 3.1.1 [MQTT-3.3.1-8]
    fn queue_retained(&mut self, now: Instant, retaining: &mut Retaining) {
        let Retaining { session, ref wishes, ref mut next, ref mut cursor, .. } = *retaining;
        let Some(wish) = wishes.get(*next) else { return };
        let mut found = Vec::new();
        // One that matches costs up to four steps.
        let most = AT_ONCE.min((self.turn.left() / 4).max(1) as usize);
        let mut left = most;
        // In parts, so that other shards' retained messages do not wait for all of it.
        let progress = self.common.retained().matching_from(cursor, &wish.filter, now, &mut left, &mut found);
        self.turn.charge(1 + (most - left) as u32);
        if progress == Progress::Done {
            let connection = self.sessions.get(session).and_then(|r| r.connection);
            found.extend(connection.and_then(|id| self.granted_message(id, &wish.filter)));
            *next += 1;
            *cursor = Cursor::default();
        }
        self.queue_found(session, wish, found);
    }

    fn queue_found(&mut self, session: SessionId, wish: &Wish, mut found: Vec<Message>) {
        let all = self.common.retained().len();
        let Shard { sessions, settings, tally, turn, common, .. } = self;
        let Some(resident) = sessions.get_mut(session) else { return };
        // Each of them is a row in the store too, if there is one.
        let steps = if resident.session.account().is_some() { 3 } else { 1 };
        turn.charge(found.len() as u32 * steps);
        // A client that asks again and again and acknowledges nothing gets them once.
        let most = resident.session.queue_limits(&settings.session.send).messages + all;
        let room = most.saturating_sub(resident.session.sender.queued());
        // Each takes a place in the queue, whatever its message takes: some 50 B, for as many as are retained and each client.
        let (room, cause) = if common.budget.is_exceeded() {
            (0, LossCause::MemoryBudget)
        } else {
            (room, LossCause::QueueRefused)
        };
        let beyond = found.split_off(room.min(found.len()));
        for message in beyond {
            tally.losses.lose(Lost::unsent(cause, message));
        }
        for message in found {
            let qos = message.header().qos.min(wish.qos);
            let ids = SubscriptionIds::from_index(wish.subscription_id);
            let mut delivery = Delivery { message, ids, qos, retain: true, share: None, stored: None };
            if qos != QoS::AtMostOnce {
                delivery.stored = owe(resident.session.account(), &mut None, &delivery, None);
            }
            resident.session.sender.enqueue_retained(delivery);
        }
        self.settle_losses(session);
    }

    /// Sends of what is queued what the window and the outbox take.
    fn send_retained(&mut self, now: Instant, session: SessionId) {
        let Shard { connections, sessions, settings, tally, pool, unflushed, turn, .. } = self;
        let Some(resident) = sessions.get_mut(session) else { return };
        let at = resident.connection.and_then(|id| Some((id, connections.get_mut(id)?)));
        let Some((id, connection)) = at else { return };
        connection.wire.outbox.lend(pool);
        let before = connection.wire.outbox.len();
        resident.session.sender.pump(now, &mut connection.wire, &settings.session.send, tally);
        let appended = connection.wire.outbox.len().saturating_sub(before);
        *unflushed += appended;
        turn.charge((appended / SENT_BYTES) as u32);
        self.settle_losses(session);
        self.touch(id);
        self.register_retransmit(now, id);
        self.fetch(session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_is_named_again_is_asked_for_once_with_its_last_options() {
        for different in [1, FEW_WISHES, 1_000] {
            let mut wishes = Wishes::default();
            for round in 0..3 {
                for n in 0..different {
                    wishes.ask(&format!("f/{n}"), QoS::AtMostOnce, round, round != 2);
                }
            }
            wishes.ask("not wanted", QoS::AtMostOnce, 9, false);
            let row: Vec<_> =
                wishes.wishes.iter().map(|w| (w.filter.to_string(), w.subscription_id)).collect();
            assert_eq!(row, (0..different).map(|n| (format!("f/{n}"), 2)).collect::<Vec<_>>());
        }
    }
}
