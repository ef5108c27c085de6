//! Packet bodies of 5.0. CONNECT, PUBLISH and the acknowledgements have files of their own.

use super::error::{DecodeError, EncodeError};
use super::frame;
use super::packet_type::PacketType;
use super::primitive::{self, ByteReader};
use super::property::{self, Forwarded, PropertySet, Scanner};
use super::{reason, v3};
use crate::mqtt::packet::{
    Auth, Connack, ConnackProperties, Disconnect, Properties, Property, QoS, ReasonCode, RetainHandling,
    Suback, Subscribe, SubscribeFilter, SubscriptionOptions, Unsuback, Unsubscribe,
};
use std::borrow::Cow;

pub(super) fn connack(body: &[u8]) -> Result<Connack<'_>, DecodeError> {
    let packet = PacketType::Connack;
    let mut reader = ByteReader::new(body);
    let flags = reader.byte("Connect Acknowledge Flags")?;
    let reason = reason::read(&mut reader, packet)?;
    // 5.0 [MQTT-3.2.2-1], [MQTT-3.2.2-6]
    if flags > 1 || (flags == 1 && reason != ReasonCode::SUCCESS) {
        return Err(DecodeError::ConnackFlags { flags });
    }
    let properties = connack_properties(reader.property_block()?)?;
    reader.finish(packet)?;
    Ok(Connack { session_present: flags == 1, reason, properties })
}

fn connack_properties(block: &[u8]) -> Result<ConnackProperties<'_>, DecodeError> {
    let mut properties = ConnackProperties::default();
    let mut scanner = Scanner::new(block, PropertySet::Connack);
    while let Some(property) = scanner.next()? {
        let into = &mut properties;
        match property {
            Property::SessionExpiryInterval(seconds) => into.session_expiry = Some(seconds),
            Property::ReceiveMaximum(maximum) => into.receive_maximum = Some(maximum),
            Property::MaximumQoS(qos) => into.maximum_qos = Some(qos),
            Property::RetainAvailable(flag) => into.retain_available = Some(flag == 1),
            Property::MaximumPacketSize(size) => into.maximum_packet_size = Some(size),
            Property::AssignedClientIdentifier(id) => into.assigned_client_id = Some(id),
            Property::TopicAliasMaximum(maximum) => into.topic_alias_maximum = Some(maximum),
            Property::ReasonString(text) => into.reason_string = Some(text),
            Property::UserProperty(key, value) => into.user_properties.push((key, value)),
            Property::WildcardSubscriptionAvailable(flag) => {
                into.wildcard_subscription_available = Some(flag == 1);
            }
            Property::SubscriptionIdentifierAvailable(flag) => {
                into.subscription_identifiers_available = Some(flag == 1);
            }
            Property::SharedSubscriptionAvailable(flag) => {
                into.shared_subscription_available = Some(flag == 1);
            }
            Property::ServerKeepAlive(seconds) => into.server_keep_alive = Some(seconds),
            Property::ResponseInformation(text) => into.response_information = Some(text),
            Property::ServerReference(text) => into.server_reference = Some(text),
            Property::AuthenticationMethod(method) => into.authentication_method = Some(method),
            Property::AuthenticationData(data) => into.authentication_data = Some(data),
            // The scanner lets no other property of CONNACK through.
            _ => {}
        }
    }
    if properties.authentication_data.is_some() && properties.authentication_method.is_none() {
        return Err(DecodeError::AuthenticationDataWithoutMethod { packet: PacketType::Connack });
    }
    Ok(properties)
}

pub(super) fn put_connack(connack: &Connack<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    frame::put(PacketType::Connack, out, |out| {
        out.push(connack.session_present.into());
        out.push(connack.reason.byte());
        property::put_block(out, |out| put_connack_properties(&connack.properties, out))
    })
}

