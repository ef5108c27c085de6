//! Publishes the counters of the broker on `$SYS/broker/...`, for an operator with any MQTT client.
//!
//! A figure that mosquitto has, too, has mosquitto's name. All values are retained and written in
//! decimal. A test holds the topics against `docs/sys-topics.md`.

use super::statistics::{BrokerStatistics, Maximum};
use super::sys_far_sides::FarTopics;
use super::sys_load::{LOADS, LoadAverages, WINDOWS};
use crate::events::client_counts::SessionEnd;
use crate::expiry::deadline::DeadlineKind;
use crate::expiry::statistics::{AHEAD, ExpiryStatistics};
use crate::mqtt::codec::PacketType;
use crate::session::counters::Counters;
use crate::session::drops::{DropReason, Drops};
use crate::shard::{Input, Shard, ShardSnapshot, SharedState};
use crate::store::statistics::StoreStatistics;
use crate::time::{Instant, millis};
use std::sync::atomic::Ordering;

/// One topic below `$SYS/broker/`, and its value.
type SysFigure = (String, String);

/// The publisher of `$SYS`. The first shard has it, for the whole broker.
#[derive(Debug, Default)]
pub(super) struct SysTopics {
    loads: LoadAverages,
    far_sides: FarTopics,
}

/// The retained messages at one moment.
#[derive(Clone, Copy, Debug, Default)]
struct RetainedSum {
    messages: u64,
    bytes: u64,
}

impl SysTopics {
    /// Publishes every figure, retained. Called every `sys.publish_interval`.
    pub(super) fn publish(
        &mut self,
        shard: &mut Shard,
        now: Instant,
        statistics: &BrokerStatistics,
        shared: &SharedState,
    ) {
        let retained = {
            let retained = shared.retained();
            RetainedSum { messages: retained.len() as u64, bytes: retained.bytes() as u64 }
        };
        for (name, value) in self.figures(now, statistics, retained) {
            shard.input(now, Input::Own(&format!("$SYS/broker/{name}"), value.as_bytes()));
        }
    }

    /// Returns every figure of the broker.
    fn figures(
        &mut self,
        now: Instant,
        statistics: &BrokerStatistics,
        retained: RetainedSum,
    ) -> Vec<SysFigure> {
        let total = statistics.total();
        let mut all = figures(now, statistics, &total, retained);
        all.extend(message_figures(&total, retained));
        all.extend(self.load_figures(now, statistics, &total));
        all.extend(self.far_sides.figures(&statistics.bridges.all(), &statistics.sinks.all()));
        all.extend(statistics.further_figures());
        all
    }

    /// Returns the moving averages, in events per minute.
    fn load_figures(
        &mut self,
        now: Instant,
        statistics: &BrokerStatistics,
        total: &ShardSnapshot,
    ) -> Vec<SysFigure> {
        let counters = &total.counters;
        let present = [
            packets_received(counters),
            packets_sent(counters),
            counters.publishes_received.total(),
            counters.sent.total(),
            counters.drops.total(),
            statistics.received_bytes(),
            statistics.sent_bytes(),
            statistics.opened_connections(),
            counters.packets_received().of(PacketType::Connect),
        ];
        let averages = self.loads.update(now, present).iter().zip(LOADS);
        let of_each = averages.flat_map(|(of, name)| {
            let windows = of.iter().zip(WINDOWS);
            windows.map(move |(value, (window, _))| (format!("load/{name}/{window}"), format!("{value:.2}")))
        });
        of_each.collect()
    }
}

/// Returns the control packets of every type that clients sent.
fn packets_received(counters: &Counters) -> u64 {
    counters.packets_received().total() + counters.publishes_received.total()
}

/// Returns the control packets of every type that were sent to clients.
fn packets_sent(counters: &Counters) -> u64 {
    counters.packets_sent.total() + counters.sent.total()
}

/// Returns the figures of messages and packets under mosquitto's names.
fn message_figures(total: &ShardSnapshot, retained: RetainedSum) -> Vec<SysFigure> {
    let (counters, session_totals) = (&total.counters, &total.session_totals);
    let stored = session_totals.queued + session_totals.in_flight + retained.messages;
    vec![
        figure("messages/received", packets_received(counters)),
        figure("messages/sent", packets_sent(counters)),
        figure("messages/inflight", session_totals.in_flight),
        figure("messages/stored", stored),
        figure("store/messages/count", stored),
        figure("store/messages/bytes", session_totals.queued_bytes + retained.bytes),
        figure("publish/bytes/received", counters.publishes_received.bytes()),
        figure("publish/bytes/sent", counters.sent.bytes()),
        figure("publish/messages/unmatched", counters.unmatched),
        figure("shared_subscriptions/count", total.shared_subscriptions),
    ]
}

