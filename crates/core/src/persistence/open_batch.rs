//! The records of one open batch: those of the batch itself, and those of this shard's parts of
//! peers' transactions.
//!
//! A record of a body or an entry has a [`RecordPlace`] while its batch is open. Until the batch is
//! sealed, the record can be taken back or changed at that place.

use crate::mqtt::charge::Charge;
use crate::persistence::records::{Batch, EntryNumber, Flight, Lsn, Record, SessionKey};
use crate::persistence::transactions::Transactions;
use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashTable};
use std::hash::BuildHasher;

/// The records of one open batch.
#[derive(Debug, Default)]
pub(super) struct OpenBatch {
    records: Vec<Record>,
    /// Bytes that the records take in the store, as [`Record::weight`] says.
    bytes: u64,
    /// Indexes in `records` whose record was taken back.
    vacant: Vec<u32>,
    /// Indexes in `records` of changed subscriptions, by session and filter. A client that
    /// subscribes to one filter again and again has one record while a sync hangs.
    subscriptions: HashTable<u32>,
    /// Indexes in `records` of further transmissions, by delivery: one record for each, however
    /// often the client returns.
    resent: HashMap<EntryNumber, u32, RandomState>,
    /// Number of records that were taken back, with the records that ended them.
    cancelled: u64,
    /// The transactions that this shard began, and its parts of others.
    pub transactions: Transactions,
    /// The charge of the records. Messages have charges of their own.
    charge: Charge,
}

/// The place of a record while its batch is open. The default is no place.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecordPlace {
    /// The number of the batch.
    pub lsn: Lsn,
    /// The index in the records of the batch, or of the part.
    pub at: u32,
    /// The number of parts when this record was put into the last of them; 0 if it is in none. A
    /// record can be taken back only while its part is open. After that, the part may be committed
    /// without the rest of the batch.
    pub part: u32,
}

impl RecordPlace {
    /// Stands in `at` for an entry that goes on as a paged-out entry.
    pub(super) const PAGED_OUT: u32 = u32::MAX;
    /// Stands in `at` for an entry whose own record cannot be changed any more. `lsn` is then the
    /// batch of its latest state.
    const LEFT: u32 = u32::MAX - 1;

    /// Returns the place of an entry whose own record cannot be changed any more, and whose latest
    /// state is in this batch.
    pub(super) fn left(lsn: Lsn) -> RecordPlace {
        RecordPlace { lsn, at: RecordPlace::LEFT, part: 0 }
    }

    /// Returns true if the record can be taken back while the batch `open` is open.
    pub(super) fn is_in(self, open: Lsn) -> bool {
        self.lsn == open && self.at != RecordPlace::LEFT
    }
}

