//! Client events: one type for every change of a client that an operator may want to see.
//!
//! The shard notes an event when it happens. The driver passes each event to three listeners: the
//! log, the event topics and the last-disconnect records ([`crate::shard::turn::io::Io::report`]).
//! Rates, JSON, topics and the time of day belong to the listeners, and not to this file.
//!
//! An event costs a copy of the client identifier. The shard makes an [`EventDetail`] only if a
//! listener needs it.

use crate::access::bans::Ban;
use crate::events::refusals::Refusal;
use crate::mqtt::packet::{PacketId, ProtocolVersion, QoS, ReasonCode};
use crate::named_enum::named_enum;
use crate::session::drops::Counts;
use crate::session::outbound::delivery::Delivery;
use crate::session::outbound::sender::Sender;
use crate::session::outbound::stall::Stall;
use crate::session::trace_steps::cut;
use crate::slots::ConnectionId;
use std::fmt;
use std::time::Duration;

/// One event of one client.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientEvent {
    /// The connection; `None` if the event concerns a session without one.
    pub connection: Option<ConnectionId>,
    /// The client identifier. A shared group has `$share/group` here. `None` if CONNECT had no
    /// client identifier, and for the [`Occurrence::Dropped`] and [`Occurrence::RequestRefused`] of
    /// all other clients together.
    pub client_id: Option<Box<str>>,
    /// The MQTT version of the client; `None` if it is not known.
    pub version: Option<ProtocolVersion>,
    /// The occurrence.
    pub occurrence: Occurrence,
    /// The circumstances. `None` if no listener needs them, or if there is no session.
    pub detail: Option<Box<EventDetail>>,
}

impl ClientEvent {
    /// Returns an event of a client without a connection and without detail.
    pub fn new(client_id: Option<&str>, occurrence: Occurrence) -> ClientEvent {
        let client_id = client_id.map(Into::into);
        ClientEvent { connection: None, client_id, version: None, occurrence, detail: None }
    }
}

/// An occurrence in the life of a client.
#[derive(Clone, Debug, PartialEq)]
pub enum Occurrence {
    /// CONNECT was accepted.
    Connected {
        /// Clean Session or Clean Start of the CONNECT.
        clean_start: bool,
        /// Session Present of the CONNACK.
        session_present: bool,
        /// The Keep Alive that is in force, in seconds. 0 means none.
        keep_alive_secs: u16,
    },
    /// The first packet was refused. The packet was a CONNECT or an invalid packet.
    Refused {
        /// The reason code.
        reason: ReasonCode,
        /// The reason as a text.
        what: Box<str>,
        /// The user name that was verified or that the client sent. `None` without one, and if the
        /// client may have sent a token as its user name.
        user_name: Option<Box<str>>,
    },
    /// A session without an owner got one: the user of the CONNECT that is being handled.
    Adopted {
        /// The user name.
        user_name: Box<str>,
    },
    /// PUBLISH packets, Will Messages or Topic Filters of the client were refused since its last
    /// event of this kind. The value is the first of them, with the number of all.
    RequestRefused(Box<Refusal>),
    /// An acknowledgement is overdue.
    Stalled(Stall),
    /// Packets were sent again.
    Redelivered {
        /// The number of PUBLISH packets.
        publishes: u64,
        /// The number of PUBREL packets.
        releases: u64,
        /// The connection of the resends: the live one, or a new one.
        when: RedeliveryTime,
    },
    /// A packet was sent again as often as allowed.
    Exhausted(ExhaustedAction),
    /// The client sent an acknowledgement of the wrong kind for a packet in flight, and is
    /// disconnected.
    Contradiction {
        /// The Packet Identifier that both packets have.
        packet_id: PacketId,
        /// The contradiction as a text.
        what: &'static str,
    },
    /// The client's redelivery request is no duration, and is ignored.
    RequestUnreadable {
        /// The name of the requested setting.
        setting: &'static str,
        /// The front of the text that is no duration.
        text: Box<str>,
    },
    /// The Network Connection ended.
    Disconnected(DisconnectCause),
    /// The Session Expiry Interval ran out.
    SessionExpired {
        /// Messages that the client had not acknowledged. Messages of shared groups go to other
        /// members.
        unfinished: usize,
    },
    /// Messages to the client were dropped since its last event of this kind.
    Dropped(Counts),
}

impl Occurrence {
    /// Returns true if the event is about an overdue message of its client.
    pub fn is_overdue(&self) -> bool {
        match self {
            Occurrence::Stalled(_) | Occurrence::Redelivered { .. } | Occurrence::Exhausted(_) => true,
            Occurrence::Disconnected(cause) => cause.stall().is_some(),
            _ => false,
        }
    }

    /// Returns true if the socket was examined just before the event. Then the event's cause says
    /// which side holds the packet.
    pub fn is_diagnosed(&self) -> bool {
        self.is_overdue() && !matches!(self, Occurrence::Redelivered { when: RedeliveryTime::AtReturn, .. })
    }
}

