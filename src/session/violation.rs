//! A protocol rule that a client broke.

use crate::mqtt::packet::ReasonCode;

/// A protocol rule that a client broke. It ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The reason code for DISCONNECT in 5.0.
    pub reason: ReasonCode,
    /// The text for the log and the Reason String.
    pub what: &'static str,
}
