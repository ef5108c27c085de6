//! What the store's threads have done, for whoever asks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counts since the start, and a few figures of the moment. Each is right by itself, they need not agree with each other.
#[derive(Debug, Default)]
pub struct Statistics {
    /// Transactions.
    pub commits: AtomicU64,
    /// Records that shards sent and that were committed, cancelled ones included.
    pub records: AtomicU64,
    /// Those of them that cancelled out and were never written.
    pub cancelled: AtomicU64,
    /// What the store takes.
    pub bytes: AtomicU64,
    /// Records that wait for their commit.
    pub backlog: AtomicU64,
    /// Microseconds.
    pub last_commit: AtomicU64,
    /// Microseconds.
    pub longest_commit: AtomicU64,
    /// Messages read back.
    pub read: AtomicU64,
}

impl Statistics {
    pub(super) fn committed(&self, recorded: u64, cancelled: u64) {
        self.records.fetch_add(recorded, Ordering::Relaxed);
        self.cancelled.fetch_add(cancelled, Ordering::Relaxed);
    }

    pub(super) fn wrote(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.last_commit.store(micros, Ordering::Relaxed);
        self.longest_commit.fetch_max(micros, Ordering::Relaxed);
    }
}
