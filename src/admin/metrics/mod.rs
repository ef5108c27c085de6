//! The metrics of the broker in Prometheus' text format.
//!
//! A label has few values, all from this program or from the configuration. No client identifier,
//! user name or topic is ever a label: their number has no bound.

pub mod text;

use crate::broker::observer::Observer;
use crate::broker::statistics::BrokerStatistics;
use crate::clock;
use crate::expiry::deadline::DeadlineKind;
use crate::expiry::statistics::{AHEAD, Lateness};
use crate::session::drops::DropReason;
use crate::shard::ShardSnapshot;
use crate::shard::arrival::ListenerNumber;
use crate::store::writer::WriterStatistics;
use crate::time::Instant;
use std::sync::atomic::Ordering;
use text::Kind::{Counter, Gauge};
use text::MetricsText;

/// Returns all metrics of the broker. Costs a copy of the counters that each shard reported last.
/// The shards are not asked.
pub fn render(observer: &Observer) -> String {
    let (statistics, mut text) = (observer.statistics(), MetricsText::default());
    let total = statistics.total();
    build(&mut text);
    connections(&mut text, observer, &total);
    messages(&mut text, statistics, &total);
    memory(&mut text, observer);
    expiry(&mut text, statistics);
    if let Some(store) = statistics.store() {
        of_store(&mut text, store);
    }
    text.into_text()
}

fn build(text: &mut MetricsText) {
    text.family(Gauge, "build_info", "Always 1; the label has the version.")
        .sample(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    let up = clock::now().since(Instant::ZERO).as_secs_f64();
    text.single(Gauge, "uptime_seconds", "Time since the start of the process.", up);
}

fn connections(text: &mut MetricsText, observer: &Observer, total: &ShardSnapshot) {
    let (statistics, counters) = (observer.statistics(), &total.counters);
    text.family(Gauge, "connections", "Open sockets, with those that have not sent CONNECT.");
    for (number, listener) in observer.listeners().iter().enumerate() {
        let open = statistics.connections_of(ListenerNumber(number as u16));
        text.sample(&[("listener", &listener.label())], open);
    }
    text.family(Gauge, "sessions", "Sessions by state.")
        .sample(&[("state", "connected")], total.connected)
        .sample(&[("state", "away")], total.away());
    let expired = statistics.expired_sessions();
    text.single(Counter, "sessions_expired_total", "Sessions whose expiry interval ran out.", expired);
    text.single(Gauge, "subscriptions", "Subscriptions of all sessions.", total.subscriptions);
    text.family(Counter, "connects_refused_total", "CONNECTs refused, by cause.")
        .sample(&[("cause", "limit")], counters.refused_connects)
        .sample(&[("cause", "owner")], counters.foreign_sessions)
        .sample(&[("cause", "ban")], counters.banned_connects);
    let help = "Topic Filters of SUBSCRIBE packets refused because a bound was reached.";
    text.single(Counter, "subscriptions_refused_total", help, counters.refused_subscriptions);
    let (received, sent) = (statistics.received_bytes(), statistics.sent_bytes());
    text.single(Counter, "bytes_received_total", "Bytes read from sockets.", received);
    text.single(Counter, "bytes_sent_total", "Bytes written to sockets.", sent);
}

fn messages(text: &mut MetricsText, statistics: &BrokerStatistics, total: &ShardSnapshot) {
    let counters = &total.counters;
    text.single(Counter, "publishes_received_total", "PUBLISH packets received.", total.received);
    text.single(Counter, "publishes_sent_total", "PUBLISH packets sent.", counters.sent);
    let help = "PUBLISH and PUBREL packets sent again, live and after a return.";
    text.single(Counter, "redeliveries_total", help, counters.redelivered);
    let help = "Overdue acknowledgements found, at most one for each connection and look.";
    text.single(Counter, "stalls_total", help, counters.stalled);
    let help = "Connections closed because an acknowledgement was missing.";
    text.single(Counter, "ack_timeout_disconnects_total", help, counters.disconnected);
    let help = "Acknowledgements of the wrong kind for the packet in flight.";
    text.single(Counter, "contradictions_total", help, counters.contradictions);
    text.single(Counter, "dead_letters_total", "Dead letters published.", counters.dead_letters);
    text.family(Counter, "messages_dropped_total", "Messages that a receiver will not get, by cause.");
    for cause in DropReason::ALL {
        text.sample(&[("cause", cause.name())], counters.drops.of(cause));
    }
    let events = statistics.suppressed_events();
    text.single(Counter, "client_events_dropped_total", "Events that the rates did not admit.", events);
    let lines = crate::log::stderr::dropped();
    text.single(Counter, "log_lines_lost_total", "Log lines that nobody read in time.", lines);
}

fn memory(text: &mut MetricsText, observer: &Observer) {
    let statistics = observer.statistics();
    let shared = observer.shared();
    let retained = shared.retained().len();
    text.single(Gauge, "retained_messages", "Retained messages.", retained);
    let (delayed, bytes) = (shared.totals.delayed_messages.get(), shared.totals.delayed_bytes.get());
    text.single(Gauge, "delayed_messages", "Delayed messages.", delayed);
    text.single(Gauge, "delayed_bytes", "Bytes of delayed messages.", bytes);
    let help = "Bytes that count against limits.memory.";
    text.single(Gauge, "memory_bytes", help, statistics.memory());
    text.single(Gauge, "memory_limit_bytes", "The bound limits.memory.", statistics.memory_limit());
}

fn expiry(text: &mut MetricsText, statistics: &BrokerStatistics) {
    let expiry = &statistics.expiry;
    text.single(Gauge, "expiry_keys", "Deadlines in the expiry queue.", expiry.keys());
    text.family(Gauge, "expiry_due_keys", "Deadlines that are due within a time.");
    for (secs, keys) in AHEAD.into_iter().zip(expiry.due()) {
        text.sample(&[("within", &format!("{secs}s"))], keys);
    }
    text.family(Counter, "expiry_fired_total", "Deadlines that expired, by kind.");
    for kind in DeadlineKind::ALL {
        text.sample(&[("kind", kind.name())], expiry.fired(kind));
    }
    let help = "Deadlines that were late by less than a time; le=\"+Inf\" is all of them.";
    text.family(Counter, "expiry_lateness_total", help);
    lateness(text, &expiry.lateness);
}

/// Writes the counts of a lateness, one sample for each bound in seconds.
fn lateness(text: &mut MetricsText, lateness: &Lateness) {
    let counts = lateness.cumulative();
    for (index, count) in counts.into_iter().enumerate() {
        let bound = if index + 1 == counts.len() {
            "+Inf".to_owned()
        } else {
            (f64::from(1_u32 << index) / 1000.0).to_string()
        };
        text.sample(&[("le", &bound)], count);
    }
}

fn of_store(text: &mut MetricsText, store: &WriterStatistics) {
    let value = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    text.single(Counter, "store_commits_total", "Transactions of the store.", value(&store.commits));
    text.single(Counter, "store_records_total", "Records committed.", value(&store.records));
    let help = "Records that wait for their commit.";
    text.single(Gauge, "store_pending_records", help, value(&store.backlog));
    text.single(Gauge, "store_bytes", "Size of the store.", value(&store.bytes));
    let help = "Duration of the longest commit since the start.";
    #[expect(clippy::cast_precision_loss, reason = "microseconds of a commit are far below 2^52")]
    let longest = value(&store.longest_commit) as f64 / 1e6;
    text.single(Gauge, "store_longest_commit_seconds", help, longest);
}
