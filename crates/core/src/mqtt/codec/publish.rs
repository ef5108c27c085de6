//! PUBLISH of every version, decoded and encoded. PUBLISH is on the hot path, so this file has
//! nothing else.

use super::error::{DecodeError, EncodeError};
use super::packet_type::PacketType;
use super::primitive::{self, ByteReader, VARIABLE_BYTE_INTEGER_MAX};
use super::property::{Forwarded, PropertySet, Scanner};
use crate::mqtt::packet::{PacketId, Property, ProtocolVersion, Publish, PublishProperties, QoS};
use std::borrow::Cow;
use std::num::NonZeroU16;

/// Size in bytes of the largest packet that Remaining Length allows, with its fixed header of five
/// bytes.
pub const LARGEST_PACKET: u32 = VARIABLE_BYTE_INTEGER_MAX + 5;

/// The largest size in bytes of a PUBLISH without topic, payload, Subscription Identifiers and
/// forwarded properties. The parts are: fixed header 5, length of the topic 2, Packet Identifier 2,
/// Property Length 4, Topic Alias 3, Message Expiry Interval 5.
const OVERHEAD: usize = 21;

/// Decodes the body of a PUBLISH with the checked first byte `first`. Always inlined: otherwise
/// each PUBLISH is copied when it is returned.
#[inline(always)]
pub(super) fn decode<'a>(
    first: u8,
    body: &'a [u8],
    version: ProtocolVersion,
    known: &'a str,
) -> Result<Publish<'a>, DecodeError> {
    let mut reader = ByteReader::new(body);
    let topic = reader.topic_name("Topic Name", known)?;
    let qos = QoS::from_bits(first >> 1 & 0x03).ok_or(DecodeError::QoSThree { field: "QoS of PUBLISH" })?;
    // 3.1.1 [MQTT-2.3.1-5], 5.0 [MQTT-2.2.1-2]
    let packet_id = match qos {
        QoS::AtMostOnce => None,
        QoS::AtLeastOnce | QoS::ExactlyOnce => Some(reader.packet_id(PacketType::Publish)?),
    };
    let block = if version.is_v5() { reader.property_block()? } else { &[] };
    let properties = if block.is_empty() { no_properties() } else { decode_properties(block)? };
    if topic.is_empty() && properties.topic_alias.is_none() {
        return Err(no_topic(version));
    }
    Ok(Publish {
        dup: first & 0x08 != 0,
        qos,
        retain: first & 0x01 != 0,
        topic,
        packet_id,
        properties,
        payload: reader.rest(),
    })
}

#[cold]
fn no_topic(version: ProtocolVersion) -> DecodeError {
    if version.is_v5() {
        DecodeError::NeitherTopicNorAlias
    } else {
        // 3.1.1 [MQTT-4.7.3-1]
        DecodeError::EmptyTopicName { field: "Topic Name" }
    }
}

#[inline]
fn no_properties<'a>() -> PublishProperties<'a> {
    PublishProperties {
        topic_alias: None,
        message_expiry: None,
        subscription_ids: Vec::new(),
        forwarded: Cow::Borrowed(&[]),
    }
}

fn decode_properties(block: &[u8]) -> Result<PublishProperties<'_>, DecodeError> {
    let mut properties = no_properties();
    let mut forwarded = Forwarded::new(block);
    let mut scanner = Scanner::new(block, PropertySet::Publish);
    while let Some(property) = scanner.next()? {
        match property {
            Property::TopicAlias(alias) => properties.topic_alias = NonZeroU16::new(alias),
            Property::MessageExpiryInterval(seconds) => properties.message_expiry = Some(seconds),
            Property::SubscriptionIdentifier(id) => properties.subscription_ids.push(id),
            // 5.0 [MQTT-3.3.2-4], [MQTT-3.3.2-15] to [MQTT-3.3.2-18], [MQTT-3.3.2-20]
            _ => {
                forwarded.keep(&scanner);
                continue;
            }
        }
        forwarded.skip(&scanner);
    }
    properties.forwarded = forwarded.finish();
    Ok(properties)
}

/// A PUBLISH without its payload, to be written without building a [`Publish`].
///
/// Topic Alias, Message Expiry Interval, Subscription Identifiers and forwarded properties are
/// written in 5.0 only.
///
/// The caller keeps to the bounds of the protocol, because release builds do not check them. A
/// topic has at most 65,535 bytes, and a Subscription Identifier is 1 to 268,435,455. The packet
/// (see [`PublishHead::packet_len`]) is within the limit of the receiver, and within
/// [`LARGEST_PACKET`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishHead<'a> {
    /// The DUP flag.
    pub dup: bool,
    /// The QoS of this delivery.
    pub qos: QoS,
    /// The RETAIN flag.
    pub retain: bool,
    /// The Topic Name; empty only beside a Topic Alias.
    pub topic: &'a str,
    /// The Packet Identifier; present exactly when the QoS is above 0.
    pub packet_id: Option<PacketId>,
    /// The Topic Alias.
    pub topic_alias: Option<NonZeroU16>,
    /// The Message Expiry Interval in seconds.
    pub message_expiry: Option<u32>,
    /// The Subscription Identifiers, in the order in which they are written.
    pub subscription_ids: &'a [u32],
    /// The encoded properties that are forwarded, as in [`PublishProperties::forwarded`].
    pub forwarded: &'a [u8],
}

