//! The shard's side: what it changed since its last batch, and who waits until that is safe.
//!
//! A row of the store lives as long as the value it stands for: an [`Entry`] that is dropped, wherever and for whatever
//! reason its delivery came to an end, records that it is done, and so does a [`Body`] with its last entry. So no way out
//! of a queue or a window can forget its row.
//!
//! What ends before its batch is sealed leaves no record at all: a message that is acknowledged while the commit before it is
//! under way never leaves the shard. So batches are sealed one at a time, when the last is committed, and what stands in the
//! one that is being filled is bounded by what is owed, not by how fast it comes and goes.
//!
//! A publisher may be told before the commit once every receiver is done with its message. An entry counts as done only if
//! [`Entry::done`] said so. Any other end may mean that somebody else owes the message from then on: another member of a
//! group, the queue that an ended session left, a dead letter. Then only the commit opens the publisher's gate.
//!
//! One ledger per shard, behind an `Rc`: nothing of it ever leaves the shard's thread but sealed batches.

use super::record::{
    Batch, BodyNumber, DelayedNumber, EntryNumber, Flight, Lsn, Move, MoveNumber, Part, Record, SessionKey,
    SessionState, StoredDelayed, StoredEntry, StoredSession,
};
use crate::mqtt::charge::{self, Charge};
use crate::mqtt::message::Message;
use crate::mqtt::packet::{PacketId, QoS};
use crate::mqtt::session::receiver::Outcome;
use crate::mqtt::session::subscription::SubscriptionIds;
use crate::time::Instant;
use foldhash::fast::RandomState;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

/// Shards there can be at most; numbers of one are congruent to it modulo this, so no two give the same.
const STRIDE: u64 = 64;

/// Which waiting gate is meant; counts up per shard, 0 is none.
pub type GateNumber = u64;

/// See the module's text.
#[derive(Debug)]
pub struct Ledger {
    shard: u8,
    next_number: Cell<u64>,
    next_move: Cell<u64>,
    /// Of the batch that is being filled.
    lsn: Cell<Lsn>,
    committed: Cell<Lsn>,
    /// Whether the batch that is being filled has something that somebody may wait for.
    begun: Cell<bool>,
    /// Whether batches are sealed though the last is not committed: what frees room must not wait for room.
    eager: Cell<bool>,
    filling: RefCell<Filling>,
    /// For [`Account::recorded`]: what clients send goes into it, so nobody knows its seed.
    pub hasher: RandomState,
    /// What batches that left and are not committed take in the store, and each of them.
    sealed_bytes: Cell<u64>,
    sealed: RefCell<VecDeque<(Lsn, u64)>>,
}

#[derive(Debug, Default)]
struct Filling {
    records: Vec<Record>,
    /// What they take in the store: [`Record::weight`].
    bytes: u64,
    /// Places in `records` of what has ended.
    vacant: Vec<u32>,
    /// Records that ended before they left the shard, and those that ended them.
    cancelled: u64,
    moves: Vec<Move>,
    parts: Vec<Part>,
    /// Whether what is put goes to the last part.
    in_part: bool,
    /// Gates whose message is finished with every receiver.
    finished: Vec<GateNumber>,
    /// What the records take; messages are on the account by themselves.
    charge: Charge,
}

impl Filling {
    fn place(&mut self, record: Record) -> u32 {
        let vacant = self.vacant.pop();
        match vacant.and_then(|at| Some((at, self.records.get_mut(at as usize)?))) {
            Some((at, place)) => {
                *place = record;
                at
            }
            None => {
                self.records.push(record);
                self.records.len() as u32 - 1
            }
        }
    }
}

/// Where a record stands, as long as its batch is being filled; by default nowhere.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    lsn: Lsn,
    at: u32,
    /// How many parts the batch had when it was the last of them; 0: it is in none. Only while that part is open can what it
    /// has be taken back: after that the part may be gone without the rest of the batch.
    part: u32,
}

impl Place {
    /// Of an entry that goes on as [`Parked`].
    const PARKED: u32 = u32::MAX;
}

