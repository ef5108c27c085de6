//! Properties of PUBLISH that the broker passes on (3.3.2.3), message expiry, and what it explains
//! to whom (3.1.2.11.7).

use super::cases;
use super::stage::{MALFORMED, Stage, publish_packet, string};
use super::utf8::NOT_UTF8;
use crate::support::client::subscribe_packet;
use crate::support::{Kind, Message, Packet, Property, V5};
use std::time::Duration;

cases! {
    payload_format_indicator_is_passed_on: ["MQTT-3.3.2-4"],
    response_topic_is_passed_on: ["MQTT-3.3.2-15"],
    correlation_data_is_passed_on: ["MQTT-3.3.2-16"],
    content_type_is_passed_on: ["MQTT-3.3.2-20"],
    all_user_properties_are_passed_on: ["MQTT-3.3.2-17"],
    user_properties_keep_their_order: ["MQTT-3.3.2-18"],
    response_topic_must_be_utf8: ["MQTT-3.3.2-13"],
    content_type_must_be_utf8: ["MQTT-3.3.2-19"],
    response_topic_has_no_wildcards: ["MQTT-3.3.2-14"],
    subscription_identifier_from_a_client_is_a_protocol_error: ["MQTT-3.3.4-6"],
    expired_message_is_deleted: ["MQTT-3.3.2-5"],
    delivered_expiry_is_less_the_time_spent_waiting: ["MQTT-3.3.2-6"],
    nothing_is_explained_to_a_client_that_does_not_want_it: ["MQTT-3.1.2-29"],
    payload_that_is_not_the_utf8_it_claims_is_refused_or_forwarded: [],
    payload_format_indicator_is_0_or_1: [],
}

/// Delivered at each QoS, kept as retained, and queued: what a receiver sees of these properties
/// each time.
fn assert_travel(stage: &Stage, properties: &[Property]) {
    let mut live = stage.subscriber("live", "t", 2);
    let mut away = stage.connect(&stage.lasting("away"));
    away.subscribe(&[(&stage.topic("t"), 2)]);
    away.disconnect();
    for qos in [0, 1, 2] {
        let message = stage.message("t", "text").qos(qos).retained();
        stage.deliver(&Message { properties: properties.to_vec(), ..message });
        let publish = live.expect_publish();
        assert_eq!(publish.properties, properties, "live at QoS {qos}");
        live.complete(&publish);
    }
    let mut late = stage.subscriber("late", "t", 0);
    assert_eq!(late.expect_publish().properties, properties, "retained");
    let mut away = stage.connect(&stage.lasting("away"));
    for _ in [1, 2] {
        let publish = away.expect_publish();
        assert_eq!(publish.properties, properties, "queued");
        away.complete(&publish);
    }
    // For the next: nothing is left.
    away.unsubscribe(&[&stage.topic("t")]);
    stage.deliver(&stage.message("t", "").qos(1).retained());
}

fn payload_format_indicator_is_passed_on(stage: &Stage) {
    for value in [0, 1] {
        assert_travel(stage, &[Property::PayloadFormat(value)]);
    }
    assert_travel(stage, &[]);
}

fn response_topic_is_passed_on(stage: &Stage) {
    assert_travel(stage, &[Property::ResponseTopic("reply/\u{E9}/to".to_owned())]);
}

fn correlation_data_is_passed_on(stage: &Stage) {
    assert_travel(stage, &[Property::CorrelationData(vec![0, 0xFF, 0xC3, 0x28])]);
    assert_travel(stage, &[Property::CorrelationData(Vec::new())]);
}

fn content_type_is_passed_on(stage: &Stage) {
    assert_travel(stage, &[Property::ContentType("text/plain; \u{E9}".to_owned())]);
    assert_travel(stage, &[Property::ContentType(String::new())]);
}

fn all_user_properties_are_passed_on(stage: &Stage) {
    let many: Vec<Property> = (0..100).map(|n| Property::user(&format!("name{n}"), &"v".repeat(n))).collect();
    assert_travel(stage, &many);
}

fn user_properties_keep_their_order(stage: &Stage) {
    let pairs = [("b", "1"), ("a", "2"), ("b", "0"), ("", ""), ("b", "1")];
    assert_travel(stage, &pairs.map(|(name, value)| Property::user(name, value)));
}

/// A string property that is checked, by its identifier.
fn assert_string_is_checked(stage: &Stage, id: u8, good: &str) {
    let mut subscriber = stage.subscriber("s", "t", 0);
    let publish = |bytes: &[u8]| publish_packet(&stage.topic("t"), &[&[id][..], &string(bytes)].concat());
    let mut control = stage.client("c");
    control.send(&publish(good.as_bytes()));
    assert_eq!(subscriber.expect_publish().properties.len(), 1);
    for bad in NOT_UTF8.into_iter().chain([&b"a\0b"[..]]) {
        stage.assert_disconnected(&publish(bad), &[MALFORMED], &format!("{bad:02X?}"));
    }
    subscriber.settle();
    control.settle();
}

fn response_topic_must_be_utf8(stage: &Stage) {
    assert_string_is_checked(stage, 0x08, "reply/\u{E9}");
}

fn content_type_must_be_utf8(stage: &Stage) {
    assert_string_is_checked(stage, 0x03, "\u{E9}+#");
}

