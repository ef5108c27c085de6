//! The metrics of the broker, for Prometheus and for the export by OTLP.
//!
//! A label has few values, all from this program or from the configuration. No client identifier,
//! user name or topic is ever a label: their number has no bound. `docs/metrics.md` lists every
//! metric, and a test compares the list with a scrape.
//!
//! | file | concern |
//! |---|---|
//! | [`text`] | families and samples, and Prometheus' text format |
//! | `bridges` | connections to other brokers |
//! | `cluster` | a node of a cluster |
//! | `sinks` | requests to HTTP services |
//! | `clients` | connections, sessions, logins |
//! | `objectives` | delivery objectives |
//! | `messages` | packets, deliveries, drops, redelivery |
//! | `resources` | memory, limits, deadlines, threads, the store |
//! | `export` | the export by OTLP |
//! | `process` | the process, under names that all programs share |
//! | [`requests`] | the requests to this interface |

mod bridges;
mod clients;
mod cluster;
mod config;
#[cfg(feature = "otlp")]
mod export;
mod messages;
mod objectives;
mod process;
pub mod requests;
mod resources;
mod sinks;
pub mod text;

use crate::broker::observer::Observer;
use crate::clock;
use crate::cluster::row::ClusterView;
use crate::time::Instant;
use requests::RequestCounts;
use text::Kind::Gauge;
use text::MetricsText;

/// Returns all metrics of the broker. Costs a copy of the counters that each shard reported last.
/// The shards are not asked. `cluster` is the view of a node of a cluster.
pub fn collect(observer: &Observer, requests: &RequestCounts, cluster: Option<&ClusterView>) -> MetricsText {
    let (statistics, mut text) = (observer.statistics(), MetricsText::default());
    let shards = statistics.shards();
    let total = statistics.total();
    build(&mut text);
    config::config(&mut text, statistics);
    clients::write(&mut text, observer, &total);
    messages::write(&mut text, observer, &total);
    resources::write(&mut text, observer, &total);
    resources::write_shards(&mut text, &shards);
    objectives::write(&mut text, &total.counters.objectives);
    bridges::write(&mut text, &observer.bridges().all());
    if let Some(view) = cluster {
        cluster::write(&mut text, view);
    }
    sinks::write(&mut text, &observer.sinks().all());
    requests.write(&mut text);
    process::write(&mut text);
    #[cfg(feature = "otlp")]
    if let Some(counts) = statistics.export.get() {
        export::write(&mut text, counts);
    }
    text
}

/// Returns the metrics of a node of a cluster that stands by: those of the process, of the cluster and
/// of the interface. It has no others.
pub fn collect_of_standby(requests: &RequestCounts, cluster: &ClusterView) -> MetricsText {
    let mut text = MetricsText::default();
    build(&mut text);
    cluster::write(&mut text, cluster);
    requests.write(&mut text);
    process::write(&mut text);
    text
}

fn build(text: &mut MetricsText) {
    text.family(Gauge, "build_info", "Always 1; the label has the version.")
        .sample(&[("version", env!("CARGO_PKG_VERSION"))], 1_u8);
    let up = clock::now().since(Instant::ZERO).as_secs_f64();
    text.single(Gauge, "uptime_seconds", "Time since the start of the process.", up);
}