impl Ledger {
    /// Of this shard; `next_number` is above all that were ever given.
    pub fn new(shard: u8, next_number: u64) -> Rc<Ledger> {
        let next = (next_number / STRIDE + 1) * STRIDE + u64::from(shard);
        Rc::new(Ledger {
            shard,
            next_number: Cell::new(next),
            next_move: Cell::new(u64::from(shard)),
            lsn: Cell::new(Lsn(1)),
            committed: Cell::new(Lsn(0)),
            begun: Cell::new(false),
            eager: Cell::new(false),
            filling: RefCell::default(),
            hasher: RandomState::default(),
            sealed_bytes: Cell::new(0),
            sealed: RefCell::default(),
        })
    }

    fn number(&self) -> u64 {
        let number = self.next_number.get();
        self.next_number.set(number + STRIDE);
        number
    }

    pub fn session_key(&self) -> SessionKey {
        SessionKey(self.number())
    }

    /// Records a change.
    pub fn record(&self, record: Record) {
        self.begun.set(true);
        let filling = &mut *self.filling.borrow_mut();
        filling.charge.add(record.size());
        filling.bytes += record.weight();
        filling.records.push(record);
    }

    /// Records how a session stands. In place of what the batch that is being filled has of it, so that it has one record of
    /// each session, however often that changes; `place` is where.
    fn record_session(&self, place: &Cell<Place>, record: Record) {
        self.begun.set(true);
        let filling = &mut *self.filling.borrow_mut();
        filling.charge.add(record.size());
        filling.bytes += record.weight();
        let at = place.get();
        if at.lsn == self.lsn.get()
            && let Some(before) = filling.records.get_mut(at.at as usize)
        {
            let record = match (record, &mut *before) {
                (Record::SessionState(state), Record::Session(session)) => {
                    filling.charge.sub(size_of::<Record>());
                    (session.connected, session.ends) = (state.connected, state.ends);
                    session.will_due = state.will_due;
                    filling.cancelled += 1;
                    return;
                }
                (record, _) => record,
            };
            filling.charge.sub(before.size());
            filling.bytes = filling.bytes.saturating_sub(before.weight());
            filling.cancelled += 1;
            *before = record;
            return;
        }
        filling.records.push(record);
        place.set(Place { lsn: self.lsn.get(), at: filling.records.len() as u32 - 1, part: 0 });
    }

    /// Counts bytes that go to the store with this batch and are not in it: retained messages.
    pub fn weigh(&self, bytes: u64) {
        self.filling.borrow_mut().bytes += bytes;
    }

    /// Returns the bytes that were recorded and may not be in the store yet.
    pub fn uncommitted(&self) -> u64 {
        self.sealed_bytes.get() + self.filling.borrow().bytes
    }

    /// Records a body or an entry, in the part that is open if one is; answers where it can be taken back. Their order among
    /// the other records is nothing to the store, so they take vacant places.
    fn put(&self, record: Record) -> Place {
        self.begun.set(true);
        let filling = &mut *self.filling.borrow_mut();
        filling.charge.add(record.size());
        filling.bytes += record.weight();
        match filling.parts.last_mut() {
            Some(part) if filling.in_part => {
                let at = part.records.len() as u32;
                part.records.push(record);
                Place { lsn: self.lsn.get(), at, part: filling.parts.len() as u32 }
            }
            _ => Place { lsn: self.lsn.get(), at: filling.place(record), part: 0 },
        }
    }

    /// What was put there is no more: takes it back, or where it has left already, records its end.
    fn end(&self, place: Place, end: Record) {
        if place.lsn != self.lsn.get() {
            return self.record(end);
        }
        let filling = &mut *self.filling.borrow_mut();
        if place.part != 0 {
            let open = filling.in_part && filling.parts.len() == place.part as usize;
            let part = filling.parts.last_mut().filter(|_| open);
            match part.and_then(|part| part.records.get_mut(place.at as usize)) {
                Some(record) => {
                    filling.charge.sub(record.size());
                    filling.bytes = filling.bytes.saturating_sub(record.weight());
                    *record = Record::Nothing;
                    filling.cancelled += 2;
                }
                None => {
                    filling.charge.add(end.size());
                    filling.records.push(end);
                }
            }
        } else if let Some(record) = filling.records.get_mut(place.at as usize) {
            filling.charge.sub(record.size());
            filling.bytes = filling.bytes.saturating_sub(record.weight());
            *record = Record::Nothing;
            filling.vacant.push(place.at);
            filling.cancelled += 2;
        }
    }

