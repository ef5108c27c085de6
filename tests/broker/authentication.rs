//! Clients with user names and passwords, over real sockets.

use crate::support::launch::{TestBroker, on_configured_threads, restart_on, start_broker, start_broker_on};
use crate::support::memory_store::Memory;
use crate::support::{Connect, Kind, Message, Packet, RawClient, V5, V311, Version, password_file};
use homing::config::{Anonymous, Config, RedeliveryRule};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A password file that is removed with the value.
struct Passwords(PathBuf);

impl Passwords {
    fn new(users: &[(&str, &str)]) -> Passwords {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("homing-passwd-{}-{number}", std::process::id()));
        let file = Passwords(path);
        file.write(users);
        file
    }

    fn write(&self, users: &[(&str, &str)]) {
        self.write_text(&password_file(users));
    }

    fn write_text(&self, text: &str) {
        std::fs::write(&self.0, text).expect("a file for the test");
    }

    fn use_in(&self, config: &mut Config) {
        config.auth.password_file = self.0.display().to_string();
    }
}

impl Drop for Passwords {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

fn user(version: Version, client_id: &str, name: &str, password: &str) -> Connect {
    Connect::new(version, client_id).user_name(name).password(password.as_bytes())
}

/// The bytes of the answer to a CONNECT, until the broker closes the connection.
fn refusal(broker: &TestBroker, connect: &Connect) -> Vec<Packet> {
    let mut client = broker.open(connect.version);
    client.send(&connect.encode());
    client.read_to_end()
}

fn code(packets: &[Packet]) -> u8 {
    match packets {
        [Packet::Connack(connack)] => connack.code,
        other => panic!("one CONNACK and the end: {other:?}"),
    }
}

fn reload(broker: &TestBroker) -> Result<String, String> {
    match broker {
        TestBroker::InProcess(broker) => broker.reload(),
        _ => panic!("a broker in this process"),
    }
}

#[test]
fn a_right_password_lets_in_and_all_else_gets_one_answer() {
    let file = Passwords::new(&[("ann", "secret"), ("bob", "")]);
    on_configured_threads(
        |config| file.use_in(config),
        |broker| {
            for id in ["a", "b", "c", "d"] {
                let mut client = broker.connect(&user(V5, id, "ann", "secret"));
                client.ping();
                // A stored hash of the empty password lets nobody in.
                assert_eq!(code(&refusal(broker, &user(V311, &format!("{id}{id}"), "bob", ""))), 5);
            }
            let wrong = [("ann", "Secret"), ("ann", ""), ("eve", "secret"), ("", "secret")];
            for (name, password) in wrong {
                assert_eq!(code(&refusal(broker, &user(V311, "x", name, password))), 5, "{name}");
                let packets = refusal(broker, &user(V5, "x", name, password));
                assert_eq!(code(&packets), 0x87, "{name}");
                let Some(Packet::Connack(connack)) = packets.first() else { panic!("{packets:?}") };
                assert_eq!(connack.properties, [], "no Reason String tells a name from a password");
            }
            let without_password = Connect::new(V5, "x").user_name("bob");
            assert_eq!(code(&refusal(broker, &without_password)), 0x87);
        },
    );
}

#[test]
fn clients_without_a_user_enter_on_loopback_unless_the_operator_says_never() {
    let file = Passwords::new(&[("ann", "secret")]);
    let broker = start_broker(|config| file.use_in(config));
    broker.client(V311, "anonymous").ping();
    let strict = start_broker(|config| {
        file.use_in(config);
        config.auth.anonymous = Anonymous::Never;
    });
    assert_eq!(code(&refusal(&strict, &Connect::new(V311, "anonymous"))), 5);
    strict.connect(&user(V311, "named", "ann", "secret")).ping();
}

#[test]
fn a_listener_beyond_loopback_lets_nobody_in_by_itself() {
    let beyond = |config: &mut Config| {
        config.network.listen = vec![SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))];
    };
    let broker = start_broker(beyond);
    let port = broker.address().port();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    for connect in [Connect::new(V311, "c"), user(V311, "c", "ann", "secret")] {
        let mut client = RawClient::open(address, V311);
        client.send(&connect.encode());
        assert_eq!(client.expect_connack().code, 5);
    }
    let open = start_broker(|config| {
        beyond(config);
        config.auth.anonymous = Anonymous::Always;
    });
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, open.address().port()));
    RawClient::connect(address, &user(V311, "c", "ann", "anything")).ping();
}

#[test]
fn many_logins_at_once_are_all_decided() {
    let file = Passwords::new(&[("ann", "secret")]);
    let broker = start_broker(|config| {
        file.use_in(config);
        config.auth.cache = Duration::ZERO;
    });
    let mut clients: Vec<_> = (0..100)
        .map(|n| {
            let mut client = broker.open(V311);
            client.send(&user(V311, &format!("c{n}"), "ann", "secret").encode());
            client
        })
        .collect();
    for client in &mut clients {
        assert_eq!(client.expect_connack().code, 0);
    }
}

