//! `$SYS/broker/...`: what an operator reads with any MQTT client.

use super::statistics::Statistics;
use crate::expiry::deadline::DeadlineKind;
use crate::expiry::statistics::{AHEAD, ExpiryStatistics};
use crate::mqtt::session::loss::LossCause;
use crate::routing::shard::{Common, Shard};
use crate::store::writer::Statistics as StoreStatistics;
use crate::time::Instant;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Publishes every figure, retained, from the shard that does so for all.
pub fn publish(shard: &mut Shard, now: Instant, statistics: &Statistics, common: &Common) {
    let total = statistics.total();
    let retained = common.retained().len();
    let tally = &total.tally;
    let uptime = now.since(Instant::ZERO).as_secs();
    let figures = [
        ("uptime", format!("{uptime} seconds")),
        ("version", concat!("homing version ", env!("CARGO_PKG_VERSION")).to_owned()),
        ("clients/connected", total.connected.to_string()),
        ("clients/total", total.sessions.to_string()),
        ("clients/refused", tally.refused_connects.to_string()),
        ("messages/received", total.received.to_string()),
        ("messages/sent", tally.sent.to_string()),
        ("messages/dropped", tally.losses.total().to_string()),
        ("messages/redelivered", tally.redelivered.to_string()),
        ("messages/dead_letters", tally.dead_letters.to_string()),
        ("redelivery/stalled", tally.stalled.to_string()),
        ("redelivery/cut", tally.cut.to_string()),
        ("log/dropped", super::stderr::dropped().to_string()),
        ("redelivery/contradictions", tally.contradictions.to_string()),
        ("events/left-out", statistics.events_left_out().to_string()),
        ("subscriptions/count", total.subscriptions.to_string()),
        ("subscriptions/refused", tally.refused_subscriptions.to_string()),
        ("retained messages/count", retained.to_string()),
        ("memory/held", statistics.memory().to_string()),
        ("memory/limit", statistics.memory_limit().to_string()),
        ("heap/current", heap().to_string()),
    ];
    for (name, value) in figures {
        shard.publish_own(now, &format!("$SYS/broker/{name}"), value.as_bytes());
    }
    publish_expiry(shard, now, &statistics.expiry);
    if let Some(store) = statistics.store() {
        publish_store(shard, now, store);
    }
    for cause in LossCause::ALL {
        let topic = format!("$SYS/broker/messages/dropped/{}", cause.name());
        shard.publish_own(now, &topic, tally.losses.of(cause).to_string().as_bytes());
    }
}

/// What the expiry queue holds, and how late it was: `$SYS/broker/expiry/...`.
fn publish_expiry(shard: &mut Shard, now: Instant, expiry: &ExpiryStatistics) {
    let mut tell = |name: &str, value: u64| {
        shard.publish_own(now, &format!("$SYS/broker/expiry/{name}"), value.to_string().as_bytes());
    };
    let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    tell("keys", expiry.keys());
    tell("buckets", expiry.buckets_in_use());
    tell("ticks", expiry.ticks());
    let late = [
        ("lateness", &expiry.lateness),
        ("mailbox/verdicts", &expiry.verdict_lag),
        ("mailbox/registrations", &expiry.registration_lag),
    ];
    for (name, late) in late {
        tell(&format!("{name}/max_ms"), ms(late.max()));
        tell(&format!("{name}/p99_ms"), ms(late.p99()));
    }
    for (secs, keys) in AHEAD.into_iter().zip(expiry.due()) {
        tell(&format!("due/{secs}s"), keys);
    }
    for kind in DeadlineKind::ALL {
        tell(&format!("fired/{}", kind.name()), expiry.fired(kind));
    }
}

/// What the store has done: `$SYS/broker/store/...`.
fn publish_store(shard: &mut Shard, now: Instant, store: &StoreStatistics) {
    let figures = [
        ("commits", &store.commits),
        ("records", &store.records),
        ("records/cancelled", &store.cancelled),
        ("records/waiting", &store.backlog),
        ("bytes", &store.bytes),
        ("commit/last_us", &store.last_commit),
        ("commit/max_us", &store.longest_commit),
        ("messages/read", &store.read),
    ];
    for (name, figure) in figures {
        let value = figure.load(Ordering::Relaxed).to_string();
        shard.publish_own(now, &format!("$SYS/broker/store/{name}"), value.as_bytes());
    }
}

/// Bytes allocated, where jemalloc is the allocator (the `homing` binary); 0 elsewhere.
fn heap() -> usize {
    let _ = tikv_jemalloc_ctl::epoch::advance();
    tikv_jemalloc_ctl::stats::allocated::read().unwrap_or(0)
}
