//! CONNECT.

use super::{Properties, ProtocolVersion, QoS};
use std::fmt;

/// A CONNECT packet. Its `Debug` shows no password, no Authentication Data and no will.
#[derive(Clone, PartialEq)]
pub struct Connect<'a> {
    /// The protocol version that the packet names.
    pub version: ProtocolVersion,
    /// The Clean Session flag of 3.x, or the Clean Start flag of 5.0.
    pub clean_start: bool,
    /// The Keep Alive in seconds; 0 turns it off.
    pub keep_alive: u16,
    /// The properties; all at their default in 3.x.
    pub properties: ConnectProperties<'a>,
    /// The client identifier; may be empty.
    pub client_id: &'a str,
    /// The Will Message, if the packet has one.
    pub will: Option<WillMessage<'a>>,
    /// The user name. 3.x never has a password without one.
    pub user_name: Option<&'a str>,
    /// The password.
    pub password: Option<&'a [u8]>,
}

/// The properties of a 5.0 CONNECT; all at their default in 3.x. Its `Debug` shows no
/// Authentication Data.
#[derive(Clone, Default, PartialEq)]
pub struct ConnectProperties<'a> {
    /// The Session Expiry Interval in seconds. `None` means 0; 0xFFFF_FFFF never expires.
    pub session_expiry: Option<u32>,
    /// The Receive Maximum. Never 0, which the codec refuses as a Protocol Error; `None` means
    /// 65,535.
    pub receive_maximum: Option<u16>,
    /// The largest packet in bytes that the client accepts. Never 0; `None` means no limit.
    pub maximum_packet_size: Option<u32>,
    /// The largest Topic Alias that the client accepts. `None` means 0: no aliases to this client.
    pub topic_alias_maximum: Option<u16>,
    /// True if the client wants Response Information in the CONNACK. `None` means false.
    pub request_response_information: Option<bool>,
    /// False if only PUBLISH, CONNACK and DISCONNECT may have a Reason String or User Properties.
    /// `None` means true.
    pub request_problem_information: Option<bool>,
    /// The Authentication Method.
    pub authentication_method: Option<&'a str>,
    /// The Authentication Data. Never without a method: the codec refuses that.
    pub authentication_data: Option<&'a [u8]>,
    /// The User Properties, in the order of the packet.
    pub user_properties: Vec<(&'a str, &'a str)>,
}

/// The Will Message of a CONNECT.
#[derive(Clone, Debug, PartialEq)]
pub struct WillMessage<'a> {
    /// The Will QoS.
    pub qos: QoS,
    /// The Will Retain flag.
    pub retain: bool,
    /// The Will Topic: a Topic Name, because the codec has refused wildcards and U+0000.
    pub topic: &'a str,
    /// The Will Payload.
    pub payload: &'a [u8],
    /// The Will Delay Interval in seconds; 0 in 3.x.
    pub delay: u32,
    /// The Message Expiry Interval in seconds; 5.0 only.
    pub message_expiry: Option<u32>,
    /// Encoded properties that are forwarded unchanged, as in
    /// [`super::PublishProperties::forwarded`].
    pub forwarded: std::borrow::Cow<'a, [u8]>,
}

impl WillMessage<'_> {
    /// Returns the bytes that the client sent: topic, payload and forwarded properties.
    pub fn size(&self) -> usize {
        self.topic.len() + self.payload.len() + self.forwarded.len()
    }
}

impl WillMessage<'_> {
    /// Returns the properties that are forwarded unchanged, checked by the codec.
    pub fn forwarded(&self) -> Properties<'_> {
        Properties(&self.forwarded)
    }
}

impl fmt::Debug for Connect<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connect")
            .field("version", &self.version)
            .field("clean_start", &self.clean_start)
            .field("keep_alive", &self.keep_alive)
            .field("properties", &self.properties)
            .field("client_id", &self.client_id)
            .field("has_will", &self.will.is_some())
            .field("user_name", &self.user_name)
            .field("has_password", &self.password.is_some())
            .finish()
    }
}

impl fmt::Debug for ConnectProperties<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectProperties")
            .field("session_expiry", &self.session_expiry)
            .field("receive_maximum", &self.receive_maximum)
            .field("maximum_packet_size", &self.maximum_packet_size)
            .field("topic_alias_maximum", &self.topic_alias_maximum)
            .field("request_response_information", &self.request_response_information)
            .field("request_problem_information", &self.request_problem_information)
            .field("authentication_method", &self.authentication_method)
            .field("has_authentication_data", &self.authentication_data.is_some())
            .field("user_properties", &self.user_properties.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_secret() {
        let properties =
            ConnectProperties { authentication_data: Some(b"secret"), ..ConnectProperties::default() };
        let connect = Connect {
            version: ProtocolVersion::V5,
            clean_start: true,
            keep_alive: 0,
            properties,
            client_id: "c",
            will: None,
            user_name: Some("ann"),
            password: Some(b"secret"),
        };
        let shown = format!("{connect:?}");
        assert!(shown.contains("ann") && !shown.contains("secret\"") && !shown.contains("115"), "{shown}");
    }
}
