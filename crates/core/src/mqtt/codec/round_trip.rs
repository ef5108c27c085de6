//! Generated packets of all versions: what is encoded decodes to the same, and no bytes whatever
//! cause a panic.

use super::tests::NO_LIMIT;
use super::*;
use crate::mqtt::packet::{
    Acknowledgement, Auth, Connack, ConnackProperties, Connect, ConnectProperties, PacketId, Properties,
    Property, Publish, PublishProperties, QoS, RetainHandling, Suback, Subscribe, SubscribeFilter,
    SubscriptionOptions, Unsuback, Unsubscribe, WillMessage,
};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;
use std::num::NonZeroU16;

// Packets borrow, strategies own: what is generated is leaked, a few megabytes over all cases.

fn text() -> impl Strategy<Value = &'static str> {
    "[a-zA-Z0-9/ äß€𝄞\u{FEFF}#+$]{0,12}".prop_map(|text| &*text.leak())
}

fn filter() -> impl Strategy<Value = &'static str> {
    "[a-zA-Z0-9/ äß€𝄞\u{FEFF}#+$]{1,12}".prop_map(|text| &*text.leak())
}

fn topic() -> impl Strategy<Value = &'static str> {
    "[a-z/$ä€\u{FEFF}]{1,200}".prop_map(|text| &*text.leak())
}

fn binary() -> impl Strategy<Value = &'static [u8]> {
    vec(any::<u8>(), 0..300).prop_map(|bytes| &*bytes.leak())
}

fn versions() -> impl Strategy<Value = ProtocolVersion> {
    select(vec![ProtocolVersion::V3_1, ProtocolVersion::V3_1_1, ProtocolVersion::V5])
}

fn qos() -> impl Strategy<Value = QoS> {
    select(vec![QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce])
}

fn packet_id() -> impl Strategy<Value = PacketId> {
    (1..=u16::MAX).prop_filter_map("not 0", PacketId::new)
}

fn pairs() -> impl Strategy<Value = Vec<(&'static str, &'static str)>> {
    vec((text(), text()), 0..4)
}

fn codes(codes: &'static [u8]) -> impl Strategy<Value = ReasonCode> {
    select(codes).prop_filter_map("defined", ReasonCode::from_byte)
}

fn encoded(properties: impl IntoIterator<Item = Property<'static>>) -> &'static [u8] {
    let mut out = Vec::new();
    properties.into_iter().for_each(|property| property::put(&mut out, property).expect("legal"));
    out.leak()
}

fn user_properties(pairs: Vec<(&'static str, &'static str)>) -> Vec<Property<'static>> {
    pairs.into_iter().map(|(key, value)| Property::UserProperty(key, value)).collect()
}

/// Reason String and User Properties.
fn reason_properties(v5: bool) -> BoxedStrategy<Properties<'static>> {
    if !v5 {
        return Just(Properties::EMPTY).boxed();
    }
    let properties = (of(text()), pairs()).prop_map(|(reason, pairs)| {
        Properties(encoded(reason.map(Property::ReasonString).into_iter().chain(user_properties(pairs))))
    });
    properties.boxed()
}

/// The properties that travel unchanged with a message.
fn forwarded() -> impl Strategy<Value = &'static [u8]> {
    (of(0..=1_u8), of(text()), of(topic()), of(binary()), pairs()).prop_map(
        |(format, content_type, response, correlation, pairs)| {
            let head = [
                format.map(Property::PayloadFormatIndicator),
                content_type.map(Property::ContentType),
                response.map(Property::ResponseTopic),
                correlation.map(Property::CorrelationData),
            ];
            encoded(head.into_iter().flatten().chain(user_properties(pairs)))
        },
    )
}

fn will(v5: bool) -> impl Strategy<Value = WillMessage<'static>> {
    (qos(), any::<bool>(), topic(), binary(), any::<u32>(), of(any::<u32>()), forwarded()).prop_map(
        move |(qos, retain, topic, payload, delay, message_expiry, forwarded)| WillMessage {
            qos,
            retain,
            topic,
            payload,
            delay: if v5 { delay } else { 0 },
            message_expiry: message_expiry.filter(|_| v5),
            forwarded: if v5 { forwarded.into() } else { Default::default() },
        },
    )
}

