//! Pages that are one table: the delivery objectives, the slow deliveries, the last actions of
//! operators, and the checks.

use super::entry::Visit;
use super::frame::PageFrame;
use super::page::{PageResult, render};
use super::views::{count, date_time, seconds};
use crate::admin::access::Scope;
use crate::admin::audit::AuditEntry;
use crate::admin::human::{budget, percent};
use crate::admin::queries::slow::slow_deliveries;
use crate::admin::queries::stuck::stuck_clients;
use crate::admin::request::permit;
use crate::admin::routes::doctor::{self, CheckRow};
use crate::clock;
use crate::session::objectives::{Objective, ObjectiveCounts};
use crate::session::slow_deliveries::SlowDelivery;
use askama::Template;

/// Actions that the page shows.
const ACTIONS: usize = 200;

/// Slow deliveries that the page shows.
const SLOWEST: usize = 100;

#[derive(Template)]
#[template(path = "list.html", config = "src/admin/askama.toml")]
struct ListPage {
    frame: PageFrame,
    title: &'static str,
    note: &'static str,
    /// The clients whose deliveries are not in the table yet, as a sentence.
    open: Option<String>,
    /// The path and the words of a link to more.
    more: Option<(&'static str, &'static str)>,
    /// The advice shown if there is no row.
    empty: &'static str,
    columns: &'static [PageColumn],
    rows: Vec<Vec<String>>,
}

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
pub(super) async fn objectives(visit: Visit) -> PageResult {
    let observer = visit.state.running()?;
    let total = observer.statistics().total();
    let rows = total.counters.objectives.counts().map(|(objective, counts)| row(objective, counts));
    Ok(render(&ListPage {
        frame: PageFrame::of(&visit, "/objectives").await,
        title: "Objectives",
        note: "A delivery counts if its receiver was connected at the publish. It is good if the receiver acknowledges it in time. The counts begin at the start of the broker.",
        more: Some(("/slow", "Slow deliveries")),
        open: None,
        empty: "No objective is set. Add a [[slo]] table with name, topic, within and target to the configuration.",
        columns: &OBJECTIVES,
        rows: rows.collect(),
    }))
}

fn row(objective: &Objective, counts: ObjectiveCounts) -> Vec<String> {
    let target = format!("{} in {}", percent(objective.target), seconds(objective.within));
    vec![
        objective.name.to_string(),
        objective.topic.to_string(),
        target,
        counts.share_in_time().map(percent).unwrap_or_default(),
        counts.budget_left(objective.target).map(budget).unwrap_or_default(),
        count(counts.late),
        count(counts.dropped),
        count(counts.open),
        count(counts.excluded),
    ]
}

const SLOW: [PageColumn; 5] =
    [text("receiver"), text("topic"), number("slowest"), number("slow deliveries"), number("last")];

/// The slow deliveries: rows with one in the last hour.
pub(super) async fn slow(visit: Visit) -> PageResult {
    let stuck = stuck_clients(&visit.state).await;
    let open = match stuck.rows.len() {
        0 => None,
        1 => Some("One client has left a message unacknowledged for 10 s or longer: its delivery is still open, and not in the table".to_owned()),
        more => Some(format!("{more} clients have left a message unacknowledged for 10 s or longer: their deliveries are still open, and not in the table")),
    };
    let rows = slow_deliveries(&visit.state, None, None, SLOWEST).await?.into_iter().map(|row| {
        let SlowDelivery { receiver, topic, longest, deliveries, last, .. } = row;
        let last = format!("{} ago", seconds(clock::now().since(last)));
        vec![receiver.to_string(), topic.to_string(), seconds(longest), count(deliveries), last]
    });
    Ok(render(&ListPage {
        rows: rows.collect(),
        frame: PageFrame::of(&visit, "/objectives").await,
        title: "Slow deliveries",
        note: "Deliveries that took more than a second, the slowest first: the rows with one in the last hour. A row begins anew once an hour. A delivery begins when a connected receiver gets its message, at once or into its queue, and ends with the acknowledgement.",
        more: None,
        open,
        empty: "No delivery that has ended took more than a second within the last hour.",
        columns: &SLOW,
    }))
}

const AUDIT: [PageColumn; 7] = [
    text("time"),
    text("who"),
    text("from"),
    text("action"),
    text("target"),
    text("arguments"),
    text("result"),
];

/// Returns a name of the interface as words.
fn plain(name: &str) -> String {
    name.replace(['_', '-'], " ")
}

/// The last actions of operators, for administrators.
pub(super) async fn audit(visit: Visit) -> PageResult {
    permit(&visit.login.caller, Scope::Admin)?;
    let rows = visit.state.audit.last(ACTIONS).into_iter().map(|entry| {
        let AuditEntry { unix_ms, who, scope, source, action, target, arguments, result, .. } = entry;
        let who = format!("{who} ({scope})");
        vec![date_time(unix_ms), who, source, plain(&action), target, arguments, plain(&result)]
    });
    Ok(render(&ListPage {
        frame: PageFrame::of(&visit, "/audit").await,
        title: "Audit",
        note: "The newest 200 actions of operators since the start. The log has all of them under homing::audit. Times are in UTC.",
        more: None,
        open: None,
        empty: "Nobody has acted since the start of the broker.",
        columns: &AUDIT,
        rows: rows.collect(),
    }))
}

const CHECKS: [PageColumn; 4] = [text("result"), text("check"), text("fact"), text("advice")];

/// The checks of `homing doctor` that the broker makes itself, the worst first.
pub(super) async fn checks(visit: Visit) -> PageResult {
    let mut found = doctor::checks(&visit.state).await?.checks;
    // A stable order: equal results stay as the checks are made.
    found.sort_by_key(|row| std::cmp::Reverse(row.result));
    let rows = found.into_iter().map(|CheckRow { name, result, detail, advice }| {
        vec![result.to_string(), name, detail, advice.unwrap_or_default().replace('`', "")]
    });
    Ok(render(&ListPage {
        frame: PageFrame::of(&visit, "/settings").await,
        title: "Checks",
        note: "What the broker finds when it looks at itself, its machine, its files and its certificates. homing doctor on the machine of the broker checks more.",
        more: None,
        open: None,
        empty: "Nothing was checked.",
        columns: &CHECKS,
        rows: rows.collect(),
    }))
}
