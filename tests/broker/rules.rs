//! `[[redelivery.rules]]`: other settings for some clients, users and topics.

use crate::support::launch::{TestBroker, on_configured_threads, start_broker, versions};
use crate::support::{Connect, Kind, Message, Property, RawClient, V5, Version, now};
use homing::access::glob::Pattern;
use homing::config::{Config, OnAckTimeout, OnExhausted, RedeliveryRule};
use std::time::{Duration, Instant};

const SHORT: Duration = Duration::from_millis(600);
const BUCKET: Duration = Duration::from_millis(250);
/// Lateness that a busy machine may add.
const TOLERANCE: Duration = Duration::from_millis(500);
/// The broker counts whole milliseconds.
const GRANULARITY: Duration = Duration::from_millis(5);

pub fn glob(text: &str) -> Option<Pattern> {
    Some(text.parse().expect("a glob"))
}

pub fn topic(filter: &str) -> RedeliveryRule {
    RedeliveryRule { topic: Some(filter.to_owned()), ..RedeliveryRule::default() }
}

fn with_rules(config: &mut Config, rules: &[RedeliveryRule]) {
    config.redelivery.backoff = 1.0;
    config.redelivery.jitter = 0.0;
    config.redelivery.min_requested = Duration::from_millis(100);
    config.redelivery.rules = rules.to_vec();
    config.sys.publish_interval = Duration::from_millis(100);
}

fn ruled(rules: &[RedeliveryRule]) -> impl Fn(&mut Config) {
    move |config| with_rules(config, rules)
}

fn short() -> RedeliveryRule {
    RedeliveryRule { interval: Some(SHORT), ack_timeout: Some(SHORT), ..RedeliveryRule::default() }
}

/// Not earlier than the spacing after the message was published, nor much later than that after it
/// came first.
fn assert_in_time(at: Instant, published: Instant, first: Instant) {
    assert!(at - published + GRANULARITY >= SHORT, "early: {:?}", at - published);
    assert!(at - first <= SHORT + BUCKET + TOLERANCE, "late: {:?}", at - first);
}

/// Publishes to `topic`; answers when, and when the client had it.
fn send(broker: &TestBroker, client: &mut RawClient, topic: &str) -> (Instant, Instant) {
    let published = now();
    broker.client(V5, "publisher").deliver(&Message::new(topic, topic).qos(1));
    let publish = client.expect_publish();
    assert_eq!((publish.topic.as_str(), publish.dup), (topic, false));
    (published, publish.at)
}

fn client_and_user_choose_the_interval(version: Version) {
    let by_client = RedeliveryRule { client_id: glob("pump-*"), ..short() };
    let by_user = RedeliveryRule { user_name: glob("{ann,bob}"), ..short() };
    on_configured_threads(ruled(&[by_client, by_user]), |broker| {
        let connect = |id| Connect::new(version, id);
        let mut plain = broker.connect(&connect("other").user_name("carl"));
        plain.subscribe(&[("t", 1)]);
        for connect in [connect("pump-7"), connect("other-7").user_name("bob")] {
            let mut client = broker.connect(&connect);
            client.subscribe(&[("t", 1), ("$homing/session/granted", 0)]);
            assert_eq!(client.expect_publish().text(), "retry-interval=600ms");
            let (published, first) = send(broker, &mut client, "t");
            let again = client.expect_publish();
            assert!(again.dup);
            assert_in_time(again.at, published, first);
        }
        assert_eq!(plain.drain().len(), 2);
    });
}
versions!(client_and_user_choose_the_interval: v31, v311);

#[test]
fn v5_client_and_user_choose_the_ack_timeout() {
    let by_client = RedeliveryRule { client_id: glob("pump-?"), ..short() };
    let by_user = RedeliveryRule { user_name: glob("ann"), ..short() };
    on_configured_threads(ruled(&[by_client, by_user]), |broker| {
        for connect in [Connect::persistent(V5, "pump-7"), Connect::persistent(V5, "other").user_name("ann")]
        {
            let mut client = broker.connect(&connect);
            client.subscribe(&[("t", 1)]);
            let (published, first) = send(broker, &mut client, "t");
            client.expect_disconnected(0x97);
            assert_in_time(now(), published, first);
            broker.connect(&connect.clean(true)).disconnect();
        }
    });
}

/// Each topic keeps its own time, a PUBREL that of its message.
fn topic_chooses_the_interval_of_publish_and_pubrel(version: Version) {
    let rules = [RedeliveryRule { topic: Some("fast/#".to_owned()), ..short() }];
    on_configured_threads(ruled(&rules), |broker| {
        let mut client = broker.client(version, "s");
        client.subscribe(&[("#", 2)]);
        let (published, first) = send(broker, &mut client, "fast/1");
        send(broker, &mut client, "slow");
        let again = client.expect_publish();
        assert_eq!((again.topic.as_str(), again.dup), ("fast/1", true));
        assert_in_time(again.at, published, first);
        client.complete(&again);
        let published = now();
        broker.client(V5, "publisher").deliver(&Message::new("fast/2", "x").qos(2));
        let publish = client.expect_publish();
        assert_eq!(publish.topic, "fast/2");
        client.ack(Kind::Pubrec, publish.id);
        let first = client.expect_ack(Kind::Pubrel, publish.id).at;
        let again = client.expect_ack(Kind::Pubrel, publish.id).at;
        assert_in_time(again, published, first);
        client.ack(Kind::Pubcomp, publish.id);
        client.settle();
    });
}
versions!(topic_chooses_the_interval_of_publish_and_pubrel: v31, v311);

