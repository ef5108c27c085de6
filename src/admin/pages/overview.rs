//! The overview: the stuck clients, the present rates and waits, and the figures of the broker.

use super::entry::login_of;
use super::frame::{PageFigure, PageFrame};
use super::gauges::OverviewGauges;
use super::page::{PageResult, render};
use super::problems::{BrokerProblem, problems};
use super::views::{ClientView, bytes, count, view_of};
use crate::admin::queries::stuck::stuck_clients;
use crate::admin::state::State;
use crate::broker::observer::Observer;
use actix_web::HttpRequest;
use askama::Template;

/// Clients on the overview at most.
const STUCK: usize = 20;

#[derive(Template)]
#[template(path = "overview.html", config = "src/admin/askama.toml")]
struct OverviewPage {
    frame: PageFrame,
    problems: Vec<BrokerProblem>,
    stuck: Vec<ClientView>,
    more: bool,
    gauges: OverviewGauges,
    groups: Vec<(&'static str, Vec<PageFigure>)>,
}

pub(super) async fn overview(request: HttpRequest, state: State) -> PageResult {
    let login = login_of(&request, &state)?;
    let observer = state.running()?;
    let found = stuck_clients(&state).await;
    let (groups, gauges) = (totals(observer), OverviewGauges::of(&state, observer).await);
    let more = found.has_more || found.rows.len() > STUCK;
    let frame = PageFrame::of(&request, &state, &login, "/").await;
    Ok(render(&OverviewPage {
        frame,
        problems: problems(&state, observer).await,
        stuck: found.rows.iter().take(STUCK).map(|row| view_of(&state, row)).collect(),
        more,
        gauges,
        groups,
    }))
}

/// Returns the figures of the broker in groups.
pub(super) fn totals(observer: &Observer) -> Vec<(&'static str, Vec<PageFigure>)> {
    let (statistics, total) = (observer.statistics(), observer.statistics().total());
    let counters = &total.counters;
    let shared = observer.shared();
    let figure = |name, key, value| PageFigure { name, key, value };
    let memory = format!("{} of {}", bytes(statistics.memory()), bytes(statistics.memory_limit()));
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
        (
            "Broker",
            vec![
                figure("version", "", env!("CARGO_PKG_VERSION").to_owned()),
                figure("subscriptions", "subscriptions", count(total.subscriptions)),
                figure("memory", "memory", memory),
            ],
        ),
    ]
}
