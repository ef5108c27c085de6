//! The beginning of a connection: CONNECT to the other broker, its CONNACK, and CONNECT to the
//! shard.

use super::outcome::SaidThere;
use super::path;
use crate::mqtt::codec::{EncodeError, encode};
use crate::mqtt::packet::{
    Connack, Connect, ConnectProperties, Packet, ProtocolVersion, QoS, ReasonCode, WillMessage,
};
use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

/// The offset of the protocol level behind the fixed header: the name MQTT with its length.
const LEVEL: usize = 6;

/// The bit with which mosquitto marks a bridge that speaks 3.1.1. The other broker then keeps
/// RETAIN, and sends the bridge no message of its own.
const BRIDGE_BIT: u8 = 0x80;

/// The retained payloads of the notification topic, as mosquitto has them.
pub const CONNECTED: &[u8] = b"1";
/// See [`CONNECTED`].
pub const DISCONNECTED: &[u8] = b"0";

/// The CONNECT of a bridge to the other broker.
#[derive(Clone, Copy, Debug)]
pub struct Hello<'a> {
    /// The version that is spoken.
    pub version: ProtocolVersion,
    /// The client identifier there.
    pub client_id: &'a str,
    /// True for a new session there.
    pub clean_start: bool,
    /// The Keep Alive in seconds.
    pub keep_alive: u16,
    /// The Session Expiry Interval there, in seconds.
    pub session_expiry: u32,
    /// The most unfinished messages that the other broker may send.
    pub receive_maximum: u16,
    /// The largest packet that the other broker may send.
    pub packet_size: u32,
    /// The user name there.
    pub user: Option<&'a str>,
    /// The password there.
    pub password: Option<&'a [u8]>,
    /// True for the bridge bit of mosquitto; 3.1.1 alone.
    pub bridge_bit: bool,
    /// The name of this broker in the paths of messages; 5.0 alone.
    pub name: Option<&'a str>,
    /// The topic there that has `0` when the bridge is not connected; `None` without one.
    pub notification_topic: Option<&'a str>,
    /// False if the other broker takes no retained messages, and so no will with RETAIN.
    pub retains_will: bool,
}

impl Hello<'_> {
    /// Appends the CONNECT.
    ///
    /// # Errors
    /// A field is longer than the protocol allows.
    pub fn put(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let properties = ConnectProperties {
            session_expiry: Some(self.session_expiry),
            receive_maximum: Some(self.receive_maximum),
            maximum_packet_size: Some(self.packet_size),
            user_properties: self.name.map(|name| (path::PROPERTY, name)).into_iter().collect(),
            ..ConnectProperties::default()
        };
        let connect = Connect {
            version: self.version,
            clean_start: self.clean_start,
            keep_alive: self.keep_alive,
            properties: if self.version.is_v5() { properties } else { ConnectProperties::default() },
            client_id: self.client_id,
            will: self.notification_topic.map(|topic| WillMessage {
                qos: QoS::AtLeastOnce,
                retain: self.retains_will,
                topic,
                payload: DISCONNECTED,
                delay: 0,
                message_expiry: None,
                forwarded: Cow::Borrowed(&[]),
            }),
            user_name: self.user,
            password: self.password,
        };
        let start = out.len();
        encode(&Packet::Connect(Box::new(connect)), self.version, out)?;
        if self.bridge_bit && self.version == ProtocolVersion::V3_1_1 {
            let packet = out.get_mut(start + 1..).unwrap_or_default();
            let length = packet.iter().take_while(|byte| **byte & 0x80 != 0).count() + 1;
            if let Some(level) = packet.get_mut(length + LEVEL) {
                *level |= BRIDGE_BIT;
            }
        }
        Ok(())
    }
}

/// The terms in the CONNACK of the other broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TermsThere {
    /// True if the other broker had the session.
    pub session_present: bool,
    /// The most unfinished messages that it takes.
    pub receive_maximum: u16,
    /// The largest packet that it takes; `None` for any.
    pub packet_size: Option<u32>,
    /// The highest QoS that it takes.
    pub maximum_qos: QoS,
    /// False if it takes no retained messages.
    pub takes_retained: bool,
    /// False if it takes no filters with wildcards.
    pub takes_wildcards: bool,
    /// The Keep Alive that it demands, in seconds; `None` for that of CONNECT.
    pub keep_alive: Option<u16>,
}

