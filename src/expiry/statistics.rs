//! What the expiry actor counts, for whoever shows it. Relaxed atomics: written by one thread, read by any.

use super::deadline::DeadlineKind;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Powers of two of milliseconds told apart; the last stands for all beyond 8 s.
const LATENESS_BUCKETS: usize = 15;

/// How far a survey looks ahead, in seconds.
pub const AHEAD: [u64; 3] = [1, 10, 60];

/// Shared between the expiry actor, which alone writes, and its readers.
#[derive(Debug, Default)]
pub struct ExpiryStatistics {
    keys: AtomicU64,
    buckets_in_use: AtomicU64,
    ticks: AtomicU64,
    fired: [AtomicU64; DeadlineKind::COUNT],
    /// From a bucket's end to the round that polled it, by verdict. A round that polls several buckets counts the earliest
    /// for all: an upper bound.
    pub lateness: Lateness,
    /// What a batch of verdicts spent in the mailbox of its shard.
    pub verdict_lag: Lateness,
    /// What a batch of registrations spent in the mailbox of the expiry actor.
    pub registration_lag: Lateness,
    longest_catch_up: AtomicU64,
    /// As of the last survey.
    due: [AtomicU64; AHEAD.len()],
}

impl ExpiryStatistics {
    /// Keys registered.
    pub fn keys(&self) -> u64 {
        self.keys.load(Relaxed)
    }

    /// Buckets of the ring with keys in them, as of the last tick.
    pub fn buckets_in_use(&self) -> u64 {
        self.buckets_in_use.load(Relaxed)
    }

    /// Ticks since the start: wake-ups that polled, a catch-up over several rounds counted once.
    pub fn ticks(&self) -> u64 {
        self.ticks.load(Relaxed)
    }

    /// Verdicts sent since the start.
    pub fn fired(&self, kind: DeadlineKind) -> u64 {
        self.fired[kind as usize].load(Relaxed)
    }

    /// Rounds of the longest catch-up: 1 where no tick ever exceeded its budget.
    pub fn longest_catch_up(&self) -> u64 {
        self.longest_catch_up.load(Relaxed)
    }

    /// Keys whose buckets end within each of [`AHEAD`], as of the last survey.
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
        let verdicts = fired.iter().sum::<u64>();
        if verdicts > 0 {
            self.lateness.add(late, verdicts);
        }
    }

    pub(super) fn ticked(&self, rounds: u64, buckets_in_use: usize) {
        self.ticks.fetch_add(1, Relaxed);
        self.longest_catch_up.fetch_max(rounds, Relaxed);
        self.buckets_in_use.store(buckets_in_use as u64, Relaxed);
    }
}

/// How late things were: the longest, and a histogram of powers of two. 128 bytes; any thread may add.
#[derive(Debug, Default)]
pub struct Lateness {
    max_ms: AtomicU64,
    /// How many were less than 2^index ms late.
    counts: [AtomicU64; LATENESS_BUCKETS],
}

impl Lateness {
    /// So many were so late.
    pub fn add(&self, late: Duration, times: u64) {
        let ms = u64::try_from(late.as_millis()).unwrap_or(u64::MAX);
        let bits = (u64::BITS - ms.leading_zeros()) as usize;
        self.counts[bits.min(LATENESS_BUCKETS - 1)].fetch_add(times, Relaxed);
        self.max_ms.fetch_max(ms, Relaxed);
    }

    /// The latest.
    pub fn max(&self) -> Duration {
        Duration::from_millis(self.max_ms.load(Relaxed))
    }

    /// What 99 % were less late than, to the next power of two of milliseconds.
    pub fn p99(&self) -> Duration {
        let counts = self.counts.each_ref().map(|count| count.load(Relaxed));
        let all: u64 = counts.iter().sum();
        let mut seen = 0;
        let index = counts.iter().position(|count| {
            seen += count;
            // In 128 bits, since a count may be near the end of 64.
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
