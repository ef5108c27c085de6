//! One mosquitto.conf, run by mosquitto, and imported and run by Homing: both let the same clients
//! in, with the same answers.

use crate::broker::{Mosquitto, command};
use crate::support::process::Process;
use crate::support::{Connect, Message, Property, RawClient, V5, V311, Version, Will};
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

/// The user name and the password of a CONNECT.
type Credentials = (Option<&'static str>, Option<&'static str>);

const CREDENTIALS: [Credentials; 6] = [
    (None, None),
    (Some("ann"), Some("secret")),
    (Some("six"), Some("secret")),
    (Some("ann"), Some("Secret")),
    (Some("ann"), None),
    (Some("eve"), Some("secret")),
];

/// Imports the configuration of a mosquitto, and runs Homing with it on free ports. Returns the
/// addresses of the listeners in their order.
pub fn homing(directory: &Path, mosquitto: &Mosquitto) -> (Process, Vec<SocketAddr>) {
    let file = directory.join("imported.conf");
    fs::write(&file, &mosquitto.configuration).expect("a file");
    let mut import = Command::new(env!("CARGO_BIN_EXE_homing"));
    let output = import.arg("import").arg(&file).output().expect("the binary was built");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut toml = String::from_utf8(output.stdout).expect("text");
    for address in &mosquitto.addresses {
        let taken = format!(":{}\"", address.port());
        assert!(toml.contains(&taken), "{toml}");
        toml = toml.replace(&taken, ":0\"");
    }
    let file = directory.join("homing.toml");
    fs::write(&file, toml).expect("a file");
    let mut serve = Command::new(env!("CARGO_BIN_EXE_homing"));
    serve.env("HOMING_ADMIN__ADDRESSES", "off").arg("serve").arg("--config").arg(&file);
    let (mut process, first) = Process::serve(&mut serve);
    let mut addresses = vec![first];
    for _ in 1..mosquitto.addresses.len() {
        addresses.push(process.address().expect("it listens"));
    }
    (process, addresses)
}

/// The bytes of the answer that count: the code of CONNACK, and its properties if it refuses.
fn answer(address: SocketAddr, version: Version, (user, password): Credentials) -> (u8, usize) {
    // Homing gives a session to its user alone, and the one before may not have ended yet.
    let mut connect = Connect::new(version, user.unwrap_or("nobody"));
    if let Some(user) = user {
        connect = connect.user_name(user);
    }
    if let Some(password) = password {
        connect = connect.password(password.as_bytes());
    }
    let mut client = RawClient::open(address, version);
    client.send(&connect.encode());
    let connack = client.expect_connack();
    let properties = if connack.code == 0 { 0 } else { connack.properties.len() };
    (connack.code, properties)
}

#[test]
fn an_imported_configuration_lets_the_same_clients_in() {
    let directory = tempfile::tempdir().expect("a directory");
    let passwd = directory.path().join("passwd");
    for arguments in [&["-c", "-b"][..], &["-b", "-H", "sha512"][..]] {
        let user = if arguments.contains(&"-c") { "ann" } else { "six" };
        let status = command("mosquitto_passwd").args(arguments).arg(&passwd).args([user, "secret"]).status();
        assert!(status.expect("tests/run installs it").success());
    }
    let passwd = format!("password_file {}\n", passwd.display());
    let (mut accepted, mut refused) = (0, 0);
    for configuration in [
        "allow_anonymous true\n".to_owned(),
        "allow_anonymous false\n".to_owned(),
        format!("allow_anonymous true\n{passwd}"),
        format!("allow_anonymous false\n{passwd}"),
        passwd.clone(),
        format!("per_listener_settings true\n{passwd}"),
        "per_listener_settings true\nallow_anonymous true\n".to_owned(),
    ] {
        let mosquitto = Mosquitto::start(directory.path(), &configuration);
        let (_process, addresses) = homing(directory.path(), &mosquitto);
        for credentials in CREDENTIALS {
            for version in [V311, V5] {
                let theirs = answer(mosquitto.address, version, credentials);
                let ours = answer(addresses[0], version, credentials);
                assert_eq!(ours, theirs, "{configuration}{version:?} {credentials:?}");
                *if ours.0 == 0 { &mut accepted } else { &mut refused } += 1;
            }
        }
    }
    assert!(accepted > 10 && refused > 10, "both are tested: {accepted}, {refused}");
}

