//! Why a message was given up: one type for all of the broker.

use crate::mqtt::message::Message;
use crate::mqtt::packet::ReasonCode;
use crate::time::Instant;

/// A cause that keeps a message, or one copy of it, from its receiver for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum LossCause {
    /// The receiver's queue was full and its policy refuses.
    QueueRefused,
    /// The receiver's queue was full and its policy drops the oldest.
    QueueOverflow,
    /// The Message Expiry Interval ran out before delivery began.
    Expired,
    /// Larger than the receiver's Maximum Packet Size.
    TooLarge,
    /// QoS 0, and the receiver's socket takes nothing while its outbox is full.
    OutboxFull,
    /// The session ended with the message in its queue or unacknowledged.
    SessionEnded,
    /// The broker's memory budget is used up.
    MemoryBudget,
    /// A client published to a topic that is the broker's own.
    ReservedTopic,
    /// More levels than `limits.topic_levels`.
    TopicTooDeep,
    /// The receiver acknowledged it with a reason code of 0x80 or above.
    NegativelyAcknowledged,
    /// A retained message beyond the bounds on their number or bytes.
    RetainedFull,
    /// The store had lost it.
    Unreadable,
    /// The store has no room.
    StoreFull,
    /// A message to publish later, beyond the bounds on their number, bytes or delay.
    DelayedFull,
    /// Sent as often as allowed without an acknowledgement, and given up by the operator's wish.
    Exhausted,
}

impl LossCause {
    pub const ALL: [LossCause; 15] = [
        LossCause::QueueRefused,
        LossCause::QueueOverflow,
        LossCause::Expired,
        LossCause::TooLarge,
        LossCause::OutboxFull,
        LossCause::SessionEnded,
        LossCause::MemoryBudget,
        LossCause::ReservedTopic,
        LossCause::TopicTooDeep,
        LossCause::NegativelyAcknowledged,
        LossCause::RetainedFull,
        LossCause::Unreadable,
        LossCause::StoreFull,
        LossCause::DelayedFull,
        LossCause::Exhausted,
    ];

    /// As in topics and logs.
    pub const fn name(self) -> &'static str {
        match self {
            LossCause::QueueRefused => "queue_refused",
            LossCause::QueueOverflow => "queue_overflow",
            LossCause::Expired => "expired",
            LossCause::TooLarge => "too_large",
            LossCause::OutboxFull => "outbox_full",
            LossCause::SessionEnded => "session_ended",
            LossCause::MemoryBudget => "memory_budget",
            LossCause::ReservedTopic => "reserved_topic",
            LossCause::TopicTooDeep => "topic_too_deep",
            LossCause::NegativelyAcknowledged => "negatively_acknowledged",
            LossCause::RetainedFull => "retained_full",
            LossCause::Unreadable => "unreadable",
            LossCause::StoreFull => "store_full",
            LossCause::DelayedFull => "delayed_full",
            LossCause::Exhausted => "exhausted",
        }
    }
}

/// A set of causes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossCauses(u16);

impl LossCauses {
    pub fn has(self, cause: LossCause) -> bool {
        self.0 >> cause as u8 & 1 == 1
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl FromIterator<LossCause> for LossCauses {
    fn from_iter<I: IntoIterator<Item = LossCause>>(causes: I) -> LossCauses {
        LossCauses(causes.into_iter().fold(0, |bits, cause| bits | 1 << cause as u8))
    }
}

/// A message that a session will not get, and how far it had come.
#[derive(Debug)]
pub struct Lost {
    pub cause: LossCause,
    /// None where it never had a body of its own, or had one in the store alone.
    pub message: Option<Message>,
    pub sent: Sent,
    /// What its receiver said of it.
    pub code: Option<ReasonCode>,
}

/// How often and when a message was sent to one session, over all its connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    pub times: u16,
    /// Meaningful only where it was.
    pub first: Instant,
    pub last: Instant,
}

impl Lost {
    /// A message that was never sent to it.
    pub fn unsent(cause: LossCause, message: Message) -> Lost {
        Lost::new(cause, Some(message))
    }

    pub fn new(cause: LossCause, message: Option<Message>) -> Lost {
        Lost { cause, message, sent: Sent::default(), code: None }
    }
}

/// Messages given up, by cause; and those of the session at hand of which it is yet to be told.
#[derive(Clone, Debug, Default)]
pub struct Losses {
    counts: Counts,
    untold: Untold,
}

/// How often each cause was met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts([u64; LossCause::ALL.len()]);

impl Counts {
    pub fn add(&mut self, cause: LossCause, messages: usize) {
        self.0[cause as usize] += messages as u64;
    }

    pub fn of(&self, cause: LossCause) -> u64 {
        self.0[cause as usize]
    }

    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// Belongs to the turn, not to the figures: a copy of them leaves it behind.
#[derive(Debug, Default)]
struct Untold(Vec<Lost>);

impl Clone for Untold {
    fn clone(&self) -> Untold {
        Untold::default()
    }
}

impl Losses {
    /// Counts a message that no session was to get.
    pub fn count(&mut self, cause: LossCause) {
        self.add(cause, 1);
    }

    pub fn add(&mut self, cause: LossCause, messages: usize) {
        self.counts.add(cause, messages);
    }

    /// Counts a message that the session at hand loses, and keeps it until the shard sees to it.
    pub fn lose(&mut self, lost: Lost) {
        self.count(lost.cause);
        self.untold.0.push(lost);
    }

    /// Whether the session at hand lost something.
    pub fn are_untold(&self) -> bool {
        !self.untold.0.is_empty()
    }

    /// What it lost.
    pub fn take_untold(&mut self) -> Vec<Lost> {
        std::mem::take(&mut self.untold.0)
    }

    /// The list comes back, so that it is allocated once.
    pub fn give_back(&mut self, mut told: Vec<Lost>) {
        told.clear();
        if self.untold.0.is_empty() {
            self.untold.0 = told;
        }
    }

    pub fn merge(&mut self, other: &Losses) {
        for cause in LossCause::ALL {
            self.counts.0[cause as usize] += other.of(cause);
        }
    }

    pub fn of(&self, cause: LossCause) -> u64 {
        self.counts.of(cause)
    }

    pub fn total(&self) -> u64 {
        self.counts.total()
    }
}
