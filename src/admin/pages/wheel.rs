//! The page of the deadline wheel.

use super::entry::login_of;
use super::frame::PageFrame;
use super::page::{PageResult, render};
use super::views::count;
use crate::admin::state::State;
use crate::admin::wheel::{Bar, Wheel};
use crate::expiry::deadline::DeadlineKind;
use actix_web::HttpRequest;
use askama::Template;

/// The height of the drawing, in its own units.
const HEIGHT: u64 = 160;

/// The width of a bar with its gap, in the same units.
const STEP: usize = 10;

#[derive(Template)]
#[template(path = "wheel.html", config = "src/admin/askama.toml")]
struct WheelPage {
    frame: PageFrame,
    keys: String,
    overdue: String,
    later: String,
    kinds: [&'static str; DeadlineKind::COUNT],
    totals: Vec<String>,
    /// The texts below the drawing: the ends of its quarters.
    axis: Vec<String>,
    bars: Vec<BarView>,
}

/// A bar of the drawing, and its row of the table.
struct BarView {
    x: usize,
    y: u64,
    height: u64,
    when: String,
    keys: String,
    kinds: Vec<String>,
    is_empty: bool,
}

pub(super) async fn wheel(request: HttpRequest, state: State) -> PageResult {
    let login = login_of(&request, &state)?;
    let observer = state.running()?;
    let wheel = state.wheel().now(observer).await?;
    let frame = PageFrame::of(&request, &state, &login, "/wheel").await;
    Ok(render(&WheelPage {
        frame,
        keys: count(wheel.keys()),
        overdue: count(wheel.overdue()),
        later: count(wheel.later()),
        kinds: DeadlineKind::ALL.map(DeadlineKind::name),
        totals: wheel.kinds().into_iter().map(count).collect(),
        axis: (0..=4).map(|quarter| short(wheel.span() * f64::from(quarter) / 4.0)).collect(),
        bars: bars(&wheel),
    }))
}

fn bars(wheel: &Wheel) -> Vec<BarView> {
    let bars = wheel.bars();
    let most = bars.iter().map(Bar::keys).max().unwrap_or(0).max(1);
    let view = |(at, bar): (usize, &Bar)| {
        // A bar with one deadline among many is one unit high, so that it can be seen.
        let height = (bar.keys() * HEIGHT).div_ceil(most);
        BarView {
            x: at * STEP,
            y: HEIGHT - height,
            height,
            when: format!("{} to {}", short(bar.from), short(bar.to)),
            keys: count(bar.keys()),
            kinds: bar.kinds.into_iter().map(count).collect(),
            is_empty: bar.keys() == 0,
        }
    };
    bars.iter().enumerate().map(view).collect()
}

/// Returns seconds with as many decimals as they need.
fn short(secs: f64) -> String {
    format!("{} s", (secs * 1000.0).round() / 1000.0)
}
