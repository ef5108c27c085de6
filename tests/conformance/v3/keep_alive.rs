//! Keep alive: chapters 3.1.2 and 3.12.

use super::cases;
use crate::harness::Target;
use crate::support::{Connect, Kind, Message, V311, Version, Will, now};
use std::time::Duration;

cases! {
    v311 {
        client_that_only_receives_is_disconnected: ["MQTT-3.1.2-24"],
    }
    v311_and_v31 {
        keep_alive_0_is_never_disconnected: ["MQTT-3.1.2-24"],
        silent_client_is_disconnected_after_one_and_a_half_times_its_keep_alive: ["MQTT-3.1.2-24"],
        pingreq_is_answered: ["MQTT-3.12.4-1"],
    }
}

/// One expiry interval, and what a busy machine may add.
const LATENESS: Duration = Duration::from_millis(250 + 1250);

/// A client that pings stays connected. A silent one is disconnected, neither early nor late, and
/// its will is sent.
fn silent_client_is_disconnected_after_one_and_a_half_times_its_keep_alive(
    broker: &Target,
    version: Version,
) {
    let topic = broker.topic("will");
    let mut watcher = broker.client(version, "watcher");
    watcher.subscribe(&[(&topic, 0)]);
    let mut pinging = broker.connect(&Connect::new(version, &broker.id("pinging")).keep_alive(1));
    let will = Will::new(&topic, "silent");
    let before = now();
    let mut silent = broker.connect(&Connect::new(version, &broker.id("silent")).keep_alive(1).will(will));
    for _ in 0..3 {
        pinging.settle();
        pinging.expect_nothing_for(Duration::from_millis(400));
    }
    pinging.settle();
    silent.expect_closed();
    let passed = before.elapsed();
    assert!(passed >= Duration::from_millis(1495), "early: {passed:?}");
    assert!(passed <= Duration::from_millis(1500) + LATENESS, "late: {passed:?}");
    assert_eq!(watcher.expect_publish().text(), "silent");
    pinging.settle();
}

fn client_that_only_receives_is_disconnected(broker: &Target) {
    let topic = broker.topic("t");
    let mut receiver = broker.connect(&Connect::new(V311, &broker.id("r")).keep_alive(1));
    receiver.subscribe(&[(&topic, 0)]);
    let since = now();
    let mut publisher = broker.client(V311, "p");
    while since.elapsed() < Duration::from_millis(1200) {
        publisher.deliver(&Message::new(&topic, "x").qos(1));
        publisher.expect_nothing_for(Duration::from_millis(50));
    }
    assert!(!receiver.read_to_end().is_empty());
    assert!(since.elapsed() <= Duration::from_millis(1500) + LATENESS, "late: {:?}", since.elapsed());
}

fn keep_alive_0_is_never_disconnected(broker: &Target, version: Version) {
    let mut client = broker.connect(&Connect::new(version, &broker.id("c")).keep_alive(0));
    client.settle();
    client.expect_nothing_for(Duration::from_secs(3));
    client.settle();
}

fn pingreq_is_answered(broker: &Target, version: Version) {
    let mut client = broker.client(version, "c");
    for _ in 0..3 {
        client.ping();
        client.expect_packet(Kind::Pingresp);
    }
    client.send(&[0xC0, 0].repeat(20));
    for _ in 0..20 {
        client.expect_packet(Kind::Pingresp);
    }
}
