//! The time until the next attempt: to connect to another broker, or to send a request of a sink.

use std::time::Duration;

/// The waits between the attempts of one bridge or sink: each is twice the one before, up to a maximum.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    first: Duration,
    most: Duration,
    next: Duration,
}

impl Backoff {
    /// Returns the waits that begin with `first` and grow to `most`.
    pub fn new(first: Duration, most: Duration) -> Backoff {
        Backoff { first, most: most.max(first), next: first }
    }

    /// Returns the next wait: between a half and all of it, as `chance` from 0 to 1 says. So many
    /// brokers do not come back to one address at the same moment.
    pub fn next(&mut self, chance: f64) -> Duration {
        let whole = self.next;
        self.next = whole.saturating_mul(2).min(self.most);
        whole.mul_f64(0.5 + chance.clamp(0.0, 1.0) / 2.0)
    }

    /// Begins anew if a connection lasted for longer than the next wait. A shorter one may have ended
    /// for a reason that the next one meets at once: a message that one side does not take, or another
    /// client with the same identifier.
    pub fn lasted(&mut self, time: Duration) {
        if time > self.next {
            self.reset();
        }
    }

    /// Begins anew, because an attempt was successful.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_maximum_and_begin_anew() {
        let seconds = Duration::from_secs;
        let mut backoff = Backoff::new(seconds(1), seconds(5));
        let waits: Vec<Duration> = (0..5).map(|_| backoff.next(1.0)).collect();
        assert_eq!(waits, [1, 2, 4, 5, 5].map(seconds));
        assert_eq!(backoff.next(0.0), Duration::from_millis(2_500));
        backoff.reset();
        assert_eq!(backoff.next(1.0), seconds(1));
    }
}
