//! One interface for rumqttc clients of either version.
//!
//! A client neither reconnects nor decides: a broken connection is an error, and a scenario that
//! wants to return opens another client. Two of rumqttc's limits are lifted here: 3.1.1 packets
//! over 10 KiB, and the 13.8 MiB of a 5.0 client. A third, that it forgets which QoS 2 identifiers
//! it has had, is lifted by [`Options::known_ids`].

mod v4;
mod v5;

use crate::mqtt::packet::{ProtocolVersion, QoS};
use bytes::Bytes;
use std::time::Duration;

/// What a client is opened with.
#[derive(Clone, Debug)]
pub struct Options {
    pub host: String,
    pub port: u16,
    pub version: ProtocolVersion,
    pub client_id: String,
    pub keep_alive: Duration,
    pub session: Session,
    pub acks: Acks,
    /// QoS 1 and 2 messages that this client may have under way.
    pub window: u16,
    /// Bytes of the largest payload to send or receive.
    pub payload: usize,
    /// Incoming QoS 2 identifiers of earlier connections of this session: rumqttc takes the PUBREL
    /// of an identifier that it does not know for an error and closes the connection, and it knows
    /// none after a return.
    pub known_ids: Vec<u16>,
}

/// The life of the session of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Session {
    /// Begins and ends with the connection.
    Clean,
    /// Is taken up, and outlives the connection (5.0: by [`SESSION_EXPIRY_S`]).
    Kept,
}

/// The way in which a client acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acks {
    AtOnce,
    /// Only by [`Sender::acknowledge`].
    ByHand,
}

/// Session Expiry Interval of kept 5.0 sessions, in seconds: longer than any scenario is away.
const SESSION_EXPIRY_S: u32 = 3600;

/// Room for what the protocol can have unacknowledged at all, so that an acknowledgement never
/// waits for the event loop that its caller runs. The queue allocates only what it holds.
const REQUESTS: usize = 65_536;

/// rumqttc takes packet identifiers in turn from 1 to its in-flight limit, and stumbles where the
/// next one is still in use. A range some times the window, which [`super::flow`] keeps to, makes
/// room for a broker that answers out of order.
fn identifier_range(window: u16) -> u16 {
    window.saturating_mul(4).max(16)
}

/// Bytes for a packet around its payload.
fn packet_size(payload: usize) -> usize {
    payload.saturating_add(1024)
}

/// An IPv6 address as it stands before `:port`.
fn host(options: &Options) -> String {
    if options.host.contains(':') { format!("[{}]", options.host) } else { options.host.clone() }
}

/// A PUBLISH that came.
#[derive(Clone, Debug)]
pub struct Message {
    pub payload: Bytes,
    pub qos: QoS,
    pub dup: bool,
    /// 0 at QoS 0.
    pub id: u16,
}

/// What happened on a connection, as far as a scenario cares.
#[derive(Clone, Debug)]
pub enum Event {
    Connected {
        session_present: bool,
    },
    /// SUBACK; `refused` when any filter was.
    Subscribed {
        refused: bool,
    },
    Message(Message),
    /// A PUBLISH of ours went out; they go out in the order in which they were given.
    Sent {
        id: u16,
    },
    /// A PUBLISH of ours is done with: PUBACK, PUBCOMP, or the PUBREC that refuses it.
    Finished {
        id: u16,
        refused: bool,
    },
    /// PUBREL came, and rumqttc answers it.
    Released {
        id: u16,
    },
    Pinged,
    Ponged,
    /// DISCONNECT went out.
    Left,
    Other,
}

/// Why a connection ended or never came to be, as one line.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Broken(pub String);

/// The event loop of a client is gone, so it takes nothing more.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the connection has ended")]
pub struct Gone;

/// The half that asks.
#[derive(Clone)]
pub enum Sender {
    V4(rumqttc::AsyncClient),
    V5(rumqttc::v5::AsyncClient),
}

