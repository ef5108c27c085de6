//! Pages that are one table: the delivery objectives, and the last actions of operators.

use super::entry::login_of;
use super::frame::PageFrame;
use super::page::{PageResult, render};
use super::views::{clock_time, count, seconds};
use crate::admin::access::Scope;
use crate::admin::audit::AuditEntry;
use crate::admin::request::permit;
use crate::admin::state::State;
use crate::session::objectives::{Objective, ObjectiveCounts};
use actix_web::HttpRequest;
use askama::Template;

/// Actions that the page shows.
const ACTIONS: usize = 200;

#[derive(Template)]
#[template(path = "list.html", config = "src/admin/askama.toml")]
struct ListPage {
    frame: PageFrame,
    title: &'static str,
    note: &'static str,
    /// What to do if there is no row.
    empty: &'static str,
    columns: &'static [PageColumn],
    rows: Vec<Vec<String>>,
}

/// A column of a table.
struct PageColumn {
    name: &'static str,
    /// The class of its cells.
    class: &'static str,
}

const fn text(name: &'static str) -> PageColumn {
    PageColumn { name, class: "topic" }
}

const fn number(name: &'static str) -> PageColumn {
    PageColumn { name, class: "number" }
}

const OBJECTIVES: [PageColumn; 9] = [
    text("objective"),
    text("topic"),
    number("target"),
    number("in time"),
    number("budget left"),
    number("late"),
    number("dropped"),
    number("open"),
    number("excluded"),
];

/// The delivery objectives, as of the shards' last reports.
pub(super) async fn objectives(request: HttpRequest, state: State) -> PageResult {
    let login = login_of(&request, &state)?;
    let observer = state.running()?;
    let total = observer.statistics().total();
    let rows = total.counters.objectives.counts().map(|(objective, counts)| row(objective, counts));
    Ok(render(&ListPage {
        frame: PageFrame::of(&request, &state, &login, "/objectives").await,
        title: "Objectives",
        note: "A delivery counts if its receiver was connected at the publish. It is good if the receiver acknowledges it in time. The counts begin at the start of the broker.",
        empty: "No objective is set. Add a [[slo]] table with name, topic, within and target to the configuration.",
        columns: &OBJECTIVES,
        rows: rows.collect(),
    }))
}

fn row(objective: &Objective, counts: ObjectiveCounts) -> Vec<String> {
    let percent = |share: f64| format!("{:.3} %", share * 100.0);
    let target = format!("{} in {}", percent(objective.target), seconds(objective.within));
    vec![
        objective.name.to_string(),
        objective.topic.to_string(),
        target,
        counts.share_in_time().map(percent).unwrap_or_default(),
        counts.budget_left(objective.target).map(percent).unwrap_or_default(),
        count(counts.late),
        count(counts.dropped),
        count(counts.open),
        count(counts.excluded),
    ]
}

const AUDIT: [PageColumn; 6] =
    [text("time"), text("who"), text("action"), text("target"), text("arguments"), text("result")];

/// Returns a name of the interface as words.
fn plain(name: &str) -> String {
    name.replace(['_', '-'], " ")
}

/// The last actions of operators, for administrators.
pub(super) async fn audit(request: HttpRequest, state: State) -> PageResult {
    let login = login_of(&request, &state)?;
    permit(&login.caller, Scope::Admin)?;
    let rows = state.audit().last(ACTIONS).into_iter().map(|entry| {
        let AuditEntry { unix_ms, who, scope, action, target, arguments, result, .. } = entry;
        let who = format!("{who} ({scope})");
        vec![clock_time(unix_ms), who, plain(action), target, arguments, plain(&result)]
    });
    Ok(render(&ListPage {
        frame: PageFrame::of(&request, &state, &login, "/audit").await,
        title: "Audit",
        note: "The newest 200 actions of operators since the start. The log has all of them under homing::audit. Times are in UTC.",
        empty: "Nobody has acted since the start of the broker.",
        columns: &AUDIT,
        rows: rows.collect(),
    }))
}
