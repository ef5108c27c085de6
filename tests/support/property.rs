//! Properties of 5.0, in both directions.

use super::wire::{Put, Reader};

#[derive(Clone, Debug, PartialEq)]
pub enum Property {
    PayloadFormat(u8),
    MessageExpiry(u32),
    ContentType(String),
    ResponseTopic(String),
    CorrelationData(Vec<u8>),
    SubscriptionId(u32),
    SessionExpiry(u32),
    AssignedClientId(String),
    ServerKeepAlive(u16),
    AuthenticationMethod(String),
    AuthenticationData(Vec<u8>),
    RequestProblem(u8),
    WillDelay(u32),
    RequestResponse(u8),
    ResponseInformation(String),
    ServerReference(String),
    ReasonString(String),
    ReceiveMaximum(u16),
    TopicAliasMaximum(u16),
    TopicAlias(u16),
    MaximumQos(u8),
    RetainAvailable(u8),
    User(String, String),
    MaximumPacketSize(u32),
    WildcardAvailable(u8),
    SubscriptionIdsAvailable(u8),
    SharedAvailable(u8),
}

impl Property {
    pub fn user(name: &str, value: &str) -> Property {
        Property::User(name.to_owned(), value.to_owned())
    }

    pub fn id(&self) -> u8 {
        match self {
            Property::PayloadFormat(_) => 0x01,
            Property::MessageExpiry(_) => 0x02,
            Property::ContentType(_) => 0x03,
            Property::ResponseTopic(_) => 0x08,
            Property::CorrelationData(_) => 0x09,
            Property::SubscriptionId(_) => 0x0B,
            Property::SessionExpiry(_) => 0x11,
            Property::AssignedClientId(_) => 0x12,
            Property::ServerKeepAlive(_) => 0x13,
            Property::AuthenticationMethod(_) => 0x15,
            Property::AuthenticationData(_) => 0x16,
            Property::RequestProblem(_) => 0x17,
            Property::WillDelay(_) => 0x18,
            Property::RequestResponse(_) => 0x19,
            Property::ResponseInformation(_) => 0x1A,
            Property::ServerReference(_) => 0x1C,
            Property::ReasonString(_) => 0x1F,
            Property::ReceiveMaximum(_) => 0x21,
            Property::TopicAliasMaximum(_) => 0x22,
            Property::TopicAlias(_) => 0x23,
            Property::MaximumQos(_) => 0x24,
            Property::RetainAvailable(_) => 0x25,
            Property::User(..) => 0x26,
            Property::MaximumPacketSize(_) => 0x27,
            Property::WildcardAvailable(_) => 0x28,
            Property::SubscriptionIdsAvailable(_) => 0x29,
            Property::SharedAvailable(_) => 0x2A,
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        use Property::*;
        out.push(self.id());
        match self {
            PayloadFormat(v)
            | RequestProblem(v)
            | RequestResponse(v)
            | MaximumQos(v)
            | RetainAvailable(v)
            | WildcardAvailable(v)
            | SubscriptionIdsAvailable(v)
            | SharedAvailable(v) => out.push(*v),
            ServerKeepAlive(v) | ReceiveMaximum(v) | TopicAliasMaximum(v) | TopicAlias(v) => out.put_u16(*v),
            MessageExpiry(v) | SessionExpiry(v) | WillDelay(v) | MaximumPacketSize(v) => out.put_u32(*v),
            SubscriptionId(v) => out.put_varint(*v),
            CorrelationData(v) | AuthenticationData(v) => out.put_binary(v),
            ContentType(v)
            | ResponseTopic(v)
            | AssignedClientId(v)
            | AuthenticationMethod(v)
            | ResponseInformation(v)
            | ServerReference(v)
            | ReasonString(v) => out.put_binary(v.as_bytes()),
            User(name, value) => {
                out.put_binary(name.as_bytes());
                out.put_binary(value.as_bytes());
            }
        }
    }

    fn read(from: &mut Reader<'_>) -> Property {
        use Property::*;
        // 5.0 encodes the identifier as a variable byte integer; all that exist take one byte.
        match from.byte() {
            0x01 => PayloadFormat(from.byte()),
            0x02 => MessageExpiry(from.u32()),
            0x03 => ContentType(from.text()),
            0x08 => ResponseTopic(from.text()),
            0x09 => CorrelationData(from.binary().to_vec()),
            0x0B => SubscriptionId(from.varint()),
            0x11 => SessionExpiry(from.u32()),
            0x12 => AssignedClientId(from.text()),
            0x13 => ServerKeepAlive(from.u16()),
            0x15 => AuthenticationMethod(from.text()),
            0x16 => AuthenticationData(from.binary().to_vec()),
            0x17 => RequestProblem(from.byte()),
            0x18 => WillDelay(from.u32()),
            0x19 => RequestResponse(from.byte()),
            0x1A => ResponseInformation(from.text()),
            0x1C => ServerReference(from.text()),
            0x1F => ReasonString(from.text()),
            0x21 => ReceiveMaximum(from.u16()),
            0x22 => TopicAliasMaximum(from.u16()),
            0x23 => TopicAlias(from.u16()),
            0x24 => MaximumQos(from.byte()),
            0x25 => RetainAvailable(from.byte()),
            0x26 => {
                let name = from.text();
                User(name, from.text())
            }
            0x27 => MaximumPacketSize(from.u32()),
            0x28 => WildcardAvailable(from.byte()),
            0x29 => SubscriptionIdsAvailable(from.byte()),
            0x2A => SharedAvailable(from.byte()),
            unknown => panic!("unknown property 0x{unknown:02X}"),
        }
    }
}

/// A property set with its length in front.
pub fn put_all(out: &mut Vec<u8>, properties: &[Property]) {
    let mut set = Vec::new();
    for property in properties {
        property.put(&mut set);
    }
    out.put_varint(u32::try_from(set.len()).expect("a short property set"));
    out.extend_from_slice(&set);
}

/// Reads a set of which each identifier must be in `allowed`, and come once unless the standard
/// lets it repeat.
pub fn read_all(from: &mut Reader<'_>, allowed: &[u8]) -> Vec<Property> {
    let length = from.varint() as usize;
    let mut set = Reader(from.bytes(length));
    let mut properties: Vec<Property> = Vec::new();
    while !set.is_empty() {
        let property = Property::read(&mut set);
        let id = property.id();
        assert!(allowed.contains(&id), "{property:?} may not be in this packet");
        let may_repeat = matches!(property, Property::User(..) | Property::SubscriptionId(_));
        assert!(may_repeat || properties.iter().all(|p| p.id() != id), "{property:?} is there twice");
        properties.push(property);
    }
    properties
}
