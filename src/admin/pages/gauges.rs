//! The present figures of the overview: what waits, the rates, the times that 99 % keep, and the
//! store.

use super::store::StoreSection;
use super::views::{bytes, count, seconds};
use crate::admin::human::{age, budget, per_second, percent};
use crate::admin::recent::RecentView;
use crate::admin::state::AdminState;
use crate::admin::store_state::StoreState;
use crate::broker::observer::Observer;
use crate::clock;
use crate::session::objectives::{Objective, ObjectiveCounts};
use crate::shard::ShardSnapshot;
use serde_json::{Map, Value};
use std::time::Duration;

/// Seconds of the count of deadlines.
const SECONDS: usize = 60;

/// The age of the count of deadlines at most. A count costs 5 ms of one thread for each million.
const COUNTED: Duration = Duration::from_secs(5);

/// A present figure.
pub(super) struct Gauge {
    pub(super) name: &'static str,
    /// The name in live updates.
    pub(super) key: &'static str,
    pub(super) value: String,
    /// More about the value; empty for none.
    pub(super) note: String,
    /// The page that shows more; empty for none.
    pub(super) link: &'static str,
}

pub(super) struct ObjectiveState {
    pub(super) name: String,
    /// The name in live updates.
    pub(super) key: String,
    pub(super) value: String,
}

/// The present figures and objectives.
pub(super) struct OverviewGauges {
    pub(super) figures: Vec<Gauge>,
    pub(super) objectives: Vec<ObjectiveState>,
    /// `None` without a store.
    pub(super) store: Option<StoreSection>,
}

impl OverviewGauges {
    /// Returns the state now. The deadlines may be five seconds old.
    pub(super) async fn of(state: &AdminState, observer: &Observer) -> OverviewGauges {
        // The rest of the page is worth more than the count of deadlines.
        let deadlines = state.wheel.within(observer, COUNTED).await.ok();
        let deadlines = deadlines.map(|wheel| wheel.per_second(SECONDS));
        let total = observer.statistics().total();
        let (mut figures, recent) = (waiting(observer, &total), state.recent.view());
        figures.extend(moving(&recent, observer));
        figures.push(Gauge {
            value: within(deadlines.as_deref(), SECONDS),
            note: format!(
                "{} in 10 s, {} in 1 s",
                within(deadlines.as_deref(), 10),
                within(deadlines.as_deref(), 1)
            ),
            link: "/deadlines",
            ..gauge("deadlines of the next minute", "due")
        });
        let objectives = total.counters.objectives.counts();
        let store = StoreSection::of(observer, &recent);
        OverviewGauges { figures, objectives: objectives.map(state_of).collect(), store }
    }

    /// Adds the texts to the values of a live update.
    pub(super) fn add_values(&self, values: &mut Map<String, Value>) {
        let figures = self.figures.iter().map(|gauge| (gauge.key, &gauge.value));
        let objectives = self.objectives.iter().map(|one| (&*one.key, &one.value));
        values.extend(figures.chain(objectives).map(|(key, value)| (key.to_owned(), value.as_str().into())));
        if let Some(store) = &self.store {
            store.add_values(values);
        }
    }
}

const fn gauge(name: &'static str, key: &'static str) -> Gauge {
    Gauge { name, key, value: String::new(), note: String::new(), link: "" }
}

/// Returns what waits, and the room for more.
fn waiting(observer: &Observer, total: &ShardSnapshot) -> Vec<Gauge> {
    let (statistics, sums) = (observer.statistics(), &total.session_totals);
    let mut all = vec![
        Gauge {
            value: count(sums.queued),
            note: sums.oldest_stored.map_or_else(
                || bytes(sums.queued_bytes),
                |since| format!("{}, the oldest for {}", bytes(sums.queued_bytes), age(clock::now(), since)),
            ),
            link: "/clients?min_queued=1",
            ..gauge("queued messages", "queued_messages")
        },
        Gauge {
            value: count(sums.in_flight),
            note: "sent, not acknowledged".to_owned(),
            ..gauge("in flight", "in_flight")
        },
    ];
    if sums.held > 0 {
        let note = "their publishers wait".to_owned();
        all.push(Gauge { value: count(sums.held), note, ..gauge("wait for room in a queue", "held") });
    }
    let (in_use, limit) = (statistics.memory(), statistics.memory_limit());
    all.push(Gauge {
        value: bytes(in_use),
        note: format!("of limits.memory, {}", bytes(limit)),
        ..gauge("memory", "memory")
    });
    all.push(match StoreState::of(observer, clock::now()) {
        None => Gauge {
            value: "none".to_owned(),
            note: "queues are lost at a stop".to_owned(),
            ..gauge("store", "store")
        },
        Some(StoreState { bytes: size, room, .. }) => Gauge {
            value: bytes(size),
            note: format!("room for {}", bytes(room)),
            link: "#store",
            ..gauge("store", "store")
        },
    });
    all
}

/// Returns the rates, and the times within which 99 % of the last minute were done.
fn moving(recent: &RecentView, observer: &Observer) -> Vec<Gauge> {
    let rate = |name, key, rates: &[f64]| Gauge {
        value: rates.last().map_or_else(|| "not known yet".to_owned(), |last| per_second(*last)),
        ..gauge(name, key)
    };
    let wait = |name, key, p99: Option<Duration>| Gauge {
        value: p99.map_or_else(|| "none".to_owned(), |p99| format!("below {}", seconds(p99))),
        note: "99 % of the last minute".to_owned(),
        ..gauge(name, key)
    };
    let mut all = vec![
        rate("messages in", "rate_in", &recent.received),
        rate("messages out", "rate_out", &recent.sent),
        wait("acknowledgements that came", "ack_p99", recent.ack_p99),
    ];
    if observer.statistics().store().is_some() {
        all.push(wait("commits", "commit_p99", recent.commit_p99));
    }
    all
}

/// Returns an objective with its share in time and its budget.
fn state_of((objective, counts): (&Objective, ObjectiveCounts)) -> ObjectiveState {
    let value = match (counts.share_in_time(), counts.budget_left(objective.target)) {
        (Some(share), Some(left)) => {
            let state = if share >= objective.target { "met" } else { "missed" };
            let (share, target, within) =
                (percent(share), percent(objective.target), seconds(objective.within));
            format!("{state}: {share} within {within}, target {target}, error budget left: {}", budget(left))
        }
        _ => "no delivery is decided yet".to_owned(),
    };
    ObjectiveState { name: objective.name.to_string(), key: format!("slo_{}", objective.name), value }
}

/// Returns the number of deadlines of the first seconds, of those of each second.
fn within(per_second: Option<&[u64]>, secs: usize) -> String {
    per_second.map_or_else(|| "?".to_owned(), |all| count(all.iter().take(secs).sum()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_objective_is_met_or_missed_and_its_budget_is_never_below_nothing() {
        let within = Duration::from_secs(5);
        let objective =
            Objective { name: "alarms".into(), topic: "#".into(), client_id: None, within, target: 0.9 };
        let counts = |in_time, late| ObjectiveCounts { in_time, late, ..ObjectiveCounts::default() };
        let text = |counts| state_of((&objective, counts)).value;
        assert_eq!(text(counts(95, 5)), "met: 95 % within 5.0 s, target 90 %, error budget left: 50 %");
        assert_eq!(text(counts(1, 99)), "missed: 1 % within 5.0 s, target 90 %, error budget left: used up");
        assert_eq!(text(counts(0, 0)), "no delivery is decided yet");
    }
}
