//! The task that takes the samples.

use super::{MessageSample, PACE, WaitSample};
use crate::admin::state::AdminState;
use crate::broker::observer::Observer;
use crate::clock;
use crate::time::histogram::{Histogram, SharedHistogram};
use actix_web::web::Data;
use tokio::time::MissedTickBehavior;

/// Takes a sample every two seconds, until the interface stops.
pub(crate) async fn sample(state: Data<AdminState>) {
    let mut ticks = tokio::time::interval(PACE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Some(observer) = state.observer() {
            let (messages, waits) = samples_of(observer);
            state.recent().take(messages, waits);
        }
    }
}

/// Returns the present counts, as of the shards' last reports.
fn samples_of(observer: &Observer) -> (MessageSample, WaitSample) {
    let statistics = observer.statistics();
    let counters = statistics.total().counters;
    let messages = MessageSample {
        at: clock::now(),
        received: counters.publishes_received.total(),
        sent: counters.sent.total(),
    };
    let mut ack: Histogram = counters.puback_time;
    ack.merge(&counters.pubrec_time);
    let commit = statistics
        .store()
        .map_or_else(|| SharedHistogram::default().distribution(), |store| store.commit_time.distribution());
    let lateness = statistics.expiry.lateness.distribution();
    (messages, WaitSample { ack: ack.distribution(), commit, lateness })
}
