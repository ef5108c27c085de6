//! Packet Identifiers.

use std::fmt;
use std::num::NonZeroU16;

/// A Packet Identifier: 1 to 65,535, never 0.
// 3.1.1 [MQTT-2.3.1-1], 5.0 [MQTT-2.2.1-3], [MQTT-2.2.1-4]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PacketId(NonZeroU16);

impl PacketId {
    /// Returns the identifier `id`, or `None` for 0.
    pub const fn new(id: u16) -> Option<PacketId> {
        match NonZeroU16::new(id) {
            Some(id) => Some(PacketId(id)),
            None => None,
        }
    }

    /// Returns the number, 1 to 65,535.
    pub const fn get(self) -> u16 {
        self.0.get()
    }
}

impl fmt::Display for PacketId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