/// A CONNECT that the other broker refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedThere {
    /// The reason code; a return code of 3.1.1 has the reason with its meaning.
    pub reason: ReasonCode,
    /// The text and the other server that the broker names.
    pub said: SaidThere,
}

impl fmt::Display for RefusedThere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the other broker refuses CONNECT: {}{}", self.reason, self.said)
    }
}

impl RefusedThere {
    /// Returns true if another version of the protocol may be accepted.
    pub fn is_about_version(&self) -> bool {
        matches!(
            self.reason,
            ReasonCode::UNSUPPORTED_PROTOCOL_VERSION
                | ReasonCode::PROTOCOL_ERROR
                | ReasonCode::MALFORMED_PACKET
        )
    }
}

impl TermsThere {
    /// Stands for the terms of a broker that has not said them yet: they hold while a session gets its
    /// filters.
    pub const UNKNOWN: TermsThere = TermsThere {
        session_present: false,
        receive_maximum: 1,
        packet_size: None,
        maximum_qos: QoS::ExactlyOnce,
        takes_retained: true,
        takes_wildcards: true,
        keep_alive: None,
    };

    /// Returns the terms of an accepting CONNACK.
    ///
    /// # Errors
    /// The other broker refuses CONNECT.
    pub fn of(connack: &Connack<'_>) -> Result<TermsThere, RefusedThere> {
        let properties = &connack.properties;
        if connack.reason != ReasonCode::SUCCESS {
            let said = SaidThere::of(properties.reason_string, properties.server_reference);
            return Err(RefusedThere { reason: connack.reason, said });
        }
        Ok(TermsThere {
            session_present: connack.session_present,
            receive_maximum: properties.receive_maximum.unwrap_or(u16::MAX),
            packet_size: properties.maximum_packet_size,
            maximum_qos: properties.maximum_qos.and_then(QoS::from_bits).unwrap_or(QoS::ExactlyOnce),
            takes_retained: properties.retain_available.unwrap_or(true),
            takes_wildcards: properties.wildcard_subscription_available.unwrap_or(true),
            keep_alive: properties.server_keep_alive,
        })
    }

    /// Returns these terms with packets of at most `largest` bytes, if there is such a bound.
    pub fn within(self, largest: Option<u32>) -> TermsThere {
        TermsThere { packet_size: self.packet_size.into_iter().chain(largest).min(), ..self }
    }

    /// Returns the Keep Alive of the connection. A broker that demands none is asked all the same: it
    /// may be gone without a word.
    pub fn keep_alive(&self, asked: u16) -> Duration {
        Duration::from_secs(self.keep_alive.filter(|demanded| *demanded > 0).unwrap_or(asked).into())
    }
}

/// Returns the size of the largest packet that still fits `largest` when its topic has grown by
/// `growth` bytes. Remaining Length may take up to three bytes more.
pub fn before_renaming(largest: u32, growth: usize) -> u32 {
    largest.saturating_sub(u32::try_from(growth + 3).unwrap_or(u32::MAX))
}

/// The CONNECT of a bridge to its shard: always 5.0, so that nothing is sent again on a live
/// connection.
#[derive(Clone, Copy, Debug)]
pub struct HelloHere<'a> {
    /// The client identifier here.
    pub client_id: &'a str,
    /// The Session Expiry Interval here, in seconds.
    pub session_expiry: u32,
    /// The most messages that may be unacknowledged.
    pub in_flight: u16,
    /// The most bytes by which a message grows when it is renamed.
    pub growth: usize,
    /// The terms of the other broker.
    pub there: TermsThere,
}

