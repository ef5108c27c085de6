//! /api/v1/doctor: the checks of `homing doctor` that make sense within the running broker.

use super::json_answer::JsonAnswer;
use crate::admin::checkup::own_findings;
use crate::admin::state::{AdminState, State};
use crate::file_thread::NotRead;
use crate::finding::{Finding, Severity};
use actix_web::web::Json;
use serde::Serialize;
use utoipa::ToSchema;

/// What was found.
#[derive(Serialize, ToSchema)]
pub(super) struct Checkup {
    /// The worst of all checks.
    result: Severity,
    checks: Vec<CheckRow>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Check)]
struct CheckRow {
    /// The thing that was looked at.
    name: &'static str,
    result: Severity,
    /// The fact.
    detail: String,
    /// What to do about a problem.
    #[schema(required)]
    advice: Option<String>,
}

/// Examines the broker.
pub(crate) async fn doctor(state: State) -> JsonAnswer<Checkup> {
    // Together, because each may wait for a disk that hangs.
    let (mut findings, looked_at) = tokio::join!(own_findings(state.running()?), look(&state));
    findings.extend(looked_at);
    findings.extend(state.refused_credentials().map(|why| {
        let text = format!("the file is not what is in force; the broker still has the one before: {why}");
        Finding::fail("admin credentials", text).advise("Correct the file; the next request reads it")
    }));
    let result = findings.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Ok);
    Ok(Json(Checkup { result, checks: findings.into_iter().map(check).collect() }))
}

/// Looks at the machine and the files: one look at a time, on a thread that may block.
async fn look(state: &AdminState) -> Vec<Finding> {
    match state.examine().await {
        Ok(found) => found,
        Err(NotRead::Busy(_)) => vec![
            Finding::warn("files", "not looked at: another look is under way, or hangs")
                .advise("Ask again; if it stays, see if a disk or a network file system hangs"),
        ],
        Err(error) => vec![
            Finding::fail("files", error.to_string()).advise("See if a disk or a network file system hangs"),
        ],
    }
}

fn check(finding: Finding) -> CheckRow {
    let Finding { severity, subject, text, advice } = finding;
    CheckRow { name: subject, result: severity, detail: text, advice: Some(advice).filter(|a| !a.is_empty()) }
}
