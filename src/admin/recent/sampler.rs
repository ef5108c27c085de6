//! The task that takes the samples.

use super::history::{FigureValues, HistoryFigure};
use super::{MessageSample, PACE, WaitSample};
use crate::admin::state::AdminState;
use crate::broker::observer::Observer;
use crate::clock;
use crate::shard::ShardSnapshot;
use crate::store::statistics::StoreStatistics;
use crate::time::histogram::{Distribution, Histogram, SharedHistogram};
use actix_web::web::Data;
use tokio::time::MissedTickBehavior;

/// Takes a sample every two seconds, until the interface stops.
pub(crate) async fn sample(state: Data<AdminState>) {
    let mut ticks = tokio::time::interval(PACE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Some(observer) = state.observer() {
            let total = observer.statistics().total();
            let (messages, waits) = samples_of(observer, &total);
            state.history.take(messages.at, &look_at(&total));
            state.recent.take(messages, waits);
        }
    }
}

/// Returns the present counts, as of the shards' last reports.
fn samples_of(observer: &Observer, total: &ShardSnapshot) -> (MessageSample, WaitSample) {
    let (statistics, counters) = (observer.statistics(), &total.counters);
    let messages = MessageSample {
        at: clock::now(),
        received: counters.publishes_received.total(),
        sent: counters.sent.total(),
    };
    let mut ack: Histogram = counters.puback_time.clone();
    ack.merge(&counters.pubrec_time);
    let of_store = |time: fn(&StoreStatistics) -> &SharedHistogram| {
        statistics.store().map_or_else(Distribution::default, |store| time(store).distribution())
    };
    let waits = WaitSample {
        ack: ack.distribution(),
        commit: of_store(|store| &store.commit_time),
        sync: of_store(|store| &store.sync_time),
        apply: of_store(|store| &store.apply_time),
        lateness: statistics.expiry.lateness.distribution(),
    };
    (messages, waits)
}

/// Returns the present values of the history.
#[expect(clippy::cast_precision_loss, reason = "a chart shows three digits")]
fn look_at(total: &ShardSnapshot) -> FigureValues {
    HistoryFigure::ALL.map(|figure| match figure {
        HistoryFigure::Connections => total.connected as f64,
        HistoryFigure::Received => total.counters.publishes_received.total() as f64,
        HistoryFigure::Sent => total.counters.sent.total() as f64,
        HistoryFigure::Queued => total.session_totals.queued as f64,
        HistoryFigure::InFlight => total.session_totals.in_flight as f64,
        HistoryFigure::Dropped => total.counters.drops.total() as f64,
        HistoryFigure::Cpu => clock::process_cpu().as_secs_f64(),
    })
}
