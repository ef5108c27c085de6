//! The only file that reads a clock. Everything else is told the time.

use crate::time::Instant;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

/// The monotonic time, in milliseconds since the first call in this process.
pub fn now() -> Instant {
    static START: OnceLock<std::time::Instant> = OnceLock::new();
    #[expect(clippy::disallowed_methods, reason = "this file is where the clock is read")]
    let start = *START.get_or_init(std::time::Instant::now);
    Instant::from_millis(u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX))
}

/// Wall-clock milliseconds since 1970, for what people and other processes read; never for a deadline.
pub fn unix_millis() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "this file is where the clock is read")]
    let now = SystemTime::now();
    now.duration_since(UNIX_EPOCH).map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
}
