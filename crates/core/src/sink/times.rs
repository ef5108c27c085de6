//! How long the service of a sink takes.

use crate::time::histogram::{Distribution, Histogram};
use crate::time::{Instant, millis};
use std::time::Duration;

/// Half of the time that a recent figure looks back at most.
const HALF: Duration = Duration::from_secs(30);

/// The times of the requests of a sink: all, and those of the last 30 to 60 seconds. 580 bytes.
#[derive(Clone, Debug, Default)]
pub struct RequestTimes {
    all: Histogram,
    /// The times since `began`, and those of the 30 seconds before.
    recent: [Histogram; 2],
    began: Instant,
}

impl RequestTimes {
    /// Counts a request that ends now.
    pub fn add(&mut self, now: Instant, took: Duration) {
        self.turn(now);
        self.all.add(millis(took));
        self.recent[0].add(millis(took));
    }

    /// Returns all times.
    pub fn distribution(&self) -> Distribution {
        self.all.distribution()
    }

    /// Returns the time within which 99 % of the last requests ended, rounded up to a power of two
    /// of milliseconds; `None` if none ended in the last half of a minute.
    pub fn recent_p99(&self, now: Instant) -> Option<Duration> {
        let mut both = self.clone();
        both.turn(now);
        let [last, before] = &mut both.recent;
        last.merge(before);
        last.distribution().p99()
    }

    /// Forgets what is too old.
    fn turn(&mut self, now: Instant) {
        match now.since(self.began) {
            age if age < HALF => return,
            age if age < HALF * 2 => self.recent.swap(0, 1),
            _ => self.recent[1] = Histogram::default(),
        }
        self.recent[0] = Histogram::default();
        self.began = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_request_counts_for_a_minute_at_most_and_for_good_in_all_times() {
        let at = |secs| Instant::ZERO + Duration::from_secs(secs);
        let ms = Duration::from_millis;
        let mut times = RequestTimes::default();
        assert_eq!(times.recent_p99(at(0)), None);
        times.add(at(1), ms(900));
        assert_eq!(times.recent_p99(at(29)), Some(ms(1_024)));
        times.add(at(31), ms(3));
        assert_eq!(times.recent_p99(at(60)), Some(ms(1_024)));
        assert_eq!(times.recent_p99(at(61)), Some(ms(4)), "the slow one is forgotten");
        assert_eq!(times.recent_p99(at(200)), None);
        assert_eq!(times.distribution().p99(), Some(ms(1_024)));
    }
}
