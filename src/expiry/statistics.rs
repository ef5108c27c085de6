//! The figures of the expiry actor. All are relaxed atomics, so any thread may read them.

use super::deadline::DeadlineKind;
use crate::time::histogram::SharedHistogram;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The times that a survey looks ahead, in seconds.
pub const AHEAD: [u64; 3] = [1, 10, 60];

/// The figures of the expiry actor. Only the actor writes them, except the mailbox lag of the
/// shards.
#[derive(Debug, Default)]
pub struct ExpiryStatistics {
    /// Registered keys of each kind.
    keys: [AtomicU64; DeadlineKind::COUNT],
    buckets_in_use: AtomicU64,
    ticks: AtomicU64,
    fired: [AtomicU64; DeadlineKind::COUNT],
    /// The time from the end of a bucket to the round that polled it, for each expired deadline.
    ///
    /// A round that polls several buckets counts the earliest for all of them, so the value is an
    /// upper bound.
    pub lateness: SharedHistogram,
    /// The time that a batch of expired deadlines spent in the mailbox of its shard. The shards
    /// write it.
    pub expired_lag: SharedHistogram,
    /// The time that a batch of registrations spent in the mailbox of the expiry actor.
    pub registration_lag: SharedHistogram,
    longest_catch_up: AtomicU64,
    /// The counts of the last survey.
    due: [AtomicU64; AHEAD.len()],
}

impl ExpiryStatistics {
    /// Returns the number of registered keys.
    pub fn keys(&self) -> u64 {
        self.keys.iter().map(|keys| keys.load(Relaxed)).sum()
    }

    /// Returns the number of registered keys of this kind.
    pub fn keys_of(&self, kind: DeadlineKind) -> u64 {
        self.keys[kind as usize].load(Relaxed)
    }

    /// Returns the number of ring buckets with keys, as of the last tick.
    pub fn buckets_in_use(&self) -> u64 {
        self.buckets_in_use.load(Relaxed)
    }

    /// Returns the number of ticks since the start. A catch-up over several rounds counts as one
    /// tick.
    pub fn ticks(&self) -> u64 {
        self.ticks.load(Relaxed)
    }

    /// Returns the number of expired deadlines of this kind that were sent since the start.
    pub fn fired(&self, kind: DeadlineKind) -> u64 {
        self.fired[kind as usize].load(Relaxed)
    }

    /// Returns the number of rounds of the longest catch-up; 1 if no tick ever exceeded its budget.
    #[cfg(test)]
    pub fn longest_catch_up(&self) -> u64 {
        self.longest_catch_up.load(Relaxed)
    }

    /// Returns the number of keys whose buckets end within each time of [`AHEAD`], as of the last
    /// survey. Keys have gone since, so there are never more than the keys of now.
    pub fn due(&self) -> [u64; AHEAD.len()] {
        let keys = self.keys();
        self.due.each_ref().map(|count| count.load(Relaxed).min(keys))
    }

    pub(super) fn surveyed(&self, due: [usize; AHEAD.len()]) {
        for (place, count) in self.due.iter().zip(due) {
            place.store(count as u64, Relaxed);
        }
    }

    pub(super) fn registered(&self, keys: [usize; DeadlineKind::COUNT]) {
        for (place, keys) in self.keys.iter().zip(keys) {
            place.store(keys as u64, Relaxed);
        }
    }

    pub(super) fn sent(&self, fired: [u64; DeadlineKind::COUNT], late: Duration) {
        for (count, fired) in self.fired.iter().zip(fired) {
            count.fetch_add(fired, Relaxed);
        }
        let expired = fired.iter().sum::<u64>();
        if expired > 0 {
            self.lateness.add(late, expired);
        }
    }

    pub(super) fn ticked(&self, rounds: u64, buckets_in_use: usize) {
        self.ticks.fetch_add(1, Relaxed);
        self.longest_catch_up.fetch_max(rounds, Relaxed);
        self.buckets_in_use.store(buckets_in_use as u64, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_counts_its_deadlines_by_kind_and_their_lateness() {
        let statistics = ExpiryStatistics::default();
        statistics.sent([990, 0, 0, 0, 0], Duration::from_millis(3));
        statistics.sent([0, 10, 0, 0, 0], Duration::from_millis(900));
        statistics.sent([0; DeadlineKind::COUNT], Duration::from_secs(3_600));
        assert_eq!(statistics.lateness.max(), Duration::from_millis(900));
        assert_eq!(statistics.lateness.p99(), Duration::from_millis(4));
        assert_eq!(statistics.fired(DeadlineKind::WriteIdle), 10);
    }
}
