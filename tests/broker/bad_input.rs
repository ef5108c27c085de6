//! Input that no lawful client sends, or too much of it. The broker answers as the standard says or
//! refuses, and no other client notices.

use crate::support::client::{Event, subscribe_packet};
use crate::support::launch::{TestBroker, default_broker, start_broker, versions};
use crate::support::wire::{self, Put};
use crate::support::{Connect, Kind, Message, Packet, RawClient, V5, V311, Version, now};
use std::time::Duration;

/// Two clients that exchange messages before, amid and after the trouble.
struct Bystanders {
    publisher: RawClient,
    subscriber: RawClient,
}

impl Bystanders {
    fn new(broker: &TestBroker) -> Bystanders {
        let mut subscriber = broker.client(V5, "bystander");
        subscriber.subscribe(&[("undisturbed", 1)]);
        Bystanders { publisher: broker.client(V311, "passer-by"), subscriber }
    }

    fn notice_nothing(&mut self) {
        let sent = now();
        self.publisher.deliver(&Message::new("undisturbed", "x").qos(1));
        let publish = self.subscriber.expect_publish();
        self.subscriber.complete(&publish);
        assert!(sent.elapsed() < Duration::from_secs(2), "disturbed: {:?}", sent.elapsed());
    }
}

/// A fixed sequence that looks random (xorshift), so that a failure can be seen again.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut seed = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut byte = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed >> 24) as u8
    };
    (0..length).map(|_| byte()).collect()
}

/// Sends and hangs up, after which the broker must let go whatever it made of it.
fn say_and_leave(broker: &TestBroker, version: Version, bytes: &[u8]) {
    let client = broker.open(version);
    let mut stream = client.stream();
    let _ = std::io::Write::write_all(&mut stream, bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    stream.set_read_timeout(Some(crate::support::PATIENCE)).expect("a read timeout");
    let ended = std::io::Read::read_to_end(&mut stream, &mut Vec::new());
    let in_time = ended.as_ref().map_err(std::io::Error::kind);
    assert!(
        !matches!(in_time, Err(std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)),
        "the broker does not let go of a client that has hung up"
    );
}

#[test]
fn garbage_in_place_of_connect() {
    let broker = default_broker();
    let mut bystanders = Bystanders::new(&broker);
    for seed in 1..60 {
        say_and_leave(&broker, V5, &noise(seed, 300));
    }
    for text in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PROXY TCP4 ",
        b"\0",
    ] {
        say_and_leave(&broker, V5, text);
    }
    bystanders.notice_nothing();
}

fn garbage_behind_connect(version: Version) {
    let broker = default_broker();
    let mut bystanders = Bystanders::new(&broker);
    for seed in 1..60 {
        let mut bytes = Connect::new(version, "c").encode();
        bytes.extend(noise(seed, 300));
        say_and_leave(&broker, version, &bytes);
    }
    // Each packet type with a body of noise, so that all parsers see some.
    for kind in 0..16_u8 {
        for seed in 1..8 {
            let mut bytes = Connect::new(version, "c").encode();
            let flags = [2, 0][usize::from(seed % 2 == 0)];
            bytes.extend(wire::packet(
                kind << 4 | flags,
                &noise(seed * 7919 + u64::from(kind), 5 * seed as usize),
            ));
            say_and_leave(&broker, version, &bytes);
        }
    }
    bystanders.notice_nothing();
}
// 3.1.1 [MQTT-4.8.0-1]; 5.0 [MQTT-4.13.1-1]
versions!(garbage_behind_connect: v31, v311, v5);

fn truncated_packets(version: Version) {
    let broker = default_broker();
    let mut bystanders = Bystanders::new(&broker);
    let connect = Connect::new(version, "c").user_name("user").encode();
    let publish = Message::new("topic", "payload").qos(2).encode(version, 7);
    let subscribe = subscribe_packet(version, 1, &[], &[("a", 0), ("b", 1)]);
    for length in 0..connect.len() {
        say_and_leave(&broker, version, &connect[..length]);
    }
    for packet in [publish, subscribe] {
        for length in 1..packet.len() {
            say_and_leave(&broker, version, &[&connect, &packet[..length]].concat());
        }
        // Truncated in truth: the length is right and the body too short for what it says.
        for length in 0..packet.len() - 2 {
            let truncated = wire::packet(packet[0], &packet[2..2 + length]);
            say_and_leave(&broker, version, &[&connect[..], &truncated].concat());
        }
    }
    bystanders.notice_nothing();
}
versions!(truncated_packets: v31, v311, v5);

