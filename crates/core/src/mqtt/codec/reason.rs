//! The reason codes that each 5.0 packet may have, in either direction.

use super::error::DecodeError;
use super::packet_type::PacketType;
use super::primitive::ByteReader;
use crate::mqtt::packet::ReasonCode;

/// Reads the reason code of a packet of type `packet`.
pub(super) fn read(reader: &mut ByteReader<'_>, packet: PacketType) -> Result<ReasonCode, DecodeError> {
    check(reader.byte("Reason Code")?, packet)
}

/// Reads the reason codes that fill the rest of a SUBACK or UNSUBACK: at least one.
pub(super) fn read_all(reader: &ByteReader<'_>, packet: PacketType) -> Result<Vec<ReasonCode>, DecodeError> {
    if reader.is_empty() {
        return Err(DecodeError::Truncated { field: "Reason Codes" });
    }
    reader.rest().iter().map(|&code| check(code, packet)).collect()
}

fn check(code: u8, packet: PacketType) -> Result<ReasonCode, DecodeError> {
    let reason = if allowed(packet, code) { ReasonCode::from_byte(code) } else { None };
    reason.ok_or(DecodeError::ReasonCodeNotAllowed { packet, code })
}

/// The standard's table of reason codes, by packet.
// 5.0 [MQTT-3.2.2-8], [MQTT-3.4.2-1], [MQTT-3.5.2-1], [MQTT-3.6.2-1], [MQTT-3.7.2-1],
// [MQTT-3.9.3-2], [MQTT-3.11.3-2], [MQTT-3.14.2-1], [MQTT-3.15.2-1]
const fn allowed(packet: PacketType, code: u8) -> bool {
    match packet {
        PacketType::Connack => {
            matches!(code, 0x00 | 0x80..=0x8A | 0x8C | 0x90 | 0x95 | 0x97 | 0x99..=0x9D | 0x9F)
        }
        PacketType::Puback | PacketType::Pubrec => {
            matches!(code, 0x00 | 0x10 | 0x80 | 0x83 | 0x87 | 0x90 | 0x91 | 0x97 | 0x99)
        }
        PacketType::Pubrel | PacketType::Pubcomp => matches!(code, 0x00 | 0x92),
        PacketType::Suback => {
            matches!(code, 0x00..=0x02 | 0x80 | 0x83 | 0x87 | 0x8F | 0x91 | 0x97 | 0x9E | 0xA1 | 0xA2)
        }
        PacketType::Unsuback => matches!(code, 0x00 | 0x11 | 0x80 | 0x83 | 0x87 | 0x8F | 0x91),
        // 0x8C is in the common table of the standard only (5.0 2.4). A peer's DISCONNECT with 0x8C
        // is accepted.
        PacketType::Disconnect => {
            matches!(
                code,
                0x00 | 0x04 | 0x80..=0x83 | 0x87 | 0x89 | 0x8B..=0x90 | 0x93..=0xA2
            )
        }
        PacketType::Auth => matches!(code, 0x00 | 0x18 | 0x19),
        _ => false,
    }
}
