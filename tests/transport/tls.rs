//! TLS: versions, certificates, SNI, ALPN, client certificates, and bytes that are no TLS.

use crate::kit::{self, CONNACK, CONNECT, Pki};
use crate::support::{self, Connect, V5, V311, Will, password_file};
use homing::broker::Broker;
use homing::config::{Anonymous, CertificatePair, CertificateUser, Listener, ListenerTls};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConnection, StreamOwned};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

fn listener(tls: ListenerTls) -> Listener {
    Listener { tls: Some(tls), ..kit::listener() }
}

#[test]
fn packets_of_every_size_cross_tls_of_both_versions() {
    let pki = Pki::new();
    let broker = kit::start(vec![listener(pki.tls())]);
    for version in [&TLS12, &TLS13] {
        let config = pki.client_of(version);
        let mut stream = kit::tls_client(config, "localhost", kit::dial(broker.addresses()[0]));
        kit::exchange(&mut stream, 1_000_000);
        assert_eq!(stream.conn.protocol_version(), Some(version.version));
    }
}

#[test]
fn a_client_that_knows_the_root_alone_verifies_a_chain_that_is_completed() {
    let pki = Pki::new();
    pki.server_below_intermediate("leaf");
    let pair = CertificatePair { chain: Some(pki.text_path("leaf-ca.pem")), ..pki.pair("leaf") };
    let tls = ListenerTls { certificates: Some(vec![pair]), ..ListenerTls::default() };
    let broker = kit::start(vec![listener(tls)]);
    let address = broker.addresses()[0];
    kit::connect(&mut kit::tls_client(pki.client_config(None), "localhost", kit::dial(address)));
}

#[test]
fn the_name_that_the_client_asks_for_selects_the_certificate() {
    let pki = Pki::new();
    let certificates = ["one.example", "two.example"].map(|name| pki.server(name, &[name]));
    let tls = ListenerTls {
        certificates: Some(vec![pki.pair("one.example"), pki.pair("two.example")]),
        ..ListenerTls::default()
    };
    let broker = kit::start(vec![listener(tls)]);
    for (name, certificate) in ["one.example", "two.example"].into_iter().zip(certificates) {
        let mut stream = kit::tls_client(pki.client_config(None), name, kit::dial(broker.addresses()[0]));
        kit::connect(&mut stream);
        assert_eq!(stream.conn.peer_certificates().map(|chain| chain[0].clone()), Some(certificate));
    }
}

#[test]
fn a_client_that_offers_only_other_protocols_is_refused() {
    let pki = Pki::new();
    let broker = kit::start(vec![listener(pki.tls())]);
    for (offered, accepted) in [("mqtt", true), ("http/1.1", false)] {
        let mut config = pki.client_config(None);
        config.alpn_protocols = vec![offered.as_bytes().to_vec()];
        let mut stream = kit::tls_client(config, "localhost", kit::dial(broker.addresses()[0]));
        let sent = stream.write_all(CONNECT).and_then(|()| stream.read_exact(&mut [0; 4]));
        assert_eq!(sent.is_ok(), accepted, "{offered}: {sent:?}");
    }
}

#[test]
fn a_client_certificate_is_required_and_must_be_of_the_authority() {
    let (pki, strangers) = (Pki::new(), Pki::new());
    let tls = pki.mutual_tls();
    let broker = kit::start(vec![listener(tls)]);
    let (known, strange) = (pki.client("pump-7"), strangers.client("pump-7"));
    for (identity, accepted) in [(Some(&known), true), (None, false), (Some(&strange), false)] {
        let config = pki.client_config(identity);
        let mut stream = kit::tls_client(config, "localhost", kit::dial(broker.addresses()[0]));
        // In TLS 1.3 the client learns of the refusal after its own handshake.
        let sent = stream.write_all(CONNECT).and_then(|()| stream.read_exact(&mut [0; 4]));
        assert_eq!(sent.is_ok(), accepted, "{sent:?}");
    }
}

