//! The traces of connections that are refused before CONNECT: the counts and the log lines.

use crate::kit::{self, Pki};
use crate::support::process::Process;
use crate::support::{password_file, until};
use homing::broker::handshake_counts::HandshakeEnd;
use homing::config::{Listener, ListenerProtocol, ProxyProtocol};
use rustix::process::Signal;
use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

const HEADER: &[u8] = b"PROXY TCP4 192.0.2.1 192.0.2.2 4567 1883\r\n";

/// Starts the program with one TLS listener on loopback. `listener` has further keys of it, and
/// `arguments` further settings.
fn serve(pki: &Pki, listener: &str, arguments: &[&str]) -> (Process, SocketAddr) {
    let [certificate, key] = ["server.pem", "server.key"].map(|name| pki.text_path(name));
    let text = format!(
        "[[listeners]]\nname = \"door\"\naddress = \"127.0.0.1:0\"\n{listener}\n[listeners.tls]\n\
         certificates = [{{ certificate = \"{certificate}\", key = \"{key}\" }}]\n"
    );
    fs::write(pki.path("homing.toml"), text).expect("a writable folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
    command.args(["serve", "--ephemeral", "--config", &pki.text_path("homing.toml")]);
    command.env("HOMING_ADMIN__ADDRESSES", "off");
    Process::serve(command.args(arguments))
}

#[test]
fn lines_about_a_client_of_a_proxy_have_the_address_of_the_client() {
    let pki = Pki::new();
    let (mut homing, address) =
        serve(&pki, "proxy_protocol = \"v1\"", &["--set", "network.connect_timeout=500ms"]);
    let mut wrong = kit::dial(address);
    wrong.write_all(&[HEADER, b"no TLS"].concat()).expect("open");
    let line = homing.line("event=handshake.refused").expect("it runs");
    assert!(line.contains("address=192.0.2.1:4567") && line.contains("listener=door"), "{line}");
    let mut silent = kit::dial(address);
    silent.write_all(HEADER).expect("open");
    let line = homing.line("event=handshake.late").expect("it runs");
    assert!(line.contains("address=192.0.2.1:4567") && line.contains("stage=TLS"), "{line}");
    // Of a client that has sent no header, the address of the proxy is all that is known.
    let silent = kit::dial(address);
    let line = homing.line("event=handshake.late").expect("it runs");
    let proxy = format!("address={}", silent.local_addr().expect("an address"));
    assert!(line.contains(&proxy) && line.contains("stage=\"PROXY header\""), "{line}");
}

#[test]
fn a_socket_that_makes_room_for_others_has_a_line() {
    let pki = Pki::new();
    let (mut homing, address) = serve(&pki, "", &["--set", "limits.handshakes=10"]);
    let sockets: Vec<TcpStream> = (0..12).map(|_| kit::dial(address)).collect();
    let line = homing.line("event=handshake.evicted").expect("it runs");
    let first = format!("address={}", sockets[0].local_addr().expect("an address"));
    assert!(line.contains(&first) && line.contains("stage="), "{line}");
}

#[test]
fn a_start_warns_of_passwords_that_cross_the_network_in_the_clear() {
    let pki = Pki::new();
    pki.write("passwd", &password_file(&[("ann", "secret")]));
    let password_file = format!("auth.password_file={}", pki.text_path("passwd"));
    for (listen, warns) in [("0.0.0.0:0", true), ("127.0.0.1:0", false)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
        command.args(["serve", "--ephemeral", "--listen", listen, "--set", &password_file]);
        command.env("HOMING_ADMIN__ADDRESSES", "off");
        let mut homing = Process::spawn(&mut command);
        homing.line("stop it").expect("it starts");
        homing.signal(Signal::TERM);
        let (_, lines) = homing.end();
        let has_warned = lines.iter().any(|line| line.contains("event=listener.unencrypted"));
        assert_eq!(has_warned, warns, "{listen}: {lines:#?}");
    }
}

#[test]
fn refusals_are_counted_by_their_cause() {
    let pki = Pki::new();
    let plain = Listener { proxy_protocol: Some(ProxyProtocol::V1), ..kit::listener() };
    let closed = Listener { trusted_proxies: Some(vec!["192.0.2.0/24".into()]), ..plain.clone() };
    let tls = Listener { tls: Some(pki.mutual_tls()), ..kit::listener() };
    let websocket = Listener { protocol: Some(ListenerProtocol::WebSocket), ..kit::listener() };
    let broker = kit::start_with(vec![plain, closed, tls, websocket], |config| {
        config.network.connect_timeout = Duration::from_millis(500);
    });
    let observer = broker.observer();
    for (listener, bytes, end) in [
        (0, b"\x10\x0d".as_slice(), HandshakeEnd::ProxyHeader),
        (1, b"".as_slice(), HandshakeEnd::UntrustedProxy),
        (2, b"\x10\x0d".as_slice(), HandshakeEnd::WrongProtocol),
        // A ClientHello without content.
        (2, b"\x16\x03\x01\x00\x04\x01\x00\x00\x00".as_slice(), HandshakeEnd::Tls),
        (3, b"\x10\x0d".as_slice(), HandshakeEnd::WrongProtocol),
        (3, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".as_slice(), HandshakeEnd::Upgrade),
        (3, b"GET".as_slice(), HandshakeEnd::Timeout),
    ] {
        let counts = observer.statistics().handshakes_refused();
        let before = counts.of(end);
        let mut socket = kit::dial(broker.addresses()[listener]);
        // The broker may close before everything is written.
        let _ = socket.write_all(bytes);
        until(end.name(), || (counts.of(end) == before + 1).then_some(()));
    }
    let mut bare = kit::tls_client(pki.client_config(None), "localhost", kit::dial(broker.addresses()[2]));
    let _ = bare.write_all(kit::CONNECT);
    let counts = observer.statistics().handshakes_refused();
    until("a certificate", || (counts.of(HandshakeEnd::Certificate) == 1).then_some(()));
    assert_eq!(counts.total(), 8);
}
