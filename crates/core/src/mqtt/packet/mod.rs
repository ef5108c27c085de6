//! MQTT control packets as values that borrow from the bytes from which they were decoded.
//!
//! There is one file for each group of packets. The parts that packets share have files of their
//! own: QoS, identifiers, reason codes, properties and versions. [`crate::mqtt::codec`] knows their
//! bytes on the wire; this folder does not.

mod acknowledgement;
mod auth;
mod connack;
mod connect;
mod disconnect;
mod identifier;
mod property;
mod publish;
mod qos;
mod reason_code;
mod subscribe;
mod version;

pub use acknowledgement::Acknowledgement;
pub use auth::Auth;
pub use connack::{Connack, ConnackProperties, ConnectReturnCode};
pub use connect::{Connect, ConnectProperties, WillMessage};
pub use disconnect::Disconnect;
pub use identifier::PacketId;
pub use property::{Properties, Property};
pub use publish::{Publish, PublishProperties};
pub use qos::QoS;
pub use reason_code::ReasonCode;
pub use subscribe::{
    RetainHandling, Suback, Subscribe, SubscribeFilter, SubscriptionOptions, Unsuback, Unsubscribe,
};
pub use version::ProtocolVersion;

/// A control packet of any version, in either direction.
#[derive(Clone, Debug, PartialEq)]
pub enum Packet<'a> {
    /// CONNECT. Boxed, because the packet is large and rare, and the enum is returned by value for
    /// every PUBLISH and PUBACK.
    Connect(Box<Connect<'a>>),
    /// CONNACK. Boxed for the same reason.
    Connack(Box<Connack<'a>>),
    /// PUBLISH.
    Publish(Publish<'a>),
    /// PUBACK: the end of a QoS 1 exchange.
    Puback(Acknowledgement<'a>),
    /// PUBREC: the second packet of a QoS 2 exchange.
    Pubrec(Acknowledgement<'a>),
    /// PUBREL: the third packet of a QoS 2 exchange.
    Pubrel(Acknowledgement<'a>),
    /// PUBCOMP: the end of a QoS 2 exchange.
    Pubcomp(Acknowledgement<'a>),
    /// SUBSCRIBE.
    Subscribe(Subscribe<'a>),
    /// SUBACK.
    Suback(Suback<'a>),
    /// UNSUBSCRIBE.
    Unsubscribe(Unsubscribe<'a>),
    /// UNSUBACK.
    Unsuback(Unsuback<'a>),
    /// PINGREQ.
    Pingreq,
    /// PINGRESP.
    Pingresp,
    /// DISCONNECT.
    Disconnect(Disconnect<'a>),
    /// AUTH; 5.0 only.
    Auth(Auth<'a>),
}

impl Packet<'_> {
    /// Returns the name of the packet in the standard, such as `PUBLISH`.
    pub fn name(&self) -> &'static str {
        match self {
            Packet::Connect(_) => "CONNECT",
            Packet::Connack(_) => "CONNACK",
            Packet::Publish(_) => "PUBLISH",
            Packet::Puback(_) => "PUBACK",
            Packet::Pubrec(_) => "PUBREC",
            Packet::Pubrel(_) => "PUBREL",
            Packet::Pubcomp(_) => "PUBCOMP",
            Packet::Subscribe(_) => "SUBSCRIBE",
            Packet::Suback(_) => "SUBACK",
            Packet::Unsubscribe(_) => "UNSUBSCRIBE",
            Packet::Unsuback(_) => "UNSUBACK",
            Packet::Pingreq => "PINGREQ",
            Packet::Pingresp => "PINGRESP",
            Packet::Disconnect(_) => "DISCONNECT",
            Packet::Auth(_) => "AUTH",
        }
    }
}
