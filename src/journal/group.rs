//! What a set of batches comes to: folded record by record in the order they were made, until what was put and deleted
//! again within the set is gone.
//!
//! An index by number leads each record to the operation that it changes, so folding costs one look-up a record. Index and
//! operations are kept from group to group: a steady load allocates nothing here.

use super::record::{
    BodyNumber, DelayedNumber, EntryNumber, Flight, Record, RetainedRecord, SessionKey, SessionState,
    StoredDelayed, StoredEntry, StoredSession, StoredSubscription,
};
use crate::mqtt::charge::Charge;
use crate::mqtt::keyed::Keyed;
use crate::mqtt::message::Message;
use crate::mqtt::packet::PacketId;
use hashbrown::HashTable;
use std::hash::{BuildHasher, Hash};

/// One change that is left of a group.
#[derive(Clone, Debug)]
pub enum Operation {
    Session(Box<StoredSession>),
    /// Of a session of an earlier group.
    SessionState(SessionState),
    /// With its subscriptions and incoming identifiers. It stands behind all that was said of them.
    SessionEnded(SessionKey),
    Subscribed(Box<StoredSubscription>),
    Unsubscribed {
        session: SessionKey,
        filter: Box<str>,
    },
    Body {
        number: BodyNumber,
        message: Message,
    },
    BodyDone(BodyNumber),
    /// As [`Record::BodyReleased`].
    BodyReleased(BodyNumber),
    /// A new entry, its place in the window folded in.
    Entry {
        entry: Box<StoredEntry>,
        /// PUBREC came already: the body is nothing to it.
        received: bool,
    },
    /// What became of an entry of an earlier group.
    EntryChanged {
        number: EntryNumber,
        /// None: as it was.
        flight: Option<Flight>,
        /// PUBREC came; false: as it was.
        received: bool,
    },
    EntryDone(EntryNumber),
    /// As [`Record::EntryAcknowledged`].
    EntryAcknowledged(EntryNumber),
    Incoming {
        session: SessionKey,
        packet_id: PacketId,
        /// Whether the row was there before the group, one knows: then what comes and goes within it cancels out.
        known: bool,
    },
    IncomingDone {
        session: SessionKey,
        packet_id: PacketId,
        known: bool,
    },
    Delayed(Box<StoredDelayed>),
    DelayedDone(DelayedNumber),
}

/// What an operation is about: the index's key.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Subject<'a> {
    Session(u64),
    Subscription(u64, &'a str),
    Body(u64),
    Entry(u64),
    Incoming(u64, u16),
    Delayed(u64),
}

impl Operation {
    fn subject(&self) -> Subject<'_> {
        match self {
            Operation::Session(session) => Subject::Session(session.key.0),
            Operation::SessionState(state) => Subject::Session(state.key.0),
            Operation::SessionEnded(key) => Subject::Session(key.0),
            Operation::Subscribed(s) => Subject::Subscription(s.session.0, &s.filter),
            Operation::Unsubscribed { session, filter } => Subject::Subscription(session.0, filter),
            Operation::Body { number, .. }
            | Operation::BodyDone(number)
            | Operation::BodyReleased(number) => Subject::Body(number.0),
            Operation::Entry { entry, .. } => Subject::Entry(entry.number.0),
            Operation::EntryChanged { number, .. }
            | Operation::EntryDone(number)
            | Operation::EntryAcknowledged(number) => Subject::Entry(number.0),
            Operation::Incoming { session, packet_id, .. }
            | Operation::IncomingDone { session, packet_id, .. } => {
                Subject::Incoming(session.0, packet_id.get())
            }
            Operation::Delayed(delayed) => Subject::Delayed(delayed.number.0),
            Operation::DelayedDone(number) => Subject::Delayed(number.0),
        }
    }
}

impl Operation {
    /// True if it only takes something away. Such operations are written first: what they free, the others find.
    pub fn deletes(&self) -> bool {
        matches!(
            self,
            Operation::SessionEnded(_)
                | Operation::Unsubscribed { .. }
                | Operation::BodyDone(_)
                | Operation::BodyReleased(_)
                | Operation::EntryDone(_)
                | Operation::EntryAcknowledged(_)
                | Operation::IncomingDone { .. }
                | Operation::DelayedDone(_)
        )
    }

    /// True if it needs no room, and may be committed before the rest of its group: it says what a client told, and is as
    /// right if the rest never comes. A message that goes on to somebody else ends with [`Operation::EntryDone`], which
    /// stays behind.
    pub fn goes_ahead(&self) -> bool {
        matches!(
            self,
            Operation::SessionState(_)
                | Operation::Unsubscribed { .. }
                | Operation::BodyReleased(_)
                | Operation::EntryAcknowledged(_)
                | Operation::EntryChanged { received: true, .. }
                | Operation::IncomingDone { known: true, .. }
        )
    }
}

