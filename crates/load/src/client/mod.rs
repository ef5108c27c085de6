//! One interface for rumqttc clients of either version.
//!
//! A client neither reconnects nor decides. A broken connection is an error, and a scenario that
//! wants to return opens another client. Three limits of rumqttc are lifted here: 3.1.1 packets of
//! more than 10 KiB, the 13.8 MiB that a 5.0 client takes, and the QoS 2 identifiers that a client
//! forgets ([`Options::known_ids`]).

mod frames;
mod tunnel;
mod v4;
mod v5;

use super::credentials::LoadCredentials;
use bytes::Bytes;
use homing_core::mqtt::packet::{ProtocolVersion, QoS};
use std::sync::Arc;
use std::time::Duration;
pub(super) use tunnel::Tunnel;

/// The settings of one client.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub host: String,
    pub port: u16,
    pub credentials: Option<LoadCredentials>,
    /// TLS and WebSocket; `None` for plain connections.
    pub tunnel: Option<Arc<Tunnel>>,
    pub version: ProtocolVersion,
    pub client_id: String,
    pub keep_alive: Duration,
    pub session: SessionLife,
    pub acks: Acks,
    /// QoS 1 and 2 messages that this client may have under way.
    pub window: u16,
    /// Bytes of the largest payload to send or receive.
    pub payload: usize,
    /// Incoming QoS 2 identifiers of earlier connections of this session. rumqttc knows none after
    /// a return. rumqttc closes the connection at a PUBREL with an unknown identifier.
    pub known_ids: Vec<u16>,
}

/// The life of the session of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionLife {
    /// The session begins and ends with the connection.
    Clean,
    /// The session is resumed, and outlives the connection (5.0: by [`SESSION_EXPIRY_S`]).
    Kept,
}

/// The way in which a client acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Acks {
    AtOnce,
    /// The scenario acknowledges, with [`ClientSender::acknowledge`].
    ByHand,
}

/// Session Expiry Interval of kept 5.0 sessions, in seconds: longer than any scenario is away.
const SESSION_EXPIRY_S: u32 = 3600;

/// Capacity of the request queue: all that the protocol can have unacknowledged. So an
/// acknowledgement never waits for the event loop that its caller runs. The queue allocates only
/// what it holds.
const REQUESTS: usize = 65_536;

/// Returns the range of packet identifiers for a window. rumqttc takes identifiers in turn from 1
/// to its in-flight limit, and fails if the next one is still in use. Four times the window makes
/// room for a broker that acknowledges out of order.
fn identifier_range(window: u16) -> u16 {
    window.saturating_mul(4).max(16)
}

/// Returns the size in bytes of a packet with this payload, rounded up.
fn packet_size(payload: usize) -> usize {
    payload.saturating_add(1024)
}

/// Returns the host in the form for `host:port`: an IPv6 address in brackets.
fn host(options: &Options) -> String {
    if options.host.contains(':') { format!("[{}]", options.host) } else { options.host.clone() }
}

/// A received PUBLISH.
#[derive(Clone, Debug)]
pub(super) struct ReceivedPublish {
    pub payload: Bytes,
    pub qos: QoS,
    pub dup: bool,
    pub retain: bool,
    /// The packet identifier; 0 at QoS 0.
    pub id: u16,
}

/// A PUBLISH to send.
#[derive(Clone, Debug)]
pub(super) struct OutgoingPublish<'a> {
    pub topic: &'a str,
    pub qos: QoS,
    pub retain: bool,
    pub payload: Bytes,
}

/// An event of a connection that a scenario needs.
#[derive(Clone, Debug)]
pub(super) enum Event {
    Connected {
        session_present: bool,
    },
    /// SUBACK came. `refused` is true if a filter was refused.
    Subscribed {
        refused: bool,
    },
    Message(ReceivedPublish),
    /// A PUBLISH of this client was sent. The order is that of the calls of
    /// [`ClientSender::publish`].
    Sent {
        id: u16,
    },
    /// A PUBLISH of this client is finished: PUBACK, PUBCOMP, or a PUBREC that refuses it came.
    Finished {
        id: u16,
        refused: bool,
    },
    /// PUBREL came. rumqttc answers it.
    Released {
        id: u16,
    },
    Pinged,
    Ponged,
    /// DISCONNECT was sent.
    Left,
    Other,
}

/// The reason why a connection ended or was never made, as one line.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Broken(pub String);

/// The error of a request to a client whose event loop has ended.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the connection has ended")]
pub(super) struct ClientGone;

/// The half of a client that takes requests.
#[derive(Clone)]
pub(super) enum ClientSender {
    V4(rumqttc::AsyncClient),
    V5(rumqttc::v5::AsyncClient),
}

