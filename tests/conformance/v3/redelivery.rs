//! Sending again, at reconnect and on a live connection: chapters 3.3.1 (DUP), 4.4 and 4.6.

use super::cases;
use crate::harness::Target;
use crate::support::{Kind, Message, Publish, V311, Version};
use std::time::Duration;

cases! {
    v311 {
        resent_publish_has_dup_set_and_its_identifier: ["MQTT-3.3.1-1", "MQTT-2.3.1-4"],
    }
    v311_and_v31 {
        reconnect_resends_what_is_pending_in_its_order: ["MQTT-4.4.0-1", "MQTT-4.6.0-1"],
        publishes_resent_on_a_live_connection_keep_their_order: ["MQTT-4.6.0-1", "MQTT-4.6.0-6"],
    }
}

fn reconnect_resends_what_is_pending_in_its_order(broker: &Target, version: Version) {
    let topic = broker.topic("t");
    let mut subscriber = broker.persistent(version, "s");
    subscriber.subscribe(&[(&topic, 2)]);
    let mut publisher = broker.client(version, "p");
    for n in 0..12_u8 {
        publisher.deliver(&Message::new(&topic, [n]).qos(1 + n % 2));
    }
    let sent = subscriber.expect_publishes(12);
    // Settled: the fifth, at QoS 1. Half settled: the fourth and the second, at QoS 2, in this
    // order.
    subscriber.ack(Kind::Puback, sent[4].id);
    for publish in [&sent[3], &sent[1]] {
        subscriber.ack(Kind::Pubrec, publish.id);
        subscriber.expect_ack(Kind::Pubrel, publish.id);
    }
    subscriber.settle();
    subscriber.vanish();
    for _ in 0..2 {
        let mut subscriber = broker.persistent(version, "s");
        let (mut publishes, mut pubrels) = (Vec::new(), Vec::new());
        while publishes.len() + pubrels.len() < 11 {
            match subscriber.receive() {
                crate::support::Packet::Publish(publish) => publishes.push(publish),
                crate::support::Packet::Ack(ack) if ack.kind == Kind::Pubrel => pubrels.push(ack.id),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(pubrels, [sent[3].id, sent[1].id]);
        let pending: Vec<&Publish> = [0, 2, 5, 6, 7, 8, 9, 10, 11].map(|n| &sent[n]).to_vec();
        assert_eq!(publishes.len(), pending.len());
        for (again, first) in publishes.iter().zip(pending) {
            assert!(again.dup, "{again:?}");
            assert_eq!((again.id, again.qos, &again.payload), (first.id, first.qos, &first.payload));
        }
        subscriber.settle();
        subscriber.vanish();
    }
}

/// Every half second, without end.
fn impatient(broker: &Target) -> Target {
    broker.configured(|config| {
        config.redelivery.interval = Duration::from_millis(500);
        config.redelivery.backoff = 1.0;
        config.redelivery.jitter = 0.0;
        config.redelivery.attempts = 0;
    })
}

fn resent_publish_has_dup_set_and_its_identifier(broker: &Target) {
    let broker = impatient(broker);
    let topic = broker.topic("t");
    for qos in [1, 2] {
        let mut subscriber = broker.persistent(V311, "s");
        subscriber.subscribe(&[(&topic, qos)]);
        broker.client(V311, "p").deliver(&Message::new(&topic, "x").qos(qos));
        let first = subscriber.expect_publish();
        assert!(!first.dup);
        // On the live connection, over a reconnect, and on that connection.
        let live = subscriber.expect_publish();
        subscriber.vanish();
        let mut subscriber = broker.persistent(V311, "s");
        for again in [live, subscriber.expect_publish(), subscriber.expect_publish()] {
            assert!(again.dup, "{again:?}");
            assert_eq!((again.id, again.qos, again.text()), (first.id, qos, "x"));
        }
        subscriber.complete(&first);
        subscriber.expect_nothing_for(Duration::from_millis(1200));
        subscriber.disconnect();
    }
}

fn publishes_resent_on_a_live_connection_keep_their_order(broker: &Target, version: Version) {
    let broker = impatient(broker);
    let topic = broker.topic("t");
    let mut subscriber = broker.client(version, "s");
    subscriber.subscribe(&[(&topic, 2)]);
    let mut publisher = broker.client(version, "p");
    for n in 0..8_u8 {
        publisher.deliver(&Message::new(&topic, [n]).qos(1 + n % 2));
        // Over more than one turn of the broker's clock.
        publisher.expect_nothing_for(Duration::from_millis(40));
    }
    let first = subscriber.expect_publishes(8);
    // A slow machine may begin the next round before it has ended one; but no message overtakes an
    // older one.
    let mut resent = [0; 8];
    while resent[7] < 2 {
        let again = subscriber.expect_publish();
        let at = usize::from(again.payload[0]);
        assert_eq!((again.dup, again.id, again.qos), (true, first[at].id, first[at].qos));
        resent[at] += 1;
        assert!(resent[..at].iter().all(|older| *older >= resent[at]), "{at} has overtaken: {resent:?}");
    }
}
