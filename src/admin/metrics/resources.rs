//! The metrics of memory, limits, deadlines, threads and the store.

use super::text::Kind::{Counter, Gauge, Histogram};
use super::text::MetricsText;
use crate::broker::observer::Observer;
use crate::broker::sys;
use crate::clock;
use crate::expiry::deadline::DeadlineKind;
use crate::expiry::statistics::{AHEAD, ExpiryStatistics};
use crate::shard::ShardSnapshot;
use crate::store::ship::ShipFigures;
use crate::store::statistics::StoreStatistics;
use std::sync::atomic::{AtomicU64, Ordering};

pub(super) fn write(text: &mut MetricsText, observer: &Observer, total: &ShardSnapshot) {
    memory(text, observer, total);
    expiry(text, &observer.statistics().expiry);
    if let Some(store) = observer.statistics().store() {
        let is_full = observer.shared().is_store_full();
        of_store(text, store, is_full);
    }
}

pub(super) fn write_shards(text: &mut MetricsText, shards: &[ShardSnapshot]) {
    let names: Vec<String> = (0..shards.len()).map(|number| number.to_string()).collect();
    let each = || names.iter().map(String::as_str).zip(shards);
    let help = "Processor time of a shard's thread.";
    let cpu = each().map(|(name, shard)| (name, shard.cpu.as_secs_f64()));
    text.by(Counter, "shard_cpu_seconds_total", "shard", help, cpu);
    let sessions = each().map(|(name, shard)| (name, shard.sessions));
    text.by(Gauge, "shard_sessions", "shard", "Sessions of a shard.", sessions);
    let help = "Batches of a shard that its peers have not answered.";
    let batches = each().map(|(name, shard)| (name, shard.pending_peer_batches));
    text.by(Gauge, "peer_batches_pending", "shard", help, batches);
}

fn memory(text: &mut MetricsText, observer: &Observer, total: &ShardSnapshot) {
    let (statistics, shared) = (observer.statistics(), observer.shared());
    let (memory, most) = (statistics.memory(), statistics.memory_limit());
    text.single(Gauge, "memory_bytes", "Bytes that count against limits.memory.", memory);
    text.single(Gauge, "memory_limit_bytes", "The bound limits.memory.", most);
    text.single(Gauge, "heap_bytes", "Bytes that the allocator has handed out.", sys::heap());
    let limits = statistics.limits();
    let used = [
        ("connections", ratio(statistics.connections() as u64, limits.connections as u64)),
        ("sessions", ratio(total.sessions, limits.sessions as u64)),
        ("memory", ratio(memory, most)),
        ("retained_messages", ratio(shared.retained().len() as u64, limits.retained_messages as u64)),
        (
            "delayed_messages",
            ratio(shared.totals.delayed_messages.get() as u64, limits.delayed_messages as u64),
        ),
    ];
    text.by(Gauge, "limit_used_ratio", "limit", "Used part of a limit; 1 is all of it.", used);
}

/// Returns the used part of a limit; 0 of a limit of 0.
#[expect(clippy::cast_precision_loss, reason = "a ratio for people; bytes are far below 2^52")]
fn ratio(used: u64, limit: u64) -> f64 {
    if limit == 0 { 0.0 } else { used as f64 / limit as f64 }
}

fn expiry(text: &mut MetricsText, expiry: &ExpiryStatistics) {
    let keys = DeadlineKind::ALL.map(|kind| (kind.name(), expiry.keys_of(kind)));
    text.by(Gauge, "expiry_keys", "kind", "Deadlines in the expiry queue.", keys);
    text.family(Gauge, "expiry_due_keys", "Deadlines that are due within a time.");
    for (secs, keys) in AHEAD.into_iter().zip(expiry.due()) {
        text.sample(&[("within", &format!("{secs}s"))], keys);
    }
    let fired = DeadlineKind::ALL.map(|kind| (kind.name(), expiry.fired(kind)));
    text.by(Counter, "expiry_fired_total", "kind", "Deadlines that expired.", fired);
    let help = "Time from the end of a bucket of deadlines until the broker found it.";
    text.family(Histogram, "expiry_lateness_seconds", help).histogram(None, &expiry.lateness.distribution());
    let help = "Time that a batch of deadlines waited in a mailbox.";
    text.family(Histogram, "mailbox_lag_seconds", help)
        .histogram(Some(("path", "expired")), &expiry.expired_lag.distribution())
        .histogram(Some(("path", "registrations")), &expiry.registration_lag.distribution());
}

fn of_copy(text: &mut MetricsText, copy: ShipFigures) {
    let help = "Position in the log up to which the copy at store.ship_to has everything.";
    text.single(Gauge, "store_ship_position", help, copy.position);
    let help = "Time since the copy had everything that was on the disk; 0 if it has.";
    text.single(Gauge, "store_ship_lag_seconds", help, copy.lag.as_secs_f64());
    let help = "Bytes of the log that the copy does not have.";
    text.single(Gauge, "store_ship_lag_bytes", help, copy.lag_bytes);
    let help = "Times that the copy was too far behind and began again.";
    text.single(Counter, "store_ship_given_up_total", help, copy.given_up);
}

fn of_store(text: &mut MetricsText, store: &StoreStatistics, is_full: bool) {
    let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    text.single(Counter, "store_commits_total", "Commits of the store.", value(&store.commits));
    text.single(Counter, "store_records_total", "Records committed.", value(&store.records));
    let help = "Messages that were read back from the disk.";
    text.single(Counter, "store_messages_read_total", help, value(&store.read));
    let help = "Times that a stored message was read and was damaged.";
    text.single(Counter, "store_damaged_total", help, value(&store.damaged));
    let help = "Records that wait for their commit.";
    text.single(Gauge, "store_pending_records", help, value(&store.pending_records));
    let help = "Time for which the oldest change has waited for its commit; 0 if none waits.";
    let oldest = store.oldest_uncommitted(clock::now()).as_secs_f64();
    text.single(Gauge, "store_oldest_uncommitted_seconds", help, oldest);
    text.single(Gauge, "store_bytes", "Size of the store: its log and its database.", value(&store.bytes));
    text.single(Gauge, "store_log_bytes", "Size of the log's files.", value(&store.log_bytes));
    let help = "Position in the log: frames since the store was made.";
    text.single(Gauge, "store_position", help, value(&store.position));
    let help = "Bytes of the log that the database does not have yet.";
    text.single(Gauge, "store_unapplied_bytes", help, value(&store.unapplied_bytes));
    let help = "Time for which the oldest change has waited for the database; 0 if none waits.";
    let oldest = store.oldest_unapplied(clock::now()).as_secs_f64();
    text.single(Gauge, "store_oldest_unapplied_seconds", help, oldest);
    of_copy(text, store.copy(clock::now()).unwrap_or_default());
    text.single(Gauge, "store_full", "1 while the store has no room, else 0.", u8::from(is_full));
    let help = "Duration of a commit.";
    text.family(Histogram, "store_commit_seconds", help).histogram(None, &store.commit_time.distribution());
    let help = "Duration of a sync of the log.";
    text.family(Histogram, "store_sync_seconds", help).histogram(None, &store.sync_time.distribution());
    let help = "Duration of a write of the log's changes to the database.";
    text.family(Histogram, "store_apply_seconds", help).histogram(None, &store.apply_time.distribution());
}
