//! The broker's figures under `$SYS/broker`.

use crate::support::launch::{on_configured_threads, on_one_and_three_threads, start_broker, versions};
use crate::support::{Connect, Message, PATIENCE, RawClient, V5, V311, Version, now};
use std::collections::HashMap;
use std::time::Duration;

const TOPICS: [&str; 25] = [
    "version",
    "uptime",
    "clients/connected",
    "clients/total",
    "clients/disconnected",
    "clients/maximum",
    "clients/expired",
    "messages/received",
    "messages/sent",
    "messages/inflight",
    "messages/stored",
    "store/messages/count",
    "store/messages/bytes",
    "publish/bytes/received",
    "publish/bytes/sent",
    "shared_subscriptions/count",
    "connections/socket/count",
    "bytes/received",
    "bytes/sent",
    "publish/messages/received",
    "publish/messages/sent",
    "publish/messages/dropped",
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
        config.sys.publish_interval = Duration::from_millis(200);
        config.runtime.threads = 2;
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
versions!(the_broker_tells_of_itself: v31, v311, v5);

#[test]
fn counts_follow_what_happens() {
    on_configured_threads(
        |config| config.sys.publish_interval = Duration::from_millis(200),
        |broker| {
            let mut watcher = broker.client(V5, "watcher");
            watcher.subscribe(&[("$SYS/broker/+/+", 0)]);
            let mut others: Vec<RawClient> =
                (0..5).map(|n| broker.persistent(V5, &format!("c{n}"))).collect();
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
        },
    );
}

// 5.0 [MQTT-4.7.2-1]
#[test]
fn v5_wildcards_alone_do_not_see_the_brokers_topics() {
    on_one_and_three_threads(|_| {
        let broker = start_broker(|config| config.sys.publish_interval = Duration::from_millis(100));
        let mut all = broker.client(V5, "all");
        all.subscribe(&[("#", 0), ("+/#", 0), ("+/broker/#", 0)]);
        let mut own = broker.client(V5, "own");
        own.subscribe(&[("$SYS/#", 0)]);
        own.expect_publishes(30);
        all.settle();
    });
}

/// Waits for the record of a client's last disconnect, and returns it.
fn last_disconnect(watcher: &mut RawClient, client_id: &str) -> serde_json::Value {
    let topic = format!("$homing/clients/{client_id}/last-disconnect");
    watcher.subscribe(&[(&topic, 0)]);
    let publish = watcher.expect_publish();
    watcher.unsubscribe(&[&topic]);
    assert_eq!(publish.topic, topic);
    serde_json::from_str(publish.text()).expect("JSON")
}

fn reason_of_the_last_disconnect_is_kept(version: Version) {
    on_configured_threads(
        |config| {
            config.redelivery.interval = Duration::from_millis(300);
            config.redelivery.attempts = 1;
            config.redelivery.ack_timeout = Duration::from_millis(500);
        },
        |broker| {
            // One level of the topic, whatever the client id.
            let mut subscriber = broker.persistent(version, "a/+");
            subscriber.subscribe(&[("t", 1), ("$homing/clients/+/last-disconnect", 0)]);
            let mut publisher = broker.client(version, "p");
            publisher.deliver(&Message::new("t", "x").qos(1));
            let first = subscriber.expect_publish();
            let last = subscriber.read_to_end();
            // Nothing stands behind the DISCONNECT: it does not read of its own end.
            assert_eq!(last.len(), 1, "{last:?}");
            let mut watcher = broker.client(version, "watcher");
            let record = last_disconnect(&mut watcher, "a%2F%2B");
            let (cause, sent) = if version == V5 { ("ack_timeout", 1) } else { ("attempts_used_up", 2) };
            assert_eq!(record["cause"], cause, "{record}");
            let oldest = &record["oldest_unacknowledged"];
            assert_eq!(oldest["packet_id"], first.id, "{record}");
            assert_eq!(oldest["transmissions"], sent, "{record}");
            let age = oldest["age_ms"].as_u64().expect("an age");
            assert!((500..3000).contains(&age), "{record}");
            assert!(record["lateness_ms"].as_u64().expect("a lateness") < 1000, "{record}");
            assert_eq!((&record["in_flight"], &record["queued"]), (&1.into(), &0.into()), "{record}");
            assert!(record["last_packet_ms_ago"].as_u64().expect("a time") <= age + 1000, "{record}");
        },
    );
}
versions!(reason_of_the_last_disconnect_is_kept: v31, v311, v5);

fn keep_alive_timeout_is_reported_with_its_lateness(version: Version) {
    let broker = start_broker(|_| {});
    let mut silent = broker.connect(&Connect::new(version, "silent").keep_alive(1));
    silent.read_to_end();
    let record = last_disconnect(&mut broker.client(version, "watcher"), "silent");
    assert_eq!(record["cause"], "keep_alive", "{record}");
    let silent = record["last_packet_ms_ago"].as_u64().expect("a time");
    assert!((1500..3000).contains(&silent), "{record}");
    assert_eq!(record["lateness_ms"].as_u64(), Some(silent - 1500), "{record}");
    assert!(record["oldest_unacknowledged"].is_null(), "{record}");
}
versions!(keep_alive_timeout_is_reported_with_its_lateness: v31, v311, v5);

#[test]
fn last_disconnects_are_bounded_and_leave_out_what_clients_asked_for() {
    let broker = start_broker(|config| config.sys.last_disconnects = 2);
    broker.client(V311, "plain").disconnect();
    for id in ["one", "two", "one", "three"] {
        broker.client(V311, id).vanish();
    }
    let mut watcher = broker.client(V5, "watcher");
    watcher.subscribe(&[("$homing/clients/+/last-disconnect", 0)]);
    let mut kept: Vec<String> = watcher.drain().into_iter().map(|publish| publish.topic).collect();
    kept.sort();
    let expected = ["three", "two"].map(|id| format!("$homing/clients/{id}/last-disconnect"));
    assert_eq!(kept, expected);
}

#[test]
fn the_expiry_queue_can_be_looked_at() {
    let broker = start_broker(|config| config.sys.publish_interval = Duration::from_millis(200));
    let mut watcher = broker.connect(&Connect::new(V5, "watcher").keep_alive(30));
    watcher.subscribe(&[("$SYS/broker/expiry/#", 0)]);
    let number = |values: &HashMap<String, String>, name: &str| {
        values.get(&format!("expiry/{name}")).and_then(|value| value.parse::<u64>().ok())
    };
    // The keep alive ends in 45 s. The regular work that publishes this is registered again only
    // after it.
    read_until(&mut watcher, |values| {
        number(values, "keys").is_some_and(|keys| keys >= 1)
            && number(values, "buckets").is_some_and(|buckets| buckets >= 1)
            && number(values, "due/60s") > number(values, "due/1s")
            && number(values, "fired/housekeeping").is_some_and(|fired| fired >= 1)
            && number(values, "lateness/max_ms").is_some()
            && number(values, "lateness/p99_ms").is_some()
            && ["expired", "registrations"].iter().all(|what| {
                ["max_ms", "p99_ms"]
                    .iter()
                    .all(|of| number(values, &format!("mailbox/{what}/{of}")).is_some())
            })
    });
}
