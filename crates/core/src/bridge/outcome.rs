//! The outcome of one connection: its end, its counts, and what an operator is told.

use crate::mqtt::codec::{DecodeError, EncodeError};
use crate::mqtt::packet::ReasonCode;
use crate::mqtt::topic::first_chars;
use std::fmt;
use thiserror::Error;

/// The most characters of a text of the other broker that are kept.
const TEXT: usize = 200;

/// The end of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LinkEnd {
    /// The other broker broke a rule of the protocol.
    #[error("the other broker sent what is no packet: {0}")]
    Malformed(DecodeError),
    /// The other broker sent a packet that it may not send.
    #[error("the other broker sent {0}, which no broker may send now")]
    Unexpected(&'static str),
    /// The other broker used a Topic Alias, though none is allowed.
    #[error("the other broker used a Topic Alias, and CONNECT allowed none")]
    TopicAlias,
    /// The SUBACK does not fit the SUBSCRIBE.
    #[error("the other broker sent a SUBACK with {found} reason codes for {asked} filters")]
    Suback {
        /// Filters of SUBSCRIBE.
        asked: usize,
        /// Reason codes of SUBACK.
        found: usize,
    },
    /// The other broker ended the connection.
    #[error("the other broker disconnects: {0}{1}")]
    DisconnectThere(ReasonCode, SaidThere),
    /// The shard refused the session.
    #[error("the session here is refused: {0}")]
    RefusedHere(ReasonCode),
    /// The shard ended the connection.
    #[error("the session here is disconnected: {0}")]
    DisconnectHere(ReasonCode),
    /// The shard sent bytes that are no packet.
    #[error("a fault of the broker: its own bytes are no packet: {0}")]
    FaultHere(DecodeError),
    /// A packet cannot be written.
    #[error("a packet cannot be written: {0}")]
    Encode(EncodeError),
    /// The other broker does not answer PINGREQ or SUBSCRIBE.
    #[error("the other broker does not answer PINGREQ or SUBSCRIBE")]
    Unanswered,
    /// The other broker acknowledges nothing.
    #[error("the other broker acknowledges nothing within ack_timeout")]
    Unacknowledged,
    /// No message passes.
    #[error("no message passed within idle_timeout")]
    Idle,
    /// The other broker has freed all identifiers of an earlier session here.
    #[error("the identifiers of an earlier session are free")]
    Freed,
}

impl From<EncodeError> for LinkEnd {
    fn from(error: EncodeError) -> LinkEnd {
        LinkEnd::Encode(error)
    }
}

impl LinkEnd {
    /// Returns the reason code of the DISCONNECT to the other broker.
    pub fn reason_there(&self) -> ReasonCode {
        match self {
            LinkEnd::Malformed(error) => error.reason_code(),
            LinkEnd::Unexpected(_) | LinkEnd::Suback { .. } => ReasonCode::PROTOCOL_ERROR,
            LinkEnd::TopicAlias => ReasonCode::TOPIC_ALIAS_INVALID,
            // The shard speaks of what the other broker did: too many messages at once, for one.
            LinkEnd::DisconnectHere(reason) => match *reason {
                ReasonCode::RECEIVE_MAXIMUM_EXCEEDED
                | ReasonCode::PROTOCOL_ERROR
                | ReasonCode::PACKET_TOO_LARGE
                | ReasonCode::QUOTA_EXCEEDED => *reason,
                _ => ReasonCode::NORMAL_DISCONNECTION,
            },
            _ => ReasonCode::NORMAL_DISCONNECTION,
        }
    }
}

/// The text and the other server that a broker names when it refuses or ends a connection. `Display`
/// writes them in parentheses behind a blank, and nothing without them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SaidThere(String);

impl SaidThere {
    /// Returns what the broker says, at most 200 characters of it. The server is not followed.
    pub fn of(reason_string: Option<&str>, server_reference: Option<&str>) -> SaidThere {
        let server = server_reference.map(|server| format!("another server: {server}"));
        let said: Vec<&str> = reason_string.into_iter().chain(server.as_deref()).collect();
        SaidThere(first_chars(&said.join("; "), TEXT).to_owned())
    }
}

impl fmt::Display for SaidThere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, " ({})", self.0) }
    }
}

/// What an operator is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkNews {
    /// Both sides have answered their SUBSCRIBE.
    Established,
    /// The other broker does not let the bridge subscribe.
    FilterRefusedThere(String, ReasonCode),
    /// The shard does not let the bridge subscribe.
    FilterRefusedHere(String, ReasonCode),
}

/// The messages of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounts {
    /// PUBLISH packets to the other broker.
    pub sent: u64,
    /// Messages above QoS 0 that the other broker has acknowledged to the end.
    pub acknowledged: u64,
    /// PUBLISH packets from the other broker that a rule lets in.
    pub received: u64,
    /// Messages from the other broker that no rule lets in.
    pub refused: u64,
    /// Messages that came back to this broker, or have passed too many brokers to leave.
    pub looped: u64,
    /// Messages from the other broker that are larger than this broker takes.
    pub too_large: u64,
    /// Messages in the queue that no rule lets out any more, or that the other broker cannot take.
    pub dropped: u64,
    /// Messages that were sent with a lower QoS, because the other broker takes no higher one.
    pub lowered: u64,
}

impl LinkCounts {
    /// Adds what came between two looks at a connection.
    pub fn add(&mut self, now: &LinkCounts, before: &LinkCounts) {
        self.sent += now.sent - before.sent;
        self.acknowledged += now.acknowledged - before.acknowledged;
        self.received += now.received - before.received;
        self.refused += now.refused - before.refused;
        self.looped += now.looped - before.looped;
        self.too_large += now.too_large - before.too_large;
        self.dropped += now.dropped - before.dropped;
        self.lowered += now.lowered - before.lowered;
    }
}
