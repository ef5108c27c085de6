//! /api/v1/doctor: the checks of `homing doctor` that make sense within the running broker.

use super::json_answer::JsonAnswer;
use crate::admin::checkup::own_findings;
use crate::admin::failed::Failed;
use crate::admin::state::State;
use crate::finding::{Finding, Severity};
use actix_web::web::{self, Json};
use serde_json::{Value, json};
use std::time::Duration;

/// Time for the look at the machine and the files. A disk that hangs may take for ever.
const TIME: Duration = Duration::from_secs(5);

/// Examines the broker.
pub(crate) async fn doctor(state: State) -> JsonAnswer {
    let mut findings = own_findings(state.running()?).await;
    findings.extend(look(state).await?);
    let worst = findings.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Ok);
    let checks: Vec<Value> = findings.iter().map(check).collect();
    Ok(Json(json!({ "result": worst.name(), "checks": checks })))
}

/// Looks at the machine and the files: one look at a time, on a thread that may block.
///
/// # Errors
/// The runtime ends.
async fn look(state: State) -> Result<Vec<Finding>, Failed> {
    let Some(place) = state.examination_place() else { return Ok(vec![other_look()]) };
    let looked_at = web::block(move || {
        let found = state.examine();
        // A look that hangs keeps its place, so that no second one hangs beside it.
        drop(place);
        found
    });
    match tokio::time::timeout(TIME, looked_at).await {
        Ok(found) => found.map_err(|_| Failed::Busy),
        Err(_) => Ok(vec![hangs()]),
    }
}

fn other_look() -> Finding {
    Finding::warn("files", "not looked at: another look is under way, or hangs")
        .advise("Ask again; if it stays, see if a disk or a network file system hangs")
}

fn hangs() -> Finding {
    let text = format!("its files could not be looked at within {} s", TIME.as_secs());
    Finding::fail("files", text).advise("See if a disk or a network file system hangs")
}

fn check(finding: &Finding) -> Value {
    let Finding { severity, subject, text, advice } = finding;
    let advice = Some(advice).filter(|advice| !advice.is_empty());
    json!({ "name": subject, "result": severity.name(), "detail": text, "advice": advice })
}
