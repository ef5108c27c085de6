//! The write buffer: the records of one shard since its last batch, and who waits for their commit.
//!
//! A row of the store lives as long as the value that stands for it. An [`Entry`] that is dropped,
//! at any place and for any reason, records the end of its delivery. A [`Body`] does the same with
//! its last entry. So no way out of a queue or a window can forget its row.
//!
//! A row that ends before its batch is sealed leaves no record at all. A message that is
//! acknowledged during the previous commit never leaves the shard. So batches are sealed one at a
//! time, after the last commit. The size of the open batch is then bounded by the messages that are
//! owed, and not by their rate.
//!
//! A publisher may be answered before the commit once every receiver is done with its message. An
//! entry is done only if [`Entry::done`] was called. Any other end may mean that someone else owes
//! the message from then on: another member of a group, an orphaned queue, a dead letter. Then only
//! the commit opens the publisher's gate.
//!
//! Each shard has one write buffer, behind an `Rc`. Only sealed batches leave the shard's thread.

use crate::mqtt::charge::{self, Charge};
use crate::mqtt::message::Message;
use crate::mqtt::outcome::Outcome;
use crate::mqtt::packet::{PacketId, QoS};
use crate::mqtt::subscription_ids::SubscriptionIds;
use crate::persistence::records::{
    Batch, BodyNumber, DelayedNumber, EntryNumber, Flight, Lsn, Record, SessionKey, SessionState,
    StoredDelayed, StoredEntry, StoredSession, TransactionNumber,
};
use crate::persistence::transactions::Transactions;
use crate::time::Instant;
use foldhash::fast::RandomState;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

/// Maximum number of shards. The numbers of one shard are congruent to its own number modulo this,
/// so no two shards give the same number.
const STRIDE: u64 = 64;

/// The number of a pending gate. Counts up per shard; 0 is none.
pub type GateNumber = u64;

/// The records of one shard since its last batch.
#[derive(Debug)]
pub struct WriteBuffer {
    shard: u8,
    next_number: Cell<u64>,
    next_transaction: Cell<u64>,
    /// The number of the open batch.
    lsn: Cell<Lsn>,
    committed: Cell<Lsn>,
    /// True if the open batch has something that someone may wait for.
    begun: Cell<bool>,
    /// True if batches are sealed before the last is committed, because a change that frees room
    /// must not wait for room.
    eager: Cell<bool>,
    filling: RefCell<Filling>,
    /// Hashes [`SessionRow::recorded`]. Clients choose the input, so the seed is secret.
    pub hasher: RandomState,
    /// Bytes in the store of all sealed batches that are not committed, and of each such batch.
    sealed_bytes: Cell<u64>,
    sealed: RefCell<VecDeque<(Lsn, u64)>>,
}