named_enum! {
    /// The occasion on which packets were sent again.
    pub enum RedeliveryTime {
        /// On a live connection of 3.1 or 3.1.1.
        Live = "live",
        /// At the client's return, on a new connection.
        AtReturn = "return",
    }

    /// The action for a packet whose attempts are used up.
    pub enum ExhaustedAction {
        /// The connection is closed, and the packet is sent again when the client returns.
        Disconnect = "disconnect",
        /// The packet is still sent again, at the longest interval.
        Keep = "keep",
    }
}

/// The circumstances of an event, for the listeners that need more than a log line.
#[derive(Clone, Debug, PartialEq)]
pub struct EventDetail {
    /// The packet that the event is about; the oldest of them if there are several.
    pub packet: Option<OverduePacket>,
    /// The oldest packet without its acknowledgement. Only a disconnect has it.
    pub oldest_unacknowledged: Option<Stall>,
    /// The time from the deadline to the event; `None` without a deadline.
    pub late: Option<Duration>,
    /// The time since the client's last packet. Only a disconnect has it.
    pub silent: Option<Duration>,
    /// Messages of the session that were sent and not acknowledged to the end.
    pub in_flight: usize,
    /// Messages of the session that wait behind those in flight.
    pub queued: usize,
}

/// A packet without its acknowledgement, and its message.
#[derive(Clone, Debug, PartialEq)]
pub struct OverduePacket {
    /// Identifier, age, transmissions and cause.
    pub stall: Stall,
    /// The message; `None` if the packet is a PUBREL or the message was dropped.
    pub message: Option<Addressed>,
    /// True if the packet is a PUBREL: PUBREC came, and PUBCOMP has not.
    pub released: bool,
}

/// Topic and QoS of a message.
#[derive(Clone, Debug, PartialEq)]
pub struct Addressed {
    /// The Topic Name, or the first 256 characters of a longer one.
    pub topic: Box<str>,
    /// The QoS of the delivery.
    pub qos: QoS,
}

/// Returns topic and QoS of a delivery. Cuts a topic that is too long for an event.
pub(crate) fn addressed(delivery: &Delivery) -> Addressed {
    Addressed { topic: cut(delivery.message.topic()), qos: delivery.qos }
}

/// The right to be connected that a reload took away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Revocation {
    /// The user has left the password file, or has another password there.
    Password,
    /// The client's certificate is not valid any more. The text says why.
    Certificate(Box<str>),
}

/// The cause of the end of a connection.
#[derive(Clone, Debug, PartialEq)]
pub enum DisconnectCause {
    /// The client sent DISCONNECT, with this reason.
    Client(ReasonCode),
    /// The client closed the socket, or the network failed. The text is the operating system's.
    Network(Box<str>),
    /// The client broke a rule.
    Violation(ReasonCode, Box<str>),
    /// Another connection of this client took the session over.
    TakenOver,
    /// No packet came within one and a half times the Keep Alive.
    KeepAlive {
        /// The time since the last packet.
        silent: Duration,
    },
    /// No CONNECT came within `network.connect_timeout`.
    NoConnect,
    /// The socket took no bytes for the write timeout.
    WriteTimeout {
        /// Bytes in the outbox.
        waiting_bytes: usize,
    },
    /// The client began a packet, and sent no further byte for the write timeout.
    PacketTimeout {
        /// Bytes of the packet that came.
        partial_bytes: usize,
    },
    /// A packet was sent `redelivery.attempts` times without an acknowledgement.
    Exhausted(Stall),
    /// A 5.0 client's host has a packet, and the client did not acknowledge the packet in time.
    AckTimeout(Stall),
    /// The client's queue is full, and its policy is to disconnect.
    QueueFull,
    /// A reload removed the client's permission to connect.
    Revoked(Revocation),
    /// The end that a token or a service set for the connection has come, or the keys of TLS are
    /// used up. The text says which.
    MaximumConnectTime(&'static str),
    /// An operator disconnected the client, or ended its session.
    Operator,
    /// The client is banned since a reload.
    Banned(Ban),
    /// The broker stops.
    Shutdown,
}

named_enum! {
    /// The kind of a [`DisconnectCause`].
    #[expect(missing_docs, reason = "the variants of DisconnectCause have the same names")]
    pub enum DisconnectKind {
        Client = "client",
        Network = "network",
        Violation = "violation",
        TakenOver = "taken_over",
        KeepAlive = "keep_alive",
        NoConnect = "no_connect",
        WriteTimeout = "write_timeout",
        PacketTimeout = "packet_timeout",
        Exhausted = "attempts_used_up",
        AckTimeout = "ack_timeout",
        QueueFull = "queue_full",
        Revoked = "revoked",
        MaximumConnectTime = "maximum_connect_time",
        Operator = "operator",
        Banned = "banned",
        Shutdown = "shutdown",
    }
}

impl DisconnectCause {
    /// Returns the kind of the cause.
    pub const fn kind(&self) -> DisconnectKind {
        match self {
            DisconnectCause::Client(_) => DisconnectKind::Client,
            DisconnectCause::Network(_) => DisconnectKind::Network,
            DisconnectCause::Violation(..) => DisconnectKind::Violation,
            DisconnectCause::TakenOver => DisconnectKind::TakenOver,
            DisconnectCause::KeepAlive { .. } => DisconnectKind::KeepAlive,
            DisconnectCause::NoConnect => DisconnectKind::NoConnect,
            DisconnectCause::WriteTimeout { .. } => DisconnectKind::WriteTimeout,
            DisconnectCause::PacketTimeout { .. } => DisconnectKind::PacketTimeout,
            DisconnectCause::Exhausted(_) => DisconnectKind::Exhausted,
            DisconnectCause::AckTimeout(_) => DisconnectKind::AckTimeout,
            DisconnectCause::QueueFull => DisconnectKind::QueueFull,
            DisconnectCause::Revoked(_) => DisconnectKind::Revoked,
            DisconnectCause::MaximumConnectTime(_) => DisconnectKind::MaximumConnectTime,
            DisconnectCause::Operator => DisconnectKind::Operator,
            DisconnectCause::Banned(_) => DisconnectKind::Banned,
            DisconnectCause::Shutdown => DisconnectKind::Shutdown,
        }
    }

