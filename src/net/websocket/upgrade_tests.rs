//! Upgrade requests: of browsers, of tungstenite, and of attackers.

use std::io::{self, Read, Write};

use proptest::prelude::*;
use tungstenite::client::IntoClientRequest as _;

use super::*;

fn rules() -> UpgradeRules {
    UpgradeRules { path: "/mqtt".to_owned(), origins: Origins::Any, is_loopback: false, has_tls: false }
}

/// The request of RFC 6455 1.3 with MQTT's subprotocol; each change replaces text in it.
fn request(changes: &[(&str, &str)]) -> String {
    let mut text = "GET /mqtt HTTP/1.1\r\nHost: server.example.com\r\nUpgrade: websocket\r\n\
        Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
        Sec-WebSocket-Protocol: mqtt\r\nSec-WebSocket-Version: 13\r\n\r\n"
        .to_owned();
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replacen(from, to, 1);
    }
    text
}

fn reply(request: &str, rules: &UpgradeRules) -> (Result<Option<Upgraded>, UpgradeError>, String) {
    let mut out = Vec::new();
    let result = upgrade(request.as_bytes(), rules, None, &mut out);
    (result, String::from_utf8(out).unwrap())
}

fn status(changes: &[(&str, &str)], rules: &UpgradeRules) -> u16 {
    match reply(&request(changes), rules).0 {
        Ok(Some(_)) => 101,
        Ok(None) => 0,
        Err(error) => error.status().unwrap(),
    }
}

#[test]
fn the_request_of_the_standard_is_accepted() {
    let text = request(&[]);
    let (result, reply) = reply(&format!("{text}\x02frames"), &rules());
    let expected =
        Upgraded { used: text.len(), subprotocol: Subprotocol::Mqtt, client: ForwardedClient::Peer };
    assert_eq!(result, Ok(Some(expected)));
    assert_eq!(
        reply,
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
    );
}

#[test]
fn a_request_in_pieces_waits_for_its_end() {
    let text = request(&[]);
    for end in 0..text.len() {
        assert_eq!(reply(&text[..end], &rules()), (Ok(None), String::new()));
    }
}

#[test]
fn each_fault_has_its_status() {
    let cases: [(&str, &str, u16); 24] = [
        ("GET", "POST", 405),
        ("GET", "get", 0),
        ("HTTP/1.1", "HTTP/1.0", 400),
        ("HTTP/1.1", "HTTP/2.0", 400),
        ("/mqtt ", "/mqtt?token=x ", 101),
        ("/mqtt ", "/ ", 404),
        ("/mqtt ", "/mqtt/ ", 404),
        ("/mqtt ", "http://server.example.com/mqtt ", 404),
        ("Upgrade: websocket", "Upgrade: WebSocket, h2c", 101),
        ("Upgrade: websocket", "Upgrade: h2c", 426),
        ("Upgrade: websocket\r\n", "", 426),
        ("Connection: Upgrade", "Connection: keep-alive, upgrade", 101),
        ("Connection: Upgrade", "Connection: keep-alive", 426),
        ("Version: 13", "Version: 8", 426),
        ("Version: 13", "Version: 13\r\nSec-WebSocket-Version: 13", 400),
        ("dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZQ==", 400),
        ("Sec-WebSocket-Key", "X-Key", 400),
        ("Protocol: mqtt", "Protocol: chat, mqttv3.1, mqtt", 101),
        ("Protocol: mqtt", "Protocol: chat\r\nSec-WebSocket-Protocol: mqtt", 101),
        ("Protocol: mqtt", "Protocol: MQTT", 400),
        ("Sec-WebSocket-Protocol: mqtt\r\n", "", 400),
        ("Host: server.example.com\r\n", "", 400),
        ("Host: server.example.com", "Host: a\r\nHost: b", 400),
        ("Host:", "Content-Length: 4\r\nHost:", 400),
    ];
    for (from, to, expected) in cases {
        if expected == 0 {
            let looks = UpgradeError::NotHttp(FirstBytes::Other);
            assert_eq!(reply(&request(&[(from, to)]), &rules()), (Err(looks), String::new()));
        } else {
            assert_eq!(status(&[(from, to)], &rules()), expected, "{from} -> {to}");
        }
    }
    let any = UpgradeRules { path: "*".to_owned(), ..rules() };
    assert_eq!(status(&[("/mqtt ", "/else ")], &any), 101);
    let first = reply(&request(&[("Protocol: mqtt", "Protocol: chat, mqttv3.1, mqtt")]), &rules()).0;
    assert_eq!(first.unwrap().unwrap().subprotocol, Subprotocol::MqttV31);
}