/// What is to be written in one transaction.
#[derive(Debug, Default)]
pub struct Group {
    /// In the order in which each was first said; None where it has cancelled out.
    operations: Vec<Option<Operation>>,
    index: HashTable<u32>,
    live: usize,
    retained: Vec<RetainedRecord>,
    retained_index: HashTable<u32>,
    ends_sessions: bool,
    recorded: u64,
    bytes: usize,
    highest: u64,
    /// Of the batches that were folded in.
    charge: Charge,
}

impl Group {
    /// The operations that are left, in order.
    pub fn operations(&self) -> impl Iterator<Item = &Operation> {
        self.operations.iter().flatten()
    }

    /// What may be committed by itself where there is no room for all of it; [`Group::retained`] has deletions besides.
    pub fn ahead(&self) -> impl Iterator<Item = &Operation> {
        self.operations().filter(|operation| operation.goes_ahead())
    }

    /// Whether there is anything of that.
    pub fn has_ahead(&self) -> bool {
        let removed = |record: &RetainedRecord| matches!(record, RetainedRecord::Removed(_));
        self.ahead().next().is_some() || self.retained.iter().any(removed)
    }

    /// That is committed: it is taken out. Deletions of retained messages stay, since they may be said twice.
    pub fn went_ahead(&mut self) {
        for at in 0..self.operations.len() {
            if self.operations[at].as_ref().is_some_and(Operation::goes_ahead) {
                self.cancel(at);
            }
        }
    }

    /// The last change to each topic's retained message.
    pub fn retained(&self) -> &[RetainedRecord] {
        &self.retained
    }

    /// Whether nothing has to be written.
    pub fn is_empty(&self) -> bool {
        self.live == 0 && self.retained.is_empty()
    }

    /// Operations left, retained ones included.
    pub fn len(&self) -> usize {
        self.live + self.retained.len()
    }

    /// Records that were folded in.
    pub fn recorded(&self) -> u64 {
        self.recorded
    }

    /// How many of them nothing is left of: they cancelled out, or a later one stands for them.
    pub fn cancelled(&self) -> u64 {
        self.recorded - self.len() as u64
    }

    /// Bytes of the messages folded in, those that cancelled out included.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The highest number given to a session, entry, body or delayed message in it.
    pub fn highest_number(&self) -> u64 {
        self.highest
    }

    /// What is folded in from a batch stays on the account.
    pub fn hold(&mut self, charge: &Charge) {
        self.charge.add(charge.bytes());
    }

    /// For the next group; what was allocated is kept.
    pub fn clear(&mut self) {
        self.operations.clear();
        self.index.clear();
        self.retained.clear();
        self.retained_index.clear();
        (self.live, self.ends_sessions, self.recorded, self.bytes, self.highest) = (0, false, 0, 0, 0);
        self.charge.set(0);
    }

