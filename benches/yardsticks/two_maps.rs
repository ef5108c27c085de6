//! ZooKeeper's `ExpiryQueue`: the bucket of each key, and the keys of each bucket.
//!
//! With the hasher of std this is a plain translation of the two `ConcurrentHashMap`s of the
//! original. foldhash makes it faster.

use super::{Expiry, bucket};
use hashbrown::{HashMap, HashSet};
use homing::expiry::queue::DeadlineKey;
use homing::time::Instant;
use std::hash::BuildHasher;

#[derive(Default)]
pub struct TwoMaps<S> {
    buckets: HashMap<DeadlineKey, u64, S>,
    keys: HashMap<u64, HashSet<DeadlineKey, S>, S>,
    /// The number of the last bucket that was polled.
    passed: u64,
}

/// A hasher for the maps, with a name for the tables.
pub trait Named: BuildHasher + Default {
    const NAME: &'static str;
}

impl Named for std::hash::RandomState {
    const NAME: &'static str = "two maps, std";
}

impl Named for foldhash::fast::RandomState {
    const NAME: &'static str = "two maps, fold";
}

impl<S: Named> Expiry for TwoMaps<S> {
    const NAME: &'static str = S::NAME;

    fn new() -> Self {
        TwoMaps::default()
    }

    fn update(&mut self, key: DeadlineKey, deadline: Instant) {
        let new = bucket(deadline);
        let old = self.buckets.insert(key, new);
        if old == Some(new) {
            return;
        }
        self.keys.entry(new).or_default().insert(key);
        if let Some(set) = old.and_then(|old| self.keys.get_mut(&old)) {
            set.remove(&key);
        }
    }

    fn remove(&mut self, key: DeadlineKey) {
        if let Some(set) = self.buckets.remove(&key).and_then(|old| self.keys.get_mut(&old)) {
            set.remove(&key);
        }
    }

    fn expire(
        &mut self,
        now: Instant,
        out: &mut Vec<DeadlineKey>,
        round: &mut dyn FnMut(&mut Vec<DeadlineKey>),
    ) {
        while self.passed + 1 < bucket(now) {
            self.passed += 1;
            for key in self.keys.remove(&self.passed).into_iter().flatten() {
                self.buckets.remove(&key);
                out.push(key);
            }
            round(out);
        }
    }
}
