//! The metrics of the export by OTLP. Without `otlp.endpoint` since the start there are none.

use super::text::Kind::{Counter, Gauge};
use super::text::MetricsText;
use crate::broker::export_counts::ExportCounts;
use crate::config::OtlpSignal;

/// Writes the metrics of each signal.
pub(super) fn write(text: &mut MetricsText, counts: &ExportCounts) {
    let each = |of: fn(&ExportCounts, OtlpSignal) -> u64| {
        OtlpSignal::ALL.iter().map(move |signal| (signal.name(), of(counts, *signal)))
    };
    let help = "Metric points, log lines and spans that the collector has taken.";
    text.by(Counter, "otlp_records_sent_total", "signal", help, each(ExportCounts::sent));
    let help = "Metric points, log lines and spans that the collector will not get.";
    text.by(Counter, "otlp_records_lost_total", "signal", help, each(ExportCounts::lost));
    let help = "Requests to the collector that failed.";
    text.by(Counter, "otlp_failed_requests_total", "signal", help, each(ExportCounts::failed_requests));
    let help = "1 while the last request to the collector has failed, else 0.";
    let failing = |counts: &ExportCounts, signal| counts.failing(signal).is_some().into();
    text.by(Gauge, "otlp_failing", "signal", help, each(failing));
}
