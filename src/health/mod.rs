//! The check of `homing health`: connects to a running broker as a client and expects answers.
//!
//! The check blocks, and writes two fixed MQTT 3.1.1 packets. Fixed packets need neither the codec
//! nor a runtime. A check that shares no code with the broker cannot share its mistakes; only the
//! files of TLS are read by the same code.
//!
//! - [`command`]: the arguments, and the listener that is checked.
//! - [`proxy`]: the header before everything else, on a listener behind a proxy.
//! - [`websocket`]: the packets as WebSocket frames.

pub mod command;
pub mod proxy;
pub mod websocket;

use crate::config::ListenerAddress;
use crate::net::tls::client;
pub use proxy::ProxyStart;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

/// CONNECT, MQTT 3.1.1: Clean Session, Keep Alive 10 s, no client identifier (3.1.1 [MQTT-3.1.3-6]
/// lets the server choose).
const CONNECT: &[u8] = &[0x10, 12, 0, 4, b'M', b'Q', b'T', b'T', 4, 0x02, 0, 10, 0, 0];
/// The return codes of a broker that works, and does not want this client: for its version of MQTT,
/// its client identifier, and its want of credentials (twice).
const NOT_WANTED: [u8; 4] = [1, 2, 4, 5];
const PINGREQ: &[u8] = &[0xC0, 0];
const PINGRESP: [u8; 2] = [0xD0, 0];
const DISCONNECT: &[u8] = &[0xE0, 0];

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
    /// The answer is no MQTT packet that fits.
    #[error("the answer to {to} is not MQTT: {answer:02x?}")]
    NotMqtt {
        /// The packet that was answered.
        to: &'static str,
        /// The first bytes of the answer.
        answer: Vec<u8>,
    },
}

/// The address to check, and the layers between its socket and MQTT.
#[derive(Debug)]
pub struct HealthTarget {
    /// The address.
    pub address: ListenerAddress,
    /// The PROXY header that each connection begins with; `None` if there is none.
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
trait HealthStream: Read + Write {}

impl<S: Read + Write> HealthStream for S {}

/// Connects, pings and disconnects. A refusal of this client counts as healthy, because a broker
/// that refuses works: for want of credentials or a certificate, for its version of MQTT, or
/// because it is none of the proxies that are believed. Each read and each write may take
/// `timeout`.
///
/// # Errors
/// The step that failed, and why.
pub fn check(target: &HealthTarget, timeout: Duration) -> Result<(), Unhealthy> {
    match exchanges(target, timeout) {
        // TLS 1.3 refuses after the handshake of the client, TLS 1.2 in it.
        Err(Unhealthy::Tls(cause) | Unhealthy::WebSocket(cause) | Unhealthy::Silent { cause, .. })
            if client::asks_for_certificate(&cause) =>
        {
            Ok(())
        }
        outcome => outcome,
    }
}

fn exchanges(target: &HealthTarget, timeout: Duration) -> Result<(), Unhealthy> {
    let (mut socket, own) = socket(&target.address, timeout).map_err(Unhealthy::Connect)?;
    if let Some(proxy) = &target.proxy {
        if !proxy.is_believed_from(own) {
            return closes(socket);
        }
        socket
            .write_all(proxy.header)
            .map_err(|cause| Unhealthy::Silent { to: "the PROXY header", cause })?;
    }
    let mut stream = with_layers(target, socket, timeout)?;
    match exchange::<4>(&mut stream, "CONNECT", CONNECT)? {
        [0x20, 2, 0, 0] => {}
        [0x20, 2, 0, code] if NOT_WANTED.contains(&code) => return Ok(()),
        [0x20, 2, 0, code] => return Err(Unhealthy::Refused(code)),
        answer => return Err(Unhealthy::NotMqtt { to: "CONNECT", answer: answer.to_vec() }),
    }
    let answer = exchange::<2>(&mut stream, "PINGREQ", PINGREQ)?;
    if answer != PINGRESP {
        return Err(Unhealthy::NotMqtt { to: "PINGREQ", answer: answer.to_vec() });
    }
    // The broker has answered, so a failure to send DISCONNECT changes nothing.
    drop(stream.write_all(DISCONNECT));
    Ok(())
}

/// Waits until the broker closes the connection of a peer that is no proxy. The system alone
/// accepts a connection, and does not close it.
fn closes(mut socket: Box<dyn HealthStream>) -> Result<(), Unhealthy> {
    const TO: &str = "a connection of no proxy";
    let mut byte = [0];
    match socket.read(&mut byte) {
        Ok(0) => Ok(()),
        Ok(_) => Err(Unhealthy::NotMqtt { to: TO, answer: byte.to_vec() }),
        Err(cause) if cause.kind() == io::ErrorKind::ConnectionReset => Ok(()),
        Err(cause) => Err(Unhealthy::Silent { to: TO, cause }),
    }
}

/// Returns a stream of MQTT bytes over a socket of the target.
fn with_layers(
    target: &HealthTarget,
    mut stream: Box<dyn HealthStream>,
    timeout: Duration,
) -> Result<Box<dyn HealthStream>, Unhealthy> {
    if let Some((config, name)) = &target.tls {
        let config = Arc::clone(config);
        stream = Box::new(client::connect(config, name.clone(), stream).map_err(Unhealthy::Tls)?);
    }
    if let Some(path) = &target.websocket_path {
        stream = Box::new(websocket::upgrade(stream, path, timeout).map_err(Unhealthy::WebSocket)?);
    }
    Ok(stream)
}

/// Connects. Returns the socket, and its own address; `None` on a Unix socket.
fn socket(
    address: &ListenerAddress,
    timeout: Duration,
) -> io::Result<(Box<dyn HealthStream>, Option<IpAddr>)> {
    Ok(match address {
        ListenerAddress::Ip(address) => {
            let socket = TcpStream::connect_timeout(&reachable(*address), timeout)?;
            socket.set_read_timeout(Some(timeout))?;
            socket.set_write_timeout(Some(timeout))?;
            let own = socket.local_addr()?.ip();
            (Box::new(socket), Some(own))
        }
        ListenerAddress::Unix(path) => {
            let socket = UnixStream::connect(path)?;
            socket.set_read_timeout(Some(timeout))?;
            socket.set_write_timeout(Some(timeout))?;
            (Box::new(socket), None)
        }
    })
}

fn exchange<const N: usize>(
    stream: &mut impl HealthStream,
    to: &'static str,
    packet: &[u8],
) -> Result<[u8; N], Unhealthy> {
    let mut answer = [0; N];
    stream
        .write_all(packet)
        .and_then(|()| stream.read_exact(&mut answer))
        .map_err(|cause| Unhealthy::Silent { to, cause })?;
    Ok(answer)
}

/// Returns the address to connect to for a listener: loopback if the listener is on all interfaces.
pub fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

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
        assert_eq!(outcome(&[b"HTTP"]), "the answer to CONNECT is not MQTT: [48, 54, 54, 50]");
        assert!(outcome(&[&[0x20, 2, 0, 0]]).starts_with("no answer to PINGREQ"));
    }

    #[test]
    fn a_listener_on_all_interfaces_is_asked_over_loopback() {
        assert_eq!(reachable("0.0.0.0:1883".parse().unwrap()), "127.0.0.1:1883".parse().unwrap());
        assert_eq!(reachable("[::]:1883".parse().unwrap()), "[::1]:1883".parse().unwrap());
        assert_eq!(reachable("10.0.0.1:1883".parse().unwrap()), "10.0.0.1:1883".parse().unwrap());
    }
}
