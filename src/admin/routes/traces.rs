//! /api/v1/traces: traces of messages and clients.

use super::json_answer::{JsonAnswer, done};
use crate::admin::failed::Failed;
use crate::admin::operator::OperatorRequest;
use crate::admin::request::{DurationText, limit_of, read_body};
use crate::admin::state::State;
use crate::admin::trace_commands::{TraceWish, begin_trace, end_trace};
use crate::admin::traces::{TraceList, TraceRow};
use crate::time::duration;
use actix_web::HttpResponse;
use actix_web::web::{Bytes, Json, Path, Query};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use utoipa::ToSchema;

/// The longest time that a request waits for a step. The wait is shorter than the time of a
/// request.
const WAIT: Duration = Duration::from_secs(8);

/// Steps in one answer at most.
const STEPS: usize = 1_000;

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StepParameters {
    /// The number of the last step that is known.
    #[schema(example = 0)]
    after: Option<u64>,
    /// Waits this long for a step, up to `8s`.
    #[schema(value_type = Option<DurationText>)]
    wait: Option<String>,
    /// Number of rows at most.
    #[schema(minimum = 1, maximum = 1000, default = 1000, example = 10)]
    limit: Option<usize>,
}

/// The number of a trace that has begun.
#[derive(Deserialize, Serialize, ToSchema)]
pub(crate) struct TraceNumber {
    pub(crate) trace: u64,
}

pub(crate) async fn begin(body: Bytes, request: OperatorRequest) -> Result<HttpResponse, Failed> {
    request.operator.state.running()?;
    let wish: TraceWish = read_body(&body, r#"{"clients": ["app-1"], "for": "5m"}"#)?;
    let trace = begin_trace(&request.operator, wish).await?;
    Ok(HttpResponse::Created().json(TraceNumber { trace }))
}

/// Returns all traces without their steps.
pub(crate) async fn list(state: State) -> JsonAnswer<TraceList> {
    Ok(Json(state.traces.list()))
}

/// Returns a trace with its steps behind a number.
pub(crate) async fn steps(
    path: Path<u64>,
    asked: Query<StepParameters>,
    state: State,
) -> JsonAnswer<TraceRow> {
    let StepParameters { after, wait, limit } = asked.into_inner();
    let most = limit_of(limit, STEPS, STEPS)?;
    let wait = match wait {
        None => Duration::ZERO,
        Some(text) => duration::parse(&text).ok().filter(|wait| *wait <= WAIT).ok_or_else(|| {
            Failed::Parameter(format!("wait is {text:?}, and must be a time of at most 8s"))
        })?,
    };
    let page = state.traces.watch(*path, (after.unwrap_or(0), most), wait).await;
    Ok(Json(page.ok_or(Failed::NoSuchTrace)?))
}

/// Ends a trace and forgets its steps.
pub(crate) async fn end(path: Path<u64>, request: OperatorRequest) -> Result<HttpResponse, Failed> {
    done(end_trace(&request.operator, *path).await)
}
