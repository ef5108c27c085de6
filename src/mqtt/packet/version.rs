//! The protocol versions the broker speaks.

use std::fmt;

/// Protocol level byte of CONNECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum ProtocolVersion {
    /// MQIsdp, level 3.
    V3_1 = 3,
    /// MQTT, level 4.
    V3_1_1 = 4,
    /// MQTT, level 5.
    V5 = 5,
}

impl ProtocolVersion {
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
