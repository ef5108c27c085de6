//! The list of clients, one client, and the actions on it.

use super::entry::{ActionForm, login_of, login_of_form};
use super::frame::PageFrame;
use super::page::{NoPage, PageResult, or_mistake, render, render_form};
use super::timeline::TimelineDrawing;
use super::views::{
    ClientView, LONG, MessageView, bytes, count, in_sentence, long, sentence, shown, until, view_of,
};
use crate::admin::access::Scope;
use crate::admin::commands::{ActionDone, carry_out, message_action, redeliver_by};
use crate::admin::cookies::see;
use crate::admin::failed::Failed;
use crate::admin::listing::Listed;
use crate::admin::logins::LoggedIn;
use crate::admin::queries::sessions::{ListParameters, find, list_sessions};
use crate::admin::queries::target::ClientTarget;
use crate::admin::queries::unfinished::{FoundPage, message_id, unfinished};
use crate::admin::request::{note_of, read_query};
use crate::admin::rows::client::Client;
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
use std::time::Duration;

/// Messages in flight, and in the queue, that the page of a client shows.
const MESSAGES: usize = 100;

#[derive(Template)]
#[template(path = "clients.html", config = "src/admin/askama.toml")]
struct ClientsPage {
    frame: PageFrame,
    mistake: Option<String>,
    stuck: Vec<ClientView>,
    prefix: String,
    state: String,
    age: String,
    queued: String,
    cause: String,
    is_filtered: bool,
    next: Option<String>,
}

#[derive(Template)]
#[template(path = "client.html", config = "src/admin/askama.toml")]
struct ClientPage {
    frame: PageFrame,
    done: Option<String>,
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
    filters: Vec<String>,
    /// The last refused requests, as sentences.
    refused: Vec<String>,
    drawing: TimelineDrawing,
}

/// The fields of the filter, as text. The page shows them again beside a mistake.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ClientsForm {
    prefix: String,
    state: String,
    cause: String,
    min_unacked_age: String,
    min_queued: String,
}

pub(super) async fn list(request: HttpRequest, state: State) -> PageResult {
    let login = login_of(&request, &state)?;
    let observer = state.running()?;
    let form: ClientsForm = read_query(&request)?;
    let listed = match ListParameters::read_form(&request) {
        Ok(parameters) => list_sessions(&state, observer, &parameters).await,
        Err(mistake) => Err(mistake),
    };
    let (listed, mistake) = or_mistake(listed, Listed::default)?;
    let is_mistaken = mistake.is_some();
    let page = ClientsPage {
        frame: PageFrame::of(&request, &state, &login, "/clients").await,
        mistake,
        is_filtered: given_pairs(&request).any(|pair| pair != "state=all"),
        queued: form.min_queued,
        cause: form.cause,
        stuck: listed.rows.iter().map(|row| view_of(&state, row)).collect(),
        prefix: form.prefix,
        state: form.state,
        age: form.min_unacked_age,
        next: listed.next.map(|cursor| next_query(&request, &cursor.encode())),
    };
    Ok(render_form(&page, is_mistaken))
}

/// Returns the fields of the filter that are given, as the query string has them.
fn given_pairs(request: &HttpRequest) -> impl Iterator<Item = &str> {
    let pairs = request.query_string().split('&');
    pairs.filter(|pair| !(pair.is_empty() || pair.ends_with('=') || pair.starts_with("cursor=")))
}

/// Returns the query string of the next page, with the same filter.
fn next_query(request: &HttpRequest, cursor: &str) -> String {
    given_pairs(request).map(|pair| format!("{pair}&")).collect::<String>() + "cursor=" + cursor
}

/// The parameters of the page of a client.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ClientParameters {
    /// The `ref` of the session.
    #[serde(rename = "ref")]
    reference: Option<String>,
    /// The action that led here.
    done: String,
}

pub(super) async fn one(request: HttpRequest, path: web::Path<String>, state: State) -> PageResult {
    let login = login_of(&request, &state)?;
    let ClientParameters { reference, done } = read_query(&request)?;
    let target = ClientTarget::read(&path, reference.as_deref(), &state)?;
    Ok(render(&client_page(&request, &state, &login, &target).await?.with_done(done_words(&done))))
}

/// Returns the sentence about an action that led to the page of its client.
fn done_words(done: &str) -> Option<String> {
    if let Some(packets) = done.strip_prefix("resent-").and_then(|packets| packets.parse::<u32>().ok()) {
        return Some(format!("{packets} packets were sent again."));
    }
    let words = match done {
        "redelivered" => "The client is disconnected. Its messages are sent again when it returns.",
        "disconnected" => "The client is disconnected. Its session stays.",
        "skipped" => "The message was dropped.",
        "parked" => "The message is a dead letter now.",
        _ => return None,
    };
    Some(words.to_owned())
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
        done: None,
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
        filters: detail.filters.iter().map(|filter| filter.to_string()).collect(),
        row: ClientView::of(client),
    })
}

impl ClientPage {
    fn with_done(self, done: Option<String>) -> ClientPage {
        ClientPage { done, ..self }
    }
}

/// Returns the path of the page of a client.
fn path_of(target: &ClientTarget) -> String {
    match &target.session {
        SessionName::Client(client_id) => format!("/clients/{}", segment(client_id)),
        SessionName::At(_) => format!("/clients/-?ref={}", target.shown),
    }
}

/// Returns the facts of a page about a session, without empty ones.
fn facts(client: &Client) -> Vec<(&'static str, String)> {
    let facts = vec![
        ("state", client.state.name().to_owned()),
        ("address", client.address.clone().unwrap_or_default()),
        ("user", client.user.as_deref().unwrap_or("anonymous").to_owned()),
        ("version", client.version.to_string()),
        (
            "session expiry",
            match client.session_expiry {
                u32::MAX => "never".to_owned(),
                secs => long(Duration::from_secs(secs.into())),
            },
        ),
        ("session ends", until(client.ends_in)),
        ("in flight", client.in_flight.to_string()),
        (
            "queued",
            match client.oldest_queued_age {
                Some(age) => format!(
                    "{} messages, {}, the oldest for {}",
                    count(client.queued as u64),
                    bytes(client.queued_bytes as u64),
                    long(Duration::from_secs_f64(age))
                ),
                None => {
                    format!("{} messages, {}", count(client.queued as u64), bytes(client.queued_bytes as u64))
                }
            },
        ),
        ("next deadline", until(client.next_deadline_in)),
    ];
    facts.into_iter().filter(|(_, value)| !value.is_empty()).collect()
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
    let done = match action {
        OperatorAction::EndSession => return Ok(see("/clients")),
        OperatorAction::Disconnect => "disconnected".to_owned(),
        OperatorAction::Skip(_) => "skipped".to_owned(),
        OperatorAction::Park(_) => "parked".to_owned(),
        OperatorAction::Redeliver(_) => match done.packets {
            Some(packets) => format!("resent-{packets}"),
            None => "redelivered".to_owned(),
        },
    };
    let page = path_of(&target);
    let joint = if page.contains('?') { '&' } else { '?' };
    Ok(see(&format!("{page}{joint}done={done}")))
}

/// # Errors
/// A final action is not confirmed, or the broker refuses.
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
