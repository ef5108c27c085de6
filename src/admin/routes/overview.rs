//! /api/v1/overview: the figures of the whole broker on one page.

use super::json_answer::JsonAnswer;
use crate::admin::state::State;
use crate::clock;
use crate::expiry::statistics::AHEAD;
use crate::time::Instant;
use actix_web::web::Json;
use serde_json::{Value, json};

/// Returns the totals, as of the shards' last reports.
pub(crate) async fn overview(state: State) -> JsonAnswer {
    let observer = state.running()?;
    let (statistics, shared) = (observer.statistics(), observer.shared());
    let total = statistics.total();
    let due: serde_json::Map<String, Value> = AHEAD
        .into_iter()
        .zip(statistics.expiry.due())
        .map(|(secs, keys)| (format!("{secs}s"), keys.into()))
        .collect();
    Ok(Json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "alive": statistics.is_alive(clock::now()),
        "uptime": clock::now().since(Instant::ZERO).as_secs(),
        "clients": { "connected": total.connected, "away": total.away() },
        "subscriptions": total.subscriptions,
        "retained_messages": shared.retained().len(),
        "delayed_messages": shared.totals.delayed_messages.get(),
        "dead_letters_stored": shared.totals.letters.get(),
        "publishes": { "received": total.counters.publishes_received.total(), "sent": total.counters.sent.total() },
        "redelivery": {
            "redelivered": total.counters.redelivered.total(),
            "stalled": total.counters.stalled.total(),
            "disconnected": total.counters.disconnected,
            "dead_letters": total.counters.dead_letters.total(),
        },
        "dropped": total.counters.drops.total(),
        "memory": { "bytes": statistics.memory(), "limit": statistics.memory_limit() },
        "expiry": { "keys": statistics.expiry.keys(), "due_within": due },
        "listeners": observer.listeners().open().iter().map(ToString::to_string).collect::<Vec<_>>(),
    })))
}
