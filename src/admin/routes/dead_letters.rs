//! /api/v1/dead-letters: stored dead letters, and commands about them.

use super::json_answer::JsonAnswer;
use crate::admin::access::Caller;
use crate::admin::commands::{command_on_letter, republish_to};
use crate::admin::failed::Failed;
use crate::admin::names::letter_name;
use crate::admin::payloads::PayloadPermit;
use crate::admin::queries::letters::{LetterParameters, find_letter, list_letters};
use crate::admin::request::{Asker, note_of};
use crate::admin::state::State;
use crate::mqtt::packet::ReasonCode;
use crate::persistence::letter::{LetterPlace, StoredLetter};
use crate::shard::features::message_commands::MessageCommand;
use actix_web::HttpResponse;
use actix_web::web::{Json, Path, Query};
use serde::Deserialize;
use serde_json::{Value, json};

/// Characters of a topic in an answer at most.
const TOPIC: usize = 256;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LetterParts {
    #[serde(default)]
    payload: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RepublishParameters {
    to: Option<String>,
    note: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeleteParameters {
    note: Option<String>,
}

/// Lists dead letters, the newest first, without their payloads.
pub(crate) async fn list(asked: Query<LetterParameters>, state: State) -> JsonAnswer {
    let listed = list_letters(&state, &asked).await?;
    let rows: Vec<Value> = listed.letters.iter().map(|letter| letter_row(letter)).collect();
    let mut body = json!({ "dead_letters": rows });
    if let Some(next) = listed.next {
        body["next"] = next.into();
    }
    Ok(Json(body))
}

/// Returns one dead letter. The payload needs the scope of an operator, and is noted in the audit
/// log.
pub(crate) async fn one(
    caller: Asker,
    path: Path<String>,
    asked: Query<LetterParts>,
    state: State,
) -> JsonAnswer {
    let permit = asked.payload.then(|| PayloadPermit::of(&state, &caller)).transpose()?;
    let (_, letter) = find_letter(&state, &path).await?;
    let mut body = letter_row(&letter);
    if let Some(permit) = permit {
        body["payload"] = permit.view(&path, letter.message.payload()).json();
    }
    Ok(Json(body))
}

/// Publishes the message of a dead letter again.
pub(crate) async fn republish(
    caller: Asker,
    path: Path<String>,
    asked: Query<RepublishParameters>,
    state: State,
) -> JsonAnswer {
    let RepublishParameters { to, note } = asked.into_inner();
    let to = republish_to(to.as_deref().unwrap_or("receiver"))?;
    let command = |place| MessageCommand::Republish(place, to);
    act(&state, &caller, ("republish", &path), note, command).await?;
    Ok(Json(json!({ "action": "done" })))
}

/// Deletes a dead letter.
pub(crate) async fn delete(
    caller: Asker,
    path: Path<String>,
    asked: Query<DeleteParameters>,
    state: State,
) -> Result<HttpResponse, Failed> {
    let note = asked.into_inner().note;
    act(&state, &caller, ("delete_dead_letter", &path), note, MessageCommand::DeleteLetter).await?;
    Ok(HttpResponse::NoContent().finish())
}

async fn act(
    state: &State,
    caller: &Caller,
    (action, name): (&'static str, &str),
    note: Option<String>,
    command: impl FnOnce(LetterPlace) -> MessageCommand,
) -> Result<(), Failed> {
    command_on_letter(state, caller, (action, name), &note_of(note)?, command).await
}

/// Returns a dead letter as JSON, without its payload.
pub(super) fn letter_row(letter: &StoredLetter) -> Value {
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
