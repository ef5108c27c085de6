//! The metrics of the broker in Prometheus' text format.
//!
//! A label has few values, all from this program or from the configuration. No client identifier,
//! user name or topic is ever a label: their number has no bound. `docs/metrics.md` lists every
//! metric, and a test compares the list with a scrape.
//!
//! | file | concern |
//! |---|---|
//! | [`text`] | the format |
//! | `clients` | connections, sessions, logins |
//! | `objectives` | delivery objectives |
//! | `messages` | packets, deliveries, drops, redelivery |
//! | `resources` | memory, limits, deadlines, threads, the store |
//! | `process` | the process, under names that all programs share |
//! | [`requests`] | the requests to this interface |

mod clients;
mod config;
mod messages;
mod objectives;
mod process;
pub mod requests;
mod resources;
pub mod text;

use crate::broker::observer::Observer;
use crate::clock;
use crate::time::Instant;
use requests::RequestCounts;
use text::Kind::Gauge;
use text::MetricsText;

/// Returns all metrics of the broker. Costs a copy of the counters that each shard reported last.
/// The shards are not asked.
pub fn render(observer: &Observer, requests: &RequestCounts) -> String {
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
    requests.write(&mut text);
    process::write(&mut text);
    text.into_text()
}

fn build(text: &mut MetricsText) {
    text.family(Gauge, "build_info", "Always 1; the label has the version.")
        .sample(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    let up = clock::now().since(Instant::ZERO).as_secs_f64();
    text.single(Gauge, "uptime_seconds", "Time since the start of the process.", up);
}
