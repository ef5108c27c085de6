//! The bridges and the sinks, with the figures of their sessions.

use super::oldest_queued::add_oldest_queued;
use crate::admin::rows::bridge::BridgeRow;
use crate::admin::rows::sink::SinkRow;
use crate::broker::bridges::reports::{FarDirectory, FarFacts};
use crate::broker::observer::Observer;
use crate::clock;
use crate::time::Instant;

/// Returns the bridges, by name. The figures of the sessions are two seconds old at most.
pub(crate) async fn bridges(observer: &Observer) -> Vec<BridgeRow> {
    rows(observer, observer.bridges(), BridgeRow::of).await
}

/// Returns the sinks, by name. The figures of the sessions are two seconds old at most.
pub(crate) async fn sinks(observer: &Observer) -> Vec<SinkRow> {
    rows(observer, observer.sinks(), SinkRow::of).await
}

async fn rows<F: FarFacts, R>(
    observer: &Observer,
    directory: &FarDirectory<F>,
    row: fn(&F, Instant) -> R,
) -> Vec<R> {
    let mut all = directory.all();
    let figures = all.iter_mut().filter_map(|facts| facts.session().figures.as_mut());
    add_oldest_queued(observer, &mut figures.map(|figures| &mut figures.row).collect::<Vec<_>>()).await;
    let now = clock::now();
    all.iter().map(|facts| row(facts, now)).collect()
}
