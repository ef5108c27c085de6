//! What the broker says of itself under `$SYS/broker`.

use crate::launch::{on_one_and_three_arbiters, start_broker, versions};
use crate::support::{Message, PATIENCE, RawClient, V5, V31, V311, Version, now};
use std::collections::HashMap;
use std::time::Duration;

const TOPICS: [&str; 10] = [
    "version",
    "uptime",
    "clients/connected",
    "clients/total",
    "messages/received",
    "messages/sent",
    "messages/dropped",
    "messages/redelivered",
    "subscriptions/count",
    "retained messages/count",
];

/// Reads until `done` holds of the latest values.
fn read_until(
    client: &mut RawClient,
    done: impl Fn(&HashMap<String, String>) -> bool,
) -> HashMap<String, String> {
    let (mut values, deadline) = (HashMap::new(), now() + PATIENCE);
    while !done(&values) {
        assert!(now() < deadline, "never so: {values:?}");
        let publish = client.expect_publish();
        let topic = publish.topic.strip_prefix("$SYS/broker/").expect("a topic of the broker").to_owned();
        values.insert(topic, publish.text().to_owned());
    }
    values
}

fn the_broker_tells_of_itself(version: Version) {
    let broker = start_broker(|config| {
        config.sys.interval = Duration::from_millis(200);
        config.runtime.arbiters = 2;
    });
    let mut client = broker.client(version, "c");
    client.subscribe(&[("$SYS/broker/#", 0)]);
    let all = |values: &HashMap<String, String>| {
        TOPICS.iter().chain(["heap/current"].iter()).all(|topic| values.contains_key(*topic))
    };
    let values = read_until(&mut client, all);
    assert!(values["version"].contains(env!("CARGO_PKG_VERSION")), "{values:?}");
    for number in &TOPICS[2..] {
        values[*number].parse::<u64>().unwrap_or_else(|e| panic!("{number}: {e}: {values:?}"));
    }
}
versions!(the_broker_tells_of_itself {
    mqtt31_the_broker_tells_of_itself: V31,
    mqtt311_the_broker_tells_of_itself: V311,
    mqtt5_the_broker_tells_of_itself: V5,
});

#[test]
fn counts_follow_what_happens() {
    for arbiters in [1, 3] {
        let broker = start_broker(|config| {
            config.sys.interval = Duration::from_millis(200);
            config.runtime.arbiters = arbiters;
        });
        let mut watcher = broker.client(V5, "watcher");
        watcher.subscribe(&[("$SYS/broker/+/+", 0)]);
        let mut others: Vec<RawClient> = (0..5).map(|n| broker.persistent(V5, &format!("c{n}"))).collect();
        for (n, other) in others.iter_mut().enumerate() {
            other.subscribe(&[("a", 0), ("b", 0)]);
            other.deliver(&Message::new(format!("kept/{n}"), "x").qos(1).retained());
        }
        let is = |topic: &'static str, value: &'static str| {
            move |values: &HashMap<String, String>| values.get(topic).is_some_and(|v| v == value)
        };
        read_until(&mut watcher, is("clients/connected", "6"));
        read_until(&mut watcher, is("subscriptions/count", "11"));
        others.into_iter().take(3).for_each(RawClient::disconnect);
        read_until(&mut watcher, is("clients/connected", "1"));
        // Sessions that wait are counted too.
        read_until(&mut watcher, is("clients/total", "6"));
    }
}

#[test]
fn mqtt5_4_7_2_1_wildcards_alone_do_not_see_the_brokers_topics() {
    on_one_and_three_arbiters(|_| {
        let broker = start_broker(|config| config.sys.interval = Duration::from_millis(100));
        let mut all = broker.client(V5, "all");
        all.subscribe(&[("#", 0), ("+/#", 0), ("+/broker/#", 0)]);
        let mut own = broker.client(V5, "own");
        own.subscribe(&[("$SYS/#", 0)]);
        own.expect_publishes(30);
        all.settle();
    });
}
