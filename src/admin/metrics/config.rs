//! The metrics of reloads of the configuration.

use super::text::Kind::{Counter, Gauge};
use super::text::MetricsText;
use crate::broker::statistics::BrokerStatistics;

/// Writes the number of reloads, and of the keys that wait for a restart.
pub(super) fn config(text: &mut MetricsText, statistics: &BrokerStatistics) {
    let (done, refused) = statistics.config.reloads();
    text.family(Counter, "config_reloads_total", "Reloads of the configuration, by result.");
    for (result, count) in [("done", done), ("refused", refused)] {
        text.sample(&[("result", result)], count);
    }
    let help = "Changed keys of the configuration that wait for a restart.";
    text.single(Gauge, "config_restart_pending", help, statistics.config.restart_pending());
}
