//! The report of a run, and the exit code. Reports can be added: those of the threads of a process,
//! and those of several processes ([`super::add`]). [`super::table`] is its form for people.

use super::process::Cost;
use super::record::{Latencies, Quantiles, RunSlot};
use super::run::LoadRun;
use super::verify::{DeliveryCounts, PayloadSizes};
use super::watch::Meter;
use homing_core::mqtt::packet::QoS;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::process::ExitCode;

/// The result of a run, or of several together.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct LoadReport {
    pub scenario: String,
    pub broker: String,
    pub mqtt: String,
    pub qos: u8,
    pub payload: PayloadSizes,
    pub publishers: usize,
    pub subscribers: usize,
    pub threads: u32,
    pub counts: DeliveryCounts,
    /// The start of the run and the measured part of it, in seconds since 1970.
    pub started_unix_s: f64,
    pub measured_from_unix_s: f64,
    pub measured_until_unix_s: f64,
    /// The deliveries, or in the scenario `connections` the pings, of the measured part.
    pub measured: u64,
    /// The measured time in seconds, to which rate and cost refer.
    pub measured_s: f64,
    pub rate_per_s: f64,
    /// Latencies in milliseconds; `None` if no message arrived.
    pub latency_ms: Option<Quantiles>,
    /// CPU and memory of the broker; `None` without `--pid`.
    pub cost: Option<Cost>,
    /// The unit to which the CPU time refers, such as "delivered message".
    pub cost_per: String,
    /// The measurements of this scenario alone.
    pub figures: Vec<Figure>,
    pub distributions: Vec<LoadDistribution>,
    /// Faults of the broker that only this scenario can see, one line each.
    pub breaches: Vec<String>,
    /// Observations that MQTT forbids, and the breaches, one line each.
    pub forbidden: Vec<String>,
    /// The reason if the run ended early.
    pub failure: Option<String>,
    pub interrupted: bool,
    pub slots: Vec<RunSlot>,
    pub latency_histogram_ns: Latencies,
}

/// One measurement of a single scenario.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Figure {
    pub name: String,
    pub value: f64,
    pub unit: String,
    /// The way in which the figures of several reports become one.
    add: Adding,
}

/// The way in which the figures of several reports become one.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Adding {
    Sum,
    Largest,
    /// The value is a quotient. The counts are added, and the longest time counts.
    Rate {
        count: f64,
        over_s: f64,
    },
}

/// A distribution of times of a single scenario.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct LoadDistribution {
    pub name: String,
    /// Milliseconds; `None` if nothing was measured.
    pub ms: Option<Quantiles>,
    pub histogram_ns: Latencies,
}

impl Figure {
    /// Returns a count.
    pub(super) fn sum(name: &str, value: f64, unit: &str) -> Figure {
        Figure { name: name.to_owned(), value, unit: unit.to_owned(), add: Adding::Sum }
    }

    /// Returns a time, or another figure of which only the largest counts.
    pub(super) fn largest(name: &str, value: f64, unit: &str) -> Figure {
        Figure { add: Adding::Largest, ..Figure::sum(name, value, unit) }
    }

    /// Returns a rate.
    pub(super) fn rate(name: &str, count: f64, over_s: f64, unit: &str) -> Figure {
        Figure { add: Adding::Rate { count, over_s }, ..Figure::sum(name, quotient(count, over_s), unit) }
    }

    fn add(&mut self, other: &Figure) {
        match (&mut self.add, &other.add) {
            (Adding::Sum, _) => self.value += other.value,
            (Adding::Rate { count, over_s }, Adding::Rate { count: more, over_s: time }) => {
                *count += more;
                *over_s = over_s.max(*time);
                self.value = quotient(*count, *over_s);
            }
            _ => self.value = self.value.max(other.value),
        }
    }
}

impl LoadDistribution {
    /// Returns a distribution.
    pub(super) fn new(name: &str, times: &Latencies) -> LoadDistribution {
        LoadDistribution { name: name.to_owned(), ms: times.quantiles(), histogram_ns: times.clone() }
    }
}

fn quotient(count: f64, over: f64) -> f64 {
    if over > 0.0 { count / over } else { 0.0 }
}

