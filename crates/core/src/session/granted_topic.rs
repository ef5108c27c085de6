//! The topic of the granted redelivery time.

/// Its name. Each client has such a topic of its own.
pub const GRANTED_TOPIC: &str = "$homing/session/granted";
