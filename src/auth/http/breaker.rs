//! The pause after failures: a service that is down is not asked about each client, and the clients
//! get their refusal at once.
//!
//! After some failures in a row nobody is asked for a while. Then one request probes the service.
//! Its success ends the pause, and its failure begins another.

use crate::time::Instant;
use std::time::Duration;

/// Failures in a row that begin a pause.
pub const FAILURES: u32 = 5;

/// The length of a pause.
pub const PAUSE: Duration = Duration::from_secs(1);

/// The failures of one service.
#[derive(Clone, Copy, Debug, Default)]
pub struct CircuitBreaker {
    /// Failures since the last success.
    failures: u32,
    /// The end of the pause; `None` while the service is asked.
    paused_until: Option<Instant>,
    /// True if the probe behind the pause has no result yet.
    is_probing: bool,
}

impl CircuitBreaker {
    /// Returns true if the service may be asked now. Then the result has to be reported, by
    /// [`CircuitBreaker::succeeded`] or [`CircuitBreaker::failed`].
    pub fn admit(&mut self, now: Instant) -> bool {
        let Some(until) = self.paused_until else { return true };
        let is_probe = until <= now && !self.is_probing;
        self.is_probing |= is_probe;
        is_probe
    }

    /// Reports an answer. Returns true if the service had failed before.
    pub fn succeeded(&mut self) -> bool {
        std::mem::take(self).failures > 0
    }

    /// Reports a failure.
    pub fn failed(&mut self, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        if self.failures >= FAILURES {
            (self.paused_until, self.is_probing) = (Some(now + PAUSE), false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_millis(1_000);

    fn broken() -> CircuitBreaker {
        let mut breaker = CircuitBreaker::default();
        for _ in 0..FAILURES {
            assert!(breaker.admit(NOW));
            breaker.failed(NOW);
        }
        breaker
    }

    #[test]
    fn failures_in_a_row_pause_the_service() {
        let mut breaker = broken();
        assert!(!breaker.admit(NOW) && !breaker.admit(NOW + PAUSE - Duration::from_millis(1)));
    }

    #[test]
    fn a_success_between_failures_begins_the_count_again() {
        let mut breaker = CircuitBreaker::default();
        for _ in 0..10 {
            (1..FAILURES).for_each(|_| breaker.failed(NOW));
            assert!(breaker.succeeded() && breaker.admit(NOW));
        }
        assert!(!breaker.succeeded());
    }

    #[test]
    fn one_request_probes_the_service_behind_the_pause() {
        let mut breaker = broken();
        assert!(breaker.admit(NOW + PAUSE) && !breaker.admit(NOW + PAUSE));
        breaker.failed(NOW + PAUSE);
        assert!(!breaker.admit(NOW + PAUSE) && breaker.admit(NOW + PAUSE * 2));
        assert!(breaker.succeeded() && breaker.admit(NOW + PAUSE * 2) && breaker.admit(NOW + PAUSE * 2));
    }

    #[test]
    fn a_late_failure_of_an_earlier_request_keeps_the_pause() {
        let mut breaker = broken();
        breaker.failed(NOW + PAUSE / 2);
        assert!(!breaker.admit(NOW + PAUSE) && breaker.admit(NOW + PAUSE + PAUSE / 2));
    }
}