    /// Changes an entry where it stands, or where it has left already, records the change.
    fn change(&self, place: Place, number: EntryNumber, flight: Flight) {
        if place.lsn == self.lsn.get()
            && place.part == 0
            && let Some(Record::Entry(entry)) = self.filling.borrow_mut().records.get_mut(place.at as usize)
        {
            entry.flight = Some(flight);
            return;
        }
        self.record(Record::Sent { number, flight });
    }

    /// Somebody will wait for something that is not in this batch but goes with it: retained messages.
    pub fn begin(&self) {
        self.begun.set(true);
    }

    /// What has to be committed so that all that was recorded until now is safe; `None` if it is.
    pub fn pending(&self) -> Option<Lsn> {
        let lsn = self.lsn.get();
        let last = if self.begun.get() { lsn } else { Lsn(lsn.0 - 1) };
        (last > self.committed.get()).then_some(last)
    }

    /// The batch that is being filled.
    pub fn lsn(&self) -> Lsn {
        self.lsn.get()
    }

    /// Whether [`Self::seal`] has a batch: something was recorded, and the last batch is committed. What others take part in
    /// does not wait: they might wait for each other.
    pub fn is_due(&self) -> bool {
        if !self.begun.get() {
            return false;
        }
        let idle = self.committed.get().0 + 1 == self.lsn.get().0;
        let filling = self.filling.borrow();
        idle || self.eager.get() || !filling.moves.is_empty() || !filling.parts.is_empty()
    }

    /// Whether batches are to be sealed as they come.
    pub fn set_eager(&self, eager: bool) {
        self.eager.set(eager);
    }

    /// Ends the turn: the batch to commit, if one is due.
    pub fn seal(&self) -> Option<Batch> {
        if !self.is_due() {
            return None;
        }
        self.begun.set(false);
        let lsn = self.lsn.get();
        self.lsn.set(Lsn(lsn.0 + 1));
        let filling = &mut *self.filling.borrow_mut();
        filling.in_part = false;
        let bytes = std::mem::take(&mut filling.bytes);
        if bytes > 0 {
            self.sealed_bytes.set(self.sealed_bytes.get() + bytes);
            self.sealed.borrow_mut().push_back((lsn, bytes));
        }
        if !std::mem::take(&mut filling.vacant).is_empty() {
            filling.records.retain(|record| !matches!(record, Record::Nothing));
        }
        Some(Batch {
            cancelled: std::mem::take(&mut filling.cancelled),
            charge: std::mem::take(&mut filling.charge),
            shard: self.shard,
            lsn,
            records: std::mem::take(&mut filling.records),
            moves: std::mem::take(&mut filling.moves),
            parts: std::mem::take(&mut filling.parts),
        })
    }

    /// Everything up to this batch is safe.
    pub fn committed(&self, lsn: Lsn) {
        self.committed.set(lsn.max(self.committed.get()));
        let mut sealed = self.sealed.borrow_mut();
        while let Some((_, bytes)) = sealed.pop_front_if(|(waits, _)| *waits <= lsn) {
            self.sealed_bytes.set(self.sealed_bytes.get() - bytes);
        }
    }

    /// How far that is.
    pub fn last_committed(&self) -> Lsn {
        self.committed.get()
    }

    /// Begins a move: the batch that is being filled is committed with every part of it.
    pub fn begin_move(&self) -> MoveNumber {
        let number = MoveNumber(self.next_move.get());
        self.next_move.set(number.0 + STRIDE);
        self.begun.set(true);
        let begun = Move { number, parts: 0, outcome: Outcome::Unmatched, incoming: None };
        self.filling.borrow_mut().moves.push(begun);
        number
    }