    /// Returns the name in event topics, last-disconnect records and metrics.
    pub const fn name(&self) -> &'static str {
        self.kind().name()
    }

    /// Returns true if an operator may want an explanation. A normal DISCONNECT of the client and a
    /// stop of the broker need none. These two are by far the most frequent causes.
    pub fn needs_explanation(&self) -> bool {
        !matches!(self, DisconnectCause::Client(ReasonCode::NORMAL_DISCONNECTION) | DisconnectCause::Shutdown)
    }

    /// Returns the overdue packet for which the connection was closed, if there is one.
    pub const fn stall(&self) -> Option<Stall> {
        match self {
            DisconnectCause::Exhausted(stall) | DisconnectCause::AckTimeout(stall) => Some(*stall),
            _ => None,
        }
    }
}

impl fmt::Display for DisconnectCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DisconnectCause::Client(reason) => write!(f, "DISCONNECT from the client ({reason})"),
            DisconnectCause::Network(cause) => write!(f, "network: {cause}"),
            DisconnectCause::Violation(reason, what) => write!(f, "{what} ({reason})"),
            DisconnectCause::TakenOver => f.write_str("taken over by another connection of this client"),
            DisconnectCause::KeepAlive { silent } => {
                write!(f, "keep alive: silent for {} ms", silent.as_millis())
            }
            DisconnectCause::NoConnect => f.write_str("no CONNECT within network.connect_timeout"),
            DisconnectCause::WriteTimeout { waiting_bytes } => {
                write!(f, "took no bytes for network.write_timeout; {waiting_bytes} bytes wait")
            }
            DisconnectCause::PacketTimeout { partial_bytes } => write!(
                f,
                "no byte of the rest of a packet for network.write_timeout; {partial_bytes} bytes of it have come"
            ),
            DisconnectCause::Exhausted(stall) => {
                write!(f, "redelivery.attempts used up: {stall}; redelivered at return")
            }
            DisconnectCause::AckTimeout(stall) => write!(f, "redelivery.ack_timeout: {stall}"),
            DisconnectCause::QueueFull => f.write_str("its queue is full (limits.queue_policy disconnect)"),
            DisconnectCause::Revoked(Revocation::Password) => {
                f.write_str("the user has left the password file, or has another password there")
            }
            DisconnectCause::Revoked(Revocation::Certificate(why)) => f.write_str(why),
            DisconnectCause::MaximumConnectTime(what) => f.write_str(what),
            DisconnectCause::Operator => f.write_str("an operator disconnected the client"),
            DisconnectCause::Banned(ban) => f.write_str(ban.text()),
            DisconnectCause::Shutdown => f.write_str("the broker stops"),
        }
    }
}

impl EventDetail {
    /// Returns the detail of an event of the session with this sender. `packet` is the packet that
    /// the event is about, and `late` the time since its deadline.
    pub(crate) fn new(sender: &Sender, packet: Option<Stall>, late: Option<Duration>) -> EventDetail {
        let packet = packet.map(|stall| {
            let message = sender.window.delivery(stall.number).map(addressed);
            // A PUBREL is never dropped.
            let released = message.is_none() && sender.window.contains(stall.number);
            OverduePacket { stall, message, released }
        });
        EventDetail {
            packet,
            oldest_unacknowledged: None,
            late,
            silent: None,
            in_flight: sender.window.len(),
            queued: sender.queue.len(),
        }
    }
}
