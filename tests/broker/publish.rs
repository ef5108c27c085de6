//! PUBLISH in both directions at QoS 0, 1 and 2: handshakes, identifiers, duplicates, order.

use crate::support::launch::{TestBroker, default_broker, on_one_and_three_threads, versions};
use crate::support::{Kind, Message, Packet, RawClient, V5, V31, V311, Version};

const IDS: [&str; 6] = ["s0", "s1", "s2", "s3", "s4", "s5"];

/// Subscribers enough that every thread has some.
fn subscribers(broker: &TestBroker, version: Version, filter: &str, qos: u8) -> Vec<RawClient> {
    let subscribe = |id: &str| {
        let mut client = broker.client(version, id);
        assert_eq!(client.subscribe(&[(filter, qos)]), [qos]);
        client
    };
    IDS.into_iter().map(subscribe).collect()
}

fn every_subscriber_receives_qos_0_1_and_2(version: Version) {
    on_one_and_three_threads(|broker| {
        let mut subscribers = subscribers(broker, version, "a/b", 2);
        let mut publisher = broker.client(version, "publisher");
        for qos in [0, 1, 2] {
            let code = publisher.deliver(&Message::new("a/b", format!("q{qos}")).qos(qos));
            assert_eq!(code, 0);
        }
        for subscriber in &mut subscribers {
            for qos in [0, 1, 2] {
                let publish = subscriber.expect_publish();
                assert_eq!((publish.qos, publish.text()), (qos, format!("q{qos}").as_str()));
                assert_eq!((publish.topic.as_str(), publish.dup, publish.retain), ("a/b", false, false));
                subscriber.complete(&publish);
            }
            subscriber.settle();
        }
    });
}
// 3.1.1 [MQTT-4.3.1-1], [MQTT-4.3.2-1], [MQTT-4.3.3-1], [MQTT-4.5.0-1]; 5.0 [MQTT-4.3.1-1],
// [MQTT-4.3.2-2], [MQTT-4.3.3-2], [MQTT-4.5.0-1]
versions!(every_subscriber_receives_qos_0_1_and_2: v31, v311, v5);

fn qos_2_is_deduplicated_by_identifier_until_pubrel(version: Version) {
    on_one_and_three_threads(|broker| {
        let mut subscribers = subscribers(broker, version, "t", 1);
        let mut publisher = broker.client(version, "publisher");
        let message = Message::new("t", "once").qos(2);
        // Whatever DUP says: a repetition is known by its identifier alone.
        for repeated in [message.clone(), message.clone(), message.clone().duplicate(), message] {
            publisher.publish_as(&repeated, 5);
            publisher.expect_ack(Kind::Pubrec, 5);
        }
        publisher.ack(Kind::Pubrel, 5);
        publisher.expect_ack(Kind::Pubcomp, 5);
        publisher.publish_as(&Message::new("t", "again").qos(2).duplicate(), 5);
        publisher.expect_ack(Kind::Pubrec, 5);
        publisher.ack(Kind::Pubrel, 5);
        publisher.expect_ack(Kind::Pubcomp, 5);
        for subscriber in &mut subscribers {
            for payload in ["once", "again"] {
                let publish = subscriber.expect_publish();
                assert_eq!((publish.text(), publish.dup), (payload, false));
                subscriber.complete(&publish);
            }
            subscriber.settle();
        }
    });
}
// 3.1.1 [MQTT-4.3.3-2]; 5.0 [MQTT-4.3.3-10], [MQTT-4.3.3-12]
versions!(qos_2_is_deduplicated_by_identifier_until_pubrel: v31, v311, v5);

fn qos_2_identifier_is_remembered_over_a_reconnect(version: Version) {
    on_one_and_three_threads(|broker| {
        let mut subscribers = subscribers(broker, version, "t", 1);
        let mut publisher = broker.persistent(version, "publisher");
        publisher.publish_as(&Message::new("t", "once").qos(2), 5);
        publisher.expect_ack(Kind::Pubrec, 5);
        publisher.vanish();
        let mut publisher = broker.persistent(version, "publisher");
        publisher.publish_as(&Message::new("t", "once").qos(2).duplicate(), 5);
        publisher.expect_ack(Kind::Pubrec, 5);
        publisher.ack(Kind::Pubrel, 5);
        publisher.expect_ack(Kind::Pubcomp, 5);
        for subscriber in &mut subscribers {
            let publish = subscriber.expect_publish();
            subscriber.complete(&publish);
            subscriber.settle();
        }
    });
}
// 3.1.1 [MQTT-4.3.3-2], [MQTT-4.4.0-1]; 5.0 [MQTT-4.3.3-10], [MQTT-4.1.0-1]
versions!(qos_2_identifier_is_remembered_over_a_reconnect: v31, v311, v5);