    /// Another shard takes part in the move, which was begun in this batch, or of which the part that is open is one.
    pub fn add_part(&self, of: MoveNumber) {
        let filling = &mut *self.filling.borrow_mut();
        if let Some(part) = filling.parts.last_mut().filter(|part| filling.in_part && part.of == of) {
            part.more += 1;
        } else if let Some(found) = filling.moves.iter_mut().rev().find(|m| m.number == of) {
            found.parts += 1;
        }
    }

    /// What the move, which was begun in this batch, came to in this shard; `incoming`: the identifier that it takes over if
    /// anybody takes the message.
    pub fn end_move(&self, of: MoveNumber, outcome: Outcome, incoming: Option<(SessionKey, PacketId)>) {
        let filling = &mut *self.filling.borrow_mut();
        if let Some(found) = filling.moves.iter_mut().rev().find(|m| m.number == of) {
            (found.outcome, found.incoming) = (outcome, incoming);
        }
    }

    /// What is put from here to [`Self::end_part`] is this shard's part of another's move.
    pub fn begin_part(&self, of: MoveNumber) {
        self.begun.set(true);
        let filling = &mut *self.filling.borrow_mut();
        filling.parts.push(Part { of, records: Vec::new(), more: 0, outcome: Outcome::Unmatched });
        filling.in_part = true;
    }

    /// What is put from here on is not in the part: that goes on in a later turn, before the batch is sealed, and no other part
    /// begins in between.
    pub fn suspend_part(&self) {
        self.filling.borrow_mut().in_part = false;
    }

    /// The part goes on.
    pub fn resume_part(&self) {
        let filling = &mut *self.filling.borrow_mut();
        filling.in_part = !filling.parts.is_empty();
    }

    /// `outcome`: what it came to, if there is a part.
    pub fn end_part(&self, outcome: Outcome) {
        let filling = &mut *self.filling.borrow_mut();
        if std::mem::take(&mut filling.in_part)
            && let Some(part) = filling.parts.last_mut()
        {
            part.outcome = outcome;
            part.records.retain(|record| !matches!(record, Record::Nothing));
        }
    }

    /// Gates whose messages were finished since the last call.
    pub fn take_finished(&self) -> Vec<GateNumber> {
        std::mem::take(&mut self.filling.borrow_mut().finished)
    }

    pub fn has_finished(&self) -> bool {
        !self.filling.borrow().finished.is_empty()
    }

    /// Records a message that entries will share.
    pub fn body(self: &Rc<Ledger>, message: &Message) -> Rc<Body> {
        let number = BodyNumber(self.number());
        let place = self.put(Record::Body { number, message: message.clone() });
        self.placed_body(number, message.size() as u32, message.header().expires, place)
    }

    /// One that is in the store already.
    pub fn known_body(self: &Rc<Ledger>, number: BodyNumber, size: u32, expires: Instant) -> Rc<Body> {
        self.placed_body(number, size, expires, Place::default())
    }

    fn placed_body(
        self: &Rc<Ledger>,
        number: BodyNumber,
        size: u32,
        expires: Instant,
        place: Place,
    ) -> Rc<Body> {
        charge::add(BODY);
        Rc::new(Body { ledger: Rc::clone(self), number, size, expires, gate: Cell::new(0), place })
    }

    /// Records a delivery.
    ///
    /// Its place in the window is not said in a part: that may be committed before the rest of this batch, where what was
    /// sent before it has its places, and after a crash it would be sent ahead of them.
    pub fn entry(self: &Rc<Ledger>, session: SessionKey, body: &Rc<Body>, owed: Owed<'_>) -> Box<Entry> {
        let number = EntryNumber(self.number());
        let sent_in_part = owed.flight.filter(|_| self.filling.borrow().in_part);
        let place = self.put(Record::Entry(Box::new(StoredEntry {
            number,
            session,
            body: body.number,
            qos: owed.qos,
            retain: owed.retain,
            ids: owed.ids.clone(),
            share: owed.share.cloned(),
            flight: owed.flight.filter(|_| sent_in_part.is_none()),
        })));
        if let Some(flight) = sent_in_part {
            self.record(Record::Sent { number, flight });
        }
        charge::add(ENTRY);
        let body = Some(Rc::clone(body));
        Box::new(Entry { ledger: Rc::clone(self), number, body, place, end: End::PassedOn })
    }

