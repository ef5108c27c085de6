//! The subscription tree: it finds the receivers of a Topic Name.
//!
//! Each shard owns one tree. The tree holds three kinds of entries:
//!
//! - All subscriptions of the sessions that live in the shard.
//! - For each filter, the other shards that have subscribers to it. The publisher's shard sends a
//!   message once to each of these shards, and that shard matches the message again.
//! - For each shared subscription, all members in all shards, because the publisher's shard chooses
//!   one.
//!
//! Not here: retained messages, the validity of filters ([`crate::mqtt::topic`]), limits for each
//! client, and the merge of overlapping subscriptions of one session.

mod address;
mod filter_map;
mod group_table;
mod matches;
mod receivers;
mod subscribers;
mod survey;
mod trie;
mod walk;

#[cfg(test)]
pub(super) mod test_topics;
#[cfg(test)]
mod tests;

pub use address::{GroupId, SessionSlot, ShardId, ShardSet};
pub use matches::Matches;
pub use subscribers::{PackedOptions, Subscriber};
pub use survey::{FilterSurvey, SurveyPlace};
pub use walk::Walk;

use super::presence::Presences;
use crate::mqtt::charge::{Charge, Recount, Recounted};
use crate::routing::shared_group::{Member, MemberAddress, Presence, SharedGroup};
use filter_map::FilterMap;
use group_table::GroupTable;
use matches::REMEMBERED;

/// All subscriptions that one shard knows.
///
/// Callers pass valid filters without `$share/NAME/`. An invalid filter matches nothing, or fewer
/// topics than its text suggests.
#[derive(Debug)]
pub struct SubscriptionTree {
    /// The shard that owns the tree.
    here: ShardId,
    filters: FilterMap,
    groups: GroupTable,
    /// The presence of all members of groups.
    presences: Presences,
    /// See [`SubscriptionTree::version`].
    version: u64,
    /// Subscriptions of this shard's sessions, shared ones included.
    local: usize,
    /// The shared subscriptions among them.
    local_shared: usize,
    /// Members of all groups, in all shards.
    members: usize,
    /// The bytes of the whole tree.
    charge: Charge,
}

/// Bytes of a local subscription. A vector of them is half full at worst.
const SUBSCRIPTION: usize = 2 * size_of::<Subscriber>();
/// Bytes of a member of a group. A vector of them is half full at worst.
const MEMBER: usize = 2 * size_of::<Member>();

/// The effect of [`SubscriptionTree::subscribe`] or [`SubscriptionTree::join`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subscribed {
    /// A subscription or member was added.
    New {
        /// True if no other local subscriber had the filter, so the peers must be informed. For a
        /// group: true if it had no member.
        first_here: bool,
    },
    /// The session had this subscription already, possibly with other options.
    Replaced,
}

/// The effect of [`SubscriptionTree::unsubscribe`] or [`SubscriptionTree::leave`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsubscribed {
    /// A subscription or member was removed.
    Removed {
        /// True if no other local subscriber has the filter, so the peers must be informed. For a
        /// group: true if it has no member left.
        last_here: bool,
    },
    /// The session did not have this subscription.
    NotFound,
}

/// The interest of another shard in a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// The shard has at least one subscriber to the filter.
    Present,
    /// The shard has no subscriber to the filter.
    Absent,
}

impl SubscriptionTree {
    /// Returns an empty tree for one shard.
    pub fn new(here: ShardId) -> SubscriptionTree {
        SubscriptionTree {
            here,
            filters: FilterMap::default(),
            groups: GroupTable::default(),
            presences: Presences::default(),
            version: 0,
            local: 0,
            local_shared: 0,
            members: 0,
            charge: Charge::NONE,
        }
    }

    /// Adds a local subscription, or replaces the session's subscription to the same filter.
    // 5.0 and 3.1.1 [MQTT-3.8.4-3]
    pub fn subscribe(&mut self, filter: &str, subscriber: Subscriber) -> Subscribed {
        let local = &mut self.filters.entry(filter).local;
        let first_here = local.is_empty();
        match local.put(subscriber) {
            Some(before) => {
                self.version += u64::from(before != subscriber);
                Subscribed::Replaced
            }
            None => {
                self.version += 1;
                self.local += 1;
                self.account();
                Subscribed::New { first_here }
            }
        }
    }

    /// Removes the session's subscription to exactly this filter.
    // 5.0 and 3.1.1 [MQTT-3.10.4-1]
    pub fn unsubscribe(&mut self, filter: &str, session: SessionSlot) -> Unsubscribed {
        let Some(receivers) = self.filters.find_mut(filter) else { return Unsubscribed::NotFound };
        if receivers.local.remove(session).is_none() {
            return Unsubscribed::NotFound;
        }
        let last_here = receivers.local.is_empty();
        if receivers.is_empty() {
            self.filters.prune(filter);
        }
        self.version += 1;
        self.local -= 1;
        self.account();
        Unsubscribed::Removed { last_here }
    }

