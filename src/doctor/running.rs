//! The self-report of a running broker.

use crate::admin::ctl::{self, BrokerEndpoint, CheckRow, CtlError, DoctorAnswer};
use crate::admin::self_checks::SelfReport;
use crate::admin::store_state::{StoreState, Used};
use crate::finding::{Check, Finding};
use crate::store::ship::ShipFigures;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// The checks that only the broker itself can make. `GET /api/v1/doctor` returns their results.
const OWN_CHECKS: [Check; 7] = [
    Check::FarSides,
    Check::Limits,
    Check::Log,
    Check::Deadlines,
    Check::Cluster,
    Check::ClusterNodes,
    Check::ClusterDrift,
];

pub(super) struct AskedBroker {
    pub(super) answers: bool,
    pub(super) findings: Vec<Finding>,
}

/// Asks a broker. `is_in_use`: a broker has the data directory, so one should answer.
pub(super) fn ask(socket: Option<&Path>, is_in_use: bool) -> AskedBroker {
    let silent = |finding| AskedBroker { answers: false, findings: vec![finding] };
    let Some(socket) = socket else {
        return silent(Finding::ok(Check::Broker, "not asked: admin.socket is off"));
    };
    let broker = BrokerEndpoint::of_socket(socket);
    match ctl::overview(&broker) {
        Ok(overview) => {
            let mut findings = described(&overview, ctl::pending_restart(&broker));
            findings.extend(ctl::checks(&broker).map(own_checks).unwrap_or_default());
            AskedBroker { answers: true, findings }
        }
        Err(CtlError::NotReachable { .. }) if !is_in_use => {
            silent(Finding::ok(Check::Broker, "none runs here"))
        }
        Err(error) => match (error, ctl::checks(&broker)) {
            // A node of a cluster that stands by has no totals, and makes its checks.
            (CtlError::Refused(why), Ok(checks)) => {
                let mut findings = vec![Finding::ok(Check::Broker, why)];
                findings.extend(own_checks(checks));
                AskedBroker { answers: true, findings }
            }
            (error, _) => silent(Finding::fail(
                Check::Broker,
                format!("it has the data directory, and does not answer: {error}"),
            )),
        },
    }
}

/// Returns the findings of a broker's checks that only the broker itself can make.
fn own_checks(answer: DoctorAnswer) -> Vec<Finding> {
    let found = |CheckRow { name, result, detail, advice }| {
        let check = OWN_CHECKS.into_iter().find(|check| check.name() == name)?;
        Some(Finding { severity: result, check, text: detail, advice: advice.unwrap_or_default() })
    };
    answer.checks.into_iter().filter_map(found).collect()
}

/// Returns the findings in the totals of a broker. The totals are read field by field, so that the
/// totals of another version still give that version.
fn described(overview: &Value, pending: Result<Vec<String>, CtlError>) -> Vec<Finding> {
    let report = SelfReport {
        version: overview["version"].as_str().unwrap_or("unknown"),
        late: names(&overview["late_threads"]),
        memory: (number(&overview["memory"]["bytes"]), number(&overview["memory"]["limit"])),
        dropped: number(&overview["dropped"]),
        last_drop_ago: overview["last_drop_ago"].as_u64().map(Duration::from_secs),
        store: overview["store"].is_object().then(|| store(&overview["store"])),
        pending: pending.map_err(|error| error.to_string()),
    };
    report.findings()
}

fn store(described: &Value) -> StoreState {
    let used = |bytes: &str, limit: &str| Used {
        bytes: number(&described[bytes]),
        limit: number(&described[limit]),
    };
    StoreState {
        is_full: described["full"].as_bool() == Some(true),
        oldest_uncommitted: seconds(&described["oldest_uncommitted"]).unwrap_or_default(),
        commit_p99: seconds(&described["commit_p99"]).unwrap_or_default(),
        sync_p99: seconds(&described["sync_p99"]),
        apply_p99: seconds(&described["apply_p99"]),
        bytes: number(&described["bytes"]),
        size_limit: described["size_limit"].as_u64(),
        room: number(&described["room"]),
        position: number(&described["position"]),
        log: used("log_bytes", "log_limit"),
        unapplied: used("unapplied_bytes", "unapplied_limit"),
        copy: described["copy"].is_object().then(|| copy(&described["copy"])),
        damaged: number(&described["damaged"]),
        oldest_unapplied: seconds(&described["oldest_unapplied"]).unwrap_or_default(),
    }
}