impl LoadReport {
    /// Returns the report of a run. `figures` and `distributions` are the measurements of its
    /// scenario alone. Messages that were under way when a run was cut short do not count as lost.
    pub(super) fn of(
        scenario: &str,
        run: &LoadRun,
        meter: &Meter,
        mut figures: Vec<Figure>,
        distributions: Vec<LoadDistribution>,
    ) -> LoadReport {
        let mut counts = run.deliveries.borrow().counts();
        if counts.lost > 0 && (run.interrupted() || run.failure().is_some()) {
            figures.push(Figure::sum("under way at the end", counts.lost as f64, "messages"));
            counts.lost = 0;
        }
        let record = run.record.borrow();
        let (from, until) = record.measured_time();
        let wire = &run.wire;
        let mut report = LoadReport {
            scenario: scenario.to_owned(),
            broker: format!("{}:{}", wire.host, wire.port),
            mqtt: wire.version.to_string(),
            qos: wire.qos.bits(),
            payload: wire.payload,
            publishers: run.topology.topics.len(),
            subscribers: run.topology.filters.len(),
            threads: 1,
            counts,
            started_unix_s: run.member.unix_s(run.member.start()),
            measured_from_unix_s: run.member.unix_s(from),
            measured_until_unix_s: run.member.unix_s(until),
            measured: record.measured(),
            measured_s: 0.0,
            rate_per_s: 0.0,
            latency_ms: None,
            cost: meter.cost(),
            cost_per: "delivered message".to_owned(),
            figures,
            distributions,
            breaches: Vec::new(),
            forbidden: Vec::new(),
            failure: run.failure(),
            interrupted: run.interrupted(),
            slots: Vec::new(),
            latency_histogram_ns: record.latencies.clone(),
        };
        report.derive();
        report
    }

    /// Adds the reports of runs at one time against one broker.
    ///
    /// Counts and histograms are added. The rate is measured from the first moment of all reports
    /// to the last. So reports of runs at different times make the rate smaller, not larger. CPU
    /// and memory are of the same broker in each report, so the largest count.
    pub(super) fn add(mut self, others: Vec<LoadReport>) -> LoadReport {
        self.slots = add_slots(std::iter::once(&self).chain(&others));
        for other in others {
            if !self.broker.split(", ").any(|broker| broker == other.broker) {
                self.broker += &format!(", {}", other.broker);
            }
            self.publishers += other.publishers;
            self.subscribers += other.subscribers;
            self.threads += other.threads;
            self.payload.least = self.payload.least.min(other.payload.least);
            self.payload.most = self.payload.most.max(other.payload.most);
            self.counts.add(&other.counts);
            self.started_unix_s = self.started_unix_s.min(other.started_unix_s);
            self.measured_from_unix_s = self.measured_from_unix_s.min(other.measured_from_unix_s);
            self.measured_until_unix_s = self.measured_until_unix_s.max(other.measured_until_unix_s);
            self.measured += other.measured;
            self.latency_histogram_ns.add_all(&other.latency_histogram_ns);
            self.cost = match (self.cost, other.cost) {
                (Some(one), Some(two)) => Some(one.or_larger(two)),
                (one, two) => one.or(two),
            };
            for figure in other.figures {
                match self.figures.iter_mut().find(|mine| mine.name == figure.name) {
                    Some(mine) => mine.add(&figure),
                    None => self.figures.push(figure),
                }
            }
            for other in other.distributions {
                match self.distributions.iter_mut().find(|mine| mine.name == other.name) {
                    Some(mine) => mine.histogram_ns.add_all(&other.histogram_ns),
                    None => self.distributions.push(other),
                }
            }
            self.breaches.extend(other.breaches);
            self.failure = self.failure.or(other.failure);
            self.interrupted |= other.interrupted;
        }
        self.derive();
        self
    }

    /// Computes what follows from counts and histograms.
    pub(super) fn derive(&mut self) {
        self.measured_s = self.measured_until_unix_s - self.measured_from_unix_s;
        self.rate_per_s = quotient(self.measured as f64, self.measured_s);
        self.latency_ms = self.latency_histogram_ns.quantiles();
        for distribution in &mut self.distributions {
            distribution.ms = distribution.histogram_ns.quantiles();
        }
        if let Some(cost) = &mut self.cost {
            cost.spread_over(self.measured);
        }
        let qos = QoS::from_bits(self.qos).unwrap_or_default();
        self.forbidden = self.counts.forbidden(qos);
        self.forbidden.extend(self.breaches.iter().cloned());
    }

    /// Returns 0 if nothing forbidden was seen and the run did not fail, else 1.
    pub(super) fn exit_code(&self) -> ExitCode {
        if self.forbidden.is_empty() && self.failure.is_none() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }

