//! The page of the deadline wheel.

use super::entry::Visit;
use super::frame::PageFrame;
use super::page::{PageResult, render};
use super::views::{count, seconds};
use crate::admin::wheel::Bar;
use crate::expiry::deadline::DeadlineKind;
use askama::Template;
use std::time::Duration;

#[derive(Template)]
#[template(path = "wheel.html", config = "src/admin/askama.toml")]
struct WheelPage {
    frame: PageFrame,
    keys: String,
    overdue: String,
    later: String,
    kinds: [&'static str; DeadlineKind::COUNT],
    totals: Vec<String>,
    bars: Vec<BarView>,
}

/// A row of the table.
struct BarView {
    when: String,
    keys: String,
    kinds: Vec<String>,
    is_empty: bool,
}

pub(super) async fn wheel(visit: Visit) -> PageResult {
    let wheel = visit.state.wheel.now(visit.state.running()?).await?;
    let frame = PageFrame::of(&visit, "/deadlines").await;
    Ok(render(&WheelPage {
        frame,
        keys: count(wheel.keys()),
        overdue: count(wheel.overdue()),
        later: count(wheel.later()),
        kinds: DeadlineKind::ALL.map(DeadlineKind::name),
        totals: wheel.kinds().into_iter().map(count).collect(),
        bars: wheel.bars().into_iter().map(BarView::of).collect(),
    }))
}

impl BarView {
    fn of(bar: Bar) -> BarView {
        BarView {
            when: format!("{} to {}", time(bar.from), time(bar.to)),
            keys: count(bar.keys()),
            is_empty: bar.keys() == 0,
            kinds: bar.kinds.into_iter().map(count).collect(),
        }
    }
}

fn time(secs: f64) -> String {
    Duration::try_from_secs_f64(secs).map(seconds).unwrap_or_default()
}
