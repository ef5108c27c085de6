//! MQTT over WebSocket, plain and over TLS, and requests that are refused.

use crate::kit::{self, CONNACK, CONNECT, Pki};
use crate::support::wire::packet;
use crate::support::{Connect, V311, Will};
use homing::config::{Listener, ListenerProtocol, ProxyProtocol};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use tungstenite::client::IntoClientRequest;
use tungstenite::http::HeaderValue;
use tungstenite::{Bytes, Message, WebSocket};

fn listener() -> Listener {
    Listener { protocol: Some(ListenerProtocol::WebSocket), ..kit::listener() }
}

/// Upgrades a stream as tungstenite's client with subprotocol mqtt.
fn upgrade<S: Read + Write>(
    stream: S,
    address: SocketAddr,
    path: &str,
    origin: Option<&str>,
) -> Result<WebSocket<S>, String> {
    let headers: Vec<_> = origin.into_iter().map(|origin| ("Origin", origin)).collect();
    upgrade_with(stream, address, path, &headers)
}

/// The same, with these headers in the request.
pub fn upgrade_with<S: Read + Write>(
    stream: S,
    address: SocketAddr,
    path: &str,
    more: &[(&'static str, &str)],
) -> Result<WebSocket<S>, String> {
    let mut request =
        format!("ws://localhost:{}{path}", address.port()).into_client_request().expect("a URL");
    let headers = request.headers_mut();
    headers.insert("Sec-WebSocket-Protocol", HeaderValue::from_static("mqtt"));
    for (name, value) in more {
        headers.insert(*name, value.parse().expect("a header"));
    }
    let (socket, response) = tungstenite::client(request, stream).map_err(|error| error.to_string())?;
    // [MQTT-6.0.0-4]
    assert_eq!(response.headers().get("Sec-WebSocket-Protocol"), Some(&HeaderValue::from_static("mqtt")));
    Ok(socket)
}

/// MQTT bytes through a WebSocket: a message for each write.
pub struct Stream<S> {
    socket: WebSocket<S>,
    received: Vec<u8>,
}

impl<S: Read + Write> Stream<S> {
    pub fn new(socket: WebSocket<S>) -> Stream<S> {
        Stream { socket, received: Vec::new() }
    }
}

impl<S: Read + Write> Read for Stream<S> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        while self.received.is_empty() {
            match self.socket.read().map_err(std::io::Error::other)? {
                Message::Binary(bytes) => self.received = bytes.to_vec(),
                Message::Close(_) => return Ok(0),
                Message::Pong(_) => {}
                other => panic!("{other:?}"),
            }
        }
        let n = buffer.len().min(self.received.len());
        buffer[..n].copy_from_slice(&self.received[..n]);
        self.received.drain(..n);
        Ok(n)
    }
}

impl<S: Read + Write> Write for Stream<S> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.socket.send(Message::Binary(Bytes::copy_from_slice(bytes))).map_err(std::io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.socket.flush().map_err(std::io::Error::other)
    }
}

#[test]
fn packets_of_every_size_cross_a_websocket() {
    let broker = kit::start(vec![listener()]);
    let address = broker.addresses()[0];
    let socket = upgrade(kit::dial(address), address, "/mqtt", None).expect("an upgrade");
    kit::exchange(&mut Stream::new(socket), 1_000_000);
}

#[test]
fn packets_of_every_size_cross_a_websocket_over_tls() {
    let pki = Pki::new();
    let broker = kit::start(vec![Listener { tls: Some(pki.tls()), ..listener() }]);
    let address = broker.addresses()[0];
    let stream = kit::tls_client(pki.client_config(None), "localhost", kit::dial(address));
    let socket = upgrade(stream, address, "/mqtt", None).expect("an upgrade");
    kit::exchange(&mut Stream::new(socket), 1_000_000);
}

#[test]
fn a_websocket_over_tls_admits_what_browsers_offer_and_refuses_other_protocols() {
    let pki = Pki::new();
    let broker = kit::start(vec![Listener { tls: Some(pki.tls()), ..listener() }]);
    let address = broker.addresses()[0];
    for (offered, accepted) in [(&["http/1.1"][..], true), (&["h2", "http/1.1"], true), (&["mqtt"], false)] {
        let mut config = pki.client_config(None);
        config.alpn_protocols = offered.iter().map(|name| name.as_bytes().to_vec()).collect();
        let stream = kit::tls_client(config, "localhost", kit::dial(address));
        match upgrade(stream, address, "/mqtt", None) {
            Ok(socket) => {
                assert!(accepted, "{offered:?}");
                kit::connect(&mut Stream::new(socket));
            }
            Err(error) => assert!(!accepted, "{offered:?}: {error}"),
        }
    }
}

