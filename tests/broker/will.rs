//! Will Messages: when they go out, when they do not, and as what.

use crate::support::launch::{TestBroker, default_broker, on_one_and_three_threads, start_broker, versions};
use crate::support::{Connect, Message, Property, RawClient, V5, V311, Version, Will, now};
use std::time::Duration;

/// One expiry tick, and what a busy machine may add.
const LATENESS: Duration = Duration::from_millis(250 + 750);

fn observer(broker: &TestBroker, version: Version) -> RawClient {
    let mut observer = broker.client(version, "observer");
    observer.subscribe(&[("will/#", 2), ("marker", 1)]);
    observer
}

/// Nothing was published before this; asserted with a message that comes behind.
fn assert_no_will(observer: &mut RawClient, broker: &TestBroker) {
    broker.client(V311, "marker").deliver(&Message::new("marker", "").qos(1));
    let publish = observer.expect_publish();
    assert_eq!(publish.topic, "marker");
    observer.complete(&publish);
}

fn with_will(version: Version, id: &str) -> Connect {
    Connect::new(version, id).will(Will::new("will/t", "gone").qos(1))
}

fn will_goes_out_once_when_the_connection_breaks(version: Version) {
    on_one_and_three_threads(|broker| {
        let mut observer = observer(broker, version);
        for id in ["c0", "c1", "c2", "c3"] {
            for qos in [0, 1, 2] {
                let will = Will::new("will/t", id).qos(qos);
                broker.connect(&Connect::new(version, id).will(will)).vanish();
                let publish = observer.expect_publish();
                assert_eq!((publish.text(), publish.qos, publish.retain), (id, qos, false));
                observer.complete(&publish);
            }
        }
        // Once only, and not retained.
        assert_no_will(&mut observer, broker);
        observer.subscribe(&[("will/#", 0)]);
        observer.settle();
    });
}
// 3.1.1 [MQTT-3.1.2-8], [MQTT-3.1.2-9], [MQTT-3.1.2-10], [MQTT-3.1.2-16]; 5.0 [MQTT-3.1.2-7],
// [MQTT-3.1.2-8], [MQTT-3.1.2-10], [MQTT-3.1.2-14]
versions!(will_goes_out_once_when_the_connection_breaks: v31, v311, v5);

fn take_over_sends_the_will(version: Version) {
    on_one_and_three_threads(|broker| {
        let mut observer = observer(broker, version);
        for id in ["c0", "c1", "c2", "c3"] {
            let mut old = broker.connect(&Connect { clean: false, ..with_will(version, id) });
            let mut new = broker.connect(&Connect { clean: false, will: None, ..with_will(version, id) });
            old.expect_disconnected(0x8E);
            let publish = observer.expect_publish();
            assert_eq!(publish.text(), "gone");
            observer.complete(&publish);
            new.settle();
        }
    });
}
// 3.1.1 [MQTT-3.1.2-8]; 5.0 [MQTT-3.1.4-3], [MQTT-3.1.2-8]
versions!(take_over_sends_the_will: v31, v311, v5);

fn delayed_will(id: &str, delay: u32, expiry: u32) -> Connect {
    let will = Will::new("will/t", "late").qos(1).with(Property::WillDelay(delay));
    Connect::new(V5, id).clean(false).with(Property::SessionExpiry(expiry)).will(will)
}

// 5.0 [MQTT-3.1.2-8]
#[test]
fn v5_will_goes_out_when_its_delay_has_passed() {
    on_one_and_three_threads(|broker| {
        let mut observer = observer(broker, V5);
        let left = now();
        broker.connect(&delayed_will("c", 1, 60)).vanish();
        let publish = observer.expect_publish();
        let passed = publish.at - left;
        assert!(passed >= Duration::from_millis(995), "early: {passed:?}");
        assert!(passed <= Duration::from_secs(1) + LATENESS, "late: {passed:?}");
        // The delay is the broker's business alone.
        assert_eq!(publish.properties, []);
    });
}