#[test]
fn v5_topic_chooses_the_ack_timeout_and_what_then() {
    let alarm = RedeliveryRule { on_ack_timeout: Some(OnAckTimeout::Alarm), ..topic("patient") };
    let fast = RedeliveryRule { topic: Some("+".to_owned()), ..short() };
    on_configured_threads(ruled(&[alarm, fast]), |broker| {
        let mut client = broker.connect(&Connect::persistent(V5, "s").clean(true));
        client.subscribe(&[("#", 1)]);
        send(broker, &mut client, "other/topic");
        send(broker, &mut client, "patient");
        client.expect_nothing_for(SHORT + BUCKET + TOLERANCE);
        // An older message that is only reported does not stop this one from ending the connection.
        let (published, first) = send(broker, &mut client, "hasty");
        client.expect_disconnected(0x97);
        assert_in_time(now(), published, first);
    });
}

#[test]
fn v5_each_disconnect_doubles_a_topics_ack_timeout_too() {
    let broker = start_broker(|config| {
        with_rules(config, &[RedeliveryRule { topic: Some("t".to_owned()), ..short() }]);
    });
    let mut client = broker.persistent(V5, "s");
    client.subscribe(&[("t", 1)]);
    send(&broker, &mut client, "t");
    client.expect_disconnected(0x97);
    let returned = now();
    let mut client = broker.persistent(V5, "s");
    client.expect_publish();
    client.expect_disconnected(0x97);
    assert!(now() - returned + GRANULARITY >= SHORT * 2, "{:?}", now() - returned);
}

fn redelivery_request_counts_if_the_rule_of_the_topic_allows_it(version: Version) {
    let fixed = RedeliveryRule { topic: Some("fixed".to_owned()), ..short() };
    let open = RedeliveryRule { topic: Some("open".to_owned()), client_may_override: true, ..short() };
    on_configured_threads(ruled(&[fixed, open]), |broker| {
        let (name, request) = match version {
            V5 => ("ack-timeout", "1h"),
            _ => ("retry-interval", "off"),
        };
        let mut client = broker.persistent(version, "s");
        client.subscribe(&[("+", 1)]);
        client.deliver(&Message::new(format!("$homing/session/{name}"), request).qos(1));
        send(broker, &mut client, "open");
        client.expect_nothing_for(SHORT + BUCKET + TOLERANCE);
        let (published, first) = send(broker, &mut client, "fixed");
        if version == V5 {
            client.expect_disconnected(0x97);
            assert_in_time(now(), published, first);
        } else {
            let again = client.expect_publish();
            assert_eq!(again.topic, "fixed");
            assert_in_time(again.at, published, first);
        }
        broker.connect(&Connect::persistent(version, "s").clean(true)).disconnect();
        // Without a request the open rule holds as well.
        let mut client = broker.persistent(version, "t");
        client.subscribe(&[("+", 1)]);
        let (published, first) = send(broker, &mut client, "open");
        client.wait_for(if version == V5 { Kind::Disconnect } else { Kind::Publish });
        assert_in_time(now(), published, first);
    });
}
versions!(redelivery_request_counts_if_the_rule_of_the_topic_allows_it: v311, v5);

#[test]
fn v5_redelivery_request_stays_within_the_bounds_of_the_rule_of_the_client() {
    let rule = RedeliveryRule {
        client_id: glob("s"),
        min_requested: Some(Duration::from_secs(3)),
        max_ack_timeout: Some(Duration::from_secs(90)),
        ..RedeliveryRule::default()
    };
    let broker = start_broker(|config| with_rules(config, &[rule]));
    for (client_id, asked, granted) in
        [("s", "1s", "3s"), ("s", "2h", "90s"), ("t", "1s", "1s"), ("t", "2h", "1h")]
    {
        let connect = Connect::new(V5, client_id).with(Property::user("ack-timeout", asked));
        let client = broker.connect(&connect);
        assert!(client.connack().properties.contains(&Property::user("ack-timeout", granted)), "{client:?}");
    }
}

fn topic_chooses_what_follows_the_last_attempt(version: Version) {
    let keep = RedeliveryRule {
        on_exhausted: Some(OnExhausted::Keep),
        max_backoff: Some(Duration::from_millis(300)),
        ..topic("keep")
    };
    on_configured_threads(ruled(&[keep]), |broker| {
        let connect = |id| Connect::persistent(version, id).clean(false);
        let mut client = broker.connect(&connect("s"));
        client.subscribe(&[("+", 1)]);
        client.deliver(&Message::new("$homing/session/retry-interval", "300ms").qos(1));
        send(broker, &mut client, "keep");
        for _ in 0..7 {
            assert!(client.expect_publish().dup);
        }
        send(broker, &mut client, "other");
        assert_eq!(client.read_to_end().iter().filter(|p| p.kind() != Kind::Publish).count(), 0);
        // For the next broker's turn nothing is left.
        broker.connect(&connect("s").clean(true)).disconnect();
    });
}
versions!(topic_chooses_what_follows_the_last_attempt: v311);
