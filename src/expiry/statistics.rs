//! The figures of the expiry actor. All are relaxed atomics, so any thread may read them.

use super::deadline::DeadlineKind;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Number of histogram buckets, one for each power of two of milliseconds. The last one counts
/// everything from 8.2 s on.
const LATENESS_BUCKETS: usize = 15;

/// The times that a survey looks ahead, in seconds.
pub const AHEAD: [u64; 3] = [1, 10, 60];

/// The figures of the expiry actor. Only the actor writes them, except the mailbox lag of the
/// shards.
#[derive(Debug, Default)]
pub struct ExpiryStatistics {
    keys: AtomicU64,
    buckets_in_use: AtomicU64,
    ticks: AtomicU64,
    fired: [AtomicU64; DeadlineKind::COUNT],
    /// The time from the end of a bucket to the round that polled it, for each expired deadline.
    ///
    /// A round that polls several buckets counts the earliest for all of them, so the value is an
    /// upper bound.
    pub lateness: Lateness,
    /// The time that a batch of expired deadlines spent in the mailbox of its shard. The shards
    /// write it.
    pub expired_lag: Lateness,
    /// The time that a batch of registrations spent in the mailbox of the expiry actor.
    pub registration_lag: Lateness,
    longest_catch_up: AtomicU64,
    /// The counts of the last survey.
    due: [AtomicU64; AHEAD.len()],
}

impl ExpiryStatistics {
    /// Returns the number of registered keys.
    pub fn keys(&self) -> u64 {
        self.keys.load(Relaxed)
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
    /// survey.
    pub fn due(&self) -> [u64; AHEAD.len()] {
        self.due.each_ref().map(|count| count.load(Relaxed))
    }

    pub(super) fn surveyed(&self, due: [usize; AHEAD.len()]) {
        for (place, count) in self.due.iter().zip(due) {
            place.store(count as u64, Relaxed);
        }
    }

    pub(super) fn registered(&self, keys: usize) {
        self.keys.store(keys as u64, Relaxed);
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

/// The largest lateness, and a histogram by powers of two. 128 bytes. Any thread may add.
#[derive(Debug, Default)]
pub struct Lateness {
    max_ms: AtomicU64,
    /// The number of values below 2^index ms that no earlier bucket counts.
    counts: [AtomicU64; LATENESS_BUCKETS],
}

impl Lateness {
    /// Counts `times` events that were late by `late`.
    pub fn add(&self, late: Duration, times: u64) {
        let ms = u64::try_from(late.as_millis()).unwrap_or(u64::MAX);
        let bits = (u64::BITS - ms.leading_zeros()) as usize;
        self.counts[bits.min(LATENESS_BUCKETS - 1)].fetch_add(times, Relaxed);
        self.max_ms.fetch_max(ms, Relaxed);
    }

    /// Returns the largest lateness; zero if nothing was counted.
    pub fn max(&self) -> Duration {
        Duration::from_millis(self.max_ms.load(Relaxed))
    }

    /// Returns the number of events that were late by less than each power of two of milliseconds,
    /// from 1 ms on. The last number is that of all events.
    pub fn cumulative(&self) -> [u64; LATENESS_BUCKETS] {
        let mut sum = 0;
        self.counts.each_ref().map(|count| {
            sum += count.load(Relaxed);
            sum
        })
    }

    /// Returns the time that 99 % of the events stayed below, rounded up to a power of two of
    /// milliseconds.
    ///
    /// Zero if nothing was counted. Values from 8.2 s on count as 16.4 s.
    pub fn p99(&self) -> Duration {
        let counts = self.counts.each_ref().map(|count| count.load(Relaxed));
        let all: u64 = counts.iter().sum();
        let mut seen = 0;
        let index = counts.iter().position(|count| {
            seen += count;
            // In 128 bits, because a count may be near the largest `u64`.
            u128::from(seen) * 100 >= u128::from(all) * 99
        });
        if all == 0 { Duration::ZERO } else { Duration::from_millis(1 << index.unwrap_or(0)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_p99_is_the_next_power_of_two() {
        let statistics = ExpiryStatistics::default();
        assert_eq!(statistics.lateness.p99(), Duration::ZERO);
        statistics.sent([990, 0, 0, 0, 0], Duration::from_millis(3));
        statistics.sent([0, 10, 0, 0, 0], Duration::from_millis(900));
        assert_eq!(statistics.lateness.p99(), Duration::from_millis(4));
        statistics.sent([0, 1, 0, 0, 0], Duration::from_secs(3_600));
        assert_eq!(statistics.lateness.p99(), Duration::from_millis(1024));
        assert_eq!(statistics.lateness.max(), Duration::from_secs(3_600));
        assert_eq!(statistics.fired(DeadlineKind::WriteIdle), 11);
    }
}
