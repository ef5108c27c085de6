//! /api/v1/slo: the delivery objectives with their counts and error budgets.

use crate::admin::access::Scope;
use crate::admin::failed::Failed;
use crate::admin::request::caller;
use crate::admin::state::AdminState;
use crate::session::objectives::{Objective, ObjectiveCounts};
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use serde_json::{Value, json};

/// Returns every objective, as of the shards' last reports.
pub(crate) async fn slo(request: HttpRequest, state: Data<AdminState>) -> Result<HttpResponse, Failed> {
    caller(&request, Scope::Viewer)?;
    let observer = state.running()?;
    let total = observer.statistics().total();
    let all: Vec<Value> = total.counters.objectives.counts().map(|(o, counts)| row(o, counts)).collect();
    Ok(HttpResponse::Ok().json(json!({ "objectives": all })))
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
