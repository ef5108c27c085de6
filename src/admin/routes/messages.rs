//! The unfinished messages of one client, each with the reason why it waits.

use super::clients::message;
use super::json_answer::JsonAnswer;
use crate::admin::access::Caller;
use crate::admin::payloads::{PayloadPermit, limit_of};
use crate::admin::queries::target::ClientTarget;
use crate::admin::queries::unfinished::{message_id, unfinished};
use crate::admin::queries::waits::{ends_with, until};
use crate::admin::request::{Asker, cursor_to, place_of};
use crate::admin::state::{AdminState, State};
use crate::clock;
use crate::mqtt::message::Message;
use crate::shard::observe::query::ROWS;
use crate::shard::observe::unfinished::{PagePayloads, UnfinishedMessage, UnfinishedPart};
use crate::shard::observe::wait_reason::WaitReason;
use crate::shard::slots::SessionId;
use actix_web::web::{Json, Path, Query};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

/// The name in the audit log of a message that waits for room in the queue: it has no `mid`.
const HELD: &str = "held";

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PageParameters {
    #[serde(rename = "ref")]
    reference: Option<String>,
    /// Number of rows at most; 16 with `payload=true`.
    #[schema(minimum = 1, maximum = 256, default = 100, example = 10)]
    limit: Option<usize>,
    cursor: Option<String>,
    /// True for the first 4 KiB of each payload. Then `limit` is 1 to 16, and 16 without it; a
    /// larger one is refused. That needs the scope operator, and the audit log notes each answer.
    #[serde(default)]
    #[schema(default = false, example = true)]
    payload: bool,
}

/// Returns a page of the messages in flight.
pub(crate) async fn in_flight(
    caller: Asker,
    path: Path<String>,
    asked: Query<PageParameters>,
    state: State,
) -> JsonAnswer {
    page(&caller, &path, asked.into_inner(), &state, UnfinishedPart::InFlight).await
}

/// Returns a page of the queue.
pub(crate) async fn queue(
    caller: Asker,
    path: Path<String>,
    asked: Query<PageParameters>,
    state: State,
) -> JsonAnswer {
    page(&caller, &path, asked.into_inner(), &state, UnfinishedPart::Queue).await
}

/// Returns a page. Payloads need the scope of an operator, and the audit log notes the view.
async fn page(
    caller: &Caller,
    client_id: &str,
    PageParameters { reference, limit, cursor, payload }: PageParameters,
    state: &AdminState,
    part: UnfinishedPart,
) -> JsonAnswer {
    let permit = payload.then(|| PayloadPermit::of(state, caller)).transpose()?;
    let target = ClientTarget::read(client_id, reference.as_deref(), state)?;
    let most = limit_of(limit, (100, ROWS), permit.as_ref())?;
    let from = place_of(cursor.as_deref())?;
    let payloads = if permit.is_some() { PagePayloads::Shown } else { PagePayloads::Hidden };
    let page = unfinished(state, &target, (part, payloads), from, most).await?;
    let row = |row: &UnfinishedMessage| unfinished_row(state, page.session, row);
    let mut rows: Vec<Value> = page.rows.iter().map(row).collect();
    if let Some(permit) = &permit {
        show_payloads(permit, &target.shown, &page.rows, &mut rows);
    }
    let mut body = json!({ "messages": rows });
    if let Some(next) = page.next {
        body["next"] = cursor_to(next).into();
    }
    Ok(Json(body))
}

/// Adds to the rows the payloads of those messages that have one in memory.
fn show_payloads(permit: &PayloadPermit<'_>, client: &str, page: &[UnfinishedMessage], rows: &mut [Value]) {
    let (messages, shown): (Vec<&Message>, Vec<&mut Value>) =
        page.iter().zip(rows).filter_map(|(message, row)| Some((message.body.as_ref()?, row))).unzip();
    let mid = |row: &Value| row["mid"].as_str().unwrap_or(HELD).to_owned();
    let mids: Vec<String> = shown.iter().map(|row| mid(row)).collect();
    let named: Vec<(&str, &[u8])> =
        mids.iter().zip(messages).map(|(mid, message)| (mid.as_str(), message.payload())).collect();
    for (row, view) in shown.into_iter().zip(permit.view_page(client, &named)) {
        row["payload"] = view.json();
    }
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
            body["cause"] = sent.cause.holder().name().into();
            body["detail"] = sent.cause.detail().into();
            body["then"] = (!sent.due.is_never()).then(|| sent.then.name()).into();
            body["then_in"] = until(now, sent.due).into();
        }
        WaitReason::Committing | WaitReason::ReadingBack => {}
    }
    body
}
