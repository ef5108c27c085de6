//! The only file that reads a clock. Everything else is told the time.

use crate::time::Instant;
use rustix::time::{ClockId, clock_gettime};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The time that passed, in milliseconds since the first call in this process. A suspend of the machine counts; nobody can set
/// this clock.
pub fn now() -> Instant {
    static START: OnceLock<Duration> = OnceLock::new();
    let since_boot = since_boot();
    let since_start = since_boot.saturating_sub(*START.get_or_init(|| since_boot));
    Instant::from_millis(u64::try_from(since_start.as_millis()).unwrap_or(u64::MAX))
}

/// Nanoseconds since the first call in this process, for what measures latencies; it fits for 584 years. It stands still
/// in a suspend.
pub fn nanos() -> u64 {
    static START: OnceLock<std::time::Instant> = OnceLock::new();
    #[expect(clippy::disallowed_methods, reason = "this file is where the clock is read")]
    let start = *START.get_or_init(std::time::Instant::now);
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Since the machine was booted, suspend included. As cheap as `CLOCK_MONOTONIC`: no system call from Linux 5.3 on.
fn since_boot() -> Duration {
    read(ClockId::Boottime)
}

fn read(clock: ClockId) -> Duration {
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}

/// How long the machine was suspended since its boot. Two reads: at each, compare with what was found before.
pub fn suspended() -> Duration {
    // In this order, a thread that is held up between the two finds less, and never a suspend that was none.
    let since_boot = since_boot();
    since_boot.saturating_sub(read(ClockId::Monotonic))
}

/// Which boot of which machine this is, as a number below 2^63, and the milliseconds since then. None where the system
/// does not say.
pub fn boot() -> Option<(u64, u64)> {
    static ID: OnceLock<Option<u64>> = OnceLock::new();
    let id = (*ID.get_or_init(boot_id))?;
    Some((id, u64::try_from(since_boot().as_millis()).unwrap_or(u64::MAX)))
}

/// The first 63 of the identifier's 122 random bits.
fn boot_id() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).take(16).collect();
    u64::from_str_radix(&digits, 16).ok().map(|id| id >> 1)
}

/// Wall-clock milliseconds since 1970, for what people and other processes read; never for a deadline.
pub fn unix_millis() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "this file is where the clock is read")]
    let now = SystemTime::now();
    now.duration_since(UNIX_EPOCH).map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_passed_counts_a_suspend_and_goes_on_through_the_processes_of_one_boot() {
        let (id, millis) = boot().expect("Linux says which boot this is");
        assert!(id < 1 << 63);
        let (since_boot, running) = (since_boot(), read(ClockId::Monotonic));
        assert!(since_boot.as_millis() as u64 >= millis);
        assert!(since_boot >= suspended() && running + suspended() <= since_boot + Duration::from_secs(60));
        let before = now();
        assert!(now() >= before);
    }
}
