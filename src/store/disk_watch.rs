//! Tells a disk that hangs from one that is slow, for a node of a cluster: there another node can
//! take over. A broker by itself has nobody who could, so it waits.
//!
//! A slow disk ends one transaction after the other. A disk that hangs ends none, nor does one that
//! has no room or a database that another process keeps locked. None of this matters to clients
//! until somebody waits for it: changes go to the log first, and wait in memory for the database.

use super::statistics::WaitingSince;
use crate::time::Instant;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// What the threads of the store do on the disk. Each field is written by one thread.
#[derive(Debug, Default)]
pub struct DiskWatch {
    /// The time since which the present changes are written into the database, repetitions
    /// included.
    applying: WaitingSince,
    /// The time at which the last transaction ended, in milliseconds of the process's clock.
    applied: AtomicU64,
    /// The time since which the present page is read.
    reading: WaitingSince,
    /// The database is so far behind its log that no group is committed.
    commits_wait: AtomicBool,
    /// The memory of changes that wait for the database is needed for new messages.
    memory_waits: AtomicBool,
}

impl DiskWatch {
    /// Notes an attempt to write changes into the database.
    pub(super) fn applies(&self, now: Instant) {
        self.applying.set_first(now);
    }

    /// Notes that they are in the database.
    pub(super) fn applied(&self, now: Instant) {
        self.applied.store(now.as_millis(), Ordering::Relaxed);
        self.applying.set(Instant::NEVER);
    }

    /// Notes since when a page is read; [`Instant::NEVER`] after it.
    pub(super) fn reads(&self, since: Instant) {
        self.reading.set(since);
    }

    /// Notes whether commits wait for the database.
    pub(super) fn set_commits_wait(&self, wait: bool) {
        self.commits_wait.store(wait, Ordering::Relaxed);
    }

    /// Notes whether new messages wait for memory that the database releases.
    pub(super) fn set_memory_waits(&self, waits: bool) {
        self.memory_waits.store(waits, Ordering::Relaxed);
    }

    /// Returns true if clients wait for the disk, and it has ended nothing for `limit`. A page may
    /// wait for two transactions, so one that ends counts for the reads, too.
    pub fn hangs(&self, now: Instant, limit: Duration) -> bool {
        let applied = Instant::from_millis(self.applied.load(Ordering::Relaxed));
        let lasts = |waiting: &WaitingSince| now.since(waiting.since().max(applied)) >= limit;
        let is_waited_for =
            self.commits_wait.load(Ordering::Relaxed) || self.memory_waits.load(Ordering::Relaxed);
        is_waited_for && lasts(&self.applying) || lasts(&self.reading)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> Instant {
        Instant::from_millis(seconds * 1_000)
    }

    #[test]
    fn a_database_that_takes_nothing_hangs_once_somebody_waits_for_it() {
        let disk = DiskWatch::default();
        assert!(!disk.hangs(at(100), LIMIT), "nothing is to be done");
        disk.applies(at(100));
        disk.applies(at(105));
        assert!(!disk.hangs(at(200), LIMIT), "nobody waits");
        for wait in [DiskWatch::set_commits_wait, DiskWatch::set_memory_waits] {
            wait(&disk, true);
            assert_eq!([109, 110].map(|now| disk.hangs(at(now), LIMIT)), [false, true]);
            wait(&disk, false);
            assert!(!disk.hangs(at(110), LIMIT));
        }
        disk.set_commits_wait(true);
        disk.applied(at(110));
        assert!(!disk.hangs(at(200), LIMIT), "it has everything");
    }

    #[test]
    fn a_slow_disk_does_not_hang_while_it_ends_transactions_and_a_read_that_never_ends_does() {
        let disk = DiskWatch::default();
        disk.set_commits_wait(true);
        disk.reads(at(100));
        for ends in [109, 118, 127] {
            disk.applies(at(ends - 9));
            assert!(!disk.hangs(at(ends), LIMIT), "{ends}");
            disk.applied(at(ends));
        }
        assert_eq!([136, 137].map(|now| disk.hangs(at(now), LIMIT)), [false, true], "the read");
        disk.reads(Instant::NEVER);
        assert!(!disk.hangs(at(200), LIMIT));
    }
}
