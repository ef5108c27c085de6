//! Why a message was dropped: one type for the whole broker.

use crate::mqtt::codec::property;
use crate::mqtt::excerpt::Excerpt;
use crate::mqtt::message::Message;
use crate::mqtt::packet::{Acknowledgement, Property, ReasonCode};
use crate::mqtt::topic::first_chars;
use crate::named_enum::named_enum;
use crate::persistence::records::EntryNumber;
use crate::persistence::rows::PagedOut;
use crate::session::objectives::mark::DeliveryMark;
use crate::time::Instant;

/// Characters of a topic that a drop keeps.
pub const TOPIC: usize = 128;

/// Characters of a receiver's Reason String that a drop keeps.
pub const REASON: usize = 200;

named_enum! {
    /// The reason why a message, or one copy of it, never reaches its receiver.
    #[derive(Hash)]
    #[repr(u8)]
    pub enum DropReason {
        /// The receiver's queue was full, and its policy refuses new messages.
        QueueRefused = "queue_refused",
        /// The receiver's queue was full, and its policy drops the oldest message.
        QueueOverflow = "queue_overflow",
        /// The Message Expiry Interval ran out before delivery began.
        Expired = "expired",
        /// The packet exceeds the receiver's Maximum Packet Size, or the payload
        /// `limits.payload_size`.
        TooLarge = "too_large",
        /// A QoS 0 message met a full outbox, because the receiver's socket takes no bytes.
        OutboxFull = "outbox_full",
        /// The session ended with the message in its queue or unacknowledged.
        SessionEnded = "session_ended",
        /// The broker's memory budget is used up.
        MemoryBudget = "memory_budget",
        /// A client published to a topic that is reserved for the broker.
        ReservedTopic = "reserved_topic",
        /// The topic has more levels than `limits.topic_levels`, or is too long behind the mount
        /// point of the listener.
        TopicTooDeep = "topic_too_deep",
        /// The receiver acknowledged the message with a reason code of 0x80 or above.
        NegativelyAcknowledged = "negatively_acknowledged",
        /// The retained messages have reached their bound in number or bytes.
        RetainedFull = "retained_full",
        /// The store could not read the message back.
        Unreadable = "unreadable",
        /// The store has no room.
        StoreFull = "store_full",
        /// A delayed message exceeds the bounds on number, bytes or delay.
        DelayedFull = "delayed_full",
        /// The message was sent as often as allowed without an acknowledgement, and the operator's
        /// policy drops it then.
        Exhausted = "exhausted",
        /// The client may not publish to the topic, or may not receive its messages.
        NotAuthorized = "not_authorized",
        /// An operator dropped the message.
        Skipped = "skipped",
        /// An operator moved the message to the dead letters.
        Parked = "parked",
    }
}

/// A trait of a drop reason: a PUBLISH or a Will Message can be refused for it.
const REFUSES: u8 = 1;
/// A trait of a drop reason: `redelivery.dead_letters` takes it.
const LETTERS: u8 = 2;
/// A trait of a drop reason: it is no trouble of the broker.
const ORDINARY: u8 = 4;

impl DropReason {
    /// Returns the traits of the reason.
    const fn traits(self) -> u8 {
        match self {
            DropReason::QueueRefused | DropReason::QueueOverflow | DropReason::OutboxFull => LETTERS,
            DropReason::TooLarge => REFUSES | LETTERS,
            DropReason::Expired | DropReason::SessionEnded => LETTERS | ORDINARY,
            DropReason::MemoryBudget
            | DropReason::ReservedTopic
            | DropReason::TopicTooDeep
            | DropReason::RetainedFull
            | DropReason::StoreFull
            | DropReason::DelayedFull => REFUSES,
            DropReason::NotAuthorized => REFUSES | ORDINARY,
            DropReason::Skipped | DropReason::Parked => ORDINARY,
            DropReason::NegativelyAcknowledged | DropReason::Unreadable | DropReason::Exhausted => 0,
        }
    }

    /// Returns true if a PUBLISH or a Will Message can be refused for this reason, before it has a
    /// receiver. For some of these reasons a receiver loses a message, too.
    pub const fn refuses_publishes(self) -> bool {
        self.traits() & REFUSES != 0
    }

    /// Returns true if `redelivery.dead_letters` takes this reason. Dead letters of other reasons
    /// have keys of their own, or there are none.
    const fn has_dead_letters(self) -> bool {
        self.traits() & LETTERS != 0
    }

