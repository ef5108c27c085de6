//! `[limits]`: what bounds each client, each session, and the broker as a whole.

use super::ByteSize;
use super::schema::{Key, Rule, millis, seconds};
use serde::{Deserialize, Serialize};
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Connections at once; 0 is what the process's descriptor limit allows.
    pub connections: u32,
    /// Sessions held at once, connected or parked.
    pub sessions: u32,
    /// The longest Session Expiry Interval granted; 3.x sessions with Clean Session 0 get exactly this.
    /// Whole seconds.
    #[serde(with = "super::duration")]
    pub session_expiry: Duration,
    /// The largest packet accepted from a client, fixed header included; also announced as Maximum Packet Size.
    pub packet_size: ByteSize,
    /// Unanswered QoS 1 and 2 PUBLISH packets accepted from one client (Receive Maximum), in every version.
    pub receive_maximum: u16,
    /// Unacknowledged QoS 1 and 2 PUBLISH packets sent to one client; a 5.0 client's Receive Maximum may lower it.
    pub in_flight: u16,
    /// Messages waiting in one session's queue, those in flight left out.
    pub queue_messages: u32,
    /// Bytes waiting in one session's queue; a message is charged its full size in each queue it waits in.
    pub queue_bytes: ByteSize,
    /// What happens to a message that finds the queue full.
    pub queue_policy: QueuePolicy,
    /// How long a publisher's acknowledgement waits for room under [`QueuePolicy::Hold`].
    #[serde(with = "super::duration")]
    pub hold_timeout: Duration,
    /// Encoded bytes waiting for one socket; beyond it QoS 0 is dropped and counted, QoS 1 and 2 stay queued.
    pub outbox: ByteSize,
    /// Retained messages held by the broker.
    pub retained_messages: u32,
    /// Bytes of retained messages held by the broker.
    pub retained_bytes: ByteSize,
    /// Messages that wait to be published later (`$delayed/<seconds>/<topic>`).
    pub delayed_messages: u32,
    /// Their bytes.
    pub delayed_bytes: ByteSize,
    /// The longest delay. Whole seconds.
    #[serde(with = "super::duration")]
    pub delayed_horizon: Duration,
    /// Levels in a topic name or topic filter.
    pub topic_levels: u16,
    /// Subscriptions of one session. Of the filters in one SUBSCRIBE as many are looked at, or 1024 if that is more.
    pub subscriptions_per_client: u32,
    /// Topic aliases a 5.0 client may use towards the broker (Topic Alias Maximum); 0 is none.
    pub topic_alias_maximum: u16,
    /// Broker-wide budget for message bodies (counted once), partial packets and retained messages.
    pub memory: ByteSize,
}

/// What happens to a message that finds its receiver's queue full. Expired entries are evicted before it applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueuePolicy {
    /// The new message is not queued; the publisher learns it (0x97) where nobody else took the message.
    #[default]
    Refuse,
    /// The oldest queued message makes room.
    DropOldest,
    /// The receiver is disconnected; what it has queued stays with its session.
    Disconnect,
    /// The publisher's acknowledgement waits for room, `hold_timeout` at most.
    Hold,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 0,
            sessions: 1_000_000,
            session_expiry: Duration::from_secs(7 * 24 * 3600),
            packet_size: ByteSize::mib(2),
            receive_maximum: 100,
            in_flight: 100,
            queue_messages: 1000,
            queue_bytes: ByteSize::mib(16),
            queue_policy: QueuePolicy::Refuse,
            hold_timeout: Duration::from_secs(10),
            outbox: ByteSize::mib(1),
            retained_messages: 100_000,
            retained_bytes: ByteSize::mib(256),
            delayed_messages: 100_000,
            delayed_bytes: ByteSize::mib(256),
            delayed_horizon: Duration::from_secs(30 * 24 * 3600),
            topic_levels: 256,
            subscriptions_per_client: 10_000,
            topic_alias_maximum: 10,
            memory: ByteSize::gib(1),
        }
    }
}

/// A Remaining Length counts to one byte below 256 MiB (5.0 section 1.5.5, 3.1.1 section 2.2.3). The last of these MiB are for
/// what the broker adds to a message: the topic where the client sent an alias, Subscription Identifiers, the properties
/// of a dead letter.
const LARGEST_PACKET: u64 = 255 << 20;

const ONE_TIB: u64 = 1 << 40;
const SIXTEEN_TIB: u64 = 16 << 40;

pub(super) const KEYS: &[Key] = &[
    Key::new("limits.connections", Rule::Integer(0, 100_000_000)),
    Key::new("limits.sessions", Rule::Integer(1, 1_000_000_000)),
    // One second below 2^32 - 1, which on the wire means "never expires".
    Key::new("limits.session_expiry", Rule::WholeSeconds(0, u32::MAX as u64 - 1)),
    Key::new("limits.packet_size", Rule::Size(1024, LARGEST_PACKET)),
    Key::new("limits.receive_maximum", Rule::Integer(1, 65_535)),
    Key::new("limits.in_flight", Rule::Integer(1, 65_535)),
    Key::new("limits.queue_messages", Rule::Integer(1, 1_000_000_000)),
    Key::new("limits.queue_bytes", Rule::Size(1024, ONE_TIB)),
    Key::new("limits.queue_policy", Rule::OneOf(&["refuse", "drop_oldest", "disconnect", "hold"])),
    Key::new("limits.hold_timeout", Rule::Duration(millis(1), seconds(3600))),
    Key::new("limits.outbox", Rule::Size(1024, ONE_TIB)),
    Key::new("limits.retained_messages", Rule::Integer(0, 1_000_000_000)),
    Key::new("limits.retained_bytes", Rule::Size(0, SIXTEEN_TIB)),
    Key::new("limits.delayed_messages", Rule::Integer(0, 1_000_000_000)),
    Key::new("limits.delayed_bytes", Rule::Size(0, SIXTEEN_TIB)),
    Key::new("limits.delayed_horizon", Rule::WholeSeconds(0, u32::MAX as u64 - 1)),
    Key::new("limits.topic_levels", Rule::Integer(1, 65_535)),
    Key::new("limits.subscriptions_per_client", Rule::Integer(1, 100_000_000)),
    Key::new("limits.topic_alias_maximum", Rule::Integer(0, 65_535)),
    Key::new("limits.memory", Rule::Size(1024, SIXTEEN_TIB)),
];
