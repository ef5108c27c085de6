//! The time of the pure modules: milliseconds since the process read its clock for the first time.
//!
//! Nothing here reads a clock. `src/clock.rs` does, and hands the value in as an argument.

pub mod age;
pub mod duration;
pub mod histogram;

use std::ops::{Add, Sub};
use std::time::Duration;

/// A monotonic point in time, in whole milliseconds since the process first read its clock.
///
/// Arithmetic saturates at [`Instant::ZERO`] and [`Instant::NEVER`]. So no number of an operator or
/// a client can wrap a deadline into the past.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The start of time: the first reading of the clock. Stands for all times before the process,
    /// too.
    pub const ZERO: Instant = Instant(0);
    /// The end of time, which means "never". No other instant is as late.
    pub const NEVER: Instant = Instant(u64::MAX);

    /// Returns the instant `ms` milliseconds after [`Instant::ZERO`]; `u64::MAX` gives
    /// [`Instant::NEVER`].
    pub const fn from_millis(ms: u64) -> Instant {
        Instant(ms)
    }

    /// Returns the milliseconds since [`Instant::ZERO`]; `u64::MAX` for [`Instant::NEVER`].
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Returns the time that passed since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Instant) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// Returns the whole milliseconds that passed since `earlier`; zero if `earlier` is later.
    #[inline]
    pub const fn millis_since(self, earlier: Instant) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// True for [`Instant::NEVER`].
    pub const fn is_never(self) -> bool {
        self.0 == u64::MAX
    }
}

/// Returns the whole milliseconds of a duration, rounded down; `u64::MAX` for more. A `Duration`
/// holds up to 2^64 s, so its milliseconds need 128 bits.
#[inline]
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, d: Duration) -> Instant {
        Instant(self.0.saturating_add(millis(d)))
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;

    fn sub(self, d: Duration) -> Instant {
        Instant(self.0.saturating_sub(millis(d)))
    }
}