impl PublishHead<'_> {
    /// Returns the bytes of the whole packet, with fixed header and payload.
    #[inline]
    pub fn packet_len(&self, version: ProtocolVersion, payload_len: usize) -> usize {
        let remaining = self.body_len(version) + payload_len;
        1 + primitive::variable_byte_integer_len(remaining) + remaining
    }

    /// True if the whole packet is longer than `maximum` bytes. Costs an addition and a comparison
    /// for a packet that is well below.
    #[inline]
    pub fn exceeds(&self, version: ProtocolVersion, payload_len: usize, maximum: u32) -> bool {
        // A Subscription Identifier takes at most five bytes.
        let most = OVERHEAD + self.topic.len() + 5 * self.subscription_ids.len() + self.forwarded.len();
        most + payload_len > maximum as usize && self.packet_len(version, payload_len) > maximum as usize
    }

    /// Appends everything before the payload. Returns the offset of the Packet Identifier in `out`,
    /// which has a meaning only if the QoS is above 0.
    ///
    /// Reserves memory once, for the head and not for the payload.
    #[inline]
    pub fn put(&self, version: ProtocolVersion, payload_len: usize, out: &mut Vec<u8>) -> usize {
        debug_assert_eq!(self.packet_id.is_some(), self.qos != QoS::AtMostOnce);
        debug_assert!(self.topic.len() <= usize::from(u16::MAX));
        let body = self.body_len(version);
        let remaining = body + payload_len;
        debug_assert!(remaining <= VARIABLE_BYTE_INTEGER_MAX as usize);
        out.reserve(1 + primitive::variable_byte_integer_len(remaining) + body);

        let flags = u8::from(self.dup) << 3 | self.qos.bits() << 1 | u8::from(self.retain);
        out.push(PacketType::Publish.first_byte() | flags);
        primitive::put_variable_byte_integer(out, remaining as u32);
        out.extend_from_slice(&(self.topic.len() as u16).to_be_bytes());
        out.extend_from_slice(self.topic.as_bytes());
        let packet_id_at = out.len();
        if let Some(id) = self.packet_id {
            primitive::put_packet_id(out, id);
        }
        if version.is_v5() {
            self.put_properties(out);
        }
        packet_id_at
    }

    #[inline]
    fn put_properties(&self, out: &mut Vec<u8>) {
        primitive::put_variable_byte_integer(out, self.properties_len() as u32);
        if let Some(alias) = self.topic_alias {
            let [high, low] = alias.get().to_be_bytes();
            out.extend_from_slice(&[0x23, high, low]);
        }
        if let Some(seconds) = self.message_expiry {
            let [a, b, c, d] = seconds.to_be_bytes();
            out.extend_from_slice(&[0x02, a, b, c, d]);
        }
        for &id in self.subscription_ids {
            out.push(0x0B);
            primitive::put_variable_byte_integer(out, id);
        }
        out.extend_from_slice(self.forwarded);
    }

    /// Returns the bytes of topic, Packet Identifier and properties.
    #[inline]
    fn body_len(&self, version: ProtocolVersion) -> usize {
        let common = 2 + self.topic.len() + if self.packet_id.is_some() { 2 } else { 0 };
        if !version.is_v5() {
            return common;
        }
        let properties = self.properties_len();
        common + primitive::variable_byte_integer_len(properties) + properties
    }

    #[inline]
    fn properties_len(&self) -> usize {
        let alias = if self.topic_alias.is_some() { 3 } else { 0 };
        let expiry = if self.message_expiry.is_some() { 5 } else { 0 };
        let ids = self.subscription_ids.iter();
        let ids = ids.map(|&id| 1 + primitive::variable_byte_integer_len(id as usize)).sum::<usize>();
        alias + expiry + ids + self.forwarded.len()
    }
}

/// Appends a PUBLISH after a check of its bounds.
pub(super) fn encode(
    publish: &Publish<'_>,
    version: ProtocolVersion,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    if publish.packet_id.is_some() != (publish.qos != QoS::AtMostOnce) {
        return Err(EncodeError::PublishPacketIdentifier);
    }
    let length = publish.topic.len();
    if length > usize::from(u16::MAX) {
        return Err(EncodeError::FieldTooLong { field: "Topic Name", length });
    }
    let bad_id = |id: &&u32| !(1..=VARIABLE_BYTE_INTEGER_MAX).contains(*id);
    if let Some(&value) = publish.properties.subscription_ids.iter().find(bad_id) {
        return Err(EncodeError::VariableByteInteger { field: "Subscription Identifier", value });
    }
    let head = PublishHead {
        dup: publish.dup,
        qos: publish.qos,
        retain: publish.retain,
        topic: publish.topic,
        packet_id: publish.packet_id,
        topic_alias: publish.properties.topic_alias,
        message_expiry: publish.properties.message_expiry,
        subscription_ids: &publish.properties.subscription_ids,
        forwarded: &publish.properties.forwarded,
    };
    let length = head.body_len(version) + publish.payload.len();
    if length > VARIABLE_BYTE_INTEGER_MAX as usize {
        return Err(EncodeError::PacketTooLong { packet: PacketType::Publish, length });
    }
    out.reserve(head.packet_len(version, publish.payload.len()));
    head.put(version, publish.payload.len(), out);
    out.extend_from_slice(publish.payload);
    Ok(())
}
