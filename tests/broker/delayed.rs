//! `$delayed/<seconds>/<topic>`: a message that is published at its time, not before, and once.

use crate::support::launch::{
    on_one_and_three_threads, restart_on, start_broker, start_broker_on, start_stored, versions,
};
use crate::support::memory_store::Memory;
use crate::support::{Connect, Message, Property, V5, V311, Version, now};
use homing::config::{Config, DurabilityLevel};
use homing::store::logged::{LoggedStore, StoreOptions};
use std::time::Duration;

/// One expiry tick, and what a busy machine may add.
const LATENESS: Duration = Duration::from_millis(250 + 750);

fn message_is_published_when_its_delay_has_passed(version: Version) {
    on_one_and_three_threads(|broker| {
        let mut subscriber = broker.client(version, "subscriber");
        subscriber.subscribe(&[("later/#", 2), ("$delayed/#", 1)]);
        let mut publisher = broker.client(version, "publisher");
        let begun = now();
        for qos in [0, 1, 2] {
            publisher.deliver(&Message::new("$delayed/1/later/t", format!("{qos}")).qos(qos));
        }
        for qos in [0, 1, 2] {
            let publish = subscriber.expect_publish();
            let after = now() - begun;
            assert_eq!((&*publish.topic, publish.text(), publish.qos), ("later/t", &*qos.to_string(), qos));
            assert!(after >= Duration::from_secs(1), "{after:?}");
            assert!(after < Duration::from_secs(1) + LATENESS, "{after:?}");
            subscriber.complete(&publish);
        }
        subscriber.settle();
    });
}
versions!(message_is_published_when_its_delay_has_passed: v31, v311, v5);

#[test]
fn earlier_ones_come_first_and_retained_ones_stay() {
    let broker = start_broker(|_| {});
    let mut subscriber = broker.client(V5, "subscriber");
    subscriber.subscribe(&[("later/#", 1)]);
    let mut publisher = broker.client(V5, "publisher");
    publisher.deliver(&Message::new("$delayed/2/later/b", "second").qos(1).retained());
    publisher.deliver(&Message::new("$delayed/1/later/a", "first").qos(1));
    for topic in ["later/a", "later/b"] {
        let publish = subscriber.expect_publish();
        assert_eq!((&*publish.topic, publish.retain), (topic, false));
        subscriber.complete(&publish);
    }
    let mut late = broker.client(V5, "late");
    late.subscribe(&[("later/#", 1)]);
    let publish = late.expect_publish();
    assert_eq!((&*publish.topic, publish.retain), ("later/b", true));
}

const NO_LOCAL: u8 = 0x04;

// 5.0 [MQTT-3.8.3-3]
#[test]
fn v5_a_delayed_message_does_not_come_back_by_a_subscription_with_no_local() {
    on_one_and_three_threads(|broker| {
        let mut other = broker.client(V5, "other");
        other.subscribe(&[("later/#", NO_LOCAL | 1)]);
        for id in ["c0", "c1", "c2", "c3"] {
            let mut client = broker.client(V5, id);
            client.subscribe(&[("later/#", NO_LOCAL | 1)]);
            for seconds in [0, 1] {
                client.deliver(&Message::new(format!("$delayed/{seconds}/later/t"), id).qos(1));
                let publish = other.expect_publish();
                assert_eq!(publish.text(), id);
                other.complete(&publish);
            }
            client.settle();
            client.disconnect();
        }
    });
}

// 5.0 [MQTT-3.8.3-3]
#[test]
fn v5_no_local_holds_for_a_message_that_is_delayed_over_a_restart() {
    let memory = Memory::default();
    let broker = start_broker_on(&memory, |_| {});
    let mut client = broker.persistent(V5, "c");
    client.subscribe(&[("later/#", NO_LOCAL | 1)]);
    client.deliver(&Message::new("$delayed/1/later/t", "own").qos(1));
    client.disconnect();
    let mut other = broker.persistent(V5, "other");
    other.subscribe(&[("later/#", NO_LOCAL | 1)]);
    other.disconnect();
    let (broker, _memory) = restart_on(broker, &memory, |_| {});
    let (mut client, mut other) = (broker.persistent(V5, "c"), broker.persistent(V5, "other"));
    assert_eq!(other.expect_publish().text(), "own");
    client.settle();
}

