//! The overview: the problems, what waits, the charts, and the figures of the broker.

use super::charts::Charts;
use super::entry::Visit;
use super::frame::{PageFigure, PageFrame};
use super::gauges::OverviewGauges;
use super::page::{PageResult, render};
use super::problems::{BrokerProblem, BrokerProblemKind, problems};
use super::views::{ClientView, bytes, count, view_of};
use crate::admin::human::{counted, seconds};
use crate::admin::queries::stuck::{longest_queues, stuck_clients};
use crate::admin::recent::history::Span;
use crate::broker::OpenListener;
use crate::broker::observer::Observer;
use askama::Template;
use serde::Deserialize;
use std::time::Duration;

/// Clients on the overview at most.
const STUCK: usize = 20;

#[derive(Template)]
#[template(path = "overview.html", config = "src/admin/askama.toml")]
struct OverviewPage {
    frame: PageFrame,
    /// The problems without that of the stuck clients, which have a table.
    problems: Vec<BrokerProblem>,
    stuck: Vec<ClientView>,
    more: bool,
    gauges: OverviewGauges,
    /// The clients with the longest queues.
    queues: Vec<QueueView>,
    charts: Charts,
    listeners: Vec<ListenerView>,
    groups: Vec<(&'static str, Vec<PageFigure>)>,
}

/// A client with a long queue.
struct QueueView {
    client: ClientView,
    queued: String,
    size: String,
    in_flight: String,
    /// The age of the oldest message; empty if it is not known.
    oldest: String,
}

impl QueueView {
    fn of(client: ClientView, oldest: Option<Duration>) -> QueueView {
        let (queued, in_flight, size) =
            (client.queued(), client.in_flight(), bytes(client.client.queued_bytes as u64));
        let oldest = oldest.map(seconds).unwrap_or_default();
        QueueView { queued, size, in_flight, oldest, client }
    }
}

struct ListenerView {
    address: String,
    connections: String,
}

/// The choice of the charts.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct OverviewForm {
    charts: ChartSpan,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum ChartSpan {
    #[default]
    Hour,
    Day,
}

pub(super) async fn overview(visit: Visit) -> PageResult {
    let state = &visit.state;
    let observer = state.running()?;
    let OverviewForm { charts } = visit.read()?;
    let span = if charts == ChartSpan::Day { Span::Day } else { Span::Hour };
    // Together, because each may take its whole time.
    let (found, queues) = tokio::join!(stuck_clients(state), longest_queues(state));
    let (groups, gauges) = (totals(observer), OverviewGauges::of(state, observer).await);
    let more = found.has_more || found.rows.len() > STUCK;
    let frame = PageFrame::of(&visit, "/").await;
    let mut problems = problems(state, observer).await;
    problems.retain(|problem| problem.kind != BrokerProblemKind::StuckClients);
    Ok(render(&OverviewPage {
        frame,
        problems,
        stuck: found.rows.iter().take(STUCK).map(|row| view_of(state, row)).collect(),
        more,
        gauges,
        queues: queues
            .rows
            .iter()
            .map(|row| QueueView::of(view_of(state, row), row.session.oldest_queued))
            .collect(),
        charts: Charts::of(&state.history, span),
        listeners: listeners(observer),
        groups,
    }))
}

fn listeners(observer: &Observer) -> Vec<ListenerView> {
    let counts = observer.statistics().listeners();
    let open = observer.listeners().open();
    let view = |listener: &OpenListener| ListenerView {
        address: listener.to_string(),
        connections: counts
            .of_label(&listener.label())
            .map(|counts| counted(counts.open() as u64, "connection"))
            .unwrap_or_default(),
    };
    open.iter().map(view).collect()
}

/// Returns the figures of the broker in groups.
pub(super) fn totals(observer: &Observer) -> Vec<(&'static str, Vec<PageFigure>)> {
    let total = observer.statistics().total();
    let counters = &total.counters;
    let shared = observer.shared();
    let figure = |name, key, value| PageFigure { name, key, value };
    let (retained, retained_bytes) = {
        let retained = shared.retained();
        (retained.of_clients(), retained.bytes())
    };
    vec![
        (
            "Broker",
            vec![
                figure("subscriptions", "subscriptions", count(total.subscriptions)),
                figure("retained messages of clients", "", count(retained as u64)),
                figure("bytes retained, with the broker's own", "", bytes(retained_bytes as u64)),
                figure("delayed messages", "", count(shared.totals.delayed_messages.get() as u64)),
                figure("stored dead letters", "", count(shared.totals.letters.get() as u64)),
                figure("version", "", env!("CARGO_PKG_VERSION").to_owned()),
            ],
        ),
        (
            "Since the start",
            vec![
                figure("messages in", "received", count(counters.publishes_received.total())),
                figure("messages out", "sent", count(counters.sent.total())),
                figure("dropped", "dropped", count(counters.drops.total())),
                figure("dead letters", "dead_letters", count(counters.dead_letters.total())),
                figure("sent again", "redelivered", count(counters.redelivered.total())),
                figure("late acknowledgements found", "stalled", count(counters.stalled.total())),
                figure("disconnected for a missing acknowledgement", "", count(counters.disconnected)),
            ],
        ),
    ]
}
