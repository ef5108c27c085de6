//! CPU time and memory of a broker on this machine, from `/proc`.

use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs;
use std::io;

/// One reading of CPU time and memory.
#[derive(Clone, Debug)]
pub(super) struct ProcessReading {
    /// CPU time of each present thread in nanoseconds, by the number of the thread.
    cpu_ns: HashMap<u64, u64>,
    rss_bytes: u64,
    peak_bytes: u64,
}

/// The CPU time between two readings, and the memory at the second.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Cost {
    pub cpu_s: f64,
    /// `None` if no message was delivered.
    pub cpu_us_per_message: Option<f64>,
    pub rss_bytes: u64,
    pub rss_peak_bytes: u64,
}

/// Reads CPU time and memory of a process from `/proc/PID`. CPU time is the scheduler's, in
/// nanoseconds, because the usual figure counts ticks of 10 ms.
///
/// # Errors
/// The process or `/proc` does not exist.
pub(super) fn read(pid: u32) -> io::Result<ProcessReading> {
    let mut cpu_ns = HashMap::new();
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let thread = thread?;
        let number = thread.file_name().to_str().and_then(|name| name.parse::<u64>().ok());
        // A thread may end between the listing and the reading.
        let text = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
        let used = text.split(' ').next().and_then(|field| field.parse::<u64>().ok());
        cpu_ns.extend(number.zip(used));
    }
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    Ok(ProcessReading {
        cpu_ns,
        rss_bytes: kibibytes(&status, "VmRSS:"),
        peak_bytes: kibibytes(&status, "VmHWM:"),
    })
}

fn kibibytes(status: &str, key: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    number.unwrap_or(0) * 1024
}

impl ProcessReading {
    /// Returns the cost since `earlier`. The CPU time of threads that have ended meanwhile is not
    /// known, and does not count.
    pub(super) fn since(&self, earlier: &ProcessReading) -> Cost {
        let before = |thread| earlier.cpu_ns.get(thread).copied().unwrap_or_default();
        let used: u64 = self.cpu_ns.iter().map(|(thread, now)| now.saturating_sub(before(thread))).sum();
        Cost {
            cpu_s: used as f64 / 1e9,
            cpu_us_per_message: None,
            rss_bytes: self.rss_bytes,
            rss_peak_bytes: self.peak_bytes,
        }
    }

    /// Returns the resident memory in bytes.
    pub(super) fn rss_bytes(&self) -> u64 {
        self.rss_bytes
    }
}

impl Cost {
    /// Divides the CPU time by the number of messages.
    pub(super) fn spread_over(&mut self, messages: u64) {
        self.cpu_us_per_message = (messages > 0).then(|| self.cpu_s * 1e6 / messages as f64);
    }

    /// Returns the larger of two readings of one broker, by CPU time.
    pub(super) fn or_larger(self, other: Cost) -> Cost {
        if other.cpu_s > self.cpu_s { other } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_can_be_read() {
        let reading = read(std::process::id()).unwrap();
        assert!(
            !reading.cpu_ns.is_empty() && reading.rss_bytes > 0 && reading.peak_bytes >= reading.rss_bytes
        );
    }

    fn reading(cpu_ns: &[(u64, u64)]) -> ProcessReading {
        ProcessReading { cpu_ns: cpu_ns.iter().copied().collect(), rss_bytes: 1, peak_bytes: 2 }
    }

    #[test]
    fn a_thread_that_ends_takes_nothing_from_what_others_used() {
        let cost = reading(&[(1, 300), (3, 50)]).since(&reading(&[(1, 100), (2, 9_000)]));
        assert_eq!(cost.cpu_s, 250.0 / 1e9);
    }

    #[test]
    fn cost_is_per_message() {
        let mut cost = reading(&[(7, 5_000_000)]).since(&reading(&[(7, 1_000_000)]));
        cost.spread_over(1000);
        assert_eq!((cost.cpu_s, cost.cpu_us_per_message), (0.004, Some(4.0)));
        cost.spread_over(0);
        assert_eq!(cost.cpu_us_per_message, None);
    }
}