#[test]
fn a_certificate_that_is_not_to_name_its_client_is_required_and_leaves_the_user_to_connect() {
    let pki = Pki::new();
    let tls = ListenerTls { certificate_user: Some(CertificateUser::None), ..pki.mutual_tls() };
    let start = |anonymous, rules: &str| {
        pki.write("acl", rules);
        kit::start_with(vec![listener(tls.clone())], |config| {
            config.auth.anonymous = anonymous;
            config.acl.file = pki.text_path("acl");
        })
    };
    let pump = pki.client("pump-7");
    let dial = |broker: &Broker, identity| {
        kit::tls_client(pki.client_config(identity), "localhost", kit::dial(broker.addresses()[0]))
    };
    // Without a method nobody but an anonymous client may enter, and the certificate is no method.
    let broker = start(Anonymous::Never, "topic readwrite #\n");
    let mut stream = dial(&broker, Some(&pump));
    stream.write_all(CONNECT).expect("open");
    assert_eq!(kit::read(&mut stream, 4), [0x20, 2, 0, 5]);
    drop(broker);
    // The rules are those of the name in CONNECT, not those of the name in the certificate.
    let broker = start(Anonymous::Always, "user ann\ntopic write t\nuser pump-7\ntopic deny t\n");
    let mut stream = dial(&broker, Some(&pump));
    stream.write_all(&Connect::new(V5, "c").user_name("ann").encode()).expect("open");
    let (first, connack) = kit::packet(&mut stream);
    assert_eq!((first, connack[1]), (0x20, 0));
    // A PUBLISH to "t" at QoS 1 without properties.
    stream.write_all(&[0x32, 6, 0, 1, b't', 0, 2, 0]).expect("open");
    let (first, puback) = kit::packet(&mut stream);
    assert_eq!(first, 0x40);
    // 0x10: no subscriber. Another code would be that of a refusal.
    assert!(matches!(puback.get(2), None | Some(0 | 0x10)), "{puback:?}");
    let mut stream = dial(&broker, None);
    let sent = stream.write_all(CONNECT).and_then(|()| stream.read_exact(&mut [0; 4]));
    assert!(sent.is_err(), "a certificate is required");
}

#[test]
fn bytes_that_are_no_tls_close_the_connection() {
    let pki = Pki::new();
    let broker = kit::start(vec![listener(pki.tls())]);
    for bytes in [CONNECT, b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05hello", &[0xFF; 4096]] {
        let mut socket = kit::dial(broker.addresses()[0]);
        // The broker may close before everything is written.
        let _ = socket.write_all(bytes);
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
        // At most an alert.
        assert!(answer.len() <= 7 && answer.first().is_none_or(|first| *first == 0x15), "{answer:?}");
    }
}

#[test]
fn a_client_that_never_ends_its_handshake_is_closed_and_others_connect() {
    let pki = Pki::new();
    let broker = kit::start_with(vec![listener(pki.tls())], |config| {
        config.network.connect_timeout = Duration::from_millis(500);
    });
    let mut silent = kit::dial(broker.addresses()[0]);
    let mut dripping = kit::dial(broker.addresses()[0]);
    dripping.write_all(&[0x16, 3, 1]).expect("open");
    let mut after_handshake =
        kit::tls_client(pki.client_config(None), "localhost", kit::dial(broker.addresses()[0]));
    after_handshake.flush().expect("open");
    let mut good = kit::tls_client(pki.client_config(None), "localhost", kit::dial(broker.addresses()[0]));
    kit::connect(&mut good);
    assert!(kit::is_closed(&mut silent) && kit::is_closed(&mut dripping));
    assert!(kit::is_closed(&mut after_handshake), "the clock goes on after TLS");
    kit::publish(&mut good, b"still there");
    assert_eq!(kit::packet(&mut good), (0x40, vec![0, 2]));
}

#[test]
fn the_broker_ends_tls_in_order() {
    let pki = Pki::new();
    let mut broker = kit::start(vec![listener(pki.tls())]);
    let mut stream = kit::tls_client(pki.client_config(None), "localhost", kit::dial(broker.addresses()[0]));
    kit::connect(&mut stream);
    let stop = std::thread::spawn(move || broker.shutdown());
    // rustls reports an end without close_notify as an error.
    assert_eq!(stream.read(&mut [0; 8]).expect("close_notify"), 0);
    drop(stream);
    stop.join().expect("it stops");
}

