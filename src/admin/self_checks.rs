//! The checks that a running broker makes of itself, for `homing doctor` and `GET /api/v1/doctor`.

use crate::admin::advice;
use crate::admin::human::{self, bytes, counted};
use crate::admin::pages::far_problems::far_problems;
use crate::admin::pages::problems::BrokerProblem;
use crate::admin::readiness::{SILENT, late_threads};
use crate::admin::store_state::{SLOW, SLOW_SYNC, StoreState, Used, lag_of};
#[cfg(feature = "otlp")]
use crate::broker::export_counts::ExportCounts;
use crate::broker::observer::Observer;
#[cfg(feature = "otlp")]
use crate::config::OtlpSignal;
use crate::finding::{Check, Finding};
use crate::log::stderr;
use crate::store::ship::ShipFigures;
use crate::time::Instant;
use crate::time::duration::{long, seconds};
use std::time::Duration;

/// A share of a limit, in percent, from which it is reported.
const NEARLY: u64 = 80;

/// Time for which a drop is a warning. An older one is told, and no trouble any more.
const LATELY: Duration = Duration::from_hours(1);

/// Time for the values in force, which wait for the end of a reload.
const CONFIGURATION: Duration = Duration::from_secs(2);

/// The facts that a broker reports of itself.
pub struct SelfReport<'a> {
    /// Its version.
    pub version: &'a str,
    /// The threads that gave no sign of life for `SILENT`.
    pub late: Vec<String>,
    /// Bytes that count against `limits.memory`, and the limit.
    pub memory: (u64, u64),
    /// Messages dropped since the start.
    pub dropped: u64,
    /// The time since the last drop; `None` if it is not known, or nothing was dropped.
    pub last_drop_ago: Option<Duration>,
    /// The state of its store; `None` without one.
    pub store: Option<StoreState>,
    /// The keys whose values wait for a restart, or why they are not known.
    pub pending: Result<Vec<String>, String>,
}

impl SelfReport<'_> {
    /// Returns the findings of the checks that the report is enough for.
    pub fn findings(&self) -> Vec<Finding> {
        let mut findings = vec![self.version(), self.threads(), self.memory(), self.drops(), self.restart()];
        if let Some(store) = self.store {
            findings.push(commits(store));
            findings.extend(store.sync_p99.map(syncs));
            findings.push(store_log(store));
            findings.extend(store.copy.map(copy));
        }
        findings
    }

    fn version(&self) -> Finding {
        let (version, own) = (self.version, env!("CARGO_PKG_VERSION"));
        match version == own {
            true => Finding::ok(Check::Broker, format!("version {version} answers")),
            false => {
                Finding::warn(Check::Broker, format!("it is version {version}, and this program is {own}"))
                    .advise("Restart it")
            }
        }
    }

    fn threads(&self) -> Finding {
        let silent = seconds(SILENT);
        match self.late.is_empty() {
            true => Finding::ok(Check::Threads, "all give signs of life"),
            false => {
                let text = format!("no sign of life of {} for {silent}", self.late.join(", "));
                Finding::fail(Check::Threads, text).advise(advice::THREAD_HANGS)
            }
        }
    }

    fn memory(&self) -> Finding {
        let (bytes, limit) = self.memory;
        let text = format!("{} of {} (limits.memory)", human::bytes(bytes), human::bytes(limit));
        match is_nearly(bytes, limit) {
            false => Finding::ok(Check::MemoryInUse, text),
            true => {
                Finding::warn(Check::MemoryInUse, format!("{text}: at the limit new messages are refused"))
                    .advise(advice::MEMORY)
            }
        }
    }

    fn drops(&self) -> Finding {
        let mut text = format!("{} since the start", counted(self.dropped, "message"));
        if let Some(ago) = self.last_drop_ago {
            text += &format!(", the last one {} ago", seconds(ago));
        }
        match self.dropped {
            0 => Finding::ok(Check::Drops, "none since the start"),
            _ if self.last_drop_ago.is_some_and(|ago| ago >= LATELY) => Finding::ok(Check::Drops, text),
            _ => Finding::warn(Check::Drops, text).advise(advice::DROPS),
        }
    }

    fn restart(&self) -> Finding {
        match &self.pending {
            Ok(keys) if keys.is_empty() => Finding::ok(Check::Restart, "no changed key waits for one"),
            Ok(keys) => {
                let keys = keys.join(", ");
                Finding::warn(
                    Check::Restart,
                    format!("these keys differ from those in force, and need one: {keys}"),
                )
                .advise("Restart the broker when it suits")
            }
            Err(error) => {
                Finding::fail(Check::Restart, format!("the configuration cannot be read again: {error}"))
            }
        }
    }
}

