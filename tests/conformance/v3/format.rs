//! Rules for every packet: strings, fixed header flags, protocol violations, the transport.
//! Chapters 1.5, 2.2, 3.6.1, 3.8.1, 3.10.1, 3.14.1, 4.8 and 7.1.

use super::cases;
use crate::harness::Target;
use crate::support::client::subscribe_packet;
use crate::support::wire::{self, Put};
use crate::support::{Connect, Kind, Message, RawClient, V31, V311, Version, Will};
use std::io::Read;

cases! {
    v311 {
        string_that_is_not_utf_8_ends_the_connection: ["MQTT-1.5.3-1"],
        string_with_u_0000_ends_the_connection: ["MQTT-1.5.3-2"],
        byte_order_mark_is_a_character_like_others: ["MQTT-1.5.3-3"],
        flags_of_all_that_the_broker_sends_are_the_prescribed_ones: ["MQTT-2.2.2-1"],
        illegal_flags_end_the_connection: ["MQTT-2.2.2-2"],
        pubrel_with_other_flags_is_closed: ["MQTT-3.6.1-1"],
        subscribe_with_other_flags_is_closed: ["MQTT-3.8.1-1"],
        unsubscribe_with_other_flags_is_closed: ["MQTT-3.10.1-1"],
        disconnect_with_flags_is_a_violation: ["MQTT-3.14.1-1"],
        tcp_carries_every_byte_both_ways: ["MQTT-7.1.1-1"],
    }
    v311_and_v31 {
        protocol_violation_ends_the_connection_that_brought_it: ["MQTT-4.8.0-1"],
    }
    v31 {
        dup_is_lawful_on_pubrel_subscribe_and_unsubscribe,
    }
}

fn with_filter(first: u8, filter: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    body.put_u16(1);
    body.put_binary(filter);
    if first >> 4 == 8 {
        body.push(0);
    }
    wire::packet(first, &body)
}

/// The text in each string that a client may send; the string's packet is lawful if the text is.
fn in_every_string(broker: &Target, text: &[u8]) {
    let connect = || Connect::new(V311, &broker.id("d"));
    broker.assert_closes(V311, &Message::new(text, "x").qos(1).encode(V311, 1));
    broker.assert_closes(V311, &with_filter(0x82, text));
    broker.assert_closes(V311, &with_filter(0xA2, text));
    broker.closes_unanswered(V311, &Connect { client_id: text.to_vec(), ..connect() }.encode());
    broker.closes_unanswered(V311, &Connect { user_name: Some(text.to_vec()), ..connect() }.encode());
    broker.closes_unanswered(V311, &connect().will(Will::new(text, "gone")).encode());
}

fn string_that_is_not_utf_8_ends_the_connection(broker: &Target) {
    // All planes are welcome, next to the surrogates too, and arrive as they were. (Not so the
    // non-characters: a server may close on them.)
    let topic = broker.topic("\u{D7FF}\u{E000}\u{10FFFD}é");
    let mut client = broker.client(V311, "c");
    client.subscribe(&[(&topic, 0)]);
    client.deliver(&Message::new(&topic, "x").qos(1));
    assert_eq!(client.expect_publish().topic, topic);
    for text in [&b"\xFF"[..], b"t\xC3", b"t\x80", b"\xC0\x80", b"\xED\xA0\x80", b"\xED\xBF\xBF"] {
        in_every_string(broker, text);
    }
}

fn string_with_u_0000_ends_the_connection(broker: &Target) {
    broker.serves(V311);
    for text in [&b"\0"[..], b"t\0", b"\0t", b"t/\0/t"] {
        in_every_string(broker, text);
    }
}

fn byte_order_mark_is_a_character_like_others(broker: &Target) {
    let (plain, marked) = (broker.topic("t"), broker.topic("\u{FEFF}t"));
    let leading = format!("\u{FEFF}{plain}");
    let mut client = broker.client(V311, "c");
    for topic in [&plain, &marked, &leading] {
        client.subscribe(&[(topic, 0)]);
    }
    for topic in [&leading, &marked, &plain] {
        client.deliver(&Message::new(topic, "x").qos(1));
        assert_eq!(&client.expect_publish().topic, topic);
    }
    client.settle();
    // Another client id, too: neither evicts the other.
    let mut other = broker.connect(&Connect::new(V311, &format!("\u{FEFF}{}", broker.id("c"))));
    other.settle();
    client.settle();
}

