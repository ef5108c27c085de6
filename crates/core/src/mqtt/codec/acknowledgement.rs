//! PUBACK, PUBREC, PUBREL and PUBCOMP of every version, decoded and encoded. Acknowledgements are
//! on the hot path, so this file has nothing else.

use super::error::{DecodeError, EncodeError};
use super::frame;
use super::packet_type::PacketType;
use super::primitive::{self, ByteReader};
use super::property::{self, PropertySet};
use super::reason;
use crate::mqtt::packet::{Acknowledgement, PacketId, Properties, ProtocolVersion, ReasonCode};

/// The packet type of an acknowledgement in a PUBLISH exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the variants have the names of the standard")]
pub enum AckKind {
    Puback,
    Pubrec,
    Pubrel,
    Pubcomp,
}

impl AckKind {
    /// Returns the packet type.
    #[inline]
    pub const fn packet_type(self) -> PacketType {
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
    // The only form in 3.x, and nearly the only form that 5.0 clients send.
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
    let mut reader = ByteReader::new(body);
    let packet_id = reader.packet_id(packet)?;
    let reason = reason::read(&mut reader, packet)?;
    // 5.0 3.4.2.2.1: Remaining Length 3 has no Property Length
    let block = if reader.is_empty() { &[] } else { reader.property_block()? };
    let properties = property::checked(block, kind.property_set())?;
    reader.finish(packet)?;
    Ok(Acknowledgement { packet_id, reason, properties })
}

/// Returns the acknowledgement at the front of `buf`, if it has the short form: four bytes, which say
/// success. Returns `None` for all other bytes, which [`super::decode`] takes.
#[inline]
pub fn short_acknowledgement(buf: &[u8]) -> Option<(AckKind, PacketId)> {
    let &[first, 2, high, low, ..] = buf else { return None };
    let kind = match first {
        0x40 => AckKind::Puback,
        0x50 => AckKind::Pubrec,
        0x62 => AckKind::Pubrel,
        0x70 => AckKind::Pubcomp,
        _ => return None,
    };
    Some((kind, PacketId::new(u16::from_be_bytes([high, low]))?))
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

/// Appends an acknowledgement.
///
/// # Errors
/// Its properties are longer than the protocol allows.
pub fn encode_acknowledgement(
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