impl HelloHere<'_> {
    /// Appends the CONNECT. The limits of the other broker are those of this client, so that the
    /// shard keeps to them.
    ///
    /// # Errors
    /// The client identifier is longer than the protocol allows.
    pub fn put(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let largest = self.there.packet_size.map(|largest| before_renaming(largest, self.growth).max(64));
        let connect = Connect {
            version: ProtocolVersion::V5,
            clean_start: false,
            keep_alive: 0,
            properties: ConnectProperties {
                session_expiry: Some(self.session_expiry),
                receive_maximum: Some(self.in_flight.min(self.there.receive_maximum).max(1)),
                maximum_packet_size: largest,
                ..ConnectProperties::default()
            },
            client_id: self.client_id,
            will: None,
            user_name: None,
            password: None,
        };
        encode(&Packet::Connect(Box::new(connect)), ProtocolVersion::V5, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqtt::codec::{Decoded, decode};
    use crate::mqtt::packet::ConnackProperties;

    #[test]
    fn the_lower_one_of_two_bounds_of_a_packet_holds() {
        let bound =
            |there, own| TermsThere { packet_size: there, ..TermsThere::UNKNOWN }.within(own).packet_size;
        assert_eq!([bound(None, None), bound(Some(5), None)], [None, Some(5)]);
        assert_eq!(
            [bound(None, Some(5)), bound(Some(9), Some(5)), bound(Some(2), Some(5))],
            [Some(5), Some(5), Some(2)]
        );
    }

    const HELLO: Hello<'_> = Hello {
        version: ProtocolVersion::V3_1_1,
        client_id: "c",
        clean_start: false,
        keep_alive: 60,
        session_expiry: 3_600,
        receive_maximum: 100,
        packet_size: 2_000,
        user: None,
        password: None,
        bridge_bit: true,
        name: None,
        notification_topic: None,
        retains_will: true,
    };

    #[test]
    fn the_bridge_bit_is_set_in_the_level_of_3_1_1_alone() {
        let mut out = Vec::new();
        HELLO.put(&mut out).expect("short");
        assert_eq!(out, b"\x10\x0D\0\x04MQTT\x84\0\0\x3C\0\x01c");
        let long = "c".repeat(200);
        out.clear();
        Hello { client_id: &long, ..HELLO }.put(&mut out).expect("short");
        assert_eq!(out[..10], *b"\x10\xD4\x01\0\x04MQTT\x84");
        out.clear();
        Hello { version: ProtocolVersion::V5, ..HELLO }.put(&mut out).expect("short");
        let Ok(Decoded::Packet { packet: Packet::Connect(connect), .. }) =
            decode(&out, ProtocolVersion::V5, 1_000)
        else {
            panic!("{out:?}")
        };
        assert_eq!(connect.properties.session_expiry, Some(3_600));
    }

    #[test]
    fn the_shard_gets_the_limits_of_the_other_broker() {
        let connack = Connack {
            session_present: true,
            reason: ReasonCode::SUCCESS,
            properties: ConnackProperties {
                receive_maximum: Some(7),
                maximum_packet_size: Some(1_000),
                maximum_qos: Some(1),
                server_keep_alive: Some(5),
                ..ConnackProperties::default()
            },
        };
        let there = TermsThere::of(&connack).expect("accepted");
        assert_eq!((there.maximum_qos, there.keep_alive(60)), (QoS::AtLeastOnce, Duration::from_secs(5)));
        let here = HelloHere { client_id: "$bridge/a", session_expiry: 1, in_flight: 100, growth: 8, there };
        let mut out = Vec::new();
        here.put(&mut out).expect("short");
        let Ok(Decoded::Packet { packet: Packet::Connect(connect), .. }) =
            decode(&out, ProtocolVersion::V5, 1_000)
        else {
            panic!("{out:?}")
        };
        assert_eq!(connect.properties.receive_maximum, Some(7));
        assert_eq!(connect.properties.maximum_packet_size, Some(989));
    }

    #[test]
    fn a_refusal_has_the_text_and_the_other_server() {
        let mut connack = Connack {
            session_present: false,
            reason: ReasonCode::USE_ANOTHER_SERVER,
            properties: ConnackProperties {
                server_reference: Some("b:1883"),
                ..ConnackProperties::default()
            },
        };
        let refused = TermsThere::of(&connack).expect_err("refused");
        assert!(
            refused.to_string().ends_with("0x9C Use another server (another server: b:1883)"),
            "{refused}"
        );
        assert!(!refused.is_about_version());
        connack.reason = ReasonCode::UNSUPPORTED_PROTOCOL_VERSION;
        assert!(TermsThere::of(&connack).expect_err("refused").is_about_version());
    }
}
