//! Chapter 2: reserved flags, packet identifiers, property lengths; and the flags of each packet
//! type in chapter 3.

use super::cases;
use super::stage::{EITHER, MALFORMED, Stage, answer_to, packet, property_set, string, unsubscribe_packet};
use crate::support::client::subscribe_packet;
use crate::support::wire::Version;
use crate::support::{Connect, Kind, Message, V5};

cases! {
    reserved_flags_must_be_as_the_type_has_them: ["MQTT-2.1.3-1"],
    pubrel_with_other_flags_is_malformed: ["MQTT-3.6.1-1"],
    subscribe_with_other_flags_is_malformed: ["MQTT-3.8.1-1"],
    unsubscribe_with_other_flags_is_malformed: ["MQTT-3.10.1-1"],
    disconnect_with_flags_is_answered_and_closed: ["MQTT-3.14.1-1"],
    auth_with_flags_is_malformed: ["MQTT-3.15.1-1"],
    publish_at_qos_0_has_no_identifier: ["MQTT-2.2.1-2"],
    identifier_0_is_refused: ["MQTT-2.2.1-3"],
    deliveries_take_an_identifier_that_is_free: ["MQTT-2.2.1-4"],
    acknowledgements_echo_the_identifier: ["MQTT-2.2.1-5"],
    suback_and_unsuback_echo_the_identifier: ["MQTT-2.2.1-6"],
    empty_property_set_is_a_zero_byte: ["MQTT-2.2.2-1"],
    acknowledgements_may_be_short: [],
}

/// Every flag nibble but the right one, on a packet that is lawful otherwise.
fn assert_flags_are_checked(stage: &Stage, lawful: &[u8]) {
    for flags in (0..16).filter(|flags| *flags != lawful[0] & 0x0F) {
        let mut bytes = lawful.to_vec();
        bytes[0] = lawful[0] & 0xF0 | flags;
        stage.assert_disconnected(&bytes, &[MALFORMED], &format!("first byte 0x{:02X}", bytes[0]));
    }
}

fn reserved_flags_must_be_as_the_type_has_them(stage: &Stage) {
    let mut client = stage.client("c");
    client.ack(Kind::Pubrel, 1);
    client.expect_ack(Kind::Pubcomp, 1);
    assert_eq!(client.subscribe(&[(&stage.topic("t"), 0)]), [0]);
    assert_eq!(client.unsubscribe(&[&stage.topic("t")]), [0]);
    client.settle();
    for lawful in [
        vec![0x40, 2, 0, 1],
        vec![0x50, 2, 0, 1],
        vec![0x62, 2, 0, 1],
        vec![0x70, 2, 0, 1],
        subscribe_packet(V5, 1, &[], &[("t", 0)]),
        unsubscribe_packet(1, &[], &[b"t"]),
        vec![0xC0, 0],
        vec![0xE0, 0],
    ] {
        for flags in [0x01, 0x04, 0x08, 0x0F] {
            let mut bytes = lawful.clone();
            bytes[0] ^= flags;
            stage.assert_disconnected(&bytes, &[MALFORMED], &format!("first byte 0x{:02X}", bytes[0]));
        }
    }
    for flags in 1..16 {
        let mut connect = stage.passing("d").encode();
        connect[0] |= flags;
        stage.assert_refused(&connect, &[MALFORMED], &format!("CONNECT with flags {flags}"));
    }
    client.settle();
}

fn pubrel_with_other_flags_is_malformed(stage: &Stage) {
    let mut client = stage.client("c");
    let id = client.publish(&stage.message("t", "").qos(2));
    client.expect_ack(Kind::Pubrec, id);
    client.send(&[0x62, 2, 0, id as u8]);
    client.expect_ack(Kind::Pubcomp, id);
    assert_flags_are_checked(stage, &[0x62, 2, 0, 1]);
}

fn subscribe_with_other_flags_is_malformed(stage: &Stage) {
    stage.subscriber("c", "t", 1).settle();
    assert_flags_are_checked(stage, &subscribe_packet(V5, 1, &[], &[(&stage.topic("t"), 0)]));
}

fn unsubscribe_with_other_flags_is_malformed(stage: &Stage) {
    let mut client = stage.subscriber("c", "t", 1);
    assert_eq!(client.unsubscribe(&[&stage.topic("t")]), [0]);
    assert_flags_are_checked(stage, &unsubscribe_packet(1, &[], &[stage.topic("t").as_bytes()]));
}

fn disconnect_with_flags_is_answered_and_closed(stage: &Stage) {
    stage.client("c").disconnect();
    assert_flags_are_checked(stage, &[0xE0, 0]);
    assert_flags_are_checked(stage, &[0xE0, 2, 0, 0]);
}

fn auth_with_flags_is_malformed(stage: &Stage) {
    let mut client = stage.client("c");
    for flags in 1..16 {
        stage.assert_disconnected(&[0xF0 | flags, 0], &[MALFORMED], "AUTH with flags");
    }
    client.settle();
}

fn publish_at_qos_0_has_no_identifier(stage: &Stage) {
    let mut client = stage.subscriber("c", "t", 0);
    // The two bytes in the place of an identifier begin the payload, in both directions.
    for payload in [&b"\0\x01"[..], b"\0\0\0", b""] {
        client.publish(&stage.message("t", payload));
        assert_eq!(client.expect_publish().payload, payload);
        client.deliver(&stage.message("t", payload).qos(2));
        let publish = client.expect_publish();
        assert_eq!((publish.qos, publish.payload.as_slice()), (0, payload));
    }
}