#[test]
fn each_listener_keeps_its_own_users_whatever_the_spelling() {
    let directory = tempfile::tempdir().expect("a directory");
    for value in ["1", "true", "1 # each"] {
        let before = format!("per_listener_settings {value}\n");
        let listeners = ["allow_anonymous false\n", "allow_anonymous true\n"];
        let mosquitto = Mosquitto::start_with(directory.path(), &before, &listeners, "");
        let (_process, addresses) = homing(directory.path(), &mosquitto);
        for (theirs, ours) in mosquitto.addresses.iter().zip(addresses) {
            for version in [V311, V5] {
                let answers = [*theirs, ours].map(|address| answer(address, version, (None, None)));
                assert_eq!(answers[1], answers[0], "{value} {version:?}");
            }
        }
    }
}

/// What becomes of a message: true if its receiver gets it; true if the publisher is told of a
/// failure.
fn delivery(address: SocketAddr, version: Version, qos: u8, payload: usize) -> (bool, bool) {
    let mut receiver = RawClient::connect(address, &Connect::new(V5, "receiver"));
    receiver.subscribe(&[("#", 1)]);
    let mut publisher = RawClient::connect(address, &Connect::new(version, "publisher"));
    let topic = format!("t/{}", "x".repeat(60_000));
    let code = publisher.deliver(&Message::new(topic, vec![0; payload]).qos(qos));
    // The connection stays.
    publisher.settle();
    let end = Message::new("end", "x").qos(1);
    assert_eq!(publisher.deliver(&end), 0);
    let is_delivered = receiver.expect_publish().topic != "end";
    assert!(!is_delivered || receiver.expect_publish().topic == "end");
    (is_delivered, code >= 0x80)
}

#[test]
fn a_message_above_message_size_limit_is_dropped_and_its_client_stays() {
    const LIMIT: usize = 3_000_000;
    let directory = tempfile::tempdir().expect("a directory");
    let configuration = format!("set_tcp_nodelay true\nallow_anonymous true\nmessage_size_limit {LIMIT}\n");
    let mosquitto = Mosquitto::start(directory.path(), &configuration);
    let (_process, addresses) = homing(directory.path(), &mosquitto);
    for version in [V311, V5] {
        for qos in [0, 1, 2] {
            for (payload, delivered) in [(LIMIT, true), (LIMIT + 1, false)] {
                let theirs = match (version, qos, delivered) {
                    // mosquitto 2.0.11 answers 0x95, which PUBACK and PUBREC do not have.
                    (V5, 1 | 2, false) => (false, true),
                    _ => delivery(mosquitto.address, version, qos, payload),
                };
                let ours = delivery(addresses[0], version, qos, payload);
                assert_eq!(ours, theirs, "{version:?} QoS {qos}, {payload} B");
                assert_eq!(ours.0, delivered, "{version:?} QoS {qos}, {payload} B");
            }
        }
    }
    // A will has 64 KiB at most.
    let mosquitto = Mosquitto::start(directory.path(), "allow_anonymous true\nmessage_size_limit 10\n");
    let (_process, addresses) = homing(directory.path(), &mosquitto);
    for version in [V311, V5] {
        for payload in [10, 11] {
            let codes = [mosquitto.address, addresses[0]].map(|address| {
                let will = Will::new("will", "x".repeat(payload));
                let mut client = RawClient::open(address, version);
                client.send(&Connect::new(version, "c").will(will).encode());
                client.expect_connack().code
            });
            assert_eq!((codes[1], codes[0] != 0), (codes[0], payload > 10), "{version:?} {payload}");
        }
    }
}

#[test]
fn a_broker_without_retained_messages_answers_5_0_clients_as_mosquitto() {
    let directory = tempfile::tempdir().expect("a directory");
    let mosquitto = Mosquitto::start(directory.path(), "allow_anonymous true\nretain_available false\n");
    let (_process, addresses) = homing(directory.path(), &mosquitto);
    for address in [mosquitto.address, addresses[0]] {
        let mut client = RawClient::open(address, V5);
        client.send(&Connect::new(V5, "c").encode());
        let connack = client.expect_connack();
        assert!(connack.properties.contains(&Property::RetainAvailable(0)), "{:?}", connack.properties);
        client.publish(&Message::new("t", "x").qos(1).retained());
        client.expect_disconnected(0x9A);
        let mut client = RawClient::open(address, V5);
        client.send(&Connect::new(V5, "c").will(Will::new("t", "x").retained()).encode());
        assert_eq!(client.expect_connack().code, 0x9A);
    }
}
