//! Limits of the machine for the process: descriptors, a backlog, memory, a clock.

use crate::broker::OTHER_DESCRIPTORS;
use crate::clock::unix_millis;
use crate::config::Config;
use crate::finding::{Check, Finding, size};
use crate::store::SET_SINCE;
use rustix::process::{Resource, getrlimit};
use std::fs;

pub(super) fn findings(config: &Config) -> Vec<Finding> {
    vec![
        descriptors(u64::from(config.limits.connections), getrlimit(Resource::Nofile).maximum),
        backlog(u64::from(config.network.backlog), number_in("/proc/sys/net/core/somaxconn")),
        memory(config.limits.memory.bytes(), total_memory()),
        clock(unix_millis()),
    ]
}

/// The advice to raise the number of descriptors.
const RAISE: &str = "Set LimitNOFILE= of the unit, or ulimit -n";

/// `hard` is the hard limit, to which the broker raises its own; `None` for none.
fn descriptors(connections: u64, hard: Option<u64>) -> Finding {
    let Some(hard) = hard else { return Finding::ok(Check::Descriptors, "unlimited") };
    if connections + OTHER_DESCRIPTORS > hard {
        return Finding::warn(
            Check::Descriptors,
            format!("{hard} do not suffice for limits.connections {connections}"),
        )
        .advise(RAISE);
    }
    let room = hard.saturating_sub(OTHER_DESCRIPTORS);
    match hard {
        0..4096 => {
            Finding::warn(Check::Descriptors, format!("{hard}, which is enough for {room} connections"))
                .advise(RAISE)
        }
        _ => Finding::ok(Check::Descriptors, format!("{hard}, enough for {room} connections")),
    }
}

fn backlog(configured: u64, most: Option<u64>) -> Finding {
    match most {
        Some(most) if configured > most => Finding::warn(
            Check::Backlog,
            format!(
                "network.backlog is {configured}, and the system allows {most}: clients that return together wait for a second try"
            ),
        )
        .advise(format!("sysctl -w net.core.somaxconn={configured}")),
        _ => Finding::ok(Check::Backlog, format!("{configured} connections wait until they are accepted")),
    }
}

/// The broker takes half as much again as `limits.memory`, and 64 MiB: docs/operations.md.
fn memory(limit: u64, total: Option<u64>) -> Finding {
    let most = limit.saturating_add(limit / 2).saturating_add(64 << 20);
    match total {
        Some(total) if most > total => Finding::warn(
            Check::Memory,
            format!(
                "limits.memory {} may take {}, and there are {}: the system would end the broker first",
                size(limit),
                size(most),
                size(total)
            ),
        )
        .advise("Lower limits.memory"),
        Some(total) => {
            Finding::ok(Check::Memory, format!("limits.memory {} of {}", size(limit), size(total)))
        }
        None => Finding::warn(Check::Memory, "the system does not say how much there is"),
    }
}

fn clock(unix_ms: u64) -> Finding {
    match unix_ms < SET_SINCE {
        true => Finding::warn(
            Check::Clock,
            "it is before 2023: expiry over a restart and the dates of certificates cannot be checked",
        )
        .advise("Set it before the broker starts"),
        false => Finding::ok(Check::Clock, "set"),
    }
}

/// Returns the memory that the process may use, in bytes: that of the machine or of its control
/// group, if that is less.
fn total_memory() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
        Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
    });
    let group = number_in("/sys/fs/cgroup/memory.max")
        .or_else(|| number_in("/sys/fs/cgroup/memory/memory.limit_in_bytes"));
    machine.into_iter().chain(group).chain(own_group()).min()
}

/// Returns the limit of the control group of this process, version 2.
fn own_group() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    number_in(&format!("/sys/fs/cgroup{path}/memory.max"))
}

/// Returns the number that is all of a file; `None` for `max` and for a missing file.
fn number_in(file: &str) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Severity;

    #[test]
    fn a_limit_of_connections_needs_as_many_descriptors() {
        assert_eq!(descriptors(50_000, Some(1024)).severity, Severity::Warn);
        assert_eq!(descriptors(50_000, Some(50_064)).severity, Severity::Ok);
        assert_eq!(descriptors(0, Some(1024)).severity, Severity::Warn);
        assert_eq!(descriptors(0, None).severity, Severity::Ok);
    }

    #[test]
    fn memory_counts_with_what_the_process_takes_besides() {
        assert_eq!(memory(1 << 30, Some(1 << 30)).severity, Severity::Warn);
        assert_eq!(memory(1 << 30, Some(2 << 30)).severity, Severity::Ok);
        assert_eq!(memory(u64::MAX, Some(2 << 30)).severity, Severity::Warn);
    }

    #[test]
    fn a_clock_that_was_never_set_is_noticed() {
        assert_eq!(clock(0).severity, Severity::Warn);
        assert_eq!(clock(SET_SINCE).severity, Severity::Ok);
    }

    #[test]
    fn a_backlog_beyond_the_limit_of_the_system_is_noticed() {
        assert_eq!(backlog(4096, Some(128)).severity, Severity::Warn);
        assert_eq!(backlog(4096, Some(4096)).severity, Severity::Ok);
    }
}
