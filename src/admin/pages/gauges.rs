//! The present rates and waits of the overview, with their curves.
//!
//! A curve is one line of an SVG drawing. The text beside it has its lowest and its highest value,
//! so a reader who does not see it misses nothing. Live updates bring the points of the line.

use super::views::{count, seconds};
use crate::admin::recent::RecentView;
use crate::admin::state::AdminState;
use crate::broker::observer::Observer;
use crate::session::objectives::{Objective, ObjectiveCounts};
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::time::Duration;

/// The width of a curve in its own units.
const WIDTH: f64 = 120.0;

/// The height of a curve in its own units. The line stays 1 unit away from the edges.
const HEIGHT: f64 = 24.0;

/// Seconds of the curve of deadlines.
const SECONDS: usize = 60;

/// The age of the count of deadlines at most. A count costs 5 ms of one thread for each million.
const COUNTED: Duration = Duration::from_secs(5);

/// A figure with its curve.
pub(super) struct Gauge {
    pub(super) name: &'static str,
    /// The name in live updates.
    pub(super) key: &'static str,
    pub(super) value: String,
    pub(super) curve: Option<Curve>,
}

/// A curve, with a description in words.
pub(super) struct Curve {
    /// The points of the line, such as `0,24 2,20`.
    pub(super) points: String,
    pub(super) words: String,
}

/// An objective of deliveries.
pub(super) struct ObjectiveState {
    pub(super) name: String,
    /// The name in live updates.
    pub(super) key: String,
    pub(super) value: String,
}

/// The present rates, waits and objectives.
pub(super) struct OverviewGauges {
    pub(super) figures: Vec<Gauge>,
    pub(super) objectives: Vec<ObjectiveState>,
}

impl OverviewGauges {
    /// Returns the state now. The deadlines may be five seconds old.
    pub(super) async fn of(state: &AdminState, observer: &Observer) -> OverviewGauges {
        let recent = state.recent().view();
        // The rest of the page is worth more than the curve of deadlines.
        let deadlines = state.wheel().within(observer, COUNTED).await.ok();
        let deadlines = deadlines.map(|wheel| wheel.per_second(SECONDS));
        let total = observer.statistics().total();
        let objectives = total.counters.objectives.counts();
        OverviewGauges {
            figures: figures(&recent, observer, deadlines.as_deref()),
            objectives: objectives.map(state_of).collect(),
        }
    }

    /// Adds the texts to the values of a live update.
    pub(super) fn add_values(&self, values: &mut Map<String, Value>) {
        let figures = self.figures.iter().map(|gauge| (gauge.key, &gauge.value));
        let objectives = self.objectives.iter().map(|one| (&*one.key, &one.value));
        values.extend(figures.chain(objectives).map(|(key, value)| (key.to_owned(), value.as_str().into())));
    }

    /// Returns the curves by the names of their figures.
    pub(super) fn curves(&self) -> Map<String, Value> {
        let curve = |gauge: &Gauge| {
            let Curve { points, words } = gauge.curve.as_ref()?;
            Some((gauge.key.to_owned(), json!({ "points": points, "words": words })))
        };
        self.figures.iter().filter_map(curve).collect()
    }
}

fn figures(recent: &RecentView, observer: &Observer, deadlines: Option<&[u64]>) -> Vec<Gauge> {
    let rate = |name, key, rates: &[f64]| Gauge {
        name,
        key,
        value: rates.last().map_or_else(|| "not known yet".to_owned(), |last| per_second(*last)),
        curve: Some(of_rates(rates)),
    };
    let wait = |name, key, p99: Option<Duration>| Gauge {
        name,
        key,
        value: p99
            .map_or_else(|| "none in the last minute".to_owned(), |p99| format!("below {}", short(p99))),
        curve: None,
    };
    let (name, key) = ("deadlines of the next 60 s", "due");
    let due = deadlines.map_or_else(|| "not known now".to_owned(), sums);
    let mut all = vec![
        rate("messages in", "rate_in", &recent.received),
        rate("messages out", "rate_out", &recent.sent),
        Gauge { name, key, value: due, curve: deadlines.map(of_deadlines) },
        wait("99 % of acknowledgements", "ack_p99", recent.ack_p99),
    ];
    if observer.statistics().store().is_some() {
        all.push(wait("99 % of commits", "commit_p99", recent.commit_p99));
    }
    all
}

/// Returns an objective with its share in time and its budget.
fn state_of((objective, counts): (&Objective, ObjectiveCounts)) -> ObjectiveState {
    let percent = |share: f64| format!("{:.2} %", share * 100.0);
    let value = match (counts.share_in_time(), counts.budget_left(objective.target)) {
        (Some(share), Some(left)) => {
            let state = if share >= objective.target { "met" } else { "missed" };
            let (share, target, left) = (percent(share), percent(objective.target), percent(left.max(0.0)));
            let within = seconds(objective.within);
            format!("{state}: {share} within {within}, target {target}, budget left {left}")
        }
        _ => "no delivery is decided yet".to_owned(),
    };
    ObjectiveState { name: objective.name.to_string(), key: format!("slo_{}", objective.name), value }
}

