//! A protocol rule that a client broke.

use crate::mqtt::packet::ReasonCode;

/// A protocol rule that a client broke. The connection ends.
// 5.0 [MQTT-4.13.1-1], 3.1.1 [MQTT-4.8.0-1]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The reason code for DISCONNECT in 5.0.
    pub reason: ReasonCode,
    /// The text for the log and the Reason String.
    pub what: &'static str,
}