#[derive(Debug, Default)]
struct Filling {
    records: Vec<Record>,
    /// Bytes that the records take in the store, as [`Record::weight`] says.
    bytes: u64,
    /// Indexes in `records` whose record has ended.
    vacant: Vec<u32>,
    /// Number of records that ended before they left the shard, with the records that ended them.
    cancelled: u64,
    transactions: Transactions,
    /// Gates whose message every receiver has finished.
    finished: Vec<GateNumber>,
    /// The charge of the records. Messages have charges of their own.
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

/// The place of a record while its batch is open. The default is no place.
#[derive(Clone, Copy, Debug, Default)]
struct RecordPlace {
    lsn: Lsn,
    at: u32,
    /// The number of participants when this record was put into the last of them; 0 if it is in
    /// none. A record can be taken back only while its participant is open. After that, the
    /// participant may be committed without the rest of the batch.
    part: u32,
}

impl RecordPlace {
    /// Stands in `at` for an entry that goes on as [`Parked`].
    const PARKED: u32 = u32::MAX;
}

impl WriteBuffer {
    /// Creates the write buffer of a shard. `next_number` is above every number that was ever
    /// given.
    pub fn new(shard: u8, next_number: u64) -> Rc<WriteBuffer> {
        let next = (next_number / STRIDE + 1) * STRIDE + u64::from(shard);
        Rc::new(WriteBuffer {
            shard,
            next_number: Cell::new(next),
            next_transaction: Cell::new(u64::from(shard)),
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

    /// Returns a new session key.
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

    /// Records the present session. An earlier record in the open batch is replaced, so each
    /// session has one record in a batch, however often it changes. `place` is that record's place.
    fn record_session(&self, place: &Cell<RecordPlace>, record: Record) {
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
        place.set(RecordPlace { lsn: self.lsn.get(), at: filling.records.len() as u32 - 1, part: 0 });
    }

    /// Counts bytes that are committed with this batch but are not in it: retained messages.
    pub fn weigh(&self, bytes: u64) {
        self.filling.borrow_mut().bytes += bytes;
    }

    /// Returns the bytes that were recorded and may not be in the store yet.
    pub fn uncommitted(&self) -> u64 {
        self.sealed_bytes.get() + self.filling.borrow().bytes
    }

    /// Records a body or an entry, in the open participant if there is one. Returns the place where
    /// it can be taken back. The store does not depend on the order of bodies and entries, so they
    /// take vacant places.
    fn put(&self, record: Record) -> RecordPlace {
        self.begun.set(true);
        let filling = &mut *self.filling.borrow_mut();
        filling.charge.add(record.size());
        filling.bytes += record.weight();
        let part = filling.transactions.open_number();
        let at = match filling.transactions.open() {
            Some(open) => {
                open.records.push(record);
                open.records.len() as u32 - 1
            }
            None => filling.place(record),
        };
        RecordPlace { lsn: self.lsn.get(), at, part }
    }

    /// Ends a body or an entry: takes its record back, or records its end if its batch has left.
    fn end(&self, place: RecordPlace, end: Record) {
        if place.lsn != self.lsn.get() {
            return self.record(end);
        }
        let filling = &mut *self.filling.borrow_mut();
        if place.part != 0 {
            let open = filling.transactions.open_number() == place.part;
            let part = filling.transactions.open().filter(|_| open);
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

    /// Changes an entry in place, or records the change if its batch has left.
    fn change(&self, place: RecordPlace, number: EntryNumber, flight: Flight) {
        if place.lsn == self.lsn.get()
            && place.part == 0
            && let Some(Record::Entry(entry)) = self.filling.borrow_mut().records.get_mut(place.at as usize)
        {
            entry.flight = Some(flight);
            return;
        }
        self.record(Record::Sent { number, flight });
    }

    /// Marks the open batch as one that someone waits for, because retained messages are committed
    /// with it.
    pub fn begin(&self) {
        self.begun.set(true);
    }

    /// Returns the batch whose commit makes everything recorded so far safe; `None` if all is safe.
    pub fn pending(&self) -> Option<Lsn> {
        let lsn = self.lsn.get();
        let last = if self.begun.get() { lsn } else { Lsn(lsn.0 - 1) };
        (last > self.committed.get()).then_some(last)
    }

    /// Returns the number of the open batch.
    pub fn lsn(&self) -> Lsn {
        self.lsn.get()
    }

    /// True if [`Self::seal`] has a batch: something was recorded, and the last batch is committed.
    /// A batch with transactions or participants does not wait for the last commit, because shards
    /// might otherwise wait for each other.
    pub fn is_due(&self) -> bool {
        if !self.begun.get() {
            return false;
        }
        let idle = self.committed.get().0 + 1 == self.lsn.get().0;
        let filling = self.filling.borrow();
        idle || self.eager.get() || !filling.transactions.is_empty()
    }

    /// Sets if batches are sealed before the last is committed.
    pub fn set_eager(&self, eager: bool) {
        self.eager.set(eager);
    }

    /// Seals the open batch at the end of a turn. Returns the batch to commit, or `None` if none is
    /// due.
    pub fn seal(&self) -> Option<Batch> {
        if !self.is_due() {
            return None;
        }
        self.begun.set(false);
        let lsn = self.lsn.get();
        self.lsn.set(Lsn(lsn.0 + 1));
        let filling = &mut *self.filling.borrow_mut();
        let (transactions, participants) = filling.transactions.take();
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
            transactions,
            participants,
        })
    }

    /// Records that this batch and all before it are committed.
    pub fn committed(&self, lsn: Lsn) {
        self.committed.set(lsn.max(self.committed.get()));
        let mut sealed = self.sealed.borrow_mut();
        while let Some((_, bytes)) = sealed.pop_front_if(|(waits, _)| *waits <= lsn) {
            self.sealed_bytes.set(self.sealed_bytes.get() - bytes);
        }
    }

    /// Returns the number of the last committed batch.
    pub fn last_committed(&self) -> Lsn {
        self.committed.get()
    }

    /// Begins a transaction. The open batch is committed together with every participant.
    pub fn begin_transaction(&self) -> TransactionNumber {
        let number = TransactionNumber(self.next_transaction.get());
        self.next_transaction.set(number.0 + STRIDE);
        self.begun.set(true);
        self.filling.borrow_mut().transactions.begin(number);
        number
    }

    /// Adds a participant to a transaction that began in this batch, or to one whose open
    /// participant this shard is.
    pub fn add_participant(&self, of: TransactionNumber) {
        self.filling.borrow_mut().transactions.add_participant(of);
    }

    /// Sets this shard's outcome of a transaction that began in this batch. `incoming` is the
    /// identifier that is stored if some receiver takes the message.
    pub fn end_transaction(
        &self,
        of: TransactionNumber,
        outcome: Outcome,
        incoming: Option<(SessionKey, PacketId)>,
    ) {
        self.filling.borrow_mut().transactions.end(of, outcome, incoming);
    }

    /// Opens this shard's part of a peer's transaction. Bodies and entries up to
    /// [`Self::end_participation`] go into it.
    pub fn begin_participation(&self, of: TransactionNumber) {
        self.begun.set(true);
        self.filling.borrow_mut().transactions.begin_participation(of);
    }

    /// Suspends the open part. The part is resumed in a later turn, before the batch is sealed, and
    /// no other part begins in between.
    pub fn suspend_participation(&self) {
        self.filling.borrow_mut().transactions.suspend();
    }

    /// Resumes the suspended part.
    pub fn resume_participation(&self) {
        self.filling.borrow_mut().transactions.resume();
    }

    /// Closes the open part with this outcome. Does nothing if there is none.
    pub fn end_participation(&self, outcome: Outcome) {
        self.filling.borrow_mut().transactions.end_participation(outcome);
    }

    /// Takes the gates whose messages were finished since the last call.
    pub fn take_finished(&self) -> Vec<GateNumber> {
        std::mem::take(&mut self.filling.borrow_mut().finished)
    }

    /// True if [`Self::take_finished`] has a gate.
    pub fn has_finished(&self) -> bool {
        !self.filling.borrow().finished.is_empty()
    }

    /// Records a message that entries will share.
    pub fn body(self: &Rc<WriteBuffer>, message: &Message) -> Rc<Body> {
        let number = BodyNumber(self.number());
        let place = self.put(Record::Body { number, message: message.clone() });
        self.placed_body(number, message.size() as u32, message.header().expires, place)
    }

    /// Returns the body of a message that is in the store already.
    pub fn known_body(self: &Rc<WriteBuffer>, number: BodyNumber, size: u32, expires: Instant) -> Rc<Body> {
        self.placed_body(number, size, expires, RecordPlace::default())
    }

    fn placed_body(
        self: &Rc<WriteBuffer>,
        number: BodyNumber,
        size: u32,
        expires: Instant,
        place: RecordPlace,
    ) -> Rc<Body> {
        charge::add(BODY);
        Rc::new(Body { write_buffer: Rc::clone(self), number, size, expires, gate: Cell::new(0), place })
    }

    /// Records a delivery.
    ///
    /// A participant does not contain the place in the window. The participant may be committed
    /// before the rest of this batch, which has the places of messages that were sent before. After
    /// a crash the delivery would then be sent ahead of them.
    pub fn entry(
        self: &Rc<WriteBuffer>,
        session: SessionKey,
        body: &Rc<Body>,
        owed: NewDelivery<'_>,
    ) -> Box<Entry> {
        let number = EntryNumber(self.number());
        let sent_in_transaction = owed.flight.filter(|_| self.filling.borrow().transactions.is_open());
        let place = self.put(Record::Entry(Box::new(StoredEntry {
            number,
            session,
            body: body.number,
            qos: owed.qos,
            retain: owed.retain,
            ids: owed.ids.clone(),
            share: owed.share.cloned(),
            flight: owed.flight.filter(|_| sent_in_transaction.is_none()),
        })));
        if let Some(flight) = sent_in_transaction {
            self.record(Record::Sent { number, flight });
        }
        charge::add(ENTRY);
        let body = Some(Rc::clone(body));
        Box::new(Entry { write_buffer: Rc::clone(self), number, body, place, end: End::PassedOn })
    }

    /// Returns the entry of a delivery that is in the store already.
    pub fn known_entry(self: &Rc<WriteBuffer>, number: EntryNumber, body: Option<Rc<Body>>) -> Box<Entry> {
        charge::add(ENTRY);
        let place = RecordPlace::default();
        Box::new(Entry { write_buffer: Rc::clone(self), number, body, place, end: End::PassedOn })
    }

    /// Records a message to publish later.
    pub fn delayed(&self, due: Instant, message: Message) -> DelayedNumber {
        let number = DelayedNumber(self.number());
        self.record(Record::Delayed(Box::new(StoredDelayed { number, due, message })));
        number
    }
}

/// Bytes of a body with its counts, and of an entry, charged while each lives. A [`Charge`] in each
/// would cost 8 bytes more.
const BODY: i64 = size_of::<Body>() as i64 + 16;
const ENTRY: i64 = size_of::<Entry>() as i64;

/// The fields that a delivery adds to its message.
#[derive(Clone, Copy, Debug)]
pub struct NewDelivery<'a> {
    /// The lower of published and granted QoS.
    pub qos: QoS,
    /// The RETAIN flag.
    pub retain: bool,
    /// The Subscription Identifiers.
    pub ids: &'a SubscriptionIds,
    /// The shared subscription that the message came by, in full.
    pub share: Option<&'a Arc<Box<str>>>,
    /// The place in the window, if the delivery is sent at once.
    pub flight: Option<Flight>,
}

/// A message in the store, for as long as an entry refers to it.
#[derive(Debug)]
pub struct Body {
    write_buffer: Rc<WriteBuffer>,
    number: BodyNumber,
    size: u32,
    expires: Instant,
    /// The gate that opens when every entry is done, even before the commit; [`Body::COMMIT_OPENS`]
    /// if only the commit may open it.
    gate: Cell<GateNumber>,
    place: RecordPlace,
}

impl Body {
    /// Returns the message's number.
    pub fn number(&self) -> BodyNumber {
        self.number
    }

    /// Stands in place of a gate: another record may stand for the message now.
    const COMMIT_OPENS: GateNumber = GateNumber::MAX;

    /// Sets the gate to open when every entry is done. Has no effect once an entry was passed on.
    pub fn releases(&self, gate: GateNumber) {
        if self.gate.get() != Body::COMMIT_OPENS {
            self.gate.set(gate);
        }
    }

    /// Records that an entry ended and its message may go on. From now on only the commit opens the
    /// gate.
    fn passed_on(&self) {
        self.gate.set(Body::COMMIT_OPENS);
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        charge::add(-BODY);
        let is_released = self.gate.get() != Body::COMMIT_OPENS;
        let end = if is_released { Record::BodyReleased } else { Record::BodyDone };
        self.write_buffer.end(self.place, end(self.number));
        if !matches!(self.gate.get(), 0 | Body::COMMIT_OPENS) {
            self.write_buffer.filling.borrow_mut().finished.push(self.gate.get());
        }
    }
}

/// A delivery in the store, for as long as it is owed.
#[derive(Debug)]
pub struct Entry {
    write_buffer: Rc<WriteBuffer>,
    number: EntryNumber,
    /// The message; `None` once PUBREC came.
    body: Option<Rc<Body>>,
    place: RecordPlace,
    end: End,
}

/// The meaning of an entry's end for its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The message may go on to someone else. This is the default, so that no way out can forget
    /// it.
    PassedOn,
    /// No one is owed the message by this entry any more.
    Done,
}

impl Entry {
    /// Marks the entry as done: the receiver acknowledged the message, or its queue refused it.
    pub fn done(&mut self) {
        self.end = End::Done;
    }

