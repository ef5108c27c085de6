//! What a shard asks of its shell at the end of a turn.

use super::ConnectionId;
use super::commit::PageRequest;
use super::delayed::DelayedRequest;
use super::exchange::Parcel;
use super::report::Report;
use crate::expiry::deadline::Registration;
use crate::mqtt::packet::{PacketId, ProtocolVersion, ReasonCode};
use crate::mqtt::session::loss::Counts;
use crate::mqtt::session::stall::Stall;
use crate::routing::subscription_tree::ShardId;
use std::fmt;
use std::time::Duration;

/// The lists are taken by the shell and come back empty.
#[derive(Debug, Default)]
pub struct Effects {
    /// Connections with something to write, each once.
    pub dirty: Vec<ConnectionId>,
    /// Connections to read again.
    pub resume: Vec<ConnectionId>,
    /// What the expiry actor is to be told.
    pub registrations: Vec<Registration>,
    pub parcels: Vec<(ShardId, Parcel)>,
    /// What is to be read back from the store.
    pub pages: Vec<PageRequest>,
    pub delayed: Vec<DelayedRequest>,
    /// Whether retained messages changed that the store keeps: to be sent before this turn's batch.
    pub retained: bool,
    /// For the log.
    pub events: Vec<Event>,
    /// For the event topics, where the operator wants them.
    pub reports: Vec<Report>,
}

impl Effects {
    pub fn is_empty(&self) -> bool {
        self.dirty.is_empty()
            && self.resume.is_empty()
            && self.registrations.is_empty()
            && self.parcels.is_empty()
            && self.pages.is_empty()
            && self.delayed.is_empty()
            && self.events.is_empty()
            && self.reports.is_empty()
    }
}

/// Something an operator may want to read. Never a payload, never a password.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    Connected {
        connection: ConnectionId,
        client_id: Box<str>,
        version: ProtocolVersion,
        clean_start: bool,
        session_present: bool,
        keep_alive_secs: u16,
    },
    Refused {
        connection: ConnectionId,
        client_id: Option<Box<str>>,
        reason: ReasonCode,
        what: Box<str>,
    },
    /// Filters of one SUBSCRIBE that there is no room for.
    SubscriptionsRefused {
        client_id: Box<str>,
        filters: usize,
        what: &'static str,
    },
    Disconnected {
        connection: ConnectionId,
        client_id: Option<Box<str>>,
        version: ProtocolVersion,
        why: Why,
    },
    Redelivered {
        client_id: Box<str>,
        publishes: u32,
        releases: u32,
    },
    /// An acknowledgement is overdue.
    Stalled {
        client_id: Box<str>,
        stall: Stall,
    },
    /// A client answered what is in flight with an acknowledgement of the wrong kind, and is disconnected for it.
    Contradiction {
        client_id: Box<str>,
        packet_id: PacketId,
        what: &'static str,
    },
    /// A client asked for something that does not read as a duration.
    WishUnreadable {
        client_id: Box<str>,
        wish: &'static str,
        text: Box<str>,
    },
    SessionExpired {
        client_id: Box<str>,
        lost: usize,
    },
    /// Messages that a client will not get, since it was last told; `None` for clients beyond those that are told of each for
    /// itself. A shared group is named as one: `$share/group`.
    GivenUp {
        client_id: Option<Box<str>>,
        counts: Counts,
    },
}

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Why {
    /// The client said DISCONNECT, with this reason.
    Client(ReasonCode),
    /// The peer closed the socket or the network failed; the text is the system's.
    Network(Box<str>),
    /// The client broke a rule.
    Violation(ReasonCode, Box<str>),
    TakenOver,
    KeepAlive {
        silent: Duration,
    },
    /// No CONNECT in time.
    NoConnect,
    /// The socket took no bytes for the write timeout.
    WriteTimeout {
        waiting_bytes: usize,
    },
    /// The client began a packet, and no byte of it came for the write timeout.
    PacketTimeout {
        partial_bytes: usize,
    },
    /// A packet was sent as often as allowed without its acknowledgement.
    Exhausted(Stall),
    /// A 5.0 client did not acknowledge in time what its host has.
    AckTimeout(Stall),
    /// The receiver's queue is full and its policy is to disconnect.
    QueueFull,
    Shutdown,
}

impl Why {
    /// As in topics and records.
    pub const fn name(&self) -> &'static str {
        match self {
            Why::Client(_) => "client",
            Why::Network(_) => "network",
            Why::Violation(..) => "violation",
            Why::TakenOver => "taken_over",
            Why::KeepAlive { .. } => "keep_alive",
            Why::NoConnect => "no_connect",
            Why::WriteTimeout { .. } => "write_timeout",
            Why::PacketTimeout { .. } => "packet_timeout",
            Why::Exhausted(_) => "attempts_used_up",
            Why::AckTimeout(_) => "ack_timeout",
            Why::QueueFull => "queue_full",
            Why::Shutdown => "shutdown",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Client(reason) => write!(f, "DISCONNECT from the client ({reason})"),
            Why::Network(cause) => write!(f, "network: {cause}"),
            Why::Violation(reason, what) => write!(f, "{what} ({reason})"),
            Why::TakenOver => f.write_str("taken over by another connection of this client"),
            Why::KeepAlive { silent } => write!(f, "keep alive: silent for {} ms", silent.as_millis()),
            Why::NoConnect => f.write_str("no CONNECT within listeners.connect_timeout"),
            Why::WriteTimeout { waiting_bytes } => {
                write!(f, "took no bytes for listeners.write_timeout; {waiting_bytes} bytes wait")
            }
            Why::PacketTimeout { partial_bytes } => write!(
                f,
                "no byte of the rest of a packet for listeners.write_timeout; {partial_bytes} bytes of it have come"
            ),
            Why::Exhausted(stall) => write!(f, "redelivery.attempts used up: {stall}; redelivered at return"),
            Why::AckTimeout(stall) => write!(f, "redelivery.ack_timeout: {stall}"),
            Why::QueueFull => f.write_str("its queue is full (limits.queue_policy disconnect)"),
            Why::Shutdown => f.write_str("the broker stops"),
        }
    }
}