    /// Notes the interest that another shard reported. A repeated report changes nothing.
    pub fn set_peer_interest(&mut self, filter: &str, shard: ShardId, interest: Interest) {
        debug_assert!(shard != self.here, "a shard is not its own peer");
        let changed = match interest {
            Interest::Present => self.filters.entry(filter).peers.insert(shard),
            Interest::Absent => {
                let Some(receivers) = self.filters.find_mut(filter) else { return };
                let changed = receivers.peers.remove(shard);
                if receivers.is_empty() {
                    self.filters.prune(filter);
                }
                changed
            }
        };
        self.version += u64::from(changed);
        self.account();
    }

    /// Adds a member of any shard to `$share/GROUP/FILTER`, or replaces the member of the same
    /// session.
    pub fn join(&mut self, group: &str, filter: &str, member: Member) -> Subscribed {
        let ids = &mut self.filters.entry(filter).groups;
        let (id, first_here) = match self.groups.search(ids, group) {
            Ok(id) => (id, false),
            Err(at) => {
                let id = self.groups.add(group);
                ids.get_or_insert_default().insert(at, id);
                self.version += 1;
                (id, true)
            }
        };
        let SubscriptionTree { groups, presences, .. } = self;
        let presence = if member.online { Presence::Online } else { Presence::Offline };
        let Some(members) = groups.find_mut(id) else { return Subscribed::Replaced };
        if first_here {
            members.begins_at(presences.latest());
        }
        if members.join(member).is_some() {
            presences.set(member.address(), presence);
            return Subscribed::Replaced;
        }
        presences.join(member.address(), presence);
        self.local += usize::from(member.shard == self.here);
        self.local_shared += usize::from(member.shard == self.here);
        self.members += 1;
        self.account();
        Subscribed::New { first_here }
    }

    /// Removes a member. The group is removed with its last member.
    pub fn leave(&mut self, group: &str, filter: &str, address: MemberAddress) -> Unsubscribed {
        let Some(id) = self.group_id(group, filter) else { return Unsubscribed::NotFound };
        let Some(members) = self.groups.find_mut(id) else { return Unsubscribed::NotFound };
        if members.leave(address).is_none() {
            return Unsubscribed::NotFound;
        }
        let last_here = members.is_empty();
        self.presences.leave(address);
        if last_here {
            self.remove_group(id, group, filter);
        }
        self.local -= usize::from(address.shard == self.here);
        self.local_shared -= usize::from(address.shard == self.here);
        self.members -= 1;
        self.account();
        Unsubscribed::Removed { last_here }
    }

    /// Notes that a session got or lost its Network Connection. Returns true if it is a member of
    /// any group. The cost does not depend on the number of its groups.
    pub fn set_presence(&mut self, address: MemberAddress, presence: Presence) -> bool {
        self.presences.set(address, presence)
    }

    /// Replaces the content of `out` with the receivers of this Topic Name. Does nothing if `out`
    /// is the current result already. Allocates only to grow `out`.
    pub fn matches(&self, topic: &str, out: &mut Matches) {
        self.matches_within(topic, u32::MAX, out);
    }

    /// Matches as [`matches`](Self::matches) does, but visits at most about `most` nodes of the
    /// trie.
    ///
    /// Returns false if more are needed. Then `out` is empty but for `visited`, and
    /// [`go_on`](Self::go_on) matches the topic in portions.
    #[inline]
    pub fn matches_within(&self, topic: &str, most: u32, out: &mut Matches) -> bool {
        if out.version == self.version && out.topic == topic && !topic.is_empty() {
            out.visited = 0;
            return true;
        }
        self.match_anew(topic, most, out)
    }

    /// Matches a topic that `out` does not remember.
    fn match_anew(&self, topic: &str, most: u32, out: &mut Matches) -> bool {
        out.clear();
        if !self.filters.matches(topic, most, out) {
            let visited = out.visited;
            out.clear();
            out.visited = visited;
            return false;
        }
        if topic.len() <= REMEMBERED {
            out.topic.push_str(topic);
            out.version = self.version;
        }
        true
    }

    /// Continues a walk over at most `most` more nodes, and adds their receivers to `out`. Returns
    /// true if the walk is complete.
    pub fn go_on(&self, topic: &str, walk: &mut Walk, most: u32, out: &mut Matches) -> bool {
        self.filters.go_on(topic, walk, most, out)
    }

