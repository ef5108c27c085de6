//! Instants as the pure rooms know them: milliseconds since the process took its first reading.
//!
//! Nothing here reads a clock; [`crate::clock`] does, and hands the value in.

pub mod duration;

use std::ops::{Add, Sub};
use std::time::Duration;

/// A monotonic point in time, in whole milliseconds since the broker started.
///
/// Arithmetic saturates: a deadline beyond the end of time is the end of time, so no operator's or
/// client's number can wrap a deadline into the past.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    pub const ZERO: Instant = Instant(0);
    /// "Never": later than every deadline.
    pub const NEVER: Instant = Instant(u64::MAX);

    pub const fn from_millis(ms: u64) -> Instant {
        Instant(ms)
    }

    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Time passed since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Instant) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    pub const fn is_never(self) -> bool {
        self.0 == u64::MAX
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, d: Duration) -> Instant {
        // A `Duration` holds up to 2^64 s, so its milliseconds need 128 bits before they saturate.
        Instant(self.0.saturating_add(u64::try_from(d.as_millis()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;

    fn sub(self, d: Duration) -> Instant {
        Instant(self.0.saturating_sub(u64::try_from(d.as_millis()).unwrap_or(u64::MAX)))
    }
}
