//! Stored dead letters: dropped messages that stay until an operator republishes or deletes them.

use crate::mqtt::message::Message;
use crate::mqtt::packet::ReasonCode;

/// The number of a stored dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LetterNumber(pub u64);

/// The place of a dead letter among all others: the oldest comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LetterPlace {
    /// The time of the drop, in milliseconds since 1970. After the wall clock was set back, this is
    /// the time of an earlier letter.
    pub dropped_ms: u64,
    /// The letter's number.
    pub number: LetterNumber,
}

/// A stored dead letter. Its times are for readers and decide nothing, so they are plain
/// milliseconds since 1970, by the wall clock of their moment.
#[derive(Clone, Debug)]
pub struct StoredLetter {
    /// The letter's place.
    pub place: LetterPlace,
    /// The Client Identifier of the receiver, or `$share/<group>` if no member of a shared group
    /// took the message.
    pub receiver: Box<str>,
    /// The name of the drop's cause.
    pub cause: Box<str>,
    /// The negative reason code of the receiver, if the receiver sent one.
    pub code: Option<ReasonCode>,
    /// Number of transmissions, over all connections.
    pub attempts: u16,
    /// The times of the first and of the last transmission. The first is 0 if it was before the
    /// start of the broker. `None` if both were, or if the message was not sent.
    pub sent_ms: Option<(u64, u64)>,
    /// The message. Its Message Expiry Interval and its RETAIN flag do not count any more.
    pub message: Message,
}

impl StoredLetter {
    /// Returns the bytes that the letter counts against the bound on all letters.
    pub fn size(&self) -> usize {
        letter_size(&self.message, &self.receiver, &self.cause)
    }

    /// Returns the bytes of the letter without its message, which has a charge of its own.
    pub fn overhead(&self) -> usize {
        overhead(&self.receiver, &self.cause)
    }
}

/// Returns the bytes that a letter with these parts counts, as [`StoredLetter::size`].
pub fn letter_size(message: &Message, receiver: &str, cause: &str) -> usize {
    message.size() + overhead(receiver, cause)
}

fn overhead(receiver: &str, cause: &str) -> usize {
    size_of::<StoredLetter>() + receiver.len() + cause.len()
}
