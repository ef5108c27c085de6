//! The routing table of one shard: the subscriptions of its own sessions, the filters in which
//! peers are interested, and the shared groups of all shards.
//!
//! The subscription tree names a shared group by a number. The router stores the full filter of
//! each group beside the tree, because a delivery that goes to another member needs the filter. So
//! callers join and leave groups through the router, and not through the tree. The router also
//! lends out one [`Matches`] value, so that matching a publication allocates nothing.

use crate::mqtt::charge::{Charge, Recount, Recounted};
use crate::mqtt::topic::TopicFilter;
use crate::routing::shared_group::{Member, MemberAddress, Presence, SharedGroup};
use crate::routing::subscription_tree::{
    GroupId, Interest, Matches, SessionSlot, ShardId, Subscribed, Subscriber, SubscriptionTree, Unsubscribed,
};
use hashbrown::HashMap;
use std::sync::Arc;

/// Bytes of a group's full filter beside its text: its entry in a hash table that is half full.
const FULL_FILTER: usize = 80;

/// The subscriptions of one shard, and its shared groups in all shards.
#[derive(Debug)]
pub(crate) struct Router {
    tree: SubscriptionTree,
    /// The full filter `$share/...` of each shared group.
    full_filters: HashMap<GroupId, Arc<Box<str>>, foldhash::fast::FixedState>,
    /// The charge of `full_filters`. The tree has a charge of its own.
    charge: Charge,
    /// The matches that are lent out. Boxed, because each publication takes the value out and puts
    /// it back. `None` before the first publication, and while a publication has the value.
    matches: Option<Box<Matches>>,
}

impl Router {
    /// Returns the routing table of the shard `here`, without subscriptions.
    pub(crate) fn new(here: ShardId) -> Router {
        Router {
            tree: SubscriptionTree::new(here),
            full_filters: HashMap::default(),
            charge: Charge::NONE,
            matches: None,
        }
    }

    /// Returns the subscription tree, for reading.
    #[inline]
    pub(crate) fn tree(&self) -> &SubscriptionTree {
        &self.tree
    }

    /// Takes out the matches that all publications use in turn. The matches remember the receivers
    /// of the last topic, so a repeated topic needs no search. Allocates only at the first call, or
    /// if a publication has the matches already.
    #[inline]
    pub(crate) fn take_matches(&mut self) -> Box<Matches> {
        self.matches.take().unwrap_or_default()
    }

    /// Puts the matches back for the next publication.
    #[inline]
    pub(crate) fn give_back_matches(&mut self, matches: Box<Matches>) {
        self.matches = Some(matches);
    }

    /// Adds a subscription of a session of this shard. The filter has no shared group.
    pub(crate) fn subscribe(&mut self, filter: &str, subscriber: Subscriber) -> Subscribed {
        self.tree.subscribe(filter, subscriber)
    }

    /// Removes a subscription of a session of this shard. The filter has no shared group.
    pub(crate) fn unsubscribe(&mut self, filter: &str, session: SessionSlot) -> Unsubscribed {
        self.tree.unsubscribe(filter, session)
    }

    /// Notes that a peer has subscribers to a filter, or has none any more.
    pub(crate) fn set_peer_interest(&mut self, filter: &str, shard: ShardId, interest: Interest) {
        self.tree.set_peer_interest(filter, shard, interest);
    }

    /// Adds a member to a group, or changes the options of a member.
    pub(crate) fn join(&mut self, group: &str, filter: &str, member: Member) -> Subscribed {
        let joined = self.tree.join(group, filter, member);
        if let Some(id) = self.tree.group_id(group, filter) {
            let charge = &mut self.charge;
            self.full_filters.entry(id).or_insert_with(|| {
                let full: Box<str> = format!("$share/{group}/{filter}").into();
                charge.add(full.len() + FULL_FILTER);
                Arc::new(full)
            });
        }
        joined
    }

    /// Removes a member from a group. Returns false if the session was not a member.
    pub(crate) fn leave(&mut self, group: &str, filter: &str, address: MemberAddress) -> bool {
        let id = self.tree.group_id(group, filter);
        let Unsubscribed::Removed { last_here } = self.tree.leave(group, filter, address) else {
            return false;
        };
        if last_here
            && let Some(id) = id
            && let Some(full) = self.full_filters.remove(&id)
        {
            self.charge.sub(full.len() + FULL_FILTER);
        }
        true
    }

    /// Notes that a session connected or disconnected. Returns false if the session is in no group.
    pub(crate) fn set_presence(&mut self, address: MemberAddress, presence: Presence) -> bool {
        self.tree.set_presence(address, presence)
    }

    /// Returns the group with the full filter `full`, which begins with `$share/`. Returns `None`
    /// if the group has no member in any shard.
    pub(crate) fn group_of(&self, full: &str) -> Option<GroupId> {
        let filter = TopicFilter::parse(full, usize::MAX).ok()?;
        self.tree.group_id(filter.share_name?, filter.filter)
    }

    /// Returns the full filter of a group.
    pub(crate) fn full_filter(&self, group: GroupId) -> Option<&Arc<Box<str>>> {
        self.full_filters.get(&group)
    }

    /// Returns the members of a group.
    pub(crate) fn group(&self, group: GroupId) -> Option<&SharedGroup> {
        self.tree.group(group)
    }

    /// Returns the members of a group, so that the caller can move the turn.
    pub(crate) fn group_mut(&mut self, group: GroupId) -> Option<&mut SharedGroup> {
        self.tree.group_mut(group)
    }

    /// Returns the members of a group after all known presence changes were applied to it, and the
    /// number of look-ups that this took.
    pub(crate) fn group_caught_up(&mut self, group: GroupId) -> Option<(&mut SharedGroup, usize)> {
        self.tree.group_caught_up(group)
    }

    /// Returns how many shared groups have a member in any shard.
    pub(crate) fn groups(&self) -> usize {
        self.full_filters.len()
    }
}

/// Counts the tree and the full filters.
impl Recount for Router {
    fn recount(&self) -> Recounted {
        let full_filters: usize = self.full_filters.values().map(|full| full.len() + FULL_FILTER).sum();
        let tree = self.tree.recount();
        Recounted { in_use: tree.in_use + full_filters, charged: tree.charged + self.charge.bytes() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::subscription_tree::PackedOptions;

    #[test]
    fn a_group_has_its_full_filter_until_its_last_member_leaves() {
        let mut router = Router::new(ShardId(0));
        let member = |shard, session| Member {
            shard: ShardId(shard),
            session: SessionSlot(session),
            generation: 0,
            options: PackedOptions::default(),
            subscription_id: 0,
            online: true,
        };
        let (here, there) = (member(0, 1), member(1, 1));
        router.join("group", "a/b", here);
        router.join("group", "a/b", there);
        let group = router.group_of("$share/group/a/b");
        let full = group.and_then(|group| router.full_filter(group)).map(|full| full.to_string());
        assert_eq!((full.as_deref(), router.groups()), (Some("$share/group/a/b"), 1));
        assert!(router.leave("group", "a/b", here.address()));
        assert!(!router.leave("group", "a/b", here.address()));
        assert!(router.leave("group", "a/b", there.address()));
        let Recounted { in_use, charged } = router.recount();
        assert_eq!((router.groups(), in_use), (0, charged));
    }
}