fn connect_properties() -> impl Strategy<Value = ConnectProperties<'static>> {
    let limits = (of(any::<u32>()), of(1..=u16::MAX), of(1..=u32::MAX), of(any::<u16>()));
    let flags = (of(any::<bool>()), of(any::<bool>()));
    (limits, flags, of((text(), of(binary()))), pairs()).prop_map(|(limits, flags, auth, user_properties)| {
        ConnectProperties {
            session_expiry: limits.0,
            receive_maximum: limits.1,
            maximum_packet_size: limits.2,
            topic_alias_maximum: limits.3,
            request_response_information: flags.0,
            request_problem_information: flags.1,
            authentication_method: auth.map(|(method, _)| method),
            authentication_data: auth.and_then(|(_, data)| data),
            user_properties,
        }
    })
}

fn connect(version: ProtocolVersion) -> impl Strategy<Value = Packet<'static>> {
    let v5 = version.is_v5();
    let head = (any::<bool>(), any::<u16>(), connect_properties());
    let payload = (text(), of(will(v5)), of(text()), of(binary()));
    (head, payload).prop_map(move |(head, (client_id, will, user_name, password))| {
        Packet::Connect(Box::new(Connect {
            version,
            clean_start: head.0,
            keep_alive: head.1,
            properties: if v5 { head.2 } else { ConnectProperties::default() },
            client_id,
            will,
            user_name,
            password: password.filter(|_| v5 || user_name.is_some()),
        }))
    })
}

fn connack_properties() -> impl Strategy<Value = ConnackProperties<'static>> {
    let limits = (of(any::<u32>()), of(1..=u16::MAX), of(0..=1_u8), of(1..=u32::MAX), of(any::<u16>()));
    let flags = vec(of(any::<bool>()), 4);
    let texts = vec(of(text()), 4);
    (limits, flags, texts, of(any::<u16>()), of((text(), of(binary()))), pairs()).prop_map(
        |(limits, flags, texts, server_keep_alive, auth, user_properties)| ConnackProperties {
            session_expiry: limits.0,
            receive_maximum: limits.1,
            maximum_qos: limits.2,
            retain_available: flags[0],
            maximum_packet_size: limits.3,
            assigned_client_id: texts[0],
            topic_alias_maximum: limits.4,
            reason_string: texts[1],
            user_properties,
            wildcard_subscription_available: flags[1],
            subscription_identifiers_available: flags[2],
            shared_subscription_available: flags[3],
            server_keep_alive,
            response_information: texts[2],
            server_reference: texts[3],
            authentication_method: auth.map(|(method, _)| method),
            authentication_data: auth.and_then(|(_, data)| data),
        },
    )
}

fn connack(version: ProtocolVersion) -> impl Strategy<Value = Packet<'static>> {
    // The reasons that 3.x has a return code of its own for.
    let reason = codes(&[0x00, 0x84, 0x85, 0x86, 0x87, 0x88]);
    (any::<bool>(), reason, connack_properties()).prop_map(move |(present, reason, properties)| {
        let may_be_present = reason == ReasonCode::SUCCESS && version != ProtocolVersion::V3_1;
        Packet::Connack(Box::new(Connack {
            session_present: present && may_be_present,
            reason,
            properties: if version.is_v5() { properties } else { ConnackProperties::default() },
        }))
    })
}

fn publish_properties(v5: bool) -> BoxedStrategy<PublishProperties<'static>> {
    if !v5 {
        return Just(PublishProperties::default()).boxed();
    }
    let properties = (of(1..=u16::MAX), of(any::<u32>()), vec(1..=268_435_455_u32, 0..4), forwarded());
    let properties = properties.prop_map(|(alias, message_expiry, subscription_ids, forwarded)| {
        let topic_alias = alias.and_then(NonZeroU16::new);
        PublishProperties { topic_alias, message_expiry, subscription_ids, forwarded: forwarded.into() }
    });
    properties.boxed()
}

