//! The clients that an operator looks for first: stuck clients and the longest queues. A stuck
//! client is connected and leaves a message unacknowledged.
//!
//! The shards keep the sessions whose acknowledgement is overdue by `redelivery`: after a minute by
//! default, and never if that is off. A client is stuck here after ten seconds, so its search looks
//! at every session, and so does the search for queues. At first a search is as quick as that of an
//! operator. After that it takes 1 % of the time of one shard, and the pages show the result of the
//! search before.

use super::oldest_queued::add_oldest_queued;
use super::sorted::first_sessions;
use crate::admin::listing::{FoundClients, SharedSearch};
use crate::admin::state::{AdminState, State};
use crate::clock;
use crate::operators::query::SessionFilter;
use crate::operators::session_order::SessionOrder;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of stuck clients in a result: the longest waits.
const MOST: usize = 100;

/// Maximum number of clients in the result of the search for queues.
const QUEUES: usize = 5;

/// Age of an unacknowledged message from which its client is stuck.
pub(crate) const STUCK: Duration = Duration::from_secs(10);

/// Time for which a page waits for a search, and in which a search is quick.
const SOON: Duration = Duration::from_millis(250);

/// The pause between two questions after that.
const LONG_PAUSE: Duration = Duration::from_millis(20);

/// Time for one search: that of three million sessions.
const TIME: Duration = Duration::from_mins(1);

/// Returns the connected clients that have left a message unacknowledged for ten seconds, the
/// longest wait first. The result is a few seconds old at most if the search takes less than 250
/// ms: up to some 200,000 sessions. Without an answer of the shards, the last result is returned.
pub(crate) async fn stuck_clients(state: &State) -> Arc<FoundClients> {
    let admits = SessionFilter { connected: Some(true), min_unacked_age: STUCK, ..SessionFilter::default() };
    let wanted = (SessionOrder::OldestUnacknowledged, admits);
    shared(state, |state| &state.stuck, (wanted, MOST)).await
}

/// Returns the clients with the most queued messages, the longest queue first: five at most. As
/// old as the result of [`stuck_clients`].
pub(crate) async fn longest_queues(state: &State) -> Arc<FoundClients> {
    let wanted = (SessionOrder::Queued, SessionFilter { min_queued: 1, ..SessionFilter::default() });
    shared(state, |state| &state.longest_queues, (wanted, QUEUES)).await
}

/// The order and the filter of a search, and its number of rows at most.
type WantedFirst = ((SessionOrder, SessionFilter), usize);

/// Returns the result of a search that all callers share. Begins the search if its last result is
/// not fresh.
async fn shared(
    state: &State,
    of: fn(&AdminState) -> &SharedSearch,
    wanted: WantedFirst,
) -> Arc<FoundClients> {
    if let Some(found) = of(state).fresh(clock::now()) {
        return found;
    }
    if let Some(place) = of(state).begin() {
        let state = state.clone();
        actix_web::rt::spawn(async move {
            if let Some(found) = find(&state, wanted).await {
                of(&state).found(clock::now(), found);
            }
            drop(place);
        });
    }
    if let Some(found) = of(state).recent(clock::now()) {
        return found;
    }
    of(state).wait(SOON).await;
    of(state).last()
}

/// Searches all sessions. Returns `None` if a shard does not answer, or if the broker starts.
async fn find(state: &State, (wanted, most): WantedFirst) -> Option<FoundClients> {
    let pace = |elapsed| if elapsed < SOON { Duration::ZERO } else { LONG_PAUSE };
    let is_of_queues = wanted.0 == SessionOrder::Queued;
    let (mut rows, is_complete) = first_sessions(state, wanted, most, pace, TIME).await.ok()?;
    if is_of_queues {
        let rows: &mut Vec<_> = &mut rows.iter_mut().map(|row| &mut row.session).collect();
        add_oldest_queued(state.running().ok()?, rows).await;
    }
    Some(FoundClients { has_more: rows.len() >= most || !is_complete, rows })
}
