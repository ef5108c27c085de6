//! ZooKeeper's `ExpiryQueue`: bucket by key, and a set of keys by bucket.

use super::{Expiry, bucket};
use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashSet};
use homing::expiry::queue::Key;
use homing::time::Instant;

pub struct TwoMaps {
    buckets: HashMap<Key, u64, RandomState>,
    keys: HashMap<u64, HashSet<Key, RandomState>, RandomState>,
    next: u64,
}

impl Expiry for TwoMaps {
    const NAME: &'static str = "two maps";

    fn new() -> Self {
        TwoMaps { buckets: HashMap::default(), keys: HashMap::default(), next: 1 }
    }

    fn update(&mut self, key: Key, deadline: Instant) {
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

    fn remove(&mut self, key: Key) {
        if let Some(set) = self.buckets.remove(&key).and_then(|old| self.keys.get_mut(&old)) {
            set.remove(&key);
        }
    }

    fn expire(&mut self, now: Instant, out: &mut Vec<Key>, round: &mut dyn FnMut(&mut Vec<Key>)) {
        while self.next < bucket(now) {
            for key in self.keys.remove(&self.next).into_iter().flatten() {
                self.buckets.remove(&key);
                out.push(key);
            }
            self.next += 1;
            round(out);
        }
    }
}
