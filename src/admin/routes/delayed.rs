//! /api/v1/delayed: messages that are published later.

use super::clients::message;
use super::json_answer::JsonAnswer;
use super::topics::{TopicParameters, elsewhere_of};
use crate::admin::commands::command_on_message;
use crate::admin::failed::Failed;
use crate::admin::queries::waits::until;
use crate::admin::queries::whereabouts::DelayedRow;
use crate::admin::request::{Asker, NoteParameters};
use crate::admin::state::State;
use crate::clock;
use crate::shard::features::message_commands::MessageCommand;
use actix_web::HttpResponse;
use actix_web::web::{Json, Path, Query};
use serde_json::json;

/// Lists delayed messages that are in memory: those of the next minute, or all without a store.
pub(crate) async fn list(asked: Query<TopicParameters>, state: State) -> JsonAnswer {
    let rows = elsewhere_of(asked.into_inner(), &state).await?.delayed;
    let row = |row: &DelayedRow| {
        json!({
            "id": state.process().delayed_name(row.shard, row.place),
            "due_in": until(clock::now(), row.place.due),
            "message": message(&row.message),
        })
    };
    Ok(Json(json!({ "delayed": rows.iter().map(row).collect::<Vec<_>>() })))
}

/// Deletes a delayed message that is in memory. It is never published.
pub(crate) async fn delete(
    caller: Asker,
    path: Path<String>,
    asked: Query<NoteParameters>,
    state: State,
) -> Result<HttpResponse, Failed> {
    let note = asked.into_inner().note()?;
    let (shard, place) = state.process().delayed(&path).ok_or(Failed::NoSuchMessage)?;
    let command = (usize::from(shard), MessageCommand::DeleteDelayed(place));
    command_on_message(&state, &caller, ("delete_delayed", &path), &note, command).await?;
    Ok(HttpResponse::NoContent().finish())
}