    /// Records a place in the window, or a further transmission.
    pub fn sent(&self, flight: Flight) {
        self.write_buffer.change(self.place, self.number, flight);
    }

    /// Records a PUBREC. The body is released.
    pub fn received(&mut self) {
        self.write_buffer.record(Record::Received(self.number));
        // The entry has more than one record from now on.
        self.place = RecordPlace::default();
        self.body = None;
    }

    /// Returns the commit that must happen before the last record may be shown.
    pub fn pending(&self) -> Option<Lsn> {
        self.write_buffer.pending()
    }

    /// Reduces the entry to its number and body. Returns `None` if its PUBREC came.
    pub fn park(mut self) -> Option<Parked> {
        let body = self.body.take()?;
        let parked = Parked { number: self.number, body: Some(body) };
        self.place.at = RecordPlace::PARKED;
        Some(parked)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        charge::add(-ENTRY);
        if self.place.at == RecordPlace::PARKED {
            return;
        }
        let end = if self.end == End::Done { Record::EntryAcknowledged } else { Record::EntryDone };
        self.write_buffer.end(self.place, end(self.number));
        if let (End::PassedOn, Some(body)) = (self.end, &self.body) {
            body.passed_on();
        }
    }
}

/// An [`Entry`] whose message is in the store alone: 16 bytes, and those of its body. Its end is
/// recorded like an entry's.
#[derive(Debug)]
pub struct Parked {
    number: EntryNumber,
    /// The message; `None` once the value is an entry again.
    body: Option<Rc<Body>>,
}

impl Parked {
    /// Returns the delivery's number.
    pub fn number(&self) -> EntryNumber {
        self.number
    }

