//! A connection that is refused before CONNACK has one line in the log, and so has a block.

use crate::handshakes::Listeners;
use crate::kit::{self, Pki};
use crate::support::{Connect, V5, password_file};
use crate::turn;
use rustix::process::Signal;
use std::io::{Read, Write};
use std::net::SocketAddr;

const HTTP: &[u8] = b"GET /elsewhere HTTP/1.1\r\nHost: localhost\r\n\r\n";
const TLS: &[u8] = b"\x16\x03\x01\0\x05hello";
const GUESSES: usize = 30;

/// Sends bytes of another protocol, and waits for the end. Returns the port of the client.
fn refused(address: SocketAddr, bytes: &[u8]) -> u16 {
    let mut socket = kit::dial(address);
    let _ = socket.write_all(bytes);
    let _ = socket.read_to_end(&mut Vec::new());
    socket.local_addr().expect("an address").port()
}

/// Guesses a password from an address that a proxy names. Returns the reason code.
fn guess(address: SocketAddr, number: usize) -> u8 {
    let connect = Connect::new(V5, "c").user_name("ann").password(number.to_string().as_bytes());
    let mut socket = kit::dial(address);
    let header = b"PROXY TCP4 192.0.2.1 192.0.2.2 4567 1883\r\n".as_slice();
    socket.write_all(&[header, &connect.encode()].concat()).expect("open");
    kit::read(&mut socket, 4)[3]
}

#[test]
fn a_refusal_before_connack_has_one_line_and_so_has_the_block_of_an_address() {
    let _turn = turn();
    let pki = Pki::new();
    pki.write("passwd", &password_file(&[("ann", "right")]));
    let passwords = format!("auth.password_file={}", pki.text_path("passwd"));
    let mut listeners = Listeners::serve(&pki, "info", &["--set", &passwords]);
    let [plain, tls, websocket, proxy] = listeners.addresses[..] else { panic!("four listeners") };
    let cases = [
        (plain, TLS),
        (plain, HTTP),
        (tls, kit::CONNECT),
        (tls, HTTP),
        (websocket, kit::CONNECT),
        (websocket, HTTP),
        (proxy, kit::CONNECT),
        (proxy, TLS),
    ];
    let ports = cases.map(|(address, bytes)| refused(address, bytes));
    let codes: Vec<u8> = (0..GUESSES).map(|number| guess(proxy, number)).collect();
    assert!(codes.ends_with(&[0x8A; GUESSES - 10]), "{codes:x?}");
    listeners.homing.signal(Signal::TERM);
    let (_, lines) = listeners.homing.process.end();
    let of = |words: &str| lines.iter().filter(|line| line.contains(words)).count();
    for (number, port) in ports.iter().enumerate() {
        assert_eq!(of(&format!("address=127.0.0.1:{port} ")), 1, "case {number}: {lines:#?}");
    }
    assert_eq!(of("event=auth.address_blocked"), 1, "{lines:#?}");
}
