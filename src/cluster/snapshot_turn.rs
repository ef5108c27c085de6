//! Decides when the next snapshot is due, whose turn it is to make it, and which frames nobody
//! needs after it.
//!
//! One node makes it, because a copy of a database costs its disk and the network. The others
//! cannot see if it does: a disk that hangs keeps a thread for ever, while the node goes on to
//! write its row. So they wait for a while, and then one after the other makes it in its place. Two
//! snapshots at once are harmless: the pointer counts.

use super::engine::Bounds;
use super::row::{ClusterView, NodeRow, Pointer};
use crate::clock;
use crate::ownership::Role;
use crate::time::Instant;
use std::time::Duration;

/// The time that each node has for a snapshot before it is the turn of the next one. A copy of some
/// gigabytes takes less.
const PATIENCE: Duration = Duration::from_secs(60);
/// The pause after the first failure. It doubles with each further one, up to [`PATIENCE`].
const PAUSE: Duration = Duration::from_secs(10);

/// Bytes by which the log has to grow for a snapshot: no less than this, and no less than the
/// database has.
const GROWTH: u64 = 256 << 20;
/// Bytes of the log that are worth a snapshot each hour.
const HOURLY: u64 = 16 << 20;
const HOUR: Duration = Duration::from_secs(3600);

/// Returns true if a snapshot is due: the log has grown enough since the newest one.
pub(super) fn is_due(bounds: &Bounds, pointer: Pointer, database: u64, since_last: Duration) -> bool {
    let grown = bytes_behind(bounds, pointer.position);
    grown >= wanted(bounds, database) || grown >= u128::from(HOURLY) && since_last >= HOUR
}

/// Returns the bytes by which the log has to grow for a snapshot.
fn wanted(bounds: &Bounds, database: u64) -> u128 {
    GROWTH.max(database).min(bounds.capacity / 5 * 2).into()
}

/// Returns the bytes of the frames behind a position.
fn bytes_behind(bounds: &Bounds, position: u64) -> u128 {
    let frames = bounds.last.saturating_sub(bounds.first) + 1;
    let newer = bounds.last.saturating_sub(position.max(bounds.first.saturating_sub(1)));
    // Frames have about the same size on both sides of a position.
    u128::from(bounds.bytes) * u128::from(newer) / u128::from(frames.max(1))
}

/// Returns true if a snapshot of this node's database helps: it is newer than the newest one, and
/// does not make the next one due at half of the growth. A database that a disk keeps behind is not
/// near.
pub(super) fn is_near(row: &NodeRow, bounds: &Bounds, pointer: Pointer, database: u64) -> bool {
    row.database > pointer.position && bytes_behind(bounds, row.database) < wanted(bounds, database) / 2
}

/// Returns the position up to which the log is not needed any more.
pub(super) fn purged_up_to(bounds: &Bounds, pointer: Pointer) -> u64 {
    let is_nearly_full = bounds.bytes > bounds.capacity / 5 * 4;
    if is_nearly_full { pointer.position } else { pointer.before }
}

/// The next snapshot, as this node sees it.
#[derive(Debug)]
pub(super) struct SnapshotTurn {
    /// The position of the newest snapshot.
    newest: u64,
    /// The time at which this node has seen it first, or has started.
    moved: Instant,
    /// The time since which the next one is due, and the bytes of the log then.
    due: Option<(Instant, u64)>,
    /// Failures of this node in a row.
    failures: u32,
    /// The time before which this node makes no further attempt.
    rests_until: Instant,
}

impl SnapshotTurn {
    pub(super) fn new(now: Instant) -> SnapshotTurn {
        SnapshotTurn { newest: 0, moved: now, due: None, failures: 0, rests_until: Instant::ZERO }
    }

    /// Takes the position of the newest snapshot. Returns the time since it was another one.
    pub(super) fn newest_is(&mut self, position: u64, now: Instant) -> Duration {
        if position != self.newest {
            (self.newest, self.moved, self.due) = (position, now, None);
        }
        now.since(self.moved)
    }

    /// Notes that no snapshot is due.
    pub(super) fn is_not_due(&mut self) {
        self.due = None;
    }

    /// Notes that one is due. Returns true if it is the turn of a node that has this many others
    /// before it: each has [`PATIENCE`], and half of the room that those before it have left. So
    /// the last one comes in time also for a log that is full within seconds.
    pub(super) fn is_due(&mut self, before: usize, bounds: &Bounds, now: Instant) -> bool {
        let (since, bytes) = *self.due.get_or_insert((now, bounds.bytes));
        let before = u32::try_from(before).unwrap_or(u32::MAX);
        let room = bounds.capacity.saturating_sub(bytes);
        let left = room.checked_shr(before).unwrap_or(0);
        now.since(since) >= PATIENCE.saturating_mul(before)
            || bounds.capacity.saturating_sub(bounds.bytes) < left
    }

    /// Notes a failure of this node, and returns the time until its next attempt.
    pub(super) fn failed(&mut self, now: Instant) -> Duration {
        let pause = PATIENCE.min(PAUSE.saturating_mul(1 << self.failures.min(8)));
        self.failures += 1;
        self.rests_until = now + pause;
        pause
    }

    /// Notes that what this node tried has worked.
    pub(super) fn worked(&mut self) {
        self.failures = 0;
    }

    /// Returns true while this node waits after a failure.
    pub(super) fn rests(&self, now: Instant) -> bool {
        now < self.rests_until
    }
}

