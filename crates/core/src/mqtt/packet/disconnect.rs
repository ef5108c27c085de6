//! DISCONNECT.

use super::ReasonCode;

/// A DISCONNECT packet. In 3.x the packet has no fields.
#[derive(Clone, Debug, PartialEq)]
pub struct Disconnect<'a> {
    /// The reason code; [`ReasonCode::NORMAL_DISCONNECTION`] in 3.x and where a 5.0 packet omits
    /// it.
    pub reason: ReasonCode,
    /// The new Session Expiry Interval in seconds; from clients only (5.0 [MQTT-3.14.2-2]).
    pub session_expiry: Option<u32>,
    /// The Reason String.
    pub reason_string: Option<&'a str>,
    /// The server that the client should use instead; from servers only.
    pub server_reference: Option<&'a str>,
    /// The User Properties, in the order of the packet.
    pub user_properties: Vec<(&'a str, &'a str)>,
}

impl Disconnect<'_> {
    /// Returns a DISCONNECT with `reason` and no properties.
    pub const fn new(reason: ReasonCode) -> Disconnect<'static> {
        Disconnect {
            reason,
            session_expiry: None,
            reason_string: None,
            server_reference: None,
            user_properties: Vec::new(),
        }
    }
}
