//! PUBLISH.

use super::{PacketId, Properties, QoS};
use std::borrow::Cow;
use std::num::NonZeroU16;

/// A PUBLISH packet.
#[derive(Clone, Debug, PartialEq)]
pub struct Publish<'a> {
    /// The DUP flag: true if the packet may repeat an earlier one.
    pub dup: bool,
    /// The QoS of this delivery.
    pub qos: QoS,
    /// The RETAIN flag.
    pub retain: bool,
    /// The Topic Name; empty only in 5.0, beside a Topic Alias.
    ///
    /// The codec has refused wildcards and U+0000, and a PUBLISH with neither topic nor alias.
    pub topic: &'a str,
    /// The Packet Identifier; present exactly when the QoS is above 0.
    pub packet_id: Option<PacketId>,
    /// The properties; 5.0 only.
    pub properties: PublishProperties<'a>,
    /// The application payload; may be empty.
    pub payload: &'a [u8],
}

/// The properties of a PUBLISH. Each hop sets the first three anew, and forwards the others
/// unchanged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PublishProperties<'a> {
    /// The Topic Alias.
    pub topic_alias: Option<NonZeroU16>,
    /// The Message Expiry Interval in seconds.
    pub message_expiry: Option<u32>,
    /// The Subscription Identifiers, in the order of the packet; from a broker only.
    ///
    /// A client's PUBLISH with one is a Protocol Error, which the session detects (5.0
    /// [MQTT-3.3.4-6]).
    pub subscription_ids: Vec<u32>,
    /// Encoded properties that are forwarded byte for byte, in the order of the publisher: Payload
    /// Format Indicator, Content Type, Response Topic, Correlation Data and User Properties.
    ///
    /// Borrowed, unless a property of the other fields stood between two of these.
    pub forwarded: Cow<'a, [u8]>,
}

impl PublishProperties<'_> {
    /// Returns the properties that are forwarded unchanged, checked by the codec.
    pub fn forwarded(&self) -> Properties<'_> {
        Properties(&self.forwarded)
    }
}
