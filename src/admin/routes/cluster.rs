//! /api/v1/cluster: the cluster as this node sees it. A standby answers, too.

use super::json_answer::JsonAnswer;
use crate::admin::state::State;
use crate::clock;
use crate::cluster::report::ClusterReport;
use actix_web::web::Json;

/// Returns the cluster.
pub(crate) async fn cluster(state: State) -> JsonAnswer<ClusterReport> {
    let report = state.cluster().map(|view| ClusterReport::of_view(view, clock::now()));
    Ok(Json(report.unwrap_or_default()))
}
