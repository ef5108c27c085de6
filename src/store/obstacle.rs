//! An obstacle of a thread of the store, such as a lock of another process: when it began, and when
//! the log has the next line about it.

use crate::time::Instant;
use std::time::Duration;

/// The time between two log lines about one obstacle.
const SAY_AGAIN: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Obstacle {
    /// The time since which it lasts, and the time of the next line; `None` without an obstacle.
    lasts: Option<(Instant, Instant)>,
}

impl Obstacle {
    /// Notes that the thread has met the obstacle. If a line is due, returns the milliseconds for
    /// which it lasts.
    pub(super) fn met(&mut self, now: Instant) -> Option<u64> {
        let (since, say_again) = *self.lasts.get_or_insert((now, now));
        if now < say_again {
            return None;
        }
        self.lasts = Some((since, now + SAY_AGAIN));
        Some(now.since(since).as_millis() as u64)
    }

    /// Notes that nothing is in the way. Returns the milliseconds for which the obstacle lasted, if
    /// there was one.
    pub(super) fn gone(&mut self, now: Instant) -> Option<u64> {
        self.lasts.take().map(|(since, _)| now.since(since).as_millis() as u64)
    }
}
