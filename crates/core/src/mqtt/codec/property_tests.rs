//! The property table, tried out: every property in every place, once and twice.

use super::property::{self, PropertySet};
use super::tests::NO_LIMIT;
use super::{DecodeError, Decoded, PacketType, decode, decode_connect};
use crate::mqtt::packet::{Properties, Property, ProtocolVersion, ReasonCode};

use PropertySet::*;

const ACKNOWLEDGEMENTS: [PropertySet; 4] = [Puback, Pubrec, Pubrel, Pubcomp];

/// A legal example of every property, and where the standard's table has it.
fn table() -> Vec<(Property<'static>, Vec<PropertySet>)> {
    let reason_string = [&[Connack, Suback, Unsuback, Disconnect, Auth][..], &ACKNOWLEDGEMENTS].concat();
    vec![
        (Property::PayloadFormatIndicator(1), vec![Publish, Will]),
        (Property::MessageExpiryInterval(9), vec![Publish, Will]),
        (Property::ContentType("c"), vec![Publish, Will]),
        (Property::ResponseTopic("r/t"), vec![Publish, Will]),
        (Property::CorrelationData(b"d"), vec![Publish, Will]),
        (Property::SubscriptionIdentifier(9), vec![Publish, Subscribe]),
        (Property::SessionExpiryInterval(9), vec![Connect, Connack, Disconnect]),
        (Property::AssignedClientIdentifier("a"), vec![Connack]),
        (Property::ServerKeepAlive(9), vec![Connack]),
        (Property::AuthenticationMethod("m"), vec![Connect, Connack, Auth]),
        (Property::AuthenticationData(b"d"), vec![Connect, Connack, Auth]),
        (Property::RequestProblemInformation(1), vec![Connect]),
        (Property::WillDelayInterval(9), vec![Will]),
        (Property::RequestResponseInformation(1), vec![Connect]),
        (Property::ResponseInformation("r"), vec![Connack]),
        (Property::ServerReference("s"), vec![Connack, Disconnect]),
        (Property::ReasonString("r"), reason_string),
        (Property::ReceiveMaximum(9), vec![Connect, Connack]),
        (Property::TopicAliasMaximum(9), vec![Connect, Connack]),
        (Property::TopicAlias(9), vec![Publish]),
        (Property::MaximumQoS(1), vec![Connack]),
        (Property::RetainAvailable(1), vec![Connack]),
        (Property::UserProperty("k", "v"), PropertySet::ALL.to_vec()),
        (Property::MaximumPacketSize(9), vec![Connect, Connack]),
        (Property::WildcardSubscriptionAvailable(1), vec![Connack]),
        (Property::SubscriptionIdentifierAvailable(1), vec![Connack]),
        (Property::SharedSubscriptionAvailable(1), vec![Connack]),
    ]
}

