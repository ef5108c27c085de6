//! Retained messages: set, replaced, cleared, and handed to new subscriptions.

use crate::support::client::subscribe_packet;
use crate::support::launch::{TestBroker, default_broker, on_one_and_three_arbiters, versions};
use crate::support::{Kind, Message, Packet, Property, V5, V31, V311, Version};

const RETAIN_AS_PUBLISHED: u8 = 0x08;
const SEND_IF_NEW: u8 = 0x10;
const DO_NOT_SEND: u8 = 0x20;

/// What a new client is handed on subscribing to `filter`, as (topic, text).
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

fn latest_retained_message_is_kept(version: Version) {
    on_one_and_three_arbiters(|broker| {
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
versions!(latest_retained_message_is_kept {
    mqtt31_latest_retained_message_is_kept_until_cleared: V31,
    mqtt311_3_3_1_5_3_3_1_6_3_3_1_7_3_3_1_8_3_3_1_11_3_3_1_12_latest_retained_message_is_kept_until_cleared:
        V311,
    mqtt5_3_3_1_5_3_3_1_6_3_3_1_7_3_3_1_8_latest_retained_message_is_kept_until_cleared: V5,
});

fn live_delivery_carries_retain_0(version: Version) {
    on_one_and_three_arbiters(|broker| {
        let mut subscriber = broker.client(version, "s");
        subscriber.subscribe(&[("t", 1)]);
        let mut publisher = broker.client(version, "p");
        for text in ["x", ""] {
            publisher.deliver(&Message::new("t", text).qos(1).retained());
            let publish = subscriber.expect_publish();
            assert_eq!((publish.retain, publish.text()), (false, text));
            subscriber.complete(&publish);
        }
    });
}
versions!(live_delivery_carries_retain_0 {
    mqtt31_live_delivery_carries_retain_0: V31,
    mqtt311_3_3_1_9_3_3_1_10_live_delivery_carries_retain_0: V311,
    mqtt5_3_3_1_12_3_3_1_6_live_delivery_carries_retain_0: V5,
});

#[test]
fn mqtt5_3_3_1_13_retain_as_published_keeps_the_flag() {
    on_one_and_three_arbiters(|broker| {
        let mut subscriber = broker.client(V5, "s");
        subscriber.subscribe(&[("t", 1 | RETAIN_AS_PUBLISHED)]);
        let mut publisher = broker.client(V5, "p");
        publisher.deliver(&Message::new("t", "x").qos(1).retained());
        publisher.deliver(&Message::new("t", "y").qos(1));
        let publishes = subscriber.expect_publishes(2);
        assert_eq!(publishes.iter().map(|publish| publish.retain).collect::<Vec<_>>(), [true, false]);
    });
}

fn wildcards_find_all_that_match(version: Version) {
    on_one_and_three_arbiters(|broker| {
        // Publishers on several arbiters.
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
versions!(wildcards_find_all_that_match {
    mqtt31_wildcards_find_all_retained_messages_that_match: V31,
    mqtt311_3_3_1_6_4_7_2_1_wildcards_find_all_retained_messages_that_match: V311,
    mqtt5_3_3_1_9_4_7_2_1_wildcards_find_all_retained_messages_that_match: V5,
});

fn retained_qos_is_the_lower_of_stored_and_granted(version: Version) {
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
versions!(retained_qos_is_the_lower_of_stored_and_granted {
    mqtt311_3_8_4_6_retained_message_comes_at_the_lower_of_stored_and_granted_qos: V311,
    mqtt5_3_8_4_8_retained_message_comes_at_the_lower_of_stored_and_granted_qos: V5,
});

fn retained_messages_outlive_their_publisher(version: Version) {
    let broker = default_broker();
    let mut publisher = broker.client(version, "p");
    publisher.deliver(&Message::new("t", "x").qos(1).retained());
    publisher.disconnect();
    broker.client(version, "p").disconnect();
    assert_eq!(retained(&broker, version, "t"), pairs(&[("t", "x")]));
}
versions!(retained_messages_outlive_their_publisher {
    mqtt311_3_1_2_7_retained_messages_outlive_their_publisher: V311,
    mqtt5_4_1_0_retained_messages_outlive_their_publisher: V5,
});

fn subscribing_again_sends_them_again(version: Version) {
    let broker = default_broker();
    broker.client(version, "p").deliver(&Message::new("t", "x").qos(1).retained());
    let mut client = broker.client(version, "s");
    for _ in 0..2 {
        client.subscribe(&[("t", 0)]);
        assert!(client.expect_publish().retain);
        client.settle();
    }
}
versions!(subscribing_again_sends_them_again {
    mqtt31_subscribing_again_sends_retained_messages_again: V31,
    mqtt311_3_8_4_3_subscribing_again_sends_retained_messages_again: V311,
    mqtt5_3_3_1_9_3_8_4_4_subscribing_again_sends_retained_messages_again: V5,
});

#[test]
fn mqtt5_3_3_1_10_3_3_1_11_retain_handling_1_and_2() {
    on_one_and_three_arbiters(|broker| {
        broker.client(V5, "p").deliver(&Message::new("t", "x").qos(1).retained());
        let mut client = broker.client(V5, "s");
        client.subscribe(&[("t", DO_NOT_SEND)]);
        client.settle();
        client.subscribe(&[("t", SEND_IF_NEW)]);
        client.settle();
        client.unsubscribe(&["t"]);
        client.subscribe(&[("t", SEND_IF_NEW)]);
        assert!(client.expect_publish().retain);
        client.subscribe(&[("t", SEND_IF_NEW | 1)]);
        client.settle();
    });
}

#[test]
fn mqtt5_3_3_1_10_a_session_taken_up_has_its_subscriptions_already() {
    let broker = default_broker();
    broker.client(V5, "p").deliver(&Message::new("t", "x").qos(1).retained());
    let mut client = broker.persistent(V5, "s");
    client.subscribe(&[("t", SEND_IF_NEW)]);
    assert!(client.expect_publish().retain);
    client.disconnect();
    let mut client = broker.persistent(V5, "s");
    client.subscribe(&[("t", SEND_IF_NEW)]);
    client.settle();
}

#[test]
fn mqtt5_shared_subscription_is_sent_no_retained_messages() {
    let broker = default_broker();
    broker.client(V5, "p").deliver(&Message::new("t", "x").qos(1).retained());
    let mut client = broker.client(V5, "s");
    client.subscribe(&[("$share/group/t", 0)]);
    client.settle();
    client.subscribe(&[("t", 0)]);
    assert!(client.expect_publish().retain);
}

#[test]
fn mqtt5_retained_message_names_the_subscription_that_asked() {
    let broker = default_broker();
    broker.client(V5, "p").deliver(&Message::new("a/b", "x").qos(1).retained());
    let mut client = broker.client(V5, "s");
    client.subscribe_with(&[Property::SubscriptionId(7)], &[("a/+", 0)]);
    assert_eq!(client.expect_publish().subscription_ids(), [7]);
    client.subscribe_with(&[Property::SubscriptionId(8)], &[("+/b", 0)]);
    assert_eq!(client.expect_publish().subscription_ids(), [8]);
}

fn subscription_misses_nothing_between_retained_and_live(version: Version) {
    on_one_and_three_arbiters(|broker| {
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
versions!(subscription_misses_nothing_between_retained_and_live {
    mqtt311_3_8_4_3_subscription_misses_nothing_between_retained_and_live: V311,
    mqtt5_3_8_4_4_subscription_misses_nothing_between_retained_and_live: V5,
});
