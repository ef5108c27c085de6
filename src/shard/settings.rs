//! The operator's settings, as the shard needs them.

use crate::session::SessionPolicy;
use std::time::Duration;

/// The settings of one shard. All shards of a broker have the same.
#[derive(Clone, Debug)]
pub struct ShardSettings {
    pub session: SessionPolicy,
    pub connect_timeout: Duration,
    pub write_timeout: Duration,
    /// Maximum number of sessions in all shards.
    pub sessions: usize,
    /// How long a publisher's acknowledgement waits for room under the policy `hold`.
    pub hold_timeout: Duration,
    pub expiry_interval: Duration,
    /// Steps of one turn. The default is [`crate::shard::turn::STEPS_PER_TURN`].
    pub steps_per_turn: u32,
    pub delayed: DelayedLimits,
    /// Maximum number of last-disconnect records, in all shards.
    pub last_disconnects: usize,
    /// True if there are event topics. They need the detail of each event.
    pub event_topics: bool,
}

/// Limits of the messages that wait for their delay to end, in all shards.
#[derive(Clone, Copy, Debug)]
pub struct DelayedLimits {
    pub messages: usize,
    pub bytes: usize,
    /// The longest delay, in seconds.
    pub horizon: u32,
}
