//! The will: chapter 3.1.2 (will flag, QoS, retain) and 3.14.4.

use super::cases;
use crate::harness::Target;
use crate::support::wire::{self, Put};
use crate::support::{Connect, Message, RawClient, V311, Version, Will};

cases! {
    v311 {
        will_goes_out_after_a_protocol_violation: ["MQTT-3.1.2-8"],
        will_goes_out_when_another_connection_takes_over: ["MQTT-3.1.2-8"],
        will_qos_is_applied: ["MQTT-3.1.2-9"],
        will_flag_without_will_fields_is_closed: ["MQTT-3.1.2-9"],
        will_never_goes_out_twice: ["MQTT-3.1.2-10"],
        will_fields_without_will_flag_are_closed: ["MQTT-3.1.2-11"],
        without_will_flag_nothing_goes_out: ["MQTT-3.1.2-12"],
        will_qos_without_will_flag_is_closed: ["MQTT-3.1.2-11", "MQTT-3.1.2-13"],
        will_retain_without_will_flag_is_closed: ["MQTT-3.1.2-11", "MQTT-3.1.2-15"],
        will_without_retain_is_not_kept: ["MQTT-3.1.2-16"],
        will_with_retain_is_kept_for_later_subscribers: ["MQTT-3.1.2-17"],
    }
    v311_and_v31 {
        will_goes_out_when_the_connection_breaks: ["MQTT-3.1.2-8"],
        will_qos_3_is_closed: ["MQTT-3.1.2-14"],
        disconnect_discards_the_will: ["MQTT-3.14.4-3", "MQTT-3.1.2-10"],
    }
}

/// Someone who waits for the will at QoS 2, and the topic that it comes to.
fn watcher(broker: &Target, version: Version) -> (RawClient, String) {
    let topic = broker.topic("will");
    let mut watcher = broker.client(version, "watcher");
    assert_eq!(watcher.subscribe(&[(&topic, 2)]), [2]);
    (watcher, topic)
}

fn with_will(broker: &Target, version: Version, will: Will) -> RawClient {
    broker.connect(&Connect::new(version, &broker.id("mortal")).will(will))
}

/// Nothing has come but what is published now.
fn expect_marker_next(broker: &Target, watcher: &mut RawClient, topic: &str) {
    broker.client(V311, "marker").deliver(&Message::new(topic, "marker").qos(1));
    let publish = watcher.expect_publish();
    assert_eq!(publish.text(), "marker");
    watcher.complete(&publish);
}

fn will_goes_out_when_the_connection_breaks(broker: &Target, version: Version) {
    let (mut watcher, topic) = watcher(broker, version);
    let client = with_will(broker, version, Will::new(&topic, "gone"));
    expect_marker_next(broker, &mut watcher, &topic);
    client.vanish();
    let will = watcher.expect_publish();
    assert_eq!((will.topic.as_str(), will.text(), will.qos, will.retain), (topic.as_str(), "gone", 0, false));
}

fn will_goes_out_after_a_protocol_violation(broker: &Target) {
    let (mut watcher, topic) = watcher(broker, V311);
    let mut client = with_will(broker, V311, Will::new(&topic, "gone"));
    client.send(&[0xF0, 0]);
    client.expect_closed();
    assert_eq!(watcher.expect_publish().text(), "gone");
}

fn will_goes_out_when_another_connection_takes_over(broker: &Target) {
    let (mut watcher, topic) = watcher(broker, V311);
    let mut first = with_will(broker, V311, Will::new(&topic, "gone"));
    let mut second = broker.client(V311, "mortal");
    first.expect_closed();
    assert_eq!(watcher.expect_publish().text(), "gone");
    second.settle();
}

fn will_qos_is_applied(broker: &Target) {
    let (mut watcher, topic) = watcher(broker, V311);
    for qos in [0, 1, 2] {
        with_will(broker, V311, Will::new(&topic, "gone").qos(qos)).vanish();
        let will = watcher.expect_publish();
        assert_eq!((will.qos, will.text()), (qos, "gone"));
        watcher.complete(&will);
    }
}

fn will_flag_without_will_fields_is_closed(broker: &Target) {
    let (mut watcher, topic) = watcher(broker, V311);
    with_will(broker, V311, Will::new(&topic, "")).vanish();
    assert_eq!(watcher.expect_publish().text(), "");
    // Neither of the two, then a topic alone.
    broker.closes_unanswered(V311, &Connect::new(V311, &broker.id("c")).flags(0x04).encode());
    let mut body = Vec::new();
    body.put_binary(b"MQTT");
    body.extend_from_slice(&[4, 0x06, 0, 60]);
    body.put_binary(broker.id("c").as_bytes());
    body.put_binary(topic.as_bytes());
    broker.closes_unanswered(V311, &wire::packet(0x10, &body));
}

