//! CONNECT of every version, decoded and encoded. The packet itself names its version.

use super::error::{DecodeError, EncodeError};
use super::frame;
use super::packet_type::PacketType;
use super::primitive::{self, ByteReader};
use super::property::{self, Forwarded, PropertySet, Scanner};
use crate::mqtt::packet::{
    Connect, ConnectProperties, Properties, Property, ProtocolVersion, QoS, WillMessage,
};
use std::borrow::Cow;

/// The level of a mosquitto bridge for 3.1.1: level 4 and a private bit. After a 3.x CONNACK with
/// return code 1, the bridge tries again without the bit. The bridge understands no other refusal.
const MOSQUITTO_BRIDGE: u8 = 0x84;

const CLEAN_START: u8 = 0x02;
const WILL: u8 = 0x04;
const WILL_RETAIN: u8 = 0x20;
const PASSWORD: u8 = 0x40;
const USER_NAME: u8 = 0x80;

/// Returns the Protocol Name, with its length in front, and the Protocol Version.
const fn protocol(version: ProtocolVersion) -> &'static [u8] {
    match version {
        ProtocolVersion::V3_1 => b"\0\x06MQIsdp\x03",
        ProtocolVersion::V3_1_1 => b"\0\x04MQTT\x04",
        ProtocolVersion::V5 => b"\0\x04MQTT\x05",
    }
}

/// Returns the version that the first bytes of the body name; `None` if more bytes are needed.
///
/// A name that can no longer become one of MQTT's is refused at once.
pub(super) fn version(body: &[u8]) -> Result<Option<ProtocolVersion>, DecodeError> {
    for version in [ProtocolVersion::V5, ProtocolVersion::V3_1_1, ProtocolVersion::V3_1] {
        let protocol = protocol(version);
        if body.starts_with(protocol) {
            return Ok(Some(version));
        }
        let (_, name) = protocol.split_last().unwrap_or((&0, &[]));
        if name.starts_with(body) {
            return Ok(None);
        }
        if let Some((&level, _)) = body.strip_prefix(name).and_then(|rest| rest.split_first()) {
            // 3.1.1 [MQTT-3.1.2-2], 5.0 [MQTT-3.1.2-2]
            match (name, level) {
                // The name MQTT has two legal levels, and this loop compares with one of them at a
                // time.
                (b"\0\x04MQTT", 4 | 5) => {}
                (b"\0\x04MQTT", 6..) if level != MOSQUITTO_BRIDGE => {
                    return Err(DecodeError::LaterProtocolVersion { level });
                }
                _ => return Err(DecodeError::UnsupportedProtocolVersion { level: Some(level) }),
            }
        }
    }
    // 3.1.1 [MQTT-3.1.2-1], 5.0 [MQTT-3.1.2-1]
    Err(DecodeError::UnsupportedProtocolVersion { level: None })
}

pub(super) fn decode(body: &[u8]) -> Result<Connect<'_>, DecodeError> {
    const PROTOCOL: &str = "Protocol Name and Version";
    let version = version(body)?.ok_or(DecodeError::Truncated { field: PROTOCOL })?;
    let mut reader = ByteReader::new(body);
    reader.take(protocol(version).len(), PROTOCOL)?;
    let flags = reader.byte("Connect Flags")?;
    let will_qos = check_flags(flags, version)?;
    let keep_alive = reader.two_bytes("Keep Alive")?;
    let properties =
        if version.is_v5() { properties(reader.property_block()?)? } else { ConnectProperties::default() };
    // 3.1.1 [MQTT-3.1.3-1], [MQTT-3.1.3-3], [MQTT-3.1.3-4]; 5.0 [MQTT-3.1.3-1], [MQTT-3.1.3-3],
    // [MQTT-3.1.3-4]
    let client_id = reader.string("Client Identifier")?;
    let will = match flags & WILL {
        0 => None,
        _ => Some(will(&mut reader, version, will_qos, flags & WILL_RETAIN != 0)?),
    };
    let user_name =
        if has_field(flags, USER_NAME, &reader, version) { Some(reader.string("User Name")?) } else { None };
    let password =
        if has_field(flags, PASSWORD, &reader, version) { Some(reader.binary("Password")?) } else { None };
    // 3.1.1 [MQTT-3.1.2-11], [MQTT-3.1.2-18], [MQTT-3.1.2-20]; 5.0 [MQTT-3.1.2-16], [MQTT-3.1.2-18]
    reader.finish(PacketType::Connect)?;
    Ok(Connect {
        version,
        clean_start: flags & CLEAN_START != 0,
        keep_alive,
        properties,
        client_id,
        will,
        user_name,
        password,
    })
}