fn of_rates(rates: &[f64]) -> Curve {
    let words = match (rates.first(), rates.iter().copied().reduce(f64::max)) {
        (Some(first), Some(highest)) => {
            let lowest = rates.iter().copied().fold(*first, f64::min);
            let (lowest, highest) = (per_second(lowest), per_second(highest));
            format!("The last 2 minutes: lowest {lowest}, highest {highest}")
        }
        _ => "The last 2 minutes: no figure yet".to_owned(),
    };
    Curve { points: points(rates), words }
}

/// Returns the sums of the deadlines of the first second, the first ten and all.
fn sums(per_second: &[u64]) -> String {
    let within = |secs: usize| per_second.iter().take(secs).sum::<u64>();
    let texts = [1, 10, SECONDS].map(|secs| format!("{} in {secs}\u{a0}s", count(within(secs))));
    texts.join(", ")
}

#[expect(clippy::cast_precision_loss, reason = "a point has one decimal")]
fn of_deadlines(per_second: &[u64]) -> Curve {
    let highest = per_second.iter().enumerate().max_by_key(|(at, keys)| (**keys, usize::MAX - at));
    let words = match highest {
        Some((at, keys)) if *keys > 0 => {
            format!("Most are due {at} to {} s from the last count: {}", at + 1, count(*keys))
        }
        _ => "None of the present round is due in the next minute".to_owned(),
    };
    let values: Vec<f64> = per_second.iter().map(|keys| *keys as f64).collect();
    Curve { points: points(&values), words }
}

/// Returns the points of a line through values, from the left edge to the right one. The highest
/// value is at the top, and zero at the bottom.
#[expect(clippy::cast_precision_loss, reason = "a point has one decimal")]
fn points(values: &[f64]) -> String {
    let highest = values.iter().copied().fold(0.0, f64::max);
    let scale = if highest > 0.0 { (HEIGHT - 2.0) / highest } else { 0.0 };
    let step = WIDTH / values.len().saturating_sub(1).max(1) as f64;
    let mut out = String::new();
    for (at, value) in values.iter().enumerate() {
        let (x, y) = (step * at as f64, HEIGHT - 1.0 - value * scale);
        // Writing to a string cannot fail.
        let _ = write!(out, "{}{x:.1},{y:.1}", if at > 0 { " " } else { "" });
    }
    out
}

/// Returns a rate with at most three digits.
fn per_second(rate: f64) -> String {
    let (value, unit) = match rate {
        rate if rate >= 999_500.0 => (rate / 1e6, "M"),
        rate if rate >= 999.5 => (rate / 1e3, "k"),
        rate => (rate, ""),
    };
    if value < 9.95 && value > 0.0 { format!("{value:.1}{unit}/s") } else { format!("{value:.0}{unit}/s") }
}

/// Returns a power of two of milliseconds.
fn short(duration: Duration) -> String {
    match duration.as_millis() {
        millis @ ..1_000 => format!("{millis} ms"),
        _ => seconds(duration),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_goes_from_edge_to_edge_and_its_highest_value_is_at_the_top() {
        assert_eq!(points(&[0.0, 5.0, 10.0]), "0.0,23.0 60.0,12.0 120.0,1.0");
        assert_eq!(points(&[0.0, 0.0]), "0.0,23.0 120.0,23.0");
        assert_eq!((points(&[]), points(&[7.0])), (String::new(), "0.0,1.0".to_owned()));
    }

    #[test]
    fn a_curve_has_its_ends_in_words() {
        let curve = of_rates(&[2.0, 8_100.0, 0.0]);
        assert_eq!(curve.words, "The last 2 minutes: lowest 0/s, highest 8.1k/s");
        assert!(of_rates(&[]).words.ends_with("no figure yet"));
        assert_eq!(of_deadlines(&[0, 7, 7]).words, "Most are due 1 to 2 s from the last count: 7");
        assert_eq!(sums(&[1, 2, 4]), "1 in 1\u{a0}s, 7 in 10\u{a0}s, 7 in 60\u{a0}s");
        assert!(of_deadlines(&[0; 3]).words.starts_with("None of the present round"));
    }

    #[test]
    fn a_rate_has_three_digits_at_most() {
        let rates = [0.0, 0.25, 9.94, 9.96, 812.4, 999.6, 8_100.0, 24_000.0, 999_600.0, 1_234_567.0];
        let texts =
            ["0/s", "0.2/s", "9.9/s", "10/s", "812/s", "1.0k/s", "8.1k/s", "24k/s", "1.0M/s", "1.2M/s"];
        assert_eq!(rates.map(per_second), texts);
    }

    #[test]
    fn an_objective_is_met_or_missed() {
        let within = Duration::from_secs(5);
        let objective =
            Objective { name: "alarms".into(), topic: "#".into(), client_id: None, within, target: 0.9 };
        let counts = |in_time, late| ObjectiveCounts { in_time, late, ..ObjectiveCounts::default() };
        let text = |counts| state_of((&objective, counts)).value;
        assert_eq!(text(counts(95, 5)), "met: 95.00 % within 5.0 s, target 90.00 %, budget left 50.00 %");
        assert!(text(counts(80, 20)).starts_with("missed: 80.00 % within"));
        assert_eq!(text(counts(0, 0)), "no delivery is decided yet");
    }
}
