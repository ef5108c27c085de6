//! The errors of decoding and encoding.
//!
//! A [`DecodeError`] names the broken rule and the reason code that reports it. The session decides
//! if and how to report an error: by CONNACK, by DISCONNECT, or by a plain close as in 3.x.

use super::packet_type::PacketType;
use super::property_set::PropertySet;
use crate::mqtt::packet::{ConnectReturnCode, ProtocolVersion, ReasonCode};

/// The rule that some bytes break, so that they are not a packet. Small and `Copy`, because every
/// decoded packet is returned in a `Result` with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each variant has an error text that says what it means")]
pub enum DecodeError {
    #[error("packet of {length} bytes; at most {maximum} are accepted")]
    PacketTooLarge { length: u32, maximum: u32 },
    #[error("first packet has type {packet_type}; only CONNECT (1) may open a connection")]
    FirstPacketNotConnect { packet_type: u8 },
    #[error("packet type {packet_type} is reserved in MQTT {version}")]
    ReservedPacketType { packet_type: u8, version: ProtocolVersion },
    /// A protocol name or level that no supported version has. `level` is present if the name is
    /// one of MQTT's; see [`DecodeError::connack`].
    #[error("{}", unsupported_version(*level))]
    UnsupportedProtocolVersion { level: Option<u8> },
    /// A level above 5 with the name MQTT: a version later than the supported ones.
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
    #[error("more properties in {set} than are accepted in one packet, {maximum}")]
    TooManyProperties { set: PropertySet, maximum: u32 },
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
    /// Returns the 5.0 reason code that reports this error to the peer.
    pub const fn reason_code(&self) -> ReasonCode {
        use DecodeError::*;
        match self {
            PacketTooLarge { .. } => ReasonCode::PACKET_TOO_LARGE,
            TooManyFilters { .. } | TooManyProperties { .. } => ReasonCode::QUOTA_EXCEEDED,
            UnsupportedProtocolVersion { .. } | LaterProtocolVersion { .. } => {
                ReasonCode::UNSUPPORTED_PROTOCOL_VERSION
            }
            TopicAliasZero => ReasonCode::TOPIC_ALIAS_INVALID,
            EmptyTopicName { .. } | WildcardInTopicName { .. } => ReasonCode::TOPIC_NAME_INVALID,
            // Bytes that can be read, but with a value that is not allowed. 5.0 names no kind for a
            // zero Packet Identifier; it parses, hence Protocol Error. So does a requested QoS of 3
            // (5.0 3.8.3.1).
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
            // Bytes that break the format. 5.0 2.2.2.2 counts a property in a wrong packet as one
            // of these.
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

    /// Returns the CONNACK bytes that report this error; `None` if the connection is closed without
    /// one.
    ///
    /// Only an unknown level with one of MQTT's names has a CONNACK. A level above 5 has the form
    /// of 5.0, the latest that such a client can know. A lower level has the form of 3.x.
    // 3.1.1 [MQTT-3.1.2-1], [MQTT-3.1.2-2], [MQTT-3.1.4-1];
    // 5.0 [MQTT-3.1.4-1]; [MQTT-3.1.2-2] leaves the CONNACK optional
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

/// The reason why a packet cannot be encoded. Only the broker can cause one, never the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each variant has an error text that says what it means")]
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
