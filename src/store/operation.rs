//! One change of the database, as a commit group has it.

use crate::mqtt::message::Message;
use crate::mqtt::packet::PacketId;
use crate::persistence::letter::{LetterNumber, StoredLetter};
use crate::persistence::records::{
    BodyNumber, DelayedNumber, EntryNumber, Flight, SessionKey, SessionState, StoredDelayed, StoredEntry,
    StoredSession, StoredSubscription,
};
use std::sync::Arc;

/// One change that remains of a group.
#[derive(Clone, Debug)]
pub enum Operation {
    /// A new session row, or all of it anew.
    Session(Box<StoredSession>),
    /// The state of a session of an earlier group.
    SessionState(SessionState),
    /// The end of a session, with its subscriptions and incoming identifiers. The operation stands
    /// behind all changes to these rows.
    SessionEnded(SessionKey),
    /// A new or changed subscription.
    Subscribed(Box<StoredSubscription>),
    /// The end of a subscription.
    Unsubscribed {
        /// The session.
        session: SessionKey,
        /// The Topic Filter as the client wrote it.
        filter: Box<str>,
    },
    /// A new message.
    Body {
        /// Its number.
        number: BodyNumber,
        /// The message.
        message: Message,
    },
    /// As [`Record::BodyDone`](crate::persistence::records::Record::BodyDone).
    BodyDone(BodyNumber),
    /// As [`Record::BodyReleased`](crate::persistence::records::Record::BodyReleased).
    BodyReleased(BodyNumber),
    /// A new entry, with its place in the in-flight window.
    Entry {
        /// The entry.
        entry: Box<StoredEntry>,
        /// True if PUBREC has come, so that the entry does not need its body.
        received: bool,
    },
    /// A change of an entry of an earlier group.
    EntryChanged {
        /// The entry.
        number: EntryNumber,
        /// The new place in the window; `None` if unchanged.
        flight: Option<Flight>,
        /// True if PUBREC has come; false if unchanged.
        received: bool,
    },
    /// As [`Record::EntryDone`](crate::persistence::records::Record::EntryDone).
    EntryDone(EntryNumber),
    /// As [`Record::EntryAcknowledged`](crate::persistence::records::Record::EntryAcknowledged).
    EntryAcknowledged(EntryNumber),
    /// A client has begun a QoS 2 message.
    Incoming {
        /// The session.
        session: SessionKey,
        /// The packet identifier that the client chose.
        packet_id: PacketId,
        /// True if it is known that the row existed or did not exist before the group. Only then do
        /// a put and a deletion within the group cancel out.
        known: bool,
    },
    /// A client has ended a QoS 2 message.
    IncomingDone {
        /// The session.
        session: SessionKey,
        /// The packet identifier that the client chose.
        packet_id: PacketId,
        /// As in [`Operation::Incoming`].
        known: bool,
    },
    /// A new delayed message.
    Delayed(Box<StoredDelayed>),
    /// A delayed message was published or dropped.
    DelayedDone(DelayedNumber),
    /// A new dead letter.
    Letter(Arc<StoredLetter>),
    /// A dead letter was republished or deleted.
    LetterDone(LetterNumber),
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
}

impl Operation {
    /// Returns the row that the operation changes.
    pub(super) fn subject(&self) -> Subject<'_> {
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
            Operation::Letter(letter) => Subject::Letter(letter.place.number.0),
            Operation::LetterDone(number) => Subject::Letter(number.0),
        }
    }

    /// Returns true if the operation only deletes. Deletions are written first, so that other
    /// operations find the room.
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
                | Operation::LetterDone(_)
        )
    }

    /// Returns true if the operation needs no room and may be committed before the rest of its
    /// group.
    ///
    /// Such an operation records what a client has reported, and stays right if the rest is never
    /// committed. A message that is forwarded to another session ends with
    /// [`Operation::EntryDone`], which stays behind. So does the change that withholds the Packet
    /// Identifier of a dropped message, because the message may have become a dead letter.
    pub fn goes_ahead(&self) -> bool {
        if let Operation::EntryChanged { flight: Some(flight), .. } = self
            && flight.is_withheld()
        {
            return false;
        }
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
