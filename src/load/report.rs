//! The report at the end of a run, as a table or as one JSON object, and the exit code.

use super::process::Cost;
use super::record::{Quantiles, RunSlot};
use super::run::LoadRun;
use super::verify::DeliveryCounts;
use super::watch::Meter;
use serde::Serialize;
use std::fmt::Write;
use std::process::ExitCode;

/// The result of a run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct LoadReport {
    pub scenario: &'static str,
    pub broker: String,
    pub mqtt: String,
    pub qos: u8,
    pub payload: usize,
    pub publishers: usize,
    pub subscribers: usize,
    pub counts: DeliveryCounts,
    /// The measured time in seconds, to which rate and cost refer.
    pub measured_s: f64,
    pub rate_per_s: f64,
    /// Latencies in milliseconds; `None` if no message arrived.
    pub latency_ms: Option<Quantiles>,
    /// CPU and memory of the broker; `None` without `--pid`.
    pub cost: Option<Cost>,
    /// The unit to which the CPU time refers, such as "delivered message".
    pub cost_per: &'static str,
    /// The measurements of this scenario alone.
    pub figures: Vec<Figure>,
    /// Observations that MQTT forbids, one line each.
    pub forbidden: Vec<String>,
    /// The reason if the run ended early.
    pub failure: Option<String>,
    pub interrupted: bool,
    pub slots: Vec<RunSlot>,
}

/// One measurement of a single scenario.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figure {
    pub name: &'static str,
    pub value: f64,
    pub unit: &'static str,
}

impl Figure {
    /// Returns a figure with its unit.
    pub(super) fn new(name: &'static str, value: f64, unit: &'static str) -> Figure {
        Figure { name, value, unit }
    }

    /// Returns the quantiles of a histogram of one scenario, under the given names for p50, p99 and
    /// max.
    pub(super) fn quantiles(names: [&'static str; 3], quantiles: Option<Quantiles>) -> Vec<Figure> {
        let Some(quantiles) = quantiles else { return Vec::new() };
        let values = [quantiles.p50, quantiles.p99, quantiles.max];
        names.into_iter().zip(values).map(|(name, value)| Figure::new(name, value, "ms")).collect()
    }
}

impl LoadReport {
    /// Returns the report of a run. `figures` are the measurements of its scenario alone. Messages
    /// that were under way when a run was cut short do not count as lost.
    pub(super) fn of(
        scenario: &'static str,
        run: &LoadRun,
        meter: &Meter,
        mut figures: Vec<Figure>,
    ) -> LoadReport {
        let mut counts = run.deliveries.borrow().counts();
        if counts.lost > 0 && (run.interrupted() || run.failure().is_some()) {
            figures.push(Figure::new("under way at the end", counts.lost as f64, "messages"));
            counts.lost = 0;
        }
        let record = run.record.borrow();
        let wire = &run.wire;
        LoadReport {
            scenario,
            broker: format!("{}:{}", wire.host, wire.port),
            mqtt: wire.version.to_string(),
            qos: wire.qos.bits(),
            payload: wire.payload,
            publishers: run.topology.topics.len(),
            subscribers: run.topology.filters.len(),
            counts,
            measured_s: record.measured_s(),
            rate_per_s: record.rate(),
            latency_ms: record.latencies.quantiles(),
            cost: meter.cost(),
            cost_per: "delivered message",
            figures,
            forbidden: counts.forbidden(wire.qos),
            failure: run.failure(),
            interrupted: run.interrupted(),
            slots: record.slots().to_vec(),
        }
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

    /// Returns the report as a table for people.
    pub(super) fn table(&self) -> String {
        let mut text = format!(
            "{}  {}  MQTT {}{}{}\n\n",
            self.scenario,
            self.broker,
            self.mqtt,
            self.traffic(),
            if self.interrupted { "  (interrupted)" } else { "" }
        );
        if self.counts.sent > 0 {
            text += &self.counted();
        }
        if let Some(latency) = &self.latency_ms {
            text +=
                "\n  latency ms         p50         p90         p99       p99.9         max\n            ";
            for value in [latency.p50, latency.p90, latency.p99, latency.p99_9, latency.max] {
                push(&mut text, format_args!("{value:>12.3}"));
            }
            text.push('\n');
        }
        text += &self.measured();
        for line in &self.forbidden {
            push(&mut text, format_args!("\n  FORBIDDEN  {line}"));
        }
        if let Some(failure) = &self.failure {
            push(&mut text, format_args!("\n  ENDED EARLY  {failure}"));
        }
        if self.forbidden.is_empty() && self.failure.is_none() {
            text += "\n  nothing forbidden was seen";
        }
        text
    }

    /// Returns QoS, payload and clients as text; empty if nobody publishes.
    fn traffic(&self) -> String {
        if self.publishers == 0 {
            return String::new();
        }
        let (publishers, subscribers) = (self.publishers, self.subscribers);
        format!("  QoS {}  {} B  {publishers} publishers  {subscribers} subscribers", self.qos, self.payload)
    }

    fn counted(&self) -> String {
        let counts = &self.counts;
        let columns: [(&str, u64); 6] = [
            ("sent", counts.sent),
            ("delivered", counts.delivered),
            ("lost", counts.lost),
            ("duplicated", counts.duplicated),
            ("out of order", counts.out_of_order),
            ("redelivered", counts.redelivered),
        ];
        let (mut head, mut row) = (String::new(), String::new());
        for (name, value) in columns {
            push(&mut head, format_args!("{name:>14}"));
            push(&mut row, format_args!("{value:>14}"));
        }
        push(&mut head, format_args!("{:>14}\n", "rate"));
        push(&mut row, format_args!("{:>12.0}/s\n", self.rate_per_s));
        for (name, value) in [("refused by the broker", counts.refused), ("not ours", counts.foreign)] {
            if value > 0 {
                push(&mut row, format_args!("  {value} {name}\n"));
            }
        }
        head + &row
    }

    fn measured(&self) -> String {
        let mut text = String::new();
        if !self.figures.is_empty() {
            text.push('\n');
        }
        for Figure { name, value, unit } in &self.figures {
            let digits = if value.fract() == 0.0 { 0 } else { 3 };
            push(&mut text, format_args!("  {name:<34}{value:>14.digits$} {unit}\n"));
        }
        if let Some(cost) = &self.cost {
            push(&mut text, format_args!("\n  broker CPU {:.3} s", cost.cpu_s));
            if let Some(cpu) = cost.cpu_us_per_message {
                push(&mut text, format_args!(" = {cpu:.2} us per {}", self.cost_per));
            }
            let mebibytes = |bytes: u64| bytes as f64 / 1_048_576.0;
            let (rss, peak) = (mebibytes(cost.rss_bytes), mebibytes(cost.rss_peak_bytes));
            push(&mut text, format_args!(", RSS {rss:.1} MiB, peak {peak:.1} MiB\n"));
        }
        text
    }
}

/// Appends a formatted text. Writing to a string cannot fail.
fn push(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    let _ = text.write_fmt(arguments);
}