    /// One that is in the store already.
    pub fn known_entry(self: &Rc<Ledger>, number: EntryNumber, body: Option<Rc<Body>>) -> Box<Entry> {
        charge::add(ENTRY);
        let place = Place::default();
        Box::new(Entry { ledger: Rc::clone(self), number, body, place, end: End::PassedOn })
    }

    /// Records a message to publish later.
    pub fn delayed(&self, due: Instant, message: Message) -> DelayedNumber {
        let number = DelayedNumber(self.number());
        self.record(Record::Delayed(Box::new(StoredDelayed { number, due, message })));
        number
    }
}

/// Bytes of a body with its counts, and of an entry, on the account as long as each lives. Not a [`Charge`]: 8 bytes less in
/// each.
const BODY: i64 = size_of::<Body>() as i64 + 16;
const ENTRY: i64 = size_of::<Entry>() as i64;

/// What a delivery adds to its message.
#[derive(Clone, Copy, Debug)]
pub struct Owed<'a> {
    pub qos: QoS,
    pub retain: bool,
    pub ids: &'a SubscriptionIds,
    pub share: Option<&'a Arc<Box<str>>>,
    /// Where it is sent at once.
    pub flight: Option<Flight>,
}

/// A message in the store, for as long as an entry refers to it.
#[derive(Debug)]
pub struct Body {
    ledger: Rc<Ledger>,
    number: BodyNumber,
    size: u32,
    expires: Instant,
    /// Who is told at once when every entry is done, though nothing is committed; [`Body::COMMIT_OPENS`] if that may not be.
    gate: Cell<GateNumber>,
    place: Place,
}

impl Body {
    pub fn number(&self) -> BodyNumber {
        self.number
    }

    /// In place of a gate: somebody else may owe the message now.
    const COMMIT_OPENS: GateNumber = GateNumber::MAX;

    /// Opens this gate when every entry is done, unless one of them has been passed on.
    pub fn releases(&self, gate: GateNumber) {
        if self.gate.get() != Body::COMMIT_OPENS {
            self.gate.set(gate);
        }
    }

    /// An entry ends and its message may go on: from here on only the commit opens the gate.
    fn passed_on(&self) {
        self.gate.set(Body::COMMIT_OPENS);
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        charge::add(-BODY);
        let is_released = self.gate.get() != Body::COMMIT_OPENS;
        let end = if is_released { Record::BodyReleased } else { Record::BodyDone };
        self.ledger.end(self.place, end(self.number));
        if !matches!(self.gate.get(), 0 | Body::COMMIT_OPENS) {
            self.ledger.filling.borrow_mut().finished.push(self.gate.get());
        }
    }
}

/// A delivery in the store, for as long as it is owed.
#[derive(Debug)]
pub struct Entry {
    ledger: Rc<Ledger>,
    number: EntryNumber,
    /// None once PUBREC came.
    body: Option<Rc<Body>>,
    place: Place,
    end: End,
}

/// What the end of an entry means for its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The message may go on to somebody else. Holds unless somebody says otherwise, so no way out can forget to say it.
    PassedOn,
    /// Nobody owes it any more, as far as this entry goes.
    Done,
}

impl Entry {
    /// The receiver has acknowledged the message, or its queue refused it: nobody owes it by this entry.
    pub fn done(&mut self) {
        self.end = End::Done;
    }

    /// It has a place in the window, or was sent again.
    pub fn sent(&self, flight: Flight) {
        self.ledger.change(self.place, self.number, flight);
    }

    /// PUBREC came.
    pub fn received(&mut self) {
        self.ledger.record(Record::Received(self.number));
        // It is more than one record from here on.
        self.place = Place::default();
        self.body = None;
    }

    /// What has to be committed before what was recorded last may be shown.
    pub fn pending(&self) -> Option<Lsn> {
        self.ledger.pending()
    }

