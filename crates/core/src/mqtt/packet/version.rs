//! The protocol versions that the broker supports.

use crate::named_enum::named_enum;

named_enum! {
    /// A protocol version. The discriminant is the protocol level byte of CONNECT.
    #[derive(Hash, PartialOrd, Ord)]
    #[repr(u8)]
    pub enum ProtocolVersion {
        /// MQTT 3.1: protocol name MQIsdp, level 3.
        V3_1(3) = "3.1",
        /// MQTT 3.1.1: protocol name MQTT, level 4.
        V3_1_1(4) = "3.1.1",
        /// MQTT 5.0: protocol name MQTT, level 5.
        V5(5) = "5.0",
    }
}

impl ProtocolVersion {
    /// True for MQTT 5.0.
    pub const fn is_v5(self) -> bool {
        matches!(self, ProtocolVersion::V5)
    }
}
