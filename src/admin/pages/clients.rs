//! The page of one client, and the actions on it.

use super::answer::answered;
use super::client_facts::facts;
use super::entry::{ActionForm, login_of, login_of_form};
use super::frame::PageFrame;
use super::page::{NoPage, PageResult, render};
use super::timeline::TimelineDrawing;
use super::views::{ClientView, LONG, MessageView, in_sentence, sentence, shown};
use crate::admin::access::Scope;
use crate::admin::commands::{ActionDone, carry_out, message_action, redeliver_by};
use crate::admin::failed::Failed;
use crate::admin::logins::LoggedIn;
use crate::admin::queries::sessions::find;
use crate::admin::queries::target::ClientTarget;
use crate::admin::queries::unfinished::{FoundPage, message_id, unfinished};
use crate::admin::request::{note_of, read_query};
use crate::admin::rows::client::{Client, OwnSubscriptionRow};
use crate::admin::rows::refused::RefusedRow;
use crate::admin::segment::segment;
use crate::admin::sourced_redelivery::{RuleFact, rule_facts, topic_rules};
use crate::admin::state::State;
use crate::operators::client_commands::OperatorAction;
use crate::operators::query::SessionName;
use crate::operators::unfinished::{PagePayloads, UnfinishedPage, UnfinishedPart};
use actix_web::{HttpRequest, ResponseError, web};
use askama::Template;
use serde::Deserialize;

/// Messages in flight, and in the queue, that the page of a client shows.
const MESSAGES: usize = 100;

#[derive(Template)]
#[template(path = "client.html", config = "src/admin/askama.toml")]
struct ClientPage {
    frame: PageFrame,
    mistake: Option<String>,
    csrf: String,
    row: ClientView,
    cause: Option<String>,
    facts: Vec<(&'static str, String)>,
    /// The redelivery settings, each with its source.
    rule: Vec<RuleFact>,
    topic_rules: Option<String>,
    may_act: bool,
    /// The Client Identifier for the form of a trace; `None` if it is too long for one.
    traced_id: Option<String>,
    connected: bool,
    in_flight: Vec<MessageView>,
    queue: Vec<MessageView>,
    /// Why messages of the queue are not shown that are in the store alone.
    store_error: Option<String>,
    more: bool,
    /// The last refused requests, as sentences.
    refused: Vec<String>,
    subscriptions: Vec<OwnSubscriptionRow>,
    /// True if the client has more subscriptions than the page.
    more_subscriptions: bool,
    drawing: TimelineDrawing,
}

/// The parameters of the page of a client.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ClientParameters {
    /// The `ref` of the session.
    #[serde(rename = "ref")]
    reference: Option<String>,
}

pub(super) async fn one(request: HttpRequest, path: web::Path<String>, state: State) -> PageResult {
    let login = login_of(&request, &state)?;
    let ClientParameters { reference } = read_query(&request)?;
    let target = ClientTarget::read(&path, reference.as_deref(), &state)?;
    Ok(render(&client_page(&request, &state, &login, &target).await?))
}

async fn client_page(
    request: &HttpRequest,
    state: &State,
    login: &LoggedIn,
    target: &ClientTarget,
) -> Result<ClientPage, NoPage> {
    let observer = state.running()?;
    let (detail, socket) = find(state, observer, target).await?;
    let in_flight =
        unfinished(state, target, (UnfinishedPart::InFlight, PagePayloads::Hidden), 0, MESSAGES).await?;
    let queue = unfinished(state, target, (UnfinishedPart::Queue, PagePayloads::Hidden), 0, MESSAGES).await?;
    let row = &detail.row;
    let client = Client::of(state, target.shard(observer), row, socket.as_ref());
    let stall = socket.as_ref().and_then(|socket| socket.stall);
    let (FoundPage { page: in_flight, .. }, FoundPage { page: queue, store_error }) = (in_flight, queue);
    let rows = |page: &UnfinishedPage| -> Vec<MessageView> {
        page.rows.iter().map(|row| MessageView::of(row, message_id(state, page.session, row))).collect()
    };
    Ok(ClientPage {
        csrf: login.csrf.clone(),
        may_act: login.caller.scope >= Scope::Operator,
        // An action comes by another path, which has no page to go back to.
        frame: PageFrame { here: path_of(target), ..PageFrame::of(request, state, login, "/clients").await },
        mistake: None,
        cause: stall.as_ref().map(sentence),
        facts: facts(&client),
        rule: rule_facts(&detail.redelivery),
        topic_rules: topic_rules(&detail.redelivery),
        traced_id: (row.client_id.len() <= LONG).then(|| row.client_id.to_string()),
        connected: row.connection.is_some(),
        in_flight: rows(&in_flight),
        queue: rows(&queue),
        store_error,
        more: in_flight.next.is_some() || queue.next.is_some(),
        drawing: TimelineDrawing::of(&state.timeline().of_client(&row.client_id)),
        refused: detail
            .refused
            .iter()
            .map(|refusal| in_sentence(&RefusedRow::of(refusal).sentence()))
            .collect(),
        more_subscriptions: detail.subscriptions.len() < row.subscriptions,
        subscriptions: detail.subscriptions.iter().map(OwnSubscriptionRow::of).collect(),
        row: ClientView::of(client),
    })
}

