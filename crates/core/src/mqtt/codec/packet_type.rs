//! The packet types of the fixed header, with their flags and names.

use crate::named_enum::named_enum;

named_enum! {
    /// A packet type. The discriminant is the upper half of the first byte.
    #[repr(u8)]
    #[expect(missing_docs, reason = "the variants have the names of the standard")]
    pub enum PacketType {
        Connect(1) = "CONNECT",
        Connack(2) = "CONNACK",
        Publish(3) = "PUBLISH",
        Puback(4) = "PUBACK",
        Pubrec(5) = "PUBREC",
        Pubrel(6) = "PUBREL",
        Pubcomp(7) = "PUBCOMP",
        Subscribe(8) = "SUBSCRIBE",
        Suback(9) = "SUBACK",
        Unsubscribe(10) = "UNSUBSCRIBE",
        Unsuback(11) = "UNSUBACK",
        Pingreq(12) = "PINGREQ",
        Pingresp(13) = "PINGRESP",
        Disconnect(14) = "DISCONNECT",
        /// AUTH; 5.0 only.
        Auth(15) = "AUTH",
    }
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
}
