//! /api/v1/overview: the figures of the whole broker on one page.

use super::json_answer::JsonAnswer;
use super::overview_detail::{OverviewDetail, OverviewKinds, OverviewSizes};
use super::store_figures::StoreFigures;
use crate::admin::listing::ListedRow;
use crate::admin::pages::problems::{BrokerProblem, BrokerProblemKind, problems};
use crate::admin::queries::stuck::longest_queues;
use crate::admin::readiness::late_threads;
use crate::admin::state::State;
use crate::clock;
use crate::expiry::statistics::AHEAD;
use crate::time::Instant;
use actix_web::web::{Json, Query};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use utoipa::ToSchema;

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OverviewParameters {
    /// Further parts of the answer, each once, with commas between them: `sizes`, `kinds`.
    #[schema(example = "sizes,kinds")]
    detail: Option<String>,
}

/// The totals of the broker.
#[derive(Deserialize, Serialize, ToSchema)]
pub(crate) struct Overview {
    /// The present problems, the worst first.
    pub(crate) problems: Vec<ProblemRow>,
    pub(crate) version: Cow<'static, str>,
    /// True if every thread works.
    pub(crate) alive: bool,
    /// The names of the threads that gave no sign of life for 3.5 s.
    pub(crate) late_threads: Vec<String>,
    /// Seconds.
    pub(crate) uptime: u64,
    pub(crate) clients: ClientTotals,
    pub(crate) queued: QueuedTotals,
    /// Messages that were sent and not acknowledged to the end.
    pub(crate) in_flight: u64,
    /// The clients with the most queued messages, as of the last few seconds.
    #[schema(max_items = 5)]
    pub(crate) longest_queues: Vec<LongQueue>,
    pub(crate) subscriptions: u64,
    /// Without the broker's own messages, such as `$SYS/#`.
    pub(crate) retained_messages: usize,
    pub(crate) delayed_messages: usize,
    pub(crate) dead_letters_stored: usize,
    pub(crate) publishes: PublishTotals,
    pub(crate) redelivery: RedeliveryTotals,
    pub(crate) dropped: u64,
    /// Seconds. Null if nothing was dropped since the start.
    #[schema(required)]
    pub(crate) last_drop_ago: Option<u64>,
    pub(crate) recent: RecentRates,
    pub(crate) memory: MemoryUse,
    /// Null without a store.
    #[schema(required)]
    pub(crate) store: Option<StoreFigures>,
    pub(crate) expiry: ExpiryTotals,
    pub(crate) listeners: Vec<String>,
    /// With `detail=sizes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    sizes: Option<OverviewSizes>,
    /// With `detail=kinds`.
    #[serde(skip_serializing_if = "Option::is_none")]
    kinds: Option<OverviewKinds>,
}

/// A present problem.
#[derive(Deserialize, Serialize, ToSchema)]
#[schema(as = BrokerProblem)]
pub(crate) struct ProblemRow {
    pub(crate) kind: BrokerProblemKind,
    /// The fact, as a sentence.
    pub(crate) text: String,
    /// The suggested fix.
    pub(crate) advice: Cow<'static, str>,
}

#[derive(Deserialize, Serialize, ToSchema)]
pub(crate) struct ClientTotals {
    pub(crate) connected: u64,
    pub(crate) away: u64,
}

/// Messages in the queues of sessions, in memory and in the store.
#[derive(Deserialize, Serialize, ToSchema)]
pub(crate) struct QueuedTotals {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    /// Further messages that wait for room in a queue.
    pub(crate) held: u64,
    /// Seconds since the oldest one that is stored came, too few by 5 % at most. Of one from before
    /// the start of the broker, the seconds since the start. Null if none is stored.
    #[schema(required)]
    pub(crate) oldest: Option<u64>,
}

#[derive(Deserialize, Serialize, ToSchema)]
pub(crate) struct LongQueue {
    pub(crate) client_id: String,
    /// True if the client is connected.
    pub(crate) connected: bool,
    pub(crate) messages: usize,
    pub(crate) bytes: usize,
    /// As `oldest` of `queued`.
    #[schema(required)]
    pub(crate) oldest: Option<u64>,
}

#[derive(Deserialize, Serialize, ToSchema)]
pub(crate) struct PublishTotals {
    pub(crate) received: u64,
    pub(crate) sent: u64,
}

#[derive(Deserialize, Serialize, ToSchema)]
pub(crate) struct RedeliveryTotals {
    pub(crate) redelivered: u64,
    pub(crate) stalled: u64,
    pub(crate) disconnected: u64,
    pub(crate) dead_letters: u64,
}

