//! The effects of a turn: lists of what the driver has to carry out, and the events that it
//! reports.
//!
//! The shard fills the lists during a turn. [`Shard::flush`](crate::shard::Shard::flush) empties
//! them through the trait [`Io`](crate::shard::io::Io), in the order that `io.rs` documents. An
//! event never holds a payload or a password.

use crate::expiry::deadline::Registration;
use crate::mqtt::packet::{PacketId, ProtocolVersion, ReasonCode};
use crate::routing::subscription_tree::ShardId;
use crate::session::drops::Counts;
use crate::session::outbound::stall::Stall;
use crate::shard::durability::gates::PageRequest;
use crate::shard::exchange::outbound::PeerBatch;
use crate::shard::features::delayed::DelayedRequest;
use crate::shard::observe::client_events::ClientEvent;
use crate::shard::slots::ConnectionId;
use std::fmt;
use std::time::Duration;

/// The pending effects of one shard.
#[derive(Debug, Default)]
pub struct Effects {
    /// Connections with something to write. Each stands here once, because the connection knows
    /// that it is dirty.
    pub dirty: Vec<ConnectionId>,
    /// Connections to read again.
    pub resume: Vec<ConnectionId>,
    /// Deadlines for the expiry actor.
    pub registrations: Vec<Registration>,
    /// Sealed batches, at most one for each peer.
    pub peer_batches: Vec<(ShardId, PeerBatch)>,
    /// Parked entries to read back from the store.
    pub pages: Vec<PageRequest>,
    /// Delayed messages to read back from the store.
    pub delayed: Vec<DelayedRequest>,
    /// True if stored retained messages changed. The changes go to the store before this turn's
    /// batch.
    pub retained: bool,
    /// For the log.
    pub events: Vec<Event>,
    /// For the event topics. Empty unless the operator enabled them.
    pub reports: Vec<ClientEvent>,
}

impl Effects {
    /// Returns true if there is nothing to carry out. A change of retained messages alone does not
    /// count: it goes out with the next flush.
    pub fn is_empty(&self) -> bool {
        self.dirty.is_empty()
            && self.resume.is_empty()
            && self.registrations.is_empty()
            && self.peer_batches.is_empty()
            && self.pages.is_empty()
            && self.delayed.is_empty()
            && self.events.is_empty()
            && self.reports.is_empty()
    }
}

/// Something that an operator may want to read in the log.
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
    /// Filters of one SUBSCRIBE were refused for lack of room.
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
    /// A client sent an acknowledgement of the wrong kind for a packet in flight, and is
    /// disconnected.
    Contradiction {
        client_id: Box<str>,
        packet_id: PacketId,
        what: &'static str,
    },
    /// A client's redelivery request is no duration, and is ignored.
    RequestUnreadable {
        client_id: Box<str>,
        setting: &'static str,
        text: Box<str>,
    },
    SessionExpired {
        client_id: Box<str>,
        /// Messages that the client had not acknowledged. Messages of shared groups go to other
        /// members.
        unfinished: usize,
    },
    /// Drops of one client since the last report. `None` sums up the clients beyond those that are
    /// reported one by one. A shared group stands here as `$share/group`.
    DropReports {
        client_id: Option<Box<str>>,
        counts: Counts,
    },
}

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Why {
    /// The client sent DISCONNECT, with this reason.
    Client(ReasonCode),
    /// The client closed the socket, or the network failed. The text is the operating system's.
    Network(Box<str>),
    /// The client broke a rule.
    Violation(ReasonCode, Box<str>),
    TakenOver,
    KeepAlive {
        silent: Duration,
    },
    /// No CONNECT came within `network.connect_timeout`.
    NoConnect,
    /// The socket took no bytes for the write timeout.
    WriteTimeout {
        waiting_bytes: usize,
    },
    /// The client began a packet, and sent no further byte of it for the write timeout.
    PacketTimeout {
        partial_bytes: usize,
    },
    /// A packet was sent `redelivery.attempts` times without an acknowledgement.
    Exhausted(Stall),
    /// A 5.0 client's host has a packet, and the client did not acknowledge the packet in time.
    AckTimeout(Stall),
    /// The client's queue is full, and its policy is to disconnect.
    QueueFull,
    Shutdown,
}

impl Why {
    /// Returns the name in event topics and last-disconnect records.
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
            Why::NoConnect => f.write_str("no CONNECT within network.connect_timeout"),
            Why::WriteTimeout { waiting_bytes } => {
                write!(f, "took no bytes for network.write_timeout; {waiting_bytes} bytes wait")
            }
            Why::PacketTimeout { partial_bytes } => write!(
                f,
                "no byte of the rest of a packet for network.write_timeout; {partial_bytes} bytes of it have come"
            ),
            Why::Exhausted(stall) => write!(f, "redelivery.attempts used up: {stall}; redelivered at return"),
            Why::AckTimeout(stall) => write!(f, "redelivery.ack_timeout: {stall}"),
            Why::QueueFull => f.write_str("its queue is full (limits.queue_policy disconnect)"),
            Why::Shutdown => f.write_str("the broker stops"),
        }
    }
}
