//! Traffic that is lawful, or nearly, and meant to hurt: what an adversarial review of the broker sent.
//!
//! Bytes alone, for whoever sends them: how long others wait meanwhile, and how much memory is held, is measured elsewhere.

use crate::support::{Message, Version};

/// QoS 0 publishes to a topic that nobody has, as small as they get, about 64 KiB of them.
pub fn flood(version: Version) -> Vec<u8> {
    let one = Message::new("n", "").encode(version, 0);
    one.repeat(64 * 1024 / one.len())
}