/// The half that runs: nothing moves unless [`Connection::next`] is awaited. Dropping it cuts the
/// connection without DISCONNECT.
pub enum Connection {
    V4(Box<rumqttc::EventLoop>),
    V5(Box<rumqttc::v5::EventLoop>),
}

/// A client that will connect when its [`Connection`] runs.
pub fn open(options: &Options) -> (Sender, Connection) {
    if options.version.is_v5() {
        let (client, event_loop) = v5::open(options);
        (Sender::V5(client), Connection::V5(Box::new(event_loop)))
    } else {
        let (client, event_loop) = v4::open(options);
        (Sender::V4(client), Connection::V4(Box::new(event_loop)))
    }
}

/// A client that is connected.
///
/// # Errors
/// The broker does not answer, or refuses; the line names its address.
pub async fn connect(options: &Options) -> Result<(Sender, Connection, bool), Broken> {
    let (sender, mut connection) = open(options);
    loop {
        match connection.next().await {
            Ok(Event::Connected { session_present }) => return Ok((sender, connection, session_present)),
            Ok(_) => {}
            Err(Broken(cause)) => {
                return Err(Broken(format!("cannot connect to {}:{}: {cause}", host(options), options.port)));
            }
        }
    }
}

impl Sender {
    /// Hands a message to the client.
    ///
    /// # Errors
    /// The connection is over.
    pub async fn publish(&self, topic: &str, qos: QoS, payload: Bytes) -> Result<(), Gone> {
        match self {
            Sender::V4(client) => {
                client.publish_bytes(topic, v4::qos(qos), false, payload).await.map_err(|_| Gone)
            }
            Sender::V5(client) => {
                client.publish_bytes(topic, v5::qos(qos), false, payload).await.map_err(|_| Gone)
            }
        }
    }

    /// Hands a SUBSCRIBE of one filter to the client.
    ///
    /// # Errors
    /// The connection is over.
    pub async fn subscribe(&self, filter: &str, qos: QoS) -> Result<(), Gone> {
        match self {
            Sender::V4(client) => client.subscribe(filter, v4::qos(qos)).await.map_err(|_| Gone),
            Sender::V5(client) => client.subscribe(filter, v5::qos(qos)).await.map_err(|_| Gone),
        }
    }

    /// Sends PUBACK or PUBREC, for a client with [`Acks::ByHand`].
    ///
    /// # Errors
    /// The connection is over.
    pub fn acknowledge(&self, qos: QoS, id: u16) -> Result<(), Gone> {
        match self {
            Sender::V4(client) => client.try_ack(&v4::placeholder(qos, id)).map_err(|_| Gone),
            Sender::V5(client) => client.try_ack(&v5::placeholder(qos, id)).map_err(|_| Gone),
        }
    }

    /// Sends DISCONNECT behind all earlier requests.
    ///
    /// # Errors
    /// The connection is over.
    pub fn disconnect(&self) -> Result<(), Gone> {
        match self {
            Sender::V4(client) => client.try_disconnect().map_err(|_| Gone),
            Sender::V5(client) => client.try_disconnect().map_err(|_| Gone),
        }
    }
}

impl Connection {
    /// Waits for the next event. Do not drop the future half-way: the bytes that rumqttc was about
    /// to flush would wait for the next call.
    ///
    /// # Errors
    /// The connection is over.
    pub async fn next(&mut self) -> Result<Event, Broken> {
        match self {
            Connection::V4(event_loop) => v4::next(event_loop).await,
            Connection::V5(event_loop) => v5::next(event_loop).await,
        }
    }

    /// Returns the next event that rumqttc has handled and not reported. rumqttc reads and answers
    /// ten packets at a time, so a scenario that closes a connection must still read these events.
    pub fn buffered(&mut self) -> Option<Event> {
        match self {
            Connection::V4(event_loop) => event_loop.state.events.pop_front().map(v4::translate),
            Connection::V5(event_loop) => event_loop.state.events.pop_front().map(v5::translate),
        }
    }
}
