//! PUBLISH, in and out: chapters 3.3.1 (DUP and QoS), 3.3.2, 3.3.4, 3.3.5 and 4.5.

use super::cases;
use crate::harness::Target;
use crate::support::wire;
use crate::support::{Kind, Message, V311, Version};

cases! {
    v311 {
        qos_0_publish_has_dup_clear: ["MQTT-3.3.1-2", "MQTT-4.3.1-1"],
        qos_0_publish_with_dup_is_a_violation: ["MQTT-3.3.1-2"],
        dup_of_a_publisher_is_not_passed_on: ["MQTT-3.3.1-3"],
        topic_that_is_not_utf_8_or_not_whole_is_closed: ["MQTT-3.3.2-1"],
        topic_with_a_wildcard_is_a_violation: ["MQTT-3.3.2-2", "MQTT-4.7.1-1"],
        topic_of_a_delivery_matches_the_filter: ["MQTT-3.3.2-3"],
        overlapping_filters_deliver_at_the_highest_granted_qos: ["MQTT-3.3.5-1"],
        publish_to_the_brokers_own_topics_is_acknowledged_and_goes_nowhere: ["MQTT-3.3.5-2"],
        message_reaches_the_session_of_every_match: ["MQTT-4.5.0-1"],
    }
    v311_and_v31 {
        qos_3_is_closed: ["MQTT-3.3.1-4"],
        answer_is_that_of_the_qos: ["MQTT-3.3.4-1"],
    }
}

fn qos_0_publish_has_dup_clear(broker: &Target) {
    let topic = broker.topic("t");
    let mut subscriber = broker.client(V311, "s");
    subscriber.subscribe(&[(&topic, 0)]);
    let mut publisher = broker.client(V311, "p");
    for message in [
        Message::new(&topic, "x"),
        Message::new(&topic, "x").retained(),
        // Lowered to QoS 0 on its way.
        Message::new(&topic, "x").qos(1).duplicate(),
        Message::new(&topic, "x").qos(2).duplicate(),
    ] {
        publisher.deliver(&message);
        let publish = subscriber.expect_publish();
        assert_eq!((publish.qos, publish.dup), (0, false), "{message:?}");
    }
}

/// No rule names an answer, so it is that to any violation.
fn qos_0_publish_with_dup_is_a_violation(broker: &Target) {
    let topic = broker.topic("t");
    let mut watcher = broker.client(V311, "w");
    watcher.subscribe(&[(&topic, 0)]);
    broker.assert_closes(V311, &Message::new(&topic, "x").duplicate().encode(V311, 0));
    watcher.settle();
}

fn dup_of_a_publisher_is_not_passed_on(broker: &Target) {
    let topic = broker.topic("t");
    let mut subscriber = broker.client(V311, "s");
    subscriber.subscribe(&[(&topic, 2)]);
    let mut publisher = broker.client(V311, "p");
    for qos in [1, 2] {
        publisher.deliver(&Message::new(&topic, "x").qos(qos).duplicate());
        let publish = subscriber.expect_publish();
        assert_eq!((publish.qos, publish.dup), (qos, false));
        subscriber.complete(&publish);
    }
}

fn qos_3_is_closed(broker: &Target, version: Version) {
    let topic = broker.topic("t");
    let mut watcher = broker.client(version, "w");
    watcher.subscribe(&[(&topic, 2)]);
    let message = Message::new(&topic, "x").qos(3);
    for message in [message.clone(), message.clone().duplicate(), message.retained()] {
        broker.assert_closes(version, &message.encode(version, 1));
    }
    watcher.settle();
}

fn topic_that_is_not_utf_8_or_not_whole_is_closed(broker: &Target) {
    let topic = broker.topic("t");
    let mut client = broker.client(V311, "c");
    client.deliver(&Message::new(&topic, "x").qos(1));
    for topic in [&b"\xFF"[..], b"t/\xC3\x28", b"\xED\xA0\x80"] {
        broker.assert_closes(V311, &Message::new(topic, "x").encode(V311, 0));
    }
    // No topic at all, half its length, fewer bytes than the length says.
    for body in [&[][..], &[0], &[0, 2, b't']] {
        broker.assert_closes(V311, &wire::packet(0x30, body));
    }
}

fn topic_with_a_wildcard_is_a_violation(broker: &Target) {
    let (filter, topic) = (broker.topic("#"), broker.topic("t"));
    let mut watcher = broker.client(V311, "w");
    watcher.subscribe(&[(&filter, 0)]);
    broker.client(V311, "p").deliver(&Message::new(&topic, "x").qos(1));
    watcher.expect_publish();
    for name in ["#", "+", "t/#", "+/t", "t+", "t#t"] {
        for qos in [0, 1, 2] {
            broker.assert_closes(V311, &Message::new(broker.topic(name), "x").qos(qos).encode(V311, 1));
        }
    }
    watcher.settle();
}