/// True if the field of `flag` follows.
///
/// In 3.1 the Remaining Length overrules the flags: a packet that ends before its user name or
/// password is complete without them.
// 3.1.1 [MQTT-3.1.2-19], [MQTT-3.1.2-21]; 5.0 [MQTT-3.1.2-17], [MQTT-3.1.2-19]
fn has_field(flags: u8, flag: u8, reader: &ByteReader<'_>, version: ProtocolVersion) -> bool {
    flags & flag != 0 && !(version == ProtocolVersion::V3_1 && reader.is_empty())
}

/// Checks the connect flags against each other and returns the Will QoS.
fn check_flags(flags: u8, version: ProtocolVersion) -> Result<QoS, DecodeError> {
    // 3.1.1 [MQTT-3.1.2-3], 5.0 [MQTT-3.1.2-3]
    if flags & 0x01 != 0 {
        return Err(DecodeError::ReservedConnectFlag);
    }
    // 3.1.1 [MQTT-3.1.2-14], 5.0 [MQTT-3.1.2-12]
    let will_qos = QoS::from_bits(flags >> 3 & 0x03).ok_or(DecodeError::QoSThree { field: "Will QoS" })?;
    // 3.1.1 [MQTT-3.1.2-13], [MQTT-3.1.2-15]; 5.0 [MQTT-3.1.2-11], [MQTT-3.1.2-13]
    if flags & WILL == 0 && (will_qos != QoS::AtMostOnce || flags & WILL_RETAIN != 0) {
        return Err(DecodeError::WillFlagsWithoutWill);
    }
    // 3.1.1 [MQTT-3.1.2-22]; 5.0 allows it
    if flags & (USER_NAME | PASSWORD) == PASSWORD && !version.is_v5() {
        return Err(DecodeError::PasswordWithoutUserName);
    }
    Ok(will_qos)
}

fn properties(block: &[u8]) -> Result<ConnectProperties<'_>, DecodeError> {
    let mut properties = ConnectProperties::default();
    let mut scanner = Scanner::new(block, PropertySet::Connect);
    while let Some(property) = scanner.next()? {
        let into = &mut properties;
        match property {
            Property::SessionExpiryInterval(seconds) => into.session_expiry = Some(seconds),
            Property::ReceiveMaximum(maximum) => into.receive_maximum = Some(maximum),
            Property::MaximumPacketSize(size) => into.maximum_packet_size = Some(size),
            Property::TopicAliasMaximum(maximum) => into.topic_alias_maximum = Some(maximum),
            Property::RequestResponseInformation(flag) => {
                into.request_response_information = Some(flag == 1);
            }
            Property::RequestProblemInformation(flag) => into.request_problem_information = Some(flag == 1),
            Property::AuthenticationMethod(method) => into.authentication_method = Some(method),
            Property::AuthenticationData(data) => into.authentication_data = Some(data),
            Property::UserProperty(key, value) => into.user_properties.push((key, value)),
            // The scanner lets no other property of CONNECT through.
            _ => {}
        }
    }
    if properties.authentication_data.is_some() && properties.authentication_method.is_none() {
        return Err(DecodeError::AuthenticationDataWithoutMethod { packet: PacketType::Connect });
    }
    Ok(properties)
}

