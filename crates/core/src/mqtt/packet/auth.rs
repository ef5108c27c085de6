//! AUTH, which exists in 5.0 only.

use super::ReasonCode;

/// An AUTH packet.
#[derive(Clone, Debug, PartialEq)]
pub struct Auth<'a> {
    /// The reason code: Success, Continue authentication or Re-authenticate.
    pub reason: ReasonCode,
    /// The Authentication Method. Only an empty AUTH has none.
    pub method: Option<&'a str>,
    /// The Authentication Data.
    pub data: Option<&'a [u8]>,
    /// The Reason String.
    pub reason_string: Option<&'a str>,
    /// The User Properties, in the order of the packet.
    pub user_properties: Vec<(&'a str, &'a str)>,
}