fn topic_of_a_delivery_matches_the_filter(broker: &Target) {
    let mut publisher = broker.client(V311, "p");
    for (filter, topic) in
        [("t", "t"), ("+", "u"), ("#", "v/w"), ("a/+/c", "a/b/c"), ("a/#", "a"), ("/", "/"), ("+/+", "/")]
    {
        let (filter, topic) = (broker.topic(filter), broker.topic(topic));
        let mut subscriber = broker.client(V311, "s");
        subscriber.subscribe(&[(&filter, 0)]);
        publisher.deliver(&Message::new(&topic, "x").qos(1));
        assert_eq!(subscriber.expect_publish().topic, topic, "{filter}");
        subscriber.disconnect();
    }
}

fn answer_is_that_of_the_qos(broker: &Target, version: Version) {
    let topic = broker.topic("t");
    let mut client = broker.client(version, "c");
    client.publish(&Message::new(&topic, "x"));
    client.settle();
    client.publish_as(&Message::new(&topic, "x").qos(1), 5);
    client.expect_ack(Kind::Puback, 5);
    client.settle();
    client.publish_as(&Message::new(&topic, "x").qos(2), 6);
    client.expect_ack(Kind::Pubrec, 6);
    client.settle();
    client.ack(Kind::Pubrel, 6);
    client.expect_ack(Kind::Pubcomp, 6);
    client.settle();
}

fn overlapping_filters_deliver_at_the_highest_granted_qos(broker: &Target) {
    let (exact, plus, hash) = (broker.topic("a/b"), broker.topic("+/b"), broker.topic("a/#"));
    let mut publisher = broker.client(V311, "p");
    for qos in [[0, 1, 2], [2, 0, 1], [1, 2, 0], [0, 1, 0], [0, 0, 0]] {
        let mut subscriber = broker.client(V311, "s");
        subscriber.subscribe(&[(&exact, qos[0]), (&plus, qos[1]), (&hash, qos[2])]);
        publisher.deliver(&Message::new(&exact, "x").qos(2));
        // As many copies as the broker likes: the standard lets it send one or more.
        let first = subscriber.expect_publish();
        let rest = subscriber.drain();
        let highest = rest.iter().chain([&first]).map(|publish| publish.qos).max();
        assert_eq!(highest, qos.into_iter().max(), "{qos:?}");
        subscriber.disconnect();
    }
}

/// `$SYS` and the broker's other topics are the only ones that a client is not authorised for.
fn publish_to_the_brokers_own_topics_is_acknowledged_and_goes_nowhere(broker: &Target) {
    let (own, allowed) = (format!("$SYS/{}", broker.topic("t")), broker.topic("t"));
    let mut watcher = broker.client(V311, "w");
    watcher.subscribe(&[(&own, 2), (&allowed, 2)]);
    let mut publisher = broker.client(V311, "p");
    for qos in [0, 1, 2] {
        publisher.deliver(&Message::new(&own, "forged").qos(qos).retained());
    }
    publisher.deliver(&Message::new(&allowed, "x").qos(1));
    assert_eq!(watcher.expect_publish().topic, allowed);
    let mut late = broker.client(V311, "late");
    late.subscribe(&[(&own, 2)]);
    late.settle();
}

fn message_reaches_the_session_of_every_match(broker: &Target) {
    let (topic, filter) = (broker.topic("t/u"), broker.topic("+/u"));
    let mut absent = broker.persistent(V311, "absent");
    absent.subscribe(&[(&filter, 1)]);
    absent.disconnect();
    let mut present: Vec<_> = (0..5).map(|n| broker.client(V311, &format!("present{n}"))).collect();
    for (n, client) in present.iter_mut().enumerate() {
        client.subscribe(&[(if n % 2 == 0 { &topic } else { &filter }, 2)]);
    }
    let mut other = broker.client(V311, "other");
    other.subscribe(&[(&broker.topic("u/t"), 2)]);
    // The publisher is one of them.
    for qos in [1, 2] {
        present[0].deliver(&Message::new(&topic, "x").qos(qos));
    }
    for client in &mut present {
        let qos: Vec<u8> = client.expect_publishes(2).iter().map(|publish| publish.qos).collect();
        assert_eq!(qos, [1, 2]);
        client.settle();
    }
    let mut absent = broker.persistent(V311, "absent");
    assert_eq!(absent.expect_publishes(2).len(), 2);
    other.settle();
}
