//! Hashing for tables that clients' strings go into: keyed, so that nobody can make strings that collide.
//!
//! The key is one for the process. Whoever starts a broker settles it from the system's randomness, which the pure rooms have
//! none of. Where nobody does, as in the simulation, the key is always the same, and so is the order in which a table is walked.
//! A hasher with a known key is no use here: any number of strings with one hash can be written down at once.

use foldhash::SharedSeed;
use foldhash::fast::FoldHasher;
use std::hash::BuildHasher;
use std::sync::OnceLock;

#[derive(Debug)]
struct Key {
    own: u64,
    shared: SharedSeed,
}

impl Key {
    const fn new(key: u64) -> Key {
        // Neither half follows from what the other shows.
        let own = (key ^ 0x9E37_79B9_7F4A_7C15).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        Key { own: own ^ (own >> 31), shared: SharedSeed::from_u64(key) }
    }
}

static KEY: OnceLock<Key> = OnceLock::new();

/// Settles the key, before the first table is made. Only the first key of a process counts.
pub fn settle(key: u64) {
    let _ = KEY.set(Key::new(key));
}

/// Makes hashers of the process's key. Takes no room in a table.
#[derive(Clone, Copy, Debug, Default)]
pub struct Keyed;

impl BuildHasher for Keyed {
    type Hasher = FoldHasher<'static>;

    #[inline]
    fn build_hasher(&self) -> FoldHasher<'static> {
        let Key { own, shared } = KEY.get_or_init(|| Key::new(0));
        FoldHasher::with_seed(*own, shared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::Hasher;

    fn hash(key: &'static Key, bytes: &[u8]) -> u64 {
        let mut hasher = FoldHasher::with_seed(key.own, &key.shared);
        hasher.write(bytes);
        hasher.finish()
    }

    #[test]
    fn another_key_makes_another_hash_of_every_string() {
        static ONE: Key = Key::new(1);
        static OTHER: Key = Key::new(2);
        for n in 0..1_000 {
            let string = format!("pumps/{n}/set");
            assert_ne!(hash(&ONE, string.as_bytes()), hash(&OTHER, string.as_bytes()));
        }
    }
}