#[test]
fn a_client_that_is_revoked_between_its_tls_handshake_and_its_upgrade_is_refused() {
    let pki = Pki::new();
    pki.revoke("ca.crl", &[99]);
    let tls = homing::config::ListenerTls {
        alpn: Some(Vec::new()),
        crl: Some(vec![pki.text_path("ca.crl")]),
        ..pki.mutual_tls()
    };
    let broker = kit::start(vec![Listener { tls: Some(tls), ..listener() }]);
    let address = broker.addresses()[0];
    let shaken = |serial: u64| {
        let config = pki.client_config(Some(&pki.client_of_serial(serial)));
        let mut stream = kit::tls_client(config, "localhost", kit::dial(address));
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock).expect("a handshake");
        }
        // The ticket comes when the broker has ended the handshake, too.
        stream.conn.complete_io(&mut stream.sock).expect("a ticket");
        stream
    };
    let (revoked, sound) = (shaken(7), shaken(8));
    pki.revoke("ca.crl", &[7, 99]);
    broker.reload().expect("sound files");
    kit::exchange(&mut Stream::new(upgrade(sound, address, "/mqtt", None).expect("an upgrade")), 10);
    // The answer to the upgrade comes before the shard checks the client.
    if let Ok(socket) = upgrade(revoked, address, "/mqtt", None) {
        let mut stream = Stream::new(socket);
        let _ = stream.write_all(CONNECT);
        assert!(stream.read_exact(&mut [0; 4]).is_err(), "its certificate is revoked");
    }
}

#[test]
fn a_packet_may_be_split_over_frames_and_frames_may_hold_several() {
    let broker = kit::start(vec![listener()]);
    let address = broker.addresses()[0];
    let socket = upgrade(kit::dial(address), address, "/mqtt", None).expect("an upgrade");
    let mut stream = Stream::new(socket);
    for byte in CONNECT {
        stream.write_all(&[*byte]).expect("open");
    }
    assert_eq!(kit::read(&mut stream, 4), CONNACK);
    let pings = [0xC0, 0, 0xC0, 0, 0xC0, 0];
    stream.write_all(&pings).expect("open");
    assert_eq!(kit::read(&mut stream, 6), [0xD0, 0, 0xD0, 0, 0xD0, 0]);
    stream.socket.send(Message::Ping(Bytes::from_static(b"anybody?"))).expect("open");
    match stream.socket.read().expect("open") {
        Message::Pong(payload) => assert_eq!(&*payload, b"anybody?"),
        other => panic!("{other:?}"),
    }
}

/// A client sends publications, DISCONNECT and a close frame at once. All of them count, also those
/// for which it has to wait.
fn ends_in_order(configure: impl FnOnce(&mut homing::config::Config), publications: usize, payload: usize) {
    let broker = kit::start_with(vec![listener(), kit::listener()], |config| {
        // With two threads the marker below could overtake what came from the other thread.
        config.runtime.threads = 1;
        configure(config);
    });
    let (address, plain) = (broker.addresses()[0], broker.addresses()[1]);
    let mut watcher = kit::dial(plain);
    kit::connect(&mut watcher);
    // SUBSCRIBE with identifier 1 to "t/#", QoS 0.
    watcher.write_all(b"\x82\x08\0\x01\0\x03t/#\0").expect("open");
    assert_eq!(kit::read(&mut watcher, 5), b"\x90\x03\0\x01\0");

    let mut client = Stream::new(upgrade(kit::dial(address), address, "/mqtt", None).expect("an upgrade"));
    let connect = Connect::new(V311, "w").keep_alive(0).will(Will::new("t/w", "gone"));
    client.write_all(&connect.encode()).expect("open");
    assert_eq!(kit::read(&mut client, 4), CONNACK);
    for id in 1..=publications {
        let body = [&b"\0\x03t/q"[..], &u16::try_from(id).expect("few").to_be_bytes(), &vec![b'x'; payload]];
        client.write_all(&packet(0x32, &body.concat())).expect("open");
    }
    client.write_all(&[0xE0, 0]).expect("open");
    client.socket.close(None).expect("open");
    // The broker replies when it has handled all that came before.
    client.read_to_end(&mut Vec::new()).expect("a close frame");

    let marker = b"\x30\x08\0\x03t/mend";
    watcher.write_all(marker).expect("open");
    for number in 1..=publications {
        let (first, body) = kit::packet(&mut watcher);
        assert_eq!((first, &body[..5]), (0x30, &b"\0\x03t/q"[..]), "publication {number}");
    }
    assert_eq!(kit::packet(&mut watcher), (0x30, marker[2..].to_vec()), "no will");
}

/// The socket moves to the thread of the session with all that the client sent, and takes bytes only
/// after the reactor of that thread has seen it.
#[test]
fn connack_and_the_reply_to_a_close_frame_come_whatever_thread_the_session_lives_on() {
    let broker = kit::start_with(vec![listener()], |config| config.runtime.threads = 3);
    let address = broker.addresses()[0];
    for n in 0..20 {
        let mut socket = upgrade(kit::dial(address), address, "/mqtt", None).expect("an upgrade");
        let connect = Connect::new(V311, &format!("c{n}")).encode();
        // Both frames leave with one write.
        socket.write(Message::Binary(Bytes::from(connect))).expect("room in the buffer");
        socket.close(None).expect("open");
        match socket.read().expect("a CONNACK") {
            Message::Binary(bytes) => assert_eq!(&bytes[..], CONNACK, "{n}"),
            other => panic!("{n}: {other:?}"),
        }
        assert!(matches!(socket.read(), Ok(Message::Close(_))), "{n}");
    }
}