/// Returns the path of the page of a client.
fn path_of(target: &ClientTarget) -> String {
    match &target.session {
        SessionName::Client(client_id) => format!("/clients/{}", segment(client_id)),
        SessionName::At(_) => format!("/clients/-?ref={}", target.shown),
    }
}

pub(super) async fn disconnect(
    request: HttpRequest,
    path: web::Path<String>,
    state: State,
    form: web::Form<ActionForm>,
) -> PageResult {
    act(&request, &path, &state, &form, || Ok(OperatorAction::Disconnect)).await
}

pub(super) async fn redeliver(
    request: HttpRequest,
    path: web::Path<String>,
    state: State,
    form: web::Form<ActionForm>,
) -> PageResult {
    act(&request, &path, &state, &form, || Ok(OperatorAction::Redeliver(redeliver_by(&form.by)?))).await
}

pub(super) async fn end(
    request: HttpRequest,
    path: web::Path<String>,
    state: State,
    form: web::Form<ActionForm>,
) -> PageResult {
    act(&request, &path, &state, &form, || Ok(OperatorAction::EndSession)).await
}

/// Skips or parks a message.
pub(super) async fn on_message(
    request: HttpRequest,
    path: web::Path<String>,
    state: State,
    form: web::Form<ActionForm>,
) -> PageResult {
    act(&request, &path, &state, &form, || message_action(&state, &form.verb, &form.mid)).await
}

/// Acts on a client. A final action needs the client identifier in full in the form. Of an
/// identifier that is too long for that, the form has the first 256 characters.
async fn act(
    request: &HttpRequest,
    client_id: &str,
    state: &State,
    form: &ActionForm,
    action: impl FnOnce() -> Result<OperatorAction, Failed>,
) -> PageResult {
    let login = login_of_form(request, state, &form.csrf)?;
    let target = ClientTarget::of_request(request, client_id, state)?;
    let outcome = match action() {
        Ok(action) => confirm_and_act(state, &login, &target, form, action).await.map(|done| (action, done)),
        Err(mistake) => Err(mistake.into()),
    };
    let (action, done) = match outcome {
        Ok(done) => done,
        // The page shows the form again, and says why nothing is done.
        Err(failed) => {
            let page = client_page(request, state, &login, &target).await?;
            let mistake = Some(failed.to_string());
            let mut answer = render(&ClientPage { mistake, ..page });
            *answer.status_mut() = failed.status_code();
            return Ok(answer);
        }
    };
    let page = match action {
        OperatorAction::EndSession => "/clients".to_owned(),
        _ => path_of(&target),
    };
    Ok(answered(request, state, &page, done_words(action, done)))
}

/// Returns the sentence about an action that is done.
fn done_words(action: OperatorAction, done: ActionDone) -> String {
    let words = match (action, done.packets) {
        (OperatorAction::EndSession, _) => "The session has ended. Its queue and subscriptions are gone.",
        (OperatorAction::Disconnect, _) => "The client is disconnected. Its session stays.",
        (OperatorAction::Skip(_), _) => "The message was dropped.",
        (OperatorAction::Park(_), _) => "The message is a dead letter now.",
        (OperatorAction::Redeliver(_), Some(0)) => "Nothing is unacknowledged, so nothing was sent again.",
        (OperatorAction::Redeliver(_), Some(1)) => "1 packet was sent again.",
        (OperatorAction::Redeliver(_), Some(packets)) => {
            return format!("{packets} packets were sent again.");
        }
        (OperatorAction::Redeliver(_), None) => {
            "The client is disconnected. Its messages are sent again when it returns."
        }
    };
    words.to_owned()
}

/// Errors: a final action is not confirmed, or the broker refuses.
async fn confirm_and_act(
    state: &State,
    login: &LoggedIn,
    target: &ClientTarget,
    form: &ActionForm,
    action: OperatorAction,
) -> Result<ActionDone, NoPage> {
    if is_final(action) {
        let (detail, _) = find(state, state.running()?, target).await?;
        if form.confirm != shown(&detail.row.client_id) {
            return Err(NoPage::NotConfirmed);
        }
    }
    let note = note_of(Some(form.note.clone()))?;
    Ok(carry_out(state, &login.caller, target, action, &note).await?)
}

/// Returns true if nothing can undo an action.
fn is_final(action: OperatorAction) -> bool {
    match action {
        OperatorAction::EndSession | OperatorAction::Skip(_) | OperatorAction::Park(_) => true,
        OperatorAction::Disconnect | OperatorAction::Redeliver(_) => false,
    }
}
