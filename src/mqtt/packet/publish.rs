//! PUBLISH.

use super::{PacketId, Properties, QoS};
use std::borrow::Cow;
use std::num::NonZeroU16;

/// A PUBLISH as read from, or to be written to, the wire.
#[derive(Clone, Debug, PartialEq)]
pub struct Publish<'a> {
    pub dup: bool,
    pub qos: QoS,
    pub retain: bool,
    /// Empty only in 5.0, with a Topic Alias. The codec checks that it is a Topic Name (no wildcard, no
    /// U+0000), and that one of topic and alias is there.
    pub topic: &'a str,
    /// Present exactly when the QoS is above 0.
    pub packet_id: Option<PacketId>,
    /// 5.0 only.
    pub properties: PublishProperties<'a>,
    pub payload: &'a [u8],
}

/// The properties of a PUBLISH, split into those each hop sets anew and those that travel unchanged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PublishProperties<'a> {
    pub topic_alias: Option<NonZeroU16>,
    /// Seconds.
    pub message_expiry: Option<u32>,
    /// In the order of the packet; from a broker only. A client's PUBLISH with one is a Protocol Error, which
    /// the session answers (5.0 [MQTT-3.3.4-6]).
    pub subscription_ids: Vec<u32>,
    /// Payload Format Indicator, Content Type, Response Topic, Correlation Data and User Properties, encoded,
    /// in the publisher's order: forwarded byte for byte. Borrowed unless a property of the first three
    /// kinds stood among them.
    pub forwarded: Cow<'a, [u8]>,
}

impl PublishProperties<'_> {
    /// The properties that travel unchanged, checked by the codec.
    pub fn forwarded(&self) -> Properties<'_> {
        Properties(&self.forwarded)
    }
}
