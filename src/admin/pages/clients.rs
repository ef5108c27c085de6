//! The overview, the list of clients, one client, and the actions on it.

use super::frame::{Figure, stuck};
use super::timeline::TimelineDrawing;
use super::views::{ClientView, MessageRow, SHOWN, bytes, count, long, sentence, until};
use super::{ActionForm, Frame, NoPage, PageResult, State, login_of, login_of_form, render, see};
use crate::admin::access::Scope;
use crate::admin::names::SessionPlace;
use crate::admin::routes::Failed;
use crate::admin::routes::actions::{carry_out, message_action, redeliver_by};
use crate::admin::routes::clients::{ListParameters, Listed, ListedRow, Target, find, list_sessions};
use crate::admin::routes::messages::{message_id, unfinished};
use crate::admin::routes::read_query;
use crate::admin::segment::segment;
use crate::broker::observer::Observer;
use crate::broker::question::SocketFacts;
use crate::clock;
use crate::expiry::statistics::AHEAD;
use crate::shard::features::administration::OperatorAction;
use crate::shard::observe::query::{SessionName, SessionSummary};
use crate::shard::observe::unfinished::{UnfinishedPage, UnfinishedPart};
use crate::time::Instant;
use actix_web::{HttpRequest, web};
use askama::Template;
use serde::Deserialize;
use std::time::Duration;

/// Clients on the overview at most.
const STUCK: usize = 20;

/// Messages in flight, and in the queue, that the page of a client shows.
const MESSAGES: usize = 100;

/// The parameters of the page of a client.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct PageTarget {
    #[serde(rename = "ref")]
    reference: Option<String>,
}