fn publish(v5: bool) -> impl Strategy<Value = Packet<'static>> {
    let flags = (any::<bool>(), qos(), any::<bool>());
    (flags, topic(), packet_id(), publish_properties(v5), binary(), any::<bool>()).prop_map(
        |((dup, qos, retain), topic, id, properties, payload, by_alias)| {
            let acknowledged = qos != QoS::AtMostOnce;
            Packet::Publish(Publish {
                dup: dup && acknowledged,
                qos,
                retain,
                topic: if by_alias && properties.topic_alias.is_some() { "" } else { topic },
                packet_id: acknowledged.then_some(id),
                properties,
                payload,
            })
        },
    )
}

fn acknowledgement(v5: bool) -> impl Strategy<Value = Packet<'static>> {
    let packet: fn(usize) -> fn(Acknowledgement<'static>) -> Packet<'static> =
        |kind| [Packet::Puback, Packet::Pubrec, Packet::Pubrel, Packet::Pubcomp][kind];
    (0..4_usize, packet_id(), any::<bool>(), reason_properties(v5)).prop_map(
        move |(kind, packet_id, success, properties)| {
            let failure = [0x87, 0x10, 0x92, 0x92][kind];
            let code = if success || !v5 { 0 } else { failure };
            let reason = ReasonCode::from_byte(code).expect("defined");
            packet(kind)(Acknowledgement { packet_id, reason, properties })
        },
    )
}

fn options(v5: bool) -> impl Strategy<Value = SubscriptionOptions> {
    let handling =
        vec![RetainHandling::SendAtSubscribe, RetainHandling::SendIfNew, RetainHandling::DoNotSend];
    (qos(), any::<bool>(), any::<bool>(), select(handling)).prop_map(
        move |(qos, no_local, retain_as_published, retain_handling)| {
            if v5 {
                SubscriptionOptions { qos, no_local, retain_as_published, retain_handling }
            } else {
                SubscriptionOptions { qos, ..Default::default() }
            }
        },
    )
}

fn subscribe(v5: bool) -> impl Strategy<Value = Packet<'static>> {
    let filter = (filter(), options(v5)).prop_map(|(filter, options)| SubscribeFilter { filter, options });
    (packet_id(), of(1..=268_435_455_u32), pairs(), vec(filter, 1..20)).prop_map(
        move |(packet_id, id, pairs, filters)| {
            let properties = if v5 { Properties(encoded(user_properties(pairs))) } else { Properties::EMPTY };
            let subscription_id = id.filter(|_| v5);
            Packet::Subscribe(Subscribe { packet_id, subscription_id, properties, filters })
        },
    )
}

fn suback(v5: bool) -> impl Strategy<Value = Packet<'static>> {
    let reason = codes(if v5 { &[0, 1, 2, 0x80, 0x87, 0x8F, 0x97, 0xA2] } else { &[0, 1, 2, 0x80] });
    (packet_id(), reason_properties(v5), vec(reason, 1..200)).prop_map(|(packet_id, properties, reasons)| {
        Packet::Suback(Suback { packet_id, properties, reasons })
    })
}

fn unsubscribe(v5: bool) -> impl Strategy<Value = Packet<'static>> {
    (packet_id(), pairs(), vec(filter(), 1..20)).prop_map(move |(packet_id, pairs, filters)| {
        let properties = if v5 { Properties(encoded(user_properties(pairs))) } else { Properties::EMPTY };
        Packet::Unsubscribe(Unsubscribe { packet_id, properties, filters })
    })
}

fn unsuback(v5: bool) -> impl Strategy<Value = Packet<'static>> {
    let reasons = vec(codes(&[0x00, 0x11, 0x87]), 1..20);
    (packet_id(), reason_properties(v5), reasons).prop_map(move |(packet_id, properties, reasons)| {
        let reasons = if v5 { reasons } else { Vec::new() };
        Packet::Unsuback(Unsuback { packet_id, properties, reasons })
    })
}

