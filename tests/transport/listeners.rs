//! Several listeners with limits of their own.

use crate::kit::{self, Pki};
use homing::access::strikes::StrikeRule;
use homing::clock;
use homing::config::{Listener, Sources};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

#[test]
fn each_listener_has_its_own_limit_of_connections() {
    let pki = Pki::new();
    let one = Listener { connections: Some(1), ..kit::listener() };
    let secure = Listener { connections: Some(1), tls: Some(pki.tls()), ..kit::listener() };
    let broker = kit::start(vec![one, secure]);
    let [plain, secure] = broker.addresses() else { panic!("two listeners") };
    let mut first = kit::dial(*plain);
    kit::connect(&mut first);
    assert!(kit::is_closed(&mut kit::dial(*plain)), "the place is taken");
    let mut other = kit::tls_client(pki.client_config(None), "localhost", kit::dial(*secure));
    kit::exchange(&mut other, 10);
    assert!(kit::is_closed(&mut kit::dial(*secure)), "the place is taken");
    drop(other);
    // The place is free once the broker has seen the close.
    let is_free = || {
        let mut socket = kit::dial(*secure);
        socket.set_read_timeout(Some(std::time::Duration::from_millis(200))).expect("a socket");
        // A listener with room waits for the ClientHello.
        matches!(std::io::Read::read(&mut socket, &mut [0; 8]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
    };
    assert!((0..50).any(|_| is_free()));
}

/// `limits.handshakes` does not count plain sockets. `limits.connections` bounds them, and
/// `network.connect_timeout` ends them.
#[test]
fn silent_plain_sockets_are_bounded_and_end_after_the_connect_timeout() {
    const MOST: u32 = 64;
    let broker = kit::start_with(vec![kit::listener()], |config| {
        config.limits.connections = MOST;
        config.network.connect_timeout = Duration::from_secs(3);
    });
    let address = broker.addresses()[0];
    let began = clock::now();
    let mut silent: Vec<_> = (0..MOST).map(|_| kit::dial(address)).collect();
    for socket in silent.iter_mut().step_by(2) {
        socket.write_all(&[0x10]).expect("open");
    }
    assert!(kit::is_closed(&mut kit::dial(address)), "all places are taken");
    assert!(silent.iter_mut().all(kit::is_closed), "no place is taken for long");
    assert!(clock::now().since(began) < kit::PATIENCE);
    // Otherwise their places are free two seconds later: the broker waits for their close.
    drop(silent);
    let mut tries = std::iter::repeat_with(|| enters(&mut kit::dial(address)));
    assert!(tries.by_ref().take(10_000).any(|enters| enters));
}

/// Returns what is wrong with a file.
fn refused(text: &str) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("homing.toml");
    std::fs::write(&path, text).expect("a writable folder");
    match Sources::new().file(path).load() {
        Ok(_) => Vec::new(),
        Err(refusal) => refusal.0.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn every_problem_is_reported_with_the_number_of_its_listener() {
    let problems = refused(
        r#"
[[listeners]]
address = "127.0.0.1:1883"
mode = "0660"
[[listeners]]
adress = "127.0.0.1:1884"
[[listeners]]
address = "127.0.0.1:1883"
proxy_tls = true
proxy_protocol = "v1"
[[listeners]]
address = "0.0.0.0:8883"
proxy_protocol = "v2"
[listeners.tls]
client_ca = "ca.pem"
certificates = [{ certificate = "server.pem" }]
"#,
    );
    for (listener, what) in [
        (1, "mode = \"0660\" is not allowed; must be beside an address unix:/path"),
        (2, "unknown key"),
        (2, "a listener with an address"),
        (3, "another address than that of listener 1"),
        (3, "version 1 says nothing of TLS"),
        (4, "trusted_proxies"),
        (4, "client_certificates"),
        (4, "both a certificate and its key"),
    ] {
        let number = format!("listener {listener}");
        assert!(
            problems.iter().any(|line| line.contains(&number) && line.contains(what)),
            "{what}: {problems:#?}"
        );
    }
    assert_eq!(problems.len(), 8, "{problems:#?}");
}

#[test]
fn the_default_address_holds_only_without_listeners() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("homing.toml");
    std::fs::write(&path, "[[listeners]]\naddress = \"127.0.0.1:8883\"\n").expect("a writable folder");
    let addresses = |sources: Sources| {
        let listeners = sources.load().expect("a right file").config.all_listeners();
        listeners
            .iter()
            .filter_map(|listener| listener.address.as_ref().map(ToString::to_string))
            .collect::<Vec<_>>()
    };
    assert_eq!(addresses(Sources::new()), ["127.0.0.1:1883"]);
    assert_eq!(addresses(Sources::new().file(&path)), ["127.0.0.1:8883"]);
    let both = Sources::new().file(&path).assignment("network.listen=127.0.0.1:1");
    assert_eq!(addresses(both), ["127.0.0.1:1", "127.0.0.1:8883"]);
}

#[test]
fn another_protocol_on_a_plain_port_closes_the_connection() {
    let broker = kit::start(vec![kit::listener()]);
    for bytes in
        [b"\x16\x03\x01\x02\x00\x01\x00".as_slice(), b"GET / HTTP/1.1\r\n\r\n", b"PROXY TCP4 1 2 3 4\r\n"]
    {
        let mut socket = kit::dial(broker.addresses()[0]);
        socket.write_all(bytes).expect("open");
        assert!(kit::is_closed(&mut socket));
    }
}

/// Sends CONNECT. Returns true if the broker accepts it, and false if it closes the connection.
fn enters(socket: &mut TcpStream) -> bool {
    let mut connack = [0; 4];
    socket.write_all(b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01c").is_ok()
        && socket.read_exact(&mut connack).is_ok()
        && connack == kit::CONNACK
}

#[test]
fn connects_beyond_the_limit_of_an_address_are_closed_at_every_listener() {
    let broker = kit::start_with(vec![kit::listener(), kit::listener()], |config| {
        config.limits.connects_per_address =
            StrikeRule { limit: 5, window: Duration::from_hours(1), block: Duration::from_hours(1) };
    });
    let accepted: Vec<bool> = (0..8).map(|n| enters(&mut kit::dial(broker.addresses()[n % 2]))).collect();
    let first = accepted.iter().take_while(|enters| **enters).count();
    assert!((4..=5).contains(&first) && !accepted[first..].contains(&true), "{accepted:?}");
}

#[test]
fn connects_beyond_the_rate_of_a_listener_wait_and_are_all_accepted() {
    let slow = Listener { connects_per_second: Some(20), ..kit::listener() };
    let broker = kit::start(vec![slow, kit::listener()]);
    let begin = clock::now();
    let mut sockets: Vec<_> = (0..20).map(|_| kit::dial(broker.addresses()[0])).collect();
    assert!(enters(&mut kit::dial(broker.addresses()[1])), "the other listener has no rate");
    assert!(sockets.iter_mut().all(enters));
    // A tenth of a second may come at once.
    let took = clock::now().since(begin);
    assert!(took >= Duration::from_millis(700), "{took:?}");
}
