//! What a running broker reports of itself.

use super::finding::Finding;
use crate::admin::ctl::{self, CtlError};
use serde_json::Value;
use std::path::Path;

/// A share of a limit, in percent, from which it is reported.
const NEARLY: u64 = 80;

/// `is_in_use`: a broker has the data directory, so one should answer.
pub(super) fn findings(socket: Option<&Path>, is_in_use: bool) -> Vec<Finding> {
    let Some(socket) = socket else {
        return vec![Finding::ok("broker", "not asked: admin.socket is off")];
    };
    match ctl::overview(socket) {
        Ok(overview) => described(&overview, ctl::pending_restart(socket)),
        Err(CtlError::NotReachable { .. }) if !is_in_use => vec![Finding::ok("broker", "none runs here")],
        Err(error) => {
            vec![Finding::fail("broker", format!("it has the data directory, and does not answer: {error}"))]
        }
    }
}

fn described(overview: &Value, pending: Result<Vec<String>, CtlError>) -> Vec<Finding> {
    let own = env!("CARGO_PKG_VERSION");
    let mut findings = vec![match overview["version"].as_str() {
        Some(version) if version == own => Finding::ok("broker", format!("version {version} answers")),
        version => Finding::warn(
            "broker",
            format!("it is version {}, and this program is {own}: restart it", version.unwrap_or("unknown")),
        ),
    }];
    findings.push(match overview["alive"].as_bool() {
        Some(false) => Finding::fail("threads", "a thread has not worked for 10 s: see the log, and SIGUSR1"),
        _ => Finding::ok("threads", "all have worked within 10 s"),
    });
    let (bytes, limit) = (number(&overview["memory"]["bytes"]), number(&overview["memory"]["limit"]));
    findings.push(match bytes.saturating_mul(100) > limit.saturating_mul(NEARLY) {
        true => Finding::warn("held memory", format!("{bytes} of {limit} B of limits.memory: at the limit new messages are refused. `homing store dump` names the longest queues")),
        false => Finding::ok("held memory", format!("{bytes} of {limit} B of limits.memory")),
    });
    let dropped = number(&overview["dropped"]);
    findings.push(match dropped {
        0 => Finding::ok("drops", "none since the start"),
        _ => Finding::warn("drops", format!("{dropped} messages since the start: `homing ctl dropped` names the last ones, with the reasons")),
    });
    findings.push(match pending {
        Ok(keys) if keys.is_empty() => Finding::ok("restart", "no changed key waits for one"),
        Ok(keys) => Finding::warn(
            "restart",
            format!("these keys differ from those in force, and need one: {}", keys.join(", ")),
        ),
        Err(error) => Finding::fail("restart", format!("the configuration cannot be read again: {error}")),
    });
    findings
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Severity;
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
    fn each_trouble_of_a_running_broker_is_found() {
        let cases = [
            ("version", json!("0.0.1"), "broker", Severity::Warn),
            ("alive", json!(false), "threads", Severity::Fail),
            ("memory", json!({ "bytes": 81, "limit": 100 }), "held memory", Severity::Warn),
            ("dropped", json!(3), "drops", Severity::Warn),
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
