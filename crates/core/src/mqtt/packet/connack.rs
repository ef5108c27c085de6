//! CONNACK.

use super::ReasonCode;

/// A CONNACK packet. In 3.x the codec writes the return code of [`ConnectReturnCode::from_reason`].
#[derive(Clone, Debug, PartialEq)]
pub struct Connack<'a> {
    /// The Session Present flag; false in 3.1, which has none.
    pub session_present: bool,
    /// The reason code; in 3.x the reason with the meaning of the return code.
    pub reason: ReasonCode,
    /// The properties; 5.0 only.
    pub properties: ConnackProperties<'a>,
}

/// The properties of a 5.0 CONNACK. The packet omits a property that is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConnackProperties<'a> {
    /// The Session Expiry Interval that the server uses, in seconds.
    pub session_expiry: Option<u32>,
    /// The number of QoS 1 and 2 messages that the server accepts at once; `None` means 65,535.
    pub receive_maximum: Option<u16>,
    /// The largest QoS that the server accepts: 0 or 1; `None` means 2.
    pub maximum_qos: Option<u8>,
    /// False if the server does not store retained messages; `None` means true.
    pub retain_available: Option<bool>,
    /// The largest packet in bytes that the server accepts; `None` means no limit.
    pub maximum_packet_size: Option<u32>,
    /// The client identifier that the server chose for a client without one.
    pub assigned_client_id: Option<&'a str>,
    /// The largest Topic Alias that the server accepts; `None` means 0.
    pub topic_alias_maximum: Option<u16>,
    /// The Reason String.
    pub reason_string: Option<&'a str>,
    /// The User Properties, in the order of the packet.
    pub user_properties: Vec<(&'a str, &'a str)>,
    /// False if the server refuses wildcards in filters; `None` means true.
    pub wildcard_subscription_available: Option<bool>,
    /// False if the server refuses Subscription Identifiers; `None` means true.
    pub subscription_identifiers_available: Option<bool>,
    /// False if the server refuses shared subscriptions; `None` means true.
    pub shared_subscription_available: Option<bool>,
    /// The Keep Alive in seconds that the client must use instead of its own.
    pub server_keep_alive: Option<u16>,
    /// The Response Information.
    pub response_information: Option<&'a str>,
    /// The server that the client should use instead.
    pub server_reference: Option<&'a str>,
    /// The Authentication Method.
    pub authentication_method: Option<&'a str>,
    /// The Authentication Data.
    pub authentication_data: Option<&'a [u8]>,
}

/// The CONNACK return codes of 3.1 and 3.1.1, as in the standard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ConnectReturnCode {
    /// The connection is accepted.
    Accepted = 0,
    /// The server does not support the protocol level.
    UnacceptableProtocolVersion = 1,
    /// The client identifier is not allowed.
    IdentifierRejected = 2,
    /// The server is not available now.
    ServerUnavailable = 3,
    /// User name or password is malformed or wrong.
    BadUserNameOrPassword = 4,
    /// The client may not connect.
    NotAuthorized = 5,
}

impl ConnectReturnCode {
    /// Returns the 3.x return code with the meaning of `reason`.
    ///
    /// Returns `None` if 3.x has no code for the reason. Then the connection is closed without a
    /// CONNACK (3.1.1 [MQTT-3.2.2-6]).
    pub const fn from_reason(reason: ReasonCode) -> Option<ConnectReturnCode> {
        Some(match reason {
            ReasonCode::SUCCESS => ConnectReturnCode::Accepted,
            ReasonCode::UNSUPPORTED_PROTOCOL_VERSION => ConnectReturnCode::UnacceptableProtocolVersion,
            ReasonCode::CLIENT_IDENTIFIER_NOT_VALID => ConnectReturnCode::IdentifierRejected,
            ReasonCode::SERVER_UNAVAILABLE
            | ReasonCode::SERVER_BUSY
            | ReasonCode::QUOTA_EXCEEDED
            | ReasonCode::CONNECTION_RATE_EXCEEDED
            | ReasonCode::UNSPECIFIED_ERROR => ConnectReturnCode::ServerUnavailable,
            ReasonCode::BAD_USER_NAME_OR_PASSWORD => ConnectReturnCode::BadUserNameOrPassword,
            ReasonCode::NOT_AUTHORIZED | ReasonCode::BANNED => ConnectReturnCode::NotAuthorized,
            _ => return None,
        })
    }

    /// Returns the 5.0 reason code with the meaning of a 3.x return code; `None` for a code above
    /// 5.
    pub const fn to_reason(code: u8) -> Option<ReasonCode> {
        Some(match code {
            0 => ReasonCode::SUCCESS,
            1 => ReasonCode::UNSUPPORTED_PROTOCOL_VERSION,
            2 => ReasonCode::CLIENT_IDENTIFIER_NOT_VALID,
            3 => ReasonCode::SERVER_UNAVAILABLE,
            4 => ReasonCode::BAD_USER_NAME_OR_PASSWORD,
            5 => ReasonCode::NOT_AUTHORIZED,
            _ => return None,
        })
    }
}