fn put_connack_properties(from: &ConnackProperties<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    use property::put_some;
    put_some(out, from.session_expiry, Property::SessionExpiryInterval)?;
    put_some(out, from.receive_maximum, Property::ReceiveMaximum)?;
    put_some(out, from.maximum_qos, Property::MaximumQoS)?;
    put_some(out, from.retain_available.map(u8::from), Property::RetainAvailable)?;
    put_some(out, from.maximum_packet_size, Property::MaximumPacketSize)?;
    put_some(out, from.assigned_client_id, Property::AssignedClientIdentifier)?;
    put_some(out, from.topic_alias_maximum, Property::TopicAliasMaximum)?;
    put_some(out, from.reason_string, Property::ReasonString)?;
    property::put_user_properties(out, &from.user_properties)?;
    let wildcard = from.wildcard_subscription_available.map(u8::from);
    put_some(out, wildcard, Property::WildcardSubscriptionAvailable)?;
    let identifiers = from.subscription_identifiers_available.map(u8::from);
    put_some(out, identifiers, Property::SubscriptionIdentifierAvailable)?;
    let shared = from.shared_subscription_available.map(u8::from);
    put_some(out, shared, Property::SharedSubscriptionAvailable)?;
    put_some(out, from.server_keep_alive, Property::ServerKeepAlive)?;
    put_some(out, from.response_information, Property::ResponseInformation)?;
    put_some(out, from.server_reference, Property::ServerReference)?;
    put_some(out, from.authentication_method, Property::AuthenticationMethod)?;
    put_some(out, from.authentication_data, Property::AuthenticationData)
}

pub(super) fn subscribe(body: &[u8]) -> Result<Subscribe<'_>, DecodeError> {
    let packet = PacketType::Subscribe;
    let mut reader = ByteReader::new(body);
    let packet_id = reader.packet_id(packet)?;
    let (subscription_id, properties) = subscribe_properties(reader.property_block()?)?;
    let mut filters = Vec::new();
    while !reader.is_empty() {
        // 5.0 [MQTT-3.8.3-1]
        let filter = reader.topic_filter(packet)?;
        let options = subscription_options(reader.byte("Subscription Options")?)?;
        filters.push(SubscribeFilter { filter, options });
        v3::bound_filters(packet, filters.len())?;
    }
    if filters.is_empty() {
        // 5.0 [MQTT-3.8.3-2]
        return Err(DecodeError::NoTopicFilter { packet });
    }
    Ok(Subscribe { packet_id, subscription_id, properties, filters })
}

/// Returns the Subscription Identifier, and the User Properties as a slice of the block.
///
/// If the identifier is between two User Properties, the slice is the whole block. A copy is not
/// worth its cost, because nobody reads these properties.
fn subscribe_properties(block: &[u8]) -> Result<(Option<u32>, Properties<'_>), DecodeError> {
    let mut subscription_id = None;
    let mut others = Forwarded::new(block);
    let mut scanner = Scanner::new(block, PropertySet::Subscribe);
    while let Some(property) = scanner.next()? {
        if let Property::SubscriptionIdentifier(id) = property {
            subscription_id = Some(id);
            others.skip(&scanner);
        } else {
            others.keep(&scanner);
        }
    }
    match others.finish() {
        Cow::Borrowed(others) => Ok((subscription_id, Properties(others))),
        Cow::Owned(_) => Ok((subscription_id, Properties(block))),
    }
}

fn subscription_options(options: u8) -> Result<SubscriptionOptions, DecodeError> {
    // 5.0 [MQTT-3.8.3-5]
    if options & 0xC0 != 0 {
        return Err(DecodeError::ReservedSubscriptionOptions { options });
    }
    let retain_handling = match options >> 4 & 0x03 {
        0 => RetainHandling::SendAtSubscribe,
        1 => RetainHandling::SendIfNew,
        2 => RetainHandling::DoNotSend,
        _ => return Err(DecodeError::RetainHandlingThree),
    };
    Ok(SubscriptionOptions {
        qos: QoS::from_bits(options & 0x03).ok_or(DecodeError::RequestedQoSThree)?,
        no_local: options & 0x04 != 0,
        retain_as_published: options & 0x08 != 0,
        retain_handling,
    })
}

