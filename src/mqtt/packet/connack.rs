//! CONNACK.

use super::ReasonCode;

/// A CONNACK packet. In 3.x the codec writes the return code that [`ConnectReturnCode::from_reason`] gives.
#[derive(Clone, Debug, PartialEq)]
pub struct Connack<'a> {
    pub session_present: bool,
    pub reason: ReasonCode,
    /// 5.0 only.
    pub properties: ConnackProperties<'a>,
}

/// 5.0 CONNACK properties; `None` is left out of the packet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConnackProperties<'a> {
    pub session_expiry: Option<u32>,
    pub receive_maximum: Option<u16>,
    /// 0 or 1; left out for 2.
    pub maximum_qos: Option<u8>,
    pub retain_available: Option<bool>,
    pub maximum_packet_size: Option<u32>,
    pub assigned_client_id: Option<&'a str>,
    pub topic_alias_maximum: Option<u16>,
    pub reason_string: Option<&'a str>,
    pub user_properties: Vec<(&'a str, &'a str)>,
    pub wildcard_subscription_available: Option<bool>,
    pub subscription_identifiers_available: Option<bool>,
    pub shared_subscription_available: Option<bool>,
    pub server_keep_alive: Option<u16>,
    pub response_information: Option<&'a str>,
    pub server_reference: Option<&'a str>,
    pub authentication_method: Option<&'a str>,
    pub authentication_data: Option<&'a [u8]>,
}

/// The return codes of 3.1 and 3.1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ConnectReturnCode {
    Accepted = 0,
    UnacceptableProtocolVersion = 1,
    IdentifierRejected = 2,
    ServerUnavailable = 3,
    BadUserNameOrPassword = 4,
    NotAuthorized = 5,
}

impl ConnectReturnCode {
    /// The 3.x code that says what `reason` says; `None` where none fits, and the connection is closed without
    /// a CONNACK (3.1.1 [MQTT-3.2.2-6]).
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

    /// The 5.0 code with the same meaning, for a reader of 3.x packets.
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
