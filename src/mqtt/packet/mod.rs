//! MQTT control packets as values that borrow from the bytes they were read from.
//!
//! One file per group of packets; what is common to them (QoS, identifiers, reason codes, properties)
//! has its own. Nothing here knows bytes on the wire: that is [`crate::mqtt::codec`].

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

/// Every control packet, of every version, in both directions.
#[derive(Clone, Debug, PartialEq)]
pub enum Packet<'a> {
    /// Boxed: rare and large, and the enum is returned by value for every PUBLISH and PUBACK.
    Connect(Box<Connect<'a>>),
    Connack(Box<Connack<'a>>),
    Publish(Publish<'a>),
    Puback(Acknowledgement<'a>),
    Pubrec(Acknowledgement<'a>),
    Pubrel(Acknowledgement<'a>),
    Pubcomp(Acknowledgement<'a>),
    Subscribe(Subscribe<'a>),
    Suback(Suback<'a>),
    Unsubscribe(Unsubscribe<'a>),
    Unsuback(Unsuback<'a>),
    Pingreq,
    Pingresp,
    Disconnect(Disconnect<'a>),
    /// 5.0 only.
    Auth(Auth<'a>),
}

impl Packet<'_> {
    /// The packet's name as in the standard.
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
