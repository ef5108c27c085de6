//! Maximum Packet Size in both directions, and explanations left out for its sake.

use super::cases;
use super::stage::{Stage, assert_reason, last_words, unsubscribe_packet};
use crate::support::client::subscribe_packet;
use crate::support::wire::{Put, frame};
use crate::support::{Connect, Kind, Message, Property, RawClient, V5};
use std::io::Read;

cases! {
    explanations_of_a_refusing_connack_fit_or_are_left_out: ["MQTT-3.2.2-19", "MQTT-3.2.2-20"],
    connack_of_success_fits_or_is_not_sent: ["MQTT-3.1.2-24", "MQTT-3.2.2-20"],
    explanations_of_puback_fit_or_are_left_out: ["MQTT-3.4.2-2", "MQTT-3.4.2-3"],
    explanations_of_pubrec_fit_or_are_left_out: ["MQTT-3.5.2-2", "MQTT-3.5.2-3"],
    explanations_of_pubrel_fit_or_are_left_out: ["MQTT-3.6.2-2", "MQTT-3.6.2-3"],
    explanations_of_pubcomp_fit_or_are_left_out: ["MQTT-3.7.2-2", "MQTT-3.7.2-3"],
    explanations_of_suback_fit_or_are_left_out: ["MQTT-3.9.2-1", "MQTT-3.9.2-2"],
    explanations_of_unsuback_fit_or_are_left_out: ["MQTT-3.11.2-1", "MQTT-3.11.2-2"],
    explanations_of_disconnect_fit_or_are_left_out: ["MQTT-3.14.2-3", "MQTT-3.14.2-4"],
    no_packet_is_bigger_than_the_client_announced: ["MQTT-3.1.2-24"],
    delivery_too_big_is_done_with: ["MQTT-3.1.2-25"],
    delivery_that_fits_without_an_alias_comes: ["MQTT-3.1.2-25"],
    suback_too_big_ends_the_connection: ["MQTT-3.8.4-1"],
    unsuback_too_big_ends_the_connection: ["MQTT-3.10.4-4"],
    packet_above_the_brokers_maximum_is_disconnected: ["MQTT-3.2.2-15"],
}

/// Room for a CONNACK and for every answer, and for hardly a sentence.
const SMALL: u32 = 24;

fn small(stage: &Stage, name: &str) -> RawClient {
    stage.served(&stage.passing(name).with(Property::MaximumPacketSize(SMALL)))
}

/// The next packet with its fixed header. Nothing may have been read ahead.
fn next_bytes(stage: &Stage, client: &RawClient) -> Vec<u8> {
    let (mut stream, mut bytes) = (client.stream(), Vec::new());
    stream.set_read_timeout(Some(stage.ack_wait())).expect("a read timeout");
    loop {
        let whole = frame(&bytes).map(|(header, body)| header + body);
        if whole == Some(bytes.len()) {
            return bytes;
        }
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a whole packet");
        bytes.push(byte[0]);
    }
}

/// The answer to these bytes is a packet of this type, and within the size that the client can
/// take.
fn assert_small_answer(stage: &Stage, bytes: &[u8], kind: Kind) {
    let mut client = small(stage, "small");
    client.send(bytes);
    let answer = next_bytes(stage, &client);
    assert_eq!(answer[0] >> 4, kind as u8, "{answer:02X?}");
    assert!(answer.len() <= SMALL as usize, "{} bytes: {answer:02X?}", answer.len());
}

/// A client that cannot take an explanation is refused all the same.
fn explanations_of_a_refusing_connack_fit_or_are_left_out(stage: &Stage) {
    stage.client("control").disconnect();
    let refused = |size: u32| {
        let method = Property::AuthenticationMethod("none-such".to_owned());
        stage.passing("c").with(method).with(Property::MaximumPacketSize(size)).encode()
    };
    let full = last_words(stage, &refused(1_000_000));
    assert!(matches!(full[..], [0x20, _, 0, 0x80..=0xFF, ..]), "{full:02X?}");
    for size in 1..=full.len() + 1 {
        let said = last_words(stage, &refused(size as u32));
        assert!(said.len() <= size, "{} of {size} bytes: {said:02X?}", said.len());
    }
}