/// The half of a client that runs. Nothing moves unless [`ClientConnection::next`] is awaited.
/// Dropping it closes the connection without DISCONNECT.
pub(super) enum ClientConnection {
    V4(Box<rumqttc::EventLoop>),
    V5(Box<rumqttc::v5::EventLoop>),
}

/// Returns a client that connects when its [`ClientConnection`] runs: to the broker, or to the Unix
/// socket of a relay.
fn open(options: &Options, relay: Option<&str>) -> (ClientSender, ClientConnection) {
    if options.version.is_v5() {
        let (client, event_loop) = v5::open(options, relay);
        (ClientSender::V5(client), ClientConnection::V5(Box::new(event_loop)))
    } else {
        let (client, event_loop) = v4::open(options, relay);
        (ClientSender::V4(client), ClientConnection::V4(Box::new(event_loop)))
    }
}

/// Returns a connected client, and the Session Present flag of its CONNACK.
///
/// # Errors
/// The broker does not answer, or refuses. The text names its address.
pub(super) async fn connect(options: &Options) -> Result<(ClientSender, ClientConnection, bool), Broken> {
    let cannot =
        |cause: String| Broken(format!("cannot connect to {}:{}: {cause}", host(options), options.port));
    let relay = match &options.tunnel {
        Some(tunnel) => {
            Some(tunnel.open(&options.host, options.port).await.map_err(|Broken(cause)| cannot(cause))?)
        }
        None => None,
    };
    let (sender, mut connection) = open(options, relay.as_ref().map(|relay| relay.path.as_str()));
    loop {
        match connection.next().await {
            Ok(Event::Connected { session_present }) => return Ok((sender, connection, session_present)),
            Ok(_) => {}
            Err(Broken(cause)) => {
                return Err(cannot(relay.and_then(|relay| relay.failure()).unwrap_or(cause)));
            }
        }
    }
}

impl ClientSender {
    /// Hands a message to the client.
    ///
    /// # Errors
    /// The connection is over.
    pub(super) async fn publish(&self, message: OutgoingPublish<'_>) -> Result<(), ClientGone> {
        let OutgoingPublish { topic, qos, retain, payload } = message;
        match self {
            ClientSender::V4(client) => {
                client.publish_bytes(topic, v4::qos(qos), retain, payload).await.map_err(|_| ClientGone)
            }
            ClientSender::V5(client) => {
                client.publish_bytes(topic, v5::qos(qos), retain, payload).await.map_err(|_| ClientGone)
            }
        }
    }

    /// Hands a SUBSCRIBE of one filter to the client.
    ///
    /// # Errors
    /// The connection is over.
    pub(super) async fn subscribe(&self, filter: &str, qos: QoS) -> Result<(), ClientGone> {
        match self {
            ClientSender::V4(client) => client.subscribe(filter, v4::qos(qos)).await.map_err(|_| ClientGone),
            ClientSender::V5(client) => client.subscribe(filter, v5::qos(qos)).await.map_err(|_| ClientGone),
        }
    }

    /// Sends PUBACK or PUBREC, for a client with [`Acks::ByHand`].
    ///
    /// # Errors
    /// The connection is over.
    pub(super) fn acknowledge(&self, qos: QoS, id: u16) -> Result<(), ClientGone> {
        match self {
            ClientSender::V4(client) => client.try_ack(&v4::placeholder(qos, id)).map_err(|_| ClientGone),
            ClientSender::V5(client) => client.try_ack(&v5::placeholder(qos, id)).map_err(|_| ClientGone),
        }
    }

    /// Sends DISCONNECT behind all earlier requests.
    ///
    /// # Errors
    /// The connection is over.
    pub(super) fn disconnect(&self) -> Result<(), ClientGone> {
        match self {
            ClientSender::V4(client) => client.try_disconnect().map_err(|_| ClientGone),
            ClientSender::V5(client) => client.try_disconnect().map_err(|_| ClientGone),
        }
    }
}

impl ClientConnection {
    /// Waits for the next event. Do not drop the future before it is ready: bytes that rumqttc was
    /// about to flush would wait for the next call.
    ///
    /// # Errors
    /// The connection has ended.
    pub(super) async fn next(&mut self) -> Result<Event, Broken> {
        match self {
            ClientConnection::V4(event_loop) => v4::next(event_loop).await,
            ClientConnection::V5(event_loop) => v5::next(event_loop).await,
        }
    }

    /// Returns the next event that rumqttc has handled and not reported. rumqttc reads and answers
    /// ten packets at a time, so a scenario that closes a connection must still read these events.
    pub(super) fn buffered(&mut self) -> Option<Event> {
        match self {
            ClientConnection::V4(event_loop) => event_loop.state.events.pop_front().map(v4::translate),
            ClientConnection::V5(event_loop) => event_loop.state.events.pop_front().map(v5::translate),
        }
    }
}
