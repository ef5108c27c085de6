//! The places that have 5.0 properties.

use crate::named_enum::named_enum;

named_enum! {
    /// A place that has properties: a packet, or the will within CONNECT.
    #[repr(u8)]
    #[expect(missing_docs, reason = "the variants have the names of the standard")]
    pub enum PropertySet {
        Connect = "CONNECT",
        Will = "Will Properties",
        Connack = "CONNACK",
        Publish = "PUBLISH",
        Puback = "PUBACK",
        Pubrec = "PUBREC",
        Pubrel = "PUBREL",
        Pubcomp = "PUBCOMP",
        Subscribe = "SUBSCRIBE",
        Suback = "SUBACK",
        Unsubscribe = "UNSUBSCRIBE",
        Unsuback = "UNSUBACK",
        Disconnect = "DISCONNECT",
        Auth = "AUTH",
    }
}

impl PropertySet {
    /// Returns the place as one bit of a set.
    pub(super) const fn bit(self) -> u16 {
        1 << self as u8
    }
}
