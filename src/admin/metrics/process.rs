//! The metrics of the process, from `/proc/self`. Their names are those that all programs share.

use super::text::Kind::{self, Counter, Gauge};
use super::text::MetricsText;
use crate::clock;
use crate::time::Instant;
use std::fs;
use std::sync::OnceLock;

/// Writes the metrics. A value that the system does not tell is 0. Costs a few system calls.
pub(super) fn write(text: &mut MetricsText) {
    let mut single = |kind: Kind, name: &str, help: &str, value: f64| {
        text.common_family(kind, name, help).sample(&[], value);
    };
    let cpu = clock::process_cpu().as_secs_f64();
    single(Counter, "process_cpu_seconds_total", "Processor time of all threads.", cpu);
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let (resident, whole) = (kilobytes(&status, "VmRSS:"), kilobytes(&status, "VmSize:"));
    single(Gauge, "process_resident_memory_bytes", "Resident memory.", resident);
    single(Gauge, "process_virtual_memory_bytes", "Virtual memory.", whole);
    single(Gauge, "process_threads", "Threads.", field(&status, "Threads:"));
    single(Gauge, "process_open_fds", "Open file descriptors.", open_descriptors());
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let most = field(&limits, "Max open files");
    single(Gauge, "process_max_fds", "The largest number of open file descriptors.", most);
    let start = start_seconds();
    single(Gauge, "process_start_time_seconds", "Start of the process, since 1970.", start);
}

/// Returns the first number behind a name in a file of lines; 0 without one.
fn field(text: &str, name: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0.0)
}

fn kilobytes(text: &str, name: &str) -> f64 {
    field(text, name) * 1024.0
}

/// Returns the number of open file descriptors. From Linux 6.2 on, the size of the folder is their
/// number. Before that, the folder is read, which costs about 100 ns for each descriptor.
fn open_descriptors() -> f64 {
    const FOLDER: &str = "/proc/self/fd";
    let told = fs::metadata(FOLDER).map_or(0, |folder| folder.len());
    let counted = || fs::read_dir(FOLDER).map_or(0, |folder| folder.count() as u64);
    let open = if told > 0 { told } else { counted() };
    u32::try_from(open).map_or(f64::MAX, f64::from)
}

/// Returns the start of the process in seconds since 1970. The value never changes, although the
/// wall clock may be set.
fn start_seconds() -> f64 {
    static START: OnceLock<u64> = OnceLock::new();
    let start = *START.get_or_init(|| clock::unix_millis() - clock::now().millis_since(Instant::ZERO));
    u32::try_from(start / 1_000).map_or(0.0, f64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_has_memory_threads_and_descriptors() {
        let mut text = MetricsText::default();
        write(&mut text);
        let text = text.into_text();
        assert!(!text.contains("homing_"));
        for name in ["resident_memory_bytes", "virtual_memory_bytes", "threads", "open_fds", "max_fds"] {
            let value = field(&text, &format!("process_{name} "));
            assert!(value >= 1.0, "{name}: {text}");
        }
        assert!(open_descriptors() <= field(&text, "process_max_fds "));
    }
}
