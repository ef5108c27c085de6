//! Retained messages: 3.3.1.3 and the subscription options that concern them.

use super::cases;
use super::stage::Stage;
use crate::harness::Target;
use crate::support::{Connect, Property, RawClient, V5};
use std::time::Duration;

cases! {
    retained_message_replaces_the_older_one: ["MQTT-3.3.1-5"],
    empty_retained_message_is_delivered_and_erases: ["MQTT-3.3.1-6"],
    empty_payload_is_not_kept: ["MQTT-3.3.1-7"],
    message_without_retain_leaves_the_store_alone: ["MQTT-3.3.1-8"],
    retain_handling_0_sends_at_each_subscribe: ["MQTT-3.3.1-9"],
    retain_handling_1_sends_for_a_new_subscription_only: ["MQTT-3.3.1-10"],
    retain_handling_2_sends_none: ["MQTT-3.3.1-11"],
    retain_as_published_0_clears_retain: ["MQTT-3.3.1-12"],
    retain_as_published_1_keeps_retain: ["MQTT-3.3.1-13"],
    retained_message_expires: [],
    shared_subscription_brings_no_retained_messages: [],
    retained_message_names_the_subscription_that_asked: [],
    will_with_retain_is_refused_where_nothing_is_retained: ["MQTT-3.2.2-13"],
    publish_with_retain_is_a_violation_where_nothing_is_retained: ["MQTT-3.2.2-14"],
}

const RETAIN_AS_PUBLISHED: u8 = 0x08;
const RETAIN_HANDLING: [u8; 3] = [0x00, 0x10, 0x20];

/// Returns the retained messages that a SUBSCRIBE brings.
fn texts(client: &mut RawClient) -> Vec<String> {
    client.drain().iter().map(|publish| publish.text().to_owned()).collect()
}

const RETAIN_NOT_SUPPORTED: u8 = 0x9A;

/// A broker that retains nothing.
fn without_retained(stage: &Stage) -> Target {
    stage.configured(|config| config.limits.retained_messages = 0)
}

/// Connects, and asserts that CONNACK has Retain Available 0.
fn told_unavailable(target: &Target, connect: &Connect) -> RawClient {
    let mut client = target.open(V5);
    client.send(&connect.encode());
    let connack = client.expect_connack();
    assert_eq!((connack.code, connack.properties.contains(&Property::RetainAvailable(0))), (0, true));
    client.settle();
    client
}

fn will_with_retain_is_refused_where_nothing_is_retained(stage: &Stage) {
    let target = without_retained(stage);
    let will = || stage.will("will", "x");
    told_unavailable(&target, &stage.passing("plain").will(will()));
    let mut client = target.open(V5);
    client.send(&stage.passing("c").will(will().retained()).encode());
    assert_eq!(client.expect_connack().code, RETAIN_NOT_SUPPORTED);
    assert_eq!(client.read_to_end(), []);
}

fn publish_with_retain_is_a_violation_where_nothing_is_retained(stage: &Stage) {
    let target = without_retained(stage);
    for qos in [0, 1, 2] {
        let mut client = told_unavailable(&target, &stage.passing("c"));
        client.deliver(&stage.message("t", "x").qos(qos));
        client.publish(&stage.message("t", "x").qos(qos).retained());
        client.expect_disconnected(RETAIN_NOT_SUPPORTED);
    }
}

fn retained_message_replaces_the_older_one(stage: &Stage) {
    for qos in [0, 1, 2] {
        for text in ["first", "second"] {
            let mut publisher = stage.client("p");
            publisher.deliver(&stage.message("t", format!("{text}{qos}")).qos(qos).retained());
            publisher.settle();
        }
        assert_eq!(stage.retained("t"), [format!("second{qos}")]);
    }
    stage.deliver(&stage.message("u", "other").qos(1).retained());
    assert_eq!(stage.retained("t"), ["second2"]);
}

fn empty_retained_message_is_delivered_and_erases(stage: &Stage) {
    let mut live = stage.subscriber("s", "t", 1);
    for text in ["kept", ""] {
        stage.deliver(&stage.message("t", text).qos(1).retained());
        let publish = live.expect_publish();
        assert_eq!(publish.text(), text);
        live.complete(&publish);
        let kept: &[&str] = if text.is_empty() { &[] } else { &["kept"] };
        assert_eq!(stage.retained("t"), kept);
    }
}

fn empty_payload_is_not_kept(stage: &Stage) {
    stage.deliver(&stage.message("t", "").qos(1).retained());
    stage.deliver(&stage.message("t/control", "kept").qos(1).retained());
    assert_eq!(stage.retained("#"), ["kept"]);
}

