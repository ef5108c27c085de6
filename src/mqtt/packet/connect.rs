//! CONNECT.

use super::{Properties, ProtocolVersion, QoS};

/// A CONNECT packet.
#[derive(Clone, Debug, PartialEq)]
pub struct Connect<'a> {
    pub version: ProtocolVersion,
    /// Clean Session in 3.x, Clean Start in 5.0.
    pub clean_start: bool,
    /// Keep Alive in seconds; 0 turns it off.
    pub keep_alive: u16,
    pub properties: ConnectProperties<'a>,
    /// May be empty.
    pub client_id: &'a str,
    pub will: Option<WillMessage<'a>>,
    pub user_name: Option<&'a str>,
    pub password: Option<&'a [u8]>,
}

/// 5.0 CONNECT properties; all at their default in 3.x.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConnectProperties<'a> {
    /// Seconds; `None` is 0, 0xFFFF_FFFF never expires.
    pub session_expiry: Option<u32>,
    /// Never 0 (the codec answers that as the Protocol Error it is); `None` is 65,535.
    pub receive_maximum: Option<u16>,
    /// Never 0; `None` is no limit.
    pub maximum_packet_size: Option<u32>,
    /// `None` is 0: no aliases to this client.
    pub topic_alias_maximum: Option<u16>,
    pub request_response_information: Option<bool>,
    /// `None` is true.
    pub request_problem_information: Option<bool>,
    pub authentication_method: Option<&'a str>,
    pub authentication_data: Option<&'a [u8]>,
    /// In the order of the packet.
    pub user_properties: Vec<(&'a str, &'a str)>,
}

/// The Will Message of a CONNECT.
#[derive(Clone, Debug, PartialEq)]
pub struct WillMessage<'a> {
    pub qos: QoS,
    pub retain: bool,
    /// A Topic Name: the codec has refused wildcards and U+0000.
    pub topic: &'a str,
    pub payload: &'a [u8],
    /// Seconds; 5.0 only.
    pub delay: u32,
    /// Seconds; 5.0 only.
    pub message_expiry: Option<u32>,
    /// What travels unchanged with the will, as in [`super::PublishProperties::forwarded`].
    pub forwarded: std::borrow::Cow<'a, [u8]>,
}

impl WillMessage<'_> {
    pub fn forwarded(&self) -> Properties<'_> {
        Properties(&self.forwarded)
    }
}
