//! The codec against the wire cases, and what a table of bytes cannot say.

use super::cases::{Expected, FIRST_PACKETS, LATER_PACKETS, WireCase};
use super::*;
use crate::mqtt::packet::{Connack, PacketId, Properties, Publish, QoS};
use std::borrow::Cow;

pub(super) const NO_LIMIT: u32 = u32::MAX;

pub(super) fn version(level: u8) -> ProtocolVersion {
    match level {
        3 => ProtocolVersion::V3_1,
        5 => ProtocolVersion::V5,
        _ => ProtocolVersion::V3_1_1,
    }
}

/// The one packet that `bytes` are.
pub(super) fn whole(bytes: &[u8], version: ProtocolVersion) -> Packet<'_> {
    match decode(bytes, version, NO_LIMIT) {
        Ok(Decoded::Packet { packet, length }) if length == bytes.len() => packet,
        other => panic!("{bytes:02X?} decode to {other:?}"),
    }
}

fn check(case: &WireCase, decoded: Result<Decoded<'_>, DecodeError>) {
    let (name, bytes) = (case.name, case.bytes);
    match (&case.expected, decoded) {
        (Expected::Packet(expected), Ok(Decoded::Packet { packet, length })) => {
            assert_eq!((packet.name(), length), (*expected, bytes.len()), "{name}");
            let mut encoded = Vec::new();
            encode(&packet, version(case.level), &mut encoded).expect(name);
            assert_eq!(encoded, bytes, "{name}");
        }
        (Expected::Tolerated(expected), Ok(Decoded::Packet { packet, length })) => {
            assert_eq!((packet.name(), length), (*expected, bytes.len()), "{name}");
        }
        (Expected::Error(code), Err(error)) => {
            assert_eq!(error.reason_code().byte(), *code, "{name}: {error}");
        }
        (Expected::Incomplete(expected), Ok(Decoded::Incomplete { needed })) => {
            assert_eq!(needed, *expected, "{name}");
        }
        (_, other) => panic!("{name}: {other:?}"),
    }
}

#[test]
fn a_packet_with_more_filters_than_a_turn_decodes_is_refused() {
    for (first, entry) in [(0x82, &[0, 1, b'a', 0][..]), (0xA2, &[0, 1, b'a'][..])] {
        for (filters, accepted) in [(65_535, true), (65_536, false)] {
            for (version, head) in
                [(ProtocolVersion::V3_1_1, &[0, 1][..]), (ProtocolVersion::V5, &[0, 1, 0][..])]
            {
                let body = [head, &entry.repeat(filters)].concat();
                let length = [0, 7, 14].map(|shift| (body.len() >> shift & 127) as u8);
                let header = [first, length[0] | 0x80, length[1] | 0x80, length[2]];
                let bytes = [&header[..], &body].concat();
                let decoded = decode(&bytes, version, NO_LIMIT);
                assert_eq!(decoded.is_ok(), accepted, "{first:X}, {filters}, {version}");
                if let Err(error) = decoded {
                    assert_eq!(error.reason_code().byte(), 0x97);
                }
            }
        }
    }
}

#[test]
fn a_packet_with_more_properties_than_a_turn_decodes_is_refused() {
    // User Properties, and Subscription Identifiers.
    for entry in [&[0x26, 0, 0, 0, 0][..], &[0x0B, 1]] {
        for (properties, accepted) in [(65_535, true), (65_536, false)] {
            let block = entry.repeat(properties);
            let encoded = |length: usize| {
                [0, 7, 14].map(|shift| (length >> shift & 127) as u8 | if shift < 14 { 0x80 } else { 0 })
            };
            let body = [b"\0\x01t", &encoded(block.len())[..], &block].concat();
            let bytes = [&[0x30][..], &encoded(body.len()), &body].concat();
            let decoded = decode(&bytes, ProtocolVersion::V5, NO_LIMIT);
            assert_eq!(decoded.is_ok(), accepted, "{properties}");
            if let Err(error) = decoded {
                assert_eq!(error.reason_code().byte(), 0x97);
            }
        }
    }
}

#[test]
fn first_packets_decode_as_the_table_says() {
    for case in FIRST_PACKETS {
        check(case, decode_connect(case.bytes, NO_LIMIT));
    }
}

