//! The unfinished messages of one client, each with the reason why it waits.

use super::clients::{Target, message, until};
use super::{Failed, ask, caller, limit_of, read_query};
use crate::admin::access::Scope;
use crate::admin::state::AdminState;
use crate::clock;
use crate::session::outbound::stall::StallCause;
use crate::shard::observe::query::{Query, QueryAnswer, ROWS};
use crate::shard::observe::unfinished::{UnfinishedMessage, UnfinishedPage, UnfinishedPart};
use crate::shard::observe::wait_reason::{SentPacket, WaitReason};
use actix_web::web::{Data, Path};
use actix_web::{HttpRequest, HttpResponse};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct PageParameters {
    #[serde(rename = "ref")]
    reference: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
}

/// Returns a page of the messages in flight.
pub(crate) async fn in_flight(
    request: HttpRequest,
    path: Path<String>,
    state: Data<AdminState>,
) -> Result<HttpResponse, Failed> {
    page(&request, &path, &state, UnfinishedPart::InFlight).await
}

/// Returns a page of the queue.
pub(crate) async fn queue(
    request: HttpRequest,
    path: Path<String>,
    state: Data<AdminState>,
) -> Result<HttpResponse, Failed> {
    page(&request, &path, &state, UnfinishedPart::Queue).await
}

async fn page(
    request: &HttpRequest,
    client_id: &str,
    state: &AdminState,
    part: UnfinishedPart,
) -> Result<HttpResponse, Failed> {
    caller(request, Scope::Viewer)?;
    let PageParameters { reference, limit, cursor } = read_query(request)?;
    let target = Target::read(client_id, reference.as_deref(), state)?;
    let most = limit_of(limit, 100, ROWS)?;
    let from = match &cursor {
        None => 0,
        Some(text) => u64::from_str_radix(text, 16).map_err(|_| Failed::Cursor)?,
    };
    let page = unfinished(state, &target, part, from, most).await?;
    let rows: Vec<Value> = page.rows.iter().map(|row| unfinished_row(state, &page, row)).collect();
    let mut body = json!({ "messages": rows });
    if let Some(next) = page.next {
        body["next"] = format!("{next:x}").into();
    }
    Ok(HttpResponse::Ok().json(body))
}

/// Returns a page of the unfinished messages of a client.
///
/// # Errors
/// There is no such session, or its shard does not answer.
pub(crate) async fn unfinished(
    state: &AdminState,
    target: &Target,
    part: UnfinishedPart,
    from: u64,
    most: usize,
) -> Result<UnfinishedPage, Failed> {
    let observer = state.running()?;
    let query = Query::Unfinished { client: target.session.clone(), part, from, most };
    match ask(state, observer, target.shard(observer), query).await?.answer {
        QueryAnswer::Unfinished(Some(page)) => Ok(*page),
        _ => Err(Failed::NoSuchClient),
    }
}

/// Returns the name of a message in URLs; `None` if it has none.
pub(crate) fn message_id(
    state: &AdminState,
    page: &UnfinishedPage,
    row: &UnfinishedMessage,
) -> Option<String> {
    row.name.map(|name| state.process().message_name(page.session, name))
}

fn unfinished_row(state: &AdminState, page: &UnfinishedPage, row: &UnfinishedMessage) -> Value {
    json!({
        "mid": message_id(state, page, row),
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

/// Returns what ends a wait, for people.
pub(crate) fn ends_with(wait: &WaitReason) -> String {
    let within = |then| match until(clock::now(), then) {
        Some(seconds) => format!(" in {seconds:.1} s"),
        None => String::new(),
    };
    match wait {
        WaitReason::ReceiverAway(ends) if ends.is_never() => "the client returns".to_owned(),
        WaitReason::ReceiverAway(ends) => {
            format!("the client returns; its session ends{}, and the message is dropped then", within(*ends))
        }
        WaitReason::WindowFull(Some((packet_id, age))) => {
            let age = age.as_secs_f64();
            format!(
                "an acknowledgement; packet {} is the oldest without one, for {age:.1} s",
                packet_id.get()
            )
        }
        WaitReason::WindowFull(None) => "an acknowledgement".to_owned(),
        WaitReason::Behind(0) => "the next turn of the broker".to_owned(),
        WaitReason::Behind(ahead) => format!("{ahead} messages before it in the queue are sent"),
        WaitReason::SocketBlocked(closes) => {
            format!("the client reads; the connection is closed{} otherwise", within(*closes))
        }
        WaitReason::OlderFirst(older) => format!("{older} older messages are sent again"),
        WaitReason::Unacknowledged(sent) => {
            format!("an acknowledgement; {}. {}", sent.cause.detail(), next_step(sent))
        }
        WaitReason::AwaitingPubcomp(sent) => {
            format!("PUBCOMP; {}. {}", sent.cause.detail(), next_step(sent))
        }
        WaitReason::Committing => "the store commits".to_owned(),
        WaitReason::ReadingBack => "the store reads the message back".to_owned(),
        WaitReason::Held(then) => {
            format!("room in the queue; the message is refused{} otherwise", within(*then))
        }
    }
}

fn next_step(sent: &SentPacket) -> String {
    let Some(seconds) = until(clock::now(), sent.due) else {
        return "Nothing is done about it before the client returns.".to_owned();
    };
    if sent.cause == StallCause::Application {
        format!("Next: {} in {seconds:.1} s.", sent.then.name())
    } else {
        format!("Next look in {seconds:.1} s.")
    }
}