    /// Returns the message's number.
    pub fn body(&self) -> Option<BodyNumber> {
        self.body.as_ref().map(|b| b.number)
    }

    /// Returns the bytes of the message.
    pub fn size(&self) -> usize {
        self.body.as_ref().map_or(0, |b| b.size as usize)
    }

    /// Returns when the message expires, or [`Instant::NEVER`].
    pub fn expires(&self) -> Instant {
        self.body.as_ref().map_or(Instant::NEVER, |b| b.expires)
    }

    /// Turns the value back into an entry, because its message is in memory again.
    pub fn fetched(mut self) -> Option<Box<Entry>> {
        let body = self.body.take()?;
        let write_buffer = Rc::clone(&body.write_buffer);
        Some(write_buffer.known_entry(self.number, Some(body)))
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        if let Some(body) = &self.body {
            body.write_buffer.record(Record::EntryDone(self.number));
            body.passed_on();
        }
    }
}

/// The row of a session in its shard's write buffer.
#[derive(Debug)]
pub struct SessionRow {
    /// The session's key.
    pub key: SessionKey,
    /// The write buffer of the session's shard.
    pub write_buffer: Rc<WriteBuffer>,
    /// The place of the session's own record.
    place: Cell<RecordPlace>,
    /// A hash of the recorded session, without its connection state; 0 if nothing is recorded.
    pub recorded: Cell<u64>,
    /// The batch that has the last full record.
    pub settled: Cell<Lsn>,
}

impl SessionRow {
    /// Creates the row of a session without any record.
    pub fn new(key: SessionKey, write_buffer: Rc<WriteBuffer>) -> SessionRow {
        let (place, recorded, settled) = (Cell::default(), Cell::new(0), Cell::new(Lsn(0)));
        SessionRow { key, write_buffer, place, recorded, settled }
    }

