//! The unfinished messages of one client, each with the reason why it waits.

use super::clients::message;
use super::json_answer::JsonAnswer;
use crate::admin::failed::Failed;
use crate::admin::queries::target::ClientTarget;
use crate::admin::queries::unfinished::{message_id, unfinished};
use crate::admin::queries::waits::{ends_with, until};
use crate::admin::request::limit_of;
use crate::admin::state::{AdminState, State};
use crate::clock;
use crate::shard::observe::query::ROWS;
use crate::shard::observe::unfinished::{UnfinishedMessage, UnfinishedPart};
use crate::shard::observe::wait_reason::WaitReason;
use crate::shard::slots::SessionId;
use actix_web::web::{Json, Path, Query};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PageParameters {
    #[serde(rename = "ref")]
    reference: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
}

/// Returns a page of the messages in flight.
pub(crate) async fn in_flight(path: Path<String>, asked: Query<PageParameters>, state: State) -> JsonAnswer {
    page(&path, asked.into_inner(), &state, UnfinishedPart::InFlight).await
}

/// Returns a page of the queue.
pub(crate) async fn queue(path: Path<String>, asked: Query<PageParameters>, state: State) -> JsonAnswer {
    page(&path, asked.into_inner(), &state, UnfinishedPart::Queue).await
}

async fn page(
    client_id: &str,
    PageParameters { reference, limit, cursor }: PageParameters,
    state: &AdminState,
    part: UnfinishedPart,
) -> JsonAnswer {
    let target = ClientTarget::read(client_id, reference.as_deref(), state)?;
    let most = limit_of(limit, 100, ROWS)?;
    let from = match &cursor {
        None => 0,
        Some(text) => u64::from_str_radix(text, 16).map_err(|_| Failed::Cursor)?,
    };
    let page = unfinished(state, &target, part, from, most).await?;
    let rows: Vec<Value> = page.rows.iter().map(|row| unfinished_row(state, page.session, row)).collect();
    let mut body = json!({ "messages": rows });
    if let Some(next) = page.next {
        body["next"] = format!("{next:x}").into();
    }
    Ok(Json(body))
}

/// Returns an unfinished message of a session as JSON. Times are in seconds.
pub(super) fn unfinished_row(state: &AdminState, session: SessionId, row: &UnfinishedMessage) -> Value {
    json!({
        "mid": message_id(state, session, row),
        "packet_id": row.packet_id.map(|id| id.get()),
        "transmissions": row.transmissions,
        "age": row.age.map(|age| age.as_secs_f64()),
        "message": row.message.as_ref().map(message),
        "wait": wait(&row.wait),
    })
}

/// Returns a wait reason as JSON: its word, its facts, and when it ends.
pub(crate) fn wait(wait: &WaitReason) -> Value {
    let now = clock::now();
    let mut body = json!({ "reason": wait.name(), "ends_with": ends_with(wait) });
    match wait {
        WaitReason::ReceiverAway(ends) => body["session_ends_in"] = until(now, *ends).into(),
        WaitReason::WindowFull(oldest) => {
            if let Some((packet_id, age)) = oldest {
                body["oldest_packet_id"] = packet_id.get().into();
                body["oldest_age"] = age.as_secs_f64().into();
            }
        }
        WaitReason::Behind(messages) | WaitReason::OlderFirst(messages) => body["ahead"] = (*messages).into(),
        WaitReason::SocketBlocked(closes) => body["closed_in"] = until(now, *closes).into(),
        WaitReason::Held(until_then) => body["refused_in"] = until(now, *until_then).into(),
        WaitReason::Unacknowledged(sent) | WaitReason::AwaitingPubcomp(sent) => {
            body["cause"] = sent.cause.name().into();
            body["detail"] = sent.cause.detail().into();
            body["then"] = (!sent.due.is_never()).then(|| sent.then.name()).into();
            body["then_in"] = until(now, sent.due).into();
        }
        WaitReason::Committing | WaitReason::ReadingBack => {}
    }
    body
}
