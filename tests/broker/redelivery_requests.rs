//! Redelivery requests: a client's own retry interval or ack timeout, within the operator's bounds.

use crate::support::launch::{
    TestBroker, on_configured_threads, on_one_and_three_threads, start_broker, versions,
};
use crate::support::{Connect, Kind, Message, Property, RawClient, V5, Version, now};
use homing::config::Config;
use std::time::Duration;

const REQUESTED: Duration = Duration::from_millis(600);
const BUCKET: Duration = Duration::from_millis(250);
/// Lateness that a busy machine may add.
const TOLERANCE: Duration = Duration::from_millis(500);
/// The broker counts whole milliseconds.
const GRANULARITY: Duration = Duration::from_millis(5);

fn bounds(config: &mut Config) {
    config.redelivery.min_requested = Duration::from_millis(500);
    config.redelivery.jitter = 0.0;
}

fn asking(broker: &TestBroker, pairs: &[(&str, &str)]) -> RawClient {
    let asked = pairs.iter().map(|(name, text)| Property::user(name, text));
    broker.connect(&asked.fold(Connect::persistent(V5, "s"), Connect::with))
}

fn answers(client: &RawClient) -> Vec<(&str, &str)> {
    let mut pairs = Vec::new();
    for property in &client.connack().properties {
        if let Property::User(name, value) = property {
            pairs.push((name.as_str(), value.as_str()));
        }
    }
    pairs
}

/// Returns the times that hold for the client, as it reads them from `$homing/session/granted`.
fn granted(client: &mut RawClient) -> String {
    client.subscribe(&[("$homing/session/granted", 0)]);
    let publish = client.expect_publish();
    assert_eq!((publish.topic.as_str(), publish.retain), ("$homing/session/granted", true));
    publish.text().to_owned()
}

#[test]
fn connack_reports_what_is_granted() {
    let broker = start_broker(bounds);
    for (asked, granted) in [
        ("5s", "5s"),
        ("1500ms", "1500ms"),
        ("off", "off"),
        ("1ms", "500ms"),
        ("9h", "1h"),
        // Unreadable: what held before goes on.
        ("soon", "1h"),
        ("", "1h"),
    ] {
        assert_eq!(
            answers(&asking(&broker, &[("ack-timeout", asked)])),
            [("ack-timeout", granted)],
            "{asked}"
        );
    }
    let client = asking(&broker, &[("retry-interval", "5s"), ("other", "x"), ("ack-timeout", "2s")]);
    assert_eq!(answers(&client), [("retry-interval", "off"), ("ack-timeout", "2s")]);
    // It lasts with the session; a client that does not ask gets no answer.
    let mut client = asking(&broker, &[]);
    assert_eq!(answers(&client), []);
    assert_eq!(granted(&mut client), "ack-timeout=2s");
    let mut afresh = broker.connect(&Connect::persistent(V5, "s").clean(true));
    assert_eq!(granted(&mut afresh), "ack-timeout=1m");
}

// 5.0 [MQTT-3.2.2-20]
#[test]
fn v5_answer_that_exceeds_maximum_packet_size_is_left_out() {
    let broker = start_broker(bounds);
    let connect = Connect::persistent(V5, "s").with(Property::MaximumPacketSize(30));
    let client = broker.connect(&connect.with(Property::user("ack-timeout", "5s")));
    assert_eq!(answers(&client), []);
}

#[test]
fn request_in_connect_sets_the_ack_timeout() {
    on_one_and_three_threads(|_| {
        let broker = start_broker(bounds);
        let mut subscriber = asking(&broker, &[("ack-timeout", "600ms")]);
        subscriber.subscribe(&[("t", 1)]);
        let published = now();
        broker.client(V5, "p").deliver(&Message::new("t", "x").qos(1));
        let first = subscriber.expect_publish();
        subscriber.wait_for(Kind::Disconnect);
        let at = now();
        assert!(at - published + GRANULARITY >= REQUESTED, "{:?}", at - published);
        assert!(at - first.at <= REQUESTED + BUCKET + TOLERANCE, "{:?}", at - first.at);
    });
}

fn published_request_sets_the_spacing_of_ones_own_resends(version: Version) {
    on_configured_threads(bounds, |broker| {
        let mut other = broker.client(version, "other");
        other.subscribe(&[("t", 1), ("$homing/session/#", 1)]);
        let mut subscriber = broker.persistent(version, "s");
        subscriber.subscribe(&[("t", 1)]);
        subscriber.deliver(&Message::new("$homing/session/retry-interval", "600ms").qos(1).retained());
        // A second session cannot be asked for, nor what does not read as a duration.
        subscriber.deliver(&Message::new("$homing/session/retry-interval", "often").qos(1));
        assert_eq!(granted(&mut subscriber), "retry-interval=600ms");
        assert_eq!(granted(&mut other), "retry-interval=15s");
        let published = now();
        broker.client(version, "p").deliver(&Message::new("t", "x").qos(1));
        let first = subscriber.expect_publish();
        let again = subscriber.expect_publish();
        assert!(again.dup && again.id == first.id, "{again:?}");
        assert!(again.at - published + GRANULARITY >= REQUESTED, "{:?}", again.at - published);
        assert!(again.at - first.at <= REQUESTED + BUCKET + TOLERANCE, "{:?}", again.at - first.at);
        // It was nobody else's, was not routed, and is not retained.
        assert_eq!(other.expect_publish().topic, "t");
        other.settle();
        // It lasts with the session.
        subscriber.vanish();
        let mut subscriber = broker.persistent(version, "s");
        let again = subscriber.expect_publish();
        subscriber.complete(&again);
        assert_eq!(granted(&mut subscriber), "retry-interval=600ms");
    });
}
versions!(published_request_sets_the_spacing_of_ones_own_resends: v31, v311);

#[test]
fn published_request_sets_the_ack_timeout_and_an_unreadable_one_is_refused() {
    let broker = start_broker(bounds);
    let mut subscriber = broker.persistent(V5, "s");
    subscriber.subscribe(&[("t", 1)]);
    for qos in [1, 2] {
        let deliver = |client: &mut RawClient, text| {
            client.deliver(&Message::new("$homing/session/ack-timeout", text).qos(qos))
        };
        assert_eq!(deliver(&mut subscriber, "x"), 0x99);
        assert_eq!(deliver(&mut subscriber, "600ms"), 0);
    }
    // Other topics there are the broker's own.
    assert_eq!(subscriber.deliver(&Message::new("$homing/session/granted", "1s").qos(1)), 0x87);
    assert_eq!(granted(&mut subscriber), "ack-timeout=600ms");
    broker.client(V5, "p").deliver(&Message::new("t", "x").qos(1));
    let first = subscriber.expect_publish();
    subscriber.expect_disconnected(0x97);
    assert!(now() - first.at <= REQUESTED + BUCKET + TOLERANCE);
}
