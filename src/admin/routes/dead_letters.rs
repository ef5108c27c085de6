//! /api/v1/dead-letters: stored dead letters, and commands about them.

use super::json_answer::{JsonAnswer, done};
use crate::admin::bulk::{LetterAction, LetterWish, ManyDone, act_on_letters};
use crate::admin::commands::{ActionDone, command_on_letter, republish_to};
use crate::admin::failed::Failed;
use crate::admin::names::letter_name;
use crate::admin::operator::OperatorRequest;
use crate::admin::payloads::{PayloadPermit, PayloadView};
use crate::admin::queries::letters::{LetterParameters, find_letter, list_letters};
use crate::admin::request::{Asker, DurationText};
use crate::admin::state::State;
use crate::mqtt::packet::ReasonCode;
use crate::operators::message_commands::{MessageCommand, RepublishTo};
use crate::persistence::letter::StoredLetter;
use actix_web::HttpResponse;
use actix_web::web::{Json, Path, Query};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LetterParts {
    /// True for the first 4 KiB of the payload. Payloads need the scope operator, and the audit log
    /// notes the request.
    #[serde(default)]
    #[schema(default = false, example = true)]
    payload: bool,
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RepublishParameters {
    /// The receiver that did not get the message, or every subscriber of its topic.
    #[schema(value_type = Option<RepublishTo>)]
    to: Option<String>,
}

/// The parameters of a deletion of many dead letters. At least one filter, or `all`, is
/// given.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeleteManyParameters {
    /// All with this cause of the drop.
    #[schema(example = "expired")]
    cause: Option<String>,
    /// All of this receiver.
    #[schema(example = "pump-7")]
    receiver: Option<String>,
    /// All whose topics match this filter.
    #[schema(example = "pumps/#")]
    topic: Option<String>,
    /// All that were dropped at least this long ago.
    #[schema(value_type = Option<DurationText>)]
    min_age: Option<String>,
    /// All that were dropped at most this long ago.
    #[schema(value_type = Option<DurationText>)]
    max_age: Option<String>,
    /// True for all, without a filter.
    #[serde(default)]
    #[schema(default = false, example = false)]
    all: bool,
    /// The `confirm` of the answer to the same request without it. No newer letter is touched.
    #[schema(example = "18c2f3a1b00-40")]
    confirm: Option<String>,
}

/// The parameters of a republication of many dead letters, as those of a deletion. The two lists
/// are separate, because serde refuses no unknown name in a flattened list.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RepublishManyParameters {
    /// All with this cause of the drop.
    #[schema(example = "expired")]
    cause: Option<String>,
    /// All of this receiver.
    #[schema(example = "pump-7")]
    receiver: Option<String>,
    /// All whose topics match this filter.
    #[schema(example = "pumps/#")]
    topic: Option<String>,
    /// All that were dropped at least this long ago.
    #[schema(value_type = Option<DurationText>)]
    min_age: Option<String>,
    /// All that were dropped at most this long ago.
    #[schema(value_type = Option<DurationText>)]
    max_age: Option<String>,
    /// True for all, without a filter.
    #[serde(default)]
    #[schema(default = false, example = false)]
    all: bool,
    /// The `confirm` of the answer to the same request without it. No newer letter is touched.
    #[schema(example = "18c2f3a1b00-40")]
    confirm: Option<String>,
    /// The receiver that did not get the message, or every subscriber of its topic.
    #[schema(value_type = Option<RepublishTo>)]
    to: Option<String>,
}

