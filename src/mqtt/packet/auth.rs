//! AUTH (5.0).

use super::ReasonCode;

/// An AUTH packet.
#[derive(Clone, Debug, PartialEq)]
pub struct Auth<'a> {
    /// Success, Continue authentication or Re-authenticate.
    pub reason: ReasonCode,
    pub method: Option<&'a str>,
    pub data: Option<&'a [u8]>,
    pub reason_string: Option<&'a str>,
    pub user_properties: Vec<(&'a str, &'a str)>,
}