pub(super) fn put_subscribe(subscribe: &Subscribe<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    frame::put(PacketType::Subscribe, out, |out| {
        primitive::put_packet_id(out, subscribe.packet_id);
        property::put_block(out, |out| put_subscribe_properties(subscribe, out))?;
        subscribe.filters.iter().try_for_each(|filter| {
            primitive::put_string(out, filter.filter, "Topic Filter")?;
            out.push(options_byte(filter.options));
            Ok(())
        })
    })
}

fn put_subscribe_properties(subscribe: &Subscribe<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    property::put_some(out, subscribe.subscription_id, Property::SubscriptionIdentifier)?;
    // The identifier may be among them as well: see `subscribe_properties`.
    property::iter(subscribe.properties)
        .filter(|property| !matches!(property, Property::SubscriptionIdentifier(_)))
        .try_for_each(|property| property::put(out, property))
}

const fn options_byte(options: SubscriptionOptions) -> u8 {
    options.qos.bits()
        | (options.no_local as u8) << 2
        | (options.retain_as_published as u8) << 3
        | (options.retain_handling as u8) << 4
}

pub(super) fn suback(body: &[u8]) -> Result<Suback<'_>, DecodeError> {
    let packet = PacketType::Suback;
    let mut reader = ByteReader::new(body);
    let packet_id = reader.packet_id(packet)?;
    let properties = property::checked(reader.property_block()?, PropertySet::Suback)?;
    Ok(Suback { packet_id, properties, reasons: reason::read_all(&reader, packet)? })
}

pub(super) fn put_suback(suback: &Suback<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    frame::put(PacketType::Suback, out, |out| {
        primitive::put_packet_id(out, suback.packet_id);
        property::put_encoded(out, suback.properties)?;
        out.extend(suback.reasons.iter().map(|reason| reason.byte()));
        Ok(())
    })
}

pub(super) fn unsubscribe(body: &[u8]) -> Result<Unsubscribe<'_>, DecodeError> {
    let mut reader = ByteReader::new(body);
    let packet_id = reader.packet_id(PacketType::Unsubscribe)?;
    let properties = property::checked(reader.property_block()?, PropertySet::Unsubscribe)?;
    let filters = v3::unsubscribe_filters(&mut reader)?;
    Ok(Unsubscribe { packet_id, properties, filters })
}

pub(super) fn put_unsubscribe(unsubscribe: &Unsubscribe<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    frame::put(PacketType::Unsubscribe, out, |out| {
        primitive::put_packet_id(out, unsubscribe.packet_id);
        property::put_encoded(out, unsubscribe.properties)?;
        v3::put_unsubscribe_filters(out, &unsubscribe.filters)
    })
}

pub(super) fn unsuback(body: &[u8]) -> Result<Unsuback<'_>, DecodeError> {
    let packet = PacketType::Unsuback;
    let mut reader = ByteReader::new(body);
    let packet_id = reader.packet_id(packet)?;
    let properties = property::checked(reader.property_block()?, PropertySet::Unsuback)?;
    Ok(Unsuback { packet_id, properties, reasons: reason::read_all(&reader, packet)? })
}

pub(super) fn put_unsuback(unsuback: &Unsuback<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    frame::put(PacketType::Unsuback, out, |out| {
        primitive::put_packet_id(out, unsuback.packet_id);
        property::put_encoded(out, unsuback.properties)?;
        out.extend(unsuback.reasons.iter().map(|reason| reason.byte()));
        Ok(())
    })
}

