//! /api/v1/clients: the sessions, those that come first by a figure, and one session.

use super::client_fields::ClientFields;
use super::json_answer::JsonAnswer;
use crate::admin::listing::ListedRow;
use crate::admin::queries::sessions::{ListParameters, find, list_sessions, reference_of};
use crate::admin::queries::target::{ClientTarget, OneParameters};
use crate::admin::queries::top::{TopFigure, top_sessions};
use crate::admin::queries::waits::until;
use crate::admin::request::limit_of;
use crate::admin::session_rule::rule_json;
use crate::admin::state::{AdminState, State};
use crate::admin::timeline::NumberedMoment;
use crate::broker::OpenListener;
use crate::broker::observer::Observer;
use crate::broker::question::SocketFacts;
use crate::clock;
use crate::session::outbound::stall::Stall;
use crate::shard::observe::query::{InFlightSummary, MessageSummary, SessionSummary};
use actix_web::guard::GuardContext;
use actix_web::web::{Json, Path, Query};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use utoipa::ToSchema;

/// Sessions that come first by a figure, in one answer at most.
const TOP: usize = 100;

/// Lists sessions. A page may be short; only an answer without `next` is the last one.
pub(crate) async fn list(asked: Query<ListParameters>, state: State) -> JsonAnswer {
    let (observer, fields) = (state.running()?, ClientFields::read(asked.fields.as_deref())?);
    let listed = list_sessions(&state, observer, &asked).await?;
    let row =
        |row: &ListedRow| fields.of(session(&state, row.shard, &row.session, row.socket.as_ref(), observer));
    let mut body = json!({ "clients": listed.rows.iter().map(row).collect::<Vec<_>>() });
    if let Some(next) = listed.next {
        body["next"] = next.encode().into();
    }
    Ok(Json(body))
}

/// The parameters of the sessions that come first by a figure.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TopParameters {
    /// The figure.
    #[schema(value_type = TopFigure)]
    by: String,
    /// Number of rows at most.
    #[schema(minimum = 1, maximum = 100, default = 10, example = 10)]
    limit: Option<usize>,
}

/// Lists the sessions that come first by a figure.
pub(crate) async fn top(asked: Query<TopParameters>, state: State) -> JsonAnswer {
    let (figure, limit) = (TopFigure::read(&asked.by)?, limit_of(asked.limit, 10, TOP)?);
    let observer = state.running()?;
    let found = top_sessions(&state, observer, figure, limit).await?;
    let row = |row: &ListedRow| session(&state, row.shard, &row.session, row.socket.as_ref(), observer);
    let rows: Vec<Value> = found.rows.iter().map(row).collect();
    Ok(Json(json!({ "clients": rows, "complete": found.is_complete })))
}

/// Returns true if a request asks for [`top`], and not for the client `top`.
pub(super) fn asks_for_top(context: &GuardContext<'_>) -> bool {
    let query = context.head().uri.query().unwrap_or_default();
    query.split('&').any(|pair| pair.starts_with("by="))
}

/// Returns one session with its messages and filters.
pub(crate) async fn one(path: Path<String>, asked: Query<OneParameters>, state: State) -> JsonAnswer {
    let observer = state.running()?;
    let target = ClientTarget::read(&path, asked.reference.as_deref(), &state)?;
    let (detail, socket) = find(&state, observer, &target).await?;
    let mut body = session(&state, target.shard(observer), &detail.row, socket.as_ref(), observer);
    body["in_flight_messages"] = detail.in_flight.iter().map(in_flight).collect();
    body["queue"] = detail.queue.iter().map(message).collect();
    body["subscriptions"] = detail.filters.iter().map(|filter| Value::from(&**filter)).collect();
    body["redelivery"] = rule_json(&detail.redelivery);
    Ok(Json(body))
}

/// Returns the moments of redelivery of a client in the last 15 minutes, the oldest first. The
/// session may have ended.
pub(crate) async fn events(path: Path<String>, asked: Query<OneParameters>, state: State) -> JsonAnswer {
    let client_id: Box<str> = match &asked.reference {
        None => path.as_str().into(),
        Some(reference) => {
            let target = ClientTarget::read(&path, Some(reference), &state)?;
            find(&state, state.running()?, &target).await?.0.row.client_id
        }
    };
    let moment = |entry: &Arc<NumberedMoment>| {
        let moment = &entry.moment;
        json!({ "unix_ms": moment.unix_ms, "kind": moment.kind.name(), "text": &*moment.text })
    };
    let all = state.timeline().of_client(&client_id);
    Ok(Json(json!({ "client_id": client_id, "events": all.iter().map(moment).collect::<Vec<_>>() })))
}

/// Returns a session as JSON. Times are in seconds.
fn session(
    state: &AdminState,
    shard: usize,
    row: &SessionSummary,
    socket: Option<&SocketFacts>,
    observer: &Observer,
) -> Value {
    let now = clock::now();
    let listener = row.connection.and_then(|_| observer.listeners().get(row.listener));
    let listener = listener.as_ref().map(OpenListener::label);
    let diagnosed = socket.and_then(|socket| socket.stall);
    json!({
        "client_id": &*row.client_id,
        "ref": reference_of(state, shard, row.id),
        "user": row.user.as_deref(),
        "version": row.version.to_string(),
        "state": row.state(),
        "address": socket.map(|socket| &socket.address),
        "listener": listener,
        "session_expiry": row.expiry,
        "ends_in": until(now, row.ends),
        "in_flight": row.in_flight,
        "queued": row.queued,
        "queued_bytes": row.queued_bytes,
        "held": row.held,
        "subscription_count": row.subscriptions,
        "oldest_unacknowledged": row.oldest.map(|oldest| stall(&diagnosed.unwrap_or(oldest), diagnosed.is_some())),
        "next_deadline_in": until(now, row.due),
    })
}

fn stall(stall: &Stall, diagnosed: bool) -> Value {
    json!({
        "packet_id": stall.packet_id.get(),
        "age": stall.age.as_secs_f64(),
        "transmissions": stall.transmissions,
        "cause": diagnosed.then(|| stall.cause.holder().name()),
        "detail": diagnosed.then(|| stall.cause.detail()),
        "unsent_bytes": diagnosed.then_some(stall.view.unsent),
    })
}

fn in_flight(row: &InFlightSummary) -> Value {
    json!({
        "packet_id": row.packet_id.get(),
        "waits_for": row.waits_for(),
        "age": row.age.as_secs_f64(),
        "transmissions": row.transmissions,
        "sent_on_this_connection": row.sent_here,
        "next_deadline_in": until(clock::now(), row.due),
        "message": row.message.as_ref().map(message),
    })
}

/// Returns a message as JSON.
pub(crate) fn message(row: &MessageSummary) -> Value {
    json!({
        "topic": &*row.topic,
        "qos": row.qos as u8,
        "payload_bytes": row.payload,
        "retain": row.retain,
        "expires_in": until(clock::now(), row.expires),
    })
}
