//! /api/v1/slo: the delivery objectives with their counts and error budgets.

use super::json_answer::JsonAnswer;
use crate::admin::state::State;
use crate::session::objectives::{Objective, ObjectiveCounts};
use actix_web::web::Json;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The delivery objectives.
#[derive(Deserialize, Serialize, ToSchema)]
#[schema(as = Objectives)]
pub(crate) struct ObjectivesAnswer {
    pub(crate) objectives: Vec<ObjectiveRow>,
}

#[derive(Deserialize, Serialize, ToSchema)]
#[schema(as = Objective)]
pub(crate) struct ObjectiveRow {
    pub(crate) name: String,
    pub(crate) topic: String,
    #[schema(required)]
    pub(crate) client_id: Option<String>,
    /// Seconds.
    pub(crate) within: f64,
    pub(crate) target: f64,
    pub(crate) in_time: u64,
    pub(crate) late: u64,
    pub(crate) dropped: u64,
    pub(crate) excluded: u64,
    pub(crate) open: u64,
    /// The share in time; null before the first delivery.
    #[schema(required)]
    pub(crate) ratio: Option<f64>,
    /// The unused share of the error budget; below 0 if it is overspent.
    #[schema(required)]
    pub(crate) budget_left: Option<f64>,
}

/// Returns every objective, as of the shards' last reports.
pub(crate) async fn slo(state: State) -> JsonAnswer<ObjectivesAnswer> {
    let total = state.running()?.statistics().total();
    let all = total.counters.objectives.counts();
    Ok(Json(ObjectivesAnswer { objectives: all.map(|(objective, counts)| row(objective, counts)).collect() }))
}

fn row(objective: &Objective, counts: ObjectiveCounts) -> ObjectiveRow {
    ObjectiveRow {
        name: objective.name.to_string(),
        topic: objective.topic.to_string(),
        client_id: objective.client_id.as_ref().map(|pattern| pattern.as_str().to_owned()),
        within: objective.within.as_secs_f64(),
        target: objective.target,
        in_time: counts.in_time,
        late: counts.late,
        dropped: counts.dropped,
        excluded: counts.excluded,
        open: counts.open,
        ratio: counts.share_in_time(),
        budget_left: counts.budget_left(objective.target),
    }
}