/// A page of dead letters.
#[derive(Serialize, ToSchema)]
#[schema(as = DeadLetters)]
pub(crate) struct LettersAnswer {
    dead_letters: Vec<LetterRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Lists dead letters, the newest first, without their payloads.
pub(crate) async fn list(asked: Query<LetterParameters>, state: State) -> JsonAnswer<LettersAnswer> {
    let listed = list_letters(&state, &asked).await?;
    let dead_letters = listed.letters.iter().map(|letter| LetterRow::of(letter)).collect();
    Ok(Json(LettersAnswer { dead_letters, next: listed.next }))
}

/// Returns one dead letter. The payload needs the scope of an operator, and is noted in the audit
/// log.
pub(crate) async fn one(
    caller: Asker,
    path: Path<String>,
    asked: Query<LetterParts>,
    state: State,
) -> JsonAnswer<LetterRow> {
    let permit = asked.payload.then(|| PayloadPermit::of(&state, &caller)).transpose()?;
    let (_, letter) = find_letter(&state, &path).await?;
    let payload = permit.map(|permit| permit.view(&path, letter.message.payload()));
    Ok(Json(LetterRow { payload, ..LetterRow::of(&letter) }))
}

/// Publishes the message of a dead letter again.
pub(crate) async fn republish(
    path: Path<String>,
    OperatorRequest { operator, asked }: OperatorRequest<RepublishParameters>,
) -> JsonAnswer<ActionDone> {
    let to = republish_to(asked.to.as_deref().unwrap_or("receiver"))?;
    let command = |place| MessageCommand::Republish(place, to);
    command_on_letter(&operator, ("republish", &path), command).await?;
    Ok(Json(ActionDone::DONE))
}

/// Deletes a dead letter.
pub(crate) async fn delete(path: Path<String>, request: OperatorRequest) -> Result<HttpResponse, Failed> {
    let named = ("delete_dead_letter", &**path);
    done(command_on_letter(&request.operator, named, MessageCommand::DeleteLetter).await)
}

/// Counts the dead letters that a filter admits, or publishes their messages again.
pub(crate) async fn republish_many(
    OperatorRequest { operator, asked }: OperatorRequest<RepublishManyParameters>,
) -> JsonAnswer<ManyDone> {
    let RepublishManyParameters { cause, receiver, topic, min_age, max_age, all, confirm, to } = asked;
    let action = LetterAction::Republish(republish_to(to.as_deref().unwrap_or("receiver"))?);
    let filter = LetterParameters { cause, receiver, topic, min_age, max_age, ..Default::default() };
    act_on_letters(&operator, LetterWish { filter, all, confirm }, action).await.map(Json)
}

/// Counts the dead letters that a filter admits, or deletes them.
pub(crate) async fn delete_many(
    OperatorRequest { operator, asked }: OperatorRequest<DeleteManyParameters>,
) -> JsonAnswer<ManyDone> {
    let DeleteManyParameters { cause, receiver, topic, min_age, max_age, all, confirm } = asked;
    let filter = LetterParameters { cause, receiver, topic, min_age, max_age, ..Default::default() };
    act_on_letters(&operator, LetterWish { filter, all, confirm }, LetterAction::Delete).await.map(Json)
}

/// A stored dead letter.
#[derive(Deserialize, Serialize, ToSchema)]
#[schema(as = DeadLetter)]
pub(crate) struct LetterRow {
    /// Outlasts a restart of the broker with a data directory.
    pub(crate) id: String,
    pub(crate) dropped_unix_ms: u64,
    pub(crate) cause: String,
    /// Of the receiver's negative acknowledgement.
    #[schema(required)]
    pub(crate) reason_code: Option<u8>,
    pub(crate) receiver: String,
    /// In full: pages of long topics are short.
    pub(crate) topic: String,
    #[schema(maximum = 2)]
    pub(crate) qos: u8,
    pub(crate) payload_bytes: usize,
    pub(crate) attempts: u16,
    /// Null if the message was not sent, or not since the start of the broker that dropped it.
    #[schema(required)]
    pub(crate) first_sent_unix_ms: Option<u64>,
    /// As `first_sent_unix_ms`.
    #[schema(required)]
    pub(crate) last_sent_unix_ms: Option<u64>,
    #[schema(required)]
    pub(crate) publisher: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) payload: Option<PayloadView>,
}

impl LetterRow {
    /// Returns a dead letter without its payload.
    pub(super) fn of(letter: &StoredLetter) -> LetterRow {
        let StoredLetter { place, receiver, cause, code, attempts, sent_ms, message } = letter;
        LetterRow {
            id: letter_name(*place),
            dropped_unix_ms: place.dropped_ms,
            cause: cause.to_string(),
            reason_code: code.map(ReasonCode::byte),
            receiver: receiver.to_string(),
            topic: message.topic().to_owned(),
            qos: message.header().qos as u8,
            payload_bytes: message.payload().len(),
            attempts: *attempts,
            first_sent_unix_ms: sent_ms.map(|(first, _)| first).filter(|first| *first > 0),
            last_sent_unix_ms: sent_ms.map(|(_, last)| last),
            publisher: Some(message.publisher().to_owned()).filter(|publisher| !publisher.is_empty()),
            payload: None,
        }
    }
}
