//! The list of clients, one client, and the actions on it.

use super::entry::{ActionForm, login_of, login_of_form};
use super::frame::PageFrame;
use super::page::{NoPage, PageResult, render};
use super::timeline::TimelineDrawing;
use super::views::{ClientView, LONG, MessageRow, bytes, count, long, sentence, shown, until, view_of};
use crate::admin::access::Scope;
use crate::admin::commands::{carry_out, message_action, redeliver_by};
use crate::admin::cookies::see;
use crate::admin::failed::Failed;
use crate::admin::queries::sessions::{ListParameters, find, list_sessions, reference_of};
use crate::admin::queries::target::ClientTarget;
use crate::admin::queries::unfinished::{message_id, unfinished};
use crate::admin::segment::segment;
use crate::admin::session_rule::{RuleFact, rule_facts, topic_rules};
use crate::admin::state::State;
use crate::broker::question::SocketFacts;
use crate::shard::features::administration::OperatorAction;
use crate::shard::observe::query::{SessionName, SessionSummary};
use crate::shard::observe::unfinished::{PagePayloads, UnfinishedPage, UnfinishedPart};
use actix_web::{HttpRequest, web};
use askama::Template;
use std::time::Duration;

/// Messages in flight, and in the queue, that the page of a client shows.
const MESSAGES: usize = 100;

#[derive(Template)]
#[template(path = "clients.html", config = "src/admin/askama.toml")]
struct ClientsPage {
    frame: PageFrame,
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
    in_flight: Vec<MessageRow>,
    queue: Vec<MessageRow>,
    more: bool,
    filters: Vec<String>,
    drawing: TimelineDrawing,
}

pub(super) async fn list(request: HttpRequest, state: State) -> PageResult {
    let login = login_of(&request, &state)?;
    let observer = state.running()?;
    let parameters = ListParameters::read_form(&request)?;
    let listed = list_sessions(&state, observer, &parameters).await?;
    let prefix = parameters.prefix.unwrap_or_default();
    let chosen = parameters.state.unwrap_or_else(|| "all".to_owned());
    let age = parameters.min_unacked_age.unwrap_or_default();
    let cause = parameters.cause.unwrap_or_default();
    let queued = parameters.min_queued.map(|least| least.to_string()).unwrap_or_default();
    Ok(render(&ClientsPage {
        frame: PageFrame::of(&request, &state, &login, "/clients").await,
        is_filtered: given_pairs(&request).any(|pair| pair != "state=all"),
        queued,
        cause,
        stuck: listed.rows.iter().map(|row| view_of(&state, row)).collect(),
        prefix,
        state: chosen,
        age,
        next: listed.next.map(|cursor| next_query(&request, &cursor.encode())),
    }))
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

pub(super) async fn one(request: HttpRequest, path: web::Path<String>, state: State) -> PageResult {
    let login = login_of(&request, &state)?;
    let observer = state.running()?;
    let target = ClientTarget::of_request(&request, &path, &state)?;
    let (detail, socket) = find(&state, observer, &target).await?;
    let in_flight =
        unfinished(&state, &target, (UnfinishedPart::InFlight, PagePayloads::Hidden), 0, MESSAGES).await?;
    let queue =
        unfinished(&state, &target, (UnfinishedPart::Queue, PagePayloads::Hidden), 0, MESSAGES).await?;
    let row = &detail.row;
    let stall = socket.as_ref().and_then(|socket| socket.stall);
    let rows = |page: &UnfinishedPage| -> Vec<MessageRow> {
        page.rows.iter().map(|row| MessageRow::of(row, message_id(&state, page.session, row))).collect()
    };
    Ok(render(&ClientPage {
        csrf: login.csrf.clone(),
        may_act: login.caller.scope >= Scope::Operator,
        frame: PageFrame::of(&request, &state, &login, "/clients").await,
        cause: stall.as_ref().map(sentence),
        facts: facts(row, socket.as_ref()),
        rule: rule_facts(&detail.redelivery),
        topic_rules: topic_rules(&detail.redelivery),
        traced_id: (row.client_id.len() <= LONG).then(|| row.client_id.to_string()),
        connected: row.connection.is_some(),
        in_flight: rows(&in_flight),
        queue: rows(&queue),
        more: in_flight.next.is_some() || queue.next.is_some(),
        drawing: TimelineDrawing::of(&state.timeline().of_client(&row.client_id)),
        filters: detail.filters.iter().map(|filter| filter.to_string()).collect(),
        row: ClientView::of(row, socket.as_ref(), &reference_of(&state, target.shard(observer), row.id)),
    }))
}

/// Returns what a page says of a session, without what is empty.
fn facts(row: &SessionSummary, socket: Option<&SocketFacts>) -> Vec<(&'static str, String)> {
    let facts = vec![
        ("state", row.state().to_owned()),
        ("address", socket.map(|socket| socket.address.clone()).unwrap_or_default()),
        ("user", row.user.as_deref().unwrap_or("anonymous").to_owned()),
        ("version", row.version.to_string()),
        (
            "session expiry",
            if row.expiry == u32::MAX {
                "never".to_owned()
            } else {
                long(Duration::from_secs(row.expiry.into()))
            },
        ),
        ("session ends", until(row.ends)),
        ("in flight", row.in_flight.to_string()),
        ("queued", format!("{} messages, {}", count(row.queued as u64), bytes(row.queued_bytes as u64))),
        ("next deadline", until(row.due)),
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
    let action = action()?;
    if is_final(action) {
        let (detail, _) = find(state, state.running()?, &target).await?;
        if form.confirm != shown(&detail.row.client_id) {
            return Err(NoPage::NotConfirmed);
        }
    }
    carry_out(state, &login.caller, &target, action, &form.note).await?;
    Ok(match action {
        OperatorAction::EndSession => see("/clients"),
        _ => see(&match &target.session {
            SessionName::Client(client_id) => format!("/clients/{}", segment(client_id)),
            SessionName::At(_) => format!("/clients/-?ref={}", target.shown),
        }),
    })
}

/// Returns true if nothing can undo an action.
fn is_final(action: OperatorAction) -> bool {
    match action {
        OperatorAction::EndSession | OperatorAction::Skip(_) | OperatorAction::Park(_) => true,
        OperatorAction::Disconnect | OperatorAction::Redeliver(_) => false,
    }
}