fn response_topic_has_no_wildcards(stage: &Stage) {
    let mut subscriber = stage.subscriber("s", "t", 0);
    let message = |topic: &str| stage.message("t", "x").with(Property::ResponseTopic(topic.to_owned()));
    stage.deliver(&message("reply/to").qos(1));
    subscriber.expect_publish();
    for topic in ["#", "+", "reply/+", "reply/#", "a+b"] {
        stage.assert_disconnected(&message(topic).encode(V5, 0), &[0x81, 0x82, 0x90], topic);
    }
    subscriber.settle();
}

fn subscription_identifier_from_a_client_is_a_protocol_error(stage: &Stage) {
    let mut subscriber = stage.client("s");
    subscriber.subscribe_with(&[Property::SubscriptionId(3)], &[(&stage.topic("t"), 0)]);
    stage.deliver(&stage.message("t", "x").qos(1));
    assert_eq!(subscriber.expect_publish().subscription_ids(), [3]);
    let message = stage.message("t", "x").with(Property::SubscriptionId(3));
    stage.assert_disconnected(&message.encode(V5, 0), &[0x82], "from a client");
    subscriber.settle();
}

fn expiring(stage: &Stage, text: &str, seconds: u32) -> Message {
    stage.message("t", text).qos(1).with(Property::MessageExpiry(seconds))
}

fn expired_message_is_deleted(stage: &Stage) {
    let mut away = stage.connect(&stage.lasting("away"));
    away.subscribe(&[(&stage.topic("t"), 1)]);
    away.disconnect();
    // A message waits likewise for a connected client whose window is full.
    let mut slow = stage.connect(&stage.passing("slow").with(Property::ReceiveMaximum(1)));
    slow.subscribe(&[(&stage.topic("t"), 1)]);
    stage.deliver(&stage.message("t", "first").qos(1));
    stage.deliver(&expiring(stage, "expires", 1));
    stage.deliver(&expiring(stage, "stays", 100));
    let first = slow.expect_publish();
    // Only time can make it expire.
    slow.expect_nothing_for(Duration::from_millis(1400));
    slow.complete(&first);
    assert_eq!(slow.expect_publish().text(), "stays");
    let mut away = stage.connect(&stage.lasting("away"));
    let texts: Vec<String> =
        away.expect_publishes(2).iter().map(|publish| publish.text().to_owned()).collect();
    assert_eq!(texts, ["first", "stays"]);
    away.settle();
}

fn delivered_expiry_is_less_the_time_spent_waiting(stage: &Stage) {
    let mut live = stage.subscriber("live", "t", 1);
    let mut away = stage.connect(&stage.lasting("away"));
    away.subscribe(&[(&stage.topic("t"), 1)]);
    away.disconnect();
    stage.deliver(&expiring(stage, "x", 100).retained());
    let publish = live.expect_publish();
    assert!(matches!(publish.expiry(), Some(99 | 100)), "{publish:?}");
    live.complete(&publish);
    live.expect_nothing_for(Duration::from_millis(2100));
    for expiry in [
        stage.connect(&stage.lasting("away")).expect_publish().expiry(),
        stage.subscriber("late", "t", 1).expect_publish().expiry(),
    ] {
        assert!(matches!(expiry, Some(90..=98)), "{expiry:?}");
    }
}

/// Everything that a broker may want to explain, short of a DISCONNECT.
fn nothing_is_explained_to_a_client_that_does_not_want_it(stage: &Stage) {
    let mut client = stage.served(&stage.passing("c").with(Property::RequestProblem(0)));
    client.send(&subscribe_packet(V5, 100, &[], &[(&stage.topic("t"), 0), ("a#", 0)]));
    let mut seen = Vec::new();
    match client.receive() {
        Packet::Granted(suback) => seen.push(suback.properties),
        other => panic!("{other:?}"),
    }
    client.publish_as(&Message::new("$SYS/forged", "").qos(1), 101);
    seen.push(client.expect_ack(Kind::Puback, 101).properties);
    client.publish_as(&Message::new("$SYS/forged", "").qos(2), 102);
    seen.push(client.expect_ack(Kind::Pubrec, 102).properties);
    client.ack(Kind::Pubrel, 103);
    seen.push(client.expect_ack(Kind::Pubcomp, 103).properties);
    client.ack(Kind::Pubrec, 104);
    seen.push(client.expect_ack(Kind::Pubrel, 104).properties);
    client.send(&super::stage::unsubscribe_packet(105, &[], &[b"never/subscribed"]));
    match client.receive() {
        Packet::Granted(unsuback) => seen.push(unsuback.properties),
        other => panic!("{other:?}"),
    }
    assert!(seen.iter().all(Vec::is_empty), "{seen:?}");
    client.settle();
}

/// Checking the payload is optional; a broker that does not check forwards it.
fn payload_that_is_not_the_utf8_it_claims_is_refused_or_forwarded(stage: &Stage) {
    let mut subscriber = stage.subscriber("s", "t", 0);
    let mut publisher = stage.client("p");
    let message = stage.message("t", b"\xFF").qos(1).with(Property::PayloadFormat(1));
    let code = publisher.deliver(&message);
    assert!(matches!(code, 0 | 0x99), "0x{code:02X}");
    let forwarded = subscriber.drain().len();
    assert_eq!(forwarded, usize::from(code == 0));
}

fn payload_format_indicator_is_0_or_1(stage: &Stage) {
    let mut subscriber = stage.subscriber("s", "t", 0);
    stage.deliver(&stage.message("t", "x").qos(1).with(Property::PayloadFormat(1)));
    subscriber.expect_publish();
    let message = stage.message("t", "x").with(Property::PayloadFormat(2));
    stage.assert_disconnected(&message.encode(V5, 0), &[0x81, 0x82, 0x99], "2");
    subscriber.settle();
}