#[test]
fn later_packets_decode_as_the_table_says() {
    for case in LATER_PACKETS {
        check(case, decode(case.bytes, version(case.level), NO_LIMIT));
    }
}

#[test]
fn a_topic_that_is_known_changes_nothing_of_what_is_decoded() {
    for case in LATER_PACKETS {
        for known in ["", "a", "a/b", "t", "topic", "é"] {
            let next = decode_next(case.bytes, version(case.level), NO_LIMIT, known);
            assert_eq!(
                next,
                decode(case.bytes, version(case.level), NO_LIMIT),
                "{known:?} before {:02X?}",
                case.bytes
            );
        }
    }
    let bytes = b"\x30\x07\0\x03a/bhi";
    for known in ["a/b", "a/c", "a/", ""] {
        let Ok(Decoded::Packet { packet: Packet::Publish(publish), length: 9 }) =
            decode_next(bytes, ProtocolVersion::V3_1_1, NO_LIMIT, known)
        else {
            panic!("{known}")
        };
        assert_eq!((publish.topic, publish.payload), ("a/b", &b"hi"[..]));
    }
}

#[test]
fn a_connect_on_a_settled_connection_is_decoded_for_the_session_to_refuse() {
    for case in FIRST_PACKETS.iter().filter(|case| matches!(case.expected, Expected::Packet(_))) {
        assert_eq!(whole(case.bytes, version(case.level)).name(), "CONNECT", "{}", case.name);
    }
}

#[test]
fn every_beginning_of_a_packet_is_incomplete_and_asks_for_no_more_than_the_packet() {
    for case in LATER_PACKETS.iter().filter(|case| matches!(case.expected, Expected::Packet(_))) {
        for end in 0..case.bytes.len() {
            let decoded = decode(&case.bytes[..end], version(case.level), NO_LIMIT);
            let Ok(Decoded::Incomplete { needed }) = decoded else {
                panic!("{} cut at {end}: {decoded:?}", case.name);
            };
            assert!(
                end < needed && needed <= case.bytes.len().max(2),
                "{} cut at {end}: {needed}",
                case.name
            );
        }
    }
}

// 5.0 [MQTT-3.2.2-15]
#[test]
fn a_packet_too_large_is_refused_by_its_length_alone() {
    let too_large = DecodeError::PacketTooLarge { length: 103, maximum: 102 };
    for bytes in [&b"\x30\x65"[..], b"\x30\x65\0\x01t"] {
        assert_eq!(decode(bytes, ProtocolVersion::V5, 102), Err(too_large));
        assert_eq!(decode(bytes, ProtocolVersion::V5, 103), Ok(Decoded::Incomplete { needed: 103 }));
    }
    assert_eq!(too_large.reason_code(), ReasonCode::PACKET_TOO_LARGE);
    assert_eq!(decode_connect(b"\x10\x65", 102), Err(too_large));
}

// 3.1.1 [MQTT-3.1.2-2]
#[test]
fn an_unknown_level_is_answered_and_an_unknown_name_is_not() {
    assert_eq!(refusal(b"\x10\x0D\0\x04MQTT\x03"), Some(&b"\x20\x02\0\x01"[..]));
    assert_eq!(refusal(b"\x10\x0D\0\x06MQIsdp\x05"), Some(&b"\x20\x02\0\x01"[..]));
    assert_eq!(refusal(b"\x10\x0D\0\x04AMQP\x00"), None);
    assert_eq!(refusal(b"\x10\x0D\0\x04MQTT\x04\x03\0\x3C\0\x01a"), None);
}

fn refusal(bytes: &[u8]) -> Option<&'static [u8]> {
    decode_connect(bytes, NO_LIMIT).expect_err("unsupported").connack()
}

// 5.0 [MQTT-3.1.2-2]
#[test]
fn a_later_level_is_answered_in_the_form_of_5_0() {
    for connect in [b"\x10\x0D\0\x04MQTT\x06", b"\x10\x0D\0\x04MQTT\xFF"] {
        assert_eq!(refusal(connect), Some(&b"\x20\x03\0\x84\0"[..]));
    }
    // A mosquitto bridge tries again without its private bit when it is refused in the form of 3.x.
    assert_eq!(refusal(b"\x10\x0D\0\x04MQTT\x84"), Some(&b"\x20\x02\0\x01"[..]));
}

