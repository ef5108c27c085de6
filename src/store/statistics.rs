//! The figures of the store's threads.

use super::disk_watch::DiskWatch;
use super::ship::{ShipFigures, Shipping};
use crate::time::Instant;
use crate::time::histogram::SharedHistogram;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Counters since the start, and a few current values. Each is right by itself; together they need
/// not be of one moment.
#[derive(Debug, Default)]
pub struct StoreStatistics {
    /// Number of commits.
    pub commits: AtomicU64,
    /// Number of committed records of shards, cancelled ones included.
    pub records: AtomicU64,
    /// Number of committed records that cancelled each other out and were never written.
    pub cancelled: AtomicU64,
    /// Size of the store in bytes.
    pub bytes: AtomicU64,
    /// Bytes that may be added before new messages are refused, as of the last commit. The size
    /// limit and the disk bound them.
    pub room: AtomicU64,
    /// The largest size in bytes; 0 for no limit but the disk.
    pub size_limit: AtomicU64,
    /// Number of records that wait for their commit, those of a commit that is under way included.
    pub pending_records: AtomicU64,
    /// The time since which the oldest record waits.
    pub(super) uncommitted: WaitingSince,
    /// Microseconds.
    pub last_commit: AtomicU64,
    /// Microseconds.
    pub longest_commit: AtomicU64,
    /// The duration of each commit.
    pub commit_time: SharedHistogram,
    /// Number of messages that were read back.
    pub read: AtomicU64,
    /// Number of times that a stored message was read and was damaged.
    pub damaged: AtomicU64,
    /// The position of the last frame of the log.
    pub position: AtomicU64,
    /// The position of the last frame that was written into the database; 0 before the first.
    pub applied: AtomicU64,
    /// Bytes of the files of the log.
    pub log_bytes: AtomicU64,
    /// The most bytes that these files take, those included that are kept for the copy.
    pub log_limit: AtomicU64,
    /// Bytes of frames that the database does not have yet.
    pub unapplied_bytes: AtomicU64,
    /// The most bytes of such frames. With more, commits wait.
    pub unapplied_limit: AtomicU64,
    /// The time since which the oldest change waits for the database.
    unapplied: WaitingSince,
    /// Whether the disk ends what it begins.
    pub disk: DiskWatch,
    /// The duration of each transaction of the database.
    pub apply_time: SharedHistogram,
    /// The duration of each sync of the log.
    pub sync_time: SharedHistogram,
    /// The copy of the log; empty without one.
    pub(super) copy: OnceLock<Arc<Shipping>>,
}

impl StoreStatistics {
    pub(super) fn committed(&self, recorded: u64, cancelled: u64) {
        self.records.fetch_add(recorded, Ordering::Relaxed);
        self.cancelled.fetch_add(cancelled, Ordering::Relaxed);
    }

    /// Returns the figures of the copy of the log; `None` without one.
    pub fn copy(&self, now: Instant) -> Option<ShipFigures> {
        self.copy.get().map(|shipping| shipping.figures(now))
    }

    /// Returns the folder of the copy of the log; `None` without one.
    pub fn copy_folder(&self) -> Option<&Path> {
        self.copy.get().map(|shipping| shipping.folder())
    }

    /// Returns the time for which the oldest change has waited for its commit. A call to the disk
    /// that has not returned counts too, because the changes behind the call wait as long.
    pub fn oldest_uncommitted(&self, now: Instant) -> Duration {
        self.uncommitted.age(now)
    }

    /// Returns the time for which the oldest change has waited for the database.
    pub fn oldest_unapplied(&self, now: Instant) -> Duration {
        self.unapplied.age(now)
    }

    pub(super) fn waiting_for_database(&self, bytes: u64, since: Instant) {
        self.unapplied_bytes.store(bytes, Ordering::Relaxed);
        self.unapplied.set(since);
    }

    pub(super) fn wrote(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.commit_time.add(took, 1);
        self.last_commit.store(micros, Ordering::Relaxed);
        self.longest_commit.fetch_max(micros, Ordering::Relaxed);
    }
}

/// The time at which the oldest of some changes came, shared by threads. It is stored at most twice
/// for each commit.
#[derive(Debug)]
pub(super) struct WaitingSince(AtomicU64);

impl Default for WaitingSince {
    fn default() -> WaitingSince {
        WaitingSince(AtomicU64::new(Instant::NEVER.as_millis()))
    }
}

impl WaitingSince {
    /// Sets the time; [`Instant::NEVER`] if none waits.
    pub(super) fn set(&self, since: Instant) {
        self.0.store(since.as_millis(), Ordering::Relaxed);
    }

    /// Sets the time if none is set, or a later one.
    pub(super) fn set_first(&self, since: Instant) {
        self.0.fetch_min(since.as_millis(), Ordering::Relaxed);
    }

    /// Returns the time; [`Instant::NEVER`] if none waits.
    pub(super) fn since(&self) -> Instant {
        Instant::from_millis(self.0.load(Ordering::Relaxed))
    }

    fn age(&self, now: Instant) -> Duration {
        now.since(self.since())
    }
}
