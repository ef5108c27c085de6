//! The places that have 5.0 properties.

use std::fmt;

/// A place that has properties: a packet, or the will within CONNECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "the variants have the names of the standard")]
pub enum PropertySet {
    Connect,
    Will,
    Connack,
    Publish,
    Puback,
    Pubrec,
    Pubrel,
    Pubcomp,
    Subscribe,
    Suback,
    Unsubscribe,
    Unsuback,
    Disconnect,
    Auth,
}

impl PropertySet {
    /// All places, in the order of their discriminants.
    pub const ALL: [PropertySet; 14] = [
        PropertySet::Connect,
        PropertySet::Will,
        PropertySet::Connack,
        PropertySet::Publish,
        PropertySet::Puback,
        PropertySet::Pubrec,
        PropertySet::Pubrel,
        PropertySet::Pubcomp,
        PropertySet::Subscribe,
        PropertySet::Suback,
        PropertySet::Unsubscribe,
        PropertySet::Unsuback,
        PropertySet::Disconnect,
        PropertySet::Auth,
    ];

    /// Returns the place as one bit of a set.
    pub(super) const fn bit(self) -> u16 {
        1 << self as u8
    }
}

impl fmt::Display for PropertySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PropertySet::Connect => "CONNECT",
            PropertySet::Will => "Will Properties",
            PropertySet::Connack => "CONNACK",
            PropertySet::Publish => "PUBLISH",
            PropertySet::Puback => "PUBACK",
            PropertySet::Pubrec => "PUBREC",
            PropertySet::Pubrel => "PUBREL",
            PropertySet::Pubcomp => "PUBCOMP",
            PropertySet::Subscribe => "SUBSCRIBE",
            PropertySet::Suback => "SUBACK",
            PropertySet::Unsubscribe => "UNSUBSCRIBE",
            PropertySet::Unsuback => "UNSUBACK",
            PropertySet::Disconnect => "DISCONNECT",
            PropertySet::Auth => "AUTH",
        })
    }
}