fn disconnect(v5: bool) -> impl Strategy<Value = Packet<'static>> {
    (codes(&[0x00, 0x04, 0x82, 0x97]), of(any::<u32>()), of(text()), of(text()), pairs()).prop_map(
        move |(reason, session_expiry, reason_string, server_reference, user_properties)| {
            Packet::Disconnect(if v5 {
                Disconnect { reason, session_expiry, reason_string, server_reference, user_properties }
            } else {
                Disconnect::new(ReasonCode::NORMAL_DISCONNECTION)
            })
        },
    )
}

fn auth() -> impl Strategy<Value = Packet<'static>> {
    (codes(&[0x00, 0x18, 0x19]), text(), of(binary()), of(text()), pairs()).prop_map(
        |(reason, method, data, reason_string, user_properties)| {
            Packet::Auth(Auth { reason, method: Some(method), data, reason_string, user_properties })
        },
    )
}

fn packets(version: ProtocolVersion) -> BoxedStrategy<(ProtocolVersion, Packet<'static>)> {
    let v5 = version.is_v5();
    let packet = prop_oneof![
        connect(version),
        connack(version),
        publish(v5),
        publish(v5),
        acknowledgement(v5),
        subscribe(v5),
        suback(v5),
        unsubscribe(v5),
        unsuback(v5),
        disconnect(v5),
        if v5 { auth().boxed() } else { Just(Packet::Pingreq).boxed() },
        Just(Packet::Pingresp),
    ];
    packet.prop_map(move |packet| (version, packet)).boxed()
}

fn any_packet() -> impl Strategy<Value = (ProtocolVersion, Packet<'static>)> {
    versions().prop_flat_map(packets)
}

fn bytes_of(packet: &Packet<'_>, version: ProtocolVersion) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(packet, version, &mut bytes).expect("legal");
    bytes
}

proptest! {
    #[test]
    fn what_is_encoded_decodes_to_the_same((version, packet) in any_packet(), tail in vec(any::<u8>(), 0..8)) {
        let mut bytes = bytes_of(&packet, version);
        let length = bytes.len();
        bytes.extend(tail);
        let decoded = decode(&bytes, version, length as u32);
        prop_assert_eq!(decoded, Ok(Decoded::Packet { packet: packet.clone(), length }));
        if let Packet::Connect(_) = packet {
            let decoded = decode_connect(&bytes, length as u32);
            prop_assert_eq!(decoded, Ok(Decoded::Packet { packet, length }));
        }
    }

    #[test]
    fn a_packet_cut_short_is_incomplete((version, packet) in any_packet(), cut in any::<prop::sample::Index>()) {
        let bytes = bytes_of(&packet, version);
        let end = cut.index(bytes.len());
        let decoded = decode(&bytes[..end], version, NO_LIMIT);
        let is_incomplete =
            matches!(decoded, Ok(Decoded::Incomplete { needed }) if end < needed && needed <= bytes.len().max(2));
        prop_assert!(is_incomplete, "{:?}", decoded);
    }

    #[test]
    fn a_packet_with_one_byte_changed_is_never_more_than_its_bytes(
        (version, packet) in any_packet(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut bytes = bytes_of(&packet, version);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let decoded = [decode(&bytes, version, NO_LIMIT), decode_connect(&bytes, NO_LIMIT)];
        for decoded in decoded.into_iter().flatten() {
            match decoded {
                Decoded::Packet { length, .. } => prop_assert!(length <= bytes.len()),
                Decoded::Incomplete { needed } => prop_assert!(needed > bytes.len()),
            }
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic_and_what_they_decode_to_is_stable(
        version in versions(),
        bytes in vec(any::<u8>(), 0..64),
    ) {
        let _ = decode_connect(&bytes, NO_LIMIT);
        if let Ok(Decoded::Packet { packet, .. }) = decode(&bytes, version, NO_LIMIT) {
            let again = bytes_of(&packet, version);
            let decoded = decode(&again, version, NO_LIMIT);
            prop_assert_eq!(decoded, Ok(Decoded::Packet { packet, length: again.len() }));
        }
    }
}