fn deep_topics_are_refused(version: Version) {
    let broker = start_broker(|config| config.limits.topic_levels = 16);
    let mut bystanders = Bystanders::new(&broker);
    let within = ["a"; 16].join("/");
    let beyond = ["a"; 17].join("/");
    let deepest = "/".repeat(65_535);
    let mut client = broker.client(version, "c");
    assert_eq!(client.subscribe(&[(&within, 0)]), [0]);
    client.deliver(&Message::new(&within, "").qos(1));
    client.expect_publish();
    for topic in [&beyond, &deepest] {
        let mut client = broker.client(version, "d");
        client.send(&subscribe_packet(version, 1, &[], &[(topic, 0)]));
        match client.expect_suback_or_end() {
            Packet::Granted(suback) => assert!(suback.codes[0] >= 0x80, "{suback:?}"),
            Packet::Disconnect(_) => {}
            other => panic!("{other:?}"),
        }
        let mut client = broker.client(version, "e");
        client.publish(&Message::new(topic, "").qos(1));
        match client.next(now() + crate::support::PATIENCE) {
            Event::Packet(Packet::Ack(ack)) => assert!(version != V5 || ack.code >= 0x80, "{ack:?}"),
            Event::Packet(Packet::Disconnect(_)) | Event::Closed => {}
            other => panic!("{other:?}"),
        }
    }
    bystanders.notice_nothing();
}
versions!(deep_topics_are_refused: v311, v5);

fn a_hundred_thousand_subscriptions_are_refused_beyond_the_limit(version: Version) {
    let broker = start_broker(|config| config.limits.subscriptions_per_client = 1000);
    let mut bystanders = Bystanders::new(&broker);
    let mut client = broker.client(version, "c");
    let refused = if version == V5 { 0x97 } else { 0x80 };
    let filters: Vec<String> = (0..100_000).map(|n| format!("many/{n}/+")).collect();
    let mut granted = 0;
    for filters in filters.chunks(5_000) {
        let filters: Vec<(&str, u8)> = filters.iter().map(|filter| (filter.as_str(), 0)).collect();
        let codes = client.subscribe(&filters);
        assert!(codes.iter().all(|code| *code == 0 || *code == refused));
        granted += codes.iter().filter(|code| **code == 0).count();
    }
    assert_eq!(granted, 1000);
    bystanders.notice_nothing();
    client.settle();
    drop(client);
    bystanders.notice_nothing();
}
versions!(a_hundred_thousand_subscriptions_are_refused_beyond_the_limit: v311, v5);

fn many_half_received_packets_disturb_nobody(version: Version) {
    let broker = start_broker(|config| {
        config.limits.memory = "64 MiB".parse().expect("a size");
        config.runtime.threads = 2;
    });
    let mut bystanders = Bystanders::new(&broker);
    // 200 times a megabyte that stops just before its end: three times the budget.
    let mut half = Message::new("t", vec![b'x'; 1_000_000]).qos(1).encode(version, 1);
    half.pop();
    let mut clients = Vec::new();
    for n in 0..200 {
        let mut client = broker.open(version);
        client.send(&Connect::new(version, &format!("half{n}")).encode());
        // The broker need not take bytes from a client that it refuses or does not read.
        client.stream().set_write_timeout(Some(Duration::from_millis(50))).expect("a write timeout");
        let _ = std::io::Write::write_all(&mut client.stream(), &half);
        clients.push(client);
        if n % 20 == 0 {
            bystanders.notice_nothing();
        }
    }
    bystanders.notice_nothing();
    drop(clients);
    bystanders.notice_nothing();
}
versions!(many_half_received_packets_disturb_nobody: v311, v5);

