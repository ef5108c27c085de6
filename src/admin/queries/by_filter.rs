//! The sessions with a topic filter, and the shared groups.

use super::ask::ask;
use super::sessions::PAGE;
use super::whereabouts::matched;
use crate::admin::failed::Failed;
use crate::admin::state::AdminState;
use crate::clock;
use crate::mqtt::topic::TopicFilter;
use crate::operators::query::{Part, Query, QueryAnswer};
use crate::operators::receivers::MatchedReceivers;

/// Returns the sessions of all shards that have exactly this filter. The filter of a shared
/// subscription begins with `$share/`; its sessions are the members of the group. Errors: the text
/// is no topic filter, or a shard does not answer.
pub(crate) async fn subscribers(state: &AdminState, filter: &str) -> Result<MatchedReceivers, Failed> {
    TopicFilter::parse(filter, usize::MAX)
        .map_err(|error| Failed::Parameter(format!("filter {filter:?} is no topic filter: {error}")))?;
    matched(state, |_| Query::Subscribers { filter: filter.into() }).await
}

/// Returns a page of the shared groups from a place on, with at most `most` groups. The page is
/// short if its time is over. A group that stays is listed once over all pages.
pub(crate) async fn shared_groups(
    state: &AdminState,
    from: u32,
    most: usize,
) -> Result<Part<(Box<str>, usize), u32>, Failed> {
    let mut all = Part::empty(Some(from));
    let started = clock::now();
    let has_room = |rows: usize| rows < most && clock::now().since(started) < PAGE;
    while let Some(from) = all.next.filter(|_| has_room(all.rows.len())) {
        let query = Query::SharedGroups { from, most: most - all.rows.len() };
        // Every shard knows every group.
        let QueryAnswer::SharedGroups(part) = ask(state, 0, query).await?.answer else {
            return Err(Failed::Busy);
        };
        all.rows.extend(part.rows);
        all.next = part.next;
    }
    Ok(all)
}
