//! The slow deliveries of all shards.

use super::ask::ask;
use crate::admin::failed::Failed;
use crate::admin::state::AdminState;
use crate::operators::query::{Query, QueryAnswer};
use crate::session::slow_deliveries::{SlowDelivery, may_be_cut};
use std::cmp::Reverse;

/// Returns the rows of a topic and a receiver with a slow delivery in the last hour, the slowest
/// first, at most `most`. Without a topic, all topics count; without a receiver, all receivers.
/// Errors: the broker starts, or a shard does not answer.
pub(crate) async fn slow_deliveries(
    state: &AdminState,
    topic: Option<&str>,
    receiver: Option<&str>,
    most: usize,
) -> Result<Vec<SlowDelivery>, Failed> {
    let observer = state.running()?;
    let mut all = Vec::new();
    let only = receiver.and_then(|receiver| only_shard(receiver, |client| observer.shard_of(client)));
    for shard in (0..observer.shards()).filter(|shard| only.is_none_or(|only| only == *shard)) {
        let query =
            Query::SlowDeliveries { topic: topic.map(Into::into), receiver: receiver.map(Into::into), most };
        let QueryAnswer::SlowDeliveries(rows) = ask(state, shard, query).await?.answer else {
            return Err(Failed::Busy);
        };
        all.extend(rows);
    }
    all.sort_by_key(|row| Reverse(row.longest));
    all.truncate(most);
    Ok(all)
}

/// Returns the shard of a receiver, which has all its rows; `None` if a row with this text may be
/// of a longer Client Identifier, whose shard is any.
fn only_shard<S>(receiver: &str, shard_of: impl Fn(&str) -> S) -> Option<S> {
    (!may_be_cut(receiver)).then(|| shard_of(receiver))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_that_may_be_cut_is_searched_in_all_shards() {
        assert_eq!(only_shard(&"x".repeat(127), str::len), Some(127));
        assert_eq!(only_shard(&"x".repeat(128), str::len), None);
    }
}
