//! Hashing for tables with client strings as keys. The hash has a key, so that nobody can choose
//! strings that collide.
//!
//! The key holds for the whole process. The broker sets it at its start from the system's
//! randomness, because the pure modules have none. Without a call of [`set_key`], as in the
//! simulation, the key is always the same. Then the order in which a table is walked is always the
//! same too. A hasher with a known key does not help here: anybody could write down any number of
//! strings with one hash.

use foldhash::SharedSeed;
use foldhash::fast::FoldHasher;
use std::hash::BuildHasher;
use std::sync::OnceLock;

#[derive(Debug)]
struct HashKey {
    own: u64,
    shared: SharedSeed,
}

impl HashKey {
    const fn new(key: u64) -> HashKey {
        // The two halves are mixed in different ways, so that hashes that reveal one do not reveal
        // the other.
        let own = (key ^ 0x9E37_79B9_7F4A_7C15).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        HashKey { own: own ^ (own >> 31), shared: SharedSeed::from_u64(key) }
    }
}

static KEY: OnceLock<HashKey> = OnceLock::new();

/// Sets the key of the process. Call this before the first table is made: only the first key
/// counts.
pub fn set_key(key: u64) {
    let _ = KEY.set(HashKey::new(key));
}

/// Builds hashers with the key of the process. Takes no space in a table.
#[derive(Clone, Copy, Debug, Default)]
pub struct Keyed;

impl BuildHasher for Keyed {
    type Hasher = FoldHasher<'static>;

    #[inline]
    fn build_hasher(&self) -> FoldHasher<'static> {
        let HashKey { own, shared } = KEY.get_or_init(|| HashKey::new(0));
        FoldHasher::with_seed(*own, shared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::Hasher;

    fn hash(key: &'static HashKey, bytes: &[u8]) -> u64 {
        let mut hasher = FoldHasher::with_seed(key.own, &key.shared);
        hasher.write(bytes);
        hasher.finish()
    }

    #[test]
    fn another_key_makes_another_hash_of_every_string() {
        static ONE: HashKey = HashKey::new(1);
        static OTHER: HashKey = HashKey::new(2);
        for n in 0..1_000 {
            let string = format!("pumps/{n}/set");
            assert_ne!(hash(&ONE, string.as_bytes()), hash(&OTHER, string.as_bytes()));
        }
    }
}