/// The last seconds, and the last minute.
#[derive(Deserialize, Serialize, ToSchema)]
#[schema(as = RecentFigures)]
pub(crate) struct RecentRates {
    /// PUBLISH packets, the mean of four seconds. Null right after the start.
    #[schema(required, minimum = 0)]
    pub(crate) received_per_second: Option<f64>,
    #[schema(required, minimum = 0)]
    pub(crate) sent_per_second: Option<f64>,
    /// Seconds that 99 % of the acknowledgements of the last minute came within, rounded up to a
    /// power of two of milliseconds. Null if none came.
    #[schema(required, minimum = 0)]
    pub(crate) ack_p99: Option<f64>,
    /// As `ack_p99`, for commits.
    #[schema(required, minimum = 0)]
    pub(crate) commit_p99: Option<f64>,
    /// As `ack_p99`, for syncs of the store's log.
    #[schema(required, minimum = 0)]
    pub(crate) sync_p99: Option<f64>,
    /// As `ack_p99`, for writes of the log's changes to the database.
    #[schema(required, minimum = 0)]
    pub(crate) apply_p99: Option<f64>,
}

/// Bytes that count against `limits.memory`.
#[derive(Deserialize, Serialize, ToSchema)]
pub(crate) struct MemoryUse {
    pub(crate) bytes: u64,
    pub(crate) limit: u64,
}

#[derive(Deserialize, Serialize, ToSchema)]
pub(crate) struct ExpiryTotals {
    pub(crate) keys: u64,
    /// The number of deadlines due within a time, such as `10s`.
    pub(crate) due_within: BTreeMap<String, u64>,
}

/// Returns the totals, as of the shards' last reports.
pub(crate) async fn overview(asked: Query<OverviewParameters>, state: State) -> JsonAnswer<Overview> {
    let details = OverviewDetail::read(asked.detail.as_deref())?;
    let observer = state.running()?;
    let (problems, queues) = tokio::join!(problems(&state, observer), longest_queues(&state));
    let problems = problems.into_iter().map(problem).collect();
    let (statistics, shared) = (observer.statistics(), observer.shared());
    let late_threads: Vec<String> =
        late_threads(observer, clock::now()).into_iter().map(|late| late.name.into()).collect();
    let (now, total, recent) = (clock::now(), statistics.total(), state.recent.view());
    let due = AHEAD.into_iter().zip(statistics.expiry.due());
    let counters = &total.counters;
    // A temporary in a struct expression lives to the end of the expression, and a lock with it.
    let retained_messages = shared.retained().of_clients();
    let sums = &total.session_totals;
    let longest_queues = queues.rows.iter().map(long_queue).collect();
    let listeners = observer.listeners().open().iter().map(ToString::to_string).collect();
    Ok(Json(Overview {
        problems,
        version: Cow::Borrowed(env!("CARGO_PKG_VERSION")),
        alive: late_threads.is_empty(),
        late_threads,
        uptime: now.since(Instant::ZERO).as_secs(),
        clients: ClientTotals { connected: total.connected, away: total.away() },
        queued: QueuedTotals {
            messages: sums.queued,
            bytes: sums.queued_bytes,
            held: sums.held,
            oldest: age(sums.oldest_stored),
        },
        in_flight: sums.in_flight,
        longest_queues,
        subscriptions: total.subscriptions,
        retained_messages,
        delayed_messages: shared.totals.delayed_messages.get(),
        dead_letters_stored: shared.totals.letters.get(),
        publishes: PublishTotals {
            received: counters.publishes_received.total(),
            sent: counters.sent.total(),
        },
        redelivery: RedeliveryTotals {
            redelivered: counters.redelivered.total(),
            stalled: counters.stalled.total(),
            disconnected: counters.disconnected,
            dead_letters: counters.dead_letters.total(),
        },
        dropped: counters.drops.total(),
        last_drop_ago: statistics.last_drop().map(|last| now.since(last).as_secs()),
        recent: RecentRates {
            received_per_second: recent.received.last().copied(),
            sent_per_second: recent.sent.last().copied(),
            ack_p99: recent.ack_p99.map(|p99| p99.as_secs_f64()),
            commit_p99: recent.commit_p99.map(|p99| p99.as_secs_f64()),
            sync_p99: recent.sync_p99.map(|p99| p99.as_secs_f64()),
            apply_p99: recent.apply_p99.map(|p99| p99.as_secs_f64()),
        },
        memory: MemoryUse { bytes: statistics.memory(), limit: statistics.memory_limit() },
        store: StoreFigures::of(observer, now),
        expiry: ExpiryTotals {
            keys: statistics.expiry.keys(),
            due_within: due.map(|(secs, keys)| (format!("{secs}s"), keys)).collect(),
        },
        listeners,
        sizes: details.contains(&OverviewDetail::Sizes).then(|| OverviewSizes::of(observer, &total)),
        kinds: details.contains(&OverviewDetail::Kinds).then(|| OverviewKinds::of(observer, &total)),
    }))
}

fn long_queue(row: &ListedRow) -> LongQueue {
    let session = &row.session;
    LongQueue {
        client_id: session.client_id.to_string(),
        connected: session.connection.is_some(),
        messages: session.queued,
        bytes: session.queued_bytes,
        oldest: session.oldest_queued.map(|age| age.as_secs()),
    }
}

/// Returns the seconds since a time.
fn age(since: Option<Instant>) -> Option<u64> {
    since.map(|since| clock::now().since(since).as_secs())
}

fn problem(problem: BrokerProblem) -> ProblemRow {
    let advice = problem.kind.advice();
    ProblemRow { kind: problem.kind, text: problem.text, advice: advice.into() }
}