#[test]
fn everything_before_a_close_frame_is_handled() {
    ends_in_order(|_| {}, 3_000, 10);
}

#[test]
fn large_publications_before_a_close_frame_are_handled() {
    ends_in_order(|_| {}, 12, 200_000);
}

#[test]
fn publications_above_the_rate_before_a_close_frame_are_handled() {
    ends_in_order(|config| config.limits.messages_per_second = 100, 150, 10);
}

#[test]
fn a_text_frame_closes_the_connection_with_its_code() {
    let broker = kit::start(vec![listener()]);
    let address = broker.addresses()[0];
    let mut socket = upgrade(kit::dial(address), address, "/mqtt", None).expect("an upgrade");
    socket.send(Message::text("no MQTT")).expect("open");
    match socket.read().expect("a close frame") {
        Message::Close(Some(frame)) => assert_eq!(u16::from(frame.code), 1003),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_wrong_path_and_a_foreign_page_are_refused() {
    let broker = kit::start(vec![listener()]);
    let address = broker.addresses()[0];
    for (path, origin, status) in [
        ("/other", None, Some("404")),
        ("/mqtt", Some("https://evil.example"), Some("403")),
        ("/mqtt", Some("http://localhost:3000"), None),
    ] {
        let result = upgrade(kit::dial(address), address, path, origin);
        match status {
            Some(status) => assert!(result.is_err_and(|error| error.contains(status)), "{path} {origin:?}"),
            None => drop(result.expect("an upgrade")),
        }
    }
}

#[test]
fn a_client_whose_proxy_does_not_name_it_is_not_taken_for_one_of_this_machine() {
    let trusted_proxies = Some(vec!["127.0.0.1".into()]);
    // Anonymous clients may enter from loopback alone.
    let broker = kit::start(vec![Listener { trusted_proxies, ..listener() }]);
    let address = broker.addresses()[0];
    for (hops, code) in [("127.0.0.1", 0), ("192.0.2.7", 5), ("unknown", 5), ("192.0.2.7, unix:", 5)] {
        let headers = [("X-Forwarded-For", hops)];
        let socket = upgrade_with(kit::dial(address), address, "/mqtt", &headers).expect("an upgrade");
        let mut stream = Stream::new(socket);
        stream.write_all(CONNECT).expect("open");
        assert_eq!(kit::read(&mut stream, 4), [0x20, 2, 0, code], "{hops}");
    }
}

#[test]
fn a_client_behind_a_proxy_of_this_machine_is_not_taken_for_one_of_it() {
    // Anonymous clients may enter from loopback alone, and no proxy is trusted.
    let broker = kit::start(vec![listener()]);
    let address = broker.addresses()[0];
    for (header, code) in [("X-Forwarded-For", 5), ("Forwarded", 5), ("x-real-ip", 5), ("Via", 0)] {
        let socket = upgrade_with(kit::dial(address), address, "/mqtt", &[(header, "127.0.0.1")]);
        let mut stream = Stream::new(socket.expect("an upgrade"));
        stream.write_all(CONNECT).expect("open");
        assert_eq!(kit::read(&mut stream, 4), [0x20, 2, 0, code], "{header}");
    }
}

#[test]
fn a_client_that_a_proxy_header_names_cannot_name_another_address() {
    let proxied = Listener {
        proxy_protocol: Some(ProxyProtocol::V1),
        trusted_proxies: Some(vec!["127.0.0.1".into()]),
        ..listener()
    };
    // Anonymous clients may enter from loopback alone.
    let broker = kit::start(vec![proxied]);
    let address = broker.addresses()[0];
    let proxy = "PROXY TCP4 127.0.0.1 127.0.0.1 4567 1883\r\n";
    let client = "PROXY TCP4 192.0.2.1 192.0.2.2 4567 1883\r\n";
    for (header, code) in [(client, 5), ("PROXY UNKNOWN\r\n", 5), (proxy, 0)] {
        let mut socket = kit::dial(address);
        socket.write_all(header.as_bytes()).expect("open");
        let socket = upgrade_with(socket, address, "/mqtt", &[("X-Forwarded-For", "127.0.0.1")]);
        let mut stream = Stream::new(socket.expect("an upgrade"));
        stream.write_all(CONNECT).expect("open");
        assert_eq!(kit::read(&mut stream, 4), [0x20, 2, 0, code], "{header}");
    }
}

#[test]
fn mqtt_on_a_websocket_port_closes_the_connection() {
    let broker = kit::start(vec![listener()]);
    let mut socket: TcpStream = kit::dial(broker.addresses()[0]);
    socket.write_all(CONNECT).expect("open");
    assert!(kit::is_closed(&mut socket));
}
