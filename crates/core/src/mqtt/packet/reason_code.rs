//! Reason codes of MQTT 5.0.

use std::fmt;

/// A reason code byte that the standard defines. The codec refuses all other bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReasonCode(u8);

/// Makes a constant for each reason code, and the functions that must know all of them.
macro_rules! reason_codes {
    ($($byte:literal $constant:ident $name:literal,)*) => {
        impl ReasonCode {
            $(
                #[doc = concat!(stringify!($byte), ": ", $name, ".")]
                pub const $constant: ReasonCode = ReasonCode($byte);
            )*

            /// Returns the reason code of `byte`; `None` if the standard defines it for no packet.
            pub const fn from_byte(byte: u8) -> Option<ReasonCode> {
                match byte {
                    $($byte => Some(ReasonCode::$constant),)*
                    _ => None,
                }
            }

            /// Returns the name in the standard. 0x00 has three names; this returns "Success".
            pub const fn name(self) -> &'static str {
                match self.0 {
                    $($byte => $name,)*
                    _ => "unknown",
                }
            }
        }
    };
}

// The table of the standard: 5.0 section 2.4.
reason_codes! {
    0x00 SUCCESS "Success",
    0x01 GRANTED_QOS_1 "Granted QoS 1",
    0x02 GRANTED_QOS_2 "Granted QoS 2",
    0x04 DISCONNECT_WITH_WILL_MESSAGE "Disconnect with Will Message",
    0x10 NO_MATCHING_SUBSCRIBERS "No matching subscribers",
    0x11 NO_SUBSCRIPTION_EXISTED "No subscription existed",
    0x18 CONTINUE_AUTHENTICATION "Continue authentication",
    0x19 RE_AUTHENTICATE "Re-authenticate",
    0x80 UNSPECIFIED_ERROR "Unspecified error",
    0x81 MALFORMED_PACKET "Malformed Packet",
    0x82 PROTOCOL_ERROR "Protocol Error",
    0x83 IMPLEMENTATION_SPECIFIC_ERROR "Implementation specific error",
    0x84 UNSUPPORTED_PROTOCOL_VERSION "Unsupported Protocol Version",
    0x85 CLIENT_IDENTIFIER_NOT_VALID "Client Identifier not valid",
    0x86 BAD_USER_NAME_OR_PASSWORD "Bad User Name or Password",
    0x87 NOT_AUTHORIZED "Not authorized",
    0x88 SERVER_UNAVAILABLE "Server unavailable",
    0x89 SERVER_BUSY "Server busy",
    0x8A BANNED "Banned",
    0x8B SERVER_SHUTTING_DOWN "Server shutting down",
    0x8C BAD_AUTHENTICATION_METHOD "Bad authentication method",
    0x8D KEEP_ALIVE_TIMEOUT "Keep Alive timeout",
    0x8E SESSION_TAKEN_OVER "Session taken over",
    0x8F TOPIC_FILTER_INVALID "Topic Filter invalid",
    0x90 TOPIC_NAME_INVALID "Topic Name invalid",
    0x91 PACKET_IDENTIFIER_IN_USE "Packet Identifier in use",
    0x92 PACKET_IDENTIFIER_NOT_FOUND "Packet Identifier not found",
    0x93 RECEIVE_MAXIMUM_EXCEEDED "Receive Maximum exceeded",
    0x94 TOPIC_ALIAS_INVALID "Topic Alias invalid",
    0x95 PACKET_TOO_LARGE "Packet too large",
    0x96 MESSAGE_RATE_TOO_HIGH "Message rate too high",
    0x97 QUOTA_EXCEEDED "Quota exceeded",
    0x98 ADMINISTRATIVE_ACTION "Administrative action",
    0x99 PAYLOAD_FORMAT_INVALID "Payload format invalid",
    0x9A RETAIN_NOT_SUPPORTED "Retain not supported",
    0x9B QOS_NOT_SUPPORTED "QoS not supported",
    0x9C USE_ANOTHER_SERVER "Use another server",
    0x9D SERVER_MOVED "Server moved",
    0x9E SHARED_SUBSCRIPTIONS_NOT_SUPPORTED "Shared Subscriptions not supported",
    0x9F CONNECTION_RATE_EXCEEDED "Connection rate exceeded",
    0xA0 MAXIMUM_CONNECT_TIME "Maximum connect time",
    0xA1 SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED "Subscription Identifiers not supported",
    0xA2 WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED "Wildcard Subscriptions not supported",
}

impl ReasonCode {
    /// 0x00 in a DISCONNECT: Normal disconnection.
    pub const NORMAL_DISCONNECTION: ReasonCode = ReasonCode::SUCCESS;

    /// Returns the byte on the wire.
    pub const fn byte(self) -> u8 {
        self.0
    }

    /// True if the code reports a failure: 0x80 and above.
    pub const fn is_error(self) -> bool {
        self.0 >= 0x80
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
