//! The routing of one shard: who is subscribed to what, here and, in outline, at the peers.
//!
//! The subscription tree names a shared group by a number. The router keeps the full filter of each
//! group beside it, for deliveries that may have to go to another member, so groups are joined and
//! left here and not at the tree. The router also lends the one [`Matches`] that publications are
//! matched into, so that no publication allocates.

use crate::mqtt::charge::{Charge, Recount, Recounted};
use crate::mqtt::topic::TopicFilter;
use crate::routing::shared_group::{Member, MemberAddress, Presence, SharedGroup};
use crate::routing::subscription_tree::{
    GroupId, Interest, Matches, SessionSlot, ShardId, Subscribed, Subscriber, SubscriptionTree, Unsubscribed,
};
use hashbrown::HashMap;
use std::sync::Arc;

/// Bytes of a group's full filter beside its text: its place in a table that is half full.
const FULL_FILTER: usize = 80;

/// The subscriptions of one shard, and its shared groups in all shards.
#[derive(Debug)]
pub(crate) struct Router {
    tree: SubscriptionTree,
    /// The full filter of each shared group, `$share/...`.
    full_filters: HashMap<GroupId, Arc<Box<str>>, foldhash::fast::FixedState>,
    /// For `full_filters`. The tree charges for itself.
    charge: Charge,
    /// Boxed, because each publication takes it out and puts it back. `None` before the first, and
    /// while one has it.
    matches: Option<Box<Matches>>,
}

impl Router {
    /// The routing of the shard `here`, without subscriptions.
    pub(crate) fn new(here: ShardId) -> Router {
        Router {
            tree: SubscriptionTree::new(here),
            full_filters: HashMap::default(),
            charge: Charge::NONE,
            matches: None,
        }
    }

    /// The tree, for reading.
    #[inline]
    pub(crate) fn tree(&self) -> &SubscriptionTree {
        &self.tree
    }

    /// Takes out the matches that publications use in turn. They are empty.
    #[inline]
    pub(crate) fn take_matches(&mut self) -> Box<Matches> {
        self.matches.take().unwrap_or_default()
    }

    /// Puts the matches back.
    #[inline]
    pub(crate) fn give_back_matches(&mut self, matches: Box<Matches>) {
        self.matches = Some(matches);
    }

    /// Enters a plain filter of a session of this shard.
    pub(crate) fn subscribe(&mut self, filter: &str, subscriber: Subscriber) -> Subscribed {
        self.tree.subscribe(filter, subscriber)
    }

    /// Takes out a plain filter of a session of this shard.
    pub(crate) fn unsubscribe(&mut self, filter: &str, session: SessionSlot) -> Unsubscribed {
        self.tree.unsubscribe(filter, session)
    }

    /// Notes that a peer has subscribers to a filter, or none any more.
    pub(crate) fn set_peer_interest(&mut self, filter: &str, shard: ShardId, interest: Interest) {
        self.tree.set_peer_interest(filter, shard, interest);
    }

    /// Enters a member into a group, or changes its options.
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

    /// Takes a member out of a group. Returns false if it was not in there.
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

    /// Notes that a session is connected, or not. Returns false if it is in no group.
    pub(crate) fn set_presence(&mut self, address: MemberAddress, presence: Presence) -> bool {
        self.tree.set_presence(address, presence)
    }

    /// Returns the group with this full filter, `$share/...`; `None` if it has no member in any
    /// shard.
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

    /// Returns the members of a group, to move their turn on.
    pub(crate) fn group_mut(&mut self, group: GroupId) -> Option<&mut SharedGroup> {
        self.tree.group_mut(group)
    }

    /// Returns the members of a group with their presence up to date, and how many steps that took.
    pub(crate) fn group_caught_up(&mut self, group: GroupId) -> Option<(&mut SharedGroup, usize)> {
        self.tree.group_caught_up(group)
    }

    /// Returns how many shared groups have a member in any shard.
    pub(crate) fn groups(&self) -> usize {
        self.full_filters.len()
    }
}

/// Both the tree and the full filters.
impl Recount for Router {
    fn recount(&self) -> Recounted {
        let full_filters: usize = self.full_filters.values().map(|full| full.len() + FULL_FILTER).sum();
        let tree = self.tree.recount();
        Recounted { held: tree.held + full_filters, charged: tree.charged + self.charge.bytes() }
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
        let Recounted { held, charged } = router.recount();
        assert_eq!((router.groups(), held), (0, charged));
    }
}