impl ClusterView {
    /// Returns the names of the nodes that make a snapshot before this one does; `None` if this one
    /// makes none. `is_near` tells whether the database of a row is near the end of the log: what
    /// another one copies lets no frame go.
    ///
    /// Those that stand by come first, in the order of `cluster.nodes`: they have the time. The
    /// owner is the last.
    pub(super) fn before_in_turn(&self, is_near: impl Fn(&NodeRow) -> bool) -> Option<Vec<String>> {
        let (rows, now) = (self.rows(), clock::now());
        let row = |name: &String| rows.iter().find(|seen| seen.row.node == *name);
        let standbys = self.nodes.iter().filter_map(row);
        let standbys = standbys.filter(|seen| seen.row.role == "following" && !seen.is_silent(now));
        let (near, far): (Vec<_>, Vec<_>) = standbys.partition(|seen| is_near(&seen.row));
        let mut near: Vec<String> = near.into_iter().map(|seen| seen.row.node.clone()).collect();
        match self.facts().role {
            Role::Following => {
                let own = near.iter().position(|node| *node == self.node)?;
                near.truncate(own);
                Some(near)
            }
            Role::Holding => {
                // One that has just started may come near.
                let comes = if near.is_empty() { far.first() } else { None };
                near.extend(comes.map(|seen| seen.row.node.clone()));
                Some(near)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn log(bytes: u64, capacity: u64) -> Bounds {
        Bounds { first: 1, last: 1_000, bytes: bytes * MIB, capacity: capacity * MIB, leader: None }
    }

    fn at(seconds: u64) -> Instant {
        Instant::from_millis(seconds * 1_000)
    }

    #[test]
    fn each_node_has_a_minute_before_it_is_the_turn_of_the_next_one() {
        for (before, turn) in [(0, 100), (1, 160), (2, 220)] {
            let mut snapshots = SnapshotTurn::new(at(0));
            snapshots.newest_is(7, at(100));
            let large = log(260, 8 << 10);
            assert_eq!(snapshots.is_due(before, &large, at(100)), before == 0);
            assert!(turn == 100 || !snapshots.is_due(before, &large, at(turn - 1)), "{before}");
            assert!(snapshots.is_due(before, &large, at(turn)), "{before}");
            // Somebody has made one: all begin anew.
            assert_eq!(snapshots.newest_is(8, at(300)), Duration::ZERO);
            assert_eq!(snapshots.is_due(before, &large, at(300)), before == 0);
        }
    }

    #[test]
    fn a_log_that_fills_within_seconds_shortens_the_turns_and_the_last_one_comes_before_it_is_full() {
        let turns = |bytes| {
            [0, 1, 2].map(|before| {
                let mut snapshots = SnapshotTurn::new(at(0));
                snapshots.is_due(before, &log(26, 64), at(1));
                snapshots.is_due(before, &log(bytes, 64), at(2))
            })
        };
        assert_eq!(turns(45), [true, false, false]);
        assert_eq!(turns(46), [true, true, false]);
        assert_eq!(turns(55), [true, true, true]);
    }

    #[test]
    fn a_node_that_fails_pauses_longer_each_time_up_to_a_minute() {
        let mut snapshots = SnapshotTurn::new(at(0));
        let pauses: Vec<u64> = (0..12).map(|_| snapshots.failed(at(100)).as_secs()).collect();
        assert_eq!(pauses[..5], [10, 20, 40, 60, 60]);
        assert_eq!(pauses.last(), Some(&60));
        assert_eq!([159, 160].map(|now| snapshots.rests(at(now))), [true, false]);
        snapshots.worked();
        assert_eq!(snapshots.failed(at(200)), PAUSE);
    }

    fn bounds(first: u64, last: u64, bytes: u64, capacity: u64) -> Bounds {
        Bounds { first, last, bytes, capacity, leader: None }
    }

    #[test]
    fn a_snapshot_is_due_when_the_log_has_grown_by_the_database_and_at_least_256_mib() {
        let large = |bytes: u64| bounds(1, 1_000, bytes, 8 << 30);
        let none = Pointer::default();
        assert!(!is_due(&large(255 * MIB), none, 0, Duration::ZERO));
        assert!(is_due(&large(257 * MIB), none, 0, Duration::ZERO));
        assert!(!is_due(&large(257 * MIB), none, 600 * MIB, Duration::ZERO));
        let half = Pointer { position: 500, before: 0 };
        assert!(!is_due(&large(400 * MIB), half, 0, Duration::ZERO), "200 MiB since the last one");
        assert!(is_due(&large(600 * MIB), half, 0, Duration::ZERO));
    }

    #[test]
    fn a_small_log_gets_one_at_two_fifths_and_any_log_one_each_hour() {
        let small = bounds(1, 100, 26 * MIB, 64 * MIB);
        assert!(is_due(&small, Pointer::default(), 0, Duration::ZERO));
        let quiet = bounds(1, 100, 17 * MIB, 8 << 30);
        assert!(!is_due(&quiet, Pointer::default(), 0, Duration::from_secs(3_599)));
        assert!(is_due(&quiet, Pointer::default(), 0, HOUR));
        assert!(!is_due(&bounds(1, 0, 0, 8 << 30), Pointer::default(), 0, HOUR), "an empty log");
    }

    #[test]
    fn the_log_goes_up_to_the_older_snapshot_and_if_it_is_nearly_full_up_to_the_newer() {
        let pointer = Pointer { position: 90, before: 40 };
        assert_eq!(purged_up_to(&bounds(1, 100, 50 * MIB, 64 * MIB), pointer), 40);
        assert_eq!(purged_up_to(&bounds(1, 100, 60 * MIB, 64 * MIB), pointer), 90);
    }
}
