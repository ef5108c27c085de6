//! Deadlines of a connection: keep alive, CONNECT, and a socket that takes no bytes.

use crate::support::client::Event;
use crate::support::launch::{
    default_broker, on_configured_threads, on_one_and_three_threads, start_broker, versions,
};
use crate::support::{Connect, Message, PATIENCE, Packet, RawClient, V5, V311, Version, Will, now};
use std::time::{Duration, Instant};

/// The broker may take its reading of the clock a little before we take ours.
const GRANULARITY: Duration = Duration::from_millis(5);
/// One expiry tick, and what a busy machine may add.
const LATENESS: Duration = Duration::from_millis(250 + 750);

fn assert_disconnected_after(client: &mut RawClient, since: Instant, time: Duration, code: u8) {
    client.expect_disconnected(code);
    let passed = since.elapsed();
    assert!(passed + GRANULARITY >= time, "early: {passed:?} of {time:?}");
    assert!(passed <= time + LATENESS, "late: {passed:?} of {time:?}");
}

fn keep_alive_counts_from_the_last_packet(version: Version) {
    let broker = default_broker();
    let mut client = broker.connect(&Connect::new(version, "c").keep_alive(1));
    client.expect_nothing_for(Duration::from_millis(700));
    let before = now();
    client.settle();
    assert_disconnected_after(&mut client, before, Duration::from_millis(1500), 0x8D);
}
// 3.1.1 [MQTT-3.1.2-24]; 5.0 [MQTT-3.1.2-22]
versions!(keep_alive_counts_from_the_last_packet: v311, v5);

fn any_packet_keeps_a_client_alive(version: Version) {
    on_one_and_three_threads(|broker| {
        let mut pinging = broker.connect(&Connect::new(version, "pinging").keep_alive(1));
        let mut publishing = broker.connect(&Connect::new(version, "publishing").keep_alive(1));
        for _ in 0..5 {
            pinging.settle();
            publishing.publish(&Message::new("t", ""));
            // 4 s in all, which is past every deadline of either's that would not move.
            pinging.expect_nothing_for(Duration::from_millis(800));
        }
        pinging.settle();
        publishing.settle();
    });
}
// 3.1.1 [MQTT-3.12.4-1], [MQTT-3.1.2-24]; 5.0 [MQTT-3.12.4-1], [MQTT-3.1.2-22]
versions!(any_packet_keeps_a_client_alive: v31, v311, v5);

fn bytes_that_make_no_packet_keep_nobody_alive(version: Version) {
    let broker = default_broker();
    let before = now();
    let mut client = broker.connect(&Connect::new(version, "c").keep_alive(1));
    // One byte every while, never a whole packet.
    client.send(&[0x30, 100, 0, 1]);
    for _ in 0..3 {
        client.expect_nothing_for(Duration::from_millis(300));
        client.send(b"t");
    }
    assert_disconnected_after(&mut client, before, Duration::from_millis(1500), 0x8D);
}
// 3.1.1 [MQTT-3.1.2-24]; 5.0 [MQTT-3.1.2-22]
versions!(bytes_that_make_no_packet_keep_nobody_alive: v311, v5);

fn a_flood_of_deliveries_does_not_keep_a_silent_client_alive(version: Version) {
    on_one_and_three_threads(|broker| {
        let before = now();
        let mut silent = broker.connect(&Connect::new(version, "silent").keep_alive(2));
        silent.subscribe(&[("t", 0)]);
        let subscribed = now();
        let mut publisher = broker.client(version, "p");
        let reason = loop {
            publisher.publish(&Message::new("t", "x"));
            match silent.next(now() + PATIENCE) {
                Event::Packet(Packet::Publish(_)) => {}
                Event::Packet(Packet::Disconnect(d)) => break Some(d.code),
                Event::Closed => break None,
                other => panic!("{other:?}"),
            }
            assert!(subscribed.elapsed() <= Duration::from_secs(3) + LATENESS, "kept alive by deliveries");
        };
        assert!(before.elapsed() + GRANULARITY >= Duration::from_secs(3), "early: {:?}", before.elapsed());
        assert_eq!(reason, (version == V5).then_some(0x8D));
    });
}
// 3.1.1 [MQTT-3.1.2-24]; 5.0 [MQTT-3.1.2-22]
versions!(a_flood_of_deliveries_does_not_keep_a_silent_client_alive: v31, v311, v5);

