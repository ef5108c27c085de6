//! The clock of the load tester, which measures a broker from outside.

use homing_core::time::millis;
use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Returns the nanoseconds since the first call in this process. The value fits for 584 years.
pub(crate) fn nanos() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    #[expect(clippy::disallowed_methods, reason = "this file is where the clock is read")]
    let start = *START.get_or_init(Instant::now);
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the wall-clock milliseconds since 1970; zero if the clock is before 1970.
pub(crate) fn unix_millis() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "this file is where the clock is read")]
    let now = SystemTime::now();
    now.duration_since(UNIX_EPOCH).map_or(0, millis)
}
