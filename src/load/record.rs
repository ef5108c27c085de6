//! The measurements of a run: latencies in an HDR histogram, deliveries, and both in slots of time
//! for the plot.

use super::verify::Stamp;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::time::Duration;

/// The histogram has three digits, from 1 us to an hour. One histogram takes some 200 KiB.
const SHORTEST_NS: u64 = 1_000;
const LONGEST_NS: u64 = 3_600_000_000_000;
/// Maximum number of slots: an hour of quarter seconds.
const SLOTS: usize = 14_400;
const SHORTEST_SLOT_NS: u64 = 100_000_000;

/// A histogram of nanoseconds.
#[derive(Debug)]
pub(super) struct Latencies(Histogram<u64>);

/// Milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Quantiles {
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub p99_9: f64,
    pub max: f64,
}

/// The deliveries and latencies of a quarter of a second.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct RunSlot {
    /// The end of the slot, in seconds since the start.
    pub at_s: f64,
    pub per_s: f64,
    /// The median latency in milliseconds; `None` if no message arrived.
    pub p50_ms: Option<f64>,
    pub p99_ms: Option<f64>,
}

/// The record of one run. Times are [`crate::clock::nanos`].
#[derive(Debug)]
pub(super) struct RunRecord {
    pub latencies: Latencies,
    start: u64,
    /// The end of the warm-up. Arrivals from then on count.
    counts_from: u64,
    counts_until: Option<u64>,
    measured: u64,
    last_arrival: u64,
    slot: Latencies,
    slot_start: u64,
    slots: Vec<RunSlot>,
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

impl RunRecord {
    /// Returns a record that begins at `start`. Messages that arrive in the warm-up are not
    /// counted.
    pub(super) fn new(start: u64, warmup: Duration) -> RunRecord {
        let warmup = u64::try_from(warmup.as_nanos()).unwrap_or(u64::MAX);
        RunRecord {
            latencies: Latencies::default(),
            start,
            counts_from: start.saturating_add(warmup),
            counts_until: None,
            measured: 0,
            last_arrival: start,
            slot: Latencies::default(),
            slot_start: start,
            slots: Vec::new(),
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

    /// Returns true if the warm-up is over.
    pub(super) fn counts(&self, now: u64) -> bool {
        now >= self.counts_from
    }

    /// Returns the number of counted deliveries.
    pub(super) fn measured(&self) -> u64 {
        self.measured
    }

    /// Returns the seconds of the measurement: up to its end if that was set, else up to the last
    /// counted delivery.
    pub(super) fn measured_s(&self) -> f64 {
        let end = self.counts_until.unwrap_or(self.last_arrival);
        seconds(end.saturating_sub(self.counts_from))
    }

    /// Returns deliveries per second, over [`RunRecord::measured_s`]; 0 if that is 0.
    pub(super) fn rate(&self) -> f64 {
        let over = self.measured_s();
        if over > 0.0 { self.measured as f64 / over } else { 0.0 }
    }

    /// Closes the current slot and returns it.
    pub(super) fn slot(&mut self, now: u64) -> RunSlot {
        let over = seconds(now.saturating_sub(self.slot_start));
        let quantiles = self.slot.quantiles();
        let slot = RunSlot {
            at_s: seconds(now.saturating_sub(self.start)),
            per_s: if over > 0.0 { self.slot.count() as f64 / over } else { 0.0 },
            p50_ms: quantiles.map(|quantiles| quantiles.p50),
            p99_ms: quantiles.map(|quantiles| quantiles.p99),
        };
        self.slot.0.reset();
        self.slot_start = now;
        if self.slots.len() < SLOTS {
            self.slots.push(slot);
        }
        slot
    }

    /// Closes the last slot. Leaves it out if it is too short for a rate.
    pub(super) fn close(&mut self, now: u64) {
        if self.slots.is_empty() || now.saturating_sub(self.slot_start) >= SHORTEST_SLOT_NS {
            self.slot(now);
        }
    }

    /// Returns the slots of the run so far.
    pub(super) fn slots(&self) -> &[RunSlot] {
        &self.slots
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
        assert_eq!((record.measured(), record.measured_s()), (2, 0.1));
        assert_eq!(record.rate(), 20.0);
        assert_eq!(record.latencies.count(), 1, "one was sent in the warm-up");
        let max = record.latencies.quantiles().unwrap().max;
        assert!((1.99..2.01).contains(&max), "{max}");
    }

    #[test]
    fn without_an_end_the_rate_is_up_to_the_last_arrival() {
        let mut record = RunRecord::new(0, Duration::ZERO);
        record.arrived(stamp(0), 500 * MS);
        record.arrived(stamp(0), 1000 * MS);
        assert_eq!(record.rate(), 2.0);
    }

    #[test]
    fn a_slot_holds_what_came_since_the_one_before() {
        let mut record = RunRecord::new(0, Duration::ZERO);
        record.arrived(stamp(0), 100 * MS);
        assert_eq!(record.slot(500 * MS).per_s, 2.0);
        let empty = record.slot(1000 * MS);
        assert_eq!((empty.per_s, empty.p50_ms, empty.at_s), (0.0, None, 1.0));
        assert_eq!(record.slots().len(), 2);
    }
}
