//! CPU time and memory of a broker on this machine, from `/proc`.

use serde::{Deserialize, Serialize};
use std::fs;
use std::io;

/// One reading of CPU time and memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProcessReading {
    /// CPU time of all present threads, in nanoseconds.
    cpu_ns: u64,
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
    let mut cpu_ns = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may end between the listing and the reading.
        let Ok(text) = fs::read_to_string(thread?.path().join("schedstat")) else { continue };
        cpu_ns += text.split(' ').next().and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
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
    /// Returns the cost since `earlier`.
    pub(super) fn since(&self, earlier: &ProcessReading) -> Cost {
        Cost {
            cpu_s: self.cpu_ns.saturating_sub(earlier.cpu_ns) as f64 / 1e9,
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
        assert!(reading.cpu_ns > 0 && reading.rss_bytes > 0 && reading.peak_bytes >= reading.rss_bytes);
    }

    #[test]
    fn cost_is_per_message() {
        let reading = |cpu_ns| ProcessReading { cpu_ns, rss_bytes: 1, peak_bytes: 2 };
        let mut cost = reading(5_000_000).since(&reading(1_000_000));
        cost.spread_over(1000);
        assert_eq!((cost.cpu_s, cost.cpu_us_per_message), (0.004, Some(4.0)));
        cost.spread_over(0);
        assert_eq!(cost.cpu_us_per_message, None);
    }
}
