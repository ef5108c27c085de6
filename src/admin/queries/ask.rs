//! A question to a shard, and the turns of its callers.

use crate::admin::failed::Failed;
use crate::admin::state::{AdminState, CallerTurn};
use crate::broker::question::ShardAnswer;
use crate::operators::query::Query;
use std::time::Duration;

/// Time for which a caller waits for a search that is under way. A request has 10 s.
const WAIT: Duration = Duration::from_secs(5);

/// Asks a shard. One question is under way for each shard, whatever the number of callers, and the
/// shard rests before the next one. So questions never hold up a shard's sockets. Further callers
/// wait their turn. Errors: too many wait, or the shard does not answer in time.
pub(crate) async fn ask(state: &AdminState, shard: usize, query: Query) -> Result<ShardAnswer, Failed> {
    let observer = state.running()?;
    let turn = state.turn(shard).await.ok_or(Failed::Busy)?;
    turn.rested().await;
    observer.ask(shard, query).await.map_err(|_| Failed::Busy)
}

/// Waits for the turn to search all sessions. Errors: too many callers wait, or earlier searches
/// take too long.
pub(super) async fn search_turn(state: &AdminState) -> Result<CallerTurn, Failed> {
    let turn = tokio::time::timeout(WAIT, state.searches.turn()).await;
    turn.ok().flatten().ok_or(Failed::Busy)
}
