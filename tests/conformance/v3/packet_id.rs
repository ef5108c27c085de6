//! Packet identifiers: chapter 2.3.1.

use super::cases;
use crate::harness::Target;
use crate::support::client::subscribe_packet;
use crate::support::wire;
use crate::support::{Kind, Message, Packet, V311};
use std::collections::BTreeSet;
use std::time::Duration;

cases! {
    v311 {
        identifier_0_is_a_violation: ["MQTT-2.3.1-1"],
        broker_never_uses_identifier_0: ["MQTT-2.3.1-1"],
        identifiers_in_use_are_not_given_again: ["MQTT-2.3.1-4"],
        identifier_in_use_is_passed_over_when_all_others_have_been_used: ["MQTT-2.3.1-4"],
        qos_0_publish_has_no_identifier: ["MQTT-2.3.1-5"],
        acknowledgements_echo_the_identifier_of_the_publish: ["MQTT-2.3.1-6"],
        suback_and_unsuback_echo_the_identifier_of_the_request: ["MQTT-2.3.1-7"],
    }
}

fn identifier_0_is_a_violation(broker: &Target) {
    let topic = broker.topic("t");
    let mut watcher = broker.client(V311, "w");
    watcher.subscribe(&[(&topic, 2)]);
    for qos in [1, 2] {
        broker.assert_closes(V311, &Message::new(&topic, "0").qos(qos).encode(V311, 0));
    }
    broker.assert_closes(V311, &subscribe_packet(V311, 0, &[], &[(&topic, 0)]));
    broker.assert_closes(V311, &wire::packet(0xA2, &[0, 0, 0, 1, b't']));
    watcher.settle();
}

/// All its other identifiers are echoes. The reader fails the test if an identifier is 0.
fn broker_never_uses_identifier_0(broker: &Target) {
    let topic = broker.topic("t");
    let mut subscriber = broker.client(V311, "s");
    subscriber.subscribe(&[(&topic, 2)]);
    let mut publisher = broker.client(V311, "p");
    for qos in [1, 2, 1, 2] {
        publisher.deliver(&Message::new(&topic, "x").qos(qos));
        let publish = subscriber.expect_publish();
        assert_ne!(publish.id, 0);
        subscriber.complete(&publish);
    }
}

fn identifiers_in_use_are_not_given_again(broker: &Target) {
    let topic = broker.topic("t");
    let mut subscriber = broker.client(V311, "s");
    subscriber.subscribe(&[(&topic, 2)]);
    let mut publisher = broker.client(V311, "p");
    // A QoS 2 identifier is in use until PUBCOMP, so PUBREC frees none.
    let mut in_use = BTreeSet::new();
    for n in 0..60 {
        publisher.deliver(&Message::new(&topic, "x").qos(1 + n % 2));
        let publish = subscriber.expect_publish();
        assert!(in_use.insert(publish.id), "{publish:?} is in use: {in_use:?}");
        match n % 4 {
            0 => {
                subscriber.ack(Kind::Puback, publish.id);
                subscriber.settle();
                in_use.remove(&publish.id);
            }
            1 => {
                subscriber.ack(Kind::Pubrec, publish.id);
                subscriber.expect_ack(Kind::Pubrel, publish.id);
            }
            _ => {}
        }
    }
}

/// One stays unacknowledged while all the others come and go.
fn identifier_in_use_is_passed_over_when_all_others_have_been_used(broker: &Target) {
    const AT_ONCE: usize = 90;
    let broker = broker.configured(|config| config.redelivery.interval = Duration::ZERO);
    let topic = broker.topic("t");
    let mut subscriber = broker.client(V311, "s");
    subscriber.subscribe(&[(&topic, 1)]);
    let mut publisher = broker.client(V311, "p");
    publisher.deliver(&Message::new(&topic, "held").qos(1));
    let held = subscriber.expect_publish();
    let (mut left, mut seen) = (66_000, BTreeSet::from([held.id]));
    while left > 0 {
        let round = AT_ONCE.min(left);
        left -= round;
        let publishes = (1..=round as u16).flat_map(|id| Message::new(&topic, "").qos(1).encode(V311, id));
        publisher.send(&publishes.collect::<Vec<u8>>());
        let mut acks = Vec::new();
        for publish in subscriber.expect_publishes(round) {
            assert_ne!(publish.id, held.id, "an identifier in use");
            seen.insert(publish.id);
            acks.extend_from_slice(&[0x40, 2, (publish.id >> 8) as u8, publish.id as u8]);
        }
        subscriber.send(&acks);
        (0..round).for_each(|_| drop(publisher.expect_packet(Kind::Puback)));
    }
    println!("{} identifiers were used", seen.len());
    subscriber.complete(&held);
    subscriber.settle();
}

fn qos_0_publish_has_no_identifier(broker: &Target) {
    let topic = broker.topic("t");
    let mut subscriber = broker.client(V311, "s");
    subscriber.subscribe(&[(&topic, 2)]);
    let mut publisher = broker.client(V311, "p");
    // Were there one, in either direction, it would be taken from the payload or added to it.
    for payload in [&b""[..], &[0], &[0, 1], &[0, 1, b'x']] {
        publisher.publish(&Message::new(&topic, payload));
        let publish = subscriber.expect_publish();
        assert_eq!((publish.qos, publish.payload.as_slice()), (0, payload));
    }
}

fn acknowledgements_echo_the_identifier_of_the_publish(broker: &Target) {
    let topic = broker.topic("t");
    let mut client = broker.client(V311, "c");
    for id in [1, 255, 256, 32_768, 65_535, 2] {
        client.publish_as(&Message::new(&topic, "x").qos(1), id);
        client.expect_ack(Kind::Puback, id);
        client.publish_as(&Message::new(&topic, "x").qos(2), id);
        client.expect_ack(Kind::Pubrec, id);
        client.ack(Kind::Pubrel, id);
        client.expect_ack(Kind::Pubcomp, id);
    }
    // And as a sender: PUBREL is for the PUBLISH that PUBREC was for.
    client.subscribe(&[(&topic, 2)]);
    let mut publisher = broker.client(V311, "p");
    for _ in 0..3 {
        publisher.deliver(&Message::new(&topic, "x").qos(2));
    }
    let publishes = client.expect_publishes(3);
    for publish in publishes.iter().rev() {
        client.ack(Kind::Pubrec, publish.id);
        client.expect_ack(Kind::Pubrel, publish.id);
    }
}

fn suback_and_unsuback_echo_the_identifier_of_the_request(broker: &Target) {
    let topic = broker.topic("t");
    let mut client = broker.client(V311, "c");
    for id in [65_535, 1, 256, 255, 32_768] {
        client.send(&subscribe_packet(V311, id, &[], &[(&topic, 0)]));
        let Packet::Granted(suback) = client.expect_packet(Kind::Suback) else { unreachable!() };
        assert_eq!(suback.id, id);
        let mut body = id.to_be_bytes().to_vec();
        wire::Put::put_binary(&mut body, topic.as_bytes());
        client.send(&wire::packet(0xA2, &body));
        let Packet::Granted(unsuback) = client.expect_packet(Kind::Unsuback) else { unreachable!() };
        assert_eq!(unsuback.id, id);
    }
}