fn messages_of_a_publisher_arrive_in_order(version: Version) {
    on_one_and_three_threads(|broker| {
        for qos in [0, 1, 2] {
            let mut subscribers = subscribers(broker, version, "order", qos);
            let mut publisher = broker.client(version, "publisher");
            // All in one write, as many as fit every receive maximum.
            let messages =
                (0..20_u16).map(|n| Message::new("order", n.to_string()).qos(qos).encode(version, n + 1));
            publisher.send(&messages.flatten().collect::<Vec<u8>>());
            if qos == 2 {
                // A broker may keep QoS 2 to itself until it is released.
                (1..=20).for_each(|id| publisher.ack(Kind::Pubrel, id));
            }
            for subscriber in &mut subscribers {
                for n in 0..20 {
                    let publish = subscriber.expect_publish();
                    assert_eq!(publish.text(), n.to_string(), "QoS {qos}");
                    subscriber.complete(&publish);
                }
            }
        }
    });
}
// 3.1.1 [MQTT-4.6.0-6]; 5.0 [MQTT-4.6.0-5]
versions!(messages_of_a_publisher_arrive_in_order: v31, v311, v5);

fn pubrels_go_in_the_order_of_pubrecs(version: Version) {
    let broker = default_broker();
    let mut subscriber = broker.client(version, "subscriber");
    subscriber.subscribe(&[("t", 2)]);
    let mut publisher = broker.client(version, "publisher");
    for n in 0..6 {
        publisher.deliver(&Message::new("t", n.to_string()).qos(2));
    }
    let mut ids: Vec<u16> = subscriber.expect_publishes(6).iter().map(|publish| publish.id).collect();
    ids.swap(0, 3);
    ids.swap(1, 5);
    ids.iter().for_each(|id| subscriber.ack(Kind::Pubrec, *id));
    ids.iter().for_each(|id| {
        subscriber.expect_ack(Kind::Pubrel, *id);
    });
}
// 3.1.1 [MQTT-4.6.0-4]; 5.0 [MQTT-4.6.0-4]
versions!(pubrels_go_in_the_order_of_pubrecs: v311, v5);

#[test]
fn v5_nobody_subscribed_is_no_failure() {
    let broker = default_broker();
    let mut publisher = broker.client(V5, "publisher");
    for qos in [1, 2] {
        let code = publisher.deliver(&Message::new("nobody", "x").qos(qos));
        assert!(matches!(code, 0 | 0x10), "0x{code:02X}");
    }
}

fn stray_acknowledgements_do_no_harm(version: Version) {
    let broker = default_broker();
    let mut client = broker.client(version, "c");
    client.ack(Kind::Puback, 99);
    client.ack(Kind::Pubcomp, 98);
    client.settle();
    client.ack(Kind::Pubrec, 97);
    match client.receive() {
        // 5.0 names the case; 3.x has a PUBREL for every PUBREC.
        Packet::Ack(ack) => {
            assert_eq!((ack.kind, ack.id), (Kind::Pubrel, 97));
            assert!(matches!(ack.code, 0 | 0x92));
        }
        other => panic!("{other:?}"),
    }
    client.settle();
}
// 5.0 [MQTT-4.3.3-4]
versions!(stray_acknowledgements_do_no_harm: v311, v5);

fn payloads_of_all_length_encodings_arrive_whole(version: Version) {
    on_one_and_three_threads(|broker| {
        let mut subscriber = broker.client(version, "subscriber");
        subscriber.subscribe(&[("t", 1)]);
        let mut publisher = broker.client(version, "publisher");
        // Around 127, 16,383 and 65,535 bytes of remaining length, and one that needs many reads.
        let borders = (115..130).chain(16_370..16_386).chain([65_530, 65_536, 1_000_000]);
        for length in borders {
            let mut payload = Vec::with_capacity(length);
            (0..length).for_each(|n| payload.push((n % 251) as u8));
            publisher.deliver(&Message::new("t", &payload).qos(1));
            let publish = subscriber.expect_publish();
            assert!(publish.payload == payload, "{length} bytes came as {}", publish.payload.len());
            subscriber.complete(&publish);
        }
    });
}
// 5.0 [MQTT-1.5.5-1]
versions!(payloads_of_all_length_encodings_arrive_whole: v311, v5);

#[test]
fn all_versions_reach_each_other() {
    on_one_and_three_threads(|broker| {
        let all = [V31, V311, V5];
        let mut subscribers = all.map(|version| broker.client(version, &format!("{version:?}")));
        for subscriber in &mut subscribers {
            subscriber.subscribe(&[("t", 2)]);
        }
        for version in all {
            let mut publisher = broker.client(version, "publisher");
            publisher.deliver(&Message::new("t", format!("{version:?}")).qos(2));
            for subscriber in &mut subscribers {
                let publish = subscriber.expect_publish();
                assert_eq!((publish.qos, publish.text()), (2, format!("{version:?}").as_str()));
                subscriber.complete(&publish);
            }
        }
    });
}
