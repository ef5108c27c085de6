//! A strict reader of the packets that a broker may send. It panics on all that the standards
//! forbid.

use super::now;
use super::property::{self, Property};
use super::wire::{self, Reader, Version};
use std::time::Instant;

/// Packet types by the first four bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Connack = 2,
    Publish = 3,
    Puback = 4,
    Pubrec = 5,
    Pubrel = 6,
    Pubcomp = 7,
    Suback = 9,
    Unsuback = 11,
    Pingresp = 13,
    Disconnect = 14,
    Auth = 15,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Packet {
    Connack(Connack),
    Publish(Publish),
    /// PUBACK, PUBREC, PUBREL, PUBCOMP.
    Ack(Ack),
    /// SUBACK, UNSUBACK.
    Granted(Granted),
    Pingresp,
    Disconnect(Disconnect),
    Auth,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Connack {
    pub session_present: bool,
    pub code: u8,
    pub properties: Vec<Property>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Publish {
    pub dup: bool,
    pub qos: u8,
    pub retain: bool,
    pub topic: String,
    /// 0 at QoS 0, where there is none.
    pub id: u16,
    pub properties: Vec<Property>,
    pub payload: Vec<u8>,
    /// When its last byte had been read.
    pub at: Instant,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Ack {
    pub kind: Kind,
    pub id: u16,
    pub code: u8,
    pub properties: Vec<Property>,
    pub at: Instant,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Granted {
    pub kind: Kind,
    pub id: u16,
    pub codes: Vec<u8>,
    pub properties: Vec<Property>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Disconnect {
    pub code: u8,
    pub properties: Vec<Property>,
}

const REASON_AND_USER: &[u8] = &[0x1F, 0x26];

impl Publish {
    /// The payload, as the text that most tests send.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.payload).expect("a payload of text")
    }

    pub fn user_properties(&self) -> Vec<(&str, &str)> {
        let mut users = Vec::new();
        for property in &self.properties {
            if let Property::User(name, value) = property {
                users.push((name.as_str(), value.as_str()));
            }
        }
        users
    }

    pub fn subscription_ids(&self) -> Vec<u32> {
        let id = |p: &Property| if let Property::SubscriptionId(id) = p { Some(*id) } else { None };
        self.properties.iter().filter_map(id).collect()
    }

    /// Whole seconds of Message Expiry Interval.
    pub fn expiry(&self) -> Option<u32> {
        self.properties.iter().find_map(|p| if let Property::MessageExpiry(s) = p { Some(*s) } else { None })
    }
}

impl Packet {
    pub fn kind(&self) -> Kind {
        match self {
            Packet::Connack(_) => Kind::Connack,
            Packet::Publish(_) => Kind::Publish,
            Packet::Ack(ack) => ack.kind,
            Packet::Granted(granted) => granted.kind,
            Packet::Pingresp => Kind::Pingresp,
            Packet::Disconnect(_) => Kind::Disconnect,
            Packet::Auth => Kind::Auth,
        }
    }

    /// Takes the first packet out of what came, once it is whole.
    pub fn take_first(version: Version, unread: &mut Vec<u8>) -> Option<Packet> {
        let (header, body) = wire::frame(unread)?;
        let whole = header + body;
        if unread.len() < whole {
            return None;
        }
        let packet = Packet::read(version, unread[0], &unread[header..whole], now());
        unread.drain(..whole);
        Some(packet)
    }

    pub fn read(version: Version, first: u8, body: &[u8], at: Instant) -> Packet {
        let mut from = Reader(body);
        let (kind, flags) = (first >> 4, first & 0x0F);
        if kind != 3 {
            // 5.0 [MQTT-2.1.3-1], [MQTT-3.6.1-1]; 3.1.1 [MQTT-2.2.2-1], [MQTT-3.6.1-1]. 3.1 lets
            // DUP be set on PUBREL, ours never is.
            assert_eq!(flags, if kind == 6 { 2 } else { 0 }, "fixed header flags of 0x{first:02X}");
        }
        let from = &mut from;
        let packet = match kind {
            2 => Packet::Connack(Connack::read(version, from)),
            3 => Packet::Publish(Publish::read(version, flags, from, at)),
            4 => Packet::Ack(Ack::read(version, Kind::Puback, from, at)),
            5 => Packet::Ack(Ack::read(version, Kind::Pubrec, from, at)),
            6 => Packet::Ack(Ack::read(version, Kind::Pubrel, from, at)),
            7 => Packet::Ack(Ack::read(version, Kind::Pubcomp, from, at)),
            9 => Packet::Granted(Granted::read(version, Kind::Suback, from)),
            11 => Packet::Granted(Granted::read(version, Kind::Unsuback, from)),
            13 => Packet::Pingresp,
            14 if version == Version::V5 => Packet::Disconnect(Disconnect::read(from)),
            15 if version == Version::V5 => {
                from.bytes(body.len());
                Packet::Auth
            }
            _ => panic!("a broker of {version:?} does not send 0x{first:02X}"),
        };
        assert!(from.is_empty(), "{} bytes too many behind {packet:?}", from.0.len());
        packet
    }
}

impl Connack {
    fn read(version: Version, from: &mut Reader<'_>) -> Connack {
        let flags = from.byte();
        // 5.0 [MQTT-3.2.2-1]
        assert!(flags <= 1, "CONNACK flags 0x{flags:02X}");
        let (session_present, code) = (flags == 1, from.byte());
        // 5.0 [MQTT-3.2.2-6]; 3.1.1 [MQTT-3.2.2-4]
        assert!(!session_present || code == 0, "session present in a refusal");
        if version < Version::V5 {
            assert!(code <= 5, "return code {code}");
            // The byte was reserved in 3.1.
            assert!(version != Version::V31 || !session_present, "3.1 knows no session present");
            return Connack { session_present, code, properties: Vec::new() };
        }
        // 5.0 [MQTT-3.2.2-8]
        let lawful = matches!(code, 0 | 0x80..=0x8A | 0x8C | 0x90 | 0x95 | 0x97 | 0x99..=0x9D | 0x9F);
        assert!(lawful, "CONNACK with reason code 0x{code:02X}");
        const ALLOWED: &[u8] = &[
            0x11, 0x12, 0x13, 0x15, 0x16, 0x1A, 0x1C, 0x1F, 0x21, 0x22, 0x24, 0x25, 0x26, 0x27, 0x28, 0x29,
            0x2A,
        ];
        Connack { session_present, code, properties: property::read_all(from, ALLOWED) }
    }
}

impl Publish {
    fn read(version: Version, flags: u8, from: &mut Reader<'_>, at: Instant) -> Publish {
        let (dup, qos, retain) = (flags & 8 != 0, flags >> 1 & 3, flags & 1 != 0);
        // 5.0 [MQTT-3.3.1-4], [MQTT-3.3.1-2]; 3.1.1 the same
        assert!(qos < 3, "PUBLISH at QoS 3");
        assert!(qos > 0 || !dup, "DUP at QoS 0");
        let topic = from.text();
        // 5.0 [MQTT-3.3.2-2]; 3.1.1 [MQTT-3.3.2-2]
        assert!(!topic.contains(['+', '#']), "a wildcard in topic {topic:?}");
        let id = if qos > 0 { from.packet_id() } else { 0 };
        const ALLOWED: &[u8] = &[0x01, 0x02, 0x03, 0x08, 0x09, 0x0B, 0x23, 0x26];
        let properties = if version == Version::V5 { property::read_all(from, ALLOWED) } else { Vec::new() };
        let has_alias = properties.iter().any(|p| matches!(p, Property::TopicAlias(_)));
        // 5.0 [MQTT-4.7.3-1], [MQTT-3.3.2-8]
        assert!(!topic.is_empty() || has_alias, "PUBLISH with neither topic nor alias");
        assert!(!properties.contains(&Property::TopicAlias(0)), "topic alias 0");
        let payload = from.bytes(from.0.len()).to_vec();
        Publish { dup, qos, retain, topic, id, properties, payload, at }
    }
}

impl Ack {
    fn read(version: Version, kind: Kind, from: &mut Reader<'_>, at: Instant) -> Ack {
        let id = from.packet_id();
        let mut ack = Ack { kind, id, code: 0, properties: Vec::new(), at };
        if version < Version::V5 || from.is_empty() {
            return ack;
        }
        ack.code = from.byte();
        // 5.0 [MQTT-3.4.2-1], [MQTT-3.5.2-1], [MQTT-3.6.2-1], [MQTT-3.7.2-1]
        let lawful = match kind {
            Kind::Puback | Kind::Pubrec => {
                matches!(ack.code, 0 | 0x10 | 0x80 | 0x83 | 0x87 | 0x90 | 0x91 | 0x97 | 0x99)
            }
            _ => matches!(ack.code, 0 | 0x92),
        };
        assert!(lawful, "{kind:?} with reason code 0x{:02X}", ack.code);
        if !from.is_empty() {
            ack.properties = property::read_all(from, REASON_AND_USER);
        }
        ack
    }
}

impl Granted {
    fn read(version: Version, kind: Kind, from: &mut Reader<'_>) -> Granted {
        let id = from.packet_id();
        let properties =
            if version == Version::V5 { property::read_all(from, REASON_AND_USER) } else { Vec::new() };
        let codes = from.bytes(from.0.len()).to_vec();
        for code in &codes {
            // 5.0 [MQTT-3.9.3-2], [MQTT-3.11.3-2]; 3.1.1 [MQTT-3.9.3-2]
            let lawful = match (version, kind) {
                (Version::V5, Kind::Suback) => {
                    matches!(code, 0..=2 | 0x80 | 0x83 | 0x87 | 0x8F | 0x91 | 0x97 | 0x9E | 0xA1 | 0xA2)
                }
                (Version::V5, _) => matches!(code, 0 | 0x11 | 0x80 | 0x83 | 0x87 | 0x8F | 0x91),
                (_, Kind::Suback) => matches!(code, 0..=2 | 0x80),
                _ => false,
            };
            assert!(lawful, "{kind:?} of {version:?} with code 0x{code:02X}");
        }
        Granted { kind, id, codes, properties }
    }
}

impl Disconnect {
    fn read(from: &mut Reader<'_>) -> Disconnect {
        if from.is_empty() {
            return Disconnect { code: 0, properties: Vec::new() };
        }
        let code = from.byte();
        // 5.0 [MQTT-3.14.2-1]: what a server may say.
        let lawful = matches!(code, 0 | 0x80..=0x83 | 0x87 | 0x89 | 0x8B | 0x8D..=0x8F | 0x90 | 0x93..=0xA2);
        assert!(lawful, "DISCONNECT with reason code 0x{code:02X}");
        // 5.0 [MQTT-3.14.2-2]: no Session Expiry Interval from a server.
        let properties =
            if from.is_empty() { Vec::new() } else { property::read_all(from, &[0x1C, 0x1F, 0x26]) };
        Disconnect { code, properties }
    }
}
