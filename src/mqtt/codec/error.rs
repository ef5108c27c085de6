//! What can be wrong with bytes that came in, and with packets that are to go out.
//!
//! A [`DecodeError`] names the rule that was broken and the reason code that answers it; whether and how to
//! answer (CONNACK, DISCONNECT, or a plain close as in 3.x) is the session's decision.

use super::frame::PacketType;
use super::property::PropertySet;
use crate::mqtt::packet::{ConnectReturnCode, ProtocolVersion, ReasonCode};

/// Why bytes are not a packet. Small and `Copy`: it travels in the `Result` of every decoded packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("packet of {length} bytes; at most {maximum} are accepted")]
    PacketTooLarge { length: u32, maximum: u32 },
    #[error("first packet has type {packet_type}; only CONNECT (1) may open a connection")]
    FirstPacketNotConnect { packet_type: u8 },
    #[error("packet type {packet_type} is reserved in MQTT {version}")]
    ReservedPacketType { packet_type: u8, version: ProtocolVersion },
    /// `level` is there where the protocol name was one of MQTT's; see [`DecodeError::connack`].
    #[error("{}", unsupported_version(*level))]
    UnsupportedProtocolVersion { level: Option<u8> },
    /// A level above 5 under the name MQTT: a version later than those supported.
    #[error("{}", unsupported_version(Some(*level)))]
    LaterProtocolVersion { level: u8 },

    #[error("{packet} with flags 0x{flags:X} in its first byte; they have to be 0x{expected:X}")]
    FixedHeaderFlags { packet: PacketType, flags: u8, expected: u8 },
    #[error("{packet} with remaining length {length}; it has to be {expected}")]
    RemainingLength { packet: PacketType, length: usize, expected: usize },
    #[error("{field} goes on after its fourth byte; a variable byte integer has at most four")]
    VariableByteIntegerTooLong { field: &'static str },
    #[error("{field} is encoded in more bytes than its value needs; only the shortest form is allowed")]
    VariableByteIntegerNotShortest { field: &'static str },
    #[error("the bytes end within or before {field}")]
    Truncated { field: &'static str },
    #[error("bytes after the last field of {packet}: {count}; it has to end there")]
    TrailingBytes { packet: PacketType, count: usize },

    #[error("{field} is not valid UTF-8")]
    InvalidUtf8 { field: &'static str },
    #[error("{field} contains U+0000, which no string may")]
    NullCharacter { field: &'static str },
    #[error("{field} is empty; a topic name has one character or more")]
    EmptyTopicName { field: &'static str },
    #[error("{field} contains a wildcard; + and # are for topic filters only")]
    WildcardInTopicName { field: &'static str },
    #[error("Response Topic contains a wildcard or is empty; it has to be a topic name")]
    ResponseTopic,

    #[error("{packet} with packet identifier 0; it has to be 1 to 65535")]
    PacketIdentifierZero { packet: PacketType },
    #[error("{field} is 3; it has to be 0, 1 or 2")]
    QoSThree { field: &'static str },
    #[error("SUBSCRIBE asks for QoS 3; it has to be 0, 1 or 2")]
    RequestedQoSThree,
    #[error("PUBLISH with QoS 0 and DUP set; QoS 0 is never a repetition")]
    DupWithQoSZero,
    #[error("PUBLISH with an empty topic name and no Topic Alias; one of them is needed")]
    NeitherTopicNorAlias,
    #[error("Topic Alias 0; it has to be 1 or more")]
    TopicAliasZero,

    #[error("CONNECT with bit 0 of its connect flags set; it is reserved and has to be 0")]
    ReservedConnectFlag,
    #[error("CONNECT with Will QoS or Will Retain but no Will Flag; without a will both have to be 0")]
    WillFlagsWithoutWill,
    #[error("CONNECT with a password but no user name; before MQTT 5.0 that is not allowed")]
    PasswordWithoutUserName,
    #[error(
        "CONNACK with acknowledge flags 0x{flags:02X}; bits 7 to 1 have to be 0, Session Present goes with success only"
    )]
    ConnackFlags { flags: u8 },
    #[error("CONNACK with return code {code}; it has to be 0 to 5")]
    ReturnCode { code: u8 },

    #[error("{packet} without a topic filter; it needs one or more")]
    NoTopicFilter { packet: PacketType },
    #[error("{packet} with more topic filters than are accepted in one, {maximum}")]
    TooManyFilters { packet: PacketType, maximum: usize },
    #[error("{packet} with an empty topic filter; a topic filter has one character or more")]
    EmptyTopicFilter { packet: PacketType },
    #[error("subscription options 0x{options:02X} have reserved bits set; they have to be 0")]
    ReservedSubscriptionOptions { options: u8 },
    #[error("Retain Handling is 3; it has to be 0, 1 or 2")]
    RetainHandlingThree,
    #[error("{packet} with reason code 0x{code:02X}, which is not among those of that packet")]
    ReasonCodeNotAllowed { packet: PacketType, code: u8 },

    #[error("property 0x{identifier:02X} in {set}: the standard defines no such property")]
    UnknownProperty { identifier: u32, set: PropertySet },
    #[error("{property} does not belong into {set}")]
    PropertyNotAllowed { property: &'static str, set: PropertySet },
    #[error("{property} stands more than once in {set}; it may stand once")]
    RepeatedProperty { property: &'static str, set: PropertySet },
    #[error("{property} is {value}; it has to be 0 or 1")]
    PropertyNotBoolean { property: &'static str, value: u8 },
    #[error("{property} is 0; it has to be 1 or more")]
    PropertyZero { property: &'static str },
    #[error("{packet} with Authentication Data but no Authentication Method; the data needs its method")]
    AuthenticationDataWithoutMethod { packet: PacketType },
    #[error("AUTH without Authentication Method; it has to name one")]
    AuthWithoutMethod,
}

fn unsupported_version(level: Option<u8>) -> String {
    match level {
        Some(level) => format!("protocol level {level}; MQIsdp 3, MQTT 4 and MQTT 5 are supported"),
        None => "protocol name is neither MQTT nor MQIsdp".to_owned(),
    }
}

impl DecodeError {
    /// The 5.0 reason code that tells the peer what it did.
    pub const fn reason_code(&self) -> ReasonCode {
        use DecodeError::*;
        match self {
            PacketTooLarge { .. } => ReasonCode::PACKET_TOO_LARGE,
            TooManyFilters { .. } => ReasonCode::QUOTA_EXCEEDED,
            UnsupportedProtocolVersion { .. } | LaterProtocolVersion { .. } => {
                ReasonCode::UNSUPPORTED_PROTOCOL_VERSION
            }
            TopicAliasZero => ReasonCode::TOPIC_ALIAS_INVALID,
            EmptyTopicName { .. } | WildcardInTopicName { .. } => ReasonCode::TOPIC_NAME_INVALID,
            // Bytes that can be read, and say what they must not. 5.0 counts a zero Packet Identifier with
            // neither kind by name; it parses, hence Protocol Error. So does requested QoS 3 (5.0 3.8.3.1).
            FirstPacketNotConnect { .. }
            | ResponseTopic
            | PacketIdentifierZero { .. }
            | RequestedQoSThree
            | NeitherTopicNorAlias
            | NoTopicFilter { .. }
            | RetainHandlingThree
            | ReasonCodeNotAllowed { .. }
            | RepeatedProperty { .. }
            | PropertyNotBoolean { .. }
            | PropertyZero { .. }
            | AuthenticationDataWithoutMethod { .. }
            | AuthWithoutMethod => ReasonCode::PROTOCOL_ERROR,
            // Bytes that break the format. A property in a packet that is not its own is one of these by
            // 5.0 2.2.2.2.
            ReservedPacketType { .. }
            | FixedHeaderFlags { .. }
            | RemainingLength { .. }
            | VariableByteIntegerTooLong { .. }
            | VariableByteIntegerNotShortest { .. }
            | Truncated { .. }
            | TrailingBytes { .. }
            | InvalidUtf8 { .. }
            | NullCharacter { .. }
            | QoSThree { .. }
            | EmptyTopicFilter { .. }
            | DupWithQoSZero
            | ReservedConnectFlag
            | WillFlagsWithoutWill
            | PasswordWithoutUserName
            | ConnackFlags { .. }
            | ReturnCode { .. }
            | ReservedSubscriptionOptions { .. }
            | UnknownProperty { .. }
            | PropertyNotAllowed { .. } => ReasonCode::MALFORMED_PACKET,
        }
    }

    /// The CONNACK that answers this error; `None`: close without one.
    ///
    /// Only an unknown level under a name of MQTT's gets one. A level above 5 is answered in the form of 5.0, the
    /// latest that a later client can know. A lower level is answered in the form of 3.x.
    // 3.1.1 [MQTT-3.1.2-1], [MQTT-3.1.2-2], [MQTT-3.1.4-1]; 5.0 [MQTT-3.1.2-2] leaves the CONNACK optional
    pub const fn connack(&self) -> Option<&'static [u8]> {
        const V3: &[u8] = &[0x20, 2, 0, ConnectReturnCode::UnacceptableProtocolVersion as u8];
        const V5: &[u8] = &[0x20, 3, 0, ReasonCode::UNSUPPORTED_PROTOCOL_VERSION.byte(), 0];
        match self {
            DecodeError::UnsupportedProtocolVersion { level: Some(_) } => Some(V3),
            DecodeError::LaterProtocolVersion { .. } => Some(V5),
            _ => None,
        }
    }
}

/// Why a packet cannot be put into bytes. Only we can cause one: the peer has no part in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    #[error("{packet} with remaining length {length}; the protocol's limit is 268435455")]
    PacketTooLong { packet: PacketType, length: usize },
    #[error("{field} of {length} bytes; the protocol's limit is 65535")]
    FieldTooLong { field: &'static str, length: usize },
    #[error("{field} is {value}; it has to be 1 to 268435455")]
    VariableByteInteger { field: &'static str, value: u32 },
    #[error("properties of {length} bytes; the protocol's limit is 268435455")]
    PropertiesTooLong { length: usize },
    #[error("PUBLISH has a packet identifier if its QoS is above 0, and only then")]
    PublishPacketIdentifier,
    #[error("{packet} does not exist in MQTT {version}")]
    NotInVersion { packet: PacketType, version: ProtocolVersion },
    #[error("no return code of MQTT {version} says {reason}")]
    NoReturnCode { reason: ReasonCode, version: ProtocolVersion },
    #[error("password without user name; before MQTT 5.0 that is not allowed")]
    PasswordWithoutUserName,
}