    /// The names of the reasons that `redelivery.dead_letters` takes.
    pub const DEAD_LETTER_CAUSES: [&'static str; 6] = {
        let (mut names, mut found, mut at) = ([""; 6], 0, 0);
        while at < DropReason::ALL.len() {
            if DropReason::ALL[at].has_dead_letters() {
                names[found] = DropReason::ALL[at].name();
                found += 1;
            }
            at += 1;
        }
        assert!(found == names.len());
        names
    };

    /// Returns true if the drop is no trouble of the broker: the message or its session ended, a
    /// rule forbids it, or an operator dropped it. The alert HomingMessagesDropped leaves out the
    /// same reasons.
    pub const fn is_ordinary(self) -> bool {
        self.traits() & ORDINARY != 0
    }
}

/// A set of drop reasons: one bit for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DropReasons(u32);

impl DropReasons {
    /// True if the set has this reason.
    pub fn has(self, cause: DropReason) -> bool {
        self.0 >> cause as u8 & 1 == 1
    }

    /// True if the set has no reason.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Iterates over the reasons in the set, in the order of [`DropReason::ALL`].
    pub fn iter(self) -> impl Iterator<Item = DropReason> {
        DropReason::ALL.into_iter().filter(move |cause| self.has(*cause))
    }
}

impl FromIterator<DropReason> for DropReasons {
    fn from_iter<I: IntoIterator<Item = DropReason>>(causes: I) -> DropReasons {
        DropReasons(causes.into_iter().fold(0, |bits, cause| bits | 1 << cause as u8))
    }
}

/// A message that a session will not get, and how far its delivery had come.
#[derive(Debug)]
#[must_use = "a drop is counted, reported and perhaps made a dead letter: Drops::lose, or Core::drop_for"]
pub struct Dropped {
    /// Why the message was dropped.
    pub cause: DropReason,
    /// The message; `None` if it never had a body of its own, or its body is in the store alone.
    pub message: Option<Message>,
    /// The first [`TOPIC`] characters of the topic, where it is known without the message.
    pub topic: Option<Excerpt>,
    /// The number under which the topic will come from the store, if the message is there alone.
    pub unread: Option<EntryNumber>,
    /// The transmissions to this session.
    pub sent: Sent,
    /// The negative reason code of the receiver, if the receiver sent one.
    pub code: Option<ReasonCode>,
    /// The first [`REASON`] characters of the Reason String beside it.
    pub reason: Option<Box<str>>,
    /// The delivery objective that counts the delivery.
    pub mark: DeliveryMark,
}

/// The transmissions of a message to one session, over all its connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Number of transmissions.
    pub times: u16,
    /// Time of the first transmission. Meaningful only if `times` is not 0.
    pub first: Instant,
    /// Time of the last transmission. Meaningful only if `times` is not 0.
    pub last: Instant,
}

impl Dropped {
    /// Creates the drop of a message that was never sent to the session.
    pub fn unsent(cause: DropReason, message: Message) -> Dropped {
        Dropped::new(cause, Some(message))
    }

    /// Creates the drop of a message without transmissions. `message` is `None` if its body is not
    /// in memory.
    pub fn new(cause: DropReason, message: Option<Message>) -> Dropped {
        let (sent, mark) = (Sent::default(), DeliveryMark::NONE);
        Dropped { cause, message, topic: None, unread: None, sent, code: None, reason: None, mark }
    }

    /// Creates the drop of a message that is in the store alone, whose rows may stay until its
    /// topic was read. If the broker ends meanwhile, the message must not be sent after its start:
    /// it has expired, or its session has ended.
    pub fn paged_out(cause: DropReason, rows: PagedOut) -> Dropped {
        Dropped { unread: rows.end_when_read(), ..Dropped::new(cause, None) }
    }

    /// Adds the topic of a message that is not made for the drop alone.
    pub fn on(self, topic: &str) -> Dropped {
        Dropped { topic: Some(Excerpt::of(topic, TOPIC)), ..self }
    }

    /// Adds the negative acknowledgement of the receiver.
    pub fn refused_by(self, ack: &Acknowledgement<'_>) -> Dropped {
        let reason = property::iter(ack.properties).find_map(|property| match property {
            Property::ReasonString(text) => Some(first_chars(text, REASON).into()),
            _ => None,
        });
        Dropped { code: Some(ack.reason), reason, ..self }
    }

    /// Adds the mark of the delivery.
    pub fn counted_by(self, mark: DeliveryMark) -> Dropped {
        Dropped { mark, ..self }
    }
}

