//! The packet types of the fixed header, with their flags and names.

use std::fmt;

/// A packet type. The discriminant is the upper half of the first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "the variants have the names of the standard")]
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
    /// AUTH; 5.0 only.
    Auth = 15,
}

impl PacketType {
    /// Returns the type of a packet with this first byte; `None` for the reserved type 0. Ignores
    /// the flags.
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

    /// Returns the first byte of a packet of this type. For PUBLISH, the byte of QoS 0 without DUP
    /// and RETAIN.
    // 3.1.1 [MQTT-2.2.2-1], 5.0 [MQTT-2.1.3-1]
    #[inline]
    pub const fn first_byte(self) -> u8 {
        (self as u8) << 4 | self.flags()
    }

    /// Returns the flags that the standard fixes for this type; 0 for PUBLISH.
    pub(super) const fn flags(self) -> u8 {
        match self {
            PacketType::Pubrel | PacketType::Subscribe | PacketType::Unsubscribe => 0x02,
            _ => 0x00,
        }
    }

    /// Returns the name in the standard, such as `PUBLISH`.
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
