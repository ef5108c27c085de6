//! The check of `homing health`: connects to a running broker as a client and expects answers.
//!
//! The packets are those of MQTT 3.1.1, read and written with [`MqttCodec`]. A listener may want
//! them over TLS, in WebSocket frames, and behind the header of a proxy.
//!
//! - [`command`]: the arguments, and the listener that is checked.
//! - [`proxy`]: the header before everything else, on a listener behind a proxy.
//! - [`websocket`]: the packets as WebSocket frames.

pub mod command;
pub mod proxy;
pub mod websocket;

use crate::broker::bind::reachable;
use crate::config::ListenerAddress;
use crate::framed::{CodecError, MqttCodec, OwnedPacket, upgrade_to_websocket};
use crate::mqtt::packet::{
    Connect, ConnectProperties, ConnectReturnCode, Disconnect, Packet, ProtocolVersion, ReasonCode,
};
use crate::net::tls::client;
use futures_util::{SinkExt, StreamExt};
use proxy::ProxyStart;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime;
use tokio_rustls::TlsConnector;
use tokio_util::codec::{Decoder, Encoder, Framed};
use websocket::WebSocketCodec;

/// The Keep Alive of the check in seconds.
const KEEP_ALIVE: u16 = 10;
/// Time until a Unix socket is tried again whose listener has no room.
const AGAIN: Duration = Duration::from_millis(10);
/// Bytes of the largest answer. CONNACK and PINGRESP of 3.1.1 have 4 and 2.
const LARGEST_ANSWER: u32 = 64;
/// The answers of a broker that works, and does not want this client: for its version of MQTT, its
/// client identifier, and its want of credentials (twice).
const NOT_WANTED: [ReasonCode; 4] = [
    ReasonCode::UNSUPPORTED_PROTOCOL_VERSION,
    ReasonCode::CLIENT_IDENTIFIER_NOT_VALID,
    ReasonCode::BAD_USER_NAME_OR_PASSWORD,
    ReasonCode::NOT_AUTHORIZED,
];

/// The reason why a broker is not healthy.
#[derive(Debug, thiserror::Error)]
pub enum Unhealthy {
    /// The system refuses the connection.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// The handshake of TLS fails: no TLS, a certificate that is not trusted, or another name.
    #[error("no TLS: {0}")]
    Tls(io::Error),
    /// The server does not speak MQTT over WebSocket at this path.
    #[error("no WebSocket: {0}")]
    WebSocket(io::Error),
    /// The broker does not answer in time, or closes the connection.
    #[error("no answer to {to}: {cause}")]
    Silent {
        /// The packet without an answer.
        to: &'static str,
        /// The system's reason.
        cause: io::Error,
    },
    /// The broker refuses CONNECT with this return code.
    #[error("the connection was refused with return code {0}")]
    Refused(u8),
    /// The answer is no MQTT packet, or another packet than expected.
    #[error("the answer to {to} is {answer}")]
    Wrong {
        /// The packet that was answered.
        to: &'static str,
        /// The name of the packet, the error in it, or its first byte.
        answer: String,
    },
}

/// The address to check, and the layers between its socket and MQTT.
#[derive(Debug)]
pub struct HealthTarget {
    /// The address.
    pub address: ListenerAddress,
    /// The PROXY header of each connection; `None` without one.
    pub proxy: Option<ProxyStart>,
    /// TLS, with the name that the certificate must have.
    pub tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    /// The path of the WebSocket.
    pub websocket_path: Option<String>,
}

impl HealthTarget {
    /// Returns a target without TLS and WebSocket.
    pub fn plain(address: SocketAddr) -> HealthTarget {
        HealthTarget { address: ListenerAddress::Ip(address), proxy: None, tls: None, websocket_path: None }
    }
}

/// A stream of bytes of any kind.
trait HealthStream: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> HealthStream for S {}

/// Connects, pings and disconnects. A refusal of this client counts as healthy, because a broker
/// that refuses works: for want of credentials or a certificate, for its version of MQTT, or
/// because it is no trusted proxy. Each step may take `patience`.
///
/// # Errors
/// The step that failed, and why.
///
/// # Panics
/// If called from within an async runtime.
pub fn check(target: &HealthTarget, patience: Duration) -> Result<(), Unhealthy> {
    let runtime = runtime::Builder::new_current_thread().enable_io().enable_time().build();
    match runtime.map_err(Unhealthy::Connect)?.block_on(exchanges(target, patience)) {
        // TLS 1.3 refuses after the handshake of the client, TLS 1.2 in it.
        Err(Unhealthy::Tls(cause) | Unhealthy::WebSocket(cause) | Unhealthy::Silent { cause, .. })
            if client::asks_for_certificate(&cause) =>
        {
            Ok(())
        }
        outcome => outcome,
    }
}

