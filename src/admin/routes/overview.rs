//! /api/v1/overview: the figures of the whole broker on one page.

use super::json_answer::JsonAnswer;
use super::overview_detail::OverviewDetail;
use crate::admin::pages::problems::{BrokerProblem, problems};
use crate::admin::readiness::{StoreState, late_threads};
use crate::admin::state::State;
use crate::clock;
use crate::expiry::statistics::AHEAD;
use crate::time::Instant;
use actix_web::web::{Json, Query};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OverviewParameters {
    /// Further parts of the answer, each once, with commas between them: `sizes`, `kinds`.
    #[schema(example = "sizes,kinds")]
    detail: Option<String>,
}

/// Returns the totals, as of the shards' last reports.
pub(crate) async fn overview(asked: Query<OverviewParameters>, state: State) -> JsonAnswer {
    let details = OverviewDetail::read(asked.detail.as_deref())?;
    let observer = state.running()?;
    let (statistics, shared) = (observer.statistics(), observer.shared());
    let late: Vec<Box<str>> =
        late_threads(observer, clock::now()).into_iter().map(|late| late.name).collect();
    let (now, total, recent) = (clock::now(), statistics.total(), state.recent().view());
    let due: serde_json::Map<String, Value> = AHEAD
        .into_iter()
        .zip(statistics.expiry.due())
        .map(|(secs, keys)| (format!("{secs}s"), keys.into()))
        .collect();
    let mut body = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "alive": late.is_empty(),
        "late_threads": late,
        "uptime": now.since(Instant::ZERO).as_secs(),
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
        "last_drop_ago": statistics.last_drop().map(|last| now.since(last).as_secs()),
        "recent": {
            "received_per_second": recent.received.last(),
            "sent_per_second": recent.sent.last(),
            "ack_p99": recent.ack_p99.map(|p99| p99.as_secs_f64()),
            "commit_p99": recent.commit_p99.map(|p99| p99.as_secs_f64()),
        },
        "memory": { "bytes": statistics.memory(), "limit": statistics.memory_limit() },
        "store": StoreState::of(observer, now).map(store),
        "expiry": { "keys": statistics.expiry.keys(), "due_within": due },
        "listeners": observer.listeners().open().iter().map(ToString::to_string).collect::<Vec<_>>(),
    });
    body["problems"] = problems(&state, observer).await.iter().map(problem).collect();
    for detail in details {
        body[detail.name()] = detail.of(observer, &total);
    }
    Ok(Json(body))
}

fn store(state: StoreState) -> Value {
    json!({
        "full": state.is_full,
        "oldest_uncommitted": state.oldest_uncommitted.as_secs_f64(),
        "commit_p99": state.commit_p99.as_secs_f64(),
    })
}

fn problem(problem: &BrokerProblem) -> Value {
    json!({ "kind": problem.kind.name(), "text": problem.text, "advice": problem.kind.advice() })
}
