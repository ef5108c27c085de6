//! DISCONNECT.

use super::ReasonCode;

/// A DISCONNECT packet. 3.x has nothing but the packet itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Disconnect<'a> {
    /// [`ReasonCode::NORMAL_DISCONNECTION`] in 3.x and where 5.0 leaves it out.
    pub reason: ReasonCode,
    /// Seconds; from clients only (5.0 [MQTT-3.14.2-2]).
    pub session_expiry: Option<u32>,
    pub reason_string: Option<&'a str>,
    pub server_reference: Option<&'a str>,
    pub user_properties: Vec<(&'a str, &'a str)>,
}

impl Disconnect<'_> {
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