    /// Records the session with all its fields.
    pub fn record(&self, session: Box<StoredSession>) {
        self.settled.set(self.write_buffer.lsn());
        self.write_buffer.record_session(&self.place, Record::Session(session));
    }

    /// Records the connection state of a session whose other fields have not changed.
    pub fn record_state(&self, state: SessionState) {
        self.write_buffer.record_session(&self.place, Record::SessionState(state));
    }

    /// Records that a QoS 2 PUBLISH was accepted.
    pub fn incoming(&self, packet_id: PacketId) {
        self.write_buffer.record(Record::Incoming { session: self.key, packet_id });
    }

    /// Records that an identifier is free after PUBREL.
    pub fn incoming_done(&self, packet_id: PacketId) {
        self.write_buffer.record(Record::IncomingDone { session: self.key, packet_id });
    }

    /// Records that an identifier is free because no receiver took the message.
    pub fn incoming_refused(&self, packet_id: PacketId) {
        self.write_buffer.record(Record::IncomingRefused { session: self.key, packet_id });
    }

    /// Returns the batch whose commit makes everything recorded so far safe; `None` if all is safe.
    pub fn pending(&self) -> Option<Lsn> {
        self.write_buffer.pending()
    }
}

#[cfg(test)]
#[path = "write_buffer_tests.rs"]
mod tests;
