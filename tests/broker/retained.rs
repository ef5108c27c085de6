//! Retained messages: set, replaced, cleared, and handed to new subscriptions.

use crate::support::client::subscribe_packet;
use crate::support::launch::{TestBroker, default_broker, on_one_and_three_threads, versions};
use crate::support::{Kind, Message, Packet, Version};

/// Returns topic and text of each retained message that a new client gets for `filter`.
fn retained(broker: &TestBroker, version: Version, filter: &str) -> Vec<(String, String)> {
    let mut client = broker.client(version, "late");
    client.subscribe(&[(filter, 2)]);
    let publishes = client.drain();
    assert!(publishes.iter().all(|publish| publish.retain && !publish.dup), "{publishes:?}");
    let mut found: Vec<_> = publishes.iter().map(|p| (p.topic.clone(), p.text().to_owned())).collect();
    found.sort();
    found
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(topic, text)| ((*topic).to_owned(), (*text).to_owned())).collect()
}

fn latest_retained_message_is_kept_until_cleared(version: Version) {
    on_one_and_three_threads(|broker| {
        let mut publisher = broker.client(version, "p");
        for qos in [0, 1, 2] {
            publisher.deliver(&Message::new("t", format!("old {qos}")).qos(qos).retained());
            publisher.deliver(&Message::new("t", format!("new {qos}")).qos(qos).retained());
            publisher.settle();
            assert_eq!(retained(broker, version, "t"), pairs(&[("t", &format!("new {qos}"))]));
        }
        // RETAIN 0 leaves it alone, an empty payload erases it and is not kept itself.
        publisher.deliver(&Message::new("t", "live").qos(1));
        assert_eq!(retained(broker, version, "t"), pairs(&[("t", "new 2")]));
        publisher.deliver(&Message::new("t", "").qos(1).retained());
        assert_eq!(retained(broker, version, "t"), []);
    });
}
// 3.1.1 [MQTT-3.3.1-5], [MQTT-3.3.1-6], [MQTT-3.3.1-7], [MQTT-3.3.1-8], [MQTT-3.3.1-11],
// [MQTT-3.3.1-12]; 5.0 [MQTT-3.3.1-5], [MQTT-3.3.1-6], [MQTT-3.3.1-7], [MQTT-3.3.1-8]
versions!(latest_retained_message_is_kept_until_cleared: v31, v311, v5);

fn wildcards_find_all_retained_messages_that_match(version: Version) {
    on_one_and_three_threads(|broker| {
        // Publishers on several threads.
        for (n, topic) in ["a", "a/b", "a/b/c", "/a", "b", "a/", "$x/a"].into_iter().enumerate() {
            broker.client(version, &format!("p{n}")).deliver(&Message::new(topic, topic).qos(1).retained());
        }
        let found = |filter| {
            retained(broker, version, filter).into_iter().map(|(topic, _)| topic).collect::<Vec<_>>()
        };
        assert_eq!(found("a/#"), ["a", "a/", "a/b", "a/b/c"]);
        assert_eq!(found("a/+"), ["a/", "a/b"]);
        assert_eq!(found("+"), ["a", "b"]);
        assert_eq!(found("+/+"), ["/a", "a/", "a/b"]);
        assert_eq!(found("#"), ["/a", "a", "a/", "a/b", "a/b/c", "b"]);
        assert_eq!(found("$x/#"), ["$x/a"]);
        assert_eq!(found("+/a"), ["/a"]);
    });
}
// 3.1.1 [MQTT-3.3.1-6], [MQTT-4.7.2-1]; 5.0 [MQTT-3.3.1-9], [MQTT-4.7.2-1]
versions!(wildcards_find_all_retained_messages_that_match: v31, v311, v5);

fn retained_message_comes_at_the_lower_of_stored_and_granted_qos(version: Version) {
    let broker = default_broker();
    let mut publisher = broker.client(version, "p");
    for qos in [0, 1, 2] {
        publisher.deliver(&Message::new(format!("q/{qos}"), "x").qos(qos).retained());
    }
    publisher.settle();
    for granted in [0, 1, 2] {
        let mut client = broker.client(version, "late");
        client.subscribe(&[("q/+", granted)]);
        for publish in client.expect_publishes(3) {
            let stored = publish.topic.as_bytes()[2] - b'0';
            assert_eq!(publish.qos, stored.min(granted));
        }
    }
}
// 3.1.1 [MQTT-3.8.4-6]; 5.0 [MQTT-3.8.4-8]
versions!(retained_message_comes_at_the_lower_of_stored_and_granted_qos: v311, v5);

fn subscription_misses_nothing_between_retained_and_live(version: Version) {
    on_one_and_three_threads(|broker| {
        let mut publisher = broker.client(version, "p");
        let mut subscriber = broker.client(version, "s");
        for n in 0..50_u32 {
            // SUBSCRIBE and PUBLISH race; whichever the broker sees first, the value must arrive.
            let text = n.to_string();
            let id = subscriber.fresh_id();
            subscriber.send(&subscribe_packet(version, id, &[], &[("t", 0)]));
            publisher.publish(&Message::new("t", &text).qos(0).retained());
            loop {
                let Packet::Publish(publish) = subscriber.wait_for(Kind::Publish) else { unreachable!() };
                if publish.text() == text {
                    break;
                }
            }
            subscriber.wait_for(Kind::Suback);
            subscriber.unsubscribe(&["t"]);
            // It may have come twice, as retained and live.
            subscriber.drain();
        }
    });
}
// 3.1.1 [MQTT-3.8.4-3]; 5.0 [MQTT-3.8.4-4]
versions!(subscription_misses_nothing_between_retained_and_live: v311, v5);