fn identifier_0_is_refused(stage: &Stage) {
    let mut client = stage.subscriber("c", "t", 1);
    client.publish_as(&stage.message("t", "").qos(1), 65_535);
    client.wait_for(Kind::Puback);
    client.expect_publish();
    let subscribe = subscribe_packet(V5, 0, &[], &[(&stage.topic("t"), 0)]);
    stage.assert_disconnected(&subscribe, EITHER, "SUBSCRIBE");
    stage.assert_disconnected(&unsubscribe_packet(0, &[], &[b"t"]), EITHER, "UNSUBSCRIBE");
    for qos in [1, 2] {
        stage.assert_disconnected(&stage.message("t", "").qos(qos).encode(V5, 0), EITHER, "PUBLISH");
    }
    client.settle();
}

fn deliveries_take_an_identifier_that_is_free(stage: &Stage) {
    let mut client = stage.subscriber("c", "t", 2);
    let mut publisher = stage.client("p");
    let mut held = Vec::new();
    for n in 0..200_u32 {
        publisher.deliver(&stage.message("t", n.to_string()).qos(1 + (n % 2) as u8));
        let publish = client.expect_publish();
        assert!(publish.id != 0 && !held.contains(&publish.id), "{} of {held:?}", publish.id);
        // Some are never answered, and one keeps its identifier between PUBREC and PUBCOMP.
        match n {
            1 => {
                client.ack(Kind::Pubrec, publish.id);
                client.expect_ack(Kind::Pubrel, publish.id);
                held.push(publish.id);
            }
            n if n % 20 == 0 => held.push(publish.id),
            _ => client.complete(&publish),
        }
    }
}

fn acknowledgements_echo_the_identifier(stage: &Stage) {
    let mut client = stage.client("c");
    for id in [1, 255, 256, 65_535] {
        client.publish_as(&stage.message("t", "").qos(1), id);
        client.expect_ack(Kind::Puback, id);
        client.publish_as(&stage.message("t", "").qos(2), id);
        client.expect_ack(Kind::Pubrec, id);
        client.ack(Kind::Pubrel, id);
        client.expect_ack(Kind::Pubcomp, id);
    }
    let mut subscriber = stage.subscriber("s", "t", 2);
    client.deliver(&stage.message("t", "").qos(2));
    let publish = subscriber.expect_publish();
    subscriber.ack(Kind::Pubrec, publish.id);
    subscriber.expect_ack(Kind::Pubrel, publish.id);
}

fn suback_and_unsuback_echo_the_identifier(stage: &Stage) {
    let mut client = stage.client("c");
    let topic = stage.topic("t");
    for id in [1, 256, 65_535] {
        client.send(&subscribe_packet(V5, id, &[], &[(&topic, 0)]));
        let crate::support::Packet::Granted(suback) = client.expect_packet(Kind::Suback) else {
            unreachable!()
        };
        client.send(&unsubscribe_packet(id, &[], &[topic.as_bytes()]));
        let crate::support::Packet::Granted(unsuback) = client.expect_packet(Kind::Unsuback) else {
            unreachable!()
        };
        assert_eq!((suback.id, unsuback.id), (id, id));
    }
}

/// In the packets of the broker the reader of these tests takes the first byte for the length,
/// whatever it is.
fn empty_property_set_is_a_zero_byte(stage: &Stage) {
    let mut client = stage.client("c");
    assert_eq!(client.subscribe(&[(&stage.topic("t"), 1)]), [1]);
    client.deliver(&stage.message("t", "x").qos(1));
    let publish = client.expect_publish();
    assert_eq!((publish.properties.len(), publish.text()), (0, "x"));
    client.complete(&publish);
    assert_eq!(client.unsubscribe(&[&stage.topic("t")]), [0]);
    let topic = string(stage.topic("t"));
    stage.assert_disconnected(&packet(0x82, &[&[0, 1], &topic, &[0]]), &[MALFORMED], "SUBSCRIBE");
    stage.assert_disconnected(&packet(0xA2, &[&[0, 1], &topic]), &[MALFORMED], "UNSUBSCRIBE");
    stage.assert_disconnected(&packet(0x30, &[&topic]), &[MALFORMED], "PUBLISH");
    let without = Connect { version: Version::V311, level: 5, ..stage.passing("d") };
    stage.assert_refused(&without.encode(), EITHER, "CONNECT");
}

/// Reason code and properties of an acknowledgement may be left out, the properties alone too.
fn acknowledgements_may_be_short(stage: &Stage) {
    let mut client = stage.subscriber("c", "t", 2);
    let reason = property_set(&[&[0x1F][..], &string("why")].concat());
    for qos in [1, 2] {
        for tail in [&[][..], &[0x00], &[0x00, 0x00], &[&[0x00][..], &reason].concat()] {
            client
                .deliver(&Message { topic: stage.topic("t").into_bytes(), ..Message::new("", "") }.qos(qos));
            let id = client.expect_publish().id.to_be_bytes();
            client.send(&packet((answer_to(qos) as u8) << 4, &[&id, tail]));
            if qos == 2 {
                client.expect_packet(Kind::Pubrel);
                client.send(&packet(0x70, &[&id, tail]));
            }
            client.settle();
        }
    }
}