fn encoded(properties: &[Property<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    for &property in properties {
        property::put(&mut out, property).expect("legal");
    }
    out
}

/// A packet, legal but for the properties it is given.
fn packet(set: PropertySet, properties: &[u8]) -> Vec<u8> {
    let length = u8::try_from(properties.len()).expect("short");
    let block = [&[length], properties].concat();
    let (first, body): (u8, Vec<u8>) = match set {
        Connect => (0x10, [b"\0\x04MQTT\x05\x02\0\x3C", &block[..], b"\0\x01a"].concat()),
        Will => (0x10, [b"\0\x04MQTT\x05\x06\0\x3C\0\0\x01a", &block[..], b"\0\x01w\0\x01p"].concat()),
        Connack => (0x20, [b"\0\0", &block[..]].concat()),
        Publish => (0x30, [b"\0\x01t", &block[..], b"hi"].concat()),
        Puback => (0x40, [b"\0\x01\0", &block[..]].concat()),
        Pubrec => (0x50, [b"\0\x01\0", &block[..]].concat()),
        Pubrel => (0x62, [b"\0\x01\0", &block[..]].concat()),
        Pubcomp => (0x70, [b"\0\x01\0", &block[..]].concat()),
        Subscribe => (0x82, [b"\0\x01", &block[..], b"\0\x01a\0"].concat()),
        Suback => (0x90, [b"\0\x01", &block[..], b"\0"].concat()),
        Unsubscribe => (0xA2, [b"\0\x01", &block[..], b"\0\x01a"].concat()),
        Unsuback => (0xB0, [b"\0\x01", &block[..], b"\0"].concat()),
        Disconnect => (0xE0, [&[0], &block[..]].concat()),
        Auth => (0xF0, [&[0], &block[..]].concat()),
    };
    [&[first, u8::try_from(body.len()).expect("short")], &body[..]].concat()
}

fn error(set: PropertySet, properties: &[Property<'_>]) -> Option<DecodeError> {
    let bytes = packet(set, &encoded(properties));
    let decoded = match set {
        Connect | Will => decode_connect(&bytes, NO_LIMIT),
        _ => decode(&bytes, ProtocolVersion::V5, NO_LIMIT),
    };
    assert!(!matches!(decoded, Ok(Decoded::Incomplete { .. })), "{set}: {bytes:02X?}");
    decoded.err()
}

/// What else the packet must have for `property` to be legal in it.
fn company(set: PropertySet, property: Property<'_>) -> Vec<Property<'static>> {
    let method = match (set, property) {
        (_, Property::AuthenticationMethod(_)) => false,
        (Auth, _) => true,
        (_, property) => matches!(property, Property::AuthenticationData(_)),
    };
    if method { vec![Property::AuthenticationMethod("m")] } else { Vec::new() }
}

#[test]
fn every_property_is_taken_where_the_table_has_it_and_malformed_elsewhere() {
    let table = table();
    assert_eq!(table.len(), 27);
    for (property, allowed) in table {
        for set in PropertySet::ALL {
            let mut properties = vec![property];
            if allowed.contains(&set) {
                properties.extend(company(set, property));
                assert_eq!(error(set, &properties), None, "{property:?} in {set}");
            } else {
                let error = error(set, &properties);
                assert!(
                    matches!(error, Some(DecodeError::PropertyNotAllowed { set: place, .. }) if place == set),
                    "{property:?} in {set}: {error:?}"
                );
                assert_eq!(error.map(|error| error.reason_code()), Some(ReasonCode::MALFORMED_PACKET));
            }
        }
    }
}

#[test]
fn a_property_is_repeated_only_where_the_table_says_so() {
    for (property, allowed) in table() {
        for set in allowed {
            let mut properties = vec![property, property];
            properties.extend(company(set, property));
            let error = error(set, &properties);
            if matches!(
                (property, set),
                (Property::UserProperty(..), _) | (Property::SubscriptionIdentifier(_), Publish)
            ) {
                assert_eq!(error, None, "{property:?} in {set}");
            } else {
                assert!(
                    matches!(error, Some(DecodeError::RepeatedProperty { .. })),
                    "{property:?} in {set}: {error:?}"
                );
                assert_eq!(error.map(|error| error.reason_code()), Some(ReasonCode::PROTOCOL_ERROR));
            }
        }
    }
}

#[test]
fn identifiers_that_the_standard_does_not_define_are_malformed_everywhere() {
    let known: Vec<u8> = table().iter().map(|(property, _)| encoded(&[*property])[0]).collect();
    for identifier in (0..=0x7F).filter(|identifier| !known.contains(identifier)) {
        for set in PropertySet::ALL {
            let bytes = packet(set, &[identifier, 0, 0, 0, 0]);
            let decoded = match set {
                Connect | Will => decode_connect(&bytes, NO_LIMIT),
                _ => decode(&bytes, ProtocolVersion::V5, NO_LIMIT),
            };
            let identifier = identifier.into();
            assert_eq!(decoded, Err(DecodeError::UnknownProperty { identifier, set }));
        }
    }
}

#[test]
fn flags_are_0_or_1_and_limits_not_0() {
    for property in [
        Property::PayloadFormatIndicator(2),
        Property::RequestProblemInformation(2),
        Property::RequestResponseInformation(255),
        Property::MaximumQoS(2),
        Property::RetainAvailable(2),
        Property::WildcardSubscriptionAvailable(2),
        Property::SubscriptionIdentifierAvailable(2),
        Property::SharedSubscriptionAvailable(2),
        Property::ReceiveMaximum(0),
        Property::MaximumPacketSize(0),
    ] {
        let same_kind = |(example, _): &&(Property<'_>, Vec<PropertySet>)| {
            std::mem::discriminant(example) == std::mem::discriminant(&property)
        };
        for &set in &table().iter().find(same_kind).expect("in the table").1 {
            let code = error(set, &[property]).map(|error| error.reason_code());
            assert_eq!(code, Some(ReasonCode::PROTOCOL_ERROR), "{property:?} in {set}");
        }
    }
}

#[test]
fn a_property_cut_short_is_malformed() {
    for (property, allowed) in table() {
        let bytes = encoded(&[property]);
        for end in 1..bytes.len() {
            let packet = packet(allowed[0], &bytes[..end]);
            let decoded = match allowed[0] {
                Connect | Will => decode_connect(&packet, NO_LIMIT),
                _ => decode(&packet, ProtocolVersion::V5, NO_LIMIT),
            };
            assert!(matches!(decoded, Err(DecodeError::Truncated { .. })), "{property:?}: {decoded:?}");
        }
    }
}

#[test]
fn iter_gives_back_what_was_put() {
    let all: Vec<_> = table().into_iter().map(|(property, _)| property).collect();
    let bytes = encoded(&all);
    assert_eq!(property::iter(Properties(&bytes)).collect::<Vec<_>>(), all);
}

/// The standard's table of reason codes, by packet.
// 5.0 [MQTT-3.2.2-8], [MQTT-3.4.2-1], [MQTT-3.5.2-1], [MQTT-3.6.2-1], [MQTT-3.7.2-1],
// [MQTT-3.9.3-2], [MQTT-3.11.3-2], [MQTT-3.14.2-1], [MQTT-3.15.2-1]
#[rustfmt::skip]
const REASON_CODES: [(PacketType, &[u8], &[u8]); 9] = [
    (PacketType::Connack, b"\x20\x03\0_\0", &[
        0x00, 0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8A, 0x8C, 0x90, 0x95, 0x97, 0x99,
        0x9A, 0x9B, 0x9C, 0x9D, 0x9F,
    ]),
    (PacketType::Puback, b"\x40\x03\0\x01_", &[0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99]),
    (PacketType::Pubrec, b"\x50\x03\0\x01_", &[0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99]),
    (PacketType::Pubrel, b"\x62\x03\0\x01_", &[0x00, 0x92]),
    (PacketType::Pubcomp, b"\x70\x03\0\x01_", &[0x00, 0x92]),
    (PacketType::Suback, b"\x90\x04\0\x01\0_", &[
        0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2,
    ]),
    (PacketType::Unsuback, b"\xB0\x04\0\x01\0_", &[0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91]),
    (PacketType::Disconnect, b"\xE0\x01_", &[
        0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x87, 0x89, 0x8B, 0x8C, 0x8D, 0x8E, 0x8F, 0x90, 0x93, 0x94, 0x95,
        0x96, 0x97, 0x98, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9E, 0x9F, 0xA0, 0xA1, 0xA2,
    ]),
    (PacketType::Auth, b"\xF0\x06_\x04\x15\0\x01m", &[0x00, 0x18, 0x19]),
];

#[test]
fn every_reason_code_is_taken_where_the_table_has_it_and_a_protocol_error_elsewhere() {
    for (packet, template, allowed) in REASON_CODES {
        for code in 0..=255 {
            let bytes: Vec<u8> = template.iter().map(|&b| if b == b'_' { code } else { b }).collect();
            let decoded = decode(&bytes, ProtocolVersion::V5, NO_LIMIT);
            if allowed.contains(&code) {
                assert!(matches!(decoded, Ok(Decoded::Packet { .. })), "{packet} 0x{code:02X}: {decoded:?}");
            } else {
                assert_eq!(decoded, Err(DecodeError::ReasonCodeNotAllowed { packet, code }));
            }
        }
    }
}
