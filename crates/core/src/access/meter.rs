//! Token buckets for messages and bytes, each in one timestamp.
//!
//! The algorithm is GCRA (ITU-T I.371), the generic cell rate algorithm. The timestamp is the time
//! at which all metered units are paid for, if the peer sends at its rate. A peer that sends less
//! has the timestamp in the past, where it stays at `now`. A peer may be ahead of its rate by the
//! *burst*, a span of time. Further ahead it is in debt, and [`RateMeter::due`] says until when.
//!
//! A meter refuses nothing: the units are metered when they have come, and the caller stops to read
//! until the debt is paid. So one large packet may make a long debt, and the rate holds on average.

use crate::time::Instant;
use std::time::Duration;

const NANOS_PER_SECOND: u64 = 1_000_000_000;
const NANOS_PER_MILLI: u64 = 1_000_000;

/// A number of units a second, and how far a peer may be ahead of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeteredRate {
    per_second: u64,
    burst_ns: u64,
}

impl MeteredRate {
    /// Returns the rate of `per_second` units; `None` for 0, which means no limit.
    ///
    /// `burst` is the span of time by which a peer may be ahead. The rate is reached only if a peer
    /// that was stopped is read again within `burst` after its debt is paid. Besides the metered
    /// unit, at least one more may come at once.
    pub fn new(per_second: u64, burst: Duration) -> Option<MeteredRate> {
        let burst_ns = u64::try_from(burst.as_nanos()).unwrap_or(u64::MAX);
        (per_second > 0).then(|| {
            let mut rate = MeteredRate { per_second, burst_ns };
            rate.burst_ns = burst_ns.max(rate.cost_ns(1));
            rate
        })
    }

    /// Returns the time that `units` take at this rate, in nanoseconds, rounded up.
    fn cost_ns(self, units: u64) -> u64 {
        units.saturating_mul(NANOS_PER_SECOND).div_ceil(self.per_second)
    }
}

/// The meter of one rate. 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateMeter {
    /// The time at which everything metered is paid for, in nanoseconds.
    paid_ns: u64,
}

impl RateMeter {
    /// Returns the meter of a peer that has sent nothing yet.
    pub fn new(now: Instant) -> RateMeter {
        RateMeter { paid_ns: nanos(now) }
    }

    /// Charges received messages or bytes.
    #[inline]
    pub fn meter(&mut self, now: Instant, rate: MeteredRate, units: u64) {
        self.paid_ns = self.paid_ns.max(nanos(now)).saturating_add(rate.cost_ns(units));
    }

    /// Returns the earliest time at which the peer has no debt, in whole milliseconds, rounded up.
    /// The time has passed if there is no debt now.
    #[inline]
    pub fn due(self, rate: MeteredRate) -> Instant {
        Instant::from_millis(self.paid_ns.saturating_sub(rate.burst_ns).div_ceil(NANOS_PER_MILLI))
    }
}

fn nanos(now: Instant) -> u64 {
    now.as_millis().saturating_mul(NANOS_PER_MILLI)
}

/// The rates of the packets from one client; `None` for no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrafficRates {
    /// PUBLISH packets.
    pub messages: Option<MeteredRate>,
    /// Bytes of all packets.
    pub bytes: Option<MeteredRate>,
}

impl TrafficRates {
    /// Returns true if nothing is limited.
    pub fn are_unlimited(self) -> bool {
        self.messages.is_none() && self.bytes.is_none()
    }
}

/// The meters of the packets from one client. 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrafficMeter {
    messages: RateMeter,
    bytes: RateMeter,
}

impl TrafficMeter {
    /// Returns the meters of a client that has sent nothing yet.
    pub fn new(now: Instant) -> TrafficMeter {
        TrafficMeter { messages: RateMeter::new(now), bytes: RateMeter::new(now) }
    }

    /// Charges packets, and returns the earliest time at which the client has no debt.
    pub fn meter(&mut self, now: Instant, rates: TrafficRates, messages: u64, bytes: u64) -> Instant {
        if let Some(rate) = rates.messages {
            self.messages.meter(now, rate, messages);
        }
        if let Some(rate) = rates.bytes {
            self.bytes.meter(now, rate, bytes);
        }
        self.due(rates)
    }

    /// Returns the earliest time at which the client has no debt. The time has passed if there is
    /// no debt now.
    pub fn due(self, rates: TrafficRates) -> Instant {
        let due =
            |meter: RateMeter, rate: Option<MeteredRate>| rate.map_or(Instant::ZERO, |rate| meter.due(rate));
        due(self.messages, rates.messages).max(due(self.bytes, rates.bytes))
    }

