//! The delivery protocols of QoS 1 and 2, and order: chapters 4.3 and 4.6.

use super::cases;
use crate::harness::Target;
use crate::support::{Kind, Message, RawClient, V311, Version};

cases! {
    v311 {
        acknowledged_identifier_means_a_new_message_even_with_dup: ["MQTT-4.3.2-2"],
        qos_2_identifier_is_remembered_over_a_reconnect: ["MQTT-4.3.3-2"],
        pubrels_go_out_in_the_order_of_the_pubrecs: ["MQTT-4.6.0-4"],
        order_holds_for_an_absent_subscriber: ["MQTT-4.6.0-6"],
    }
    v311_and_v31 {
        qos_1_delivery_is_pending_until_puback: ["MQTT-4.3.2-1"],
        qos_2_delivery_is_pending_until_pubrec_and_then_until_pubcomp: ["MQTT-4.3.3-1"],
        repeated_qos_2_publish_is_delivered_once: ["MQTT-4.3.3-2"],
        messages_of_one_publisher_and_qos_arrive_in_order: ["MQTT-4.6.0-5", "MQTT-4.6.0-6"],
    }
}

/// A session that outlives its connections, subscribed, and someone who publishes to it.
fn pair(broker: &Target, version: Version) -> (RawClient, RawClient, String) {
    let topic = broker.topic("t");
    let mut subscriber = broker.persistent(version, "s");
    assert_eq!(subscriber.subscribe(&[(&topic, 2)]), [2]);
    (broker.client(version, "p"), subscriber, topic)
}

fn qos_1_delivery_is_pending_until_puback(broker: &Target, version: Version) {
    let (mut publisher, mut subscriber, topic) = pair(broker, version);
    publisher.deliver(&Message::new(&topic, "first").qos(1));
    let first = subscriber.expect_publish();
    assert_eq!((first.qos, first.dup), (1, false));
    // Other traffic, later messages and their PUBACKs settle nothing.
    publisher.deliver(&Message::new(&topic, "second").qos(1));
    let second = subscriber.expect_publish();
    assert_ne!(second.id, first.id);
    assert!(!second.dup);
    subscriber.complete(&second);
    subscriber.settle();
    subscriber.vanish();

    let mut subscriber = broker.persistent(version, "s");
    let again = subscriber.expect_publish();
    assert_eq!((again.id, again.dup, again.text()), (first.id, true, "first"));
    subscriber.complete(&again);
    subscriber.settle();
    subscriber.vanish();
    broker.persistent(version, "s").settle();
}

fn acknowledged_identifier_means_a_new_message_even_with_dup(broker: &Target) {
    let (mut publisher, mut subscriber, topic) = pair(broker, V311);
    for message in [
        Message::new(&topic, "1").qos(1),
        Message::new(&topic, "1").qos(1).duplicate(),
        Message::new(&topic, "2").qos(1).duplicate(),
    ] {
        publisher.publish_as(&message, 77);
        publisher.expect_ack(Kind::Puback, 77);
        let publish = subscriber.expect_publish();
        assert_eq!(publish.payload, message.payload);
        subscriber.complete(&publish);
    }
    subscriber.settle();
}

fn qos_2_delivery_is_pending_until_pubrec_and_then_until_pubcomp(broker: &Target, version: Version) {
    let (mut publisher, mut subscriber, topic) = pair(broker, version);
    publisher.deliver(&Message::new(&topic, "x").qos(2));
    let first = subscriber.expect_publish();
    assert_eq!((first.qos, first.dup), (2, false));
    subscriber.settle();
    subscriber.vanish();
    // No PUBREC: the PUBLISH again.
    let mut subscriber = broker.persistent(version, "s");
    let again = subscriber.expect_publish();
    assert_eq!((again.id, again.qos, again.dup, again.text()), (first.id, 2, true, "x"));
    subscriber.ack(Kind::Pubrec, first.id);
    subscriber.expect_ack(Kind::Pubrel, first.id);
    subscriber.vanish();
    // PUBREC, no PUBCOMP: the PUBREL again, and the PUBLISH never.
    let mut subscriber = broker.persistent(version, "s");
    subscriber.expect_ack(Kind::Pubrel, first.id);
    subscriber.settle();
    subscriber.ack(Kind::Pubcomp, first.id);
    subscriber.settle();
    subscriber.vanish();
    // Both: nothing.
    broker.persistent(version, "s").settle();
}

fn repeated_qos_2_publish_is_delivered_once(broker: &Target, version: Version) {
    let (mut publisher, mut subscriber, topic) = pair(broker, version);
    for payload in ["1", "2"] {
        let message = Message::new(&topic, payload).qos(2);
        publisher.publish_as(&message, 9);
        publisher.expect_ack(Kind::Pubrec, 9);
        // DUP or not: until PUBREL the identifier means the same message.
        for repeated in [message.clone().duplicate(), message] {
            publisher.publish_as(&repeated, 9);
            publisher.expect_ack(Kind::Pubrec, 9);
        }
        publisher.ack(Kind::Pubrel, 9);
        publisher.expect_ack(Kind::Pubcomp, 9);
        let publish = subscriber.expect_publish();
        assert_eq!(publish.text(), payload);
        subscriber.complete(&publish);
        subscriber.settle();
    }
}

