//! The measurements of one thread of a run: latencies in an HDR histogram, and deliveries.

use super::verify::Stamp;
use hdrhistogram::Histogram;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::time::Duration;

/// The histogram has three digits, from 1 us to an hour. One histogram takes some 200 KiB.
const SHORTEST_NS: u64 = 1_000;
const LONGEST_NS: u64 = 3_600_000_000_000;

/// A histogram of nanoseconds. In JSON, it is a list of pairs: a latency in nanoseconds, and how
/// often it occurred. Histograms of several reports can be added, which quantiles cannot.
#[derive(Clone, Debug)]
pub(super) struct Latencies(Histogram<u64>);

/// Milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Quantiles {
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub p99_9: f64,
    pub max: f64,
}

/// The deliveries and latencies of a quarter of a second. In the scenario `connections`, CONNACKs
/// and then PINGRESPs take the place of deliveries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct RunSlot {
    /// The end of the slot, in seconds since the start.
    pub at_s: f64,
    pub per_s: f64,
    /// The median latency in milliseconds; `None` if no message arrived.
    pub p50_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    /// Deliveries since the start.
    pub delivered: u64,
    /// Copies that had not arrived although later messages of their publisher had.
    pub overdue: u64,
}

/// The record of one run. Times are [`crate::clock::nanos`].
#[derive(Debug)]
pub(super) struct RunRecord {
    pub latencies: Latencies,
    /// The end of the warm-up. Arrivals from then on count.
    counts_from: u64,
    counts_until: Option<u64>,
    measured: u64,
    last_arrival: u64,
    /// The latencies since the last report to the board.
    pub slot: Latencies,
}

impl Default for Latencies {
    fn default() -> Latencies {
        #[expect(clippy::expect_used, reason = "three constants that the library accepts")]
        let histogram = Histogram::new_with_bounds(SHORTEST_NS, LONGEST_NS, 3).expect("constants");
        Latencies(histogram)
    }
}

impl Latencies {
    /// Adds a latency in nanoseconds. Values out of range count as the nearest bound.
    pub(super) fn add(&mut self, nanos: u64) {
        self.0.saturating_record(nanos);
    }

    /// Adds all latencies of another histogram.
    pub(super) fn add_all(&mut self, other: &Latencies) {
        // Both have the same bounds, so this cannot fail.
        let _ = self.0.add(&other.0);
    }

    /// Removes all latencies.
    pub(super) fn reset(&mut self) {
        self.0.reset();
    }

    /// Returns the number of latencies.
    pub(super) fn count(&self) -> u64 {
        self.0.len()
    }

    /// Returns the quantiles in milliseconds; `None` without latencies.
    pub(super) fn quantiles(&self) -> Option<Quantiles> {
        let at = |quantile| millis(self.0.value_at_quantile(quantile));
        (self.count() > 0).then(|| Quantiles {
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p99_9: at(0.999),
            max: millis(self.0.max()),
        })
    }
}

impl Serialize for Latencies {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let pairs = self.0.iter_recorded();
        serializer.collect_seq(pairs.map(|pair| (pair.value_iterated_to(), pair.count_at_value())))
    }
}

impl<'de> Deserialize<'de> for Latencies {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Latencies, D::Error> {
        let mut latencies = Latencies::default();
        for (nanos, count) in Vec::<(u64, u64)>::deserialize(deserializer)? {
            latencies.0.saturating_record_n(nanos, count);
        }
        Ok(latencies)
    }
}

impl RunRecord {
    /// Returns a record that begins at `start`. Messages that arrive in the warm-up are not
    /// counted.
    pub(super) fn new(start: u64, warmup: Duration) -> RunRecord {
        let warmup = u64::try_from(warmup.as_nanos()).unwrap_or(u64::MAX);
        RunRecord {
            latencies: Latencies::default(),
            counts_from: start.saturating_add(warmup),
            counts_until: None,
            measured: 0,
            last_arrival: start,
            slot: Latencies::default(),
        }
    }

    /// Records the first arrival of a message.
    pub(super) fn arrived(&mut self, stamp: Stamp, now: u64) {
        let latency = now.saturating_sub(stamp.time);
        self.slot.add(latency);
        if now < self.counts_from || self.counts_until.is_some_and(|end| now > end) {
            return;
        }
        self.measured += 1;
        self.last_arrival = now;
        if stamp.time >= self.counts_from {
            self.latencies.add(latency);
        }
    }

    /// Ends the measurement of the rate at `now`. Later messages do not count.
    pub(super) fn end(&mut self, now: u64) {
        self.counts_until.get_or_insert(now);
    }

    /// Returns the number of counted deliveries.
    pub(super) fn measured(&self) -> u64 {
        self.measured
    }

    /// Returns the begin and end of the measurement. It ends with the last counted delivery, if no
    /// end was set.
    pub(super) fn measured_time(&self) -> (u64, u64) {
        let end = self.counts_until.unwrap_or(self.last_arrival);
        (self.counts_from, end.max(self.counts_from))
    }
}

/// Returns nanoseconds as seconds.
pub(super) fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

fn millis(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn stamp(time: u64) -> Stamp {
        Stamp { run: 0, publisher: 0, sequence: 0, time }
    }

    #[test]
    fn the_warm_up_and_what_comes_after_the_end_do_not_count() {
        let mut record = RunRecord::new(0, Duration::from_millis(10));
        record.arrived(stamp(0), 5 * MS);
        record.arrived(stamp(9 * MS), 11 * MS);
        record.arrived(stamp(12 * MS), 14 * MS);
        record.end(110 * MS);
        record.arrived(stamp(13 * MS), 120 * MS);
        assert_eq!((record.measured(), record.measured_time()), (2, (10 * MS, 110 * MS)));
        assert_eq!(record.latencies.count(), 1, "one was sent in the warm-up");
        let max = record.latencies.quantiles().unwrap().max;
        assert!((1.99..2.01).contains(&max), "{max}");
    }

    #[test]
    fn without_an_end_the_measurement_is_up_to_the_last_arrival() {
        let mut record = RunRecord::new(0, Duration::ZERO);
        record.arrived(stamp(0), 500 * MS);
        record.arrived(stamp(0), 1000 * MS);
        assert_eq!(record.measured_time(), (0, 1000 * MS));
    }

    #[test]
    fn a_histogram_passes_through_json_and_can_be_added() {
        let mut latencies = Latencies::default();
        for latency in [1, 1, 3, 250, 4_000_000] {
            latencies.add(latency * MS / 1000);
        }
        let text = serde_json::to_string(&latencies).unwrap();
        let mut read: Latencies = serde_json::from_str(&text).unwrap();
        assert_eq!((read.count(), read.quantiles()), (5, latencies.quantiles()));
        read.add_all(&latencies);
        assert_eq!((read.count(), read.quantiles()), (10, latencies.quantiles()));
    }
}
