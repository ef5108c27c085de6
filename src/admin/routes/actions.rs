//! Actions on one client and its messages, and on the connections of many clients.

use super::json_answer::{JsonAnswer, done};
use crate::admin::access::Caller;
use crate::admin::bulk::{self, ConnectionFilter, ManyDone};
use crate::admin::commands::{ActionDone, carry_out, message_action, redeliver_by};
use crate::admin::failed::Failed;
use crate::admin::queries::target::ClientTarget;
use crate::admin::request::{Asker, note_of};
use crate::admin::state::State;
use crate::operators::client_commands::{OperatorAction, RedeliverBy};
use actix_web::HttpResponse;
use actix_web::web::{Json, Path, Query};
use serde::Deserialize;
use utoipa::ToSchema;

/// The parameters of an action.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ActionParameters {
    #[serde(rename = "ref")]
    reference: Option<String>,
    note: Option<String>,
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RedeliverParameters {
    #[serde(rename = "ref")]
    reference: Option<String>,
    note: Option<String>,
    /// `auto` resends where MQTT allows it, and disconnects otherwise.
    #[schema(value_type = Option<RedeliverBy>)]
    by: Option<String>,
}

/// Disconnects a client. Its session stays.
pub(crate) async fn disconnect(
    caller: Asker,
    path: Path<String>,
    asked: Query<ActionParameters>,
    state: State,
) -> Result<HttpResponse, Failed> {
    done(act(&state, &caller, &path, asked.into_inner(), OperatorAction::Disconnect).await.map(drop))
}

/// Ends the session of a client, with its queue.
pub(crate) async fn end(
    caller: Asker,
    path: Path<String>,
    asked: Query<ActionParameters>,
    state: State,
) -> Result<HttpResponse, Failed> {
    done(act(&state, &caller, &path, asked.into_inner(), OperatorAction::EndSession).await.map(drop))
}

/// Drops the queue of a client.
pub(crate) async fn purge(
    caller: Asker,
    path: Path<String>,
    asked: Query<ActionParameters>,
    state: State,
) -> JsonAnswer<ManyDone> {
    let ActionParameters { reference, note } = asked.into_inner();
    let target = ClientTarget::read(&path, reference.as_deref(), &state)?;
    bulk::purge(&state, &caller, &target, &note_of(note)?).await.map(Json)
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DisconnectParameters {
    /// All clients with this user name.
    #[schema(example = "ann")]
    user: Option<String>,
    /// All clients of the listener with this name or address.
    #[schema(example = "127.0.0.1:1883")]
    listener: Option<String>,
    /// All clients whose ids begin with this.
    #[schema(example = "pump-")]
    prefix: Option<String>,
    note: Option<String>,
}

/// Disconnects all clients of a user, a listener or a beginning of the client identifier. Their
/// sessions stay.
pub(crate) async fn disconnect_many(
    caller: Asker,
    asked: Query<DisconnectParameters>,
    state: State,
) -> JsonAnswer<ManyDone> {
    let DisconnectParameters { user, listener, prefix, note } = asked.into_inner();
    let wanted = ConnectionFilter { user, listener, prefix };
    bulk::disconnect(&state, &caller, wanted, &note_of(note)?).await.map(Json)
}

/// Sends the unacknowledged messages of a client again.
pub(crate) async fn redeliver(
    caller: Asker,
    path: Path<String>,
    asked: Query<RedeliverParameters>,
    state: State,
) -> JsonAnswer<ActionDone> {
    let RedeliverParameters { reference, note, by } = asked.into_inner();
    let action = OperatorAction::Redeliver(redeliver_by(by.as_deref().unwrap_or("auto"))?);
    act(&state, &caller, &path, ActionParameters { reference, note }, action).await
}

/// Drops one message of a client.
pub(crate) async fn skip(
    caller: Asker,
    path: Path<(String, String)>,
    asked: Query<ActionParameters>,
    state: State,
) -> JsonAnswer<ActionDone> {
    on_message(&state, &caller, &path, asked.into_inner(), "skip").await
}

/// Moves one message of a client to the dead letters.
pub(crate) async fn park(
    caller: Asker,
    path: Path<(String, String)>,
    asked: Query<ActionParameters>,
    state: State,
) -> JsonAnswer<ActionDone> {
    on_message(&state, &caller, &path, asked.into_inner(), "park").await
}

async fn on_message(
    state: &State,
    caller: &Caller,
    (client_id, message): &(String, String),
    parameters: ActionParameters,
    verb: &str,
) -> JsonAnswer<ActionDone> {
    act(state, caller, client_id, parameters, message_action(state, verb, message)?).await
}

/// Acts on a client. Returns the result.
async fn act(
    state: &State,
    caller: &Caller,
    client_id: &str,
    ActionParameters { reference, note }: ActionParameters,
    action: OperatorAction,
) -> JsonAnswer<ActionDone> {
    let target = ClientTarget::read(client_id, reference.as_deref(), state)?;
    carry_out(state, caller, &target, action, &note_of(note)?).await.map(Json)
}
