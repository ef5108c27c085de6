//! Why a message was given up: one type for all of the broker.

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
}

impl LossCause {
    pub const ALL: [LossCause; 14] = [
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
        }
    }
}

/// Messages given up, by cause.
#[derive(Clone, Debug, Default)]
pub struct Losses([u64; LossCause::ALL.len()]);

impl Losses {
    pub fn count(&mut self, cause: LossCause) {
        self.add(cause, 1);
    }

    pub fn add(&mut self, cause: LossCause, messages: usize) {
        self.0[cause as usize] += messages as u64;
    }

    pub fn merge(&mut self, other: &Losses) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }

    pub fn of(&self, cause: LossCause) -> u64 {
        self.0[cause as usize]
    }

    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}