pub(super) fn disconnect(body: &[u8]) -> Result<Disconnect<'_>, DecodeError> {
    let packet = PacketType::Disconnect;
    let mut disconnect = Disconnect::new(ReasonCode::NORMAL_DISCONNECTION);
    let mut reader = ByteReader::new(body);
    // 5.0 3.14.2.1, 3.14.2.2.1: both parts may be omitted
    if reader.is_empty() {
        return Ok(disconnect);
    }
    disconnect.reason = reason::read(&mut reader, packet)?;
    if reader.is_empty() {
        return Ok(disconnect);
    }
    let mut scanner = Scanner::new(reader.property_block()?, PropertySet::Disconnect);
    while let Some(property) = scanner.next()? {
        match property {
            Property::SessionExpiryInterval(seconds) => disconnect.session_expiry = Some(seconds),
            Property::ReasonString(text) => disconnect.reason_string = Some(text),
            Property::ServerReference(text) => disconnect.server_reference = Some(text),
            Property::UserProperty(key, value) => disconnect.user_properties.push((key, value)),
            // The scanner lets no other property of DISCONNECT through.
            _ => {}
        }
    }
    reader.finish(packet)?;
    Ok(disconnect)
}

pub(super) fn put_disconnect(disconnect: &Disconnect<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    frame::put(PacketType::Disconnect, out, |out| {
        let start = out.len();
        out.push(disconnect.reason.byte());
        let properties_at = out.len();
        property::put_block(out, |out| {
            property::put_some(out, disconnect.session_expiry, Property::SessionExpiryInterval)?;
            property::put_some(out, disconnect.reason_string, Property::ReasonString)?;
            property::put_some(out, disconnect.server_reference, Property::ServerReference)?;
            property::put_user_properties(out, &disconnect.user_properties)
        })?;
        // A lone zero is the length of no properties and may be omitted. Then a reason of 0 may be
        // omitted too.
        if out.len() == properties_at + 1 {
            let keep =
                if disconnect.reason == ReasonCode::NORMAL_DISCONNECTION { start } else { properties_at };
            out.truncate(keep);
        }
        Ok(())
    })
}

pub(super) fn auth(body: &[u8]) -> Result<Auth<'_>, DecodeError> {
    let packet = PacketType::Auth;
    let mut auth = Auth {
        reason: ReasonCode::SUCCESS,
        method: None,
        data: None,
        reason_string: None,
        user_properties: Vec::new(),
    };
    let mut reader = ByteReader::new(body);
    // 5.0 3.15.2.1: success without properties may be omitted completely
    if reader.is_empty() {
        return Ok(auth);
    }
    auth.reason = reason::read(&mut reader, packet)?;
    let block = reader.property_block()?;
    let mut scanner = Scanner::new(block, PropertySet::Auth);
    while let Some(property) = scanner.next()? {
        match property {
            Property::AuthenticationMethod(method) => auth.method = Some(method),
            Property::AuthenticationData(data) => auth.data = Some(data),
            Property::ReasonString(text) => auth.reason_string = Some(text),
            Property::UserProperty(key, value) => auth.user_properties.push((key, value)),
            // The scanner lets no other property of AUTH through.
            _ => {}
        }
    }
    reader.finish(packet)?;
    // 5.0 3.15.2.2.2 always requires a method, but 3.15.2.1 lets the packet be empty. So only an
    // empty packet has no method.
    if auth.method.is_none() && (auth.reason != ReasonCode::SUCCESS || !block.is_empty()) {
        return Err(DecodeError::AuthWithoutMethod);
    }
    Ok(auth)
}

pub(super) fn put_auth(auth: &Auth<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    frame::put(PacketType::Auth, out, |out| {
        out.push(auth.reason.byte());
        property::put_block(out, |out| {
            property::put_some(out, auth.method, Property::AuthenticationMethod)?;
            property::put_some(out, auth.data, Property::AuthenticationData)?;
            property::put_some(out, auth.reason_string, Property::ReasonString)?;
            property::put_user_properties(out, &auth.user_properties)
        })
    })
}
