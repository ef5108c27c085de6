//! The moving averages of `$SYS/broker/load/...`, as mosquitto computes them.
//!
//! Each value is a rate per minute. At each publication the rate of the last interval is mixed into
//! the average. Its weight is 1 - e^(-t/T), where t is the interval and T is 1, 5 or 15 minutes.

use crate::time::Instant;

/// The times of the averages: the level of the topic, and seconds.
pub(super) const WINDOWS: [(&str, f64); 3] = [("1min", 60.0), ("5min", 300.0), ("15min", 900.0)];

/// The counters that have averages: the levels of the topic between `load/` and the time.
pub(super) const LOADS: [&str; 9] = [
    "messages/received",
    "messages/sent",
    "publish/received",
    "publish/sent",
    "publish/dropped",
    "bytes/received",
    "bytes/sent",
    "sockets",
    "connections",
];

#[derive(Debug, Default)]
pub(super) struct LoadAverages {
    /// The time of the last call, and the counters then.
    last: Option<(Instant, [u64; LOADS.len()])>,
    averages: [[f64; WINDOWS.len()]; LOADS.len()],
}

impl LoadAverages {
    /// Takes the present values of the counters, in the order of [`LOADS`], and returns the new
    /// averages per minute. The first averages are the rates since the start of the process.
    pub(super) fn update(&mut self, now: Instant, counters: [u64; LOADS.len()]) -> &[[f64; 3]; LOADS.len()] {
        let (since, before) = self.last.unwrap_or((Instant::ZERO, [0; LOADS.len()]));
        let seconds = now.since(since).as_secs_f64();
        if seconds <= 0.0 {
            return &self.averages;
        }
        for (of, (now, before)) in self.averages.iter_mut().zip(counters.into_iter().zip(before)) {
            let per_minute = per_minute(now.saturating_sub(before), seconds);
            for (average, (_, window)) in of.iter_mut().zip(WINDOWS) {
                let kept = if self.last.is_some() { (-seconds / window).exp() } else { 0.0 };
                *average = per_minute + kept * (*average - per_minute);
            }
        }
        self.last = Some((now, counters));
        &self.averages
    }
}

#[expect(clippy::cast_precision_loss, reason = "an average is for people; counters are below 2^52")]
fn per_minute(events: u64, seconds: f64) -> f64 {
    events as f64 * 60.0 / seconds
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn an_average_begins_at_the_first_rate_and_follows_later_ones_as_fast_as_its_window() {
        let mut loads = LoadAverages::default();
        let at = |secs| Instant::ZERO + Duration::from_secs(secs);
        // 10 in 10 s are 60 in a minute.
        assert_eq!(loads.update(at(10), [10; LOADS.len()])[0], [60.0; 3]);
        // Nothing for 60 s: the shortest average keeps 1/e of itself.
        let [one, five, fifteen] = loads.update(at(70), [10; LOADS.len()])[0];
        assert!((one - 60.0 * (-1.0_f64).exp()).abs() < 1e-9, "{one}");
        assert!(one < five && five < fifteen && fifteen < 60.0);
        assert_eq!(loads.update(at(70), [99; LOADS.len()])[0][0], one, "no time has passed");
    }
}
