//! The subscriptions by filter: the sessions that have a filter, and the shared groups.

use crate::mqtt::packet::QoS;
use crate::shard::core::Core;
use crate::shard::observe::budget::QuestionBudget;
use crate::shard::observe::message_summary::{BYTES, ROWS};
use crate::shard::observe::receivers::{MatchedReceivers, MatchedSession};
use crate::shard::routes::Routes;

/// Members of a group that one question looks at most. Those of other shards count, too.
const MEMBERS: usize = 8_192;

/// Members that are looked at for one step.
const MEMBERS_OF_STEP: usize = 8;

/// Steps of one row.
const ROW: usize = 8;

/// A part of the shared groups. Every shard knows all of them.
#[derive(Clone, Debug, Default)]
pub struct SharedGroups {
    /// The full filters, each with its number of members in all shards.
    pub groups: Vec<(Box<str>, usize)>,
    /// The place at which the next part begins; `None` at the end.
    pub next: Option<u32>,
}

/// Returns the groups in the places from `from` on, at most `most` and [`ROWS`], and fewer with
/// long filters.
pub(super) fn shared_groups(
    from: u32,
    most: usize,
    budget: &mut QuestionBudget,
    routes: &Routes,
) -> SharedGroups {
    let (tree, most) = (routes.router.tree(), most.clamp(1, ROWS));
    let (mut found, mut bytes) = (SharedGroups::default(), 0);
    for place in from..tree.end_of_groups() {
        if found.groups.len() >= most || bytes >= BYTES || budget.is_spent() {
            found.next = Some(place);
            break;
        }
        budget.spend(1);
        if let Some(id) = tree.group_at(place)
            && let Some(filter) = routes.router.full_filter(id)
        {
            let members = routes.router.group(id).map_or(0, |group| group.len());
            let filter: &str = filter;
            bytes += filter.len();
            budget.spend(ROW);
            budget.spend_bytes(filter.len());
            found.groups.push((filter.into(), members));
        }
    }
    found
}

/// Returns the sessions of this shard with exactly this filter, until the answer is full:
/// subscribers, or the members of a shared group.
pub(super) fn subscribers(
    filter: &str,
    budget: &mut QuestionBudget,
    (core, routes): (&Core, &Routes),
) -> MatchedReceivers {
    match routes.router.group_of(filter) {
        Some(id) => {
            let Some(group) = routes.router.group(id) else { return MatchedReceivers::default() };
            let looked_at = group.len().min(MEMBERS);
            budget.spend(looked_at / MEMBERS_OF_STEP);
            let looked = group.members().take(looked_at);
            let here = looked.filter(|member| member.shard == routes.router.tree().here());
            let slots = here.map(|member| (member.session.0, member.options.qos()));
            let mut found = sessions(filter, slots, budget, core);
            found.more |= group.len() > looked_at;
            found
        }
        None => {
            let all = routes.router.tree().subscribers_of(filter);
            sessions(filter, all.map(|one| (one.session.0, one.options.qos())), budget, core)
        }
    }
}

fn sessions(
    filter: &str,
    slots: impl Iterator<Item = (u32, QoS)>,
    budget: &mut QuestionBudget,
    core: &Core,
) -> MatchedReceivers {
    let mut found = MatchedReceivers::default();
    for (slot, qos) in slots {
        budget.spend(ROW);
        let Some((_, entry)) = core.sessions.at(slot) else { continue };
        budget.spend_bytes(entry.session.client_id.len() + filter.len());
        let session = MatchedSession {
            client_id: entry.session.client_id.clone(),
            connected: entry.connection.is_some(),
            qos,
            filters: vec![filter.into()],
        };
        if budget.is_spent() || !found.add(session, ROWS) {
            found.more = true;
            break;
        }
    }
    found
}