    /// Returns a group, or `None` if it was removed. The group may not know yet which members are
    /// online: see [`group_mut`](Self::group_mut).
    pub fn group(&self, id: GroupId) -> Option<&SharedGroup> {
        self.groups.find(id)
    }

    /// Returns the shard of the tree.
    pub fn here(&self) -> ShardId {
        self.here
    }

    /// Returns the group at a place, from 0 to below [`end_of_groups`](Self::end_of_groups); `None`
    /// at a free place. A group keeps its place.
    pub fn group_at(&self, place: u32) -> Option<GroupId> {
        self.groups.at(place)
    }

    /// Returns a number above the places of all groups.
    pub fn end_of_groups(&self) -> u32 {
        self.groups.end()
    }

    /// Returns the subscription of a session of this shard with exactly this filter. Costs a
    /// look-up and a binary search.
    pub fn subscription(&self, filter: &str, session: SessionSlot) -> Option<Subscriber> {
        let first = self.filters.find(filter)?.local.iter_from(session.0).next().copied();
        first.filter(|found| found.session == session)
    }

    /// Returns the subscribers of this shard with exactly this filter.
    pub fn subscribers_of(&self, filter: &str) -> impl Iterator<Item = Subscriber> {
        self.filters.find(filter).into_iter().flat_map(|receivers| receivers.local.iter()).copied()
    }

    /// Returns a group, for the choice of a member. The group knows which members are online.
    pub fn group_mut(&mut self, id: GroupId) -> Option<&mut SharedGroup> {
        self.group_caught_up(id).map(|(group, _)| group)
    }

    /// Returns the same, and the number of look-ups that the update of presence took.
    pub fn group_caught_up(&mut self, id: GroupId) -> Option<(&mut SharedGroup, usize)> {
        let group = self.groups.find_mut(id)?;
        let steps = group.catch_up(&self.presences);
        Some((group, steps))
    }

    /// Returns a number that differs after every change that can affect [`matches`](Self::matches).
    /// Callers that keep results compare the number. A change of a group's members does not affect
    /// it, because the group itself stays.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the number of subscriptions of this shard's sessions, shared ones included.
    pub fn len(&self) -> usize {
        self.local
    }

    /// Returns the number of shared subscriptions of this shard's sessions.
    pub fn shared(&self) -> usize {
        self.local_shared
    }

    /// Returns true if no session of this shard has a subscription.
    pub fn is_empty(&self) -> bool {
        self.local == 0
    }

    /// Returns the number of exact filters, trie nodes, groups, and sessions in groups, of all
    /// shards. Returns 0 once everything is removed.
    pub fn entries(&self) -> usize {
        self.filters.len() + self.groups.len() + self.presences.len()
    }

    /// Returns the bytes on the heap, without the allocator's rounding. Looks at every filter, so
    /// it is for reports and tests.
    pub fn memory(&self) -> usize {
        self.filters.memory() + self.groups.memory() + self.presences.memory()
    }

    /// Returns the id of the group `$share/GROUP/FILTER`, or `None` if it has no member.
    pub fn group_id(&self, group: &str, filter: &str) -> Option<GroupId> {
        self.groups.search(&self.filters.find(filter)?.groups, group).ok()
    }

    /// Charges the present size of the tree after a change. Costs no walk over entries.
    fn account(&mut self) {
        let tables = self.filters.in_use() + self.groups.in_use() + self.presences.memory();
        self.charge.set(tables + self.local * SUBSCRIPTION + self.members * MEMBER);
    }

    /// Removes a group without members, and its filter if nothing else needs the filter.
    fn remove_group(&mut self, id: GroupId, name: &str, filter: &str) {
        let SubscriptionTree { filters, groups, .. } = self;
        let Some(receivers) = filters.find_mut(filter) else { return };
        // A binary search: a filter may have as many groups as a client has subscriptions, and all
        // of them may end at once.
        if let Ok(at) = groups.place(&receivers.groups, name)
            && let Some(ids) = &mut receivers.groups
        {
            ids.remove(at);
            if ids.is_empty() {
                receivers.groups = None;
            }
        }
        groups.remove(id);
        self.version += 1;
        if receivers.is_empty() {
            self.filters.prune(filter);
        }
    }
}

impl Recount for SubscriptionTree {
    fn recount(&self) -> Recounted {
        let (filters, plain) = self.filters.recount();
        let members = self.groups.members().count();
        let local = plain + self.groups.members().filter(|member| member.shard == self.here).count();
        let in_use = filters
            + self.groups.in_use()
            + self.presences.memory()
            + local * SUBSCRIPTION
            + members * MEMBER;
        Recounted { in_use, charged: self.charge.bytes() }
    }
}