// 3.1.1 [MQTT-4.7.3-1]; 5.0 [MQTT-4.7.3-1]
#[test]
fn an_empty_topic_filter_is_malformed() {
    let empty: [(&[u8], _); 4] = [
        (b"\x82\x05\0\x01\0\0\0", ProtocolVersion::V3_1_1),
        (b"\x82\x06\0\x01\0\0\0\0", ProtocolVersion::V5),
        (b"\xA2\x07\0\x01\0\x01t\0\0", ProtocolVersion::V3_1_1),
        (b"\xA2\x05\0\x01\0\0\0", ProtocolVersion::V5),
    ];
    for (bytes, version) in empty {
        let error = decode(bytes, version, NO_LIMIT).expect_err("an empty filter");
        assert!(matches!(error, DecodeError::EmptyTopicFilter { .. }), "{error}");
        assert_eq!(error.reason_code(), ReasonCode::MALFORMED_PACKET);
    }
}

#[test]
fn forwarded_properties_side_by_side_are_borrowed_and_others_copied() {
    let forwarded = |bytes: &'static [u8]| match whole(bytes, ProtocolVersion::V5) {
        Packet::Publish(publish) => publish.properties.forwarded,
        other => panic!("{other:?}"),
    };
    // Topic Alias, Payload Format Indicator, Content Type
    let side_by_side = forwarded(b"\x30\x0D\0\x01t\x09\x23\0\x01\x01\x01\x03\0\x01c");
    assert!(matches!(side_by_side, Cow::Borrowed(b"\x01\x01\x03\0\x01c")), "{side_by_side:?}");
    // Payload Format Indicator, Topic Alias, Content Type, User Property
    let apart = forwarded(b"\x30\x14\0\x01t\x10\x01\x01\x23\0\x01\x03\0\x01c\x26\0\x01k\0\x01v");
    assert!(
        matches!(&apart, Cow::Owned(bytes) if bytes == b"\x01\x01\x03\0\x01c\x26\0\x01k\0\x01v"),
        "{apart:?}"
    );
    assert_eq!(property::iter(Properties(&apart)).count(), 3);
}

#[test]
fn a_subscription_identifier_amid_user_properties_is_found_and_written_once() {
    let bytes = b"\x82\x19\0\x01\x10\x26\0\x01k\0\x01v\x0B\x01\x26\0\x01k\0\x01w\0\x03a/#\0";
    let mut encoded = Vec::new();
    encode(&whole(bytes, ProtocolVersion::V5), ProtocolVersion::V5, &mut encoded).expect("encodes");
    let Packet::Subscribe(subscribe) = whole(&encoded, ProtocolVersion::V5) else { panic!() };
    assert_eq!(subscribe.subscription_id, Some(1));
    assert_eq!(subscribe.properties.as_bytes(), b"\x26\0\x01k\0\x01v\x26\0\x01k\0\x01w");
}

fn publish<'a>(topic: &'a str, payload: &'a [u8]) -> Publish<'a> {
    Publish {
        dup: false,
        qos: QoS::AtMostOnce,
        retain: false,
        topic,
        packet_id: None,
        properties: Default::default(),
        payload,
    }
}

#[test]
fn what_does_not_fit_the_protocol_is_not_encoded_and_leaves_no_bytes() {
    let long = "x".repeat(65_536);
    let no_id = Publish { qos: QoS::AtLeastOnce, ..publish("t", b"") };
    let mut disconnect = Disconnect::new(ReasonCode::SERVER_BUSY);
    disconnect.reason_string = Some(&long);
    let cases = [
        (
            Packet::Publish(publish(&long, b"")),
            EncodeError::FieldTooLong { field: "Topic Name", length: 65_536 },
        ),
        (Packet::Publish(no_id), EncodeError::PublishPacketIdentifier),
        (
            Packet::Disconnect(disconnect),
            EncodeError::FieldTooLong { field: "Reason String", length: 65_536 },
        ),
    ];
    for (packet, error) in cases {
        let mut out = vec![7];
        assert_eq!(encode(&packet, ProtocolVersion::V5, &mut out), Err(error));
        assert_eq!(out, [7]);
    }
}