/// Makes the checks of the broker of this process. Returns the findings.
pub(super) async fn self_checks(observer: &Observer) -> Vec<Finding> {
    let statistics = observer.statistics();
    let now = crate::clock::now();
    let pending = match tokio::time::timeout(CONFIGURATION, observer.configuration()).await {
        Ok(pending) => pending.map_err(|_| "the broker stops".to_owned()),
        Err(_) => Err("a reload is under way".to_owned()),
    };
    let total = statistics.total();
    let report = SelfReport {
        version: env!("CARGO_PKG_VERSION"),
        late: late_threads(observer, now).into_iter().map(|late| late.name.into()).collect(),
        memory: (statistics.memory(), statistics.memory_limit()),
        dropped: total.counters.drops.total(),
        last_drop_ago: statistics.last_drop().map(|last| now.since(last)),
        store: StoreState::of(observer, now),
        pending: pending.map(|keys| {
            keys.into_iter().filter(|key| key.pending.is_some()).map(|key| key.key.into_owned()).collect()
        }),
    };
    let (limits, shared) = (statistics.limits(), observer.shared());
    let mut findings = report.findings();
    findings.push(near_limits(&[
        ("limits.connections", statistics.connections() as u64, limits.connections as u64),
        ("limits.sessions", total.sessions, limits.sessions as u64),
        ("limits.retained_messages", shared.retained().len() as u64, limits.retained_messages as u64),
        (
            "limits.delayed_messages",
            shared.totals.delayed_messages.get() as u64,
            limits.delayed_messages as u64,
        ),
    ]));
    findings.extend(far_sides(observer, now));
    findings.push(log_lines(stderr::dropped()));
    #[cfg(feature = "otlp")]
    findings.extend(statistics.export.get().map(|counts| export(counts)));
    findings.push(deadlines(statistics.expiry.lateness.p99()));
    findings
}

fn is_nearly(used: u64, limit: u64) -> bool {
    used.saturating_mul(100) > limit.saturating_mul(NEARLY)
}

/// `used`: the key of each limit, the present use, and the limit.
fn near_limits(used: &[(&str, u64, u64)]) -> Finding {
    let near = used.iter().filter(|(_, used, limit)| is_nearly(*used, *limit));
    let near: Vec<String> = near.map(|(key, used, limit)| format!("{key}: {used} of {limit}")).collect();
    match near.is_empty() {
        true => Finding::ok(Check::Limits, format!("all are used to {NEARLY} % at most")),
        false => Finding::warn(Check::Limits, near.join(", "))
            .advise("Raise the limit, or find out who uses it up"),
    }
}

/// Returns the problems of bridges and sinks, or that there is none; nothing without one of them.
fn far_sides(observer: &Observer, now: Instant) -> Vec<Finding> {
    let (bridges, sinks) = (observer.bridges().count(), observer.sinks().count());
    if bridges + sinks == 0 {
        return Vec::new();
    }
    let problems = far_problems(observer, now);
    if problems.is_empty() {
        let (bridges, sinks) = (counted(bridges as u64, "bridge"), counted(sinks as u64, "sink"));
        return vec![Finding::ok(Check::FarSides, format!("{bridges} and {sinks} without a problem"))];
    }
    let finding = |problem: &BrokerProblem| {
        Finding::warn(Check::FarSides, &*problem.text).advise(problem.kind.advice())
    };
    problems.iter().map(finding).collect()
}