/// Where even what must be said does not fit, the client is not served.
fn connack_of_success_fits_or_is_not_sent(stage: &Stage) {
    let said = |size: u32| {
        let connect = stage.passing("c").with(Property::MaximumPacketSize(size)).encode();
        let said = last_words(stage, &[&connect[..], &[0xE0, 0]].concat()).len();
        assert!(said <= size as usize, "{said} of {size} bytes");
        said
    };
    assert!((1..=40).map(said).max() > Some(0), "40 bytes are room enough");
}

fn forged(qos: u8) -> Vec<u8> {
    Message::new("$SYS/forged", "x").qos(qos).encode(V5, 1)
}

fn explanations_of_puback_fit_or_are_left_out(stage: &Stage) {
    assert_small_answer(stage, &forged(1), Kind::Puback);
}

fn explanations_of_pubrec_fit_or_are_left_out(stage: &Stage) {
    assert_small_answer(stage, &forged(2), Kind::Pubrec);
}

/// PUBREC and PUBREL for identifiers that nobody knows.
const STRAY_PUBREC: [u8; 4] = [0x50, 2, 0, 77];
const STRAY_PUBREL: [u8; 4] = [0x62, 2, 0, 77];

fn explanations_of_pubrel_fit_or_are_left_out(stage: &Stage) {
    assert_small_answer(stage, &STRAY_PUBREC, Kind::Pubrel);
}

fn explanations_of_pubcomp_fit_or_are_left_out(stage: &Stage) {
    assert_small_answer(stage, &STRAY_PUBREL, Kind::Pubcomp);
}

fn refused_subscribe() -> Vec<u8> {
    subscribe_packet(V5, 1, &[], &[("a#", 0)])
}

fn explanations_of_suback_fit_or_are_left_out(stage: &Stage) {
    assert_small_answer(stage, &refused_subscribe(), Kind::Suback);
}

fn idle_unsubscribe() -> Vec<u8> {
    unsubscribe_packet(1, &[], &[b"never/subscribed"])
}

fn explanations_of_unsuback_fit_or_are_left_out(stage: &Stage) {
    assert_small_answer(stage, &idle_unsubscribe(), Kind::Unsuback);
}

/// Everything that the broker answers with a DISCONNECT.
fn explanations_of_disconnect_fit_or_are_left_out(stage: &Stage) {
    for bytes in [
        vec![0xF0, 0],
        vec![0xE1, 0],
        vec![0x36, 0],
        stage.passing("small").encode(),
        vec![0x30, 4, 0, 1, b'#', 0],
    ] {
        assert_small_answer(stage, &bytes, Kind::Disconnect);
    }
    let mut old = small(stage, "taken");
    let _new = stage.client("taken");
    assert!(next_bytes(stage, &old).len() <= SMALL as usize);
    assert_eq!(old.expect_closed(), None);
}

fn no_packet_is_bigger_than_the_client_announced(stage: &Stage) {
    let overhead = stage.message("t", "").qos(1).encode(V5, 1).len() as u32;
    let room = |limit: u32| usize::try_from(limit - overhead).expect("a topic of a few bytes");
    let limit = overhead + 6;
    let mut exact = stage.connect(&stage.passing("e").with(Property::MaximumPacketSize(limit)));
    exact.subscribe(&[(&stage.topic("t"), 1)]);
    for size in [room(limit), room(limit) + 1, 10_000, room(limit)] {
        stage.deliver(&stage.message("t", vec![b'x'; size]).qos(1));
    }
    for _ in 0..2 {
        let publish = exact.expect_publish();
        assert_eq!(publish.payload.len(), room(limit));
        exact.complete(&publish);
    }
    exact.settle();
    // Properties count too.
    stage.deliver(&stage.message("t", "").qos(1).with(Property::user("long", "enough")));
    exact.settle();
}

fn delivery_too_big_is_done_with(stage: &Stage) {
    let connect = stage.lasting("c").with(Property::MaximumPacketSize(100)).with(Property::ReceiveMaximum(1));
    let mut client = stage.connect(&connect);
    client.subscribe(&[(&stage.topic("t"), 2)]);
    for qos in [0, 1, 2, 1, 2] {
        assert!(stage.deliver(&stage.message("t", [b'x'; 200]).qos(qos)) < 0x80);
        stage.deliver(&stage.message("t", "fits").qos(qos));
    }
    // Neither stalled nor out of quota.
    for _ in 0..5 {
        let publish = client.expect_publish();
        assert_eq!(publish.text(), "fits");
        client.complete(&publish);
    }
    client.settle();
    client.disconnect();
    // Nor is it kept for a connection that could take it.
    stage.connect(&stage.lasting("c")).settle();
}