async fn exchanges(target: &HealthTarget, patience: Duration) -> Result<(), Unhealthy> {
    let (mut stream, own) = within(patience, socket(&target.address)).await.map_err(Unhealthy::Connect)?;
    if let Some(proxy) = &target.proxy {
        if !proxy.is_believed_from(own) {
            return closes(stream, patience).await;
        }
        let written = within(patience, stream.write_all(proxy.header)).await;
        written.map_err(|cause| Unhealthy::Silent { to: "the PROXY header", cause })?;
    }
    if let Some((config, name)) = &target.tls {
        let handshake = TlsConnector::from(Arc::clone(config)).connect(name.clone(), stream);
        stream = Box::new(within(patience, handshake).await.map_err(Unhealthy::Tls)?);
    }
    let codec = MqttCodec::new(ProtocolVersion::V3_1_1, LARGEST_ANSWER);
    match &target.websocket_path {
        None => converse(Framed::new(stream, codec), patience).await,
        Some(path) => {
            let upgraded = within(patience, upgrade_to_websocket(&mut stream, "localhost", path)).await;
            upgraded.map_err(Unhealthy::WebSocket)?;
            converse(Framed::new(stream, WebSocketCodec::new(codec)), patience).await
        }
    }
}

/// Waits for a step, for as long as it may take.
async fn within<T, E: From<io::Error>>(
    patience: Duration,
    step: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let late = || io::Error::from(io::ErrorKind::TimedOut);
    tokio::time::timeout(patience, step).await.unwrap_or_else(|_| Err(late().into()))
}

/// A codec of packets, with or without frames around them.
trait PacketCodec:
    Decoder<Item = OwnedPacket, Error = CodecError> + for<'a> Encoder<&'a Packet<'a>, Error = CodecError>
{
}

impl<C> PacketCodec for C where
    C: Decoder<Item = OwnedPacket, Error = CodecError> + for<'a> Encoder<&'a Packet<'a>, Error = CodecError>
{
}

/// Exchanges the packets of the check.
async fn converse<C: PacketCodec>(
    mut packets: Framed<Box<dyn HealthStream>, C>,
    patience: Duration,
) -> Result<(), Unhealthy> {
    // 3.1.1 [MQTT-3.1.3-6] lets the server choose the client identifier.
    let connect = Packet::Connect(Box::new(Connect {
        version: ProtocolVersion::V3_1_1,
        clean_start: true,
        keep_alive: KEEP_ALIVE,
        properties: ConnectProperties::default(),
        client_id: "",
        will: None,
        user_name: None,
        password: None,
    }));
    match ask(&mut packets, &connect, patience).await?.packet() {
        // 3.1.1 [MQTT-3.2.2-1]: a clean session was asked for.
        Packet::Connack(answer) if answer.session_present => {
            let answer = "CONNACK with Session Present".to_owned();
            return Err(Unhealthy::Wrong { to: "CONNECT", answer });
        }
        Packet::Connack(answer) if answer.reason == ReasonCode::SUCCESS => {}
        Packet::Connack(answer) if NOT_WANTED.contains(&answer.reason) => return Ok(()),
        Packet::Connack(answer) => {
            let code = ConnectReturnCode::from_reason(answer.reason);
            return Err(Unhealthy::Refused(code.map_or(answer.reason.byte(), |code| code as u8)));
        }
        other => return Err(Unhealthy::Wrong { to: "CONNECT", answer: other.name().to_owned() }),
    }
    match ask(&mut packets, &Packet::Pingreq, patience).await?.packet() {
        Packet::Pingresp => {}
        other => return Err(Unhealthy::Wrong { to: "PINGREQ", answer: other.name().to_owned() }),
    }
    let disconnect = Packet::Disconnect(Disconnect::new(ReasonCode::SUCCESS));
    // The broker has answered, so a failure to send DISCONNECT changes nothing.
    let _ = within(patience, packets.send(&disconnect)).await;
    Ok(())
}

/// Sends a packet, and returns the answer.
async fn ask<C: PacketCodec>(
    packets: &mut Framed<Box<dyn HealthStream>, C>,
    packet: &Packet<'_>,
    patience: Duration,
) -> Result<OwnedPacket, Unhealthy> {
    let to = packet.name();
    let exchange = async {
        packets.send(packet).await?;
        packets.next().await.unwrap_or_else(|| Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()))
    };
    within(patience, exchange).await.map_err(|error| match error {
        CodecError::Io(cause) => Unhealthy::Silent { to, cause },
        other => Unhealthy::Wrong { to, answer: format!("not MQTT: {other}") },
    })
}