#[test]
fn packets_behind_connect_wait_for_the_decision() {
    let file = Passwords::new(&[("ann", "secret")]);
    let broker = start_broker(|config| file.use_in(config));
    let mut watcher = broker.client(V311, "watcher");
    watcher.subscribe(&[("t", 1)]);
    for password in ["wrong", "secret"] {
        let mut client = broker.open(V311);
        let publish = Message::new("t", password).qos(1).encode(V311, 7);
        client.send(&[user(V311, "c", "ann", password).encode(), publish].concat());
        client.expect_connack();
        if password == "secret" {
            client.expect_ack(Kind::Puback, 7);
        }
    }
    assert_eq!(watcher.expect_publish().payload, b"secret", "nothing of the refused client is routed");
}

#[test]
fn a_reload_disconnects_users_who_are_gone_or_have_another_password() {
    let file = Passwords::new(&[("ann", "secret"), ("bob", "secret"), ("eve", "secret")]);
    on_configured_threads(
        |config| {
            file.write(&[("ann", "secret"), ("bob", "secret"), ("eve", "secret")]);
            file.use_in(config);
        },
        |broker| {
            let [mut ann, mut bob, mut eve] =
                ["ann", "bob", "eve"].map(|name| broker.connect(&user(V5, name, name, "secret")));
            let mut anonymous = broker.client(V5, "anonymous");
            file.write(&[("ann", "secret"), ("bob", "other")]);
            let what = reload(broker).expect("a lawful file");
            let file_name = file.0.display();
            let changed = format!("passwords (auth.password_file, {file_name}) changed: ");
            assert_eq!(
                what,
                format!("{changed}2 users, had 3 users; 2 clients disconnected (2 by passwords)")
            );
            bob.expect_disconnected(0x87);
            eve.expect_disconnected(0x87);
            ann.ping();
            anonymous.ping();
            let again = reload(broker).expect("the same file");
            let as_before = format!("passwords (auth.password_file, {file_name}) as before: ");
            assert_eq!(again, format!("{as_before}2 users; no client disconnected"));
            assert_eq!(code(&refusal(broker, &user(V5, "bob", "bob", "secret"))), 0x87);
            broker.connect(&user(V5, "bob", "bob", "other")).ping();
            // A file with a mistake changes nothing.
            file.write_text("ann:plain\n");
            let mistake = reload(broker).expect_err("a plain password");
            assert!(mistake.contains(":1: user \"ann\": the password is not hashed"), "{mistake}");
            ann.ping();
            broker.connect(&user(V5, "bob", "bob", "other")).ping();
        },
    );
}

#[test]
fn rules_act_on_the_authenticated_name_alone() {
    let file = Passwords::new(&[("slow", "secret")]);
    let rule = RedeliveryRule {
        user_name: Some("slow".parse().expect("a glob")),
        interval: Some(Duration::ZERO),
        ..RedeliveryRule::default()
    };
    let broker = start_broker(|config| {
        file.use_in(config);
        config.redelivery.interval = Duration::from_millis(300);
        config.expiry.tick = Duration::from_millis(50);
        config.redelivery.rules = vec![rule];
    });
    let mut named = broker.connect(&user(V311, "named", "slow", "secret"));
    let mut anonymous = broker.client(V311, "anonymous");
    for client in [&mut named, &mut anonymous] {
        client.subscribe(&[("t", 1)]);
    }
    let id = anonymous.publish(&Message::new("t", "x").qos(1));
    for client in [&mut named, &mut anonymous] {
        client.expect_publish();
    }
    anonymous.expect_ack(Kind::Puback, id);
    assert!(anonymous.expect_publish().dup, "it is sent again after 300 ms");
    named.ping();
}

#[test]
fn a_session_keeps_its_owner_over_a_restart() {
    let file = Passwords::new(&[("ann", "secret"), ("bob", "secret")]);
    let memory = Memory::default();
    let broker = start_broker_on(&memory, |config| file.use_in(config));
    let session = |name| Connect::persistent(V5, "c").user_name(name).password(b"secret");
    broker.connect(&session("ann")).subscribe(&[("t", 1)]);
    assert_eq!(code(&refusal(&broker, &session("bob"))), 0x85);
    let (broker, _memory) = restart_on(broker, &memory, |config| file.use_in(config));
    assert_eq!(code(&refusal(&broker, &session("bob"))), 0x85);
    assert_eq!(code(&refusal(&broker, &Connect::new(V5, "c"))), 0x85);
    assert!(broker.connect(&session("ann")).session_present());
}
