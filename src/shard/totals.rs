//! Counts for the limits that hold for all shards of a broker together.
//!
//! A shard changes a count for each session or delayed message that comes or goes, never for a
//! message that is delivered.

use crate::shard::observe::last_disconnect::LastDisconnects;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A count of all shards together.
#[derive(Debug, Default)]
pub struct Total(AtomicUsize);

impl Total {
    /// Counts `n` more if the limit allows it. Returns false, and counts nothing, if not.
    pub fn take(&self, n: usize, limit: usize) -> bool {
        let more = |count: usize| count.checked_add(n).filter(|count| *count <= limit);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Counts `n` more, whatever the limit: for values that a restart recovered, or that replace
    /// others.
    pub fn add(&self, n: usize) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Counts `n` less. `n` must have been counted before.
    pub fn give_back(&self, n: usize) {
        let before = self.0.fetch_sub(n, Ordering::Relaxed);
        debug_assert!(before >= n, "{n} given back of {before}");
    }

    /// Returns the count.
    pub fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counts that have a limit for the whole broker.
#[derive(Debug, Default)]
pub struct Totals {
    /// Sessions.
    pub sessions: Total,
    /// Delayed messages.
    pub delayed_messages: Total,
    /// Bytes of delayed messages.
    pub delayed_bytes: Total,
    last_disconnects: Mutex<LastDisconnects>,
}

impl Totals {
    /// Locked when a connection ends that leaves a record.
    pub(crate) fn last_disconnects(&self) -> MutexGuard<'_, LastDisconnects> {
        // A panic is fatal in this process, so a poisoned lock is never met outside tests.
        self.last_disconnects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_who_count_at_once_get_no_more_than_the_limit_together() {
        let total = Total::default();
        let taken = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1_000 {
                        if total.take(1, 100) {
                            taken.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        assert_eq!((taken.into_inner(), total.get()), (100, 100));
        total.give_back(7);
        assert!(!total.take(8, 100) && total.take(7, 100) && !total.take(1, 100));
        total.add(1);
        assert_eq!(total.get(), 101);
    }
}