    /// Returns the time at which everything metered is paid for, in whole milliseconds, rounded up.
    /// From then on, the meter equals a new one.
    pub fn paid(self) -> Instant {
        Instant::from_millis(self.messages.paid_ns.max(self.bytes.paid_ns).div_ceil(NANOS_PER_MILLI))
    }

    /// Returns the meter with the greater debt of both, for each rate.
    pub fn or_more(self, other: TrafficMeter) -> TrafficMeter {
        let more = |one: RateMeter, other: RateMeter| RateMeter { paid_ns: one.paid_ns.max(other.paid_ns) };
        TrafficMeter { messages: more(self.messages, other.messages), bytes: more(self.bytes, other.bytes) }
    }

    /// Returns the meter with everything paid for by `end` at the latest.
    pub fn paid_by(self, end: Instant) -> TrafficMeter {
        let less = |meter: RateMeter| RateMeter { paid_ns: meter.paid_ns.min(nanos(end)) };
        TrafficMeter { messages: less(self.messages), bytes: less(self.bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    fn rate(per_second: u64, burst_ms: u64) -> MeteredRate {
        MeteredRate::new(per_second, Duration::from_millis(burst_ms)).unwrap()
    }

    #[test]
    fn a_rate_of_zero_is_no_limit() {
        assert_eq!(MeteredRate::new(0, Duration::ZERO), None);
        assert!(TrafficRates::default().are_unlimited());
    }

    #[test]
    fn a_client_below_its_rate_has_no_debt() {
        let rates = TrafficRates { messages: Some(rate(1, 0)), bytes: Some(rate(1_000, 100)) };
        let mut meter = TrafficMeter::new(at(0));
        for second in 0..100 {
            let now = at(second * 1_000);
            assert!(meter.meter(now, rates, 1, 1_000) <= now + Duration::from_millis(900), "{second}");
        }
    }

    #[test]
    fn the_longer_debt_counts() {
        let rates = TrafficRates { messages: Some(rate(10, 0)), bytes: Some(rate(100, 0)) };
        // One unit may come at once: 100 ms of messages, and 10 ms of bytes.
        assert_eq!(TrafficMeter::new(at(0)).meter(at(0), rates, 10, 1), at(900));
        assert_eq!(TrafficMeter::new(at(0)).meter(at(0), rates, 1, 1_000), at(9_990));
    }

    #[test]
    fn a_long_silence_saves_no_more_than_the_burst() {
        let rate = rate(100, 500);
        let mut meter = RateMeter::new(at(0));
        meter.meter(at(60_000), rate, 50);
        assert!(meter.due(rate) <= at(60_000));
        meter.meter(at(60_000), rate, 1);
        assert_eq!(meter.due(rate), at(60_010));
    }

    proptest! {
        /// Compares the meter with a bucket whose tokens are counted as fractions.
        #[test]
        fn the_meter_is_a_token_bucket(
            per_second in 1_u64..2_000_000,
            burst_ms in 0_u64..1_000,
            steps in prop::collection::vec((0_u64..700, 1_u64..5_000), 1..200),
        ) {
            let rate = rate(per_second, burst_ms);
            let room = rate.burst_ns as f64 / 1e9 * per_second as f64;
            let (mut now, mut meter, mut tokens) = (0, RateMeter::new(at(0)), room);
            for (wait, units) in steps {
                now += wait;
                tokens = (tokens + wait as f64 / 1e3 * per_second as f64).min(room);
                meter.meter(at(now), rate, units);
                tokens -= units as f64;
                let expected = if tokens >= 0.0 { 0.0 } else { -tokens / per_second as f64 * 1e3 };
                let debt = meter.due(rate).since(at(now)).as_millis() as f64;
                prop_assert!((debt - expected).abs() <= 1.5, "{debt} {expected}");
            }
        }

        /// A client sends without a pause, and is read again at a tick of the expiry queue.
        #[test]
        fn a_rate_holds_within_five_percent_over_ten_seconds(
            per_second in 10_u64..10_000,
            tick in prop::sample::select(vec![10_u64, 50, 250]),
            offset in 0_u64..1_000,
            late in 0_u64..50,
        ) {
            let rate = rate(per_second, tick * 5 / 4);
            let (mut now, mut meter, mut units) = (offset, RateMeter::new(at(offset)), 0_u64);
            while now < offset + 10_000 {
                meter.meter(at(now), rate, 1);
                units += 1;
                let due = meter.due(rate);
                if due > at(now) {
                    now = (due.as_millis() / tick + 1) * tick + late * tick / 250;
                }
            }
            let ratio = units as f64 / (per_second * 10) as f64;
            prop_assert!((0.95..=1.05).contains(&ratio) || per_second < 40 && units.abs_diff(per_second * 10) <= 5, "{ratio}");
        }
    }
}