#[test]
fn a_refusal_has_one_line_of_text_and_what_would_be_right() {
    let (_, text) = reply(&request(&[("Version: 13", "Version: 8")]), &rules());
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(
        head.starts_with(
            "HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        )
    );
    assert!(head.contains(&format!("Content-Length: {}", body.len())) && head.contains("Connection: close"));
    assert_eq!(body, "426: Sec-WebSocket-Version is not 13\n");
    assert!(reply(&request(&[("GET", "PUT")]), &rules()).1.contains("\r\nAllow: GET\r\n"));
    // Nothing of the request comes back.
    assert!(!reply(&request(&[("/mqtt", "/<script>")]), &rules()).1.contains("script"));
}

#[test]
fn long_requests_are_refused_before_their_end() {
    let large = |extra: usize| request(&[("Host:", &format!("X: {}\r\nHost:", "x".repeat(extra)))]);
    let fits = REQUEST_MAX - large(0).len();
    assert!(reply(&large(fits), &rules()).0.is_ok());
    assert_eq!(reply(&large(fits + 1), &rules()).0, Err(UpgradeError::TooLarge));
    let endless = "GET /".to_owned() + &"x".repeat(9 * 1024);
    assert!(reply(&endless, &rules()).1.starts_with("HTTP/1.1 431 "));
    let headers = |extra: usize| request(&[("Host:", &("X: y\r\n".repeat(extra) + "Host:"))]);
    assert!(reply(&headers(HEADERS_MAX - 6), &rules()).0.is_ok());
    assert_eq!(reply(&headers(HEADERS_MAX - 5), &rules()).0, Err(UpgradeError::TooLarge));
}

#[test]
fn a_loopback_listener_wants_a_loopback_host() {
    let rules = UpgradeRules { is_loopback: true, ..rules() };
    for (host, expected) in [
        ("localhost", 101),
        ("LOCALHOST:8080", 101),
        ("app.localhost.", 101),
        ("127.0.0.1:9001", 101),
        ("127.1.2.3", 101),
        ("[::1]:9001", 101),
        ("[::ffff:127.0.0.1]", 101),
        ("evil.example", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("192.168.0.1", 403),
        ("[::2]", 403),
        ("", 403),
    ] {
        assert_eq!(status(&[("server.example.com", host)], &rules), expected, "{host}");
    }
}

#[test]
fn the_origin_decides_which_pages_may_connect() {
    let with = |origin: &str, host: &str, origins: &Origins| {
        let rules = UpgradeRules { origins: origins.clone(), ..rules() };
        status(&[("server.example.com", &format!("{host}\r\nOrigin: {origin}"))], &rules)
    };
    let listed =
        Origins::Listed(vec!["https://app.example.com".to_owned(), "http://localhost:3000/".to_owned()]);
    for (origin, host, same_host, list) in [
        ("http://localhost:3000", "localhost:9001", 101, 101),
        ("http://localhost", "127.0.0.1:9001", 403, 403),
        ("https://app.example.com", "broker.example.com", 403, 101),
        ("https://APP.example.com", "app.example.com:443", 101, 101),
        ("http://app.example.com", "x", 403, 403),
        ("http://rebound.example", "rebound.example:9001", 403, 403),
        ("http://192.0.2.7", "192.0.2.7:9001", 101, 403),
        ("http://plc-7", "plc-7:9001", 101, 403),
        ("http://plc-7.local", "PLC-7.local:9001", 101, 403),
        ("https://evil.example", "localhost:9001", 403, 403),
        ("http://[::1]:80", "[::1]:9001", 101, 403),
        ("null", "null", 403, 403),
        ("file://", "", 403, 403),
    ] {
        assert_eq!(with(origin, host, &Origins::Any), 101);
        assert_eq!(with(origin, host, &Origins::SameHost), same_host, "{origin} at {host}");
        assert_eq!(with(origin, host, &listed), list, "{origin} at {host}");
    }
    assert_eq!(status(&[], &UpgradeRules { origins: Origins::SameHost, ..rules() }), 101, "not a browser");
    assert_eq!(with("https://any.example", "x", &Origins::Listed(vec!["*".to_owned()])), 101);
    assert_eq!(with("https://a.example\r\nOrigin: https://b.example", "x", &Origins::Any), 400);
}

#[test]
fn the_last_untrusted_hop_is_the_client() {
    let trusted = TrustedProxies::new(vec!["10.0.0.0/8".parse().unwrap()]);
    let address = |text: &str| ForwardedClient::Address(text.parse().unwrap());
    for (header, expected) in [
        ("X-Forwarded-For: 192.0.2.7", Some("192.0.2.7")),
        ("X-Forwarded-For: 6.6.6.6, 192.0.2.7, 10.1.1.1", Some("192.0.2.7")),
        ("X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-For: 192.0.2.7,10.1.1.1", Some("192.0.2.7")),
        ("X-Forwarded-For: 10.2.2.2, 10.1.1.1", Some("10.2.2.2")),
        ("X-Forwarded-For: [2001:db8::7]:555", Some("2001:db8::7")),
        ("X-Forwarded-For: 2001:db8::7", Some("2001:db8::7")),
        ("X-Forwarded-For: 192.0.2.7:555", Some("192.0.2.7")),
        ("X-Other: 1", None),
    ] {
        let text = request(&[("Host:", &format!("{header}\r\nHost:"))]);
        assert_eq!(
            client(&text, Some(&trusted)),
            expected.map_or(ForwardedClient::Peer, address),
            "{header}"
        );
        let stranger = expected.map_or(ForwardedClient::Peer, |_| ForwardedClient::Unknown);
        assert_eq!(client(&text, None), stranger, "the peer is not a trusted proxy");
    }
}

#[test]
fn a_client_whose_proxy_does_not_name_it_is_unknown() {
    let trusted = TrustedProxies::new(vec!["10.0.0.0/8".parse().unwrap()]);
    for hops in ["unknown", "192.0.2.7, unknown", "unix:", "", "unknown, 10.1.1.1"] {
        let text = request(&[("Host:", &format!("X-Forwarded-For: {hops}\r\nHost:"))]);
        assert_eq!(client(&text, Some(&trusted)), ForwardedClient::Unknown, "{hops}");
        assert_eq!(client(&text, None), ForwardedClient::Unknown, "{hops}");
    }
}

/// Returns the client of a request that is accepted.
fn client(request: &str, trusted: Option<&TrustedProxies>) -> ForwardedClient {
    upgrade(request.as_bytes(), &rules(), trusted, &mut Vec::new()).unwrap().unwrap().client
}

/// A socket whose other end is this module.
#[derive(Default)]
struct Server {
    sent: Vec<u8>,
    reply: Vec<u8>,
}

impl Write for Server {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.sent.extend_from_slice(bytes);
        upgrade(&self.sent, &rules(), None, &mut self.reply).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Server {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let len = into.len().min(self.reply.len());
        into[..len].copy_from_slice(&self.reply[..len]);
        self.reply.drain(..len);
        Ok(len)
    }
}

#[test]
fn tungstenite_accepts_the_reply() {
    let mut request = "ws://broker.test/mqtt".into_client_request().unwrap();
    request.headers_mut().insert("Sec-WebSocket-Protocol", "mqtt".parse().unwrap());
    let (_, response) = tungstenite::client(request, Server::default()).unwrap();
    assert_eq!(response.headers()["Sec-WebSocket-Protocol"], "mqtt");
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_a_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        at in 0_usize..200,
    ) {
        let mut text = request(&[]).into_bytes();
        let at = at.min(text.len());
        let end = (at + bytes.len()).min(text.len());
        text.splice(at..end, bytes.iter().copied());
        let mut out = Vec::new();
        let _ = upgrade(&text, &rules(), None, &mut out);
        let _ = upgrade(&bytes, &rules(), None, &mut out);
    }
}

#[test]
fn a_peer_that_passes_a_request_on_is_not_the_client() {
    let trusted = TrustedProxies::new(vec!["192.0.2.0/24".parse().unwrap()]);
    let named = ForwardedClient::Address("198.51.100.7".parse().unwrap());
    for (header, by_stranger, by_trusted) in [
        ("X-Forwarded-For: 198.51.100.7", ForwardedClient::Unknown, named),
        ("x-real-ip: 198.51.100.7", ForwardedClient::Unknown, ForwardedClient::Unknown),
        ("Forwarded: for=198.51.100.7", ForwardedClient::Unknown, ForwardedClient::Unknown),
        ("Via: 1.1 somebody", ForwardedClient::Peer, ForwardedClient::Peer),
    ] {
        let text = request(&[("Upgrade:", &format!("{header}\r\nUpgrade:"))]);
        for (forwarding, expected) in [(None, by_stranger), (Some(&trusted), by_trusted)] {
            assert_eq!(client(&text, forwarding), expected, "{header}");
        }
    }
}

#[test]
fn a_certificate_proves_the_name_of_a_page_of_the_same_host() {
    let rules = UpgradeRules { origins: Origins::SameHost, has_tls: true, ..rules() };
    let host = "broker.example.com\r\nOrigin: http://broker.example.com";
    assert_eq!(status(&[("server.example.com", host)], &rules), 101);
}
