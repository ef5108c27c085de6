//! The operator's settings, as the shard needs them.

use crate::mqtt::topic::levels;
use crate::session::SessionPolicy;
use crate::session::drops::DropReason;
use crate::shard::durability::gates::Durability;
use std::time::Duration;

/// Slot of the deadline of a shard's regular work, of the kind
/// [`DeadlineKind::Housekeeping`](crate::expiry::deadline::DeadlineKind).
pub const OWN_HOUSEKEEPING: u32 = 0;

/// Slot of the deadline of the earliest delayed message, of the same kind.
pub const OWN_DELAYED: u32 = 1;

/// The settings of one shard. All shards of a broker have the same.
#[derive(Clone, Debug)]
pub struct ShardSettings {
    /// The settings of the sessions.
    pub session: SessionPolicy,
    /// The time from the connection to the end of CONNECT.
    pub connect_timeout: Duration,
    /// The time that a connection may make no progress while bytes wait.
    pub write_timeout: Duration,
    /// Maximum number of sessions in all shards.
    pub sessions: usize,
    /// The time that a publisher's acknowledgement waits for room under the policy `hold`.
    pub hold_timeout: Duration,
    /// The width of a bucket of the expiry queue.
    pub expiry_interval: Duration,
    /// Steps of one turn. The default is [`crate::shard::turn::STEPS_PER_TURN`].
    pub steps_per_turn: u32,
    /// The limits of delayed messages.
    pub delayed: DelayedLimits,
    /// Maximum number of last-disconnect records, in all shards.
    pub last_disconnects: usize,
    /// True if there are event topics. They need the detail of each event.
    pub event_topics: bool,
}

impl ShardSettings {
    /// Returns why a client may not publish to a topic, if it may not.
    pub(crate) fn topic_refusal(&self, topic: &str) -> Option<DropReason> {
        if is_reserved(topic) {
            return Some(DropReason::ReservedTopic);
        }
        // Each level but the first takes a byte at least, so a short topic need not be counted.
        let most = self.session.topic_levels;
        (topic.len() >= most && levels(topic) > most).then_some(DropReason::TopicTooDeep)
    }

    /// Returns the bytes of the largest message that some queue of a shard may take.
    pub(crate) fn largest_queue_bytes(&self, durability: &Durability) -> usize {
        let policy = &self.session.send;
        if durability.is_on() {
            policy.queue.bytes.max(policy.stored_queue.bytes)
        } else {
            policy.queue.bytes
        }
    }
}

/// Limits of the messages that wait for their delay to end, in all shards.
#[derive(Clone, Copy, Debug)]
pub struct DelayedLimits {
    /// Maximum number of messages.
    pub messages: usize,
    /// Maximum bytes.
    pub bytes: usize,
    /// The longest delay, in seconds.
    pub horizon: u32,
}

/// Returns true if a topic is reserved for the broker. A client's PUBLISH to it is acknowledged or
/// refused, and its message is dropped and counted.
#[inline]
pub(crate) fn is_reserved(topic: &str) -> bool {
    topic.starts_with('$') && is_own(topic)
}

#[cold]
fn is_own(topic: &str) -> bool {
    ["$SYS", "$dead", "$homing", "$delayed", "$share"]
        .iter()
        .any(|own| topic.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}
