//! The write buffer: the records of one shard since its last batch, and the commits that they wait
//! for.
//!
//! A record that ends before its batch is sealed is taken back, and leaves no trace. A message that
//! is acknowledged during the previous commit never leaves the shard. For that, batches are sealed
//! one at a time, each after its predecessor's commit. The size of the open batch is then bounded
//! by the unfinished messages, and not by their rate.
//!
//! Each shard has one write buffer, behind an `Rc`. Only sealed batches leave the shard's thread.
//! [`crate::persistence::rows`] has the values that record into the buffer.

use crate::mqtt::outcome::Outcome;
use crate::mqtt::owner::OwnedMessage;
use crate::mqtt::packet::PacketId;
use crate::persistence::letter::LetterNumber;
use crate::persistence::open_batch::{OpenBatch, RecordPlace};
use crate::persistence::records::{
    Batch, BodyNumber, DelayedNumber, EntryNumber, Flight, Lsn, Record, SessionKey, StoredDelayed,
    TransactionNumber,
};
use crate::persistence::rows::PagedOut;
use crate::persistence::unread_drops::UnreadDrops;
use crate::time::Instant;
use foldhash::fast::RandomState;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// Maximum number of shards. The numbers of one shard are congruent to its own number modulo this,
/// so no two shards give the same number.
const STRIDE: u64 = 64;

/// The number of a pending gate. Counts up per shard; 0 means no gate.
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
    /// When the next batch is sealed. `AtOnce` if a change that frees room must not wait for room.
    seal_time: Cell<SealTime>,
    open: RefCell<OpenBatch>,
    /// Gates whose message every receiver has finished.
    finished: RefCell<Vec<GateNumber>>,
    /// Hashes the recorded sessions ([`crate::persistence::rows::SessionRow::recorded`]). Clients
    /// choose the input, so the seed is secret.
    pub hasher: RandomState,
    /// Bytes in the store of all sealed batches that are not committed, and of each such batch.
    sealed_bytes: Cell<u64>,
    sealed: RefCell<VecDeque<(Lsn, u64)>>,
    /// Each row leads back to this buffer, so the shard gives all up before it ends.
    unread: RefCell<UnreadDrops>,
}

