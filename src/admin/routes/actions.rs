//! Actions on one client and its messages, and on the connections of many clients.

use super::json_answer::{JsonAnswer, done};
use crate::admin::bulk::{self, ConnectionFilter, ManyDone};
use crate::admin::commands::{ActionDone, carry_out, message_action, redeliver_by};
use crate::admin::failed::Failed;
use crate::admin::operator::OperatorRequest;
use crate::admin::queries::target::{ClientTarget, OneParameters};
use crate::operators::client_commands::{OperatorAction, RedeliverBy};
use actix_web::HttpResponse;
use actix_web::web::{Json, Path};
use serde::Deserialize;
use utoipa::ToSchema;

/// A request for an action on one client.
type ClientRequest = OperatorRequest<OneParameters>;

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RedeliverParameters {
    #[serde(rename = "ref")]
    reference: Option<String>,
    /// `auto` resends where MQTT allows it, and disconnects otherwise.
    #[schema(value_type = Option<RedeliverBy>)]
    by: Option<String>,
}

/// Disconnects a client. Its session stays.
pub(crate) async fn disconnect(path: Path<String>, request: ClientRequest) -> Result<HttpResponse, Failed> {
    done(act(request, &path, OperatorAction::Disconnect).await.map(drop))
}

/// Ends the session of a client, with its queue.
pub(crate) async fn end(path: Path<String>, request: ClientRequest) -> Result<HttpResponse, Failed> {
    done(act(request, &path, OperatorAction::EndSession).await.map(drop))
}

/// Drops the queue of a client.
pub(crate) async fn purge(
    path: Path<String>,
    OperatorRequest { operator, asked }: ClientRequest,
) -> JsonAnswer<ManyDone> {
    let target = ClientTarget::read(&path, asked.reference.as_deref(), &operator.state)?;
    bulk::purge(&operator, &target).await.map(Json)
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
}

/// Disconnects all clients of a user, a listener or a beginning of the client identifier. Their
/// sessions stay.
pub(crate) async fn disconnect_many(request: OperatorRequest<DisconnectParameters>) -> JsonAnswer<ManyDone> {
    let DisconnectParameters { user, listener, prefix } = request.asked;
    bulk::disconnect(&request.operator, ConnectionFilter { user, listener, prefix }).await.map(Json)
}

/// Sends the unacknowledged messages of a client again.
pub(crate) async fn redeliver(
    path: Path<String>,
    OperatorRequest { operator, asked }: OperatorRequest<RedeliverParameters>,
) -> JsonAnswer<ActionDone> {
    let RedeliverParameters { reference, by } = asked;
    let action = OperatorAction::Redeliver(redeliver_by(by.as_deref().unwrap_or("auto"))?);
    act(OperatorRequest { operator, asked: OneParameters { reference } }, &path, action).await
}

/// Drops one message of a client.
pub(crate) async fn skip(path: Path<(String, String)>, request: ClientRequest) -> JsonAnswer<ActionDone> {
    on_message(request, &path, "skip").await
}

/// Moves one message of a client to the dead letters.
pub(crate) async fn park(path: Path<(String, String)>, request: ClientRequest) -> JsonAnswer<ActionDone> {
    on_message(request, &path, "park").await
}

async fn on_message(
    request: ClientRequest,
    (client_id, message): &(String, String),
    verb: &str,
) -> JsonAnswer<ActionDone> {
    let action = message_action(&request.operator.state, verb, message)?;
    act(request, client_id, action).await
}

/// Acts on a client. Returns the result.
async fn act(
    OperatorRequest { operator, asked }: ClientRequest,
    client_id: &str,
    action: OperatorAction,
) -> JsonAnswer<ActionDone> {
    let target = ClientTarget::read(client_id, asked.reference.as_deref(), &operator.state)?;
    carry_out(&operator, &target, action).await.map(Json)
}
