//! PUBACK, PUBREC, PUBREL and PUBCOMP of every version, both ways: the hot path, apart from the other packets.

use super::error::{DecodeError, EncodeError};
use super::frame::{self, PacketType};
use super::primitive::{self, Reader};
use super::property::{self, PropertySet};
use super::reason;
use crate::mqtt::packet::{Acknowledgement, PacketId, Properties, ProtocolVersion, ReasonCode};

/// Which acknowledgement of a PUBLISH exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckKind {
    Puback,
    Pubrec,
    Pubrel,
    Pubcomp,
}

impl AckKind {
    #[inline]
    const fn packet_type(self) -> PacketType {
        match self {
            AckKind::Puback => PacketType::Puback,
            AckKind::Pubrec => PacketType::Pubrec,
            AckKind::Pubrel => PacketType::Pubrel,
            AckKind::Pubcomp => PacketType::Pubcomp,
        }
    }

    const fn property_set(self) -> PropertySet {
        match self {
            AckKind::Puback => PropertySet::Puback,
            AckKind::Pubrec => PropertySet::Pubrec,
            AckKind::Pubrel => PropertySet::Pubrel,
            AckKind::Pubcomp => PropertySet::Pubcomp,
        }
    }
}

#[inline]
pub(super) fn decode(
    kind: AckKind,
    body: &[u8],
    version: ProtocolVersion,
) -> Result<Acknowledgement<'_>, DecodeError> {
    // All there is in 3.x, and nearly all that is ever sent in 5.0.
    if let [high, low] = *body {
        let id = PacketId::new(u16::from_be_bytes([high, low]));
        return id
            .map(Acknowledgement::success)
            .ok_or(DecodeError::PacketIdentifierZero { packet: kind.packet_type() });
    }
    decode_other_length(kind, body, version)
}

fn decode_other_length(
    kind: AckKind,
    body: &[u8],
    version: ProtocolVersion,
) -> Result<Acknowledgement<'_>, DecodeError> {
    let packet = kind.packet_type();
    if !version.is_v5() {
        return Err(DecodeError::RemainingLength { packet, length: body.len(), expected: 2 });
    }
    let mut reader = Reader::new(body);
    let packet_id = reader.packet_id(packet)?;
    let reason = reason::read(&mut reader, packet)?;
    // 5.0 3.4.2.2.1: Remaining Length 3 has no Property Length
    let block = if reader.is_empty() { &[] } else { reader.property_block()? };
    let properties = property::checked(block, kind.property_set())?;
    reader.finish(packet)?;
    Ok(Acknowledgement { packet_id, reason, properties })
}

/// Appends an acknowledgement without properties: four bytes on success and in 3.x, else five.
#[inline]
pub fn put_acknowledgement(
    out: &mut Vec<u8>,
    kind: AckKind,
    packet_id: PacketId,
    reason: ReasonCode,
    version: ProtocolVersion,
) {
    let first = kind.packet_type().first_byte();
    let [high, low] = packet_id.get().to_be_bytes();
    if reason == ReasonCode::SUCCESS || !version.is_v5() {
        out.extend_from_slice(&[first, 2, high, low]);
    } else {
        out.extend_from_slice(&[first, 3, high, low, reason.byte()]);
    }
}

pub(super) fn encode(
    kind: AckKind,
    ack: &Acknowledgement<'_>,
    version: ProtocolVersion,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let Properties(encoded) = ack.properties;
    if encoded.is_empty() || !version.is_v5() {
        put_acknowledgement(out, kind, ack.packet_id, ack.reason, version);
        return Ok(());
    }
    frame::put(kind.packet_type(), out, |out| {
        primitive::put_packet_id(out, ack.packet_id);
        out.push(ack.reason.byte());
        property::put_encoded(out, ack.properties)
    })
}