/// Returns the figures of the broker, of drops, of deadlines and of the store.
fn figures(
    now: Instant,
    statistics: &BrokerStatistics,
    total: &ShardSnapshot,
    retained: RetainedSum,
) -> Vec<SysFigure> {
    let mut all = broker_figures(now, statistics, total, retained);
    all.extend(drop_figures(&total.counters.drops));
    all.extend(expiry_figures(&statistics.expiry));
    let days = statistics.tls_days();
    all.extend(days.certificate.map(|days| figure("tls/certificate/days_left", days)));
    all.extend(days.crl.map(|days| figure("tls/crl/days_left", days)));
    all.extend(statistics.store().into_iter().flat_map(store_figures));
    all
}

fn figure(name: &str, value: impl ToString) -> SysFigure {
    (name.to_owned(), value.to_string())
}

fn broker_figures(
    now: Instant,
    statistics: &BrokerStatistics,
    total: &ShardSnapshot,
    retained: RetainedSum,
) -> Vec<SysFigure> {
    let (counters, heap) = (&total.counters, heap() as u64);
    let uptime = now.since(Instant::ZERO).as_secs();
    vec![
        figure("uptime", format!("{uptime} seconds")),
        figure("version", concat!("homing version ", env!("CARGO_PKG_VERSION"))),
        figure("clients/connected", total.connected),
        figure("clients/disconnected", total.away()),
        figure("clients/total", total.sessions),
        figure("clients/maximum", statistics.largest(Maximum::Connected, total.connected)),
        figure("clients/expired", total.clients.sessions_ended(SessionEnd::Expired)),
        figure("clients/refused", counters.refused_connects),
        figure("clients/refused/owner", counters.foreign_sessions),
        figure("clients/refused/ban", counters.banned_connects),
        figure("bans/flapping", counters.flapping_bans),
        figure("clients/refused/address", statistics.refused_addresses()),
        figure("clients/refused/handshake", statistics.handshakes_refused().total()),
        figure("clients/paused", counters.rate_pauses),
        figure("sessions/adopted", counters.adopted_sessions),
        figure("bytes/received", statistics.received_bytes()),
        figure("bytes/sent", statistics.sent_bytes()),
        figure("publish/messages/received", counters.publishes_received.total()),
        figure("publish/messages/sent", counters.sent.total()),
        figure("messages/redelivered", counters.redelivered.total()),
        figure("messages/dead_letters", counters.dead_letters.total()),
        figure("redelivery/stalled", counters.stalled.total()),
        figure("redelivery/disconnected", counters.disconnected),
        figure("redelivery/contradictions", counters.contradictions),
        figure("subscriptions/count", total.subscriptions),
        figure("subscriptions/refused", counters.refused_subscriptions.iter().sum::<u64>()),
        figure("retained messages/count", retained.messages),
        figure("connections/socket/count", statistics.connections()),
        figure("memory/held", statistics.memory()),
        figure("memory/limit", statistics.memory_limit()),
        figure("heap/current", heap),
        figure("heap/maximum", statistics.largest(Maximum::Heap, heap)),
        figure("events/suppressed", statistics.suppressed_events()),
        figure("log/dropped", crate::log::stderr::dropped()),
    ]
}

/// Returns the counters of dropped messages: all, and each cause.
fn drop_figures(drops: &Drops) -> Vec<SysFigure> {
    let all = figure("publish/messages/dropped", drops.total());
    let of = |cause: DropReason| {
        (format!("publish/messages/dropped/{}", cause.name()), drops.of(cause).to_string())
    };
    std::iter::once(all).chain(DropReason::ALL.into_iter().map(of)).collect()
}

/// Returns the contents of the expiry queue and its lateness.
fn expiry_figures(expiry: &ExpiryStatistics) -> Vec<SysFigure> {
    let mut all = vec![
        figure("expiry/keys", expiry.keys()),
        figure("expiry/buckets", expiry.buckets_in_use()),
        figure("expiry/ticks", expiry.ticks()),
    ];
    let late = [
        ("lateness", &expiry.lateness),
        ("mailbox/expired", &expiry.expired_lag),
        ("mailbox/registrations", &expiry.registration_lag),
    ];
    for (name, late) in late {
        all.push((format!("expiry/{name}/max_ms"), millis(late.max()).to_string()));
        all.push((format!("expiry/{name}/p99_ms"), millis(late.p99()).to_string()));
    }
    for (secs, keys) in AHEAD.into_iter().zip(expiry.due()) {
        all.push((format!("expiry/due/{secs}s"), keys.to_string()));
    }
    for kind in DeadlineKind::ALL {
        all.push((format!("expiry/fired/{}", kind.name()), expiry.fired(kind).to_string()));
    }
    all
}

