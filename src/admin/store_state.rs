//! The state of the store, and the bounds from which on an operator should look. For readiness, the
//! pages, the answers for programs, and the checks of `homing doctor`.

use super::human::seconds;
use crate::broker::observer::Observer;
use crate::store::ship::ShipFigures;
use crate::time::Instant;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Age of the oldest uncommitted change from which the broker is not ready. A healthy disk commits
/// within milliseconds, and a busy one within a second. A broker gives a client the same time for
/// its CONNECT (`network.connect_timeout`), so by then clients give up waiting for their CONNACK.
pub(super) const LATE: Duration = Duration::from_secs(10);

/// The age of a change that is in the log and not in the database, from which the database is
/// behind.
const BEHIND: Duration = Duration::from_secs(30);

/// A commit that takes so long, or a deadline that is so late, is felt. A bound of the histograms.
pub(super) const SLOW: Duration = Duration::from_millis(256);

/// A sync of the log that takes longer means a slow disk. A QoS 2 message waits for two commits,
/// and each of them for the sync that is under way and for its own. So four syncs of this length
/// are as long as [`SLOW`]. A bound of the histograms.
pub(super) const SLOW_SYNC: Duration = Duration::from_millis(64);

/// The state of the store, as of now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreState {
    /// True while the store has no room.
    pub is_full: bool,
    /// The age of the oldest uncommitted change.
    pub oldest_uncommitted: Duration,
    /// The time within which 99 % of the commits since the start were done.
    pub commit_p99: Duration,
    /// As `commit_p99`, for syncs of the log; `None` if there was none.
    pub sync_p99: Option<Duration>,
    /// As `commit_p99`, for writes of the log's changes to the database; `None` if there was none.
    pub apply_p99: Option<Duration>,
    /// The bytes that the store takes on the disk.
    pub bytes: u64,
    /// The largest size of the store in bytes; `None` for no limit but the disk.
    pub size_limit: Option<u64>,
    /// The bytes that may be added before new messages are refused, as of the last commit.
    pub room: u64,
    /// The position of the last frame of the log.
    pub position: u64,
    /// The size of the log's files, in bytes.
    pub log: Used,
    /// The bytes of the log that the database does not have. At the limit, commits wait.
    pub unapplied: Used,
    /// The copy of the store; `None` without one.
    pub copy: Option<ShipFigures>,
    /// Number of times that a stored message was read and was damaged.
    pub damaged: u64,
    /// The time for which the oldest change has waited for the database.
    pub oldest_unapplied: Duration,
}

/// Bytes with their bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// The present bytes.
    pub bytes: u64,
    /// The most bytes.
    pub limit: u64,
}

/// Returns how far a copy is behind, as the end of a sentence whose subject is the copy.
pub(super) fn lag_of(copy: &ShipFigures) -> String {
    let lag = seconds(copy.lag);
    match copy.is_behind {
        true => format!("begins again with a whole database, and is {lag} behind"),
        false => format!("is {lag} behind"),
    }
}

impl StoreState {
    /// Returns the state of the store; `None` without a store.
    pub(super) fn of(observer: &Observer, now: Instant) -> Option<StoreState> {
        let store = observer.statistics().store()?;
        let value = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        let used = |bytes, limit| Used { bytes: value(bytes), limit: value(limit) };
        Some(StoreState {
            is_full: observer.shared().is_store_full(),
            oldest_uncommitted: store.oldest_uncommitted(now),
            commit_p99: store.commit_time.p99(),
            sync_p99: store.sync_time.distribution().p99(),
            apply_p99: store.apply_time.distribution().p99(),
            bytes: value(&store.bytes),
            size_limit: Some(value(&store.size_limit)).filter(|limit| *limit > 0),
            room: value(&store.room),
            position: value(&store.position),
            log: used(&store.log_bytes, &store.log_limit),
            unapplied: used(&store.unapplied_bytes, &store.unapplied_limit),
            copy: store.copy(now),
            damaged: value(&store.damaged),
            oldest_unapplied: store.oldest_unapplied(now),
        })
    }

    /// Returns true if a change has waited for its commit for longer than [`LATE`].
    pub(super) fn is_late(self) -> bool {
        self.oldest_uncommitted > LATE
    }

    /// Returns true if the database does not follow the log: it should have a change within 1 s.
    pub(super) fn is_behind(self) -> bool {
        self.oldest_unapplied > BEHIND
    }
}
