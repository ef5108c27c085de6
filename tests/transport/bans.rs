//! Bans over real sockets, and their reload.

use crate::kit::{self, Pki};
use homing::config::Listener;
use std::io::{Read, Write};
use std::path::Path;

/// Returns the DISCONNECT that ends the connection of a client that has sent nothing since CONNACK.
fn farewell(stream: &mut impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    bytes
}

/// Sends the CONNECT of a 5.0 client and returns the reason of its CONNACK.
fn enter(stream: &mut (impl Read + Write), client_id: u8) -> u8 {
    stream
        .write_all(&[b"\x10\x0e\0\x04MQTT\x05\x02\0\0\0\0\x01".as_slice(), &[client_id]].concat())
        .expect("open");
    let (first, body) = kit::packet(stream);
    assert_eq!(first, 0x20);
    body[1]
}

fn write(file: &Path, text: &str) {
    std::fs::write(file, text).expect("a writable folder");
}

#[test]
fn a_reload_bans_and_disconnects_and_a_broken_file_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("bans");
    write(&file, "# one client\nclient y\n");
    let broker = kit::start_with(vec![kit::listener()], |config| {
        config.bans.file = file.to_str().expect("UTF-8").to_owned();
    });
    let dial = || kit::dial(broker.addresses()[0]);
    assert_eq!(enter(&mut dial(), b'y'), 0x8A);
    // Several, because sessions live in two shards.
    let mut clients = [b'a', b'b', b'c', b'd'].map(|client_id| {
        let mut stream = dial();
        assert_eq!(enter(&mut stream, client_id), 0);
        stream
    });
    write(&file, "client y\nclient [a\n");
    let error = broker.reload().expect_err("a broken file");
    assert!(error.contains("bans:2: the glob"), "{error}");
    assert_eq!(enter(&mut dial(), b'y'), 0x8A);
    write(&file, "client [a-b]\nclient d\n");
    let line = |what: &str| format!("bans (bans.file, {}) {what}", file.display());
    assert_eq!(
        broker.reload().expect("a sound file"),
        line("changed: 2 bans, had 1 ban; 3 clients disconnected (3 by bans)")
    );
    for at in [0, 1, 3] {
        assert_eq!(farewell(&mut clients[at]), [0xE0, 1, 0x98]);
    }
    assert_eq!(enter(&mut dial(), b'a'), 0x8A);
    let mut unbanned = dial();
    assert_eq!(enter(&mut unbanned, b'y'), 0);
    // It has left for the broker, too, once the broker has closed: the next reload must not count it.
    unbanned.write_all(b"\xE0\0").expect("open");
    assert!(farewell(&mut unbanned).is_empty());
    write(&file, "address 127.0.0.0/8\n");
    assert_eq!(
        broker.reload().expect("a sound file"),
        line("changed: 1 ban, had 2 bans; 1 client disconnected (1 by bans)")
    );
    assert_eq!(broker.reload().expect("the same file"), line("as before: 1 ban; no client disconnected"));
    assert_eq!(farewell(&mut clients[2]), [0xE0, 1, 0x98]);
    assert_eq!(enter(&mut dial(), b'n'), 0x8A);
    write(&file, "address 127.0.0.0/8 until 2001-01-01T00:00:00Z\n");
    broker.reload().expect("a sound file");
    assert_eq!(enter(&mut dial(), b'n'), 0);
}

#[test]
fn a_certificate_is_banned_by_its_serial_number() {
    let pki = Pki::new();
    let file = pki.path("bans");
    write(&file, "serial 07\n");
    let tls = pki.mutual_tls();
    let broker = kit::start_with(vec![Listener { tls: Some(tls), ..kit::listener() }], |config| {
        config.bans.file = pki.text_path("bans");
    });
    let identities = [7, 8].map(|serial| pki.client_of_serial(serial));
    let client = |at: usize| {
        let config = pki.client_config(Some(&identities[at]));
        kit::tls_client(config, "localhost", kit::dial(broker.addresses()[0]))
    };
    for client_id in [b'a', b'b', b'c'] {
        assert_eq!(enter(&mut client(0), client_id), 0x8A);
    }
    let mut connected = client(1);
    assert_eq!(enter(&mut connected, b'd'), 0);
    write(&file, "serial 08\n");
    broker.reload().expect("a sound file");
    assert_eq!(kit::packet(&mut connected), (0xE0, vec![0x98]));
    assert_eq!((enter(&mut client(0), b'a'), enter(&mut client(1), b'a')), (0, 0x8A));
}
