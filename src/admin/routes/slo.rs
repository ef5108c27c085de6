//! /api/v1/slo: the delivery objectives with their counts and error budgets.

use super::json_answer::JsonAnswer;
use crate::admin::state::State;
use crate::session::objectives::{Objective, ObjectiveCounts};
use actix_web::web::Json;
use serde_json::{Value, json};

/// Returns every objective, as of the shards' last reports.
pub(crate) async fn slo(state: State) -> JsonAnswer {
    let total = state.running()?.statistics().total();
    let all: Vec<Value> = total.counters.objectives.counts().map(|(o, counts)| row(o, counts)).collect();
    Ok(Json(json!({ "objectives": all })))
}

fn row(objective: &Objective, counts: ObjectiveCounts) -> Value {
    json!({
        "name": objective.name,
        "topic": objective.topic,
        "client_id": objective.client_id.as_ref().map(|pattern| pattern.as_str()),
        "within": objective.within.as_secs_f64(),
        "target": objective.target,
        "in_time": counts.in_time,
        "late": counts.late,
        "dropped": counts.dropped,
        "excluded": counts.excluded,
        "open": counts.open,
        "ratio": counts.share_in_time(),
        "budget_left": counts.budget_left(objective.target),
    })
}