    /// Keeps as little of it in memory as there can be; nothing of one whose PUBREC came.
    pub fn park(mut self) -> Option<Parked> {
        let body = self.body.take()?;
        let parked = Parked { number: self.number, body: Some(body) };
        self.place.at = Place::PARKED;
        Some(parked)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        charge::add(-ENTRY);
        if self.place.at == Place::PARKED {
            return;
        }
        let end = if self.end == End::Done { Record::EntryAcknowledged } else { Record::EntryDone };
        self.ledger.end(self.place, end(self.number));
        if let (End::PassedOn, Some(body)) = (self.end, &self.body) {
            body.passed_on();
        }
    }
}

/// An [`Entry`] whose message is in the store alone: 16 bytes, and its body's. It ends like an entry.
#[derive(Debug)]
pub struct Parked {
    number: EntryNumber,
    /// None once it is an entry again.
    body: Option<Rc<Body>>,
}

impl Parked {
    pub fn number(&self) -> EntryNumber {
        self.number
    }

    pub fn body(&self) -> Option<BodyNumber> {
        self.body.as_ref().map(|b| b.number)
    }

    pub fn size(&self) -> usize {
        self.body.as_ref().map_or(0, |b| b.size as usize)
    }

    pub fn expires(&self) -> Instant {
        self.body.as_ref().map_or(Instant::NEVER, |b| b.expires)
    }

    /// Its message is in memory again.
    pub fn fetched(mut self) -> Option<Box<Entry>> {
        let body = self.body.take()?;
        let ledger = Rc::clone(&body.ledger);
        Some(ledger.known_entry(self.number, Some(body)))
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        if let Some(body) = &self.body {
            body.ledger.record(Record::EntryDone(self.number));
            body.passed_on();
        }
    }
}

/// A session's account in the ledger of its shard.
#[derive(Debug)]
pub struct Account {
    pub key: SessionKey,
    pub ledger: Rc<Ledger>,
    /// Of the session's own record.
    place: Cell<Place>,
    /// A hash of the session as its row says it, comings and goings apart; 0: it has none.
    pub recorded: Cell<u64>,
    /// The batch that the row is in.
    pub settled: Cell<Lsn>,
}

impl Account {
    /// Of a session of this key, about which nothing is recorded.
    pub fn new(key: SessionKey, ledger: Rc<Ledger>) -> Account {
        let (place, recorded, settled) = (Cell::default(), Cell::new(0), Cell::new(Lsn(0)));
        Account { key, ledger, place, recorded, settled }
    }

    /// How its session stands.
    pub fn record(&self, session: Box<StoredSession>) {
        self.settled.set(self.ledger.lsn());
        self.ledger.record_session(&self.place, Record::Session(session));
    }

    /// Whether its client is there, of a session of which nothing else has changed.
    pub fn record_state(&self, state: SessionState) {
        self.ledger.record_session(&self.place, Record::SessionState(state));
    }

    /// A QoS 2 PUBLISH is taken over.
    pub fn incoming(&self, packet_id: PacketId) {
        self.ledger.record(Record::Incoming { session: self.key, packet_id });
    }

    /// Its identifier is free again.
    pub fn incoming_done(&self, packet_id: PacketId) {
        self.ledger.record(Record::IncomingDone { session: self.key, packet_id });
    }

    /// Its identifier is free again, for nobody took the message.
    pub fn incoming_refused(&self, packet_id: PacketId) {
        self.ledger.record(Record::IncomingRefused { session: self.key, packet_id });
    }

    pub fn pending(&self) -> Option<Lsn> {
        self.ledger.pending()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqtt::message::Parts;
    use crate::mqtt::packet::ProtocolVersion;

    fn message() -> Message {
        let parts = Parts {
            qos: QoS::AtLeastOnce,
            retain: false,
            expires: Instant::NEVER,
            topic: "t",
            forwarded: &[],
            payload: b"x",
        };
        Message::new(parts, &mut Vec::new())
    }

    fn owed() -> Owed<'static> {
        Owed { qos: QoS::AtLeastOnce, retain: false, ids: &SubscriptionIds::None, share: None, flight: None }
    }

