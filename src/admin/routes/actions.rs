//! Actions on one client and its messages.

use crate::admin::access::{Caller, Scope};
use crate::admin::commands::{carry_out, message_action, redeliver_by};
use crate::admin::failed::Failed;
use crate::admin::queries::target::ClientTarget;
use crate::admin::request::{caller, read_query};
use crate::admin::state::AdminState;
use crate::shard::features::administration::OperatorAction;
use actix_web::web::{Data, Path};
use actix_web::{HttpRequest, HttpResponse};
use serde::Deserialize;
use serde_json::Value;

/// Characters of a note at most.
const NOTE: usize = 256;

/// The parameters of an action.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ActionParameters {
    #[serde(rename = "ref")]
    reference: Option<String>,
    note: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RedeliverParameters {
    #[serde(rename = "ref")]
    reference: Option<String>,
    note: Option<String>,
    by: Option<String>,
}

/// Disconnects a client. Its session stays.
pub(crate) async fn disconnect(
    request: HttpRequest,
    path: Path<String>,
    state: Data<AdminState>,
) -> Result<HttpResponse, Failed> {
    let (caller, parameters) = asked(&request)?;
    act(&state, &caller, &path, parameters, OperatorAction::Disconnect).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// Ends the session of a client, with its queue.
pub(crate) async fn end(
    request: HttpRequest,
    path: Path<String>,
    state: Data<AdminState>,
) -> Result<HttpResponse, Failed> {
    let (caller, parameters) = asked(&request)?;
    act(&state, &caller, &path, parameters, OperatorAction::EndSession).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// Sends the unacknowledged messages of a client again.
pub(crate) async fn redeliver(
    request: HttpRequest,
    path: Path<String>,
    state: Data<AdminState>,
) -> Result<HttpResponse, Failed> {
    let caller = caller(&request, Scope::Operator)?;
    let RedeliverParameters { reference, note, by } = read_query(&request)?;
    let action = OperatorAction::Redeliver(redeliver_by(by.as_deref().unwrap_or("auto"))?);
    let done = act(&state, &caller, &path, ActionParameters { reference, note }, action).await?;
    Ok(HttpResponse::Ok().json(done))
}

/// Drops one message of a client.
pub(crate) async fn skip(
    request: HttpRequest,
    path: Path<(String, String)>,
    state: Data<AdminState>,
) -> Result<HttpResponse, Failed> {
    on_message(&request, &path, &state, "skip").await
}

/// Moves one message of a client to the dead letters.
pub(crate) async fn park(
    request: HttpRequest,
    path: Path<(String, String)>,
    state: Data<AdminState>,
) -> Result<HttpResponse, Failed> {
    on_message(&request, &path, &state, "park").await
}

async fn on_message(
    request: &HttpRequest,
    (client_id, message): &(String, String),
    state: &AdminState,
    verb: &str,
) -> Result<HttpResponse, Failed> {
    let (caller, parameters) = asked(request)?;
    let action = message_action(state, verb, message)?;
    Ok(HttpResponse::Ok().json(act(state, &caller, client_id, parameters, action).await?))
}

/// Returns the caller of an action, who must be an operator, and the parameters.
fn asked(request: &HttpRequest) -> Result<(Caller, ActionParameters), Failed> {
    Ok((caller(request, Scope::Operator)?, read_query(request)?))
}

/// Acts on a client. Returns what was done.
async fn act(
    state: &AdminState,
    caller: &Caller,
    client_id: &str,
    ActionParameters { reference, note }: ActionParameters,
    action: OperatorAction,
) -> Result<Value, Failed> {
    let target = ClientTarget::read(client_id, reference.as_deref(), state)?;
    let note = note.unwrap_or_default();
    if note.chars().count() > NOTE {
        return Err(Failed::Parameter(format!("note has more than {NOTE} characters")));
    }
    carry_out(state, caller, &target, action, &note).await
}
