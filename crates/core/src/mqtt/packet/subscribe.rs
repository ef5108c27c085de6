//! SUBSCRIBE, SUBACK, UNSUBSCRIBE and UNSUBACK.

use super::{PacketId, Properties, QoS, ReasonCode};

/// A SUBSCRIBE packet.
#[derive(Clone, Debug, PartialEq)]
pub struct Subscribe<'a> {
    /// The Packet Identifier.
    pub packet_id: PacketId,
    /// The Subscription Identifier, 1 to 268,435,455; 5.0 only. The codec refuses 0.
    pub subscription_id: Option<u32>,
    /// The User Properties; 5.0 only. A Subscription Identifier between two of them stays here too.
    pub properties: Properties<'a>,
    /// The filters. Never empty: the codec refuses a SUBSCRIBE without a filter.
    pub filters: Vec<SubscribeFilter<'a>>,
}

/// One filter of a SUBSCRIBE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscribeFilter<'a> {
    /// The text of the filter: not empty, valid UTF-8, no U+0000. The session checks with
    /// [`crate::mqtt::topic`] if the text is a Topic Filter.
    pub filter: &'a str,
    /// The options of the subscription.
    pub options: SubscriptionOptions,
}

/// The options byte of a subscription; 3.x has only the QoS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubscriptionOptions {
    /// The largest QoS of a delivery to this subscription.
    pub qos: QoS,
    /// True if the client does not want its own messages.
    pub no_local: bool,
    /// True if deliveries keep the RETAIN flag of the publisher.
    pub retain_as_published: bool,
    /// The SUBSCRIBE packets that get retained messages.
    pub retain_handling: RetainHandling,
}

/// The retained messages that a SUBSCRIBE requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum RetainHandling {
    /// Send retained messages at each SUBSCRIBE.
    #[default]
    SendAtSubscribe = 0,
    /// Send retained messages if the subscription did not exist before.
    SendIfNew = 1,
    /// Send no retained messages.
    DoNotSend = 2,
}

/// A SUBACK packet.
#[derive(Clone, Debug, PartialEq)]
pub struct Suback<'a> {
    /// The Packet Identifier of the SUBSCRIBE.
    pub packet_id: PacketId,
    /// Reason String and User Properties; 5.0 only.
    pub properties: Properties<'a>,
    /// One reason code for each filter, in order. In 3.x every failure is written as 0x80.
    pub reasons: Vec<ReasonCode>,
}

/// An UNSUBSCRIBE packet.
#[derive(Clone, Debug, PartialEq)]
pub struct Unsubscribe<'a> {
    /// The Packet Identifier.
    pub packet_id: PacketId,
    /// The User Properties; 5.0 only.
    pub properties: Properties<'a>,
    /// The filters. Never empty, because the codec refuses an UNSUBSCRIBE without a filter.
    pub filters: Vec<&'a str>,
}

/// An UNSUBACK packet.
#[derive(Clone, Debug, PartialEq)]
pub struct Unsuback<'a> {
    /// The Packet Identifier of the UNSUBSCRIBE.
    pub packet_id: PacketId,
    /// Reason String and User Properties; 5.0 only.
    pub properties: Properties<'a>,
    /// One reason code for each filter, in order; not written in 3.x.
    pub reasons: Vec<ReasonCode>,
}
