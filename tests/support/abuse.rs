//! Traffic that is lawful, or nearly, and meant to hurt: what an adversarial review of the broker
//! sent.
//!
//! Bytes alone, for whoever sends them: how long others wait meanwhile, and how much memory is
//! held, is measured elsewhere.

use crate::support::{Message, Version};

/// QoS 0 publishes to a topic that nobody has, as small as they get, about 64 KiB of them.
pub fn flood(version: Version) -> Vec<u8> {
    let one = Message::new("n", "").encode(version, 0);
    one.repeat(64 * 1024 / one.len())
}

/// Filters of the wildcard bomb: all of {a, +} over the first 13 levels, then so many more levels.
pub fn wildcard_bomb(levels: usize) -> impl Iterator<Item = String> {
    const CHOICES: usize = 13;
    (0..1_usize << CHOICES).map(move |n| {
        let choice = |bit: usize| if n >> bit & 1 == 0 { "a" } else { "+" };
        let levels: Vec<_> = (0..levels).map(|at| if at < CHOICES { choice(at) } else { "a" }).collect();
        levels.join("/")
    })
}

/// The topic that visits all of its nodes, and matches none of the filters.
pub fn wildcard_bomb_topic(levels: usize) -> String {
    vec!["a"; levels - 1].join("/")
}
