//! The bridges, with the figures of their sessions.

use super::oldest_queued::add_oldest_queued;
use crate::admin::rows::bridge::BridgeRow;
use crate::broker::observer::Observer;
use crate::clock;

/// Returns the bridges, by name. The figures of the sessions are two seconds old at most.
pub(crate) async fn bridges(observer: &Observer) -> Vec<BridgeRow> {
    let mut all = observer.bridges().all();
    let sessions = all.iter_mut().filter_map(|facts| facts.session.as_mut());
    add_oldest_queued(observer, &mut sessions.map(|session| &mut session.row).collect::<Vec<_>>()).await;
    let now = clock::now();
    all.iter().map(|facts| BridgeRow::of(facts, now)).collect()
}
