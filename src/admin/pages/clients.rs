//! The overview, the list of clients, one client, and the actions on it.

use super::views::{ClientView, InFlightRow, QueueRow, sentence, until};
use super::{ActionForm, LoginFrame, PageResult, State, login_of, login_of_form, render, see};
use crate::admin::access::Scope;
use crate::admin::problem::problem;
use crate::admin::routes::Failed;
use crate::admin::routes::clients::{ListParameters, Listed, carry_out, find, list_sessions};
use crate::admin::segment::segment;
use crate::clock;
use crate::expiry::statistics::AHEAD;
use crate::shard::features::administration::OperatorAction;
use crate::time::Instant;
use actix_web::http::StatusCode;
use actix_web::{HttpRequest, web};
use askama::Template;

/// Clients on the overview at most.
const STUCK: usize = 20;

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
    in_flight: Vec<InFlightRow>,
    queue: Vec<QueueRow>,
    filters: Vec<String>,
}

fn views(listed: &Listed) -> Vec<ClientView> {
    listed.rows.iter().map(|(row, socket)| ClientView::of(row, socket.as_ref())).collect()
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
    Ok(render(&OverviewPage { login: Some((&login).into()), stuck: views(&stuck), more, totals, due }))
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
        stuck: views(&listed),
        prefix,
        state: chosen,
        age,
        next,
    }))
}

pub(super) async fn one(request: HttpRequest, path: web::Path<String>, state: State) -> PageResult {
    let login = login_of(&request, &state)?;
    let observer = state.observer().ok_or(Failed::Starting)?;
    let (detail, socket) = find(&state, observer, &path).await?;
    let row = &detail.row;
    let stall = socket.as_ref().and_then(|socket| socket.stall);
    let facts = vec![
        ("state", row.state().to_owned()),
        ("address", socket.as_ref().map(|socket| socket.address.clone()).unwrap_or_default()),
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
    Ok(render(&ClientPage {
        csrf: login.csrf.clone(),
        may_act: login.caller.scope >= Scope::Operator,
        login: Some((&login).into()),
        cause: stall.as_ref().map(sentence),
        facts: facts.into_iter().filter(|(_, value)| !value.is_empty()).collect(),
        connected: row.connection.is_some(),
        in_flight: detail.in_flight.iter().map(InFlightRow::of).collect(),
        queue: detail.queue.iter().map(QueueRow::of).collect(),
        filters: detail.filters.iter().map(|filter| filter.to_string()).collect(),
        row: ClientView::of(row, socket.as_ref()),
    }))
}

pub(super) async fn disconnect(
    request: HttpRequest,
    path: web::Path<String>,
    state: State,
    form: web::Form<ActionForm>,
) -> PageResult {
    act(&request, &path, &state, &form, OperatorAction::Disconnect).await
}

pub(super) async fn end(
    request: HttpRequest,
    path: web::Path<String>,
    state: State,
    form: web::Form<ActionForm>,
) -> PageResult {
    if form.confirm != *path {
        let detail = "the client id that you wrote is not the one of this page; go back and write it again";
        return Ok(problem(StatusCode::CONFLICT, "not-confirmed", detail));
    }
    act(&request, &path, &state, &form, OperatorAction::EndSession).await
}

async fn act(
    request: &HttpRequest,
    client_id: &str,
    state: &State,
    form: &ActionForm,
    action: OperatorAction,
) -> PageResult {
    let login = login_of_form(request, state, &form.csrf)?;
    let observer = state.observer().ok_or(Failed::Starting)?;
    carry_out(observer, &login.caller, client_id, action).await?;
    Ok(match action {
        OperatorAction::EndSession => see("/clients"),
        OperatorAction::Disconnect => see(&format!("/clients/{}", segment(client_id))),
    })
}