/// A broker that would rather use an alias has to do without it.
fn delivery_that_fits_without_an_alias_comes(stage: &Stage) {
    let (long, short) = (stage.topic("long"), stage.target().alone());
    let overhead = Message::new(&long, "").qos(1).encode(V5, 1).len();
    let limit = Property::MaximumPacketSize(overhead as u32 + 50);
    let aliases = Property::TopicAliasMaximum(10);
    let mut client = stage.connect(&stage.passing("c").with(limit).with(aliases.clone()));
    client.subscribe(&[(&long, 1)]);
    // The second one leaves room for an alias, which no packet has set before.
    for size in [50, 10, 50, 10] {
        stage.deliver(&Message::new(&long, vec![b'x'; size]).qos(1));
        let publish = client.expect_publish();
        assert_eq!(publish.payload.len(), size);
        client.complete(&publish);
    }
    // A name that is shorter than its alias.
    for topic in ["a", "ab", "abc", "abcd"] {
        let limit = Message::new(topic, [b'x'; 20]).qos(1).encode(V5, 1).len() as u32;
        let connect = Connect::new(V5, "c").with(Property::MaximumPacketSize(limit)).with(aliases.clone());
        let mut client = short.connect(&connect);
        client.subscribe(&[(topic, 1)]);
        let mut publisher = short.client(V5, "publisher");
        for size in [1, 20, 20, 1, 20] {
            publisher.deliver(&Message::new(topic, vec![b'x'; size]).qos(1));
            let publish = client.expect_publish();
            assert_eq!(publish.payload.len(), size, "{topic}");
            client.complete(&publish);
        }
        client.disconnect();
    }
}

/// More filters than a SUBACK or UNSUBACK of the size [`SMALL`] has codes for.
const FILTERS: usize = 30;

/// The client waits for this answer. Without it the client is to know why.
fn suback_too_big_ends_the_connection(stage: &Stage) {
    let filters: Vec<String> = (0..FILTERS).map(|n| stage.topic(&n.to_string())).collect();
    let filters: Vec<(&str, u8)> = filters.iter().map(|filter| (filter.as_str(), 0)).collect();
    let mut client = small(stage, "small");
    client.send(&subscribe_packet(V5, 1, &[], &filters[..10]));
    client.expect_packet(Kind::Suback);
    client.send(&subscribe_packet(V5, 2, &[], &filters));
    assert_reason(&mut client, &[0x95], "no room for SUBACK");
}

fn unsuback_too_big_ends_the_connection(stage: &Stage) {
    let filters: Vec<String> = (0..FILTERS).map(|n| stage.topic(&n.to_string())).collect();
    let filters: Vec<&[u8]> = filters.iter().map(|filter| filter.as_bytes()).collect();
    let mut client = small(stage, "small");
    client.send(&unsubscribe_packet(1, &[], &filters[..10]));
    client.expect_packet(Kind::Unsuback);
    client.send(&unsubscribe_packet(2, &[], &filters));
    assert_reason(&mut client, &[0x95], "no room for UNSUBACK");
}

fn packet_above_the_brokers_maximum_is_disconnected(stage: &Stage) {
    let broker = stage.configured(|config| config.limits.packet_size = "1 KiB".parse().expect("a size"));
    let stage = &Stage::of(&broker);
    let mut client = stage.client("c");
    assert!(client.connack().properties.contains(&Property::MaximumPacketSize(1024)));
    let overhead = stage.message("t", "").qos(1).encode(V5, 1).len() + 1;
    client.deliver(&stage.message("t", vec![b'x'; 1024 - overhead]).qos(1));
    client.publish(&stage.message("t", vec![b'x'; 1025 - overhead]).qos(1));
    assert_reason(&mut client, &[0x95], "one byte too many");
    // The length alone is enough.
    let mut prefix = vec![0x30];
    prefix.put_varint(268_435_455);
    stage.assert_disconnected(&prefix, &[0x95], "256 MiB announced");
}