    #[test]
    fn a_session_that_changes_often_has_one_record_in_each_batch() {
        let ledger = Ledger::new(0, 0);
        let account = Account::new(SessionKey(1), Rc::clone(&ledger));
        let session = |expiry| {
            Box::new(StoredSession {
                key: SessionKey(1),
                client_id: "c".repeat(60_000).into(),
                version: ProtocolVersion::V5,
                expiry,
                connected: true,
                ends: Instant::NEVER,
                will: None,
                will_due: Instant::NEVER,
                retry_interval: None,
                ack_timeout: None,
            })
        };
        let before = charge::unreported();
        for round in 1..=2u32 {
            (0..1_000).for_each(|n| account.record(session(n * round)));
            let held = charge::unreported() - before;
            assert!((60_000..70_000).contains(&held), "{held}");
            let batch = ledger.seal().expect("a record");
            let [Record::Session(last)] = &batch.records[..] else { panic!("{batch:?}") };
            assert_eq!((last.expiry, batch.cancelled), (999 * round, 999));
            ledger.committed(batch.lsn);
        }
        assert_eq!(charge::unreported(), before, "the batches are gone");
    }

    #[test]
    fn a_body_is_done_with_its_last_entry_and_releases_its_gate() {
        let ledger = Ledger::new(3, 1000);
        let body = ledger.body(&message());
        body.releases(7);
        let mut first = ledger.entry(SessionKey(1), &body, owed());
        let mut second = ledger.entry(SessionKey(2), &body, owed());
        drop(body);
        first.done();
        second.done();
        drop(first);
        assert!(ledger.take_finished().is_empty());
        drop(second);
        assert_eq!(ledger.take_finished(), [7]);
        let batch = ledger.seal().expect("it was begun");
        assert_eq!((batch.shard, batch.lsn, batch.records.len(), batch.cancelled), (3, Lsn(1), 0, 6));
    }

    #[test]
    fn a_body_that_is_passed_on_leaves_its_gate_to_the_commit() {
        let ledger = Ledger::new(0, 0);
        for passes_on in [|entry: Box<Entry>| drop(entry), |entry: Box<Entry>| drop(entry.park())] {
            let body = ledger.body(&message());
            body.releases(7);
            let passed = ledger.entry(SessionKey(1), &body, owed());
            let mut kept = ledger.entry(SessionKey(2), &body, owed());
            passes_on(passed);
            body.releases(7);
            drop(body);
            kept.done();
            drop(kept);
            assert!(ledger.take_finished().is_empty());
        }
    }

    #[test]
    fn what_left_in_a_batch_ends_in_the_next() {
        let ledger = Ledger::new(0, 0);
        let body = ledger.body(&message());
        let entry = ledger.entry(SessionKey(1), &body, owed());
        drop(body);
        assert_eq!(ledger.seal().map(|b| b.records.len()), Some(2));
        drop(entry);
        // One at a time.
        assert!(ledger.seal().is_none());
        ledger.committed(Lsn(1));
        let batch = ledger.seal().expect("two ends");
        assert!(matches!(batch.records[..], [Record::EntryDone(_), Record::BodyDone(_)]), "{batch:?}");
    }

    #[test]
    fn a_vacant_place_is_taken_by_the_next() {
        let ledger = Ledger::new(0, 0);
        for _ in 0..1000 {
            let body = ledger.body(&message());
            ledger.entry(SessionKey(1), &body, owed()).sent(Flight { running: 1, transmissions: 1 });
        }
        assert!(ledger.filling.borrow().records.len() <= 2);
        let body = ledger.body(&message());
        let entry = ledger.entry(SessionKey(1), &body, owed());
        entry.sent(Flight { running: 7, transmissions: 1 });
        let batch = ledger.seal().expect("records");
        let flights: Vec<_> = batch
            .records
            .iter()
            .filter_map(|r| match r {
                Record::Entry(entry) => entry.flight,
                _ => None,
            })
            .collect();
        assert_eq!((batch.records.len(), flights.len(), flights[0].running), (2, 1, 7));
    }

