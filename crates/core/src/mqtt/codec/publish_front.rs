//! The front of a PUBLISH that is too large to be taken.

use super::error::DecodeError;
use super::frame;
use super::packet_type::PacketType;
use super::primitive::ByteReader;
use super::publish::LARGEST_PACKET;
use crate::mqtt::packet::{PacketId, ProtocolVersion, QoS};

/// What a PUBLISH has before its payload, as far as it takes to refuse it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishFront {
    /// The DUP flag.
    pub dup: bool,
    /// The QoS.
    pub qos: QoS,
    /// The Packet Identifier; `None` at QoS 0.
    pub packet_id: Option<PacketId>,
    /// Bytes of the whole packet.
    pub length: usize,
}

/// Decodes the front of a PUBLISH, whatever its size, before its payload has come. Returns `None` if
/// that much has not come, or if the packet is no PUBLISH.
///
/// # Errors
/// The rule that the packet breaks.
pub fn publish_front(buf: &[u8], version: ProtocolVersion) -> Result<Option<PublishFront>, DecodeError> {
    let Some(fixed) = frame::fixed_header(buf, version, LARGEST_PACKET)? else { return Ok(None) };
    let body = buf.get(fixed.header..).unwrap_or_default();
    let topic_len = body.first_chunk().map(|length| usize::from(u16::from_be_bytes(*length)));
    let Some(end) = topic_len.map(|length| 2 + length + 2).filter(|end| *end <= body.len()) else {
        return Ok(None);
    };
    if fixed.packet_type != PacketType::Publish {
        return Ok(None);
    }
    let mut reader = ByteReader::new(body.get(..end).unwrap_or_default());
    reader.topic_name("Topic Name", "")?;
    let qos =
        QoS::from_bits(fixed.first >> 1 & 0x03).ok_or(DecodeError::QoSThree { field: "QoS of PUBLISH" })?;
    let packet_id = match qos {
        QoS::AtMostOnce => None,
        QoS::AtLeastOnce | QoS::ExactlyOnce => Some(reader.packet_id(PacketType::Publish)?),
    };
    Ok(Some(PublishFront { dup: fixed.first & 0x08 != 0, qos, packet_id, length: fixed.total }))
}
