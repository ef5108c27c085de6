//! The operator's settings that hold for every session.

use crate::session::outbound::queue::QueueLimits;
use crate::session::redelivery_policy::RedeliveryPolicy;
use crate::session::redelivery_rule::RedeliveryRule;

/// The operator's settings that hold for every session.
#[derive(Clone, Debug)]
pub struct SessionPolicy {
    /// Settings of the sending half.
    pub send: SendPolicy,
    /// The Receive Maximum that the broker announces: unfinished QoS 1 and 2 PUBLISHes of one
    /// client.
    pub receive_maximum: u16,
    /// Maximum number of levels of a Topic Name or Topic Filter.
    pub topic_levels: usize,
    /// The largest payload in bytes; `usize::MAX` is no bound.
    pub payload_size: usize,
    /// Bounds on what a CONNECT requests.
    pub connect: ConnectPolicy,
    /// Bounds on the subscriptions of one session.
    pub subscriptions: SubscriptionPolicy,
}

/// The operator's settings for the sending half of every session.
#[derive(Clone, Debug)]
pub struct SendPolicy {
    /// Bounds of a queue that is in memory alone.
    pub queue: QueueLimits,
    /// Bounds of a stored queue. Its policy is that of `queue`.
    pub stored_queue: QueueLimits,
    /// Redelivery settings before any rule. Each session has its own settings after the rules.
    pub redelivery: RedeliveryPolicy,
    /// The operator's rules, in file order.
    pub rules: Vec<RedeliveryRule>,
    /// Bytes in an outbox after which QoS 0 is dropped, and QoS 1 and 2 wait in the queue.
    pub outbox: usize,
    /// Unfinished deliveries of one connection at most.
    pub in_flight: u16,
}

impl SendPolicy {
    /// Returns the bytes in an outbox after which QoS 0 is dropped while a message of QoS 1 or 2
    /// waits. The other half of the outbox is for owed packets.
    pub fn at_most_once_share(&self) -> usize {
        self.outbox / 2
    }

    /// Returns the bytes in an outbox after which the client's requests wait. The bound is above
    /// [`Self::outbox`], so that a long queue does not keep the client from publishing.
    pub fn request_room(&self) -> usize {
        self.outbox.saturating_add(self.outbox / 16)
    }

    /// Returns the bytes in an outbox after which no PINGREQ, PUBREC or PUBREL is answered. The
    /// answers of two or four bytes have room that nothing else takes.
    pub fn answer_room(&self) -> usize {
        self.outbox.saturating_add(self.outbox / 8)
    }
}

/// The operator's bounds on what a CONNECT requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectPolicy {
    /// The largest packet in bytes that the broker takes.
    pub packet_size: u32,
    /// The longest Client Identifier in bytes.
    pub client_id: usize,
    /// The Topic Alias Maximum that the broker announces; 0 is no alias.
    pub topic_alias_maximum: u16,
    /// The longest Keep Alive in seconds; 0 is no maximum.
    pub keep_alive_maximum: u16,
    /// True if a 3.x client may turn Keep Alive off in spite of the maximum.
    pub allow_never: bool,
    /// False if no message is retained.
    pub retain_available: bool,
    /// The longest Session Expiry Interval in seconds; 0xFFFF_FFFF is no bound.
    pub session_expiry: u32,
}

/// The operator's bounds on the subscriptions of one session.
#[derive(Clone, Copy, Debug)]
pub struct SubscriptionPolicy {
    /// Maximum number of Topic Filters.
    pub filters: usize,
    /// Maximum number of levels of all Topic Filters with wildcards together.
    pub wildcard_levels: u32,
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::session::outbound::queue::QueuePolicy;
    use crate::session::outbound::retry::{AckPolicy, OnAckTimeout, OnExhausted, RetryPolicy};
    use std::time::Duration;

    /// Returns settings for tests of the session.
    pub(crate) fn policy() -> SessionPolicy {
        let queue = QueueLimits { messages: 1, bytes: 1, policy: QueuePolicy::Refuse };
        let retry = RetryPolicy {
            interval: Duration::ZERO,
            min_interval: Duration::ZERO,
            backoff: 1.0,
            max_interval: Duration::ZERO,
            jitter: 0.0,
            attempts: 0,
            on_exhausted: OnExhausted::Keep,
            resends_per_tick: 1,
        };
        let ack = AckPolicy {
            timeout: Duration::ZERO,
            max_timeout: Duration::ZERO,
            on_timeout: OnAckTimeout::Auto,
        };
        SessionPolicy {
            send: SendPolicy {
                stored_queue: queue.clone(),
                queue,
                redelivery: RedeliveryPolicy::new(retry, ack),
                rules: Vec::new(),
                outbox: 1,
                in_flight: 20,
            },
            receive_maximum: 100,
            topic_levels: 16,
            payload_size: usize::MAX,
            connect: ConnectPolicy {
                packet_size: 1_000,
                client_id: 100,
                topic_alias_maximum: 0,
                keep_alive_maximum: 60,
                allow_never: true,
                retain_available: true,
                session_expiry: 3_600,
            },
            subscriptions: SubscriptionPolicy { filters: 10, wildcard_levels: 100 },
        }
    }
}
