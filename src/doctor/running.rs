//! What a running broker reports of itself.

use crate::admin::checkup::SelfReport;
use crate::admin::ctl::{self, BrokerEndpoint, CtlError};
use crate::admin::readiness::StoreState;
use crate::finding::Finding;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// What only the broker itself can look at: the names of its checks, which it reports as
/// `GET /api/v1/doctor`.
const OWN_CHECKS: [&str; 3] = ["limits", "log", "deadlines"];

/// The broker that was asked.
pub(super) struct AskedBroker {
    /// True if it answers.
    pub(super) answers: bool,
    pub(super) findings: Vec<Finding>,
}

/// Asks a broker. `is_in_use`: a broker has the data directory, so one should answer.
pub(super) fn ask(socket: Option<&Path>, is_in_use: bool) -> AskedBroker {
    let silent = |finding| AskedBroker { answers: false, findings: vec![finding] };
    let Some(socket) = socket else {
        return silent(Finding::ok("broker", "not asked: admin.socket is off"));
    };
    let broker = BrokerEndpoint::of_socket(socket);
    match ctl::overview(&broker) {
        Ok(overview) => {
            let mut findings = described(&overview, ctl::pending_restart(&broker));
            findings.extend(ctl::checks(&broker).iter().flat_map(own_checks));
            AskedBroker { answers: true, findings }
        }
        Err(CtlError::NotReachable { .. }) if !is_in_use => silent(Finding::ok("broker", "none runs here")),
        Err(error) => silent(Finding::fail(
            "broker",
            format!("it has the data directory, and does not answer: {error}"),
        )),
    }
}

/// Returns the checks of a broker that only the broker itself can make.
fn own_checks(answer: &Value) -> Vec<Finding> {
    let checks = answer["checks"].as_array().into_iter().flatten();
    let found = |check: &Value| {
        let subject = OWN_CHECKS.into_iter().find(|name| check["name"] == *name)?;
        let detail = check["detail"].as_str().unwrap_or_default();
        let finding = match check["result"].as_str() {
            Some("ok") => Finding::ok(subject, detail),
            Some("warn") => Finding::warn(subject, detail),
            _ => Finding::fail(subject, detail),
        };
        Some(finding.advise(check["advice"].as_str().unwrap_or_default()))
    };
    checks.filter_map(found).collect()
}

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
    let seconds = |value: &Value| Duration::try_from_secs_f64(value.as_f64().unwrap_or_default());
    StoreState {
        is_full: described["full"].as_bool() == Some(true),
        oldest_uncommitted: seconds(&described["oldest_uncommitted"]).unwrap_or_default(),
        commit_p99: seconds(&described["commit_p99"]).unwrap_or_default(),
    }
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
        let check = |name: &str, result: &str| json!({ "name": name, "result": result, "detail": "a detail", "advice": "an advice" });
        let answer =
            json!({ "checks": [check("limits", "warn"), check("clock", "fail"), check("log", "ok")] });
        let found = own_checks(&answer);
        let found: Vec<_> = found.iter().map(|finding| (finding.subject, finding.severity)).collect();
        assert_eq!(found, [("limits", Severity::Warn), ("log", Severity::Ok)]);
        assert_eq!(own_checks(&Value::Null), Vec::new());
    }

    #[test]
    fn drops_are_a_warning_for_an_hour() {
        let mut overview = overview();
        overview["dropped"] = json!(3);
        overview["last_drop_ago"] = json!(3_599);
        let found = worst(&overview, Vec::new()).expect("drops");
        assert_eq!(found.text, "3 messages since the start, the last one 3599 s ago");
        overview["last_drop_ago"] = json!(3_600);
        assert_eq!(worst(&overview, Vec::new()), None);
    }

    #[test]
    fn each_trouble_of_a_running_broker_is_found() {
        let store = |full: bool, oldest_uncommitted: f64, commit_p99: f64| json!({ "full": full, "oldest_uncommitted": oldest_uncommitted, "commit_p99": commit_p99 });
        let cases = [
            ("version", json!("0.0.1"), "broker", Severity::Warn),
            ("late_threads", json!(["homing-shard-1"]), "threads", Severity::Fail),
            ("memory", json!({ "bytes": 81, "limit": 100 }), "held memory", Severity::Warn),
            ("dropped", json!(3), "drops", Severity::Warn),
            ("store", store(true, 0.0, 0.0), "commits", Severity::Fail),
            ("store", store(false, 12.0, 0.0), "commits", Severity::Fail),
            ("store", store(false, 0.0, 2.0), "commits", Severity::Warn),
        ];
        for (field, value, subject, severity) in cases {
            let mut sick = overview();
            sick[field] = value;
            let found = worst(&sick, Vec::new()).map(|finding| (finding.subject, finding.severity));
            assert_eq!(found, Some((subject, severity)), "{field}");
        }
        let found = worst(&overview(), vec!["runtime.threads".to_owned()]).expect("a pending key");
        assert_eq!((found.subject, found.severity), ("restart", Severity::Warn));
        assert!(found.text.contains("runtime.threads"), "{}", found.text);
    }
}