fn will_never_goes_out_twice(broker: &Target) {
    let (mut watcher, topic) = watcher(broker, V311);
    let id = broker.id("mortal");
    broker.connect(&Connect::persistent(V311, &id).will(Will::new(&topic, "gone").qos(1))).vanish();
    let will = watcher.expect_publish();
    assert_eq!(will.text(), "gone");
    watcher.complete(&will);
    // The session is taken up without a will, and its connection breaks again.
    let client = broker.connect(&Connect::persistent(V311, &id));
    assert!(client.session_present());
    client.vanish();
    expect_marker_next(broker, &mut watcher, &topic);
}

/// The will's fields are then left over behind the payload.
fn will_fields_without_will_flag_are_closed(broker: &Target) {
    let connect = |flags: u8| {
        let mut body = Vec::new();
        body.put_binary(b"MQTT");
        body.extend_from_slice(&[4, flags, 0, 60]);
        for field in [broker.id("c"), broker.topic("will"), "gone".to_owned()] {
            body.put_binary(field.as_bytes());
        }
        wire::packet(0x10, &body)
    };
    let mut client = broker.open(V311);
    client.send(&connect(0x06));
    assert_eq!(client.expect_connack().code, 0);
    client.settle();
    client.disconnect();
    broker.closes_unanswered(V311, &connect(0x02));
}

fn without_will_flag_nothing_goes_out(broker: &Target) {
    // Whatever topic it might invent: this broker is ours alone.
    let broker = broker.alone();
    let mut watcher = broker.client(V311, "watcher");
    watcher.subscribe(&[("#", 2)]);
    broker.client(V311, "c").vanish();
    let mut user = broker.connect(&Connect::new(V311, &broker.id("u")).user_name("u").password(b"p"));
    user.settle();
    user.vanish();
    expect_marker_next(&broker, &mut watcher, &broker.topic("t"));
}

fn will_qos_without_will_flag_is_closed(broker: &Target) {
    let connect = Connect::new(V311, &broker.id("c"));
    broker.connect(&connect).settle();
    for qos in [0x08, 0x10, 0x18] {
        broker.closes_unanswered(V311, &connect.clone().flags(qos).encode());
    }
}

fn will_qos_3_is_closed(broker: &Target, version: Version) {
    for qos in [0, 1, 2] {
        let mut client = with_will(broker, version, Will::new(broker.topic("will"), "gone").qos(qos));
        client.settle();
        client.disconnect();
    }
    let connect = Connect::new(version, &broker.id("c")).will(Will::new(broker.topic("will"), "gone").qos(3));
    broker.closes_unanswered(version, &connect.encode());
}

fn will_retain_without_will_flag_is_closed(broker: &Target) {
    let connect = Connect::new(V311, &broker.id("c"));
    broker.connect(&connect).settle();
    broker.closes_unanswered(V311, &connect.flags(0x20).encode());
}

fn will_without_retain_is_not_kept(broker: &Target) {
    let (mut watcher, topic) = watcher(broker, V311);
    with_will(broker, V311, Will::new(&topic, "gone").qos(1)).vanish();
    let will = watcher.expect_publish();
    assert_eq!((will.text(), will.retain), ("gone", false));
    let mut late = broker.client(V311, "late");
    late.subscribe(&[(&topic, 2)]);
    late.settle();
}

fn will_with_retain_is_kept_for_later_subscribers(broker: &Target) {
    let (mut watcher, topic) = watcher(broker, V311);
    with_will(broker, V311, Will::new(&topic, "gone").qos(1).retained()).vanish();
    let will = watcher.expect_publish();
    assert_eq!((will.text(), will.retain), ("gone", false));
    let mut late = broker.client(V311, "late");
    late.subscribe(&[(&topic, 2)]);
    let kept = late.expect_publish();
    assert_eq!((kept.text(), kept.retain, kept.qos), ("gone", true, 1));
}

fn disconnect_discards_the_will(broker: &Target, version: Version) {
    let (mut watcher, topic) = watcher(broker, version);
    // The will of a connection that breaks shows that wills work.
    with_will(broker, version, Will::new(&topic, "gone")).vanish();
    assert_eq!(watcher.expect_publish().text(), "gone");
    with_will(broker, version, Will::new(&topic, "left").qos(2).retained()).disconnect();
    expect_marker_next(broker, &mut watcher, &topic);
    let mut late = broker.client(version, "late");
    late.subscribe(&[(&topic, 2)]);
    late.settle();
}
