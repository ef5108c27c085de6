//! The rate limiter of log lines and of the event topics. `log.events_per_second` bounds the lines about
//! clients (`events/log.rs`); refused connections, the HTTP service of logins and the bodies of sinks have
//! a limit of their own. An obstacle of a store has another rule: `src/store/obstacle.rs`.
//!
//! Time has periods of equal length, from the start of the process on. Each period admits a
//! number of things; the limiter counts the rest, so that a later line or event can say how many
//! are missing. So a limiter costs 16 bytes, needs no timer, and may admit twice its limit around
//! the end of a period.

use crate::config::Sys;
use crate::time::Instant;
use std::time::Duration;

/// A bound: at most `limit` things in each `period`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    /// Things that one period admits. 0 admits nothing.
    pub(super) limit: u32,
    /// The length of a period, in whole milliseconds; at least 1 ms.
    pub(super) period: Duration,
}

impl Rate {
    /// Returns the rate of `limit` things a second.
    pub(super) const fn per_second(limit: u32) -> Rate {
        Rate { limit, period: Duration::from_secs(1) }
    }

    /// Returns the rate of `limit` things a minute.
    pub(super) const fn per_minute(limit: u32) -> Rate {
        Rate { limit, period: Duration::from_secs(60) }
    }

    /// Returns the number of the period that `now` is in. The number wraps after 136 years of
    /// seconds.
    pub(super) fn period_of(self, now: Instant) -> u32 {
        (now.as_millis() / self.period.as_millis() as u64) as u32
    }
}

/// The rates of the event topics of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventRates {
    /// Events of all clients in a second.
    pub per_second: u32,
    /// Events of each kind and client in a minute.
    pub per_client: u32,
}

impl EventRates {
    /// Returns the rates of each of `threads` threads; `None` without event topics.
    pub(super) fn of(sys: &Sys, threads: usize) -> Option<EventRates> {
        let threads = u32::try_from(threads.max(1)).unwrap_or(u32::MAX);
        let per_second = sys.events_per_second.div_ceil(threads);
        sys.events.then_some(EventRates { per_second, per_client: sys.events_per_client })
    }
}

/// The things that one rate has admitted in the present period, and refused since the last
/// question.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RateLimiter {
    period: u32,
    admitted: u32,
    refused: u64,
}

impl RateLimiter {
    /// Counts one thing, and returns true if the period of `now` admits it.
    ///
    /// A `now` of an earlier period counts for the present one, since the clocks of two threads
    /// differ a little.
    pub(super) fn admit(&mut self, rate: Rate, now: Instant) -> bool {
        let period = rate.period_of(now);
        if period > self.period {
            (self.period, self.admitted) = (period, 0);
        }
        let is_admitted = self.admitted < rate.limit;
        if is_admitted {
            self.admitted += 1;
        } else {
            self.refused += 1;
        }
        is_admitted
    }

    /// Returns true if [`RateLimiter::admit`] would admit one thing now. Counts nothing.
    pub(super) fn has_room(&self, rate: Rate, now: Instant) -> bool {
        let is_new_period = rate.period_of(now) > self.period;
        rate.limit > 0 && (is_new_period || self.admitted < rate.limit)
    }

    /// Counts one thing that another bound has refused.
    pub(super) fn refuse(&mut self) {
        self.refused += 1;
    }

    /// Returns the number of things refused since the last call.
    pub(super) fn take_refused(&mut self) -> u64 {
        std::mem::take(&mut self.refused)
    }

    /// Returns true if something was refused since the last [`RateLimiter::take_refused`].
    pub(super) fn has_refused(&self) -> bool {
        self.refused > 0
    }

    /// Returns the number of the latest period that admitted or refused something.
    pub(super) fn latest_period(&self) -> u32 {
        self.period
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    #[test]
    fn a_period_admits_its_limit_and_the_next_one_again() {
        let (mut limiter, rate) = (RateLimiter::default(), Rate::per_second(2));
        let admitted = [0, 500, 999, 1_000, 1_001, 1_002].map(|ms| limiter.admit(rate, at(ms)));
        assert_eq!(admitted, [true, true, false, true, true, false]);
        assert_eq!((limiter.take_refused(), limiter.take_refused()), (2, 0));
    }

    #[test]
    fn a_time_of_an_earlier_period_counts_for_the_present_one() {
        let (mut limiter, rate) = (RateLimiter::default(), Rate::per_minute(1));
        assert!(limiter.admit(rate, at(60_000)));
        assert!(!limiter.admit(rate, at(59_999)));
        assert!(limiter.admit(rate, at(120_000)));
    }

    #[test]
    fn a_limit_of_zero_admits_nothing() {
        assert!(!RateLimiter::default().admit(Rate::per_second(0), at(5_000)));
    }
}
