//! The protocol versions that the broker supports.

use std::fmt;

/// A protocol version. The discriminant is the protocol level byte of CONNECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum ProtocolVersion {
    /// MQTT 3.1: protocol name MQIsdp, level 3.
    V3_1 = 3,
    /// MQTT 3.1.1: protocol name MQTT, level 4.
    V3_1_1 = 4,
    /// MQTT 5.0: protocol name MQTT, level 5.
    V5 = 5,
}

impl ProtocolVersion {
    /// All versions, the oldest first.
    pub const ALL: [ProtocolVersion; 3] =
        [ProtocolVersion::V3_1, ProtocolVersion::V3_1_1, ProtocolVersion::V5];

    /// True for MQTT 5.0.
    pub const fn is_v5(self) -> bool {
        matches!(self, ProtocolVersion::V5)
    }
}

impl fmt::Display for ProtocolVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ProtocolVersion::V3_1 => "3.1",
            ProtocolVersion::V3_1_1 => "3.1.1",
            ProtocolVersion::V5 => "5.0",
        })
    }
}