    #[test]
    fn what_is_pending_is_the_batch_that_holds_the_last_record() {
        let ledger = Ledger::new(0, 0);
        assert_eq!(ledger.pending(), None);
        ledger.begin();
        assert_eq!(ledger.pending(), Some(Lsn(1)));
        assert!(ledger.seal().is_some() && ledger.seal().is_none());
        assert_eq!(ledger.pending(), Some(Lsn(1)));
        ledger.committed(Lsn(1));
        assert_eq!(ledger.pending(), None);
    }

    #[test]
    fn what_is_put_in_a_part_goes_with_the_move_and_what_is_done_does_not() {
        let ledger = Ledger::new(1, 0);
        let own = ledger.body(&message());
        ledger.begin_part(MoveNumber(9));
        let body = ledger.body(&message());
        drop(own);
        ledger.end_part(Outcome::Taken);
        drop(body);
        let batch = ledger.seal().expect("records");
        // What was put in a part may go before the rest of its batch, so its end is always said.
        assert_eq!((batch.records.len(), batch.parts.len(), batch.parts[0].records.len()), (1, 1, 1));
    }

    #[test]
    fn what_a_part_put_and_took_back_is_not_in_it() {
        let ledger = Ledger::new(1, 0);
        ledger.begin_part(MoveNumber(8));
        let kept = ledger.body(&message());
        ledger.end_part(Outcome::Taken);
        ledger.begin_part(MoveNumber(9));
        let body = ledger.body(&message());
        let refused = ledger.entry(SessionKey(1), &body, owed());
        drop(refused);
        let taken = ledger.entry(SessionKey(2), &body, owed());
        ledger.end_part(Outcome::Taken);
        drop(kept);
        let batch = ledger.seal().expect("records");
        let entries = batch.parts[1].records.iter().filter_map(|r| match r {
            Record::Entry(entry) => Some(entry.number),
            _ => None,
        });
        assert_eq!((entries.collect::<Vec<_>>(), batch.parts[1].records.len()), (vec![taken.number], 2));
        assert_eq!(batch.parts[0].records.len(), 1, "the part before may be committed already");
        assert!(matches!(batch.records[..], [Record::BodyReleased(_)]), "{batch:?}");
    }

    #[test]
    fn what_a_part_passes_on_is_one_more_part_of_the_same_move() {
        let ledger = Ledger::new(1, 0);
        let own = ledger.begin_move();
        ledger.add_part(own);
        ledger.begin_part(MoveNumber(9));
        ledger.add_part(MoveNumber(9));
        ledger.end_part(Outcome::Unmatched);
        ledger.end_move(own, Outcome::Refused, None);
        let batch = ledger.seal().expect("a move and a part");
        assert_eq!((batch.moves[0].parts, batch.moves[0].outcome), (1, Outcome::Refused));
        assert_eq!((batch.parts[0].more, batch.parts[0].outcome), (1, Outcome::Unmatched));
    }

    #[test]
    fn what_is_sent_in_a_part_has_its_place_behind_what_was_sent_before() {
        let ledger = Ledger::new(1, 0);
        let body = ledger.body(&message());
        let older = ledger.known_entry(EntryNumber(7), Some(Rc::clone(&body)));
        let flight = |running| Flight { running, transmissions: 1 };
        older.sent(flight(1));
        ledger.begin_part(MoveNumber(9));
        let newer = ledger.entry(SessionKey(1), &body, Owed { flight: Some(flight(2)), ..owed() });
        ledger.end_part(Outcome::Taken);
        let batch = ledger.seal().expect("records");
        let [Record::Entry(entry)] = &batch.parts[0].records[..] else { panic!("{batch:?}") };
        assert_eq!(entry.flight, None, "the part may go alone");
        let places = batch.records.iter().filter_map(|r| match r {
            Record::Sent { number, flight } => Some((*number, flight.running)),
            _ => None,
        });
        assert_eq!(places.collect::<Vec<_>>(), [(older.number, 1), (newer.number, 2)]);
    }
}
