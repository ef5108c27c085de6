//! Reason codes of MQTT 5.0.

use std::fmt;

/// A reason code byte that the standard defines. The codec refuses all other bytes.
///
/// The constants are the whole table of the standard (5.0 section 2.4), so the broker does not use
/// all of them. Three share the byte 0x00.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReasonCode(u8);

impl ReasonCode {
    /// 0x00: Success.
    pub const SUCCESS: ReasonCode = ReasonCode(0x00);
    /// 0x00: Normal disconnection.
    pub const NORMAL_DISCONNECTION: ReasonCode = ReasonCode(0x00);
    /// 0x00: Granted QoS 0.
    pub const GRANTED_QOS_0: ReasonCode = ReasonCode(0x00);
    /// 0x01: Granted QoS 1.
    pub const GRANTED_QOS_1: ReasonCode = ReasonCode(0x01);
    /// 0x02: Granted QoS 2.
    pub const GRANTED_QOS_2: ReasonCode = ReasonCode(0x02);
    /// 0x04: Disconnect with Will Message.
    pub const DISCONNECT_WITH_WILL_MESSAGE: ReasonCode = ReasonCode(0x04);
    /// 0x10: No matching subscribers.
    pub const NO_MATCHING_SUBSCRIBERS: ReasonCode = ReasonCode(0x10);
    /// 0x11: No subscription existed.
    pub const NO_SUBSCRIPTION_EXISTED: ReasonCode = ReasonCode(0x11);
    /// 0x18: Continue authentication.
    pub const CONTINUE_AUTHENTICATION: ReasonCode = ReasonCode(0x18);
    /// 0x19: Re-authenticate.
    pub const RE_AUTHENTICATE: ReasonCode = ReasonCode(0x19);
    /// 0x80: Unspecified error.
    pub const UNSPECIFIED_ERROR: ReasonCode = ReasonCode(0x80);
    /// 0x81: Malformed Packet.
    pub const MALFORMED_PACKET: ReasonCode = ReasonCode(0x81);
    /// 0x82: Protocol Error.
    pub const PROTOCOL_ERROR: ReasonCode = ReasonCode(0x82);
    /// 0x83: Implementation specific error.
    pub const IMPLEMENTATION_SPECIFIC_ERROR: ReasonCode = ReasonCode(0x83);
    /// 0x84: Unsupported Protocol Version.
    pub const UNSUPPORTED_PROTOCOL_VERSION: ReasonCode = ReasonCode(0x84);
    /// 0x85: Client Identifier not valid.
    pub const CLIENT_IDENTIFIER_NOT_VALID: ReasonCode = ReasonCode(0x85);
    /// 0x86: Bad User Name or Password.
    pub const BAD_USER_NAME_OR_PASSWORD: ReasonCode = ReasonCode(0x86);
    /// 0x87: Not authorized.
    pub const NOT_AUTHORIZED: ReasonCode = ReasonCode(0x87);
    /// 0x88: Server unavailable.
    pub const SERVER_UNAVAILABLE: ReasonCode = ReasonCode(0x88);
    /// 0x89: Server busy.
    pub const SERVER_BUSY: ReasonCode = ReasonCode(0x89);
    /// 0x8A: Banned.
    pub const BANNED: ReasonCode = ReasonCode(0x8A);
    /// 0x8B: Server shutting down.
    pub const SERVER_SHUTTING_DOWN: ReasonCode = ReasonCode(0x8B);
    /// 0x8C: Bad authentication method.
    pub const BAD_AUTHENTICATION_METHOD: ReasonCode = ReasonCode(0x8C);
    /// 0x8D: Keep Alive timeout.
    pub const KEEP_ALIVE_TIMEOUT: ReasonCode = ReasonCode(0x8D);
    /// 0x8E: Session taken over.
    pub const SESSION_TAKEN_OVER: ReasonCode = ReasonCode(0x8E);
    /// 0x8F: Topic Filter invalid.
    pub const TOPIC_FILTER_INVALID: ReasonCode = ReasonCode(0x8F);
    /// 0x90: Topic Name invalid.
    pub const TOPIC_NAME_INVALID: ReasonCode = ReasonCode(0x90);
    /// 0x91: Packet Identifier in use.
    pub const PACKET_IDENTIFIER_IN_USE: ReasonCode = ReasonCode(0x91);
    /// 0x92: Packet Identifier not found.
    pub const PACKET_IDENTIFIER_NOT_FOUND: ReasonCode = ReasonCode(0x92);
    /// 0x93: Receive Maximum exceeded.
    pub const RECEIVE_MAXIMUM_EXCEEDED: ReasonCode = ReasonCode(0x93);
    /// 0x94: Topic Alias invalid.
    pub const TOPIC_ALIAS_INVALID: ReasonCode = ReasonCode(0x94);
    /// 0x95: Packet too large.
    pub const PACKET_TOO_LARGE: ReasonCode = ReasonCode(0x95);
    /// 0x96: Message rate too high.
    pub const MESSAGE_RATE_TOO_HIGH: ReasonCode = ReasonCode(0x96);
    /// 0x97: Quota exceeded.
    pub const QUOTA_EXCEEDED: ReasonCode = ReasonCode(0x97);
    /// 0x98: Administrative action.
    pub const ADMINISTRATIVE_ACTION: ReasonCode = ReasonCode(0x98);
    /// 0x99: Payload format invalid.
    pub const PAYLOAD_FORMAT_INVALID: ReasonCode = ReasonCode(0x99);
    /// 0x9A: Retain not supported.
    pub const RETAIN_NOT_SUPPORTED: ReasonCode = ReasonCode(0x9A);
    /// 0x9B: QoS not supported.
    pub const QOS_NOT_SUPPORTED: ReasonCode = ReasonCode(0x9B);
    /// 0x9C: Use another server.
    pub const USE_ANOTHER_SERVER: ReasonCode = ReasonCode(0x9C);
    /// 0x9D: Server moved.
    pub const SERVER_MOVED: ReasonCode = ReasonCode(0x9D);
    /// 0x9E: Shared Subscriptions not supported.
    pub const SHARED_SUBSCRIPTIONS_NOT_SUPPORTED: ReasonCode = ReasonCode(0x9E);
    /// 0x9F: Connection rate exceeded.
    pub const CONNECTION_RATE_EXCEEDED: ReasonCode = ReasonCode(0x9F);
    /// 0xA0: Maximum connect time.
    pub const MAXIMUM_CONNECT_TIME: ReasonCode = ReasonCode(0xA0);
    /// 0xA1: Subscription Identifiers not supported.
    pub const SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED: ReasonCode = ReasonCode(0xA1);
    /// 0xA2: Wildcard Subscriptions not supported.
    pub const WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED: ReasonCode = ReasonCode(0xA2);

