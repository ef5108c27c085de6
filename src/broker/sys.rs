//! Publishes the counters of the broker on `$SYS/broker/...`, for an operator with any MQTT client.
//!
//! Topics that mosquitto has, too, have the same names. All values are retained and written in
//! decimal.

use super::statistics::BrokerStatistics;
use crate::expiry::deadline::DeadlineKind;
use crate::expiry::statistics::{AHEAD, ExpiryStatistics};
use crate::session::drops::DropReason;
use crate::shard::{Shard, SharedState};
use crate::store::writer::WriterStatistics;
use crate::time::Instant;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Publishes every counter, retained. The first shard does so for the whole broker, every
/// `sys.publish_interval`.
pub(super) fn publish(shard: &mut Shard, now: Instant, statistics: &BrokerStatistics, shared: &SharedState) {
    let total = statistics.total();
    let retained = shared.retained().len();
    let counters = &total.counters;
    let uptime = now.since(Instant::ZERO).as_secs();
    let snapshot = [
        ("uptime", format!("{uptime} seconds")),
        ("version", concat!("homing version ", env!("CARGO_PKG_VERSION")).to_owned()),
        ("clients/connected", total.connected.to_string()),
        ("clients/total", total.sessions.to_string()),
        ("clients/refused", counters.refused_connects.to_string()),
        ("messages/received", total.received.to_string()),
        ("messages/sent", counters.sent.to_string()),
        ("messages/dropped", counters.drops.total().to_string()),
        ("messages/redelivered", counters.redelivered.to_string()),
        ("messages/dead_letters", counters.dead_letters.to_string()),
        ("redelivery/stalled", counters.stalled.to_string()),
        ("redelivery/disconnected", counters.disconnected.to_string()),
        ("log/dropped", super::stderr::dropped().to_string()),
        ("redelivery/contradictions", counters.contradictions.to_string()),
        ("events/suppressed", statistics.suppressed_events().to_string()),
        ("subscriptions/count", total.subscriptions.to_string()),
        ("subscriptions/refused", counters.refused_subscriptions.to_string()),
        ("retained messages/count", retained.to_string()),
        ("memory/held", statistics.memory().to_string()),
        ("memory/limit", statistics.memory_limit().to_string()),
        ("heap/current", heap().to_string()),
    ];
    for (name, value) in snapshot {
        shard.publish_own(now, &format!("$SYS/broker/{name}"), value.as_bytes());
    }
    publish_expiry(shard, now, &statistics.expiry);
    if let Some(store) = statistics.store() {
        publish_store(shard, now, store);
    }
    for cause in DropReason::ALL {
        let topic = format!("$SYS/broker/messages/dropped/{}", cause.name());
        shard.publish_own(now, &topic, counters.drops.of(cause).to_string().as_bytes());
    }
}

/// Publishes the contents of the expiry queue and its lateness: `$SYS/broker/expiry/...`.
fn publish_expiry(shard: &mut Shard, now: Instant, expiry: &ExpiryStatistics) {
    let mut put = |name: &str, value: u64| {
        shard.publish_own(now, &format!("$SYS/broker/expiry/{name}"), value.to_string().as_bytes());
    };
    let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    put("keys", expiry.keys());
    put("buckets", expiry.buckets_in_use());
    put("ticks", expiry.ticks());
    let late = [
        ("lateness", &expiry.lateness),
        ("mailbox/expired", &expiry.expired_lag),
        ("mailbox/registrations", &expiry.registration_lag),
    ];
    for (name, late) in late {
        put(&format!("{name}/max_ms"), ms(late.max()));
        put(&format!("{name}/p99_ms"), ms(late.p99()));
    }
    for (secs, keys) in AHEAD.into_iter().zip(expiry.due()) {
        put(&format!("due/{secs}s"), keys);
    }
    for kind in DeadlineKind::ALL {
        put(&format!("fired/{}", kind.name()), expiry.fired(kind));
    }
}

/// Publishes the counters of the store: `$SYS/broker/store/...`.
fn publish_store(shard: &mut Shard, now: Instant, store: &WriterStatistics) {
    let snapshot = [
        ("commits", &store.commits),
        ("records", &store.records),
        ("records/cancelled", &store.cancelled),
        ("records/waiting", &store.backlog),
        ("bytes", &store.bytes),
        ("commit/last_us", &store.last_commit),
        ("commit/max_us", &store.longest_commit),
        ("messages/read", &store.read),
    ];
    for (name, figure) in snapshot {
        let value = figure.load(Ordering::Relaxed).to_string();
        shard.publish_own(now, &format!("$SYS/broker/store/{name}"), value.as_bytes());
    }
}

/// Returns the allocated bytes. They are 0 unless jemalloc is the allocator, as in the `homing`
/// binary.
fn heap() -> usize {
    let _ = tikv_jemalloc_ctl::epoch::advance();
    tikv_jemalloc_ctl::stats::allocated::read().unwrap_or(0)
}