fn copy(described: &Value) -> ShipFigures {
    ShipFigures {
        position: number(&described["position"]),
        lag: seconds(&described["lag"]).unwrap_or_default(),
        lag_bytes: number(&described["lag_bytes"]),
        given_up: number(&described["given_up"]),
        is_behind: described["begins_again"].as_bool() == Some(true),
    }
}

/// Returns a number of seconds; `None` if the value is none.
fn seconds(value: &Value) -> Option<Duration> {
    Duration::try_from_secs_f64(value.as_f64()?).ok()
}

fn names(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(|name| name.as_str().map(str::to_owned)).collect()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Severity;
    use serde_json::json;

    fn overview() -> Value {
        json!({
            "version": env!("CARGO_PKG_VERSION"), "alive": true, "dropped": 0,
            "memory": { "bytes": 79, "limit": 100 },
        })
    }

    fn worst(overview: &Value, pending: Vec<String>) -> Option<Finding> {
        let findings = described(overview, Ok(pending));
        findings
            .into_iter()
            .filter(|finding| finding.severity > Severity::Ok)
            .max_by_key(|finding| finding.severity)
    }

    #[test]
    fn nothing_is_found_on_a_sound_broker() {
        assert_eq!(worst(&overview(), Vec::new()), None);
    }

    #[test]
    fn the_checks_that_only_the_broker_can_make_are_reported_and_no_others() {
        let check = |check: Check, result| CheckRow {
            name: check.to_string(),
            result,
            detail: "a detail".to_owned(),
            advice: None,
        };
        let checks = vec![
            check(Check::Limits, Severity::Warn),
            check(Check::Clock, Severity::Fail),
            check(Check::Log, Severity::Ok),
        ];
        let found = own_checks(DoctorAnswer { result: Severity::Fail, checks });
        let found: Vec<_> = found.iter().map(|finding| (finding.check, finding.severity)).collect();
        assert_eq!(found, [(Check::Limits, Severity::Warn), (Check::Log, Severity::Ok)]);
    }

    #[test]
    fn drops_are_a_warning_for_an_hour() {
        let mut overview = overview();
        overview["dropped"] = json!(3);
        overview["last_drop_ago"] = json!(3_599);
        let found = worst(&overview, Vec::new()).expect("drops");
        assert_eq!(found.text, "3 messages since the start, the last one 59 min 59 s ago");
        overview["last_drop_ago"] = json!(3_600);
        assert_eq!(worst(&overview, Vec::new()), None);
    }

    #[test]
    fn each_trouble_of_a_running_broker_is_found() {
        let store = |full: bool, oldest_uncommitted: f64, commit_p99: f64| json!({ "full": full, "oldest_uncommitted": oldest_uncommitted, "commit_p99": commit_p99 });
        let cases = [
            ("version", json!("0.0.1"), Check::Broker, Severity::Warn),
            ("late_threads", json!(["homing-shard-1"]), Check::Threads, Severity::Fail),
            ("memory", json!({ "bytes": 81, "limit": 100 }), Check::MemoryInUse, Severity::Warn),
            ("dropped", json!(3), Check::Drops, Severity::Warn),
            ("store", store(true, 0.0, 0.0), Check::Commits, Severity::Fail),
            ("store", store(false, 12.0, 0.0), Check::Commits, Severity::Fail),
            ("store", store(false, 0.0, 2.0), Check::Commits, Severity::Warn),
            ("store", json!({ "sync_p99": 0.128 }), Check::Sync, Severity::Warn),
            (
                "store",
                json!({ "unapplied_bytes": 81, "unapplied_limit": 100 }),
                Check::StoreLog,
                Severity::Warn,
            ),
            ("store", json!({ "copy": { "lag": 61.0 } }), Check::Copy, Severity::Warn),
            ("store", json!({ "copy": { "lag": 1.0, "begins_again": true } }), Check::Copy, Severity::Warn),
        ];
        for (field, value, check, severity) in cases {
            let mut sick = overview();
            sick[field] = value;
            let found = worst(&sick, Vec::new()).map(|finding| (finding.check, finding.severity));
            assert_eq!(found, Some((check, severity)), "{field}");
        }
        let found = worst(&overview(), vec!["runtime.threads".to_owned()]).expect("a pending key");
        assert_eq!((found.check, found.severity), (Check::Restart, Severity::Warn));
        assert!(found.text.contains("runtime.threads"), "{}", found.text);
    }
}
