//! The pages of the bridges and of the sinks: the connections that the broker itself makes.

use super::entry::Visit;
use super::frame::PageFrame;
use super::page::{PageResult, render};
use super::views::{in_sentence, link_of, long};
use crate::admin::human::count;
use crate::admin::queries::far_sides::{bridges, sinks};
use crate::admin::rows::bridge::BridgeRow;
use crate::admin::rows::far_session::passed;
use crate::admin::rows::sink::SinkRow;
use askama::Template;
use std::time::Duration;

/// Rows on a page: those with something wrong come first if there are more.
const MOST: usize = 200;

#[derive(Template)]
#[template(path = "bridges.html", config = "src/admin/askama.toml")]
struct BridgesPage {
    frame: PageFrame,
    rows: Vec<FarView<BridgeRow>>,
    /// The number of bridges that are not on the page.
    left_out: usize,
}

#[derive(Template)]
#[template(path = "sinks.html", config = "src/admin/askama.toml")]
struct SinksPage {
    frame: PageFrame,
    rows: Vec<FarView<SinkRow>>,
    /// The number of sinks that are not on the page.
    left_out: usize,
}

/// A bridge or a sink on its page.
struct FarView<R> {
    /// The page of its session; `None` for a name that is too long for a path.
    link: Option<String>,
    /// The state, and for how long.
    state: String,
    in_flight: String,
    /// What has passed of either count, with the rate.
    passed: [String; 2],
    troubles: Vec<String>,
    row: R,
}

impl FarView<BridgeRow> {
    fn of(row: BridgeRow) -> FarView<BridgeRow> {
        FarView {
            link: link_of(&row.client_id),
            state: state(row.state.name(), row.since),
            in_flight: count(row.session.in_flight as u64),
            passed: [passed(row.sent, row.sent_per_second), passed(row.received, row.received_per_second)],
            troubles: sentences(&row.troubles()),
            row,
        }
    }
}

impl FarView<SinkRow> {
    fn of(row: SinkRow) -> FarView<SinkRow> {
        let requests = passed(row.requests, row.requests_per_second);
        FarView {
            link: link_of(&row.client_id),
            state: state(row.state.name(), row.since),
            in_flight: count(row.session.in_flight as u64),
            passed: [passed(row.delivered, row.delivered_per_second), requests],
            troubles: sentences(&row.troubles()),
            row,
        }
    }
}

fn state(name: &str, since: f64) -> String {
    let since = Duration::try_from_secs_f64(since).unwrap_or_default();
    format!("{} for {}", name.replace('_', " "), long(since))
}

fn sentences(troubles: &[String]) -> Vec<String> {
    troubles.iter().map(|trouble| in_sentence(trouble)).collect()
}

/// Returns the rows that a page has room for, and the number of the others.
fn first<R>(mut rows: Vec<FarView<R>>) -> (Vec<FarView<R>>, usize) {
    let left_out = rows.len().saturating_sub(MOST);
    if left_out > 0 {
        // A stable order: those of either kind stay in the order of their names.
        rows.sort_by_key(|row| row.troubles.is_empty());
        rows.truncate(MOST);
    }
    (rows, left_out)
}

pub(super) async fn bridges_page(visit: Visit) -> PageResult {
    let all = bridges(visit.state.running()?).await;
    let (rows, left_out) = first(all.into_iter().map(FarView::<BridgeRow>::of).collect());
    Ok(render(&BridgesPage { frame: PageFrame::of(&visit, "/bridges").await, rows, left_out }))
}

pub(super) async fn sinks_page(visit: Visit) -> PageResult {
    let all = sinks(visit.state.running()?).await;
    let (rows, left_out) = first(all.into_iter().map(FarView::<SinkRow>::of).collect());
    Ok(render(&SinksPage { frame: PageFrame::of(&visit, "/sinks").await, rows, left_out }))
}
