//! PUBLISH, in and out: chapters 3.3.1 (DUP and QoS), 3.3.2, 3.3.4, 3.3.5 and 4.5.

use crate::harness::{Target, cases};
use crate::support::wire;
use crate::support::{Kind, Message, V31, V311, Version};

cases![
    mqtt311_3_3_1_2_4_3_1_1_qos_0_publish_has_dup_clear,
    mqtt311_3_3_1_2_qos_0_publish_with_dup_is_a_violation,
    mqtt311_3_3_1_3_dup_of_a_publisher_is_not_passed_on,
    mqtt311_3_3_1_4_qos_3_is_closed,
    mqtt31_qos_3_is_closed,
    mqtt311_3_3_2_1_topic_that_is_not_utf_8_or_not_whole_is_closed,
    mqtt311_3_3_2_2_4_7_1_1_topic_with_a_wildcard_is_a_violation,
    mqtt311_3_3_2_3_topic_of_a_delivery_matches_the_filter,
    mqtt311_3_3_4_1_answer_is_that_of_the_qos,
    mqtt31_answer_is_that_of_the_qos,
    mqtt311_3_3_5_1_overlapping_filters_deliver_at_the_highest_granted_qos,
    mqtt311_3_3_5_2_publish_to_the_brokers_own_topics_is_acknowledged_and_goes_nowhere,
    mqtt311_4_5_0_1_message_reaches_the_session_of_every_match,
];

fn mqtt311_3_3_1_2_4_3_1_1_qos_0_publish_has_dup_clear(broker: &Target) {
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
fn mqtt311_3_3_1_2_qos_0_publish_with_dup_is_a_violation(broker: &Target) {
    let topic = broker.topic("t");
    let mut watcher = broker.client(V311, "w");
    watcher.subscribe(&[(&topic, 0)]);
    broker.cuts(V311, &Message::new(&topic, "x").duplicate().encode(V311, 0));
    watcher.settle();
}

fn mqtt311_3_3_1_3_dup_of_a_publisher_is_not_passed_on(broker: &Target) {
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
        broker.cuts(version, &message.encode(version, 1));
    }
    watcher.settle();
}

fn mqtt311_3_3_1_4_qos_3_is_closed(broker: &Target) {
    qos_3_is_closed(broker, V311);
}

fn mqtt31_qos_3_is_closed(broker: &Target) {
    qos_3_is_closed(broker, V31);
}

fn mqtt311_3_3_2_1_topic_that_is_not_utf_8_or_not_whole_is_closed(broker: &Target) {
    let topic = broker.topic("t");
    let mut client = broker.client(V311, "c");
    client.deliver(&Message::new(&topic, "x").qos(1));
    for topic in [&b"\xFF"[..], b"t/\xC3\x28", b"\xED\xA0\x80"] {
        broker.cuts(V311, &Message::new(topic, "x").encode(V311, 0));
    }
    // No topic at all, half its length, fewer bytes than the length says.
    for body in [&[][..], &[0], &[0, 2, b't']] {
        broker.cuts(V311, &wire::packet(0x30, body));
    }
}

fn mqtt311_3_3_2_2_4_7_1_1_topic_with_a_wildcard_is_a_violation(broker: &Target) {
    let (filter, topic) = (broker.topic("#"), broker.topic("t"));
    let mut watcher = broker.client(V311, "w");
    watcher.subscribe(&[(&filter, 0)]);
    broker.client(V311, "p").deliver(&Message::new(&topic, "x").qos(1));
    watcher.expect_publish();
    for name in ["#", "+", "t/#", "+/t", "t+", "t#t"] {
        for qos in [0, 1, 2] {
            broker.cuts(V311, &Message::new(broker.topic(name), "x").qos(qos).encode(V311, 1));
        }
    }
    watcher.settle();
}

fn mqtt311_3_3_2_3_topic_of_a_delivery_matches_the_filter(broker: &Target) {
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

fn mqtt311_3_3_4_1_answer_is_that_of_the_qos(broker: &Target) {
    answer_is_that_of_the_qos(broker, V311);
}

fn mqtt31_answer_is_that_of_the_qos(broker: &Target) {
    answer_is_that_of_the_qos(broker, V31);
}

fn mqtt311_3_3_5_1_overlapping_filters_deliver_at_the_highest_granted_qos(broker: &Target) {
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
fn mqtt311_3_3_5_2_publish_to_the_brokers_own_topics_is_acknowledged_and_goes_nowhere(broker: &Target) {
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

fn mqtt311_4_5_0_1_message_reaches_the_session_of_every_match(broker: &Target) {
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