#[test]
fn v5_message_expiry_counts_from_the_publication() {
    let broker = start_broker(|_| {});
    let mut subscriber = broker.client(V5, "subscriber");
    subscriber.subscribe(&[("later/#", 1)]);
    let message = Message::new("$delayed/2/later/t", "x").qos(1).with(Property::MessageExpiry(1));
    broker.client(V5, "publisher").deliver(&message);
    let publish = subscriber.expect_publish();
    assert_eq!(publish.expiry(), Some(1));
}

#[test]
fn v5_what_is_no_delay_or_beyond_the_bounds_is_refused() {
    let broker = start_broker(|config| {
        config.limits.delayed_messages = 2;
        config.limits.share_per_client = 100;
        config.limits.delayed_horizon = Duration::from_secs(60);
    });
    let mut publisher = broker.client(V5, "publisher");
    for topic in ["$delayed/x/t", "$delayed/1", "$delayed/1/", "$delayed//t", "$delayed/99999999999/t"] {
        assert_eq!(publisher.deliver(&Message::new(topic, "x").qos(1)), 0x90, "{topic}");
    }
    for own in ["$SYS/x", "$delayed/1/t", "$dead/x"] {
        assert_eq!(publisher.deliver(&Message::new(format!("$delayed/1/{own}"), "x").qos(1)), 0x90, "{own}");
    }
    let delayed = |seconds| Message::new(format!("$delayed/{seconds}/t"), "x").qos(1);
    assert_eq!(publisher.deliver(&delayed(61)), 0x97);
    assert_eq!(publisher.deliver(&delayed(60)), 0);
    assert_eq!(publisher.deliver(&delayed(60)), 0);
    assert_eq!(publisher.deliver(&delayed(60)), 0x97);
}

#[test]
fn delays_go_on_over_a_restart_and_a_due_message_is_published_once() {
    let memory = Memory::default();
    let configure = |config: &mut homing::config::Config| config.runtime.threads = 2;
    let broker = start_broker_on(&memory, configure);
    let mut subscriber = broker.connect(&Connect::persistent(V311, "subscriber"));
    subscriber.subscribe(&[("later/#", 2)]);
    subscriber.disconnect();
    let mut publisher = broker.client(V311, "publisher");
    let begun = now();
    for n in 0..10 {
        publisher.deliver(&Message::new("$delayed/1/later/soon", format!("{n}")).qos(2));
    }
    publisher.deliver(&Message::new("$delayed/2/later/next", "x").qos(2));
    let (broker, memory) = restart_on(broker, &memory, configure);
    let mut subscriber = broker.connect(&Connect::persistent(V311, "subscriber"));
    assert!(subscriber.session_present());
    for n in 0..10 {
        let publish = subscriber.expect_publish();
        assert_eq!((&*publish.topic, publish.text()), ("later/soon", &*n.to_string()));
        subscriber.complete(&publish);
    }
    subscriber.disconnect();
    let (broker, _) = restart_on(broker, &memory, configure);
    let mut subscriber = broker.connect(&Connect::persistent(V311, "subscriber"));
    let publish = subscriber.expect_publish();
    assert_eq!(&*publish.topic, "later/next");
    assert!(now() - begun >= Duration::from_secs(2));
    subscriber.complete(&publish);
    subscriber.settle();
}

#[test]
fn a_message_that_waits_over_a_restart_gives_back_the_bytes_that_it_took() {
    let directory = tempfile::tempdir().expect("a directory");
    let start = || {
        let options = StoreOptions { durability: DurabilityLevel::Commit, size_limit: None };
        let store = LoggedStore::open(directory.path(), options).expect("a store");
        let one_at_a_time = |config: &mut Config| {
            config.limits.delayed_bytes = "10 KiB".parse().expect("a size");
        };
        start_stored(Box::new(store), one_at_a_time)
    };
    let delayed = Message::new("$delayed/2/t", "x".repeat(8 * 1024)).qos(1);
    let broker = start();
    assert!(broker.client(V5, "publisher").deliver(&delayed) < 0x80);
    drop(broker);
    let broker = start();
    let mut client = broker.client(V5, "publisher");
    client.subscribe(&[("t", 0)]);
    assert_eq!(client.deliver(&delayed), 0x97, "it counts after the restart too");
    client.expect_publish();
    assert!(client.deliver(&delayed) < 0x80, "no room is left, although nothing is delayed");
}
