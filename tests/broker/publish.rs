//! PUBLISH in both directions at QoS 0, 1 and 2: handshakes, identifiers, duplicates, order.

use crate::support::launch::{TestBroker, default_broker, on_one_and_three_arbiters, versions};
use crate::support::wire::{self, Put};
use crate::support::{Kind, Message, Packet, RawClient, V5, V31, V311, Version};

const IDS: [&str; 6] = ["s0", "s1", "s2", "s3", "s4", "s5"];

/// Subscribers enough that every arbiter has some.
fn subscribers(broker: &TestBroker, version: Version, filter: &str, qos: u8) -> Vec<RawClient> {
    let subscribe = |id: &str| {
        let mut client = broker.client(version, id);
        assert_eq!(client.subscribe(&[(filter, qos)]), [qos]);
        client
    };
    IDS.into_iter().map(subscribe).collect()
}

fn every_subscriber_receives_each_qos(version: Version) {
    on_one_and_three_arbiters(|broker| {
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
versions!(every_subscriber_receives_each_qos {
    mqtt31_every_subscriber_receives_qos_0_1_and_2: V31,
    mqtt311_4_3_1_1_4_3_2_1_4_3_3_1_4_5_0_1_every_subscriber_receives_qos_0_1_and_2: V311,
    mqtt5_4_3_1_1_4_3_2_2_4_3_3_2_4_5_0_1_every_subscriber_receives_qos_0_1_and_2: V5,
});

fn delivery_qos_is_the_lower_of_published_and_granted(version: Version) {
    let broker = default_broker();
    let mut publisher = broker.client(version, "publisher");
    let mut subscriber = broker.client(version, "subscriber");
    for granted in [0, 1, 2] {
        subscriber.subscribe(&[("t", granted)]);
        for published in [0, 1, 2] {
            publisher.deliver(&Message::new("t", "x").qos(published));
            let publish = subscriber.expect_publish();
            assert_eq!(publish.qos, published.min(granted), "published {published}, granted {granted}");
            subscriber.complete(&publish);
        }
    }
}
versions!(delivery_qos_is_the_lower_of_published_and_granted {
    mqtt311_3_8_4_6_delivery_qos_is_the_lower_of_published_and_granted: V311,
    mqtt5_3_8_4_8_delivery_qos_is_the_lower_of_published_and_granted: V5,
});

fn answers_echo_the_identifier_of_the_publish(version: Version) {
    let broker = default_broker();
    let mut client = broker.client(version, "c");
    for id in [1, 77, 65_535] {
        client.publish_as(&Message::new("t", "").qos(1), id);
        client.expect_ack(Kind::Puback, id);
        client.publish_as(&Message::new("t", "").qos(2), id);
        client.expect_ack(Kind::Pubrec, id);
        client.ack(Kind::Pubrel, id);
        client.expect_ack(Kind::Pubcomp, id);
    }
    client.publish(&Message::new("t", ""));
    client.settle();
}
versions!(answers_echo_the_identifier_of_the_publish {
    mqtt31_answers_echo_the_identifier_of_the_publish: V31,
    mqtt311_2_3_1_6_3_3_4_1_answers_echo_the_identifier_of_the_publish: V311,
    mqtt5_2_2_1_5_3_3_4_1_answers_echo_the_identifier_of_the_publish: V5,
});

fn acknowledged_qos_1_identifier_means_a_new_message(version: Version) {
    let broker = default_broker();
    let mut subscriber = broker.client(version, "subscriber");
    subscriber.subscribe(&[("t", 0)]);
    let mut publisher = broker.client(version, "publisher");
    for (payload, dup) in [("first", false), ("second", true)] {
        let message = Message::new("t", payload).qos(1);
        publisher.publish_as(&if dup { message.duplicate() } else { message }, 9);
        publisher.expect_ack(Kind::Puback, 9);
        assert_eq!(subscriber.expect_publish().text(), payload);
    }
}
versions!(acknowledged_qos_1_identifier_means_a_new_message {
    mqtt311_4_3_2_2_acknowledged_identifier_means_a_new_message_even_with_dup: V311,
    mqtt5_4_3_2_5_acknowledged_identifier_means_a_new_message_even_with_dup: V5,
});

fn qos_2_is_deduplicated_by_identifier_until_pubrel(version: Version) {
    on_one_and_three_arbiters(|broker| {
        let mut subscribers = subscribers(broker, version, "t", 1);
        let mut publisher = broker.client(version, "publisher");
        let message = Message::new("t", "once").qos(2);
        // Whatever DUP says: a repetition is told by its identifier alone.
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
versions!(qos_2_is_deduplicated_by_identifier_until_pubrel {
    mqtt31_qos_2_is_deduplicated_by_identifier_until_pubrel: V31,
    mqtt311_4_3_3_2_qos_2_is_deduplicated_by_identifier_until_pubrel: V311,
    mqtt5_4_3_3_10_4_3_3_12_qos_2_is_deduplicated_by_identifier_until_pubrel: V5,
});

fn qos_2_identifier_is_remembered_over_a_reconnect(version: Version) {
    on_one_and_three_arbiters(|broker| {
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
versions!(qos_2_identifier_is_remembered_over_a_reconnect {
    mqtt31_qos_2_identifier_is_remembered_over_a_reconnect: V31,
    mqtt311_4_3_3_2_4_4_0_1_qos_2_identifier_is_remembered_over_a_reconnect: V311,
    mqtt5_4_3_3_10_4_1_0_1_qos_2_identifier_is_remembered_over_a_reconnect: V5,
});

fn pubrel_for_an_unknown_identifier_is_answered(version: Version) {
    let broker = default_broker();
    let mut client = broker.client(version, "c");
    client.ack(Kind::Pubrel, 4321);
    let pubcomp = client.expect_ack(Kind::Pubcomp, 4321);
    // 5.0 has a word for it, and leaves it open to say so.
    assert!(matches!(pubcomp.code, 0 | 0x92));
    client.settle();
}
versions!(pubrel_for_an_unknown_identifier_is_answered {
    mqtt31_pubrel_for_an_unknown_identifier_is_answered: V31,
    mqtt311_4_3_3_2_pubrel_for_an_unknown_identifier_is_answered: V311,
    mqtt5_4_3_3_11_pubrel_for_an_unknown_identifier_is_answered: V5,
});

#[test]
fn mqtt31_dup_is_tolerated_on_pubrel_subscribe_and_unsubscribe() {
    let broker = default_broker();
    let mut client = broker.client(V31, "c");
    let mut subscribe = crate::support::client::subscribe_packet(V31, 3, &[], &[("t", 0)]);
    subscribe[0] |= 8;
    client.send(&subscribe);
    client.expect_packet(Kind::Suback);
    client.publish_as(&Message::new("u", "").qos(2), 4);
    client.expect_ack(Kind::Pubrec, 4);
    client.send(&[0x6A, 2, 0, 4]);
    client.expect_ack(Kind::Pubcomp, 4);
    client.send(&[0xAA, 5, 0, 5, 0, 1, b't']);
    client.expect_packet(Kind::Unsuback);
    client.settle();
}

fn outgoing_identifiers_are_never_shared_in_flight(version: Version) {
    let broker = default_broker();
    let mut subscriber = broker.client(version, "subscriber");
    subscriber.subscribe(&[("t", 2)]);
    let mut publisher = broker.client(version, "publisher");
    // Some stay in flight for good; identifiers go round the others more than once.
    let mut held = Vec::new();
    for n in 0..300_u32 {
        publisher.deliver(&Message::new("t", n.to_string()).qos(1 + (n % 2) as u8));
        let publish = subscriber.expect_publish();
        assert!(publish.id != 0 && !held.contains(&publish.id), "{} is in flight: {held:?}", publish.id);
        if n % 30 == 0 { held.push(publish.id) } else { subscriber.complete(&publish) }
    }
}
versions!(outgoing_identifiers_are_never_shared_in_flight {
    mqtt311_2_3_1_1_2_3_1_4_outgoing_identifiers_are_never_shared_in_flight: V311,
    mqtt5_2_2_1_4_4_3_2_1_4_3_3_1_outgoing_identifiers_are_never_shared_in_flight: V5,
});

fn outgoing_qos_2_identifier_is_held_until_pubcomp(version: Version) {
    let broker = default_broker();
    let mut subscriber = broker.client(version, "subscriber");
    subscriber.subscribe(&[("t", 2)]);
    let mut publisher = broker.client(version, "publisher");
    publisher.deliver(&Message::new("t", "held").qos(2));
    let held = subscriber.expect_publish();
    subscriber.ack(Kind::Pubrec, held.id);
    subscriber.expect_ack(Kind::Pubrel, held.id);
    for n in 0..150_u32 {
        publisher.deliver(&Message::new("t", n.to_string()).qos(2));
        let publish = subscriber.expect_publish();
        assert_ne!(publish.id, held.id);
        subscriber.complete(&publish);
    }
    subscriber.ack(Kind::Pubcomp, held.id);
    subscriber.settle();
}
versions!(outgoing_qos_2_identifier_is_held_until_pubcomp {
    mqtt311_2_3_1_4_outgoing_qos_2_identifier_is_held_until_pubcomp: V311,
    mqtt5_2_2_1_4_outgoing_qos_2_identifier_is_held_until_pubcomp: V5,
});

fn forwarded_dup_is_the_brokers_own(version: Version) {
    let broker = default_broker();
    let mut subscriber = broker.client(version, "subscriber");
    subscriber.subscribe(&[("t", 2)]);
    let mut publisher = broker.client(version, "publisher");
    for qos in [1, 2] {
        publisher.deliver(&Message::new("t", "x").qos(qos).duplicate());
        let publish = subscriber.expect_publish();
        assert!(!publish.dup);
        subscriber.complete(&publish);
    }
}
versions!(forwarded_dup_is_the_brokers_own {
    mqtt311_3_3_1_3_forwarded_dup_is_the_brokers_own: V311,
    mqtt5_3_3_1_3_forwarded_dup_is_the_brokers_own: V5,
});

fn messages_of_a_publisher_arrive_in_order(version: Version) {
    on_one_and_three_arbiters(|broker| {
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
versions!(messages_of_a_publisher_arrive_in_order {
    mqtt31_messages_of_a_publisher_arrive_in_order: V31,
    mqtt311_4_6_0_6_messages_of_a_publisher_arrive_in_order: V311,
    mqtt5_4_6_0_5_messages_of_a_publisher_arrive_in_order: V5,
});

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
versions!(pubrels_go_in_the_order_of_pubrecs {
    mqtt311_4_6_0_4_pubrels_go_in_the_order_of_pubrecs: V311,
    mqtt5_4_6_0_4_pubrels_go_in_the_order_of_pubrecs: V5,
});

#[test]
fn mqtt5_4_4_0_2_refused_delivery_is_settled_and_frees_its_identifier() {
    let broker = default_broker();
    let mut subscriber = broker.persistent(V5, "subscriber");
    subscriber.subscribe(&[("t", 2)]);
    let mut publisher = broker.client(V5, "publisher");
    for (qos, kind) in [(1, Kind::Puback), (2, Kind::Pubrec)] {
        publisher.deliver(&Message::new("t", "no").qos(qos));
        let publish = subscriber.expect_publish();
        subscriber.ack_with(kind, publish.id, 0x83);
    }
    // No PUBREL either.
    subscriber.settle();
    subscriber.disconnect();
    let mut subscriber = broker.persistent(V5, "subscriber");
    assert!(subscriber.session_present());
    subscriber.settle();
}

#[test]
fn mqtt5_nobody_subscribed_is_no_failure() {
    let broker = default_broker();
    let mut publisher = broker.client(V5, "publisher");
    for qos in [1, 2] {
        let code = publisher.deliver(&Message::new("nobody", "x").qos(qos));
        assert!(matches!(code, 0 | 0x10), "0x{code:02X}");
    }
}

fn malformed_publish_is_cut(version: Version) {
    let broker = default_broker();
    let cut = |bytes: &[u8], codes: &[u8], why: &str| {
        println!("{why}");
        let mut client = broker.client(version, "c");
        client.send(bytes);
        let told = client.expect_closed();
        let as_expected = told.map_or(version != V5, |code| codes.contains(&code));
        assert!(as_expected, "{version:?}, {why}: told {told:02X?}, expected one of {codes:02X?}");
    };
    let publish = |topic: &[u8]| Message::new(topic, "x");
    cut(&publish(b"t").qos(3).encode(version, 1), &[0x81], "QoS 3");
    cut(&publish(b"t").duplicate().encode(version, 0), &[0x81, 0x82], "DUP at QoS 0");
    cut(&publish(b"t").qos(1).encode(version, 0), &[0x81, 0x82], "identifier 0");
    cut(&publish(b"t").qos(2).encode(version, 0), &[0x81, 0x82], "identifier 0");
    cut(&publish(b"a/+").encode(version, 0), &[0x90, 0x81, 0x82], "+ in the topic name");
    cut(&publish(b"a/#").encode(version, 0), &[0x90, 0x81, 0x82], "# in the topic name");
    cut(&publish(b"").encode(version, 0), &[0x90, 0x81, 0x82], "empty topic name");
    cut(&publish(b"\xFF").encode(version, 0), &[0x81], "topic name not UTF-8");
    cut(&publish(b"\xED\xBF\xBF").encode(version, 0), &[0x81], "surrogate");
    cut(&publish(b"a\0b").encode(version, 0), &[0x81], "U+0000");
    cut(&wire::packet(0x30, &[0]), &[0x81], "cut within the topic length");
    cut(&wire::packet(0x30, &[0, 9, b't']), &[0x81], "topic beyond the end");
    cut(&wire::packet(0x32, &[0, 1, b't', 0]), &[0x81], "cut within the identifier");
}
versions!(malformed_publish_is_cut {
    mqtt311_3_3_1_4_3_3_1_2_2_3_1_1_3_3_2_1_3_3_2_2_4_7_3_1_4_7_3_2_1_5_3_1_1_5_3_2_malformed_publish_is_cut: V311,
    mqtt5_3_3_1_4_3_3_1_2_2_2_1_3_3_3_2_1_3_3_2_2_4_7_3_1_4_7_3_2_1_5_4_1_1_5_4_2_malformed_publish_is_cut: V5,
});

fn malformed_acknowledgement_is_cut(version: Version) {
    let broker = default_broker();
    let cut = |bytes: &[u8], why: &str| {
        println!("{why}");
        let mut client = broker.client(version, "c");
        client.send(bytes);
        let told = client.expect_closed();
        let as_expected = told.map_or(version != V5, |code| matches!(code, 0x81 | 0x82));
        assert!(as_expected, "{version:?}, {why}: told {told:02X?}");
    };
    for (first, why) in [(0x60, "PUBREL flags 0000"), (0x63, "PUBREL flags 0011"), (0x42, "PUBACK flags")] {
        cut(&[first, 2, 0, 1], why);
    }
    for (first, why) in [(0x51, "PUBREC flags"), (0x74, "PUBCOMP flags")] {
        cut(&[first, 2, 0, 1], why);
    }
    cut(&[0xC1, 0], "PINGREQ flags");
    cut(&[0xE1, 0], "DISCONNECT flags");
    cut(&[0x40, 1, 0], "PUBACK of one byte");
    cut(&[0x40, 2, 0, 0], "PUBACK of identifier 0");
    cut(&[0xD0, 0], "PINGRESP from a client");
    cut(&[0x20, 2, 0, 0], "CONNACK from a client");
    cut(&[0x00, 0], "packet type 0");
    if version != V5 {
        cut(&[0xF0, 0], "packet type 15");
    } else {
        cut(&[0x40, 3, 0, 1, 0x01], "PUBACK with a code of SUBACK");
        cut(&[0x62, 3, 0, 1, 0x80], "PUBREL with a code of PUBACK");
        cut(&[0xE0, 1, 0x01], "DISCONNECT with a code of SUBACK");
    }
}
versions!(malformed_acknowledgement_is_cut {
    mqtt311_2_2_2_2_3_6_1_1_3_14_1_1_4_8_0_1_illegal_flags_and_types_are_cut: V311,
    mqtt5_2_1_3_1_3_6_1_1_3_14_1_1_3_4_2_1_4_13_1_1_illegal_flags_types_and_codes_are_cut: V5,
});

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
versions!(stray_acknowledgements_do_no_harm {
    mqtt311_stray_acknowledgements_do_no_harm: V311,
    mqtt5_4_3_3_4_stray_acknowledgements_do_no_harm: V5,
});

fn topic_names_are_taken_as_they_are(version: Version) {
    let broker = default_broker();
    let mut client = broker.client(version, "c");
    // Composed and decomposed, cases, spaces, empty levels: all different topics.
    let topics = ["\u{E9}", "e\u{301}", "a", "A", " a", "a/", "/a", "a//b", "/", "//", "\u{1F54A}"];
    for topic in topics {
        client.subscribe(&[(topic, 0)]);
    }
    for topic in topics {
        client.deliver(&Message::new(topic, topic).qos(1));
        let publish = client.expect_publish();
        assert_eq!((publish.topic.as_str(), publish.text()), (topic, topic));
    }
    client.settle();
}
versions!(topic_names_are_taken_as_they_are {
    mqtt311_4_7_3_4_3_3_2_3_topic_names_are_taken_as_they_are: V311,
    mqtt5_4_7_3_4_3_3_2_3_topic_names_are_taken_as_they_are: V5,
});

fn payload_sizes_at_the_borders_of_the_length_encoding(version: Version) {
    on_one_and_three_arbiters(|broker| {
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
versions!(payload_sizes_at_the_borders_of_the_length_encoding {
    mqtt311_payloads_of_all_length_encodings_arrive_whole: V311,
    mqtt5_1_5_5_1_payloads_of_all_length_encodings_arrive_whole: V5,
});

#[test]
fn mqtt5_1_5_5_1_remaining_length_of_five_bytes_is_malformed() {
    let broker = default_broker();
    let mut client = broker.client(V5, "c");
    let mut bytes = vec![0x30, 0x80, 0x80, 0x80, 0x80, 0x01];
    bytes.put_binary(b"t");
    client.send(&bytes);
    client.expect_cut(0x81);
}

#[test]
fn all_versions_reach_each_other() {
    on_one_and_three_arbiters(|broker| {
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
