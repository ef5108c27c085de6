//! The delayed messages in memory, and the last dropped messages, of all shards.

use super::ask::ask;
use super::one_page::cut_page;
use crate::admin::failed::Failed;
use crate::admin::state::AdminState;
use crate::clock;
use crate::operators::dropped::FoundDrops;
use crate::operators::query::{MessageSummary, Part, Query, QueryAnswer, ROWS};
use crate::operators::wanted::{Wanted, WantedTopic};
use crate::shard::features::delayed::DelayedPlace;
use crate::time::Instant;
use std::cmp::Reverse;
use std::ops::Bound;

/// A delayed message in memory.
#[derive(Clone, Debug)]
pub(crate) struct DelayedRow {
    pub(crate) shard: u8,
    /// The place in the shard, with the time at which the message is published.
    pub(crate) place: DelayedPlace,
    pub(crate) message: MessageSummary,
}

/// A page of the delayed messages.
pub(crate) struct ListedDelayed {
    /// The messages, the next due first.
    pub(crate) rows: Vec<DelayedRow>,
    /// The place behind which the next page begins, and its shard; `None` at the end.
    pub(crate) next: Option<(DelayedPlace, u8)>,
}

/// Returns the delayed messages of all shards behind a place, the next due first, at most `limit`.
/// The page is short if it is not full at `end`, or with long topics. A message that stays is
/// listed once over all pages.
pub(crate) async fn list_delayed(
    state: &AdminState,
    topic: Option<&WantedTopic>,
    (behind, limit): (Option<(DelayedPlace, u8)>, usize),
    end: Instant,
) -> Result<ListedDelayed, Failed> {
    let observer = state.running()?;
    let (mut rows, mut reached) = (Vec::new(), None);
    for shard in 0..observer.shards() {
        let number = u8::try_from(shard).unwrap_or(u8::MAX);
        // Messages of several shards may have the same place. Such messages are in the order of the
        // shards.
        let mut from = match behind {
            None => Bound::Unbounded,
            Some((place, of)) if number <= of => Bound::Excluded(place),
            Some((place, _)) => Bound::Included(place),
        };
        let mut found = 0;
        loop {
            let query = Query::Delayed { topic: topic.cloned(), from, most: limit - found };
            let QueryAnswer::Delayed(part) = ask(state, shard, query).await?.answer else {
                return Err(Failed::Busy);
            };
            let Part { rows: messages, next: place } = part;
            found += messages.len();
            let row = |(place, message)| DelayedRow { shard: number, place, message };
            rows.extend(messages.into_iter().map(row));
            let Some(place) = place else { break };
            if found >= limit || clock::now() >= end {
                let key = (place, number);
                reached = Some(reached.map_or(key, |least| key.min(least)));
                break;
            }
            from = Bound::Excluded(place);
        }
    }
    let (key, bytes) =
        (|row: &DelayedRow| (row.place, row.shard), |row: &DelayedRow| row.message.topic.len());
    let next = cut_page(&mut rows, limit, key, bytes, reached);
    Ok(ListedDelayed { rows, next })
}

/// Returns the last dropped messages and refused requests of all shards, the newest first.
pub(crate) async fn dropped(state: &AdminState, wanted: &Wanted) -> Result<FoundDrops, Failed> {
    let observer = state.running()?;
    let mut all = FoundDrops::default();
    for shard in 0..observer.shards() {
        let query = Query::Dropped { wanted: wanted.clone(), most: ROWS };
        if let QueryAnswer::Dropped(drops) = ask(state, shard, query).await?.answer {
            all.drops.extend(drops.drops);
            all.without_topic.extend(drops.without_topic);
            all.without_publisher += drops.without_publisher;
            all.refused.extend(drops.refused);
        }
    }
    all.drops.sort_by_key(|drop| Reverse(drop.at));
    all.without_topic.sort_by_key(|drop| Reverse(drop.at));
    all.refused.sort_by_key(|refusal| Reverse(refusal.at));
    Ok(all)
}