#[test]
fn a_client_that_reads_slowly_gets_everything_in_order() {
    let pki = Pki::new();
    let broker = kit::start(vec![listener(pki.tls())]);
    let address = broker.addresses()[0];
    let mut reader = kit::tls_client(pki.client_config(None), "localhost", kit::dial(address));
    kit::connect(&mut reader);
    reader.write_all(&[0x82, 6, 0, 1, 0, 1, b't', 0]).expect("open");
    assert_eq!(kit::read(&mut reader, 5), [0x90, 3, 0, 1, 0]);
    let mut writer = kit::tls_client(pki.client_config(None), "localhost", kit::dial(address));
    writer.write_all(b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01w").expect("open");
    assert_eq!(kit::read(&mut writer, 4), kit::CONNACK);
    // More than the sockets hold, below limits.outbox.
    for n in 0..40_u8 {
        kit::publish(&mut writer, &[n; 20_000]);
        assert_eq!(kit::packet(&mut writer).0, 0x40);
    }
    for n in 0..40_u8 {
        let (first, body) = kit::packet(&mut reader);
        assert!(first == 0x30 && body[3..] == [n; 20_000], "message {n}");
    }
}

#[test]
fn a_key_that_cannot_be_read_stops_the_start_and_is_named() {
    let pki = Pki::new();
    std::fs::remove_file(pki.path("server.key")).expect("the key");
    let mut config = homing::config::Config::default();
    config.network.listen = Vec::new();
    config.listeners = vec![Listener { name: Some("devices".into()), ..listener(pki.tls()) }];
    let error = homing::broker::Broker::start(config).err().expect("no key").to_string();
    assert!(error.contains("listener devices") && error.contains("server.key"), "{error}");
}

#[test]
fn a_renewed_certificate_is_used_after_a_reload_and_nobody_is_disconnected() {
    let pki = Pki::new();
    let broker = kit::start(vec![listener(pki.tls())]);
    let address = broker.addresses()[0];
    let mut old = kit::tls_client(pki.client_config(None), "localhost", kit::dial(address));
    kit::connect(&mut old);
    let renewed = pki.server("server", &["localhost"]);
    assert!(broker.reload().expect("sound files").contains("server.pem is new"));
    let mut new = kit::tls_client(pki.client_config(None), "localhost", kit::dial(address));
    new.write_all(b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01n").expect("open");
    assert_eq!(kit::read(&mut new, 4), kit::CONNACK);
    assert_eq!(new.conn.peer_certificates().map(|chain| chain[0].clone()), Some(renewed));
    kit::publish(&mut old, b"still here");
    assert_eq!(kit::packet(&mut old).0, 0x40);
}

#[test]
fn a_broken_file_changes_nothing() {
    let pki = Pki::new();
    let broker = kit::start(vec![listener(pki.tls())]);
    pki.write("server.pem", "no certificate");
    let error = broker.reload().expect_err("a broken file");
    assert!(error.contains("server.pem"), "{error}");
    let mut stream = kit::tls_client(pki.client_config(None), "localhost", kit::dial(broker.addresses()[0]));
    kit::connect(&mut stream);
}

#[test]
fn a_revoked_client_is_disconnected_by_a_reload_and_does_not_come_back() {
    let pki = Pki::new();
    pki.revoke("ca.crl", &[99]);
    let tls = ListenerTls { crl: Some(vec![pki.text_path("ca.crl")]), ..pki.mutual_tls() };
    let broker = kit::start(vec![listener(tls)]);
    let address = broker.addresses()[0];
    let (revoked, other) = (pki.client_of_serial(7), pki.client_of_serial(8));
    // One configuration, so that the client has a ticket to resume with.
    let config = pki.client_config(Some(&revoked));
    let mut stream = kit::tls_client(config.clone(), "localhost", kit::dial(address));
    kit::connect(&mut stream);
    let mut sound = kit::tls_client(pki.client_config(Some(&other)), "localhost", kit::dial(address));
    sound.write_all(b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01n").expect("open");
    assert_eq!(kit::read(&mut sound, 4), kit::CONNACK);
    assert_eq!(
        broker.reload().expect("the same files"),
        "tls (listeners.tls) as before; no client disconnected"
    );
    pki.revoke("ca.crl", &[7, 99]);
    let what = broker.reload().expect("sound files");
    assert!(
        what.contains("changed: the revocation lists changed (tls.crl): ") && what.contains("/ca.crl; "),
        "{what}"
    );
    assert!(what.ends_with("; 1 client disconnected (1 by tls)"), "{what}");
    assert!(kit::is_closed(&mut stream), "its certificate is revoked");
    support::until("the cause is counted", || {
        let counts = broker.observer().statistics().total().clients;
        let ended: Vec<_> = counts.disconnects().filter(|(_, connections)| *connections > 0).collect();
        (ended == [("revoked", 1)]).then_some(())
    });
    kit::publish(&mut sound, b"still here");
    assert_eq!(kit::packet(&mut sound).0, 0x40);
    let mut again = kit::tls_client(config, "localhost", kit::dial(address));
    let sent = again.write_all(CONNECT).and_then(|()| again.read_exact(&mut [0; 4]));
    assert!(sent.is_err(), "the certificate is revoked");
}

#[test]
fn packets_before_a_close_are_handled_although_connect_waits_for_its_password() {
    let pki = Pki::new();
    pki.write("passwd", &password_file(&[("ann", "secret")]));
    let broker = kit::start_with(vec![listener(pki.tls())], |config| {
        config.runtime.threads = 1;
        config.auth.password_file = pki.text_path("passwd");
    });
    let client = || kit::tls_client(pki.client_config(None), "localhost", kit::dial(broker.addresses()[0]));
    let mut watcher = client();
    watcher.write_all(&kit::login("w", "ann", "secret")).expect("open");
    assert_eq!(kit::read(&mut watcher, 4), [0x20, 2, 0, 0]);
    watcher.write_all(b"\x82\x06\0\x01\0\x01t\0").expect("open");
    assert_eq!(kit::read(&mut watcher, 5), [0x90, 3, 0, 1, 0]);
    for n in 0..10_u8 {
        let mut hasty = client();
        while hasty.conn.is_handshaking() {
            hasty.conn.complete_io(&mut hasty.sock).expect("a handshake");
        }
        let connect = Connect::new(V311, "h").keep_alive(0).will(Will::new("t", "will"));
        let connect = connect.user_name("ann").password(b"secret").encode();
        let packets = [&connect[..], &[0x30, 4, 0, 1, b't', n], b"\xE0\0"].concat();
        hasty.conn.writer().write_all(&packets).expect("room");
        hasty.conn.send_close_notify();
        let mut wire = Vec::new();
        while hasty.conn.wants_write() {
            hasty.conn.write_tls(&mut wire).expect("room");
        }
        hasty.sock.write_all(&wire).expect("open");
        // Its will would come in place of the next message.
        assert_eq!(kit::packet(&mut watcher), (0x30, vec![0, 1, b't', n]));
    }
}

/// Seals these bytes and close_notify, and sends them in one segment.
fn send_and_close(client: &mut StreamOwned<ClientConnection, TcpStream>, bytes: &[u8]) {
    client.conn.writer().write_all(bytes).expect("room");
    client.conn.send_close_notify();
    let mut wire = Vec::new();
    while client.conn.wants_write() {
        client.conn.write_tls(&mut wire).expect("room");
    }
    client.sock.write_all(&wire).expect("open");
}

#[test]
fn a_close_behind_connect_is_not_forgotten_when_the_socket_moves() {
    let pki = Pki::new();
    let broker = kit::start(vec![listener(pki.tls())]);
    // Some of these sessions live in the other shard.
    for client_id in b'a'..=b'h' {
        let mut client =
            kit::tls_client(pki.client_config(None), "localhost", kit::dial(broker.addresses()[0]));
        while client.conn.is_handshaking() {
            client.conn.complete_io(&mut client.sock).expect("a handshake");
        }
        // No Keep Alive, so that nothing else ends the connection.
        send_and_close(
            &mut client,
            &[b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01".as_slice(), &[client_id]].concat(),
        );
        // CONNACK may come, and then the end.
        while client.sock.read(&mut [0; 64]).expect("the broker closes the connection") > 0 {}
    }
}

#[test]
fn a_partial_record_ends_the_connection_of_a_client_without_keep_alive() {
    let pki = Pki::new();
    let broker = kit::start_with(vec![listener(pki.tls())], |config| {
        config.network.write_timeout = Duration::from_secs(1);
    });
    let connect = || {
        let mut client =
            kit::tls_client(pki.client_config(None), "localhost", kit::dial(broker.addresses()[0]));
        kit::connect(&mut client);
        client
    };
    let mut idle = connect();
    let mut partial = kit::tls_client(pki.client_config(None), "localhost", kit::dial(broker.addresses()[0]));
    partial.write_all(b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01d").expect("open");
    assert_eq!(kit::read(&mut partial, 4), CONNACK);
    // The header of a record and a part of its content.
    partial.sock.write_all(&[0x17, 3, 3, 0x10, 0, 1, 2, 3]).expect("open");
    let end = partial.read(&mut [0; 64]).map_err(|error| error.kind());
    assert!(matches!(end, Ok(0) | Err(ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset)), "{end:?}");
    kit::publish(&mut idle, b"still here");
    assert_eq!(kit::packet(&mut idle).0, 0x40);
}

#[test]
fn a_partial_record_that_came_while_connect_waited_for_its_password_ends_the_connection() {
    let pki = Pki::new();
    pki.write("passwd", &password_file(&[("ann", "secret")]));
    let broker = kit::start_with(vec![listener(pki.tls())], |config| {
        config.network.write_timeout = Duration::from_secs(1);
        config.auth.password_file = pki.text_path("passwd");
    });
    // Some of these sessions live in the other shard.
    for client_id in ["a", "b", "c", "d"] {
        let mut client =
            kit::tls_client(pki.client_config(None), "localhost", kit::dial(broker.addresses()[0]));
        while client.conn.is_handshaking() {
            client.conn.complete_io(&mut client.sock).expect("a handshake");
        }
        client.conn.writer().write_all(&kit::login(client_id, "ann", "secret")).expect("room");
        let mut wire = Vec::new();
        while client.conn.wants_write() {
            client.conn.write_tls(&mut wire).expect("room");
        }
        wire.extend_from_slice(&[0x17, 3, 3, 0x10, 0, 1, 2, 3]);
        client.sock.write_all(&wire).expect("open");
        assert_eq!(kit::read(&mut client, 4), CONNACK);
        assert!(kit::is_closed(&mut client), "{client_id}");
    }
}

#[test]
fn renewed_files_are_used_without_a_signal_and_broken_ones_change_nothing() {
    let pki = Pki::new();
    let broker = kit::start(vec![listener(pki.tls())]);
    let certificate = || {
        let mut client =
            kit::tls_client(pki.client_config(None), "localhost", kit::dial(broker.addresses()[0]));
        kit::connect(&mut client);
        client.conn.peer_certificates().map(|chain| chain[0].clone())
    };
    let first = certificate();
    broker.check_tls_files();
    assert_eq!(certificate(), first);
    let renewed = pki.server("server", &["localhost", "renewed.test"]);
    broker.check_tls_files();
    assert_eq!(certificate(), Some(renewed.clone()));
    pki.write("server.pem", "no certificate");
    broker.check_tls_files();
    assert_eq!(certificate(), Some(renewed));
}

/// A FIFO that nobody writes to stands for a file on a dead network file system.
#[test]
fn clients_connect_while_the_look_at_the_certificates_hangs() {
    let pki = Pki::new();
    pki.server("server", &["localhost"]);
    let broker = kit::start(vec![listener(pki.tls()), kit::listener()]);
    let (file, good) = (pki.path("server.pem"), std::fs::read(pki.path("server.pem")).unwrap());
    std::fs::remove_file(&file).unwrap();
    mknodat(CWD, &file, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    std::thread::scope(|scope| {
        let look = scope.spawn(|| broker.check_tls_files());
        let writer = support::until("a look at the certificate", || {
            rustix::fs::open(&file, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty()).ok()
        });
        let [tls, plain] = [broker.addresses()[0], broker.addresses()[1]];
        kit::connect(&mut kit::dial(plain));
        kit::connect(&mut kit::tls_client(pki.client_config(None), "localhost", kit::dial(tls)));
        // The next read is of the file again.
        std::fs::remove_file(&file).unwrap();
        std::fs::write(&file, &good).unwrap();
        rustix::io::write(&writer, &good).unwrap();
        drop(writer);
        look.join().unwrap();
    });
}
