//! /api/v1/sinks: the HTTP services that get messages.

use super::json_answer::JsonAnswer;
use crate::admin::state::State;
use crate::broker::sinks::status::SinkFacts;
use crate::clock;
use crate::sink::SinkState;
use crate::time::Instant;
use actix_web::web::Json;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The sinks.
#[derive(Deserialize, Serialize, ToSchema)]
pub(crate) struct Sinks {
    pub(crate) sinks: Vec<SinkRow>,
}

/// A sink. Its queue and what is in flight are those of its session. Counts begin with the sink.
#[derive(Deserialize, Serialize, ToSchema)]
#[schema(as = Sink)]
pub(crate) struct SinkRow {
    pub(crate) name: String,
    /// The client identifier of its session.
    pub(crate) client_id: String,
    /// The address of the service, without its query.
    pub(crate) url: String,
    pub(crate) state: SinkState,
    /// Seconds since the state began.
    pub(crate) since: f64,
    /// Seconds until the next attempt; null if none is waited for.
    #[schema(required)]
    pub(crate) next_attempt_in: Option<f64>,
    /// Why the last request failed; null while requests succeed.
    #[schema(required)]
    pub(crate) last_error: Option<String>,
    /// Topic filters that the sink may not subscribe to.
    pub(crate) refused_filters: Vec<String>,
    /// Messages that the sink has, and that the service has not accepted.
    pub(crate) unacknowledged: usize,
    /// Requests without an answer.
    pub(crate) open_requests: usize,
    /// Requests, repetitions included.
    pub(crate) requests: u64,
    /// Requests that failed, and were sent again.
    pub(crate) failed: u64,
    /// Messages that the service accepted.
    pub(crate) delivered: u64,
    /// Messages that the service refused for good. They became dead letters.
    pub(crate) refused: u64,
}

/// Returns the sinks, by name.
pub(crate) async fn list(state: State) -> JsonAnswer<Sinks> {
    let now = clock::now();
    let all = state.running()?.sinks().all();
    Ok(Json(Sinks { sinks: all.into_iter().map(|facts| row(facts, now)).collect() }))
}

fn row(facts: SinkFacts, now: Instant) -> SinkRow {
    let next = Some(facts.next_attempt).filter(|at| !at.is_never());
    SinkRow {
        client_id: facts.client_id(),
        name: facts.name.to_string(),
        url: facts.url,
        state: facts.state,
        since: now.since(facts.since).as_secs_f64(),
        next_attempt_in: next.map(|at| at.since(now).as_secs_f64()),
        last_error: Some(facts.last_error).filter(|error| !error.is_empty()),
        refused_filters: facts.refused_filters,
        unacknowledged: facts.unacknowledged,
        open_requests: facts.open_requests,
        requests: facts.counts.requests,
        failed: facts.counts.failed,
        delivered: facts.counts.delivered,
        refused: facts.counts.refused,
    }
}