/// One packet as bytes, of less than 128.
fn raw_packet(broker: &Target, client: &RawClient) -> Vec<u8> {
    let mut stream = client.stream();
    stream.set_read_timeout(Some(broker.ack_wait())).expect("a read timeout");
    let mut packet = vec![0; 2];
    stream.read_exact(&mut packet).expect("a fixed header");
    packet.resize(2 + usize::from(packet[1]), 0);
    stream.read_exact(&mut packet[2..]).expect("its body");
    packet
}

fn flags_of_all_that_the_broker_sends_are_the_prescribed_ones(broker: &Target) {
    let topic = broker.topic("t");
    let mut client = broker.open(V311);
    let mut first_byte_of_answer_to = |bytes: &[u8]| {
        client.send(bytes);
        let packet = raw_packet(broker, &client);
        (packet[0], packet)
    };
    let connect = Connect::new(V311, &broker.id("c")).encode();
    assert_eq!(first_byte_of_answer_to(&connect).0, 0x20);
    assert_eq!(first_byte_of_answer_to(&Message::new(&topic, "").qos(1).encode(V311, 7)).0, 0x40);
    assert_eq!(first_byte_of_answer_to(&Message::new(&topic, "").qos(2).encode(V311, 8)).0, 0x50);
    assert_eq!(first_byte_of_answer_to(&[0x62, 2, 0, 8]).0, 0x70);
    assert_eq!(first_byte_of_answer_to(&subscribe_packet(V311, 9, &[], &[(&topic, 2)])).0, 0x90);
    assert_eq!(first_byte_of_answer_to(&[0xC0, 0]).0, 0xD0);
    // A message to itself at QoS 0, then one at QoS 2 from another, all the way.
    assert_eq!(first_byte_of_answer_to(&Message::new(&topic, "").encode(V311, 0)).0, 0x30);
    broker.client(V311, "p").deliver(&Message::new(&topic, "").qos(2));
    let publish = first_byte_of_answer_to(&[]);
    assert_eq!(publish.0, 0x34);
    let id = &publish.1[4 + topic.len()..];
    assert_eq!(first_byte_of_answer_to(&[0x50, 2, id[0], id[1]]).0, 0x62);
    assert_eq!(first_byte_of_answer_to(&[&[0x70, 2, id[0], id[1]], &[0xC0, 0][..]].concat()).0, 0xD0);
    assert_eq!(first_byte_of_answer_to(&with_filter(0xA2, topic.as_bytes())).0, 0xB0);
}

fn illegal_flags_end_the_connection(broker: &Target) {
    let acks = [0x40, 0x50, 0x62, 0x70].map(|first| vec![first, 2, 0, 1]);
    let requests = [with_filter(0x82, b"t"), with_filter(0xA2, b"t"), vec![0xC0, 0], vec![0xE0, 0]];
    for lawful in acks.iter().chain(&requests) {
        for flags in (0..16).filter(|flags| *flags != lawful[0] & 0x0F) {
            let mut bytes = lawful.clone();
            bytes[0] = lawful[0] & 0xF0 | flags;
            broker.assert_closes(V311, &bytes);
        }
    }
    for flags in 1..16 {
        let mut connect = Connect::new(V311, &broker.id("c")).encode();
        connect[0] |= flags;
        broker.closes_unanswered(V311, &connect);
    }
}

fn pubrel_with_other_flags_is_closed(broker: &Target) {
    let topic = broker.topic("t");
    for flags in 0..16 {
        let mut client = broker.client(V311, "c");
        client.publish_as(&Message::new(&topic, "x").qos(2), 1);
        client.expect_ack(Kind::Pubrec, 1);
        client.send(&[0x60 | flags, 2, 0, 1]);
        if flags == 2 {
            client.expect_ack(Kind::Pubcomp, 1);
        } else {
            client.expect_closed();
        }
    }
}