impl OpenBatch {
    /// Returns the bytes that the batch takes in the store.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Counts bytes that are committed with this batch but are not in it.
    pub(super) fn weigh(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// Returns the number of records outside all parts, with those taken back.
    #[cfg(test)]
    pub(super) fn record_count(&self) -> usize {
        self.records.len()
    }

    /// Adds a record at the end.
    pub(super) fn add(&mut self, record: Record) {
        self.count(&record);
        self.records.push(record);
    }

    /// Adds a change of a subscription, or replaces the change of the same subscription. The hasher
    /// is the same in each call.
    pub(super) fn put_subscription(&mut self, hasher: &RandomState, record: Record) {
        let Some(key) = subscription_of(&record) else { return self.add(record) };
        let (hash, records) = (hasher.hash_one(key), &self.records);
        let of = |at: &u32| records.get(*at as usize).and_then(subscription_of);
        if let Some(at) = self.subscriptions.find(hash, |at| of(at) == Some(key)).copied() {
            return self.replace(at, record);
        }
        let at = records.len() as u32;
        self.subscriptions.insert_unique(hash, at, |at| hasher.hash_one(of(at).unwrap_or(key)));
        self.add(record);
    }

    /// Adds a further transmission of a delivery, or replaces the last one.
    pub(super) fn put_resent(&mut self, number: EntryNumber, flight: Flight) {
        let record = Record::Sent { number, flight };
        if let Some(at) = self.resent.get(&number).copied() {
            return self.replace(at, record);
        }
        self.resent.insert(number, self.records.len() as u32);
        self.add(record);
    }

    fn replace(&mut self, at: u32, record: Record) {
        let Some(present) = self.records.get_mut(at as usize) else { return };
        self.cancelled += 1;
        self.charge.sub(present.size());
        self.bytes = self.bytes.saturating_sub(present.weight());
        self.charge.add(record.size());
        self.bytes += record.weight();
        *present = record;
    }

    /// Adds the present session, or replaces its record at `before`. Returns the index of the
    /// record. A mere change of the connection state changes the full record in place.
    pub(super) fn put_session(&mut self, before: Option<u32>, record: Record) -> u32 {
        if let Some(at) = before
            && let Some(present) = self.records.get_mut(at as usize)
        {
            match (record, present) {
                (Record::SessionState(state), Record::Session(session)) => {
                    self.cancelled += 1;
                    (session.connected, session.ends) = (state.connected, state.ends);
                    session.will_due = state.will_due;
                    self.bytes += Record::SessionState(state).weight();
                }
                (record, _) => self.replace(at, record),
            }
            return at;
        }
        self.add(record);
        self.records.len() as u32 - 1
    }

    /// Adds a body or an entry, in the open part if there is one. Returns its index and the number
    /// of that part, 0 for none. The store does not depend on the order of bodies and entries, so
    /// they take vacant places.
    pub(super) fn put(&mut self, record: Record) -> (u32, u32) {
        self.count(&record);
        let part = self.transactions.open_number();
        let at = match self.transactions.open() {
            Some(open) => {
                open.records.push(record);
                open.records.len() as u32 - 1
            }
            None => self.place(record),
        };
        (at, part)
    }

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

    /// Takes the record at a place of this batch back. Adds `end` instead if the record is in a
    /// part that has been closed.
    pub(super) fn take_back(&mut self, place: RecordPlace, end: Record) {
        if place.part != 0 {
            let open = self.transactions.open_number() == place.part;
            let part = self.transactions.open().filter(|_| open);
            match part.and_then(|part| part.records.get_mut(place.at as usize)) {
                Some(record) => {
                    self.charge.sub(record.size());
                    self.bytes = self.bytes.saturating_sub(record.weight());
                    *record = Record::Nothing;
                    self.cancelled += 2;
                }
                None => {
                    self.charge.add(end.size());
                    self.records.push(end);
                }
            }
        } else if let Some(record) = self.records.get_mut(place.at as usize) {
            self.charge.sub(record.size());
            self.bytes = self.bytes.saturating_sub(record.weight());
            *record = Record::Nothing;
            self.vacant.push(place.at);
            self.cancelled += 2;
        }
    }

    /// Sets the flight of an entry at a place of this batch. Returns false, and changes nothing, if
    /// the entry is in a part.
    pub(super) fn set_flight(&mut self, place: RecordPlace, flight: Flight) -> bool {
        if place.part == 0
            && let Some(Record::Entry(entry)) = self.records.get_mut(place.at as usize)
        {
            entry.flight = Some(flight);
            return true;
        }
        false
    }

    /// Takes everything out, as the sealed batch with this number.
    pub(super) fn seal(&mut self, shard: u8, lsn: Lsn) -> Batch {
        let (transactions, participants) = self.transactions.take();
        if !std::mem::take(&mut self.vacant).is_empty() {
            self.records.retain(|record| !matches!(record, Record::Nothing));
        }
        self.bytes = 0;
        self.subscriptions.clear();
        self.resent.clear();
        Batch {
            cancelled: std::mem::take(&mut self.cancelled),
            charge: std::mem::take(&mut self.charge),
            shard,
            lsn,
            records: std::mem::take(&mut self.records),
            transactions,
            participants,
        }
    }

    fn count(&mut self, record: &Record) {
        self.charge.add(record.size());
        self.bytes += record.weight();
    }
}

/// Returns the session and the filter of a changed subscription.
fn subscription_of(record: &Record) -> Option<(SessionKey, &str)> {
    match record {
        Record::Subscribed(subscription) => Some((subscription.session, &subscription.filter)),
        Record::Unsubscribed { session, filter } => Some((*session, filter)),
        _ => None,
    }
}