// 3.1.1 [MQTT-3.1.2-9], 5.0 [MQTT-3.1.2-9]
fn will<'a>(
    reader: &mut ByteReader<'a>,
    version: ProtocolVersion,
    qos: QoS,
    retain: bool,
) -> Result<WillMessage<'a>, DecodeError> {
    const TOPIC: &str = "Will Topic";
    let block = if version.is_v5() { reader.property_block()? } else { &[] };
    // 3.1.1 [MQTT-3.1.3-10], 5.0 [MQTT-3.1.3-11]
    let topic = reader.topic_name(TOPIC, "")?;
    if topic.is_empty() {
        // 3.1.1 [MQTT-4.7.3-1], 5.0 [MQTT-4.7.3-1]
        return Err(DecodeError::EmptyTopicName { field: TOPIC });
    }
    let payload = reader.binary("Will Payload")?;
    let forwarded = Cow::default();
    let mut will = WillMessage { qos, retain, topic, payload, delay: 0, message_expiry: None, forwarded };
    will_properties(block, &mut will)?;
    Ok(will)
}

fn will_properties<'a>(block: &'a [u8], into: &mut WillMessage<'a>) -> Result<(), DecodeError> {
    let mut forwarded = Forwarded::new(block);
    let mut scanner = Scanner::new(block, PropertySet::Will);
    while let Some(property) = scanner.next()? {
        match property {
            Property::WillDelayInterval(seconds) => into.delay = seconds,
            Property::MessageExpiryInterval(seconds) => into.message_expiry = Some(seconds),
            // 5.0 [MQTT-3.1.3-10]
            _ => {
                forwarded.keep(&scanner);
                continue;
            }
        }
        forwarded.skip(&scanner);
    }
    into.forwarded = forwarded.finish();
    Ok(())
}

/// Appends a CONNECT of `connect.version`.
pub(super) fn encode(connect: &Connect<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let v5 = connect.version.is_v5();
    if connect.password.is_some() && connect.user_name.is_none() && !v5 {
        return Err(EncodeError::PasswordWithoutUserName);
    }
    frame::put(PacketType::Connect, out, |out| {
        out.extend_from_slice(protocol(connect.version));
        out.push(flags_byte(connect));
        out.extend_from_slice(&connect.keep_alive.to_be_bytes());
        if v5 {
            property::put_block(out, |out| put_properties(&connect.properties, out))?;
        }
        primitive::put_string(out, connect.client_id, "Client Identifier")?;
        if let Some(will) = &connect.will {
            put_will(will, connect.version, out)?;
        }
        if let Some(name) = connect.user_name {
            primitive::put_string(out, name, "User Name")?;
        }
        connect.password.map_or(Ok(()), |password| primitive::put_binary(out, password, "Password"))
    })
}

fn flags_byte(connect: &Connect<'_>) -> u8 {
    let flag = |set: bool, bit: u8| if set { bit } else { 0 };
    let will =
        connect.will.as_ref().map_or(0, |will| WILL | will.qos.bits() << 3 | flag(will.retain, WILL_RETAIN));
    flag(connect.clean_start, CLEAN_START)
        | will
        | flag(connect.password.is_some(), PASSWORD)
        | flag(connect.user_name.is_some(), USER_NAME)
}

fn put_properties(from: &ConnectProperties<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    use property::put_some;
    put_some(out, from.session_expiry, Property::SessionExpiryInterval)?;
    put_some(out, from.receive_maximum, Property::ReceiveMaximum)?;
    put_some(out, from.maximum_packet_size, Property::MaximumPacketSize)?;
    put_some(out, from.topic_alias_maximum, Property::TopicAliasMaximum)?;
    let response = from.request_response_information.map(u8::from);
    put_some(out, response, Property::RequestResponseInformation)?;
    let problem = from.request_problem_information.map(u8::from);
    put_some(out, problem, Property::RequestProblemInformation)?;
    property::put_user_properties(out, &from.user_properties)?;
    put_some(out, from.authentication_method, Property::AuthenticationMethod)?;
    put_some(out, from.authentication_data, Property::AuthenticationData)
}

fn put_will(will: &WillMessage<'_>, version: ProtocolVersion, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    if version.is_v5() {
        property::put_block(out, |out| {
            let delay = (will.delay != 0).then_some(will.delay);
            property::put_some(out, delay, Property::WillDelayInterval)?;
            property::put_some(out, will.message_expiry, Property::MessageExpiryInterval)?;
            let Properties(forwarded) = will.forwarded();
            out.extend_from_slice(forwarded);
            Ok(())
        })?;
    }
    primitive::put_string(out, will.topic, "Will Topic")?;
    primitive::put_binary(out, will.payload, "Will Payload")
}
