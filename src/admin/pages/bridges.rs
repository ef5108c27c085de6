//! The page of the bridges: the connections to other brokers.

use super::entry::Visit;
use super::frame::PageFrame;
use super::page::{PageResult, render};
use super::views::{in_sentence, link_of, long};
use crate::admin::human::count;
use crate::admin::queries::bridges::bridges;
use crate::admin::rows::bridge::BridgeRow;
use askama::Template;
use std::time::Duration;

/// Bridges on the page: those with something wrong come first if there are more.
const MOST: usize = 200;

#[derive(Template)]
#[template(path = "bridges.html", config = "src/admin/askama.toml")]
struct BridgesPage {
    frame: PageFrame,
    rows: Vec<BridgeView>,
    /// The number of bridges that are not on the page.
    left_out: usize,
}

/// A bridge on the page.
struct BridgeView {
    /// The page of its session; `None` for a name that is too long for a path.
    link: Option<String>,
    /// The state, and for how long.
    state: String,
    in_flight: String,
    sent: String,
    received: String,
    troubles: Vec<String>,
    row: BridgeRow,
}

impl BridgeView {
    fn of(row: BridgeRow) -> BridgeView {
        let since = Duration::try_from_secs_f64(row.since).unwrap_or_default();
        BridgeView {
            link: link_of(&row.client_id),
            state: format!("{} for {}", row.state.name().replace('_', " "), long(since)),
            in_flight: count(row.in_flight as u64),
            sent: BridgeRow::passed(row.sent, row.sent_per_second),
            received: BridgeRow::passed(row.received, row.received_per_second),
            troubles: row.troubles().iter().map(|trouble| in_sentence(trouble)).collect(),
            row,
        }
    }
}

pub(super) async fn page(visit: Visit) -> PageResult {
    let all = bridges(visit.state.running()?).await;
    let mut rows: Vec<BridgeView> = all.into_iter().map(BridgeView::of).collect();
    let left_out = rows.len().saturating_sub(MOST);
    if left_out > 0 {
        // A stable order: those of either kind stay in the order of their names.
        rows.sort_by_key(|row| row.troubles.is_empty());
        rows.truncate(MOST);
    }
    Ok(render(&BridgesPage { frame: PageFrame::of(&visit, "/bridges").await, rows, left_out }))
}