fn log_lines(lost: u64) -> Finding {
    match lost {
        0 => Finding::ok(Check::Log, "no line was lost since the start"),
        _ => Finding::warn(
            Check::Log,
            format!("{lost} lines were lost since the start, because nobody read them in time"),
        )
        .advise("See what reads standard error, or raise log.level"),
    }
}

#[cfg(feature = "otlp")]
fn export(counts: &ExportCounts) -> Finding {
    let lost: u64 = OtlpSignal::ALL.iter().map(|signal| counts.lost(*signal)).sum();
    let lost = format!("{lost} records were lost since the start");
    match counts.first_failing() {
        None => Finding::ok(Check::Otlp, lost),
        Some((signal, reason)) => {
            let text = format!("the collector does not take {}: {reason}; {lost}", signal.name());
            Finding::warn(Check::Otlp, text).advise(advice::EXPORT_FAILS)
        }
    }
}

fn deadlines(late: Duration) -> Finding {
    let text = format!("99 % were found within {} since the start", seconds(late));
    match late > SLOW {
        false => Finding::ok(Check::Deadlines, text),
        true => Finding::warn(Check::Deadlines, text).advise(advice::LATE_DEADLINES),
    }
}

fn commits(store: StoreState) -> Finding {
    if store.is_full {
        return Finding::fail(Check::Commits, "the store is full: what must be stored is refused")
            .advise(advice::STORE_FULL);
    }
    if store.is_late() {
        let age = long(store.oldest_uncommitted);
        let text =
            format!("a change has waited {age} for its commit: nothing that must be stored is acknowledged");
        return Finding::fail(Check::Commits, text).advise(advice::STORE_LATE);
    }
    if store.damaged > 0 {
        let text = format!("stored messages were damaged when they were read, {} times", store.damaged);
        return Finding::fail(Check::Commits, text).advise(advice::STORE_DAMAGED);
    }
    if store.is_behind() {
        let age = long(store.oldest_unapplied);
        return Finding::warn(Check::Commits, format!("a change has waited {age} for the database"))
            .advise(advice::STORE_BEHIND);
    }
    let took = store.commit_p99;
    let text = format!("99 % took {} at most since the start", seconds(took));
    match took > SLOW {
        false => Finding::ok(Check::Commits, text),
        true => Finding::warn(Check::Commits, text).advise(advice::SLOW_DISK),
    }
}

fn syncs(p99: Duration) -> Finding {
    let text = format!("99 % took {} at most since the start", seconds(p99));
    match p99 > SLOW_SYNC {
        false => Finding::ok(Check::Sync, text),
        true => {
            let text = format!("{text}: the disk is slow, and a stored message waits for up to four");
            Finding::warn(Check::Sync, text).advise(advice::SLOW_DISK)
        }
    }
}

fn store_log(store: StoreState) -> Finding {
    let StoreState { log, unapplied, .. } = store;
    let of = |used: Used| format!("{} of {} at most", bytes(used.bytes), bytes(used.limit));
    let text = format!("{}, and {} that the database does not have", of(log), of(unapplied));
    let (at_limit, fix) = match store.copy {
        _ if is_nearly(unapplied.bytes, unapplied.limit) => ("commits wait", advice::STORE_BEHIND),
        _ if !is_nearly(log.bytes, log.limit) => return Finding::ok(Check::StoreLog, text),
        None => ("commits wait", advice::STORE_BEHIND),
        Some(_) => ("the copy at store.ship_to begins again with a whole database", advice::COPY_LATE),
    };
    Finding::warn(Check::StoreLog, format!("{text}: at the limit {at_limit}")).advise(fix)
}

