//! /api/v1/traces: traces of messages and clients.

use super::json_answer::JsonAnswer;
use crate::admin::access::Caller;
use crate::admin::audit::{AuditedAction, arguments};
use crate::admin::commands::complete;
use crate::admin::failed::Failed;
use crate::admin::payloads::PayloadPermit;
use crate::admin::problem_kind::ProblemKind;
use crate::admin::request::{Asker, limit_of};
use crate::admin::state::State;
use crate::admin::traces::book::TraceOrder;
use crate::mqtt::topic::TopicFilter;
use crate::shard::observe::trace::{LONGEST_CLIENT_ID, TracedPayloads};
use crate::time::duration;
use actix_web::HttpResponse;
use actix_web::web::{Bytes, Json, Path, Query};
use serde::Deserialize;
use serde_json::json;
use std::time::Duration;

/// The time of a trace if the operator names none.
const DEFAULT: Duration = Duration::from_secs(600);

/// The longest time of a trace.
const LONGEST: Duration = Duration::from_secs(3_600);

/// The longest time that a request waits for a step. It is shorter than the time of a request.
const WAIT: Duration = Duration::from_secs(8);

/// Steps in one answer at most.
const STEPS: usize = 1_000;

/// The body of a new trace.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TraceBody {
    #[serde(default)]
    clients: Vec<Box<str>>,
    #[serde(default)]
    topics: Vec<Box<str>>,
    /// The time for which it lasts, as "10m".
    #[serde(default, rename = "for")]
    lasts: Option<String>,
    #[serde(default)]
    payload: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StepParameters {
    after: Option<u64>,
    wait: Option<String>,
    limit: Option<usize>,
}

/// Begins a trace.
pub(crate) async fn begin(caller: Asker, body: Bytes, state: State) -> Result<HttpResponse, Failed> {
    state.running()?;
    let wanted: TraceBody = serde_json::from_slice(&body).map_err(|error| {
        Failed::Parameter(format!("the body must be {{\"clients\": [\"app-1\"], \"for\": \"5m\"}}: {error}"))
    })?;
    if wanted.payload {
        PayloadPermit::of(&state, &caller)?;
    }
    let order = checked(wanted)?;
    let number = complete(begin_and_note(state, caller.into_inner(), order)).await??;
    Ok(HttpResponse::Created().json(json!({ "trace": number })))
}

async fn begin_and_note(state: State, caller: Caller, order: TraceOrder) -> Result<u64, Failed> {
    let observer = state.running()?;
    let topics = (!order.filters.is_empty()).then(|| ("topics", order.filters.join(" ")));
    // First, because a long list of topics is cut.
    let payload = matches!(order.payloads, TracedPayloads::Shown).then(|| ("payload", "true".to_owned()));
    let (target, arguments) = (order.clients.join(", "), arguments(&[payload, topics]));
    let begun = state.traces().begin(observer, order).await;
    let result = begun.as_ref().map_or_else(|_| "refused".to_owned(), |number| format!("trace {number}"));
    state.audit().note(&caller, &AuditedAction { action: "begin_trace", target: &target, arguments, result });
    begun.map_err(|full| Failed::Parameter(full.to_string()))
}

fn checked(wanted: TraceBody) -> Result<TraceOrder, Failed> {
    let refuse = |what: String| Err(Failed::Parameter(what));
    let TraceBody { clients, topics, lasts, payload } = wanted;
    if clients.is_empty() && topics.is_empty() {
        return refuse("a trace needs a client or a topic filter".to_owned());
    }
    if clients.iter().any(|client| client.is_empty() || client.len() > LONGEST_CLIENT_ID) {
        return refuse(format!("a client identifier must have 1 to {LONGEST_CLIENT_ID} bytes"));
    }
    let is_plain = |text: &str| TopicFilter::parse(text, usize::MAX).is_ok_and(|filter| !filter.is_shared());
    if let Some(filter) = topics.iter().find(|filter| !is_plain(filter)) {
        return refuse(format!("{filter:?} is not a topic filter, such as \"alarms/#\", or is a shared one"));
    }
    let lasts = match lasts {
        None => DEFAULT,
        Some(text) => duration::parse(&text)
            .ok()
            .filter(|time| (Duration::from_secs(1)..=LONGEST).contains(time))
            .ok_or_else(|| {
                Failed::Parameter(format!("for is {text:?}, and must be 1s to 1h, such as \"5m\""))
            })?,
    };
    let payloads = if payload { TracedPayloads::Shown } else { TracedPayloads::Hidden };
    Ok(TraceOrder { clients, filters: topics, lasts, payloads })
}

/// Returns all traces without their steps.
pub(crate) async fn list(state: State) -> JsonAnswer {
    Ok(Json(state.traces().list()))
}

/// Returns a trace with its steps behind a number.
pub(crate) async fn steps(path: Path<u64>, asked: Query<StepParameters>, state: State) -> JsonAnswer {
    let StepParameters { after, wait, limit } = asked.into_inner();
    let most = limit_of(limit, STEPS, STEPS)?;
    let wait = match wait {
        None => Duration::ZERO,
        Some(text) => duration::parse(&text).ok().filter(|wait| *wait <= WAIT).ok_or_else(|| {
            Failed::Parameter(format!("wait is {text:?}, and must be a time of at most 8s"))
        })?,
    };
    let page = state.traces().watch(*path, (after.unwrap_or(0), most), wait).await;
    Ok(Json(page.ok_or(Failed::NoSuchTrace)?))
}

/// Ends a trace and forgets its steps.
pub(crate) async fn end(caller: Asker, path: Path<u64>, state: State) -> Result<HttpResponse, Failed> {
    let is_ended = complete(end_and_note(state, caller.into_inner(), *path)).await?;
    if is_ended { Ok(HttpResponse::NoContent().finish()) } else { Err(Failed::NoSuchTrace) }
}

/// Returns false if there is no such trace.
async fn end_and_note(state: State, caller: Caller, number: u64) -> bool {
    // Nothing is traced before the start of the broker.
    let is_ended = match state.observer() {
        Some(observer) => state.traces().end(observer, number).await,
        None => false,
    };
    let result = if is_ended { "done" } else { ProblemKind::NoSuchTrace.facts().slug }.to_owned();
    let (target, arguments) = (number.to_string(), String::new());
    state.audit().note(&caller, &AuditedAction { action: "end_trace", target: &target, arguments, result });
    is_ended
}
