//! SUBSCRIBE, SUBACK, UNSUBSCRIBE and UNSUBACK.

use super::{PacketId, Properties, QoS, ReasonCode};

/// A SUBSCRIBE packet.
#[derive(Clone, Debug, PartialEq)]
pub struct Subscribe<'a> {
    pub packet_id: PacketId,
    /// 1 to 268,435,455 (the codec refuses 0); 5.0 only.
    pub subscription_id: Option<u32>,
    /// User Properties; 5.0 only. A Subscription Identifier that stood in their midst is here too.
    pub properties: Properties<'a>,
    /// Never empty: the codec refuses a SUBSCRIBE without a filter.
    pub filters: Vec<SubscribeFilter<'a>>,
}

/// One filter of a SUBSCRIBE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscribeFilter<'a> {
    /// Valid UTF-8 without U+0000; whether it is a Topic Filter, the session asks [`crate::mqtt::topic`].
    pub filter: &'a str,
    pub options: SubscriptionOptions,
}

/// The options byte of a subscription; in 3.x only the QoS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubscriptionOptions {
    pub qos: QoS,
    pub no_local: bool,
    pub retain_as_published: bool,
    pub retain_handling: RetainHandling,
}

/// What a SUBSCRIBE asks of the retained messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum RetainHandling {
    /// Send them at each SUBSCRIBE.
    #[default]
    SendAtSubscribe = 0,
    /// Send them if the subscription did not exist.
    SendIfNew = 1,
    DoNotSend = 2,
}

/// A SUBACK packet.
#[derive(Clone, Debug, PartialEq)]
pub struct Suback<'a> {
    pub packet_id: PacketId,
    pub properties: Properties<'a>,
    /// One per filter, in order. In 3.x every failure is written as 0x80.
    pub reasons: Vec<ReasonCode>,
}

/// An UNSUBSCRIBE packet.
#[derive(Clone, Debug, PartialEq)]
pub struct Unsubscribe<'a> {
    pub packet_id: PacketId,
    pub properties: Properties<'a>,
    /// Never empty.
    pub filters: Vec<&'a str>,
}

/// An UNSUBACK packet.
#[derive(Clone, Debug, PartialEq)]
pub struct Unsuback<'a> {
    pub packet_id: PacketId,
    pub properties: Properties<'a>,
    /// One per filter, in order; not written in 3.x.
    pub reasons: Vec<ReasonCode>,
}
