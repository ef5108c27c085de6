//! Actions on one client and its messages.

use super::{Failed, caller, permit, read_query};
use crate::admin::access::{Caller, Scope};
use crate::admin::audit::Action;
use crate::admin::routes::clients::Target;
use crate::admin::state::AdminState;
use crate::shard::features::administration::{CommandOutcome, OperatorAction, OperatorCommand, RedeliverBy};
use actix_web::web::{Data, Path};
use actix_web::{HttpRequest, HttpResponse};
use serde::Deserialize;
use serde_json::{Value, json};

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
    plain(&request, &path, &state, OperatorAction::Disconnect).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// Ends the session of a client, with its queue.
pub(crate) async fn end(
    request: HttpRequest,
    path: Path<String>,
    state: Data<AdminState>,
) -> Result<HttpResponse, Failed> {
    plain(&request, &path, &state, OperatorAction::EndSession).await?;
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
    let target = Target::read(&path, reference.as_deref(), &state)?;
    let note = checked_note(note)?;
    Ok(HttpResponse::Ok().json(carry_out(&state, &caller, &target, action, &note).await?))
}

/// Reads the way of a redelivery.
///
/// # Errors
/// The word is not one of the three.
pub(crate) fn redeliver_by(word: &str) -> Result<RedeliverBy, Failed> {
    match word {
        "auto" => Ok(RedeliverBy::Auto),
        "resend" => Ok(RedeliverBy::Resend),
        "disconnect" => Ok(RedeliverBy::Disconnect),
        other => {
            let what = format!("by is {other:?}, and must be auto, resend or disconnect");
            Err(Failed::Parameter(what))
        }
    }
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
    let caller = caller(request, Scope::Operator)?;
    let ActionParameters { reference, note } = read_query(request)?;
    let target = Target::read(client_id, reference.as_deref(), state)?;
    let action = message_action(state, verb, message)?;
    let note = checked_note(note)?;
    Ok(HttpResponse::Ok().json(carry_out(state, &caller, &target, action, &note).await?))
}

/// Returns the action on a message: `skip` or `park`.
///
/// # Errors
/// The name is that of no message, or the verb is another.
pub(crate) fn message_action(
    state: &AdminState,
    verb: &str,
    message: &str,
) -> Result<OperatorAction, Failed> {
    let message = state.process().message(message).ok_or(Failed::NoSuchMessage)?;
    match verb {
        "skip" => Ok(OperatorAction::Skip(message)),
        "park" => Ok(OperatorAction::Park(message)),
        other => Err(Failed::Parameter(format!("the action is {other:?}, and must be skip or park"))),
    }
}

fn checked_note(note: Option<String>) -> Result<String, Failed> {
    let note = note.unwrap_or_default();
    if note.chars().count() > NOTE {
        return Err(Failed::Parameter(format!("note has more than {NOTE} characters")));
    }
    Ok(note)
}

async fn plain(
    request: &HttpRequest,
    client_id: &str,
    state: &AdminState,
    action: OperatorAction,
) -> Result<Value, Failed> {
    let caller = caller(request, Scope::Operator)?;
    let ActionParameters { reference, note } = read_query(request)?;
    let target = Target::read(client_id, reference.as_deref(), state)?;
    carry_out(state, &caller, &target, action, &checked_note(note)?).await
}

/// Acts on a client for a caller, and writes a line of the audit log. Returns what was done.
///
/// # Errors
/// The caller's scope is too small, the client or message is not there, the action does not fit, or
/// the shard does not answer.
pub(crate) async fn carry_out(
    state: &AdminState,
    caller: &Caller,
    target: &Target,
    action: OperatorAction,
    note: &str,
) -> Result<Value, Failed> {
    permit(caller, Scope::Operator)?;
    let observer = state.running()?;
    let command = OperatorCommand { client: target.session.clone(), action };
    let outcome = observer.command(target.shard(observer), command).await;
    let result = match &outcome {
        Ok(outcome) => format!("{outcome:?}"),
        Err(_) => "no answer".to_owned(),
    };
    let arguments = format!("{action:?} {note}").trim_end().to_owned();
    let action = Action { action: name(action), target: &target.shown, arguments, result };
    state.audit().note(caller, &action);
    done(outcome.map_err(|_| Failed::Busy)?)
}

fn name(action: OperatorAction) -> &'static str {
    match action {
        OperatorAction::Disconnect => "disconnect",
        OperatorAction::EndSession => "end",
        OperatorAction::Redeliver(_) => "redeliver",
        OperatorAction::Skip(_) => "skip",
        OperatorAction::Park(_) => "park",
    }
}

/// Returns a result as JSON.
fn done(outcome: CommandOutcome) -> Result<Value, Failed> {
    let conflict = |slug, detail: &str| Err(Failed::Conflict(slug, detail.to_owned()));
    match outcome {
        CommandOutcome::Done => Ok(json!({ "action": "done" })),
        CommandOutcome::Resent(packets) => Ok(json!({ "action": "resent", "packets": packets })),
        CommandOutcome::Disconnected => Ok(json!({ "action": "disconnected" })),
        CommandOutcome::NoSuchClient => Err(Failed::NoSuchClient),
        CommandOutcome::NoSuchMessage => Err(Failed::NoSuchMessage),
        CommandOutcome::NotConnected => Err(Failed::NotConnected),
        CommandOutcome::NoRoom => Err(Failed::NoRoom),
        CommandOutcome::ResendForbidden => conflict(
            "resend-forbidden",
            "MQTT 5.0 forbids to send a packet again on its connection [MQTT-4.4.0-1]; redeliver by disconnect instead",
        ),
        CommandOutcome::EndsWithConnection => conflict(
            "session-ends",
            "the session ends with its connection, so a disconnect would drop its messages",
        ),
        CommandOutcome::AlreadyReceived => conflict(
            "already-received",
            "the receiver has the message: PUBREC came, and only PUBCOMP is awaited",
        ),
        CommandOutcome::CannotPark(why) => conflict("cannot-park", why),
        CommandOutcome::Reserved => conflict("reserved-topic", "the topic is reserved for the broker"),
    }
}
