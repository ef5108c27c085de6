//! Folds the records of several batches into one commit group, in the order in which they were
//! made. A row that is put and deleted within the group cancels out. Whole groups are folded in the
//! same way into the one that the database takes next ([`CommitGroup::absorb`]).
//!
//! An index by number leads each record to the operation that it changes, so folding costs one
//! look-up for each record. Index and operations are reused from group to group, so a steady load
//! allocates nothing here.

use crate::mqtt::charge::Charge;
use crate::mqtt::keyed::Keyed;
use crate::mqtt::packet::PacketId;
use crate::persistence::records::{
    BodyNumber, EntryNumber, Record, RetainedRecord, SessionKey, SessionState,
};
use crate::store::operation::{Fold, Operation, Subject};
use hashbrown::HashTable;
use std::hash::BuildHasher;

/// Places of operations that cancelled out are kept up to this number and four times those in use.
/// Beyond it they are all taken away at once.
const VACANT: usize = 1 << 16;

/// Bytes of a retained message in a frame beside its message and its source.
const RETAINED: usize = 64;

/// The operations of one frame of the log, or of one transaction of the database.
#[derive(Debug, Default)]
pub struct CommitGroup {
    /// In the order of the first record of each; `None` if it has cancelled out.
    operations: Vec<Option<Operation>>,
    index: HashTable<u32>,
    live: usize,
    retained: Vec<RetainedRecord>,
    retained_index: HashTable<u32>,
    ends_sessions: bool,
    /// Given to operations that are folded in: [`Operation::frame_ms`].
    frame_ms: u64,
    recorded: u64,
    bytes: usize,
    highest: u64,
    /// The charge of the batches that were folded in.
    charge: Charge,
}

impl CommitGroup {
    /// Returns the operations that remain, in order.
    pub fn operations(&self) -> impl Iterator<Item = &Operation> {
        self.operations.iter().flatten()
    }

    /// Returns the operations that may be committed alone if there is no room for all. Deletions of
    /// retained messages ([`CommitGroup::retained`]) may, too.
    pub fn ahead(&self) -> impl Iterator<Item = &Operation> {
        self.operations().filter(|operation| operation.goes_ahead())
    }

    /// Returns true if [`CommitGroup::ahead`] or the deletions of retained messages are not empty.
    pub fn has_ahead(&self) -> bool {
        self.ahead().next().is_some() || self.retained_removed().next().is_some()
    }

    /// Returns the deletions of retained messages.
    pub fn retained_removed(&self) -> impl Iterator<Item = &RetainedRecord> {
        self.retained.iter().filter(|record| matches!(record, RetainedRecord::Removed(_)))
    }

    /// Returns the operation on the row of an entry.
    pub fn on_entry(&self, number: EntryNumber) -> Option<&Operation> {
        self.find(Subject::Entry(number.0)).and_then(|at| self.operations[at].as_ref())
    }

    /// Returns the operation on the row of a body.
    pub fn on_body(&self, number: BodyNumber) -> Option<&Operation> {
        self.find(Subject::Body(number.0)).and_then(|at| self.operations[at].as_ref())
    }

    /// Removes the operations of [`CommitGroup::ahead`], which are committed now. Deletions of
    /// retained messages stay, since a second deletion does no harm.
    pub fn went_ahead(&mut self) {
        for at in 0..self.operations.len() {
            if self.operations[at].as_ref().is_some_and(Operation::goes_ahead) {
                self.cancel(at);
            }
        }
    }

    /// Returns the last change to the retained message of each topic.
    pub fn retained(&self) -> &[RetainedRecord] {
        &self.retained
    }

