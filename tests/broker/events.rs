//! `$homing/events/<kind>/<client id>`: what becomes of an unacknowledged message, as an
//! operator hears of it.

use crate::support::launch::{TestBroker, on_configured_threads, start_broker, versions};
use crate::support::{Connect, Message, PATIENCE, RawClient, V5, V311, Version, now};
use homing::config::{Config, OnAckTimeout, OnExhausted};
use serde_json::Value;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const INTERVAL: Duration = Duration::from_millis(300);

fn with_events(config: &mut Config) {
    config.sys.events = true;
    config.sys.publish_interval = Duration::from_millis(100);
    config.redelivery.interval = INTERVAL;
    config.redelivery.backoff = 1.0;
    config.redelivery.jitter = 0.0;
    config.redelivery.attempts = 1;
    config.redelivery.ack_timeout = INTERVAL;
    config.redelivery.max_ack_timeout = INTERVAL;
}

fn watcher(broker: &TestBroker) -> RawClient {
    let mut watcher = broker.client(V5, "watcher");
    watcher.subscribe(&[("$homing/events/+/+", 1)]);
    watcher
}

/// The next event, which must be of this kind and about this client.
fn expect_event(watcher: &mut RawClient, kind: &str, client_id: &str) -> Value {
    let publish = watcher.expect_publish();
    assert_eq!(publish.topic, format!("$homing/events/{kind}/{client_id}"), "{}", publish.text());
    assert_eq!((publish.qos, publish.retain), (0, false));
    let event: Value = serde_json::from_str(publish.text()).expect("JSON");
    assert_eq!(event["event"], kind);
    event
}

fn number(event: &Value, name: &str) -> u64 {
    event[name].as_u64().unwrap_or_else(|| panic!("no {name}: {event}"))
}

/// Asserts the fields that every event about an unacknowledged PUBLISH has.
fn assert_names(event: &Value, id: u16, transmissions: u64, published_unix_ms: u64) {
    assert_eq!((&event["packet"], &event["packet_id"]), (&"PUBLISH".into(), &id.into()), "{event}");
    assert_eq!((&event["topic"], &event["qos"]), (&"t/of".into(), &1.into()), "{event}");
    assert_eq!(event["transmissions"], transmissions, "{event}");
    assert_eq!((&event["in_flight"], &event["queued"]), (&1.into(), &0.into()), "{event}");
    assert!(event["address"].as_str().expect("an address").starts_with("127.0.0.1:"), "{event}");
    let (time, age) = (number(event, "unix_ms"), number(event, "age_ms"));
    assert!(time >= published_unix_ms && time - age + 5 >= published_unix_ms, "{event}");
}

/// The packet was with the client's kernel, and its deadline had passed.
fn assert_held_by_the_application(event: &Value) {
    assert_eq!(event["cause"], "application", "{event}");
    assert_eq!(event["socket"]["unsent_bytes"], 0, "{event}");
    let (time, deadline, late) =
        (number(event, "unix_ms"), number(event, "deadline_unix_ms"), number(event, "lateness_ms"));
    assert!(deadline + late == time && late < 2000, "{event}");
    assert!(number(event, "tick_lateness_ms") < 2000, "{event}");
}

fn unix_ms() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "compared with the time that an event carries")]
    let now = SystemTime::now();
    now.duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as u64
}

fn used_up_attempts_are_reported_step_by_step(version: Version) {
    on_configured_threads(with_events, |broker| {
        let mut watcher = watcher(broker);
        let mut subscriber = broker.persistent(version, "a/+");
        subscriber.subscribe(&[("t/of", 1)]);
        let published = unix_ms();
        broker.client(version, "p").deliver(&Message::new("t/of", "x").qos(1));
        let first = subscriber.expect_publish();

        // The client id is one level of the topic, whatever it is.
        let redelivered = expect_event(&mut watcher, "redelivered", "a%2F%2B");
        assert_names(&redelivered, first.id, 2, published);
        assert_held_by_the_application(&redelivered);
        assert_eq!((&redelivered["publishes"], &redelivered["releases"]), (&1.into(), &0.into()));
        assert_eq!((&redelivered["when"], &redelivered["client_id"]), (&"live".into(), &"a/+".into()));

        let exhausted = expect_event(&mut watcher, "exhausted", "a%2F%2B");
        assert_names(&exhausted, first.id, 2, published);
        assert_held_by_the_application(&exhausted);
        assert_eq!(exhausted["then"], "disconnect");

        let disconnected = expect_event(&mut watcher, "disconnected", "a%2F%2B");
        assert_names(&disconnected, first.id, 2, published);
        assert_held_by_the_application(&disconnected);
        assert_eq!(disconnected["why"], "attempts_used_up");
        subscriber.read_to_end();

        let mut subscriber = broker.persistent(version, "a/+");
        let again = subscriber.expect_publish();
        let redelivered = expect_event(&mut watcher, "redelivered", "a%2F%2B");
        assert_names(&redelivered, first.id, 3, published);
        assert_eq!(redelivered["when"], "return");
        // Nobody has asked the new socket yet.
        assert!(redelivered["cause"].is_null() && redelivered["lateness_ms"].is_null(), "{redelivered}");
        subscriber.complete(&again);
    });
}
versions!(used_up_attempts_are_reported_step_by_step: v31, v311);