// 5.0 [MQTT-3.1.3-9]
#[test]
fn v5_take_over_of_the_same_session_cancels_a_delayed_will() {
    on_one_and_three_threads(|broker| {
        let mut observer = observer(broker, V5);
        let mut old = broker.connect(&delayed_will("c", 1, 60));
        let mut new = broker.persistent(V5, "c");
        old.expect_disconnected(0x8E);
        // A will with the same delay, begun later, comes first and alone.
        let will = Will::new("will/t", "of another").with(Property::WillDelay(1));
        broker.connect(&Connect::persistent(V5, "another").will(will)).vanish();
        assert_eq!(observer.expect_publish().text(), "of another");
        observer.settle();
        new.settle();
    });
}

// 5.0 [MQTT-3.1.2-8]
#[test]
fn v5_clean_take_over_ends_the_session_and_sends_a_delayed_will() {
    on_one_and_three_threads(|broker| {
        let mut observer = observer(broker, V5);
        let mut old = broker.connect(&delayed_will("c", 60, 600));
        let mut new = broker.client(V5, "c");
        old.expect_disconnected(0x8E);
        assert_eq!(observer.expect_publish().text(), "late");
        new.settle();
        // So does a clean start in the place of a session that waits.
        broker.connect(&delayed_will("d", 60, 600)).vanish();
        broker.client(V5, "d").settle();
        assert_eq!(observer.expect_publish().text(), "late");
    });
}

#[test]
fn v5_will_expiry_counts_from_its_publication() {
    let broker = default_broker();
    let mut observer = observer(&broker, V5);
    let will = Will::new("will/t", "x").with(Property::WillDelay(1)).with(Property::MessageExpiry(5));
    broker.connect(&Connect::persistent(V5, "c").will(will)).vanish();
    assert!(matches!(observer.expect_publish().expiry(), Some(4 | 5)));
}

fn will_reaches_an_absent_subscriber(version: Version) {
    on_one_and_three_threads(|broker| {
        let mut absentee = broker.persistent(version, "absentee");
        absentee.subscribe(&[("will/#", 1)]);
        absentee.disconnect();
        let mut witness = observer(broker, version);
        broker.connect(&with_will(version, "c")).vanish();
        witness.expect_publish();
        assert_eq!(broker.persistent(version, "absentee").expect_publish().text(), "gone");
    });
}
// 3.1.1 [MQTT-4.5.0-1]; 5.0 [MQTT-4.5.0-1]
versions!(will_reaches_an_absent_subscriber: v311, v5);

#[test]
fn will_on_the_brokers_own_topics_is_not_published() {
    let broker = start_broker(|config| config.sys.publish_interval = Duration::ZERO);
    let mut watcher = broker.client(V5, "watcher");
    watcher.subscribe(&[("$SYS/#", 0), ("$dead/#", 0), ("marker", 1)]);
    watcher.drain();
    let will = Will::new("$SYS/broker/version", "forged");
    // mosquitto's bridges have such a will by default, and 3.x has no code that says why.
    broker.connect(&Connect::new(V311, "c").will(will.clone())).vanish();
    let mut client = broker.open(V5);
    client.send(&Connect::new(V5, "c").will(will).encode());
    assert_eq!(client.expect_connack().code, 0x87);
    assert_no_will(&mut watcher, &broker);
}

#[test]
fn v5_will_that_could_never_be_published_is_refused_at_connect() {
    let broker = start_broker(|config| config.limits.topic_levels = 4);
    let accepted = ["will", "a/b/c/d", "$own/of/clients"].map(|topic| (topic, 0));
    let reserved = ["$SYS/x", "$dead/c/t", "$homing/x", "$delayed/5/t", "$share/g/t"];
    let reserved = reserved.map(|topic| (topic, 0x87));
    for (topic, code) in accepted.into_iter().chain(reserved).chain([("a/b/c/d/e", 0x90)]) {
        for (version, code) in [(V5, code), (V311, 0)] {
            let mut client = broker.open(version);
            client.send(&Connect::new(version, "c").will(Will::new(topic, "x")).encode());
            assert_eq!(client.expect_connack().code, code, "{version:?} {topic}");
            if code == 0 {
                client.disconnect();
            }
        }
    }
}
