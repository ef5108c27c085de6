//! SUBSCRIBE and UNSUBSCRIBE: filters, options, identifiers, overlaps.

use crate::support::launch::{default_broker, on_one_and_three_threads, start_broker, versions};
use crate::support::{Message, Property, RawClient, V5, Version};

fn codes_follow_the_filters(version: Version) {
    on_one_and_three_threads(|broker| {
        let mut client = broker.client(version, "c");
        assert_eq!(client.subscribe(&[("a", 2), ("b", 0), ("c", 1), ("a", 1)]), [2, 0, 1, 1]);
        // The last request for `a` replaced the first.
        client.deliver(&Message::new("a", "").qos(2));
        let publish = client.expect_publish();
        assert_eq!(publish.qos, 1);
        client.complete(&publish);
        let codes = client.unsubscribe(&["a", "none", "b", "a"]);
        assert_eq!(codes, if version == V5 { vec![0, 0x11, 0, 0x11] } else { vec![] });
        for topic in ["a", "b"] {
            client.deliver(&Message::new(topic, "").qos(1));
        }
        client.settle();
    });
}
// 3.1.1 [MQTT-3.8.4-1], [MQTT-3.8.4-2], [MQTT-3.8.4-4], [MQTT-3.8.4-5], [MQTT-3.9.3-1],
// [MQTT-3.10.4-4], [MQTT-3.10.4-5], [MQTT-3.10.4-6]; 5.0 [MQTT-3.8.4-1], [MQTT-3.8.4-2],
// [MQTT-3.8.4-5], [MQTT-3.8.4-6], [MQTT-3.8.4-7], [MQTT-3.9.3-1], [MQTT-3.10.4-4], [MQTT-3.10.4-5],
// [MQTT-3.11.3-1]
versions!(codes_follow_the_filters: v31, v311, v5);

// 5.0 [MQTT-3.8.4-3]
#[test]
fn v5_subscribing_again_replaces_the_identifier() {
    let broker = default_broker();
    let mut client = broker.client(V5, "c");
    let mut named = |properties: &[Property]| {
        client.subscribe_with(properties, &[("t", 0)]);
        client.deliver(&Message::new("t", "").qos(1));
        client.expect_publish().subscription_ids()
    };
    assert_eq!(named(&[Property::SubscriptionId(5)]), [5]);
    assert_eq!(named(&[Property::SubscriptionId(6)]), [6]);
    assert_eq!(named(&[]), [0; 0]);
}

#[test]
fn v5_subscription_identifiers_are_part_of_the_session() {
    let broker = default_broker();
    let mut client = broker.persistent(V5, "c");
    client.subscribe_with(&[Property::SubscriptionId(9)], &[("t", 1)]);
    client.disconnect();
    broker.client(V5, "p").deliver(&Message::new("t", "").qos(1));
    assert_eq!(broker.persistent(V5, "c").expect_publish().subscription_ids(), [9]);
}

fn subscriptions_beyond_the_limit_are_refused(version: Version) {
    let broker = start_broker(|config| config.limits.subscriptions_per_client = 3);
    let mut client = broker.client(version, "c");
    let refused = if version == V5 { 0x97 } else { 0x80 };
    assert_eq!(client.subscribe(&[("a", 0), ("b", 1), ("c", 2), ("d", 0)]), [0, 1, 2, refused]);
    // Replacing needs no room, and leaving makes some.
    assert_eq!(client.subscribe(&[("a", 1)]), [1]);
    client.unsubscribe(&["b"]);
    assert_eq!(client.subscribe(&[("d", 0), ("e", 0)]), [0, refused]);
    for topic in ["b", "e"] {
        client.deliver(&Message::new(topic, "").qos(1));
    }
    client.deliver(&Message::new("d", "").qos(1));
    assert_eq!(client.expect_publish().topic, "d");
}
// 3.1.1 [MQTT-3.9.3-2]; 5.0 [MQTT-3.9.3-2]
versions!(subscriptions_beyond_the_limit_are_refused: v311, v5);

fn once_answered_every_thread_routes_by_the_change(version: Version) {
    on_one_and_three_threads(|broker| {
        let mut publishers: Vec<RawClient> =
            (0..4).map(|n| broker.client(version, &format!("p{n}"))).collect();
        let mut subscriber = broker.client(version, "s");
        for round in 0..20 {
            let topic = format!("round/{round}");
            subscriber.subscribe(&[(&topic, 0)]);
            // Whichever thread a publisher lives on knows the subscription by now.
            for publisher in &mut publishers {
                publisher.publish(&Message::new(&topic, ""));
            }
            subscriber.expect_publishes(4);
            subscriber.unsubscribe(&[&topic]);
            for publisher in &mut publishers {
                publisher.deliver(&Message::new(&topic, "").qos(1));
            }
            subscriber.settle();
        }
    });
}
// 3.1.1 [MQTT-3.8.4-1], [MQTT-3.10.4-2]; 5.0 [MQTT-3.8.4-1], [MQTT-3.10.4-2]
versions!(once_answered_every_thread_routes_by_the_change: v311, v5);