fn message_without_retain_leaves_the_store_alone(stage: &Stage) {
    stage.deliver(&stage.message("t", "kept").qos(1).retained());
    stage.deliver(&stage.message("t", "passing").qos(1));
    stage.deliver(&stage.message("t", "").qos(1));
    stage.deliver(&stage.message("u", "passing").qos(1));
    assert_eq!(stage.retained("#"), ["kept"]);
}

fn retain_handling_0_sends_at_each_subscribe(stage: &Stage) {
    stage.deliver(&stage.message("a", "a").qos(1).retained());
    stage.deliver(&stage.message("b", "b").qos(1).retained());
    let mut client = stage.client("c");
    for _ in 0..3 {
        client.subscribe(&[(&stage.topic("+"), RETAIN_HANDLING[0])]);
        let mut found = texts(&mut client);
        found.sort();
        assert_eq!(found, ["a", "b"]);
    }
}

fn retain_handling_1_sends_for_a_new_subscription_only(stage: &Stage) {
    stage.deliver(&stage.message("t", "kept").qos(1).retained());
    let mut client = stage.connect(&stage.lasting("c"));
    let subscribe = |client: &mut RawClient, qos: u8| {
        client.subscribe(&[(&stage.topic("t"), RETAIN_HANDLING[1] | qos)]);
        let found = client.drain();
        found.iter().for_each(|publish| client.complete(publish));
        found.len()
    };
    assert_eq!(subscribe(&mut client, 0), 1);
    // With other options it is the same subscription.
    assert_eq!(subscribe(&mut client, 0), 0);
    assert_eq!(subscribe(&mut client, 1), 0);
    client.disconnect();
    // So it is for a session taken up.
    let mut client = stage.connect(&stage.lasting("c"));
    assert_eq!(subscribe(&mut client, 1), 0);
    client.unsubscribe(&[&stage.topic("t")]);
    assert_eq!(subscribe(&mut client, 1), 1);
}

fn retain_handling_2_sends_none(stage: &Stage) {
    stage.deliver(&stage.message("t", "kept").qos(1).retained());
    assert_eq!(stage.retained("t"), ["kept"]);
    let mut client = stage.client("c");
    for _ in 0..2 {
        client.subscribe(&[(&stage.topic("t"), RETAIN_HANDLING[2])]);
        client.settle();
    }
    stage.deliver(&stage.message("t", "live").qos(1));
    assert_eq!(client.expect_publish().text(), "live");
}

/// Returns RETAIN of a live retained message, of a live ordinary one, and of the retained one for a
/// new subscription. The last is always 1.
fn flags(stage: &Stage, options: u8) -> [bool; 3] {
    let mut client = stage.subscriber("c", "t", options);
    let mut publisher = stage.client("p");
    publisher.deliver(&stage.message("t", "retained").qos(1).retained());
    let retained = client.expect_publish().retain;
    publisher.deliver(&stage.message("t", "passing").qos(1));
    let passing = client.expect_publish().retain;
    client.subscribe(&[(&stage.topic("t"), options)]);
    [retained, passing, client.expect_publish().retain]
}

fn retain_as_published_0_clears_retain(stage: &Stage) {
    assert_eq!(flags(stage, 0), [false, false, true]);
}

fn retain_as_published_1_keeps_retain(stage: &Stage) {
    assert_eq!(flags(stage, RETAIN_AS_PUBLISHED), [true, false, true]);
}

fn retained_message_expires(stage: &Stage) {
    stage.deliver(&stage.message("t/short", "short").qos(1).retained().with(Property::MessageExpiry(2)));
    stage.deliver(&stage.message("t/long", "long").qos(1).retained().with(Property::MessageExpiry(100)));
    assert_eq!(stage.retained("t/+").len(), 2);
    // Only time can make it expire.
    stage.client("w").expect_nothing_for(Duration::from_millis(2400));
    assert_eq!(stage.retained("t/+"), ["long"]);
}

fn shared_subscription_brings_no_retained_messages(stage: &Stage) {
    stage.deliver(&stage.message("t", "kept").qos(1).retained());
    let mut client = stage.client("c");
    assert_eq!(client.subscribe(&[(&format!("$share/g/{}", stage.topic("t")), 1)]), [1]);
    client.settle();
    assert_eq!(stage.retained("t"), ["kept"]);
}

fn retained_message_names_the_subscription_that_asked(stage: &Stage) {
    stage.deliver(&stage.message("t", "kept").qos(1).retained());
    let mut client = stage.client("c");
    client.subscribe_with(&[Property::SubscriptionId(9)], &[(&stage.topic("#"), 0x20)]);
    client.subscribe_with(&[Property::SubscriptionId(7)], &[(&stage.topic("t"), 0)]);
    assert_eq!(client.expect_publish().subscription_ids(), [7]);
    client.settle();
}