#[test]
fn a_longer_keep_alive_than_the_maximum_is_refused_in_3_1_1_and_replaced_in_5_0() {
    let broker = start_broker(|config| {
        config.keep_alive.maximum = Duration::from_secs(60);
        config.keep_alive.allow_never = false;
    });
    for (version, seconds, code) in [(V311, 60, 0), (V311, 61, 2), (V311, 0, 2), (V5, 61, 0), (V5, 0, 0)] {
        let mut client = broker.open(version);
        client.send(&Connect::new(version, "c").keep_alive(seconds).encode());
        assert_eq!(client.expect_connack().code, code, "{version:?} {seconds}");
    }
}

#[test]
fn connect_must_come_within_its_deadline() {
    let broker = start_broker(|config| config.network.connect_timeout = Duration::from_millis(500));
    let half = Connect::new(V5, "slow").encode();
    for bytes in [&[][..], &half[..1], &half[..half.len() - 1]] {
        let before = now();
        let mut client = broker.open(V5);
        client.send(bytes);
        assert!(client.read_to_end().is_empty());
        let passed = before.elapsed();
        assert!(passed + GRANULARITY >= Duration::from_millis(500), "early: {passed:?}");
        assert!(passed <= Duration::from_millis(500) + LATENESS, "late: {passed:?}");
    }
    // A client that has connected is free of this deadline.
    let mut client = broker.client(V5, "c");
    client.expect_nothing_for(Duration::from_millis(1000));
    client.settle();
}

#[test]
fn slow_loris_connect_is_disconnected_though_bytes_keep_coming() {
    let broker = start_broker(|config| config.network.connect_timeout = Duration::from_millis(500));
    let before = now();
    let mut client = broker.open(V5);
    // 20 bytes a second: each is something that came, none makes the CONNECT whole in time.
    for byte in Connect::new(V5, "a client identifier that takes its time").encode() {
        client.send(&[byte]);
        match client.next(now() + Duration::from_millis(50)) {
            Event::Silence => {}
            Event::Closed => break,
            Event::Packet(packet) => panic!("{packet:?} after {:?}", before.elapsed()),
        }
    }
    assert!(before.elapsed() <= Duration::from_millis(500) + LATENESS, "{:?}", before.elapsed());
}

/// The will shows when the client was disconnected: the client itself reads nothing.
fn client_that_reads_nothing_is_disconnected_and_others_notice_nothing(version: Version) {
    on_configured_threads(
        |config| config.network.write_timeout = Duration::from_secs(1),
        |broker| {
            let mut healthy = broker.client(version, "healthy");
            healthy.subscribe(&[("t", 1), ("gone", 0)]);
            let will = Will::new("gone", "");
            let mut stuck = broker.connect(&Connect::new(version, "stuck").keep_alive(0).will(will));
            stuck.subscribe(&[("t", 0)]);
            let mut publisher = broker.client(version, "p");
            let payload = vec![b'x'; 256 * 1024];
            let begun = now();
            // More than the kernel's buffers hold, until the broker has had enough.
            loop {
                publisher.deliver(&Message::new("t", &payload).qos(1));
                let publish = healthy.expect_publish();
                if publish.topic == "gone" {
                    break;
                }
                assert_eq!(publish.payload.len(), payload.len());
                healthy.complete(&publish);
                assert!(begun.elapsed() < PATIENCE, "a client that reads nothing stays connected");
            }
            assert!(begun.elapsed() + GRANULARITY >= Duration::from_secs(1), "early: {:?}", begun.elapsed());
        },
    );
}
versions!(client_that_reads_nothing_is_disconnected_and_others_notice_nothing: v311, v5);
