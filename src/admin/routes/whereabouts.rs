//! /api/v1/messages/where: where a message is, and why it waits.

use super::clients::message;
use super::dead_letters::letter_row;
use super::json_answer::JsonAnswer;
use super::messages::{unfinished_row, wait};
use crate::admin::queries::delayed::DelayedRow;
use crate::admin::queries::waits::until;
use crate::admin::queries::whereabouts::{Whereabouts, wanted, whereabouts};
use crate::admin::state::{AdminState, State};
use crate::admin::traces::fates::TracedFate;
use crate::clock;
use crate::shard::observe::receivers::MatchedSession;
use crate::shard::observe::recent_drops::RecentDrop;
use crate::shard::observe::whereabouts::FoundMessage;
use actix_web::web::{Json, Query};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WhereParameters {
    /// A topic name, or a topic filter for all topics that it matches.
    #[schema(example = "pumps/7/set")]
    topic: Option<String>,
    /// The client id of the publisher.
    #[schema(example = "app")]
    publisher: Option<String>,
    /// The client id of the receiver.
    #[schema(example = "pump-7")]
    receiver: Option<String>,
}

/// Says where the messages of a topic, a publisher or a receiver are.
pub(crate) async fn find_messages(asked: Query<WhereParameters>, state: State) -> JsonAnswer {
    let WhereParameters { topic, publisher, receiver } = &*asked;
    let wanted = wanted(topic.as_deref(), publisher.as_deref(), receiver.as_deref())?;
    let found = whereabouts(&state, &wanted).await?;
    Ok(Json(body(&state, &found)))
}

fn body(state: &AdminState, found: &Whereabouts) -> Value {
    let now = clock::now();
    let Whereabouts { receivers, messages, in_store, delayed, dropped, .. } = found;
    let delayed_row = |row: &DelayedRow| {
        let due = row.place.due;
        let reason = if due <= now { "overdue" } else { "delayed" };
        json!({ "wait": { "reason": reason, "due_in": until(now, due) }, "message": message(&row.message) })
    };
    json!({
        "subscriptions": receivers.sessions().iter().map(session_row).collect::<Vec<_>>(),
        "shared_groups": receivers.groups.iter().map(group_row).collect::<Vec<_>>(),
        "messages": messages.iter().map(|row| found_row(state, row)).collect::<Vec<_>>(),
        "in_store": in_store.iter().map(|(receiver, count, reason)| json!({
            "receiver": &**receiver,
            "messages": count,
            "wait": wait(reason),
        })).collect::<Vec<_>>(),
        "delayed": delayed.iter().map(delayed_row).collect::<Vec<_>>(),
        "dropped": dropped.iter().map(drop_row).collect::<Vec<_>>(),
        "dead_letters": found.letters.iter().map(|letter| letter_row(letter)).collect::<Vec<_>>(),
        "traced": found.traced.iter().map(traced_row).collect::<Vec<_>>(),
        "retained": found.retained.map(|found| json!({ "payload_bytes": found.payload, "qos": found.qos as u8 })),
        "publisher": found.publisher.as_ref().map(|(reason, text)| json!({ "reason": reason, "text": text })),
        "verdicts": found.verdicts,
        "complete": found.is_complete,
    })
}

/// Returns a session that is subscribed to a topic as JSON.
pub(super) fn session_row(session: &MatchedSession) -> Value {
    json!({
        "client_id": &*session.client_id,
        "state": session.state(),
        "qos": session.qos as u8,
        "filters": session.filters.iter().map(|filter| &**filter).collect::<Vec<_>>(),
    })
}

/// Returns a shared group and its number of members as JSON.
pub(super) fn group_row((filter, members): &(Box<str>, usize)) -> Value {
    json!({ "filter": &**filter, "members": members })
}

/// Returns a dropped message as JSON.
pub(super) fn drop_row(drop: &RecentDrop) -> Value {
    json!({
        "receiver": drop.receiver.to_string(),
        "topic": drop.topic.to_string(),
        "cause": drop.cause.name(),
        "transmissions": drop.transmissions,
        "ago": clock::now().since(drop.at).as_secs(),
    })
}

/// Returns the last step of a message in a trace as JSON.
fn traced_row(fate: &TracedFate) -> Value {
    let TracedFate { trace, client_id, topic, kind, at } = fate;
    json!({
        "trace": trace,
        "client": client_id,
        "topic": topic,
        "step": kind.name(),
        "ago": clock::now().since(*at).as_secs(),
    })
}

fn found_row(state: &AdminState, found: &FoundMessage) -> Value {
    let mut row = unfinished_row(state, found.session, &found.message);
    row["receiver"] = (&*found.receiver).into();
    row
}