fn strangers_who_announce_256_mib_disturb_nobody(version: Version) {
    let broker = default_broker();
    let mut bystanders = Bystanders::new(&broker);
    let mut prefix = vec![0x10];
    prefix.put_varint(268_435_455);
    let strangers: Vec<RawClient> = (0..200)
        .map(|n| {
            let mut stranger = broker.open(version);
            stranger.send(if n % 2 == 0 { &prefix } else { &prefix[..1] });
            stranger
        })
        .collect();
    bystanders.notice_nothing();
    drop(strangers);
}
versions!(strangers_who_announce_256_mib_disturb_nobody: v5);

/// 3.x knows no Receive Maximum: a window of any size is lawful, and its PUBRELs stand in the
/// stream behind all its PUBLISHes. A broker that stopped reading until they came would wait for
/// ever.
fn large_window_of_qos_2_is_served(version: Version) {
    let broker = start_broker(|config| config.limits.receive_maximum = 10);
    let mut bystanders = Bystanders::new(&broker);
    let mut client = broker.client(version, "c");
    let publishes = (1..=1000).flat_map(|id| Message::new("t", "x").qos(2).encode(version, id));
    client.send(&publishes.collect::<Vec<u8>>());
    bystanders.notice_nothing();
    for id in 1..=1000 {
        client.expect_ack(Kind::Pubrec, id);
    }
    (1..=1000).for_each(|id| client.ack(Kind::Pubrel, id));
    for id in 1..=1000 {
        client.expect_ack(Kind::Pubcomp, id);
    }
    client.settle();
}
// 3.1.1 [MQTT-4.3.3-2]
versions!(large_window_of_qos_2_is_served: v31, v311);

#[test]
fn v5_many_user_properties_are_carried_or_refused() {
    let broker = default_broker();
    let mut bystanders = Bystanders::new(&broker);
    let mut client = broker.client(V5, "c");
    client.subscribe(&[("t", 0)]);
    let mut message = Message::new("t", "").qos(1);
    message.properties = vec![crate::support::Property::user("", ""); 100_000];
    client.publish(&message);
    match client.receive() {
        Packet::Ack(_) | Packet::Disconnect(_) | Packet::Publish(_) => {}
        other => panic!("{other:?}"),
    }
    bystanders.notice_nothing();
}

fn every_ping_of_a_flood_is_answered(version: Version) {
    let broker = default_broker();
    let mut bystanders = Bystanders::new(&broker);
    let mut client = broker.client(version, "c");
    // Answers are not read for now: their number is bounded, and none is dropped.
    client.send(&[0xC0, 0].repeat(50_000));
    bystanders.notice_nothing();
    for _ in 0..50_000 {
        assert_eq!(client.receive(), Packet::Pingresp);
    }
    client.settle();
}
// 3.1.1 [MQTT-3.12.4-1]; 5.0 [MQTT-3.12.4-1]
versions!(every_ping_of_a_flood_is_answered: v311, v5);

fn publishes_to_the_brokers_own_topics_reach_nobody(version: Version) {
    let broker = start_broker(|config| config.sys.publish_interval = Duration::ZERO);
    let mut watcher = broker.client(version, "watcher");
    watcher.subscribe(&[("$SYS/#", 1), ("$dead/#", 1), ("$homing/#", 1), ("marker", 1)]);
    watcher.drain();
    let mut forger = broker.client(version, "forger");
    for topic in
        ["$SYS/broker/version", "$SYS/x", "$dead/c/t", "$homing/other", "$delayed/soon/t", "$delayed/5"]
    {
        for qos in [0, 1, 2] {
            let code = forger.deliver(&Message::new(topic, "forged").qos(qos).retained());
            assert!(
                version != V5 || qos == 0 || matches!(code, 0x87 | 0x90),
                "{topic} at QoS {qos}: 0x{code:02X}"
            );
        }
    }
    forger.deliver(&Message::new("marker", "").qos(1));
    assert_eq!(watcher.expect_publish().topic, "marker");
}
versions!(publishes_to_the_brokers_own_topics_reach_nobody: v311, v5);