fn copy(copy: ShipFigures) -> Finding {
    let text = format!("the copy at store.ship_to {}", lag_of(&copy));
    match copy.is_late() {
        false => Finding::ok(Check::Copy, text),
        true => Finding::warn(Check::Copy, text).advise(advice::COPY_LATE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::store_state::LATE;
    use crate::finding::Severity;

    #[test]
    fn a_limit_that_is_nearly_used_up_is_named() {
        let found = near_limits(&[("limits.sessions", 80, 100), ("limits.connections", 81, 100)]);
        assert_eq!((found.severity, &*found.text), (Severity::Warn, "limits.connections: 81 of 100"));
        assert_eq!(near_limits(&[("limits.sessions", 80, 100)]).severity, Severity::Ok);
    }

    #[test]
    fn lost_log_lines_late_deadlines_slow_commits_and_a_full_store_are_found() {
        let store = |commit_p99| StoreState { commit_p99, ..StoreState::default() };
        let severities = [log_lines(0), deadlines(SLOW), commits(store(SLOW))].map(|found| found.severity);
        assert_eq!(severities, [Severity::Ok; 3]);
        let slow = SLOW * 2;
        let full = StoreState { is_full: true, ..store(SLOW) };
        let late = StoreState { oldest_uncommitted: LATE * 2, ..store(SLOW) };
        let far = ShipFigures { lag: Duration::from_mins(2), ..ShipFigures::default() };
        assert_eq!(
            [copy(far), copy(ShipFigures::default())].map(|found| found.severity),
            [Severity::Warn, Severity::Ok]
        );
        let behind = StoreState { oldest_unapplied: Duration::from_secs(31), ..store(SLOW) };
        let damaged = StoreState { damaged: 1, ..behind };
        let states = [store(slow), behind, damaged, full, late];
        let [slow_store, behind, damaged, full, late] = states.map(commits);
        let found = [log_lines(1), deadlines(slow), slow_store, behind, damaged, full, late];
        assert!(found.iter().all(|found| !found.advice.is_empty()), "{found:?}");
        assert_eq!(
            found.map(|found| found.severity),
            [
                Severity::Warn,
                Severity::Warn,
                Severity::Warn,
                Severity::Warn,
                Severity::Fail,
                Severity::Fail,
                Severity::Fail
            ]
        );
    }

    #[test]
    fn a_slow_sync_is_found_from_a_quarter_of_a_slow_commit_on() {
        assert_eq!(SLOW_SYNC * 4, SLOW);
        assert_eq!(syncs(SLOW_SYNC).severity, Severity::Ok);
        let slow = syncs(SLOW_SYNC * 2);
        assert_eq!(slow.severity, Severity::Warn);
        assert!(slow.text.starts_with("99 % took 128 ms at most") && slow.advice.contains("faster disk"));
    }

    #[test]
    fn a_log_near_its_bounds_is_found_with_what_happens_there() {
        const MIB: u64 = 1 << 20;
        let store = |log, unapplied, copy| StoreState {
            log: Used { bytes: log * MIB, limit: 100 * MIB },
            unapplied: Used { bytes: unapplied * MIB, limit: 50 * MIB },
            copy,
            ..StoreState::default()
        };
        let sound = store_log(store(80, 40, None));
        let text =
            "80.0 MiB of 100.0 MiB at most, and 40.0 MiB of 50.0 MiB at most that the database does not have";
        assert_eq!((sound.severity, &*sound.text), (Severity::Ok, text));
        let copied = Some(ShipFigures::default());
        for (state, at_limit, advice) in [
            (store(80, 41, copied), "at the limit commits wait", "homing.db"),
            (store(81, 0, None), "at the limit commits wait", "homing.db"),
            (store(81, 40, copied), "at the limit the copy at store.ship_to begins again", "store.ship_to"),
        ] {
            let found = store_log(state);
            assert_eq!(found.severity, Severity::Warn, "{found}");
            assert!(found.text.contains(at_limit) && found.advice.contains(advice), "{found}");
        }
        // A broker of another version may not know the figures.
        assert_eq!(store_log(StoreState::default()).severity, Severity::Ok);
    }
}
