//! /api/v1/doctor: the checks of `homing doctor` that make sense within the running broker.

use super::json_answer::JsonAnswer;
use crate::admin::cluster_checks;
use crate::admin::failed::Failed;
use crate::admin::self_checks::self_checks;
use crate::admin::state::{AdminState, State};
use crate::clock;
use crate::cluster::report::ClusterReport;
use crate::file_thread::NotRead;
use crate::finding::{Check, Finding, Severity};
use crate::time::duration::long;
use actix_web::web::Json;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use utoipa::ToSchema;

/// The time for which the files need not have been looked at. A file of 10 GB takes as long.
const UNSEEN: Duration = Duration::from_secs(60);

/// The results of the checks.
#[derive(Deserialize, Serialize, ToSchema)]
#[schema(as = Doctor)]
pub(crate) struct DoctorAnswer {
    /// The worst of all checks.
    pub(crate) result: Severity,
    pub(crate) checks: Vec<CheckRow>,
}

#[derive(Deserialize, Serialize, ToSchema)]
#[schema(as = Check)]
pub(crate) struct CheckRow {
    /// The name of the check.
    pub(crate) name: String,
    pub(crate) result: Severity,
    /// The fact.
    pub(crate) detail: String,
    /// The suggested fix of a problem.
    #[schema(required)]
    pub(crate) advice: Option<String>,
}

/// Makes the checks.
pub(crate) async fn doctor(state: State) -> JsonAnswer<DoctorAnswer> {
    checks(&state).await.map(Json)
}

/// Makes the checks, for programs and for the page. Errors: the broker starts.
pub(crate) async fn checks(state: &State) -> Result<DoctorAnswer, Failed> {
    // Together, because each may wait for a disk that hangs.
    let own = async {
        match (state.observer(), state.cluster()) {
            (Some(observer), _) => Ok(self_checks(observer).await),
            (None, Some(_)) => Ok(Vec::new()),
            (None, None) => Err(Failed::Starting),
        }
    };
    let (own, looked_at) = tokio::join!(own, look(state));
    let mut findings = own?;
    findings.extend(of_cluster(state));
    findings.extend(looked_at);
    findings.extend(state.credentials.refused().map(|why| {
        let text = format!("the file is not what is in force; the broker still has the one before: {why}");
        Finding::fail(Check::AdminCredentials, text).advise("Correct the file; the next request reads it")
    }));
    let result = findings.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Ok);
    Ok(DoctorAnswer { result, checks: findings.into_iter().map(check).collect() })
}

/// Returns the findings about the cluster; none without one.
fn of_cluster(state: &AdminState) -> Vec<Finding> {
    let Some(view) = state.cluster() else { return Vec::new() };
    let now = clock::now();
    let mut findings = cluster_checks::findings(&ClusterReport::of_view(view, now));
    let unseen = now.since(view.looked_at());
    if unseen > UNSEEN {
        let text = format!(
            "the files of this node were not compared for {}: a disk hangs, or they are very large",
            long(unseen)
        );
        findings.push(
            Finding::warn(Check::ClusterDrift, text).advise("See if a disk or a network file system hangs"),
        );
    }
    findings
}

/// Looks at the machine and the files: one look at a time, on a thread that may block.
async fn look(state: &AdminState) -> Vec<Finding> {
    match state.check().await {
        Ok(found) => found,
        Err(NotRead::Busy(_)) => vec![
            Finding::warn(Check::Files, "not looked at: another look is under way, or hangs")
                .advise("Ask again; if it stays, see if a disk or a network file system hangs"),
        ],
        Err(error) => vec![
            Finding::fail(Check::Files, error.to_string())
                .advise("See if a disk or a network file system hangs"),
        ],
    }
}

fn check(finding: Finding) -> CheckRow {
    let Finding { severity, check, text, advice } = finding;
    let advice = Some(advice).filter(|advice| !advice.is_empty());
    CheckRow { name: check.to_string(), result: severity, detail: text, advice }
}
