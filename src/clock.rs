//! The only file that reads a clock. Everything else is told the time.

use crate::time::Instant;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The monotonic time, in milliseconds since the first call in this process.
pub fn now() -> Instant {
    Instant::from_millis(u64::try_from(since_start().as_millis()).unwrap_or(u64::MAX))
}

/// The same time in nanoseconds, for what measures latencies; it fits for 584 years.
pub fn nanos() -> u64 {
    u64::try_from(since_start().as_nanos()).unwrap_or(u64::MAX)
}

fn since_start() -> Duration {
    static START: OnceLock<std::time::Instant> = OnceLock::new();
    #[expect(clippy::disallowed_methods, reason = "this file is where the clock is read")]
    let start = *START.get_or_init(std::time::Instant::now);
    start.elapsed()
}

/// Wall-clock milliseconds since 1970, for what people and other processes read; never for a deadline.
pub fn unix_millis() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "this file is where the clock is read")]
    let now = SystemTime::now();
    now.duration_since(UNIX_EPOCH).map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
}
