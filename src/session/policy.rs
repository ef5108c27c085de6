//! The operator's settings that hold for every session.

use crate::session::outbound::sender::SendPolicy;

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
    /// Bounds on what a CONNECT requests.
    pub connect: ConnectPolicy,
    /// Bounds on the subscriptions of one session.
    pub subscriptions: SubscriptionPolicy,
}

/// The operator's bounds on what a CONNECT requests.
#[derive(Clone, Copy, Debug)]
pub struct ConnectPolicy {
    /// The largest packet in bytes that the broker takes.
    pub packet_size: u32,
    /// The Topic Alias Maximum that the broker announces; 0 is no alias.
    pub topic_alias_maximum: u16,
    /// The longest Keep Alive in seconds; 0 is no maximum.
    pub keep_alive_maximum: u16,
    /// True if a 3.x client may turn Keep Alive off in spite of the maximum.
    pub allow_never: bool,
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
