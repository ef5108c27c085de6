//! The clock of the broker. No other file reads one; everything else gets the time as an argument.

use crate::time::{Instant, millis};
use rustix::time::{ClockId, clock_gettime};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns the milliseconds since the first call in this process. The first call returns
/// [`Instant::ZERO`].
///
/// A suspend of the machine counts. Nobody can set this clock (`CLOCK_BOOTTIME`). A call costs no
/// system call from Linux 5.3 on.
pub fn now() -> Instant {
    static START: OnceLock<Duration> = OnceLock::new();
    let since_boot = read(ClockId::Boottime);
    let since_start = since_boot.saturating_sub(*START.get_or_init(|| since_boot));
    Instant::from_millis(millis(since_start))
}

/// Returns the nanoseconds since the first call in this process, to measure latencies.
///
/// The value fits for 584 years. This clock stops while the machine is suspended.
pub fn nanos() -> u64 {
    static START: OnceLock<std::time::Instant> = OnceLock::new();
    #[expect(clippy::disallowed_methods, reason = "this file is where the clock is read")]
    let start = *START.get_or_init(std::time::Instant::now);
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

fn read(clock: ClockId) -> Duration {
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}

/// Returns how long the machine has been suspended since its boot.
///
/// The value is the difference of two readings. A thread that is delayed between them gets a
/// smaller value, so compare each value with the largest one before.
pub fn suspended() -> Duration {
    // With the readings in this order, a delay between them makes the result smaller. A suspend
    // that did not happen is therefore never reported.
    let since_boot = read(ClockId::Boottime);
    since_boot.saturating_sub(read(ClockId::Monotonic))
}

/// Returns the processor time of this thread.
pub fn thread_cpu() -> Duration {
    read(ClockId::ThreadCPUTime)
}

/// Returns the processor time of all threads of this process.
pub fn process_cpu() -> Duration {
    read(ClockId::ProcessCPUTime)
}

/// Returns a number for this boot of this machine, below 2^63, and the milliseconds since the boot.
///
/// Returns `None` where the system has no readable boot identifier
/// (`/proc/sys/kernel/random/boot_id`).
pub fn boot() -> Option<(u64, u64)> {
    static ID: OnceLock<Option<u64>> = OnceLock::new();
    let id = (*ID.get_or_init(boot_id))?;
    Some((id, millis(read(ClockId::Boottime))))
}

/// Returns the first 63 bits of the boot identifier, nearly all of which are random.
fn boot_id() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).take(16).collect();
    u64::from_str_radix(&digits, 16).ok().map(|id| id >> 1)
}

/// Returns the wall-clock milliseconds since 1970, for people and other processes to read.
///
/// Anybody can set this clock, so no deadline may depend on it. Zero if the clock is before 1970.
pub fn unix_millis() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "this file is where the clock is read")]
    let now = SystemTime::now();
    now.duration_since(UNIX_EPOCH).map_or(0, millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_passed_counts_a_suspend_and_goes_on_through_the_processes_of_one_boot() {
        let (id, millis) = boot().expect("Linux says which boot this is");
        assert!(id < 1 << 63);
        let (since_boot, running) = (read(ClockId::Boottime), read(ClockId::Monotonic));
        assert!(since_boot.as_millis() as u64 >= millis);
        assert!(since_boot >= suspended() && running + suspended() <= since_boot + Duration::from_secs(60));
        let before = now();
        assert!(now() >= before);
    }
}