/// The time at which a batch is sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SealTime {
    /// The batch waits for the commit of its predecessor, so that more records share one sync.
    AfterLastCommit,
    /// The batch does not wait, because the store is full and the records may free room.
    AtOnce,
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
            seal_time: Cell::new(SealTime::AfterLastCommit),
            open: RefCell::default(),
            finished: RefCell::default(),
            hasher: RandomState::default(),
            sealed_bytes: Cell::new(0),
            sealed: RefCell::default(),
            unread: RefCell::default(),
        })
    }

    /// Returns the number that the next row gets. Every row before has a smaller one.
    pub fn upcoming_number(&self) -> u64 {
        self.next_number.get()
    }

    /// Returns a number that no shard has given to a session, body, entry, delayed message or
    /// dead letter.
    pub(super) fn next_number(&self) -> u64 {
        let number = self.next_number.get();
        self.next_number.set(number + STRIDE);
        number
    }

    /// Returns a new session key.
    pub fn session_key(&self) -> SessionKey {
        SessionKey(self.next_number())
    }

    /// Returns the number of a new dead letter.
    pub fn letter_number(&self) -> LetterNumber {
        LetterNumber(self.next_number())
    }

    /// Records a change.
    pub fn record(&self, record: Record) {
        self.begun.set(true);
        self.open.borrow_mut().add(record);
    }

    /// Records a change of a subscription. An earlier change of the same one in the open batch is
    /// replaced.
    pub(super) fn record_subscription(&self, record: Record) {
        self.begun.set(true);
        self.open.borrow_mut().put_subscription(&self.hasher, record);
    }

    /// Records the present session. An earlier record in the open batch is replaced, so each
    /// session has one record in a batch, however often it changes. `place` is that record's place.
    pub(super) fn record_session(&self, place: &Cell<RecordPlace>, record: Record) {
        self.begun.set(true);
        let lsn = self.lsn.get();
        let before = Some(place.get()).filter(|place| place.lsn == lsn).map(|place| place.at);
        let at = self.open.borrow_mut().put_session(before, record);
        place.set(RecordPlace { lsn, at, part: 0 });
    }

    /// Keeps the rows of a dropped message until its topic was read. Returns the rows if there is
    /// no room.
    pub(super) fn keep_until_read(&self, dropped: PagedOut) -> Option<PagedOut> {
        self.unread.borrow_mut().keep(dropped)
    }

    /// Begins to read the topics of a page of dropped messages. Returns the places of their rows,
    /// or `None` if there is nothing to read or the last page has not come.
    pub fn begin_unread_page(&self) -> Option<Vec<(EntryNumber, BodyNumber)>> {
        self.unread.borrow_mut().begin_page()
    }

    /// Records that the page was read. Its rows end.
    pub fn end_unread_page(&self) {
        let _ends = self.unread.borrow_mut().end_page();
    }

    /// Ends the rows of all dropped messages whose topics were not read.
    pub fn give_up_unread(&self) {
        let _ends = self.unread.take();
    }

    /// Counts bytes that are committed with this batch but are not in it: retained messages.
    pub fn weigh(&self, bytes: u64) {
        self.open.borrow_mut().weigh(bytes);
    }

    /// Returns the bytes that were recorded and may not be in the store yet.
    pub fn uncommitted(&self) -> u64 {
        self.sealed_bytes.get() + self.open.borrow().bytes()
    }

    /// Records a body or an entry, in the open part of a transaction if there is one. Returns the
    /// place where the record can be taken back.
    pub(super) fn put(&self, record: Record) -> RecordPlace {
        self.begun.set(true);
        let (at, part) = self.open.borrow_mut().put(record);
        RecordPlace { lsn: self.lsn.get(), at, part }
    }

    /// Ends a body or an entry: takes its record back, or records its end if its batch has left.
    pub(super) fn end(&self, place: RecordPlace, end: Record) {
        if !place.is_in(self.lsn.get()) {
            return self.record(end);
        }
        self.open.borrow_mut().take_back(place, end);
    }

    /// Changes an entry in place, or records the change if its batch has left. Returns true if it
    /// was changed in place.
    pub(super) fn change(&self, place: RecordPlace, number: EntryNumber, flight: Flight) -> bool {
        if place.is_in(self.lsn.get()) && self.open.borrow_mut().set_flight(place, flight) {
            return true;
        }
        self.record(Record::Sent { number, flight });
        false
    }

    /// Changes an entry in place, or records a further transmission if its batch has left. An
    /// earlier further transmission in the open batch is replaced.
    pub(super) fn resent(&self, place: RecordPlace, number: EntryNumber, flight: Flight) {
        let mut open = self.open.borrow_mut();
        if !(place.is_in(self.lsn.get()) && open.set_flight(place, flight)) {
            self.begun.set(true);
            open.put_resent(number, flight);
        }
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

    /// Returns true if [`Self::seal`] has a batch: something was recorded, and the last batch is
    /// committed. A batch with transactions or participants does not wait for the last commit,
    /// because shards might otherwise wait for each other.
    pub fn is_due(&self) -> bool {
        if !self.begun.get() {
            return false;
        }
        let idle = self.committed.get().0 + 1 == self.lsn.get().0;
        idle || self.seal_time.get() == SealTime::AtOnce || !self.open.borrow().transactions.is_empty()
    }

    /// Sets when the next batches are sealed.
    pub(crate) fn set_seal_time(&self, time: SealTime) {
        self.seal_time.set(time);
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
        let open = &mut *self.open.borrow_mut();
        if open.bytes() > 0 {
            self.sealed_bytes.set(self.sealed_bytes.get() + open.bytes());
            self.sealed.borrow_mut().push_back((lsn, open.bytes()));
        }
        Some(open.seal(self.shard, lsn))
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
        self.open.borrow_mut().transactions.begin(number);
        number
    }

    /// Adds a participant to a transaction that began in this batch, or to one in which this shard
    /// takes part.
    pub fn add_participant(&self, of: TransactionNumber) {
        self.open.borrow_mut().transactions.add_participant(of);
    }

    /// Sets this shard's outcome of a transaction that began in this batch. `incoming` is the
    /// identifier that is stored if some receiver takes the message.
    pub fn end_transaction(
        &self,
        of: TransactionNumber,
        outcome: Outcome,
        incoming: Option<(SessionKey, PacketId)>,
    ) {
        self.open.borrow_mut().transactions.end(of, outcome, incoming);
    }

    /// Opens this shard's part of a peer's transaction. Bodies and entries up to
    /// [`Self::end_participation`] go into it.
    pub fn begin_participation(&self, of: TransactionNumber) {
        self.begun.set(true);
        self.open.borrow_mut().transactions.begin_participation(of);
    }

    /// Suspends the open part. The part is resumed in a later turn, before the batch is sealed, and
    /// no other part begins in between.
    pub fn suspend_participation(&self) {
        self.open.borrow_mut().transactions.suspend();
    }

    /// Resumes the suspended part.
    pub fn resume_participation(&self) {
        self.open.borrow_mut().transactions.resume();
    }

    /// Closes the open part with this outcome. Does nothing without an open part.
    pub fn end_participation(&self, outcome: Outcome) {
        self.open.borrow_mut().transactions.end_participation(outcome);
    }

    /// Returns true if this shard's part of a peer's transaction is open.
    pub(super) fn is_participating(&self) -> bool {
        self.open.borrow().transactions.is_open()
    }

    /// Records that every receiver has finished the message of this gate.
    pub(super) fn finish(&self, gate: GateNumber) {
        self.finished.borrow_mut().push(gate);
    }

    /// Takes the gates whose messages were finished since the last call.
    pub fn take_finished(&self) -> Vec<GateNumber> {
        self.finished.take()
    }

    /// Returns true if [`Self::take_finished`] has a gate.
    pub fn has_finished(&self) -> bool {
        !self.finished.borrow().is_empty()
    }

    /// Records a message to publish later.
    pub fn delayed(&self, due: Instant, owned: OwnedMessage) -> DelayedNumber {
        let number = DelayedNumber(self.next_number());
        let OwnedMessage { message, owner } = owned;
        self.record(Record::Delayed(Box::new(StoredDelayed { number, due, message, owner })));
        number
    }
}

#[cfg(test)]
#[path = "write_buffer_tests.rs"]
mod tests;