fn qos_2_identifier_is_remembered_over_a_reconnect(broker: &Target) {
    let (mut subscriber, mut publisher, topic) =
        (broker.client(V311, "s"), broker.persistent(V311, "p"), broker.topic("t"));
    subscriber.subscribe(&[(&topic, 2)]);
    let message = Message::new(&topic, "x").qos(2);
    publisher.publish_as(&message, 9);
    publisher.expect_ack(Kind::Pubrec, 9);
    publisher.vanish();
    let mut publisher = broker.persistent(V311, "p");
    publisher.publish_as(&message.duplicate(), 9);
    publisher.expect_ack(Kind::Pubrec, 9);
    publisher.vanish();
    let mut publisher = broker.persistent(V311, "p");
    // Twice: the PUBCOMP might have been lost.
    for _ in 0..2 {
        publisher.ack(Kind::Pubrel, 9);
        publisher.expect_ack(Kind::Pubcomp, 9);
    }
    let publish = subscriber.expect_publish();
    assert_eq!(publish.text(), "x");
    subscriber.complete(&publish);
    subscriber.settle();
}

fn pubrels_go_out_in_the_order_of_the_pubrecs(broker: &Target) {
    let (mut publisher, mut subscriber, topic) = pair(broker, V311);
    for n in 0..9_u8 {
        publisher.deliver(&Message::new(&topic, [n]).qos(2));
    }
    let ids: Vec<u16> = subscriber.expect_publishes(9).iter().map(|publish| publish.id).collect();
    let shuffled = [4, 0, 8, 2, 6, 1, 7, 3, 5].map(|n| ids[n]);
    shuffled.iter().for_each(|id| subscriber.ack(Kind::Pubrec, *id));
    shuffled.iter().for_each(|id| drop(subscriber.expect_ack(Kind::Pubrel, *id)));
    // Sent again, too.
    subscriber.vanish();
    let mut subscriber = broker.persistent(V311, "s");
    shuffled.iter().for_each(|id| drop(subscriber.expect_ack(Kind::Pubrel, *id)));
}

fn messages_of_one_publisher_and_qos_arrive_in_order(broker: &Target, version: Version) {
    let (mut publisher, mut subscriber, topic) = pair(broker, version);
    let mut seen: [Vec<u8>; 3] = Default::default();
    for round in 0..10_u8 {
        // QoS 0, 1 and 2 in turn, one behind the other in the stream.
        let numbers = round * 24..(round + 1) * 24;
        let publishes = numbers
            .clone()
            .flat_map(|n| Message::new(&topic, [n]).qos(n % 3).encode(version, u16::from(n) + 1));
        publisher.send(&publishes.collect::<Vec<u8>>());
        for n in numbers.clone().filter(|n| n % 3 == 2) {
            publisher.wait_for(Kind::Pubrec);
            publisher.ack(Kind::Pubrel, u16::from(n) + 1);
            publisher.wait_for(Kind::Pubcomp);
        }
        for publish in subscriber.expect_publishes(numbers.len()) {
            seen[usize::from(publish.qos)].extend(&publish.payload);
            match publish.qos {
                1 => subscriber.ack(Kind::Puback, publish.id),
                2 => subscriber.ack(Kind::Pubrec, publish.id),
                _ => {}
            }
        }
        for _ in 0..8 {
            let crate::support::Packet::Ack(pubrel) = subscriber.expect_packet(Kind::Pubrel) else {
                unreachable!()
            };
            subscriber.ack(Kind::Pubcomp, pubrel.id);
        }
    }
    for (qos, seen) in seen.iter().enumerate() {
        let sent: Vec<u8> = (0..240).filter(|n| usize::from(n % 3) == qos).collect();
        assert_eq!(seen, &sent, "QoS {qos}");
    }
}

fn order_holds_for_an_absent_subscriber(broker: &Target) {
    let (mut publisher, mut subscriber, topic) = pair(broker, V311);
    for n in 0..10_u8 {
        publisher.deliver(&Message::new(&topic, [n]).qos(1));
    }
    let got = subscriber.expect_publishes(10);
    got[..4].iter().for_each(|publish| subscriber.complete(publish));
    subscriber.settle();
    subscriber.vanish();
    for n in 10..200_u8 {
        publisher.deliver(&Message::new(&topic, [n]).qos(1));
    }
    // First the messages in flight, then those in the queue, then new ones.
    let mut subscriber = broker.persistent(V311, "s");
    for n in 200..220_u8 {
        publisher.deliver(&Message::new(&topic, [n]).qos(1));
    }
    for n in 4..220_u8 {
        let publish = subscriber.expect_publish();
        assert_eq!((publish.payload.as_slice(), publish.dup), (&[n][..], n < 10));
        subscriber.complete(&publish);
    }
    subscriber.settle();
}
