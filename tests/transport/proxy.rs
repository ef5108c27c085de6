//! Listeners behind a proxy that sends a PROXY header.

use crate::kit::{self, CONNECT, Pki};
use crate::support::{Connect, V5, password_file};
use homing::broker::Broker;
use homing::config::{Anonymous, Listener, ProxyProtocol};
use homing::named_enum::Named;
use std::io::Write;

const V1: &[u8] = b"PROXY TCP4 192.0.2.1 192.0.2.2 4567 1883\r\n";

/// Version 2, command PROXY, TCP over IPv4, 12 bytes: the same addresses.
const V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c\xc0\x00\x02\x01\xc0\x00\x02\x02\x11\xd7\x07\x5b";

fn listener(versions: &str) -> Listener {
    Listener {
        proxy_protocol: Some(ProxyProtocol::of_name(versions).expect("a choice of proxy_protocol")),
        ..kit::listener()
    }
}

/// Starts a broker that anonymous clients from any address may enter.
fn start(listener: Listener) -> Broker {
    kit::start_with(vec![listener], |config| config.auth.anonymous = Anonymous::Always)
}

#[test]
fn the_address_in_the_header_counts_and_not_that_of_the_proxy() {
    // Anonymous clients may enter from loopback alone.
    let broker = kit::start(vec![listener("v1")]);
    for (header, code) in [(V1, 5), (b"PROXY TCP4 127.0.0.1 127.0.0.1 4567 1883\r\n".as_slice(), 0)] {
        let mut socket = kit::dial(broker.addresses()[0]);
        socket.write_all(&[header, CONNECT].concat()).expect("open");
        assert_eq!(kit::read(&mut socket, 4), [0x20, 2, 0, code]);
    }
}

#[test]
fn a_header_of_an_accepted_version_comes_before_mqtt() {
    for (versions, header, accepted) in [
        ("v1", V1, true),
        ("v2", V2, true),
        ("any", V1, true),
        ("any", V2, true),
        ("v1", V2, false),
        ("v2", V1, false),
    ] {
        let broker = start(listener(versions));
        let mut socket = kit::dial(broker.addresses()[0]);
        if accepted {
            // Header and CONNECT may come in one segment.
            socket.write_all(&[header, CONNECT].concat()).expect("open");
            assert_eq!(kit::read(&mut socket, 4), kit::CONNACK, "{versions}");
        } else {
            socket.write_all(header).expect("open");
            assert!(kit::is_closed(&mut socket), "{versions}");
        }
    }
}

#[test]
fn a_connection_without_a_header_is_closed() {
    let broker = kit::start(vec![listener("any")]);
    let mut socket = kit::dial(broker.addresses()[0]);
    socket.write_all(CONNECT).expect("open");
    assert!(kit::is_closed(&mut socket));
}

#[test]
fn a_header_of_an_untrusted_peer_is_not_read() {
    let listener = Listener { trusted_proxies: Some(vec!["192.0.2.0/24".into()]), ..listener("v2") };
    let broker = kit::start(vec![listener]);
    let mut socket = kit::dial(broker.addresses()[0]);
    // The broker may close before everything is written.
    let _ = socket.write_all(&[V2, CONNECT].concat());
    assert!(kit::is_closed(&mut socket));
}

#[test]
fn tls_follows_the_header() {
    let pki = Pki::new();
    let broker = start(Listener { tls: Some(pki.tls()), ..listener("v2") });
    let mut socket = kit::dial(broker.addresses()[0]);
    socket.write_all(V2).expect("open");
    let mut stream = kit::tls_client(pki.client_config(None), "localhost", socket);
    kit::exchange(&mut stream, 100_000);
}

#[test]
fn ten_of_a_thousand_guesses_of_an_address_are_tried_and_others_are_not_blocked() {
    let pki = Pki::new();
    pki.write("passwd", &password_file(&[("ann", "right")]));
    let broker = kit::start_with(vec![listener("v1")], |config| {
        config.auth.password_file = pki.text_path("passwd");
    });
    let login = |from: &str, password: &str| {
        let header = format!("PROXY TCP4 {from} 192.0.2.2 4567 1883\r\n").into_bytes();
        let connect = Connect::new(V5, "c").user_name("ann").password(password.as_bytes()).encode();
        let mut socket = kit::dial(broker.addresses()[0]);
        socket.write_all(&[header, connect].concat()).expect("open");
        kit::read(&mut socket, 4)[3]
    };
    let codes: Vec<u8> = (0..1_000).map(|guess| login("192.0.2.1", &guess.to_string())).collect();
    assert_eq!(codes[..10], [0x87; 10]);
    assert!(codes[10..].iter().all(|code| *code == 0x8A), "{codes:x?}");
    assert_eq!(login("192.0.2.1", "right"), 0x8A, "a right password does not show itself");
    assert_eq!(login("192.0.2.3", "right"), 0);
}
