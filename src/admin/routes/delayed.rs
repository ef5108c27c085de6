//! /api/v1/delayed: messages that are published later.

use super::json_answer::{JsonAnswer, done};
use crate::admin::commands::command_on_message;
use crate::admin::failed::Failed;
use crate::admin::operator::OperatorRequest;
use crate::admin::queries::delayed::{DelayedRow, list_delayed};
use crate::admin::queries::waits::until;
use crate::admin::request::limit_of;
use crate::admin::rows::message::MessageRow;
use crate::admin::state::State;
use crate::clock;
use crate::operators::message_commands::MessageCommand;
use crate::operators::query::ROWS;
use crate::operators::wanted::WantedTopic;
use actix_web::HttpResponse;
use actix_web::web::{Json, Path, Query};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use utoipa::ToSchema;

/// Time for a page. A page that is not full by then is short.
const TIME: Duration = Duration::from_secs(2);

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DelayedParameters {
    /// A topic name, or a topic filter for all topics that it matches.
    #[schema(example = "pumps/7/set")]
    topic: Option<String>,
    /// Number of rows at most.
    #[schema(minimum = 1, maximum = 256, default = 256, example = 10)]
    limit: Option<usize>,
    cursor: Option<String>,
}

/// A page of delayed messages.
#[derive(Deserialize, Serialize, ToSchema)]
pub(crate) struct DelayedMessages {
    pub(crate) delayed: Vec<DelayedMessage>,
    /// The cursor of the next page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
}

#[derive(Deserialize, Serialize, ToSchema)]
pub(crate) struct DelayedMessage {
    pub(crate) id: String,
    /// Seconds.
    #[schema(required)]
    pub(crate) due_in: Option<f64>,
    pub(crate) message: MessageRow,
}

/// Lists delayed messages that are in memory, in pages: those of the next minute, or all without a
/// store.
pub(crate) async fn list(asked: Query<DelayedParameters>, state: State) -> JsonAnswer<DelayedMessages> {
    let limit = limit_of(asked.limit, ROWS, ROWS)?;
    let topic = asked.topic.as_deref().map(WantedTopic::read).transpose().map_err(Failed::Parameter)?;
    let behind = |cursor: &String| {
        let (shard, place) = state.process.delayed(cursor).ok_or(Failed::Cursor)?;
        Ok::<_, Failed>((place, shard))
    };
    let behind = asked.cursor.as_ref().map(behind).transpose()?;
    let end = clock::now() + TIME;
    let found = list_delayed(&state, topic.as_ref(), (behind, limit), end).await?;
    let name = |shard, place| state.process.delayed_name(shard, place);
    let row = |row: &DelayedRow| DelayedMessage {
        id: name(row.shard, row.place),
        due_in: until(clock::now(), row.place.due),
        message: MessageRow::of(&row.message),
    };
    let delayed = found.rows.iter().map(row).collect();
    Ok(Json(DelayedMessages { delayed, next: found.next.map(|(place, shard)| name(shard, place)) }))
}

/// Deletes a delayed message that is in memory. The message is never published.
pub(crate) async fn delete(path: Path<String>, request: OperatorRequest) -> Result<HttpResponse, Failed> {
    let OperatorRequest { operator, .. } = request;
    let (shard, place) = operator.state.process.delayed(&path).ok_or(Failed::NoSuchMessage)?;
    let command = (usize::from(shard), MessageCommand::DeleteDelayed(place));
    done(command_on_message(&operator, ("delete_delayed", &path), command).await)
}
