//! The fixed header: packet type, flags, Remaining Length. Knows nothing of what follows it.

use super::error::{DecodeError, EncodeError};
use super::primitive;
use crate::mqtt::packet::ProtocolVersion;
use std::fmt;

/// The type nibble of the first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PacketType {
    Connect = 1,
    Connack = 2,
    Publish = 3,
    Puback = 4,
    Pubrec = 5,
    Pubrel = 6,
    Pubcomp = 7,
    Subscribe = 8,
    Suback = 9,
    Unsubscribe = 10,
    Unsuback = 11,
    Pingreq = 12,
    Pingresp = 13,
    Disconnect = 14,
    /// 5.0 only.
    Auth = 15,
}

impl PacketType {
    #[inline]
    pub const fn from_first_byte(first: u8) -> Option<PacketType> {
        Some(match first >> 4 {
            1 => PacketType::Connect,
            2 => PacketType::Connack,
            3 => PacketType::Publish,
            4 => PacketType::Puback,
            5 => PacketType::Pubrec,
            6 => PacketType::Pubrel,
            7 => PacketType::Pubcomp,
            8 => PacketType::Subscribe,
            9 => PacketType::Suback,
            10 => PacketType::Unsubscribe,
            11 => PacketType::Unsuback,
            12 => PacketType::Pingreq,
            13 => PacketType::Pingresp,
            14 => PacketType::Disconnect,
            15 => PacketType::Auth,
            _ => return None,
        })
    }

    /// The first byte of a packet of this type; of a PUBLISH with QoS 0, no DUP and no RETAIN.
    // 3.1.1 [MQTT-2.2.2-1], 5.0 [MQTT-2.1.3-1]
    #[inline]
    pub const fn first_byte(self) -> u8 {
        (self as u8) << 4 | self.flags()
    }

    const fn flags(self) -> u8 {
        match self {
            PacketType::Pubrel | PacketType::Subscribe | PacketType::Unsubscribe => 0x02,
            _ => 0x00,
        }
    }

    /// The name in the standard.
    pub const fn name(self) -> &'static str {
        match self {
            PacketType::Connect => "CONNECT",
            PacketType::Connack => "CONNACK",
            PacketType::Publish => "PUBLISH",
            PacketType::Puback => "PUBACK",
            PacketType::Pubrec => "PUBREC",
            PacketType::Pubrel => "PUBREL",
            PacketType::Pubcomp => "PUBCOMP",
            PacketType::Subscribe => "SUBSCRIBE",
            PacketType::Suback => "SUBACK",
            PacketType::Unsubscribe => "UNSUBSCRIBE",
            PacketType::Unsuback => "UNSUBACK",
            PacketType::Pingreq => "PINGREQ",
            PacketType::Pingresp => "PINGRESP",
            PacketType::Disconnect => "DISCONNECT",
            PacketType::Auth => "AUTH",
        }
    }
}

impl fmt::Display for PacketType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What the first byte says, checked against the rules of `version`.
#[inline]
pub(super) fn check_first_byte(first: u8, version: ProtocolVersion) -> Result<PacketType, DecodeError> {
    let reserved = DecodeError::ReservedPacketType { packet_type: first >> 4, version };
    let packet = PacketType::from_first_byte(first).ok_or(reserved)?;
    if packet == PacketType::Publish {
        check_publish_flags(first)?;
    } else if first != packet.first_byte() {
        // 3.1 gave PUBREL, SUBSCRIBE and UNSUBSCRIBE a QoS of 1 and let a repetition set DUP.
        let repeated = first == packet.first_byte() | 0x08 && packet.flags() == 0x02;
        if !(repeated && version == ProtocolVersion::V3_1) {
            // 3.1.1 [MQTT-2.2.2-2], [MQTT-3.6.1-1], [MQTT-3.8.1-1], [MQTT-3.10.1-1], [MQTT-3.14.1-1];
            // 5.0 [MQTT-2.1.3-1], [MQTT-3.6.1-1], [MQTT-3.8.1-1], [MQTT-3.10.1-1], [MQTT-3.14.1-1], [MQTT-3.15.1-1]
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

/// The Remaining Length and the bytes it took.
pub(super) struct Lengths {
    pub header: usize,
    /// Header and body.
    pub total: usize,
    /// Whether Remaining Length was in its shortest form.
    pub shortest: bool,
}

/// Reads the length of the packet at the front of `buf`, which begins with its first byte; `None`: it is not
/// there yet. A packet over `max_packet_size` is refused here, before one byte of it is waited for.
#[inline]
pub(super) fn lengths(buf: &[u8], max_packet_size: u32) -> Result<Option<Lengths>, DecodeError> {
    const FIELD: &str = "Remaining Length";
    let Some((remaining, size)) = primitive::variable_byte_integer(buf.get(1..).unwrap_or(&[]), FIELD)?
    else {
        return Ok(None);
    };
    let header = 1 + size;
    // At most 268,435,455 + 5: no overflow.
    let total = remaining + header as u32;
    if total > max_packet_size {
        // 5.0 [MQTT-3.2.2-15]
        return Err(DecodeError::PacketTooLarge { length: total, maximum: max_packet_size });
    }
    let shortest = size == primitive::variable_byte_integer_len(remaining);
    Ok(Some(Lengths { header, total: total as usize, shortest }))
}

/// Appends a packet whose body `put_body` writes. Its length is known only afterwards, so a body of 128 bytes
/// or more is moved by up to three bytes: for the packets that are not on the hot path.
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
