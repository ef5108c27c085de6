//! Retained messages: chapter 3.3.1 (RETAIN).

use super::cases;
use crate::harness::Target;
use crate::support::{Message, Publish, RawClient, V311, Version};

cases! {
    v311 {
        new_subscription_receives_the_latest_of_each_matching_topic: ["MQTT-3.3.1-6"],
        retained_qos_0_displaces_what_was_retained: ["MQTT-3.3.1-7"],
        retain_is_1_for_a_fresh_subscription_and_0_for_a_live_delivery: ["MQTT-3.3.1-8", "MQTT-3.3.1-9"],
        empty_message_is_never_kept: ["MQTT-3.3.1-11"],
        message_without_retain_leaves_the_retained_one: ["MQTT-3.3.1-12"],
    }
    v311_and_v31 {
        retained_message_and_its_qos_are_kept_for_later_subscribers: ["MQTT-3.3.1-5"],
        empty_retained_message_is_delivered_and_erases: ["MQTT-3.3.1-10"],
    }
}

/// Returns the retained messages that a new client gets for a filter.
fn kept(broker: &Target, version: Version, filter: &str) -> Vec<Publish> {
    let mut newcomer = broker.client(version, "newcomer");
    newcomer.subscribe(&[(filter, 2)]);
    let kept = newcomer.drain();
    newcomer.vanish();
    assert!(kept.iter().all(|publish| publish.retain), "{kept:?}");
    kept
}

fn texts(publishes: &[Publish]) -> Vec<(&str, u8)> {
    publishes.iter().map(|publish| (publish.text(), publish.qos)).collect()
}

fn publisher(broker: &Target) -> (RawClient, String) {
    (broker.client(V311, "p"), broker.topic("t"))
}

fn retained_message_and_its_qos_are_kept_for_later_subscribers(broker: &Target, version: Version) {
    let (mut publisher, topic) = publisher(broker);
    for qos in [0, 1, 2] {
        publisher.deliver(&Message::new(&topic, "kept").qos(qos).retained());
        // QoS 0 is no barrier.
        publisher.settle();
        assert_eq!(texts(&kept(broker, version, &topic)), [("kept", qos)]);
    }
}

fn new_subscription_receives_the_latest_of_each_matching_topic(broker: &Target) {
    let mut publisher = broker.client(V311, "p");
    for payload in ["old", "latest"] {
        for name in ["a", "a/b", "a/b/c", "d"] {
            publisher.deliver(&Message::new(broker.topic(name), payload).qos(1).retained());
        }
    }
    for (filter, matching) in [
        ("a", &["a"][..]),
        ("+", &["a", "d"]),
        ("a/#", &["a", "a/b", "a/b/c"]),
        ("+/b/#", &["a/b", "a/b/c"]),
        ("#", &["a", "a/b", "a/b/c", "d"]),
        ("e/#", &[]),
    ] {
        let kept = kept(broker, V311, &broker.topic(filter));
        assert!(kept.iter().all(|publish| publish.text() == "latest"), "{kept:?}");
        let mut topics: Vec<String> = kept.into_iter().map(|publish| publish.topic).collect();
        topics.sort();
        assert_eq!(topics, matching.iter().map(|name| broker.topic(name)).collect::<Vec<_>>(), "{filter}");
    }
}

fn retained_qos_0_displaces_what_was_retained(broker: &Target) {
    let (mut publisher, topic) = publisher(broker);
    publisher.deliver(&Message::new(&topic, "first").qos(2).retained());
    assert_eq!(texts(&kept(broker, V311, &topic)), [("first", 2)]);
    publisher.publish(&Message::new(&topic, "second").retained());
    publisher.settle();
    // It may be forgotten at any time; the first may not come back.
    let kept = kept(broker, V311, &topic);
    assert!(matches!(texts(&kept)[..], [("second", 0)] | []), "{kept:?}");
}

fn retain_is_1_for_a_fresh_subscription_and_0_for_a_live_delivery(broker: &Target) {
    let (mut publisher, topic) = publisher(broker);
    let mut live = broker.client(V311, "live");
    live.subscribe(&[(&topic, 2)]);
    for qos in [0, 1, 2] {
        publisher.deliver(&Message::new(&topic, "x").qos(qos).retained());
        let publish = live.expect_publish();
        assert_eq!((publish.retain, publish.qos), (false, qos));
        live.complete(&publish);
        let mut fresh = broker.client(V311, "fresh");
        fresh.subscribe(&[(&topic, 2)]);
        let publish = fresh.expect_publish();
        assert_eq!((publish.retain, publish.qos), (true, qos));
        fresh.vanish();
    }
    live.settle();
}

fn empty_retained_message_is_delivered_and_erases(broker: &Target, version: Version) {
    let (mut publisher, topic) = publisher(broker);
    for qos in [0, 1, 2] {
        publisher.deliver(&Message::new(&topic, "kept").qos(1).retained());
        let mut live = broker.client(version, "live");
        live.subscribe(&[(&topic, 2)]);
        let publish = live.expect_publish();
        assert_eq!((publish.retain, publish.text()), (true, "kept"));
        live.complete(&publish);
        publisher.deliver(&Message::new(&topic, "").qos(qos).retained());
        let publish = live.expect_publish();
        assert_eq!((publish.retain, publish.text(), publish.qos), (false, "", qos));
        live.complete(&publish);
        assert!(kept(broker, version, &topic).is_empty());
        live.disconnect();
    }
}

fn empty_message_is_never_kept(broker: &Target) {
    let (mut publisher, topic) = publisher(broker);
    let neighbour = broker.topic("u");
    publisher.deliver(&Message::new(&neighbour, "kept").qos(1).retained());
    for qos in [1, 2] {
        publisher.deliver(&Message::new(&topic, "").qos(qos).retained());
        assert_eq!(texts(&kept(broker, V311, &broker.topic("+"))), [("kept", 1)]);
    }
}

fn message_without_retain_leaves_the_retained_one(broker: &Target) {
    let (mut publisher, topic) = publisher(broker);
    publisher.deliver(&Message::new(&topic, "not kept").qos(1));
    assert!(kept(broker, V311, &topic).is_empty());
    publisher.deliver(&Message::new(&topic, "kept").qos(1).retained());
    for payload in ["other", ""] {
        for qos in [0, 1, 2] {
            publisher.deliver(&Message::new(&topic, payload).qos(qos));
            publisher.settle();
            assert_eq!(texts(&kept(broker, V311, &topic)), [("kept", 1)]);
        }
    }
}
