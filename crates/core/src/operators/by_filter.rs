//! The subscriptions by filter: the sessions that have a filter, and the shared groups.

use crate::mqtt::packet::QoS;
use crate::operators::budget::{Part, Question, ROWS, Rows};
use crate::operators::receivers::{MatchedReceivers, MatchedSession};

/// Members of a group that one question looks at most. Members in other shards count, too.
const MEMBERS: usize = 8_192;

/// Members that are looked at for one step.
const MEMBERS_OF_STEP: usize = 8;

/// Steps of one row.
const ROW: usize = 8;

/// Returns the full filters of the groups in the places from `from` on, each with its number of
/// members in all shards; at most `most` and [`ROWS`], and fewer with long filters.
pub(super) fn shared_groups(
    question: &mut Question<'_>,
    from: u32,
    most: usize,
) -> Part<(Box<str>, usize), u32> {
    let (router, budget) = (question.shard.router(), &mut *question.budget);
    let (mut groups, mut next) = (Rows::new(most), None);
    for place in from..router.tree().end_of_groups() {
        if groups.is_full(budget) {
            next = Some(place);
            break;
        }
        budget.spend(1);
        if let Some(id) = router.tree().group_at(place)
            && let Some(filter) = router.full_filter(id)
        {
            let members = router.group(id).map_or(0, |group| group.len());
            let filter: &str = filter;
            budget.spend(ROW);
            budget.spend_bytes(filter.len());
            groups.push((filter.into(), members), filter.len());
        }
    }
    groups.part(next)
}

/// Returns the sessions of this shard with exactly this filter, until the answer is full:
/// subscribers, or the members of a shared group.
pub(super) fn subscribers(question: &mut Question<'_>, filter: &str) -> MatchedReceivers {
    let (here, router) = (question.shard.here(), question.shard.router());
    match router.group_of(filter) {
        Some(id) => {
            let Some(group) = router.group(id) else { return MatchedReceivers::default() };
            let looked_at = group.len().min(MEMBERS);
            question.budget.spend(looked_at / MEMBERS_OF_STEP);
            let looked = group.members().take(looked_at);
            let own = looked.filter(|member| member.shard == here);
            let slots = own.map(|member| (member.session.0, member.options.qos()));
            let mut found = sessions(question, filter, slots);
            found.more |= group.len() > looked_at;
            found
        }
        None => {
            let all = router.tree().subscribers_of(filter);
            sessions(question, filter, all.map(|one| (one.session.0, one.options.qos())))
        }
    }
}

fn sessions(
    question: &mut Question<'_>,
    filter: &str,
    slots: impl Iterator<Item = (u32, QoS)>,
) -> MatchedReceivers {
    let mut found = MatchedReceivers::default();
    for (slot, qos) in slots {
        question.budget.spend(ROW);
        let Some((_, entry)) = question.shard.session_at(slot) else { continue };
        question.budget.spend_bytes(entry.session.client_id.len() + filter.len());
        let session = MatchedSession::of(entry, qos, filter.into());
        if question.budget.is_spent() || !found.add(session, ROWS) {
            found.more = true;
            break;
        }
    }
    found
}
