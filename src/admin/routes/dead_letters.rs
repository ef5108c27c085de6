//! /api/v1/dead-letters: stored dead letters, and commands about them.

use crate::admin::access::{Caller, Scope};
use crate::admin::commands::{command_on_letter, republish_to};
use crate::admin::failed::Failed;
use crate::admin::names::letter_name;
use crate::admin::queries::letters::{
    LetterParameters, PayloadView, find_letter, list_letters, view_payload,
};
use crate::admin::request::{caller, permit, read_query};
use crate::admin::state::AdminState;
use crate::mqtt::packet::ReasonCode;
use crate::persistence::letter::{LetterPlace, StoredLetter};
use crate::shard::features::message_commands::MessageCommand;
use actix_web::web::{Data, Path};
use actix_web::{HttpRequest, HttpResponse};
use serde::Deserialize;
use serde_json::{Value, json};

/// Characters of a topic in an answer at most.
const TOPIC: usize = 256;

/// Characters of a note at most.
const NOTE: usize = 256;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct LetterParts {
    #[serde(default)]
    payload: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RepublishParameters {
    to: Option<String>,
    note: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeleteParameters {
    note: Option<String>,
}

/// Lists dead letters, the newest first, without their payloads.
pub(crate) async fn list(request: HttpRequest, state: Data<AdminState>) -> Result<HttpResponse, Failed> {
    caller(&request, Scope::Viewer)?;
    let parameters: LetterParameters = read_query(&request)?;
    let listed = list_letters(&state, &parameters).await?;
    let rows: Vec<Value> = listed.letters.iter().map(|letter| row(letter)).collect();
    let mut body = json!({ "dead_letters": rows });
    if let Some(next) = listed.next {
        body["next"] = next.into();
    }
    Ok(HttpResponse::Ok().json(body))
}

/// Returns one dead letter. The payload needs the scope of an operator, and is noted in the audit
/// log.
pub(crate) async fn one(
    request: HttpRequest,
    path: Path<String>,
    state: Data<AdminState>,
) -> Result<HttpResponse, Failed> {
    let caller = caller(&request, Scope::Viewer)?;
    let LetterParts { payload } = read_query(&request)?;
    if payload {
        permit(&caller, Scope::Operator)?;
    }
    let (_, letter) = find_letter(&state, &path).await?;
    let mut body = row(&letter);
    if payload {
        body["payload"] = match view_payload(&state, &caller, &path, &letter) {
            (PayloadView::Text(text), is_complete) => json!({ "text": text, "complete": is_complete }),
            (PayloadView::Base64(text), is_complete) => json!({ "base64": text, "complete": is_complete }),
        };
    }
    Ok(HttpResponse::Ok().json(body))
}

/// Publishes the message of a dead letter again.
pub(crate) async fn republish(
    request: HttpRequest,
    path: Path<String>,
    state: Data<AdminState>,
) -> Result<HttpResponse, Failed> {
    let caller = caller(&request, Scope::Operator)?;
    let RepublishParameters { to, note } = read_query(&request)?;
    let to = republish_to(to.as_deref().unwrap_or("receiver"))?;
    let command = |place| MessageCommand::Republish(place, to);
    act(&state, &caller, ("republish", &path), note, command).await?;
    Ok(HttpResponse::Ok().json(json!({ "action": "done" })))
}

/// Deletes a dead letter.
pub(crate) async fn delete(
    request: HttpRequest,
    path: Path<String>,
    state: Data<AdminState>,
) -> Result<HttpResponse, Failed> {
    let caller = caller(&request, Scope::Operator)?;
    let DeleteParameters { note } = read_query(&request)?;
    act(&state, &caller, ("delete_dead_letter", &path), note, MessageCommand::DeleteLetter).await?;
    Ok(HttpResponse::NoContent().finish())
}

async fn act(
    state: &AdminState,
    caller: &Caller,
    (action, name): (&'static str, &str),
    note: Option<String>,
    command: impl FnOnce(LetterPlace) -> MessageCommand,
) -> Result<(), Failed> {
    let note = note.unwrap_or_default();
    if note.chars().count() > NOTE {
        return Err(Failed::Parameter(format!("note has more than {NOTE} characters")));
    }
    command_on_letter(state, caller, (action, name), &note, command).await
}

/// Returns a dead letter as JSON, without its payload.
fn row(letter: &StoredLetter) -> Value {
    let StoredLetter { place, receiver, cause, code, attempts, sent_ms, message } = letter;
    json!({
        "id": letter_name(*place),
        "dropped_unix_ms": place.dropped_ms,
        "cause": &**cause,
        "reason_code": code.map(ReasonCode::byte),
        "receiver": &**receiver,
        "topic": message.topic().chars().take(TOPIC).collect::<String>(),
        "qos": message.header().qos as u8,
        "payload_bytes": message.payload().len(),
        "attempts": attempts,
        "first_sent_unix_ms": sent_ms.map(|(first, _)| first),
        "last_sent_unix_ms": sent_ms.map(|(_, last)| last),
        "publisher": Some(message.publisher()).filter(|publisher| !publisher.is_empty()),
    })
}
