//! The fixed header: packet type, flags and Remaining Length. This file knows nothing of packet
//! bodies.

use super::error::{DecodeError, EncodeError};
use super::packet_type::PacketType;
use super::primitive;
use crate::mqtt::packet::ProtocolVersion;

/// Returns the packet type of the first byte, after a check of its flags by the rules of `version`.
#[inline]
fn check_first_byte(first: u8, version: ProtocolVersion) -> Result<PacketType, DecodeError> {
    let reserved = DecodeError::ReservedPacketType { packet_type: first >> 4, version };
    let packet = PacketType::from_first_byte(first).ok_or(reserved)?;
    if packet == PacketType::Publish {
        check_publish_flags(first)?;
    } else if first != packet.first_byte() {
        // In 3.1, PUBREL, SUBSCRIBE and UNSUBSCRIBE have a QoS of 1, and a resend may set DUP.
        let repeated = first == packet.first_byte() | 0x08 && packet.flags() == 0x02;
        if !(repeated && version == ProtocolVersion::V3_1) {
            // 3.1.1 [MQTT-2.2.2-2], [MQTT-3.6.1-1], [MQTT-3.8.1-1], [MQTT-3.10.1-1],
            // [MQTT-3.14.1-1]; 5.0 [MQTT-2.1.3-1], [MQTT-3.6.1-1], [MQTT-3.8.1-1], [MQTT-3.10.1-1],
            // [MQTT-3.14.1-1], [MQTT-3.15.1-1]
            return Err(DecodeError::FixedHeaderFlags {
                packet,
                flags: first & 0x0F,
                expected: packet.flags(),
            });
        }
    } else if packet == PacketType::Auth && !version.is_v5() {
        return Err(reserved);
    }
    Ok(packet)
}

#[inline]
fn check_publish_flags(first: u8) -> Result<(), DecodeError> {
    match first & 0x0E {
        // 3.1.1 [MQTT-3.3.1-4], 5.0 [MQTT-3.3.1-4]
        0x06 | 0x0E => Err(DecodeError::QoSThree { field: "QoS of PUBLISH" }),
        // 3.1.1 [MQTT-3.3.1-2], 5.0 [MQTT-3.3.1-2]
        0x08 => Err(DecodeError::DupWithQoSZero),
        _ => Ok(()),
    }
}

/// The Fixed Header of a packet.
pub(super) struct FixedHeader {
    /// The first byte: packet type and flags, which are checked.
    pub first: u8,
    /// The packet type.
    pub packet_type: PacketType,
    /// Bytes of the fixed header.
    pub header: usize,
    /// Bytes of the whole packet: header and body.
    pub total: usize,
    /// True if Remaining Length has its shortest form.
    pub shortest: bool,
}

/// Reads the fixed header of the packet at the front of `buf`. Returns `None` if it is not
/// complete.
///
/// The type and its flags are checked as soon as the first byte has come. A packet over
/// `max_packet_size` is refused here, before any byte of its body is awaited.
// With `#[inline]` alone the function stays a call, because it has two callers: 13 instructions a
// packet.
#[inline(always)]
pub(super) fn fixed_header(
    buf: &[u8],
    version: ProtocolVersion,
    max_packet_size: u32,
) -> Result<Option<FixedHeader>, DecodeError> {
    const FIELD: &str = "Remaining Length";
    let Some((&first, rest)) = buf.split_first() else { return Ok(None) };
    let packet_type = check_first_byte(first, version)?;
    let Some((remaining, size)) = primitive::variable_byte_integer(rest, FIELD)? else {
        return Ok(None);
    };
    let header = 1 + size;
    // At most 268,435,455 + 5, so there is no overflow.
    let total = remaining + header as u32;
    if total > max_packet_size {
        // 5.0 [MQTT-3.2.2-15]
        return Err(DecodeError::PacketTooLarge { length: total, maximum: max_packet_size });
    }
    let shortest = size == primitive::variable_byte_integer_len(remaining as usize);
    Ok(Some(FixedHeader { first, packet_type, header, total: total as usize, shortest }))
}

/// Appends a packet with the body that `put_body` writes. On an error nothing is appended.
///
/// The length is known only afterwards, so the body is moved by one to four bytes. Packets on the
/// hot path have encoders of their own.
pub(super) fn put(
    packet: PacketType,
    out: &mut Vec<u8>,
    put_body: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    let start = out.len();
    out.push(packet.first_byte());
    let result =
        primitive::put_prefixed(out, put_body, |length| EncodeError::PacketTooLong { packet, length });
    if result.is_err() {
        out.truncate(start);
    }
    result
}