    /// Returns the report as one JSON object.
    pub(super) fn json(&self) -> String {
        // A report has only numbers and strings, so this cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// The length of a slot, in seconds.
const SLOT_S: f64 = 0.25;

/// Puts the slots of several reports side by side, by the clock. A sum has no median; its p99 is
/// that of the worst part, which the true one does not exceed.
fn add_slots<'a>(reports: impl Iterator<Item = &'a LoadReport> + Clone) -> Vec<RunSlot> {
    let mut with_slots = reports.filter(|report| !report.slots.is_empty()).collect::<Vec<_>>();
    if with_slots.len() == 1 {
        return with_slots.pop().map(|report| report.slots.clone()).unwrap_or_default();
    }
    let start = with_slots.iter().map(|report| report.started_unix_s).fold(f64::INFINITY, f64::min);
    let mut sums = BTreeMap::<u64, RunSlot>::new();
    for report in with_slots {
        let offset = report.started_unix_s - start;
        for slot in &report.slots {
            let place = ((offset + slot.at_s) / SLOT_S).round() as u64;
            let sum =
                sums.entry(place).or_insert(RunSlot { at_s: place as f64 * SLOT_S, ..RunSlot::default() });
            sum.per_s += slot.per_s;
            sum.delivered += slot.delivered;
            sum.overdue += slot.overdue;
            sum.p99_ms = match (sum.p99_ms, slot.p99_ms) {
                (Some(one), Some(two)) => Some(one.max(two)),
                (one, two) => one.or(two),
            };
        }
    }
    sums.into_values().collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::table;

    const MS: u64 = 1_000_000;

    /// A report of one measured second that began at `from`, with deliveries of one latency.
    pub(crate) fn report(from: f64, deliveries: u64, latency_ms: u64) -> LoadReport {
        let mut latencies = Latencies::default();
        (0..deliveries).for_each(|_| latencies.add(latency_ms * MS));
        let slot = RunSlot { at_s: 0.25, per_s: 8.0, p99_ms: Some(latency_ms as f64), ..RunSlot::default() };
        LoadReport {
            scenario: "throughput".to_owned(),
            broker: "a:1883".to_owned(),
            mqtt: "5.0".to_owned(),
            qos: 1,
            payload: PayloadSizes { least: 64, most: 64 },
            publishers: 1,
            subscribers: 1,
            threads: 1,
            counts: DeliveryCounts { sent: deliveries, delivered: deliveries, ..DeliveryCounts::default() },
            started_unix_s: from,
            measured_from_unix_s: from,
            measured_until_unix_s: from + 1.0,
            measured: deliveries,
            measured_s: 1.0,
            rate_per_s: 0.0,
            latency_ms: None,
            cost: None,
            cost_per: "delivered message".to_owned(),
            figures: vec![
                Figure::sum("offered rate", 10.0, "messages/s"),
                Figure::rate("rate", deliveries as f64, 2.0, "connections/s"),
                Figure::largest("in", from, "s"),
            ],
            distributions: vec![LoadDistribution::new("left late", &latencies)],
            breaches: Vec::new(),
            forbidden: Vec::new(),
            failure: None,
            interrupted: false,
            slots: vec![slot],
            latency_histogram_ns: latencies,
        }
    }

    #[test]
    fn parts_at_one_time_add_up() {
        let sum = report(100.0, 100, 1).add(vec![report(100.0, 300, 9)]);
        assert_eq!((sum.rate_per_s, sum.measured_s, sum.counts.delivered), (400.0, 1.0, 400));
        let quantiles = sum.latency_ms.unwrap();
        assert!(quantiles.p50 > 8.9, "300 of 400 took 9 ms: {quantiles:?}");
        assert_eq!(sum.distributions[0].ms.unwrap(), quantiles);
        let values = sum.figures.iter().map(|figure| figure.value).collect::<Vec<_>>();
        assert_eq!(values, [20.0, 200.0, 100.0]);
        assert_eq!((sum.slots.len(), sum.slots[0].per_s, sum.slots[0].p99_ms), (1, 16.0, Some(9.0)));
        assert_eq!((sum.publishers, sum.threads, sum.broker.as_str()), (2, 2, "a:1883"));
    }

    #[test]
    fn parts_one_after_the_other_have_no_higher_rate() {
        let sum = report(100.0, 100, 1).add(vec![report(101.0, 100, 1)]);
        assert_eq!((sum.rate_per_s, sum.measured_s, sum.slots.len()), (100.0, 2.0, 2));
    }

    #[test]
    fn what_one_part_saw_is_in_the_sum() {
        let mut lost = report(100.0, 10, 1);
        lost.counts.lost = 3;
        lost.breaches.push("2 connections failed".to_owned());
        let sum = report(100.0, 10, 1).add(vec![lost]);
        assert_eq!(sum.forbidden.len(), 2, "{:?}", sum.forbidden);
        let table = table::draw(&sum);
        assert!(table.contains("FORBIDDEN  3 lost"), "{table}");
    }

    #[test]
    fn a_report_passes_through_json() {
        let mut one = report(100.0, 10, 1);
        one.derive();
        let read: LoadReport = serde_json::from_str(&one.json()).unwrap();
        assert_eq!(read.json(), one.json());
    }
}
