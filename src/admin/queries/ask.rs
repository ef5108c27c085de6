//! One question to one shard.

use crate::admin::failed::Failed;
use crate::admin::state::AdminState;
use crate::broker::observer::Observer;
use crate::broker::question::ShardAnswer;
use crate::shard::observe::query::Query;

/// Asks a shard. One question is under way for each shard, whatever the number of callers, so that
/// questions never hold up a shard's sockets. Further callers wait their turn.
///
/// # Errors
/// Too many wait, or the shard does not answer in time.
pub(crate) async fn ask(
    state: &AdminState,
    observer: &Observer,
    shard: usize,
    query: Query,
) -> Result<ShardAnswer, Failed> {
    let _turn = state.turn(shard).await.ok_or(Failed::Busy)?;
    observer.ask(shard, query).await.map_err(|_| Failed::Busy)
}