    /// Folds in a change to a retained message. They have an order of their own, and no share in the batches'.
    pub fn retain(&mut self, record: RetainedRecord) {
        self.recorded += 1;
        if let RetainedRecord::Set(message) = &record {
            self.bytes += message.size();
        }
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

    /// Folds in one record behind those before it.
    pub fn fold(&mut self, record: Record) {
        self.recorded += 1;
        match record {
            Record::Session(session) => {
                self.highest = self.highest.max(session.key.0);
                self.put(Operation::Session(session));
            }
            Record::SessionState(state) => self.change_session(state),
            Record::SessionEnded(key) => self.end_session(key),
            Record::Subscribed(subscription) => self.put(Operation::Subscribed(subscription)),
            Record::Unsubscribed { session, filter } => {
                self.put(Operation::Unsubscribed { session, filter });
            }
            Record::Body { number, message } => {
                self.highest = self.highest.max(number.0);
                self.bytes += message.size();
                self.put(Operation::Body { number, message });
            }
            Record::BodyDone(number) => self.done(Operation::BodyDone(number)),
            Record::BodyReleased(number) => self.done(Operation::BodyReleased(number)),
            Record::Entry(entry) => {
                self.highest = self.highest.max(entry.number.0);
                self.put(Operation::Entry { entry, received: false });
            }
            Record::Sent { number, flight } => self.change_entry(number, Some(flight)),
            Record::Received(number) => self.change_entry(number, None),
            Record::EntryDone(number) => self.done(Operation::EntryDone(number)),
            Record::EntryAcknowledged(number) => self.done(Operation::EntryAcknowledged(number)),
            Record::Incoming { session, packet_id } => {
                self.done(Operation::Incoming { session, packet_id, known: true });
            }
            Record::IncomingDone { session, packet_id } => {
                self.done(Operation::IncomingDone { session, packet_id, known: true });
            }
            Record::IncomingRefused { session, packet_id } => {
                match self.find(Subject::Incoming(session.0, packet_id.get())) {
                    Some(at)
                        if matches!(self.operations[at], Some(Operation::Incoming { known: true, .. })) =>
                    {
                        self.cancel(at);
                    }
                    // The row may be there or not, so from here on the last word stands.
                    _ => self.put(Operation::IncomingDone { session, packet_id, known: false }),
                }
            }
            Record::Delayed(delayed) => {
                self.highest = self.highest.max(delayed.number.0);
                self.bytes += delayed.message.size();
                self.put(Operation::Delayed(delayed));
            }
            Record::DelayedDone(number) => self.done(Operation::DelayedDone(number)),
            Record::Nothing => {}
        }
    }

    /// Takes out what was said of sessions that end in this group: once, before it is written. More may be folded in
    /// behind it, and then it is due again.
    pub fn seal(&mut self) {
        if !std::mem::take(&mut self.ends_sessions) {
            return;
        }
        for at in 0..self.operations.len() {
            let of = match &self.operations[at] {
                Some(Operation::Subscribed(subscription)) => subscription.session,
                Some(Operation::Unsubscribed { session, .. }) => *session,
                Some(Operation::Incoming { session, .. } | Operation::IncomingDone { session, .. }) => {
                    *session
                }
                _ => continue,
            };
            let end = self.find(Subject::Session(of.0)).and_then(|end| self.operations[end].as_ref());
            if matches!(end, Some(Operation::SessionEnded(_))) {
                self.cancel(at);
            }
        }
    }

    /// In place of what was said of the same before.
    fn put(&mut self, operation: Operation) {
        match self.find(operation.subject()) {
            Some(at) => self.operations[at] = Some(operation),
            None => self.push(operation),
        }
    }

    /// The opposite of a put. What the group itself put is cancelled; so is an identifier that comes back after its
    /// deletion, and what is left of that is the row as it was.
    fn done(&mut self, mut operation: Operation) {
        let Some(at) = self.find(operation.subject()) else {
            return self.push(operation);
        };
        let opposite = match (&self.operations[at], &mut operation) {
            (Some(Operation::EntryChanged { .. }), _) => false,
            (
                Some(Operation::Incoming { known: false, .. } | Operation::IncomingDone { known: false, .. }),
                Operation::Incoming { known, .. } | Operation::IncomingDone { known, .. },
            ) => {
                *known = false;
                false
            }
            (Some(before), after) => std::mem::discriminant(before) != std::mem::discriminant(after),
            (None, _) => false,
        };
        if opposite {
            self.cancel(at);
        } else {
            self.operations[at] = Some(operation);
        }
    }

    /// Sent, or, without a flight, received.
    fn change_entry(&mut self, number: EntryNumber, sent: Option<Flight>) {
        let Some(at) = self.find(Subject::Entry(number.0)) else {
            return self.push(Operation::EntryChanged { number, flight: sent, received: sent.is_none() });
        };
        match &mut self.operations[at] {
            Some(Operation::Entry { entry, received }) => {
                entry.flight = sent.or(entry.flight);
                *received |= sent.is_none();
            }
            Some(Operation::EntryChanged { flight, received, .. }) => {
                *flight = sent.or(*flight);
                *received |= sent.is_none();
            }
            // Nothing becomes of an entry that is done.
            _ => {}
        }
    }

    fn change_session(&mut self, state: SessionState) {
        let Some(at) = self.find(Subject::Session(state.key.0)) else {
            return self.push(Operation::SessionState(state));
        };
        match &mut self.operations[at] {
            Some(Operation::Session(session)) => {
                (session.connected, session.ends) = (state.connected, state.ends);
                session.will_due = state.will_due;
            }
            Some(Operation::SessionState(before)) => *before = state,
            // Nothing becomes of a session that has ended.
            _ => {}
        }
    }

    /// Whether the session was kept before, a group cannot know, so its end is always written; what it was is not.
    fn end_session(&mut self, key: SessionKey) {
        if let Some(at) = self.find(Subject::Session(key.0)) {
            self.cancel(at);
        }
        self.push(Operation::SessionEnded(key));
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
        self.operations.push(Some(operation));
        self.live += 1;
        let operations = &self.operations;
        // What has cancelled out has left the index.
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
        RetainedRecord::Set(message) => message.topic(),
        RetainedRecord::Removed(topic) => topic,
    }
}

#[cfg(test)]
mod tests;