/// Waits until the broker closes the connection of a peer that is no proxy. The system alone
/// accepts a connection, and does not close it.
async fn closes(mut socket: Box<dyn HealthStream>, patience: Duration) -> Result<(), Unhealthy> {
    const TO: &str = "a connection of no proxy";
    match within(patience, socket.read_u8()).await {
        Ok(byte) => Err(Unhealthy::Wrong { to: TO, answer: format!("the byte {byte:02x}") }),
        Err(cause)
            if matches!(cause.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) =>
        {
            Ok(())
        }
        Err(cause) => Err(Unhealthy::Silent { to: TO, cause }),
    }
}

/// Connects to a Unix socket. Unlike for TCP, the system does not wait for room in the queue of the
/// listener.
async fn unix_socket(path: &Path) -> io::Result<UnixStream> {
    loop {
        match UnixStream::connect(path).await {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => tokio::time::sleep(AGAIN).await,
            connected => return connected,
        }
    }
}

/// Connects. Returns the socket, and its own address; `None` on a Unix socket.
async fn socket(address: &ListenerAddress) -> io::Result<(Box<dyn HealthStream>, Option<IpAddr>)> {
    Ok(match address {
        ListenerAddress::Ip(address) => {
            let socket = TcpStream::connect(reachable(*address)).await?;
            let own = socket.local_addr()?.ip();
            (Box::new(socket), Some(own))
        }
        ListenerAddress::Unix(path) => (Box::new(unix_socket(path).await?), None),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::sync::mpsc::RecvTimeoutError;

    /// Starts a listener that answers the first packets of one client with `answers`, one each.
    fn answering(answers: &'static [&'static [u8]]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            for answer in answers {
                let mut packet = [0; 64];
                assert_ne!(stream.read(&mut packet).unwrap(), 0);
                stream.write_all(answer).unwrap();
            }
        });
        address
    }

    fn outcome(answers: &'static [&'static [u8]]) -> String {
        match check(&HealthTarget::plain(answering(answers)), Duration::from_secs(5)) {
            Ok(()) => "healthy".to_owned(),
            Err(unhealthy) => unhealthy.to_string(),
        }
    }

    #[test]
    fn a_broker_that_answers_connect_and_ping_is_healthy() {
        assert_eq!(outcome(&[&[0x20, 2, 0, 0], &[0xD0, 0]]), "healthy");
    }

    #[test]
    fn a_refused_connection_is_told_with_its_return_code() {
        assert_eq!(outcome(&[&[0x20, 2, 0, 3]]), "the connection was refused with return code 3");
    }

    #[test]
    fn a_broker_that_does_not_want_this_client_is_healthy() {
        for refusal in ["\x20\x02\0\x01", "\x20\x02\0\x02", "\x20\x02\0\x04", "\x20\x02\0\x05"] {
            let answers: &'static [&'static [u8]] = vec![refusal.as_bytes()].leak();
            assert_eq!(outcome(answers), "healthy", "{refusal:?}");
        }
    }

    #[test]
    fn what_is_not_mqtt_is_not_healthy() {
        let http =
            "the answer to CONNECT is not MQTT: PUBACK with flags 0x8 in its first byte; they have to be 0x0";
        assert_eq!(outcome(&[b"HTTP"]), http);
        assert_eq!(outcome(&[&[0xD0, 0]]), "the answer to CONNECT is PINGRESP");
        assert_eq!(outcome(&[&[0x20, 2, 0, 0], &[0x20, 2, 0, 0]]), "the answer to PINGREQ is CONNACK");
        assert!(outcome(&[&[0x20, 2, 0, 0]]).starts_with("no answer to PINGREQ"));
    }

    #[test]
    fn an_answer_that_ends_in_the_midst_is_no_answer() {
        assert_eq!(outcome(&[b"\x20\x02"]), "no answer to CONNECT: unexpected end of file");
        let present = "the answer to CONNECT is CONNACK with Session Present";
        assert_eq!(outcome(&[&[0x20, 2, 1, 0]]), present);
    }

    #[test]
    fn a_peer_that_sends_a_byte_now_and_then_keeps_the_check_no_longer_than_one_step() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut target = HealthTarget::plain(listener.local_addr().unwrap());
        target.websocket_path = Some("/mqtt".to_owned());
        let (ended, end) = std::sync::mpsc::channel::<()>();
        let peer = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let header = b"HTTP/1.1 101 Switching Protocols\r\nX: ".iter().chain(std::iter::repeat(&b'x'));
            for byte in header.take(4_000) {
                if stream.write_all(&[*byte]).is_err()
                    || end.recv_timeout(Duration::from_millis(20)) == Err(RecvTimeoutError::Disconnected)
                {
                    break;
                }
            }
        });
        let unhealthy = check(&target, Duration::from_millis(300)).unwrap_err().to_string();
        assert_eq!(unhealthy, "no WebSocket: timed out");
        drop(ended);
        peer.join().unwrap();
    }
}
