//! Histograms of durations. The bounds are powers of two, from 1 ms to 1,048.576 s.
//!
//! To find the place of a value costs one instruction that counts leading zeros. So a histogram may
//! be updated for each message.

use crate::time::millis;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Number of buckets. Bucket `i` counts the durations below 2^i ms that no earlier bucket counts.
/// The last bucket counts all longer times.
pub const BUCKETS: usize = 22;

/// Returns the bound of a bucket in milliseconds, or `None` for the last bucket, which has none.
pub const fn bound_ms(bucket: usize) -> Option<u64> {
    if bucket + 1 < BUCKETS { Some(1 << bucket) } else { None }
}

/// Returns the bucket of a duration in whole milliseconds.
#[inline]
fn bucket_of(ms: u64) -> usize {
    ((u64::BITS - ms.leading_zeros()) as usize).min(BUCKETS - 1)
}

/// A histogram that one thread owns. 184 bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    counts: [u64; BUCKETS],
    sum_ms: u64,
}

impl Histogram {
    /// Counts one duration in whole milliseconds, rounded down.
    #[inline]
    pub fn add(&mut self, ms: u64) {
        self.counts[bucket_of(ms)] += 1;
        self.sum_ms = self.sum_ms.wrapping_add(ms);
    }

    /// Returns the number of durations.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Histogram) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
        self.sum_ms = self.sum_ms.wrapping_add(other.sum_ms);
    }

    /// Returns the counts for a reader.
    pub fn distribution(&self) -> Distribution {
        Distribution { counts: self.counts, sum: Duration::from_millis(self.sum_ms) }
    }
}

/// A histogram to which any thread may add, with the largest value. 192 bytes.
#[derive(Debug, Default)]
pub struct SharedHistogram {
    counts: [AtomicU64; BUCKETS],
    sum_us: AtomicU64,
    max_ms: AtomicU64,
}

impl SharedHistogram {
    /// Counts `times` events of this duration.
    pub fn add(&self, duration: Duration, times: u64) {
        let ms = millis(duration);
        let us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.counts[bucket_of(ms)].fetch_add(times, Relaxed);
        self.sum_us.fetch_add(us.saturating_mul(times), Relaxed);
        self.max_ms.fetch_max(ms, Relaxed);
    }

    /// Returns the largest duration in whole milliseconds, or zero if nothing was counted.
    pub fn max(&self) -> Duration {
        Duration::from_millis(self.max_ms.load(Relaxed))
    }

    /// Returns the time that 99 % of the events stayed below, rounded up to a power of two of
    /// milliseconds. Returns zero if nothing was counted. Values beyond the last bound count as
    /// 2,097 s.
    pub fn p99(&self) -> Duration {
        self.distribution().p99().unwrap_or_default()
    }

    /// Returns the counts for a reader. Each count is right by itself; an event that is added
    /// meanwhile may be missing in the sum.
    pub fn distribution(&self) -> Distribution {
        Distribution {
            counts: self.counts.each_ref().map(|count| count.load(Relaxed)),
            sum: Duration::from_micros(self.sum_us.load(Relaxed)),
        }
    }
}

/// The counts of a histogram at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distribution {
    /// The number of events in each bucket.
    pub counts: [u64; BUCKETS],
    /// The sum of all durations.
    pub sum: Duration,
}

impl Distribution {
    /// Returns the events since an earlier moment of the same histogram.
    pub fn since(&self, earlier: &Distribution) -> Distribution {
        let mut counts = self.counts;
        for (count, before) in counts.iter_mut().zip(earlier.counts) {
            *count = count.saturating_sub(before);
        }
        Distribution { counts, sum: self.sum.saturating_sub(earlier.sum) }
    }

    /// Returns the time that 99 % of the events stayed below, rounded up to a power of two of
    /// milliseconds; `None` without events. Values beyond the last bound count as 2,097 s.
    pub fn p99(&self) -> Option<Duration> {
        let all: u64 = self.counts.iter().sum();
        let mut seen = 0;
        let index = self.counts.iter().position(|count| {
            seen += count;
            // In 128 bits, because a count may be near the largest `u64`.
            u128::from(seen) * 100 >= u128::from(all) * 99
        });
        (all > 0).then(|| Duration::from_millis(1 << index.unwrap_or(0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_counts_in_the_first_bucket_whose_bound_is_above_it() {
        let mut histogram = Histogram::default();
        for ms in [0, 1, 2, 3, 4, (1 << 20) - 1, 1 << 20, u64::MAX] {
            histogram.add(ms);
            let place = bucket_of(ms);
            assert!(bound_ms(place).is_none_or(|bound| ms < bound), "{ms}");
            assert!(place == 0 || bound_ms(place - 1).is_some_and(|bound| ms >= bound), "{ms}");
        }
        let counts = histogram.distribution().counts;
        assert_eq!(counts[..4], [1, 1, 2, 1]);
        assert_eq!((counts[20], counts[21], bound_ms(20), bound_ms(21)), (1, 2, Some(1 << 20), None));
    }

    #[test]
    fn histograms_of_two_shards_add_up() {
        let (mut one, mut other) = (Histogram::default(), Histogram::default());
        one.add(3);
        other.add(3);
        other.add(100);
        one.merge(&other);
        assert_eq!(one.distribution().sum, Duration::from_millis(106));
        assert_eq!(one.distribution().counts.iter().sum::<u64>(), 3);
    }

    #[test]
    fn p99_is_the_next_power_of_two() {
        let shared = SharedHistogram::default();
        assert_eq!(shared.p99(), Duration::ZERO);
        shared.add(Duration::from_millis(3), 990);
        shared.add(Duration::from_millis(900), 10);
        assert_eq!(shared.p99(), Duration::from_millis(4));
        shared.add(Duration::from_secs(3_600), 1);
        assert_eq!((shared.p99(), shared.max()), (Duration::from_millis(1024), Duration::from_secs(3_600)));
        assert_eq!(shared.distribution().sum.as_secs(), 2 + 9 + 3_600);
    }
}