fn subscribe_with_other_flags_is_closed(broker: &Target) {
    let filter = broker.topic("t");
    let mut client = broker.client(V311, "c");
    client.send(&with_filter(0x82, filter.as_bytes()));
    client.expect_packet(Kind::Suback);
    for flags in (0..16).filter(|flags| *flags != 2) {
        broker.assert_closes(V311, &with_filter(0x80 | flags, filter.as_bytes()));
    }
}

fn unsubscribe_with_other_flags_is_closed(broker: &Target) {
    let filter = broker.topic("t");
    let mut client = broker.client(V311, "c");
    client.send(&with_filter(0xA2, filter.as_bytes()));
    client.expect_packet(Kind::Unsuback);
    for flags in (0..16).filter(|flags| *flags != 2) {
        broker.assert_closes(V311, &with_filter(0xA0 | flags, filter.as_bytes()));
    }
}

/// 3.1 has them sent at QoS 1, so that a repetition carries DUP.
fn dup_is_lawful_on_pubrel_subscribe_and_unsubscribe(broker: &Target) {
    let topic = broker.topic("t");
    let mut client = broker.client(V31, "c");
    client.publish_as(&Message::new(&topic, "x").qos(2), 1);
    client.expect_ack(Kind::Pubrec, 1);
    client.send(&[0x6A, 2, 0, 1]);
    client.expect_ack(Kind::Pubcomp, 1);
    client.send(&with_filter(0x8A, topic.as_bytes()));
    client.expect_packet(Kind::Suback);
    client.send(&with_filter(0xAA, topic.as_bytes()));
    client.expect_packet(Kind::Unsuback);
    client.settle();
}

/// Unlike an orderly one, it leaves the will.
fn disconnect_with_flags_is_a_violation(broker: &Target) {
    let topic = broker.topic("will");
    let mut watcher = broker.client(V311, "w");
    watcher.subscribe(&[(&topic, 0)]);
    for flags in 1..16 {
        let will = Will::new(&topic, [flags]);
        let mut client = broker.connect(&Connect::new(V311, &broker.id("c")).will(will));
        client.settle();
        client.send(&[0xE0 | flags, 0]);
        client.expect_closed();
        assert_eq!(watcher.expect_publish().payload, [flags]);
    }
}

/// Reserved types, packets that only a server sends, bodies cut short or left over, a length of
/// five bytes.
fn violations() -> Vec<Vec<u8>> {
    vec![
        vec![0x00, 0],
        vec![0xF0, 0],
        vec![0x20, 2, 0, 0],
        vec![0x90, 3, 0, 1, 0],
        vec![0xB0, 2, 0, 1],
        vec![0xD0, 0],
        vec![0x40, 1, 0],
        vec![0x40, 3, 0, 1, 0],
        vec![0x62, 0],
        vec![0xC0, 1, 0],
        vec![0xE0, 1, 0],
        vec![0x32, 4, 0, 1, b't', 0],
        vec![0x82, 7, 0, 1, 0, 1, b't', 0, 0],
        vec![0x82, 5, 0, 1, 0, 1, b't'],
        vec![0xA2, 4, 0, 1, 0, 1],
        vec![0x30, 0x80, 0x80, 0x80, 0x80, 0x01],
    ]
}

fn protocol_violation_ends_the_connection_that_brought_it(broker: &Target, version: Version) {
    let mut bystander = broker.client(version, "bystander");
    bystander.settle();
    for bytes in violations() {
        broker.assert_closes(version, &bytes);
        bystander.settle();
    }
}

fn tcp_carries_every_byte_both_ways(broker: &Target) {
    let topic = broker.topic("t");
    let mut client = broker.client(V311, "c");
    client.subscribe(&[(&topic, 1)]);
    // Every length of the length, and every byte.
    for length in [0, 1, 100, 16_300, 300_000, 1_000_000] {
        let payload: Vec<u8> = (0..length).map(|n: u32| (n ^ n >> 8) as u8).collect();
        client.deliver(&Message::new(&topic, &payload).qos(1));
        let publish = client.expect_publish();
        assert!(publish.payload == payload, "{length} bytes have changed");
        client.complete(&publish);
    }
}
