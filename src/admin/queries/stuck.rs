//! The clients that are stuck: connected, with a message that they leave unacknowledged.
//!
//! The shards keep the sessions whose acknowledgement is overdue by `redelivery`: after a minute by
//! default, and never if that is off. A client is stuck here after ten seconds, so its search looks
//! at every session. At first the search is as quick as that of an operator. After that it takes
//! 1 % of the time of one shard, and the pages show the result of the search before.

use super::top::{Top, TopFigure, search};
use crate::admin::listing::StuckClients;
use crate::admin::state::State;
use crate::clock;
use crate::operators::query::SessionFilter;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of stuck clients in a result: the longest waits.
const STUCK: usize = 100;

/// Age of an unacknowledged message from which its client is stuck.
const AGE: Duration = Duration::from_secs(10);

/// Time for which a page waits for a search, and in which a search is quick.
const SOON: Duration = Duration::from_millis(250);

/// The pause between two questions after that.
const LONG_PAUSE: Duration = Duration::from_millis(20);

/// Time for one search: that of three million sessions.
const TIME: Duration = Duration::from_mins(1);

/// Returns the connected clients that have left a message unacknowledged for ten seconds, the
/// longest wait first. The result is a few seconds old at most if the search takes less than 250
/// ms: up to some 200,000 sessions. Without an answer of the shards, the last result is returned.
pub(crate) async fn stuck_clients(state: &State) -> Arc<StuckClients> {
    if let Some(found) = state.stuck().fresh(clock::now()) {
        return found;
    }
    if let Some(place) = state.stuck().begin() {
        let state = state.clone();
        actix_web::rt::spawn(async move {
            if let Some(found) = find(&state).await {
                state.stuck().found(clock::now(), found);
            }
            drop(place);
        });
    }
    state.stuck().wait(SOON).await;
    state.stuck().last()
}

/// Searches all sessions. Returns `None` if a shard does not answer, or if the broker starts.
async fn find(state: &State) -> Option<StuckClients> {
    let admits = SessionFilter { connected: Some(true), min_unacked_age: AGE, ..SessionFilter::default() };
    let mut top = Top::new(TopFigure::OldestUnacknowledged, STUCK, admits);
    let pace = |elapsed| if elapsed < SOON { Duration::ZERO } else { LONG_PAUSE };
    let is_complete = search(state, state.observer()?, &mut top, pace, TIME).await.ok()?;
    let rows = top.sorted();
    Some(StuckClients { has_more: rows.len() >= STUCK || !is_complete, rows })
}