#[test]
fn v311_used_up_attempts_that_go_on_are_reported_once() {
    let broker = start_broker(|config| {
        with_events(config);
        config.redelivery.on_exhausted = OnExhausted::Keep;
        config.redelivery.max_backoff = INTERVAL;
    });
    let mut watcher = watcher(&broker);
    let mut subscriber = broker.persistent(V311, "s");
    subscriber.subscribe(&[("t/of", 1)]);
    broker.client(V311, "p").deliver(&Message::new("t/of", "x").qos(1));
    subscriber.expect_publishes(4);
    expect_event(&mut watcher, "redelivered", "s");
    let again = expect_event(&mut watcher, "redelivered", "s");
    assert_eq!(again["transmissions"], 3);
    let exhausted = expect_event(&mut watcher, "exhausted", "s");
    assert_eq!((&exhausted["then"], &exhausted["transmissions"]), (&"keep".into(), &3.into()));
    expect_event(&mut watcher, "redelivered", "s");
}

#[test]
fn v5_disconnect_for_an_ack_timeout_is_reported() {
    on_configured_threads(with_events, |broker| {
        let mut watcher = watcher(broker);
        let mut subscriber = broker.persistent(V5, "s");
        subscriber.subscribe(&[("t/of", 1)]);
        let published = unix_ms();
        broker.client(V5, "p").deliver(&Message::new("t/of", "x").qos(1));
        let first = subscriber.expect_publish();
        let disconnected = expect_event(&mut watcher, "disconnected", "s");
        assert_names(&disconnected, first.id, 1, published);
        assert_held_by_the_application(&disconnected);
        assert_eq!((&disconnected["why"], &disconnected["version"]), (&"ack_timeout".into(), &"5.0".into()));
        assert!(
            disconnected["text"].as_str().expect("text").contains("unacknowledged for"),
            "{disconnected}"
        );
        subscriber.read_to_end();
    });
}

#[test]
fn v5_alarm_is_reported_and_for_one_client_at_a_bounded_rate() {
    let broker = start_broker(|config| {
        with_events(config);
        config.redelivery.on_ack_timeout = OnAckTimeout::Alarm;
        config.sys.events_per_client = 2;
    });
    let mut watcher = watcher(&broker);
    let mut subscriber = broker.persistent(V5, "s");
    subscriber.subscribe(&[("t/of", 1)]);
    let published = unix_ms();
    broker.client(V5, "p").deliver(&Message::new("t/of", "x").qos(1));
    let first = subscriber.expect_publish();
    for _ in 0..2 {
        let stalled = expect_event(&mut watcher, "stalled", "s");
        assert_names(&stalled, first.id, 1, published);
        assert_held_by_the_application(&stalled);
    }
    let mut counter = broker.client(V5, "counter");
    counter.subscribe(&[("$SYS/broker/events/suppressed", 0)]);
    let deadline = now() + PATIENCE;
    while counter.expect_publish().text().parse::<u64>().expect("a number") < 2 {
        assert!(now() < deadline, "nothing is left out");
    }
    watcher.settle();
    // Another kind has a share of its own.
    subscriber.vanish();
    broker.persistent(V5, "s");
    expect_event(&mut watcher, "redelivered", "s");
}

fn what_the_network_holds_is_reported_with_the_socket(version: Version) {
    let broker = start_broker(with_events);
    let mut watcher = watcher(&broker);
    let mut stuck = broker.open(version);
    socket2::SockRef::from(stuck.stream()).set_recv_buffer_size(8 * 1024).expect("SO_RCVBUF");
    stuck.send(&Connect::persistent(version, "stuck").encode());
    stuck.expect_connack();
    stuck.subscribe(&[("t/of", 1)]);
    broker.client(version, "p").deliver(&Message::new("t/of", vec![b'x'; 900_000]).qos(1));
    let stalled = expect_event(&mut watcher, "stalled", "stuck");
    assert_eq!((&stalled["cause"], &stalled["transmissions"]), (&"network".into(), &1.into()), "{stalled}");
    assert!(stalled["socket"]["unsent_bytes"].as_u64() > Some(0), "{stalled}");
}
versions!(what_the_network_holds_is_reported_with_the_socket: v31, v311, v5);

#[test]
fn keep_alive_timeout_is_reported_with_what_was_in_flight() {
    let broker = start_broker(|config| {
        with_events(config);
        config.redelivery.interval = Duration::ZERO;
    });
    let mut watcher = watcher(&broker);
    let mut silent = broker.connect(&Connect::persistent(V311, "silent").keep_alive(1));
    silent.subscribe(&[("t/of", 2)]);
    broker.client(V5, "p").deliver(&Message::new("t/of", "x").qos(1));
    let first = silent.expect_publish();
    let disconnected = expect_event(&mut watcher, "disconnected", "silent");
    assert_eq!(
        (&disconnected["why"], &disconnected["packet_id"]),
        (&"keep_alive".into(), &first.id.into()),
        "{disconnected}"
    );
    assert!(disconnected["cause"].is_null() && number(&disconnected, "lateness_ms") < 2000, "{disconnected}");
}

#[test]
fn events_are_off_unless_asked_for() {
    let broker = start_broker(|config| {
        with_events(config);
        config.sys.events = Config::default().sys.events;
    });
    let mut watcher = watcher(&broker);
    let mut subscriber = broker.persistent(V5, "s");
    subscriber.subscribe(&[("t/of", 1)]);
    broker.client(V5, "p").deliver(&Message::new("t/of", "x").qos(1));
    subscriber.read_to_end();
    watcher.settle();
}
