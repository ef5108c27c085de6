//! The table of a report, for people.

use super::record::Quantiles;
use super::report::{Figure, LoadDistribution, LoadReport};
use std::fmt::Write;

/// Returns the table of a report.
pub(super) fn draw(report: &LoadReport) -> String {
    let mut text = format!(
        "{}  {}  MQTT {}{}{}\n\n",
        report.scenario,
        report.broker,
        report.mqtt,
        traffic(report),
        if report.interrupted { "  (interrupted)" } else { "" }
    );
    if report.counts.sent > 0 {
        text += &counted(report);
    }
    if let Some(latency) = &report.latency_ms {
        text += "\n  latency ms         p50         p90         p99       p99.9         max\n            ";
        for value in [latency.p50, latency.p90, latency.p99, latency.p99_9, latency.max] {
            push(&mut text, format_args!("{value:>12.3}"));
        }
        text.push('\n');
    }
    text += &figures(report);
    for line in &report.forbidden {
        push(&mut text, format_args!("\n  FORBIDDEN  {line}"));
    }
    if let Some(failure) = &report.failure {
        push(&mut text, format_args!("\n  ENDED EARLY  {failure}"));
    }
    if report.forbidden.is_empty() && report.failure.is_none() {
        text += "\n  nothing forbidden was seen";
    }
    text
}

/// Returns QoS, payload and clients as text; empty if nobody publishes.
fn traffic(report: &LoadReport) -> String {
    if report.publishers == 0 {
        return String::new();
    }
    let (publishers, subscribers) = (report.publishers, report.subscribers);
    let threads = if report.threads > 1 { format!("  {} threads", report.threads) } else { String::new() };
    format!(
        "  QoS {}  {} B  {publishers} publishers  {subscribers} subscribers{threads}",
        report.qos, report.payload
    )
}

fn counted(report: &LoadReport) -> String {
    let counts = &report.counts;
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
    push(&mut row, format_args!("{:>12.0}/s\n", report.rate_per_s));
    for (name, value) in [("refused by the broker", counts.refused), ("not ours", counts.foreign)] {
        if value > 0 {
            push(&mut row, format_args!("  {value} {name}\n"));
        }
    }
    head + &row
}

fn figures(report: &LoadReport) -> String {
    let mut text = String::new();
    if !report.figures.is_empty() {
        text.push('\n');
    }
    for Figure { name, value, unit, .. } in &report.figures {
        let digits = if value.fract() == 0.0 { 0 } else { 3 };
        push(&mut text, format_args!("  {name:<34}{value:>14.digits$} {unit}\n"));
    }
    for LoadDistribution { name, ms, .. } in &report.distributions {
        if let Some(Quantiles { p50, p99, max, .. }) = ms {
            let name = format!("{name}, ms");
            push(&mut text, format_args!("  {name:<34}p50 {p50:>10.3}  p99 {p99:>10.3}  max {max:>10.3}\n"));
        }
    }
    if let Some(cost) = &report.cost {
        push(&mut text, format_args!("\n  broker CPU {:.3} s", cost.cpu_s));
        if let Some(cpu) = cost.cpu_us_per_message {
            push(&mut text, format_args!(" = {cpu:.2} us per {}", report.cost_per));
        }
        let mebibytes = |bytes: u64| bytes as f64 / 1_048_576.0;
        let (rss, peak) = (mebibytes(cost.rss_bytes), mebibytes(cost.rss_peak_bytes));
        push(&mut text, format_args!(", RSS {rss:.1} MiB, peak {peak:.1} MiB\n"));
    }
    text
}

/// Appends a formatted text. Writing to a string cannot fail.
fn push(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    let _ = text.write_fmt(arguments);
}