named_enum! {
    /// The state of the receiver of a dropped message.
    pub enum ReceiverState {
        /// The receiver was connected.
        Connected = "connected",
        /// The receiver had a session and no connection.
        Away = "away",
        /// The message had no receiver yet, or the session of the receiver had ended.
        None = "none",
    }
}

/// Counts of dropped messages by reason, and the drops of the current session that are not yet
/// reported.
#[derive(Clone, Debug, Default)]
pub struct Drops {
    counts: Counts,
    /// The messages among them whose receiver was connected.
    connected: Counts,
    /// The messages among them whose receiver was away.
    away: Counts,
    unreported: Unreported,
}

/// Number of dropped messages by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts([u64; DropReason::ALL.len()]);

impl Counts {
    /// Adds this number of messages to a reason.
    pub fn add(&mut self, cause: DropReason, messages: usize) {
        self.0[cause as usize] += messages as u64;
    }

    /// Returns the number of messages dropped for this reason.
    pub fn of(&self, cause: DropReason) -> u64 {
        self.0[cause as usize]
    }

    /// Returns the number of messages dropped for any reason.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Counts) {
        for (count, more) in self.0.iter_mut().zip(other.0) {
            *count += more;
        }
    }
}

/// Drops that belong to the turn and not to the counts: a clone of the counts leaves them behind.
#[derive(Debug, Default)]
struct Unreported(Vec<Dropped>, usize);

impl Clone for Unreported {
    fn clone(&self) -> Unreported {
        Unreported::default()
    }
}

impl Drops {
    /// Counts one message that no session was to get.
    pub fn count(&mut self, cause: DropReason) {
        self.add(cause, 1);
    }

    /// Counts this number of messages that no session was to get.
    pub fn add(&mut self, cause: DropReason, messages: usize) {
        self.counts.add(cause, messages);
    }

    /// Counts a message that the current session loses, and keeps the drop until the shard reports
    /// it.
    pub fn lose(&mut self, dropped: Dropped) {
        self.count(dropped.cause);
        self.unreported.0.push(dropped);
    }

    /// Notes the state of the receiver of one message that [`Self::lose`] has counted.
    pub fn count_receiver(&mut self, cause: DropReason, receiver: ReceiverState) {
        match receiver {
            ReceiverState::Connected => self.connected.add(cause, 1),
            ReceiverState::Away => self.away.add(cause, 1),
            ReceiverState::None => {}
        }
    }

    /// Returns the number of messages dropped for this reason whose receiver was in this state.
    pub fn of_receiver(&self, cause: DropReason, receiver: ReceiverState) -> u64 {
        let (connected, away) = (self.connected.of(cause), self.away.of(cause));
        match receiver {
            ReceiverState::Connected => connected,
            ReceiverState::Away => away,
            ReceiverState::None => self.of(cause).saturating_sub(connected + away),
        }
    }

    /// True if the current session has drops that are not yet reported.
    pub fn are_unreported(&self) -> bool {
        !self.unreported.0.is_empty()
    }

    /// Counts bytes that were read or moved to find the drops that are not yet reported.
    pub fn spend_bytes(&mut self, bytes: usize) {
        self.unreported.1 += bytes;
    }

    /// Takes the bytes that [`Self::spend_bytes`] has counted.
    pub fn take_bytes(&mut self) -> usize {
        std::mem::take(&mut self.unreported.1)
    }

    /// Takes the drops that are not yet reported.
    pub fn take_unreported(&mut self) -> Vec<Dropped> {
        std::mem::take(&mut self.unreported.0)
    }

    /// Returns the empty list for reuse, so that it is allocated once.
    pub fn give_back(&mut self, mut reported: Vec<Dropped>) {
        reported.clear();
        if self.unreported.0.is_empty() {
            self.unreported.0 = reported;
        }
    }

    /// Adds the counts of `other`. Unreported drops stay where they are.
    pub fn merge(&mut self, other: &Drops) {
        self.counts.merge(&other.counts);
        self.connected.merge(&other.connected);
        self.away.merge(&other.away);
    }

    /// Returns the number of messages dropped for this reason.
    pub fn of(&self, cause: DropReason) -> u64 {
        self.counts.of(cause)
    }

    /// Returns the number of messages dropped for any reason.
    pub fn total(&self) -> u64 {
        self.counts.total()
    }

    /// Returns the number of messages dropped for a reason that is not ordinary.
    pub fn losses(&self) -> u64 {
        let troubles = DropReason::ALL.into_iter().filter(|cause| !cause.is_ordinary());
        troubles.map(|cause| self.of(cause)).sum()
    }
}
