//! The overview, the list of clients, one client, and the actions on it.

use super::views::{ClientView, MessageRow, SHOWN, sentence, until};
use super::{ActionForm, LoginFrame, PageResult, State, login_of, login_of_form, render, see};
use crate::admin::access::Scope;
use crate::admin::names::SessionPlace;
use crate::admin::problem::problem;
use crate::admin::routes::Failed;
use crate::admin::routes::actions::{carry_out, message_action, redeliver_by};
use crate::admin::routes::clients::{ListParameters, Listed, ListedRow, Target, find, list_sessions};
use crate::admin::routes::messages::{message_id, unfinished};
use crate::admin::routes::read_query;
use crate::admin::segment::segment;
use crate::broker::question::SocketFacts;
use crate::clock;
use crate::expiry::statistics::AHEAD;
use crate::shard::features::administration::OperatorAction;
use crate::shard::observe::query::{SessionName, SessionSummary};
use crate::shard::observe::unfinished::{UnfinishedPage, UnfinishedPart};
use crate::time::Instant;
use actix_web::http::StatusCode;
use actix_web::{HttpRequest, web};
use askama::Template;
use serde::Deserialize;

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
    login: Option<LoginFrame>,
    stuck: Vec<ClientView>,
    more: bool,
    totals: Vec<(&'static str, String)>,
    due: Vec<(u64, u64)>,
}

#[derive(Template)]
#[template(path = "clients.html", config = "src/admin/askama.toml")]
struct ClientsPage {
    login: Option<LoginFrame>,
    stuck: Vec<ClientView>,
    prefix: String,
    state: String,
    age: String,
    next: Option<String>,
}

#[derive(Template)]
#[template(path = "client.html", config = "src/admin/askama.toml")]
struct ClientPage {
    login: Option<LoginFrame>,
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
}

fn views(state: &State, listed: &Listed) -> Vec<ClientView> {
    let view = |row: &ListedRow| {
        let place = place_of(state, row.shard, &row.session);
        ClientView::of(&row.session, row.socket.as_ref(), &place)
    };
    listed.rows.iter().map(view).collect()
}

/// Returns the `ref` of a session.
fn place_of(state: &State, shard: usize, row: &SessionSummary) -> String {
    let shard = u8::try_from(shard).unwrap_or(u8::MAX);
    state.process().session_name(SessionPlace { shard, id: row.id })
}

pub(super) async fn overview(request: HttpRequest, state: State) -> PageResult {
    let login = login_of(&request, &state)?;
    let observer = state.observer().ok_or(Failed::Starting)?;
    let stuck = list_sessions(&state, observer, &ListParameters::stuck(STUCK, "10s")).await?;
    let (statistics, total) = (observer.statistics(), observer.statistics().total());
    let counters = &total.counters;
    let up = clock::now().since(Instant::ZERO).as_secs();
    let totals = vec![
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("up", format!("{up} s")),
        ("clients connected", total.connected.to_string()),
        ("sessions away", total.away().to_string()),
        ("subscriptions", total.subscriptions.to_string()),
        ("messages received", total.received.to_string()),
        ("messages sent", counters.sent.to_string()),
        ("sent again", counters.redelivered.to_string()),
        ("stalls", counters.stalled.to_string()),
        ("disconnected for a missing acknowledgement", counters.disconnected.to_string()),
        ("dropped", counters.drops.total().to_string()),
        ("dead letters", counters.dead_letters.to_string()),
        ("memory", format!("{} of {} bytes", statistics.memory(), statistics.memory_limit())),
        ("deadlines", statistics.expiry.keys().to_string()),
    ];
    let due = AHEAD.into_iter().zip(statistics.expiry.due()).collect();
    let more = stuck.next.is_some();
    Ok(render(&OverviewPage {
        login: Some((&login).into()),
        stuck: views(&state, &stuck),
        more,
        totals,
        due,
    }))
}

pub(super) async fn list(request: HttpRequest, state: State) -> PageResult {
    let login = login_of(&request, &state)?;
    let observer = state.observer().ok_or(Failed::Starting)?;
    let mut parameters = ListParameters::read(&request)?;
    // An empty field of the form is no filter.
    parameters.min_unacked_age = parameters.min_unacked_age.filter(|age| !age.is_empty());
    let listed = list_sessions(&state, observer, &parameters).await?;
    let prefix = parameters.prefix.unwrap_or_default();
    let chosen = parameters.state.unwrap_or_else(|| "all".to_owned());
    let age = parameters.min_unacked_age.unwrap_or_default();
    let next = listed.next.map(|cursor| {
        let (prefix, age) = (segment(&prefix), segment(&age));
        format!("prefix={prefix}&state={chosen}&min_unacked_age={age}&cursor={}", cursor.encode())
    });
    Ok(render(&ClientsPage {
        login: Some((&login).into()),
        stuck: views(&state, &listed),
        prefix,
        state: chosen,
        age,
        next,
    }))
}

pub(super) async fn one(request: HttpRequest, path: web::Path<String>, state: State) -> PageResult {
    let login = login_of(&request, &state)?;
    let observer = state.observer().ok_or(Failed::Starting)?;
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
        login: Some((&login).into()),
        cause: stall.as_ref().map(sentence),
        facts: facts(row, socket.as_ref()),
        connected: row.connection.is_some(),
        in_flight: rows(&in_flight),
        queue: rows(&queue),
        more: in_flight.next.is_some() || queue.next.is_some(),
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
            if row.expiry == u32::MAX { "never".to_owned() } else { format!("{} s", row.expiry) },
        ),
        ("session ends", until(row.ends)),
        ("in flight", row.in_flight.to_string()),
        ("queued", format!("{} messages, {} bytes", row.queued, row.queued_bytes)),
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
    let observer = state.observer().ok_or(Failed::Starting)?;
    let (detail, _) = find(state, observer, &target_of(request, client_id, state)?).await?;
    let expected: String = detail.row.client_id.chars().take(SHOWN).collect();
    if form.confirm != expected {
        let detail = "the client id that you wrote is not the one of this page; go back and write it again";
        return Ok(problem(StatusCode::CONFLICT, "not-confirmed", detail));
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