#[derive(Template)]
#[template(path = "overview.html", config = "src/admin/askama.toml")]
struct OverviewPage {
    frame: Frame,
    stuck: Vec<ClientView>,
    more: bool,
    groups: Vec<(&'static str, Vec<Figure>)>,
}

#[derive(Template)]
#[template(path = "clients.html", config = "src/admin/askama.toml")]
struct ClientsPage {
    frame: Frame,
    stuck: Vec<ClientView>,
    prefix: String,
    state: String,
    age: String,
    queued: String,
    is_filtered: bool,
    next: Option<String>,
}

#[derive(Template)]
#[template(path = "client.html", config = "src/admin/askama.toml")]
struct ClientPage {
    frame: Frame,
    csrf: String,
    row: ClientView,
    cause: Option<String>,
    facts: Vec<(&'static str, String)>,
    may_act: bool,
    connected: bool,
    in_flight: Vec<MessageRow>,
    queue: Vec<MessageRow>,
    more: bool,
    filters: Vec<String>,
    drawing: TimelineDrawing,
}

/// Returns the views of listed sessions.
pub(super) fn views(state: &State, listed: &Listed) -> Vec<ClientView> {
    listed.rows.iter().map(|row| view_of(state, row)).collect()
}

/// Returns the view of a listed session.
pub(super) fn view_of(state: &State, row: &ListedRow) -> ClientView {
    let place = place_of(state, row.shard, &row.session);
    ClientView::of(&row.session, row.socket.as_ref(), &place)
}

/// Returns the `ref` of a session.
fn place_of(state: &State, shard: usize, row: &SessionSummary) -> String {
    let shard = u8::try_from(shard).unwrap_or(u8::MAX);
    state.process().session_name(SessionPlace { shard, id: row.id })
}

pub(super) async fn overview(request: HttpRequest, state: State) -> PageResult {
    let login = login_of(&request, &state)?;
    let observer = state.running()?;
    let found = stuck(&state, observer).await;
    let groups = totals(observer);
    let more = found.more || found.clients.len() > STUCK;
    let frame = Frame::of(&request, &state, &login, "/").await;
    Ok(render(&OverviewPage {
        frame,
        stuck: found.clients.iter().take(STUCK).cloned().collect(),
        more,
        groups,
    }))
}

/// Returns the figures of the broker in groups.
pub(super) fn totals(observer: &Observer) -> Vec<(&'static str, Vec<Figure>)> {
    let (statistics, total) = (observer.statistics(), observer.statistics().total());
    let counters = &total.counters;
    let shared = observer.shared();
    let figure = |name, key, value| Figure { name, key, value };
    let up = clock::now().since(Instant::ZERO);
    let held = format!("{} of {}", bytes(statistics.memory()), bytes(statistics.memory_limit()));
    let due = AHEAD.into_iter().zip(statistics.expiry.due());
    let within = |secs| match secs {
        1 => "due within 1 s",
        10 => "due within 10 s",
        _ => "due within 1 min",
    };
    let mut deadlines = vec![figure("deadlines", "deadlines", count(statistics.expiry.keys()))];
    deadlines.extend(due.map(|(secs, keys)| figure(within(secs), "", count(keys))));
    vec![
        (
            "Messages",
            vec![
                figure("received", "received", count(counters.publishes_received.total())),
                figure("sent", "sent", count(counters.sent.total())),
                figure("retained", "", count(shared.retained().len() as u64)),
                figure("delayed", "", count(shared.totals.delayed_messages.get() as u64)),
                figure("dropped", "dropped", count(counters.drops.total())),
                figure("dead letters", "dead_letters", count(counters.dead_letters.total())),
            ],
        ),
        (
            "Redelivery",
            vec![
                figure("sent again", "redelivered", count(counters.redelivered.total())),
                figure("stalls", "stalled", count(counters.stalled.total())),
                figure("disconnected for a missing acknowledgement", "", count(counters.disconnected)),
            ],
        ),
        ("Deadlines", deadlines),
        (
            "Broker",
            vec![
                figure("version", "", env!("CARGO_PKG_VERSION").to_owned()),
                figure("up", "", long(up)),
                figure("subscriptions", "subscriptions", count(total.subscriptions)),
                figure("memory", "memory", held),
            ],
        ),
    ]
}

pub(super) async fn list(request: HttpRequest, state: State) -> PageResult {
    let login = login_of(&request, &state)?;
    let observer = state.running()?;
    let parameters = ListParameters::read_form(&request)?;
    let listed = list_sessions(&state, observer, &parameters).await?;
    let prefix = parameters.prefix.unwrap_or_default();
    let chosen = parameters.state.unwrap_or_else(|| "all".to_owned());
    let age = parameters.min_unacked_age.unwrap_or_default();
    let queued = parameters.min_queued.map(|least| least.to_string()).unwrap_or_default();
    let next = listed.next.map(|cursor| {
        let (prefix, age, cursor) = (segment(&prefix), segment(&age), cursor.encode());
        let least = if queued.is_empty() { String::new() } else { format!("&min_queued={queued}") };
        format!("prefix={prefix}&state={chosen}&min_unacked_age={age}{least}&cursor={cursor}")
    });
    Ok(render(&ClientsPage {
        frame: Frame::of(&request, &state, &login, "/clients").await,
        is_filtered: !(prefix.is_empty() && age.is_empty() && queued.is_empty() && chosen == "all"),
        queued,
        stuck: views(&state, &listed),
        prefix,
        state: chosen,
        age,
        next,
    }))
}

pub(super) async fn one(request: HttpRequest, path: web::Path<String>, state: State) -> PageResult {
    let login = login_of(&request, &state)?;
    let observer = state.running()?;
    let target = target_of(&request, &path, &state)?;
    let (detail, socket) = find(&state, observer, &target).await?;
    let in_flight = unfinished(&state, &target, UnfinishedPart::InFlight, 0, MESSAGES).await?;
    let queue = unfinished(&state, &target, UnfinishedPart::Queue, 0, MESSAGES).await?;
    let row = &detail.row;
    let stall = socket.as_ref().and_then(|socket| socket.stall);
    let rows = |page: &UnfinishedPage| -> Vec<MessageRow> {
        page.rows.iter().map(|row| MessageRow::of(row, message_id(&state, page, row))).collect()
    };
    Ok(render(&ClientPage {
        csrf: login.csrf.clone(),
        may_act: login.caller.scope >= Scope::Operator,
        frame: Frame::of(&request, &state, &login, "/clients").await,
        cause: stall.as_ref().map(sentence),
        facts: facts(row, socket.as_ref()),
        connected: row.connection.is_some(),
        in_flight: rows(&in_flight),
        queue: rows(&queue),
        more: in_flight.next.is_some() || queue.next.is_some(),
        drawing: TimelineDrawing::of(&state.timeline().of_client(&row.client_id)),
        filters: detail.filters.iter().map(|filter| filter.to_string()).collect(),
        row: ClientView::of(row, socket.as_ref(), &place_of(&state, target.shard(observer), row)),
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

/// Returns the session that a page is about.
fn target_of(request: &HttpRequest, client_id: &str, state: &State) -> Result<Target, Failed> {
    let PageTarget { reference } = read_query(request)?;
    Target::read(client_id, reference.as_deref(), state)
}

pub(super) async fn disconnect(
    request: HttpRequest,
    path: web::Path<String>,
    state: State,
    form: web::Form<ActionForm>,
) -> PageResult {
    act(&request, &path, &state, &form, OperatorAction::Disconnect).await
}

pub(super) async fn redeliver(
    request: HttpRequest,
    path: web::Path<String>,
    state: State,
    form: web::Form<ActionForm>,
) -> PageResult {
    let action = OperatorAction::Redeliver(redeliver_by(&form.by)?);
    act(&request, &path, &state, &form, action).await
}

pub(super) async fn end(
    request: HttpRequest,
    path: web::Path<String>,
    state: State,
    form: web::Form<ActionForm>,
) -> PageResult {
    confirmed_act(&request, &path, &state, &form, OperatorAction::EndSession).await
}

/// Skips or parks a message.
pub(super) async fn on_message(
    request: HttpRequest,
    path: web::Path<String>,
    state: State,
    form: web::Form<ActionForm>,
) -> PageResult {
    let action = message_action(&state, &form.verb, &form.mid)?;
    confirmed_act(&request, &path, &state, &form, action).await
}

/// Does what cannot be undone, if the form has the client identifier in full. Of an identifier that
/// is too long for that, the form has the first 256 characters.
async fn confirmed_act(
    request: &HttpRequest,
    client_id: &str,
    state: &State,
    form: &ActionForm,
    action: OperatorAction,
) -> PageResult {
    login_of_form(request, state, &form.csrf)?;
    let observer = state.running()?;
    let (detail, _) = find(state, observer, &target_of(request, client_id, state)?).await?;
    let expected: String = detail.row.client_id.chars().take(SHOWN).collect();
    if form.confirm != expected {
        return Err(NoPage::NotConfirmed);
    }
    act(request, client_id, state, form, action).await
}

async fn act(
    request: &HttpRequest,
    client_id: &str,
    state: &State,
    form: &ActionForm,
    action: OperatorAction,
) -> PageResult {
    let login = login_of_form(request, state, &form.csrf)?;
    let target = target_of(request, client_id, state)?;
    carry_out(state, &login.caller, &target, action, &form.note).await?;
    Ok(match action {
        OperatorAction::EndSession => see("/clients"),
        _ => see(&match &target.session {
            SessionName::Client(client_id) => format!("/clients/{}", segment(client_id)),
            SessionName::At(_) => format!("/clients/-?ref={}", target.shown),
        }),
    })
}