#[test]
fn the_largest_packet_is_encoded_and_one_byte_more_is_not() {
    // 3 bytes of topic; the payload is never written to, so it costs no memory
    let payload = vec![0; 268_435_455 - 3 + 1];
    let head = PublishHead {
        dup: false,
        qos: QoS::AtMostOnce,
        retain: false,
        topic: "t",
        packet_id: None,
        topic_alias: None,
        message_expiry: None,
        subscription_ids: &[],
        forwarded: &[],
    };
    let mut out = Vec::new();
    head.put(ProtocolVersion::V3_1_1, payload.len() - 1, &mut out);
    assert_eq!(out, b"\x30\xFF\xFF\xFF\x7F\0\x01t");
    assert_eq!(
        encode(&Packet::Publish(publish("t", &payload)), ProtocolVersion::V3_1_1, &mut out),
        Err(EncodeError::PacketTooLong { packet: PacketType::Publish, length: 268_435_456 })
    );
}

#[test]
fn acknowledgements_are_written_in_their_shortest_form() {
    let id = PacketId::new(0x1234).expect("not 0");
    for (kind, first) in
        [(AckKind::Puback, 0x40), (AckKind::Pubrec, 0x50), (AckKind::Pubrel, 0x62), (AckKind::Pubcomp, 0x70)]
    {
        let mut out = Vec::new();
        put_acknowledgement(&mut out, kind, id, ReasonCode::SUCCESS, ProtocolVersion::V5);
        assert_eq!(short_acknowledgement(&out), Some((kind, id)));
        assert_eq!(
            (short_acknowledgement(&out[..3]), short_acknowledgement(&[first, 2, 0, 0])),
            (None, None)
        );
        assert_eq!(short_acknowledgement(&[first ^ 0x01, 2, 0, 1]), None);
        put_acknowledgement(&mut out, kind, id, ReasonCode::PACKET_IDENTIFIER_NOT_FOUND, ProtocolVersion::V5);
        put_acknowledgement(
            &mut out,
            kind,
            id,
            ReasonCode::PACKET_IDENTIFIER_NOT_FOUND,
            ProtocolVersion::V3_1_1,
        );
        assert_eq!(out, [first, 2, 0x12, 0x34, first, 3, 0x12, 0x34, 0x92, first, 2, 0x12, 0x34]);
    }
}

#[test]
fn a_publish_head_knows_its_length_and_where_its_packet_identifier_lies() {
    let ids = [1, 300];
    let head = PublishHead {
        dup: true,
        qos: QoS::AtLeastOnce,
        retain: true,
        topic: "a/b",
        packet_id: PacketId::new(7),
        topic_alias: std::num::NonZeroU16::new(2),
        message_expiry: Some(60),
        subscription_ids: &ids,
        forwarded: b"\x01\x01",
    };
    for version in [ProtocolVersion::V3_1, ProtocolVersion::V3_1_1, ProtocolVersion::V5] {
        for payload in [0, 64, 127, 128, 20_000] {
            let mut out = vec![9; 3];
            let at = head.put(version, payload, &mut out);
            assert_eq!(out[at..at + 2], [0, 7]);
            out.resize(out.len() + payload, b'x');
            assert_eq!(out.len(), 3 + head.packet_len(version, payload));
            let Packet::Publish(publish) = whole(&out[3..], version) else { panic!() };
            assert_eq!((publish.topic, publish.payload.len()), ("a/b", payload));
            assert!(publish.dup && publish.retain && publish.packet_id == PacketId::new(7));
            let expected: &[u32] = if version.is_v5() { &ids } else { &[] };
            assert_eq!(publish.properties.subscription_ids, expected);
            assert_eq!(publish.properties.message_expiry.is_some(), version.is_v5());
        }
    }
}

// 3.1.1 [MQTT-3.2.2-6]
#[test]
fn a_refusal_without_return_code_is_not_encoded() {
    let refusal = Connack {
        session_present: false,
        reason: ReasonCode::MALFORMED_PACKET,
        properties: Default::default(),
    };
    let mut out = Vec::new();
    let packet = Packet::Connack(Box::new(refusal));
    assert!(matches!(
        encode(&packet, ProtocolVersion::V3_1_1, &mut out),
        Err(EncodeError::NoReturnCode { .. })
    ));
    assert_eq!(encode(&packet, ProtocolVersion::V5, &mut out), Ok(()));
}