/// Returns the counters of the store.
fn store_figures(store: &StoreStatistics) -> Vec<SysFigure> {
    let counters = [
        ("commits", &store.commits),
        ("records", &store.records),
        ("records/cancelled", &store.cancelled),
        ("records/waiting", &store.pending_records),
        ("bytes", &store.bytes),
        ("commit/last_us", &store.last_commit),
        ("commit/max_us", &store.longest_commit),
        ("messages/read", &store.read),
    ];
    let value = |(name, counter): (&str, &std::sync::atomic::AtomicU64)| {
        (format!("store/{name}"), counter.load(Ordering::Relaxed).to_string())
    };
    counters.into_iter().map(value).collect()
}

/// Returns the allocated bytes; 0 unless jemalloc is the allocator, as in the `homing` binary.
pub fn heap() -> usize {
    let _ = tikv_jemalloc_ctl::epoch::advance();
    tikv_jemalloc_ctl::stats::allocated::read().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::fixture;
    use crate::broker::statistics::TlsDaysLeft;
    use std::collections::BTreeSet;
    use std::sync::Arc;

    /// Returns the topics that `docs/sys-topics.md` names, without `$SYS/broker/`. The causes of
    /// drops stand in `docs/metrics.md`.
    fn documented() -> BTreeSet<String> {
        let text = include_str!("../../docs/sys-topics.md");
        let (tables, _) = text.split_once("\n## Topics of mosquitto").expect("the end of the tables");
        let metrics = include_str!("../../docs/metrics.md");
        let (_, causes) = metrics.split_once("\n## Causes of drops\n").expect("the section");
        let (causes, _) = causes.split_once("\n## ").expect("the end of the section");
        let mut topics = BTreeSet::new();
        let mut prefix = "";
        for line in tables.lines().chain(["## Causes of drops"]).chain(causes.lines()) {
            match line {
                _ if line.starts_with("## The expiry queue") => prefix = "expiry/",
                _ if line.starts_with("## The store") => prefix = "store/",
                _ if line.starts_with("## Bridges") => prefix = "bridges/NAME/",
                _ if line.starts_with("## Sinks") => prefix = "sinks/NAME/",
                _ if line.starts_with("## Causes of drops") => prefix = "publish/messages/dropped/",
                _ => {}
            }
            let row = line.strip_prefix("| ").filter(|row| !row.starts_with("below "));
            let Some(cell) = row.and_then(|row| row.split(" | ").next()) else { continue };
            topics.extend(cell.split('`').skip(1).step_by(2).map(|name| format!("{prefix}{name}")));
        }
        topics
    }

    #[test]
    fn every_topic_is_documented_and_every_documented_topic_is_published() {
        let statistics = fixture::statistics(&fixture::shared());
        statistics.set_store(Arc::default());
        statistics.bridges.add("NAME");
        statistics.sinks.add("NAME");
        statistics.set_tls_days(TlsDaysLeft { certificate: Some(1), crl: Some(1) });
        let now = Instant::from_millis(1);
        let figures = SysTopics::default().figures(now, &statistics, RetainedSum::default());
        let mut published = BTreeSet::new();
        for (name, _) in figures {
            // The exporter of mosquitto makes a metric of each topic, and fails at other signs.
            let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "/_ ".contains(c));
            assert!(is_plain && published.insert(name.clone()), "{name} is published once, in plain signs");
        }
        let mut documented = documented();
        for load in LOADS {
            documented.extend(WINDOWS.map(|(window, _)| format!("load/{load}/{window}")));
        }
        for (pattern, names) in [
            ("publish/messages/dropped/<cause>", Vec::new()),
            ("expiry/fired/<kind>", DeadlineKind::ALL.map(DeadlineKind::name).to_vec()),
            ("load/<what>/<time>", Vec::new()),
        ] {
            assert!(documented.remove(pattern), "{pattern}");
            documented.extend(names.into_iter().map(|name| pattern.replace("<kind>", name)));
        }
        let missing: Vec<_> = published.difference(&documented).collect();
        let unknown: Vec<_> = documented.difference(&published).collect();
        assert!(missing.is_empty() && unknown.is_empty(), "missing: {missing:?}, unknown: {unknown:?}");
    }

    #[test]
    fn a_maximum_keeps_the_largest_figure_that_was_published() {
        let statistics = fixture::statistics(&fixture::shared());
        let maximum = [3, 7, 2].map(|connected| statistics.largest(Maximum::Connected, connected));
        assert_eq!(maximum, [3, 7, 7]);
        assert_eq!(statistics.largest(Maximum::Heap, 1), 1);
    }
}
