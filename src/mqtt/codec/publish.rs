//! PUBLISH of every version, both ways: the hot path, apart from the other packets.

use super::error::{DecodeError, EncodeError};
use super::frame::PacketType;
use super::primitive::{self, Reader, VARIABLE_BYTE_INTEGER_MAX};
use super::property::{Forwarded, PropertySet, Scanner};
use crate::mqtt::packet::{PacketId, Property, ProtocolVersion, Publish, PublishProperties, QoS};
use std::borrow::Cow;
use std::num::NonZeroU16;

/// Bytes of the largest packet that Remaining Length can say, its fixed header of five bytes included.
pub const LARGEST_PACKET: u32 = VARIABLE_BYTE_INTEGER_MAX + 5;

/// Bytes of a PUBLISH at most that are neither topic, payload, Subscription Identifiers nor forwarded properties: fixed header 5,
/// length of the topic 2, Packet Identifier 2, Property Length 4, Topic Alias 3, Message Expiry Interval 5.
const OVERHEAD: usize = 21;

/// Decodes the body; `first` has been checked with it.
#[inline]
pub(super) fn decode<'a>(
    first: u8,
    body: &'a [u8],
    version: ProtocolVersion,
    known: &'a str,
) -> Result<Publish<'a>, DecodeError> {
    let mut reader = Reader::new(body);
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

/// All of a PUBLISH but its payload, ready to be written without a [`Publish`] being built.
///
/// Topic Alias, Message Expiry Interval, Subscription Identifiers and forwarded properties are written in 5.0 only.
/// The caller keeps to the protocol's bounds: a topic of at most 65,535 bytes, Subscription Identifiers of
/// 1 to 268,435,455, a packet (see [`PublishHead::packet_len`]) within what the receiver accepts, and in any case
/// within [`LARGEST_PACKET`]. Release builds do not check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishHead<'a> {
    pub dup: bool,
    pub qos: QoS,
    pub retain: bool,
    /// May be empty beside a Topic Alias.
    pub topic: &'a str,
    /// Present exactly when the QoS is above 0.
    pub packet_id: Option<PacketId>,
    pub topic_alias: Option<NonZeroU16>,
    /// Seconds.
    pub message_expiry: Option<u32>,
    pub subscription_ids: &'a [u32],
    /// As in [`PublishProperties::forwarded`].
    pub forwarded: &'a [u8],
}

impl PublishHead<'_> {
    /// Bytes of the whole packet, first byte and payload included.
    #[inline]
    pub fn packet_len(&self, version: ProtocolVersion, payload_len: usize) -> usize {
        let remaining = self.body_len(version) + payload_len;
        1 + length_of_length(remaining) + remaining
    }

    /// Whether the whole packet is longer than `maximum` bytes. An addition and a comparison where it is not near it.
    #[inline]
    pub fn exceeds(&self, version: ProtocolVersion, payload_len: usize, maximum: u32) -> bool {
        // A Subscription Identifier takes five bytes at most.
        let most = OVERHEAD + self.topic.len() + 5 * self.subscription_ids.len() + self.forwarded.len();
        most + payload_len > maximum as usize && self.packet_len(version, payload_len) > maximum as usize
    }

    /// Appends everything before the payload and returns where in `out` the Packet Identifier lies, which means
    /// something only if the QoS is above 0. Reserves for the head, once; not for the payload.
    #[inline]
    pub fn put(&self, version: ProtocolVersion, payload_len: usize, out: &mut Vec<u8>) -> usize {
        debug_assert_eq!(self.packet_id.is_some(), self.qos != QoS::AtMostOnce);
        debug_assert!(self.topic.len() <= usize::from(u16::MAX));
        let body = self.body_len(version);
        let remaining = body + payload_len;
        debug_assert!(remaining <= VARIABLE_BYTE_INTEGER_MAX as usize);
        out.reserve(1 + length_of_length(remaining) + body);

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

    /// Length of topic, Packet Identifier and properties.
    #[inline]
    fn body_len(&self, version: ProtocolVersion) -> usize {
        let common = 2 + self.topic.len() + if self.packet_id.is_some() { 2 } else { 0 };
        if !version.is_v5() {
            return common;
        }
        let properties = self.properties_len();
        common + length_of_length(properties) + properties
    }

    #[inline]
    fn properties_len(&self) -> usize {
        let alias = if self.topic_alias.is_some() { 3 } else { 0 };
        let expiry = if self.message_expiry.is_some() { 5 } else { 0 };
        let ids = self.subscription_ids.iter();
        let ids = ids.map(|&id| 1 + primitive::variable_byte_integer_len(id)).sum::<usize>();
        alias + expiry + ids + self.forwarded.len()
    }
}

#[inline]
fn length_of_length(length: usize) -> usize {
    primitive::variable_byte_integer_len(u32::try_from(length).unwrap_or(u32::MAX))
}

/// Appends a PUBLISH, bounds checked.
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
