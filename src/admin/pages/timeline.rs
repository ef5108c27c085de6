//! The page of the timeline of redelivery.

use super::entry::Visit;
use super::frame::PageFrame;
use super::page::{PageResult, render};
use super::views::{clock_time, count, link_of, shown};
use crate::admin::timeline::{KEPT, NumberedMoment};
use crate::broker::events::moments::MomentKind;
use crate::clock;
use askama::Template;
use std::collections::HashMap;
use std::sync::Arc;

/// Clients with a strip of their own at most: those with the newest moments.
const STRIPS: usize = 20;

/// Characters of the name of a strip at most.
const STRIP_NAME: usize = 40;

/// Moments in the table at most, the newest.
const ROWS: usize = 200;

/// The width of a strip in its own units: one unit is a second.
const WIDTH: u64 = 900;

/// The height of the lane of a kind in a strip.
const LANE: u64 = 5;

#[derive(Template)]
#[template(path = "timeline.html", config = "src/admin/askama.toml")]
struct TimelinePage {
    frame: PageFrame,
    drawing: TimelineDrawing,
    dropped: Option<String>,
}

/// The strips and the table of some moments.
pub(super) struct TimelineDrawing {
    /// The kinds, each with its place in a strip.
    pub(super) kinds: Vec<(&'static str, u64)>,
    pub(super) strips: Vec<Strip>,
    pub(super) rows: Vec<MomentRow>,
    /// The number of moments that the table leaves out.
    pub(super) left_out: usize,
}

/// The moments of one client.
pub(super) struct Strip {
    pub(super) name: String,
    pub(super) link: Option<String>,
    pub(super) marks: Vec<StripMark>,
}

pub(super) struct StripMark {
    pub(super) x: u64,
    pub(super) y: u64,
    pub(super) kind: &'static str,
    pub(super) title: String,
}

pub(super) struct MomentRow {
    pub(super) time: String,
    pub(super) name: String,
    pub(super) link: Option<String>,
    pub(super) kind: &'static str,
    pub(super) text: String,
}

pub(super) async fn timeline(visit: Visit) -> PageResult {
    let frame = PageFrame::of(&visit, "/redelivery").await;
    let state = &visit.state;
    let dropped = state.observer().map_or(0, |observer| observer.statistics().moments.lost());
    let drawing = TimelineDrawing::of(&state.timeline.since(0));
    let dropped = (dropped > 0).then(|| count(dropped));
    Ok(render(&TimelinePage { frame, drawing, dropped }))
}

impl TimelineDrawing {
    /// Returns the drawing of moments, the oldest of which comes first.
    pub(super) fn of(entries: &[Arc<NumberedMoment>]) -> TimelineDrawing {
        let now = clock::unix_millis();
        let mut places: HashMap<&str, usize> = HashMap::new();
        let mut strips: Vec<Strip> = Vec::new();
        for entry in entries.iter().rev() {
            let moment = &entry.moment;
            let at = match places.get(&*moment.client_id) {
                Some(at) => *at,
                None if strips.len() < STRIPS => {
                    let (name, link) = (shortened(&moment.client_id), link_of(&moment.client_id));
                    strips.push(Strip { name, link, marks: Vec::new() });
                    places.insert(&moment.client_id, strips.len() - 1);
                    strips.len() - 1
                }
                None => continue,
            };
            if let Some(strip) = strips.get_mut(at) {
                strip.marks.push(mark(now, entry));
            }
        }
        TimelineDrawing {
            kinds: MomentKind::ALL.map(|kind| (kind.name(), kind as u64 * LANE)).to_vec(),
            strips,
            rows: entries.iter().rev().take(ROWS).map(|entry| row(entry)).collect(),
            left_out: entries.len().saturating_sub(ROWS),
        }
    }
}

/// Returns the characters of a Client Identifier that fit beside a strip. The table has more.
fn shortened(client_id: &str) -> String {
    let short: String = client_id.chars().take(STRIP_NAME).collect();
    if short.len() < client_id.len() { format!("{short}...") } else { short }
}

fn mark(now: u64, entry: &NumberedMoment) -> StripMark {
    let moment = &entry.moment;
    let ago = now.saturating_sub(moment.unix_ms) / 1_000;
    let x = (KEPT.as_secs().saturating_sub(ago)).min(WIDTH) * (WIDTH - 8) / WIDTH;
    let title = format!("{} {}: {}", clock_time(moment.unix_ms), moment.kind.name(), moment.text);
    StripMark { x, y: moment.kind as u64 * LANE, kind: moment.kind.name(), title }
}

fn row(entry: &NumberedMoment) -> MomentRow {
    let moment = &entry.moment;
    MomentRow {
        time: clock_time(moment.unix_ms),
        name: shown(&moment.client_id),
        link: link_of(&moment.client_id),
        kind: moment.kind.name(),
        text: moment.text.to_string(),
    }
}
