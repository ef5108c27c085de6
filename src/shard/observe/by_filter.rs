//! The subscriptions by filter: the sessions that have a filter, and the shared groups.

use crate::mqtt::packet::QoS;
use crate::session::packet_notes::cut;
use crate::shard::core::Core;
use crate::shard::observe::message_summary::ROWS;
use crate::shard::observe::query::SLOTS;
use crate::shard::observe::whereabouts::{MatchedReceivers, MatchedSession};
use crate::shard::routes::Routes;

/// Members of a group that one question looks at most. Those of other shards count, too.
const MEMBERS: usize = 8_192;

/// A part of the shared groups. Every shard knows all of them.
#[derive(Clone, Debug, Default)]
pub struct SharedGroups {
    /// The full filters, cut as topics are, each with its number of members in all shards.
    pub groups: Vec<(Box<str>, usize)>,
    /// The place at which the next part begins; `None` at the end.
    pub next: Option<u32>,
}

/// Returns the groups in the places from `from` on, at most `most` and [`ROWS`].
pub(crate) fn shared_groups(from: u32, most: usize, routes: &Routes) -> SharedGroups {
    let (tree, most) = (routes.router.tree(), most.clamp(1, ROWS));
    let end = tree.end_of_groups();
    let until = end.min(from.saturating_add(SLOTS));
    let mut found = SharedGroups::default();
    for place in from..until {
        if found.groups.len() >= most {
            found.next = Some(place);
            return found;
        }
        if let Some(id) = tree.group_at(place)
            && let Some(filter) = routes.router.full_filter(id)
        {
            let members = routes.router.group(id).map_or(0, |group| group.len());
            found.groups.push((cut(filter), members));
        }
    }
    found.next = (until < end).then_some(until);
    found
}

/// Returns the sessions of this shard with exactly this filter, until the answer is full:
/// subscribers, or the members of a shared group.
pub(crate) fn subscribers(filter: &str, core: &Core, routes: &Routes) -> MatchedReceivers {
    match routes.router.group_of(filter) {
        Some(id) => {
            let Some(group) = routes.router.group(id) else { return MatchedReceivers::default() };
            let is_whole = group.len() <= MEMBERS;
            let looked = group.members().take(MEMBERS);
            let here = looked.filter(|member| member.shard == routes.router.tree().here());
            let mut found =
                sessions(filter, here.map(|member| (member.session.0, member.options.qos())), core);
            found.more |= !is_whole;
            found
        }
        None => {
            let all = routes.router.tree().subscribers_of(filter);
            sessions(filter, all.map(|one| (one.session.0, one.options.qos())), core)
        }
    }
}

fn sessions(filter: &str, slots: impl Iterator<Item = (u32, QoS)>, core: &Core) -> MatchedReceivers {
    let mut found = MatchedReceivers::default();
    let known = slots.filter_map(|(slot, qos)| Some((core.sessions.at(slot)?.1, qos)));
    for (entry, qos) in known {
        if found.is_full() {
            found.more = true;
            break;
        }
        found.add(MatchedSession {
            client_id: entry.session.client_id.clone(),
            connected: entry.connection.is_some(),
            qos,
            filters: vec![cut(filter)],
        });
    }
    found
}
