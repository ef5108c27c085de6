//! One change of the database, as a commit group has it.

use crate::persistence::records::Record;

/// A change that remains of a group: its record, with facts from other records of the group.
#[derive(Clone, Debug)]
pub struct Operation {
    /// The change. Never [`Record::Nothing`] or [`Record::IncomingRefused`].
    pub record: Record,
    /// The additions of the fold to the record.
    pub fold: Fold,
    /// The file time in milliseconds of the frame that the operation is in; 0 before it is in one.
    /// The age of a message counts from there.
    pub frame_ms: u64,
}

/// Facts from other records of a group about the row of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fold {
    /// Nothing more than the record.
    Plain,
    /// PUBREC has come for the entry, which does not need its body any more. Beside
    /// [`Record::Entry`] or [`Record::Sent`].
    Received,
    /// Nobody knows if the row of the identifier existed before the group, so a put and a deletion
    /// within the group do not cancel out. Beside [`Record::Incoming`] or [`Record::IncomingDone`],
    /// which may replace an [`Record::IncomingRefused`].
    Unknown,
}

impl From<Record> for Operation {
    fn from(record: Record) -> Operation {
        Operation { record, fold: Fold::Plain, frame_ms: 0 }
    }
}

/// The row that an operation changes: the key of the index.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Subject<'a> {
    Session(u64),
    Subscription(u64, &'a str),
    Body(u64),
    Entry(u64),
    Incoming(u64, u16),
    Delayed(u64),
    Letter(u64),
    Nothing,
}

impl Operation {
    /// Returns the row that the operation changes.
    pub(super) fn subject(&self) -> Subject<'_> {
        match &self.record {
            Record::Session(session) => Subject::Session(session.key.0),
            Record::SessionState(state) => Subject::Session(state.key.0),
            Record::SessionEnded(key) => Subject::Session(key.0),
            Record::Subscribed(s) => Subject::Subscription(s.session.0, &s.filter),
            Record::Unsubscribed { session, filter } => Subject::Subscription(session.0, filter),
            Record::Body { number, .. } | Record::BodyDone(number) | Record::BodyReleased(number) => {
                Subject::Body(number.0)
            }
            Record::Entry(entry) => Subject::Entry(entry.number.0),
            Record::Sent { number, .. }
            | Record::Received(number)
            | Record::EntryDone(number)
            | Record::EntryAcknowledged(number) => Subject::Entry(number.0),
            Record::Incoming { session, packet_id }
            | Record::IncomingDone { session, packet_id }
            | Record::IncomingRefused { session, packet_id } => Subject::Incoming(session.0, packet_id.get()),
            Record::Delayed(delayed) => Subject::Delayed(delayed.number.0),
            Record::DelayedDone(number) => Subject::Delayed(number.0),
            Record::Letter(letter) => Subject::Letter(letter.place.number.0),
            Record::LetterDone(number) => Subject::Letter(number.0),
            Record::Nothing => Subject::Nothing,
        }
    }

    /// Returns true if PUBREC has come for the entry that the operation puts or changes.
    pub fn is_received(&self) -> bool {
        self.fold == Fold::Received || matches!(self.record, Record::Received(_))
    }

    /// Returns true if the operation only deletes. Deletions are written first, so that other
    /// operations find the room.
    pub fn deletes(&self) -> bool {
        matches!(
            self.record,
            Record::SessionEnded(_)
                | Record::Unsubscribed { .. }
                | Record::BodyDone(_)
                | Record::BodyReleased(_)
                | Record::EntryDone(_)
                | Record::EntryAcknowledged(_)
                | Record::IncomingDone { .. }
                | Record::DelayedDone(_)
                | Record::LetterDone(_)
        )
    }

    /// Returns true if the operation needs no room and may be committed before the rest of its
    /// group.
    ///
    /// Such an operation records what a client has reported, and stays right if the rest is never
    /// committed. A message that is forwarded to another session ends with
    /// [`Record::EntryDone`], which stays behind. So does the change that withholds the Packet
    /// Identifier of a dropped message, because the message may have become a dead letter.
    pub fn goes_ahead(&self) -> bool {
        if let Record::Sent { flight, .. } = &self.record
            && flight.is_withheld()
        {
            return false;
        }
        matches!(
            (&self.record, self.fold),
            (
                Record::SessionState(_)
                    | Record::Unsubscribed { .. }
                    | Record::BodyReleased(_)
                    | Record::EntryAcknowledged(_)
                    | Record::Received(_)
                    | Record::IncomingDone { .. },
                Fold::Plain
            ) | (Record::Sent { .. }, Fold::Received)
        )
    }
}