    /// Returns true if there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.live == 0 && self.retained.is_empty()
    }

    /// Returns the number of operations that remain, changes of retained messages included.
    pub fn len(&self) -> usize {
        self.live + self.retained.len()
    }

    /// Returns the number of records that were folded in.
    pub fn recorded(&self) -> u64 {
        self.recorded
    }

    /// Returns the number of records that cancelled out or were replaced by a later record.
    pub fn cancelled(&self) -> u64 {
        self.recorded - self.len() as u64
    }

    /// Returns the bytes of the messages folded in, those that cancelled out included.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns an upper estimate of the bytes that the group takes in a frame: of its messages and of
    /// its records, those that cancelled out included.
    pub fn size(&self) -> usize {
        self.bytes + self.charge.bytes() + RETAINED * self.retained.len()
    }

    /// Returns the highest number of a session, entry, body, delayed message or dead letter in the
    /// group.
    pub fn highest_number(&self) -> u64 {
        self.highest
    }

    /// Takes over the charge of a batch that is folded in. The charge ends with
    /// [`CommitGroup::clear`].
    pub fn take_charge(&mut self, charge: &Charge) {
        self.charge.add(charge.bytes());
    }

    /// Empties the group for the next one. The allocations stay.
    pub fn clear(&mut self) {
        self.operations.clear();
        self.index.clear();
        self.retained.clear();
        self.retained_index.clear();
        (self.live, self.ends_sessions, self.recorded, self.bytes, self.highest) = (0, false, 0, 0, 0);
        self.frame_ms = 0;
        self.charge.set(0);
    }

    /// Folds in the operations of a later group, which is left without any. `frame_ms` is the file
    /// time of its frame, for operations that were in no frame before. The charge of the group
    /// moves over as well.
    pub fn absorb(&mut self, later: &mut CommitGroup, frame_ms: u64) {
        self.take_charge(&later.charge);
        later.charge.set(0);
        self.absorb_all(later.operations.drain(..).flatten(), later.retained.drain(..), frame_ms);
        later.index.clear();
        later.retained_index.clear();
        later.live = 0;
    }

    /// As [`CommitGroup::absorb`], for operations without a group. A frame that was read has such.
    pub fn absorb_all(
        &mut self,
        operations: impl IntoIterator<Item = Operation>,
        retained: impl IntoIterator<Item = RetainedRecord>,
        frame_ms: u64,
    ) {
        for operation in operations {
            // A message keeps its age.
            self.frame_ms = if operation.frame_ms > 0 { operation.frame_ms } else { frame_ms };
            self.absorb_one(operation);
        }
        retained.into_iter().for_each(|record| self.retain(record));
        if self.operations.len() > 4 * self.live + VACANT {
            self.close_ranks();
        }
    }

    fn absorb_one(&mut self, operation: Operation) {
        match (operation.fold, &operation.record) {
            // A part of the deletions may be in the database already (`Sqlite::apply_ahead`), so an
            // identifier that comes back is put, and does not cancel out with its deletion.
            (Fold::Plain, Record::Incoming { .. }) if self.is_deleted(&operation) => {
                self.recorded += 1;
                self.put(Operation { fold: Fold::Unknown, ..operation });
            }
            (Fold::Plain, _) => self.fold(operation.record),
            // Right whatever the row was before, so nothing needs to cancel out.
            (Fold::Unknown, _) => {
                self.recorded += 1;
                self.put(operation);
            }
            (Fold::Received, Record::Sent { number, .. }) => {
                let number = *number;
                self.fold(operation.record);
                self.fold(Record::Received(number));
            }
            (Fold::Received, Record::Entry(entry)) => {
                let number = entry.number;
                self.fold(operation.record);
                self.fold(Record::Received(number));
            }
            (Fold::Received, _) => self.fold(operation.record),
        }
    }

    /// Returns true if the group has the deletion of the row of an operation.
    fn is_deleted(&self, operation: &Operation) -> bool {
        let before = self.find(operation.subject()).and_then(|at| self.operations[at].as_ref());
        before.is_some_and(Operation::deletes)
    }

    /// Takes away the places of operations that cancelled out. Costs one look at each operation,
    /// after at least as many have come.
    fn close_ranks(&mut self) {
        self.operations.retain(Option::is_some);
        self.index.clear();
        let operations = &self.operations;
        let hash_of = |at: &u32| operations[*at as usize].as_ref().map_or(0, |o| hash(o.subject()));
        for at in 0..operations.len() as u32 {
            self.index.insert_unique(hash_of(&at), at, hash_of);
        }
    }

    /// Folds in a change to a retained message. These changes have an order of their own, apart
    /// from the batches.
    pub fn retain(&mut self, record: RetainedRecord) {
        self.recorded += 1;
        self.bytes += match &record {
            RetainedRecord::Set(retained) => retained.message.size(),
            RetainedRecord::Removed(removed) => removed.topic().len(),
        };
        let hash = Keyed.hash_one(topic(&record));
        let retained = &mut self.retained;
        if let Some(at) =
            self.retained_index.find(hash, |at| topic(&retained[*at as usize]) == topic(&record))
        {
            retained[*at as usize] = record;
            return;
        }
        retained.push(record);
        let at = (retained.len() - 1) as u32;
        let hash_of = |at: &u32| Keyed.hash_one(topic(&retained[*at as usize]));
        self.retained_index.insert_unique(hash, at, hash_of);
    }

    /// Moves changes of retained messages, the first ones first, into a group until that has `most`
    /// bytes. Costs one step for each change.
    pub fn move_retained(&mut self, to: &mut CommitGroup, most: usize) {
        // Those that a later change has replaced count there.
        to.recorded += self.recorded - self.retained.len() as u64;
        let mut retained = std::mem::take(&mut self.retained).into_iter();
        self.retained_index.clear();
        (self.recorded, self.bytes) = (0, 0);
        while to.size() < most
            && let Some(record) = retained.next()
        {
            to.retain(record);
        }
        retained.for_each(|record| self.retain(record));
    }

    /// Folds in one record, behind all earlier records.
    pub fn fold(&mut self, record: Record) {
        self.recorded += 1;
        match record {
            Record::SessionState(state) => self.change_session(state),
            Record::SessionEnded(key) => self.end_session(key),
            Record::Session(_)
            | Record::Body { .. }
            | Record::Entry(_)
            | Record::Delayed(_)
            | Record::Letter(_)
            | Record::Subscribed(_)
            | Record::Unsubscribed { .. } => {
                self.count(&record);
                self.put(record.into());
            }
            Record::Sent { number, .. } | Record::Received(number) => self.change_entry(number, record),
            Record::BodyDone(_)
            | Record::BodyReleased(_)
            | Record::EntryDone(_)
            | Record::EntryAcknowledged(_)
            | Record::Incoming { .. }
            | Record::IncomingDone { .. }
            | Record::DelayedDone(_)
            | Record::LetterDone(_) => self.done(record.into()),
            Record::IncomingRefused { session, packet_id } => self.refuse(session, packet_id),
            Record::Nothing => {}
        }
    }

    /// Counts the number and the message of a record that has them.
    fn count(&mut self, record: &Record) {
        let (number, bytes) = match record {
            Record::Session(session) => (session.key.0, session.will.as_ref().map_or(0, |will| will.size())),
            Record::Body { number, message } => (number.0, message.size()),
            Record::Entry(entry) => (entry.number.0, 0),
            Record::Delayed(delayed) => (delayed.number.0, delayed.message.size()),
            Record::Letter(letter) => (letter.place.number.0, letter.size()),
            _ => return,
        };
        self.highest = self.highest.max(number);
        self.bytes += bytes;
    }

    /// Removes the operations on sessions that end in this group. Call it before the group is
    /// written, and again if more records were folded in.
    pub fn seal(&mut self) {
        if !std::mem::take(&mut self.ends_sessions) {
            return;
        }
        for at in 0..self.operations.len() {
            let of = match self.operations[at].as_ref().map(|operation| &operation.record) {
                Some(Record::Subscribed(subscription)) => subscription.session,
                Some(
                    Record::Unsubscribed { session, .. }
                    | Record::Incoming { session, .. }
                    | Record::IncomingDone { session, .. },
                ) => *session,
                _ => continue,
            };
            let end = self.find(Subject::Session(of.0)).and_then(|end| self.operations[end].as_ref());
            if matches!(end, Some(Operation { record: Record::SessionEnded(_), .. })) {
                self.cancel(at);
            }
        }
    }

    /// Replaces the operation on the same row, or adds one.
    fn put(&mut self, operation: Operation) {
        match self.find(operation.subject()) {
            Some(at) => self.operations[at] = Some(Operation { frame_ms: self.frame_ms, ..operation }),
            None => self.push(operation),
        }
    }

    /// Folds in the opposite of an earlier operation: the deletion of a put, or an identifier that
    /// comes back after its deletion. The two cancel out, and the row keeps its content from before
    /// the group.
    fn done(&mut self, mut operation: Operation) {
        let Some(at) = self.find(operation.subject()) else {
            return self.push(operation);
        };
        let opposite = match &self.operations[at] {
            Some(Operation { record: Record::Sent { .. } | Record::Received(_), .. }) | None => false,
            Some(Operation { fold: Fold::Unknown, .. }) => {
                operation.fold = Fold::Unknown;
                false
            }
            Some(before) => {
                std::mem::discriminant(&before.record) != std::mem::discriminant(&operation.record)
            }
        };
        if opposite {
            self.cancel(at);
        } else {
            self.operations[at] = Some(operation);
        }
    }

    /// Folds in the end of an identifier whose message nobody took.
    fn refuse(&mut self, session: SessionKey, packet_id: PacketId) {
        let begun = self.find(Subject::Incoming(session.0, packet_id.get())).filter(|at| {
            matches!(
                self.operations[*at],
                Some(Operation { record: Record::Incoming { .. }, fold: Fold::Plain, .. })
            )
        });
        match begun {
            Some(at) => self.cancel(at),
            // The row may exist or not, so from here on the last record wins.
            None => {
                let record = Record::IncomingDone { session, packet_id };
                self.put(Operation { record, fold: Fold::Unknown, frame_ms: self.frame_ms });
            }
        }
    }

    /// Folds in a change of an entry: [`Record::Sent`] or [`Record::Received`].
    fn change_entry(&mut self, number: EntryNumber, change: Record) {
        let Some(at) = self.find(Subject::Entry(number.0)) else { return self.push(change.into()) };
        let Some(Operation { record, fold, .. }) = &mut self.operations[at] else { return };
        match (&mut *record, change) {
            (Record::Entry(_) | Record::Sent { .. }, Record::Received(_)) => *fold = Fold::Received,
            (Record::Entry(entry), Record::Sent { flight, .. }) => entry.flight = Some(flight),
            (Record::Sent { .. }, sent @ Record::Sent { .. }) => *record = sent,
            (Record::Received(_), sent @ Record::Sent { .. }) => (*record, *fold) = (sent, Fold::Received),
            // An entry that is done does not change any more.
            _ => {}
        }
    }

    fn change_session(&mut self, state: SessionState) {
        let Some(at) = self.find(Subject::Session(state.key.0)) else {
            return self.push(Record::SessionState(state).into());
        };
        match self.operations[at].as_mut().map(|operation| &mut operation.record) {
            Some(Record::Session(session)) => {
                (session.connected, session.ends) = (state.connected, state.ends);
                session.will_due = state.will_due;
            }
            Some(Record::SessionState(before)) => *before = state,
            // A session that has ended does not change any more.
            _ => {}
        }
    }

    /// Folds in the end of a session. The group cannot know if the session was stored before, so
    /// the end is always written.
    fn end_session(&mut self, key: SessionKey) {
        if let Some(at) = self.find(Subject::Session(key.0)) {
            self.cancel(at);
        }
        self.push(Record::SessionEnded(key).into());
        self.ends_sessions = true;
    }

    fn find(&self, subject: Subject<'_>) -> Option<usize> {
        let is_it = |at: &u32| {
            self.operations[*at as usize].as_ref().is_some_and(|operation| operation.subject() == subject)
        };
        self.index.find(hash(subject), is_it).map(|at| *at as usize)
    }

    fn push(&mut self, operation: Operation) {
        let hash_of_new = hash(operation.subject());
        self.operations.push(Some(Operation { frame_ms: self.frame_ms, ..operation }));
        self.live += 1;
        let operations = &self.operations;
        // Operations that cancelled out have left the index.
        let hash_of = |at: &u32| operations[*at as usize].as_ref().map_or(0, |o| hash(o.subject()));
        self.index.insert_unique(hash_of_new, (operations.len() - 1) as u32, hash_of);
    }

    fn cancel(&mut self, at: usize) {
        let Some(operation) = self.operations[at].take() else { return };
        self.live -= 1;
        if let Ok(indexed) = self.index.find_entry(hash(operation.subject()), |other| *other as usize == at) {
            indexed.remove();
        }
    }
}

fn hash(subject: Subject<'_>) -> u64 {
    Keyed.hash_one(subject)
}

fn topic(record: &RetainedRecord) -> &str {
    match record {
        RetainedRecord::Set(retained) => retained.message.topic(),
        RetainedRecord::Removed(removed) => removed.topic(),
    }
}

#[cfg(test)]
pub(crate) mod tests;