    /// Returns the reason code of `byte`; `None` if the standard defines it for no packet.
    pub const fn from_byte(byte: u8) -> Option<ReasonCode> {
        match byte {
            0x00 | 0x01 | 0x02 | 0x04 | 0x10 | 0x11 | 0x18 | 0x19 | 0x80 | 0x81 | 0x82 | 0x83 | 0x84
            | 0x85 | 0x86 | 0x87 | 0x88 | 0x89 | 0x8A | 0x8B | 0x8C | 0x8D | 0x8E | 0x8F | 0x90 | 0x91
            | 0x92 | 0x93 | 0x94 | 0x95 | 0x96 | 0x97 | 0x98 | 0x99 | 0x9A | 0x9B | 0x9C | 0x9D | 0x9E
            | 0x9F | 0xA0 | 0xA1 | 0xA2 => Some(ReasonCode(byte)),
            _ => None,
        }
    }

    /// Returns the byte on the wire.
    pub const fn byte(self) -> u8 {
        self.0
    }

    /// True if the code reports a failure: 0x80 and above.
    pub const fn is_error(self) -> bool {
        self.0 >= 0x80
    }

    /// Returns the name in the standard. 0x00 has three names; this returns "Success".
    pub const fn name(self) -> &'static str {
        match self.0 {
            0x00 => "Success",
            0x01 => "Granted QoS 1",
            0x02 => "Granted QoS 2",
            0x04 => "Disconnect with Will Message",
            0x10 => "No matching subscribers",
            0x11 => "No subscription existed",
            0x18 => "Continue authentication",
            0x19 => "Re-authenticate",
            0x80 => "Unspecified error",
            0x81 => "Malformed Packet",
            0x82 => "Protocol Error",
            0x83 => "Implementation specific error",
            0x84 => "Unsupported Protocol Version",
            0x85 => "Client Identifier not valid",
            0x86 => "Bad User Name or Password",
            0x87 => "Not authorized",
            0x88 => "Server unavailable",
            0x89 => "Server busy",
            0x8A => "Banned",
            0x8B => "Server shutting down",
            0x8C => "Bad authentication method",
            0x8D => "Keep Alive timeout",
            0x8E => "Session taken over",
            0x8F => "Topic Filter invalid",
            0x90 => "Topic Name invalid",
            0x91 => "Packet Identifier in use",
            0x92 => "Packet Identifier not found",
            0x93 => "Receive Maximum exceeded",
            0x94 => "Topic Alias invalid",
            0x95 => "Packet too large",
            0x96 => "Message rate too high",
            0x97 => "Quota exceeded",
            0x98 => "Administrative action",
            0x99 => "Payload format invalid",
            0x9A => "Retain not supported",
            0x9B => "QoS not supported",
            0x9C => "Use another server",
            0x9D => "Server moved",
            0x9E => "Shared Subscriptions not supported",
            0x9F => "Connection rate exceeded",
            0xA0 => "Maximum connect time",
            0xA1 => "Subscription Identifiers not supported",
            0xA2 => "Wildcard Subscriptions not supported",
            _ => "unknown",
        }
    }
}

impl fmt::Display for ReasonCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:02X} {}", self.0, self.name())
    }
}

impl From<super::QoS> for ReasonCode {
    /// Returns Granted QoS 0, 1 or 2.
    fn from(qos: super::QoS) -> ReasonCode {
        ReasonCode(qos.bits())
    }
}
