//! Topics: who is subscribed, what is retained, and what was dropped.

use super::whereabouts::{drop_row, group_row, session_row};
use crate::admin::access::Scope;
use crate::admin::commands;
use crate::admin::failed::Failed;
use crate::admin::queries::retained::find_retained;
use crate::admin::queries::sessions::find;
use crate::admin::queries::target::ClientTarget;
use crate::admin::queries::waits::until;
use crate::admin::queries::whereabouts::{Elsewhere, elsewhere, receivers};
use crate::admin::request::{caller, limit_of, read_query};
use crate::admin::state::AdminState;
use crate::clock;
use crate::mqtt::message::Message;
use crate::shard::observe::whereabouts::Wanted;
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use serde::Deserialize;
use serde_json::{Value, json};

/// Retained messages in one answer at most.
const RETAINED: usize = 1_000;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct SubscriptionParameters {
    matches: Option<String>,
    client: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RetainedParameters {
    filter: Option<String>,
    limit: Option<usize>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct TopicParameters {
    topic: Option<String>,
}

/// Returns the subscriptions that match a topic, or those of a client.
pub(crate) async fn subscriptions(
    request: HttpRequest,
    state: Data<AdminState>,
) -> Result<HttpResponse, Failed> {
    caller(&request, Scope::Viewer)?;
    let observer = state.running()?;
    match read_query(&request)? {
        SubscriptionParameters { matches: Some(topic), client: None } => {
            let found = receivers(&state, observer, &topic).await?;
            Ok(HttpResponse::Ok().json(json!({
                "subscriptions": found.sessions.iter().map(session_row).collect::<Vec<_>>(),
                "shared_groups": found.groups.iter().map(group_row).collect::<Vec<_>>(),
                "complete": !found.more,
            })))
        }
        SubscriptionParameters { matches: None, client: Some(client) } => {
            let (detail, _) = find(&state, observer, &ClientTarget::client(&client)).await?;
            let filters: Vec<&str> = detail.filters.iter().map(|filter| &**filter).collect();
            let is_complete = filters.len() == detail.row.subscriptions;
            let row = json!({ "client_id": client, "state": detail.row.state(), "filters": filters });
            Ok(HttpResponse::Ok().json(json!({ "subscriptions": [row], "complete": is_complete })))
        }
        _ => {
            let what = "name either matches=TOPIC or client=ID";
            Err(Failed::Parameter(what.to_owned()))
        }
    }
}

/// Lists retained messages, without their payloads.
pub(crate) async fn retained(request: HttpRequest, state: Data<AdminState>) -> Result<HttpResponse, Failed> {
    caller(&request, Scope::Viewer)?;
    let observer = state.running()?;
    let RetainedParameters { filter, limit } = read_query(&request)?;
    let limit = limit_of(limit, 100, RETAINED)?;
    let found = find_retained(observer, filter.as_deref().unwrap_or("#"), limit)?;
    let row = |message: &Message| {
        json!({
            "topic": message.topic().chars().take(256).collect::<String>(),
            "qos": message.header().qos as u8,
            "payload_bytes": message.payload().len(),
            "expires_in": until(clock::now(), message.header().expires),
        })
    };
    let rows: Vec<Value> = found.messages.iter().map(row).collect();
    Ok(HttpResponse::Ok().json(json!({ "retained": rows, "complete": found.is_complete })))
}

/// Deletes the retained message of a topic.
pub(crate) async fn delete_retained(
    request: HttpRequest,
    state: Data<AdminState>,
) -> Result<HttpResponse, Failed> {
    let caller = caller(&request, Scope::Operator)?;
    let TopicParameters { topic } = read_query(&request)?;
    commands::delete_retained(&state, &caller, &topic.unwrap_or_default()).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// Lists the last dropped messages, the newest first.
pub(crate) async fn dropped(request: HttpRequest, state: Data<AdminState>) -> Result<HttpResponse, Failed> {
    let rows = elsewhere_of(&request, &state).await?.dropped;
    Ok(HttpResponse::Ok().json(json!({ "dropped": rows.iter().map(drop_row).collect::<Vec<_>>() })))
}

/// Returns the delayed and the dropped messages of the topic that a viewer asks for; those of all
/// topics if none is named.
pub(super) async fn elsewhere_of(request: &HttpRequest, state: &AdminState) -> Result<Elsewhere, Failed> {
    caller(request, Scope::Viewer)?;
    let observer = state.running()?;
    let TopicParameters { topic } = read_query(request)?;
    let wanted = Wanted { topic: topic.map(Into::into), ..Wanted::default() };
    elsewhere(state, observer, &wanted).await
}
