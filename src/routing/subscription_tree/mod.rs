//! The subscription index: from a Topic Name to who receives it.
//!
//! Each shard owns one. It holds the subscriptions of the sessions that live in the shard in full; of other
//! shards only *which* are interested in a filter, since the publisher's shard sends a message once to each
//! and they match it again; and of shared subscriptions all members of all shards, since the publisher's
//! shard chooses.
//!
//! Not here: retained messages, validity of filters ([`crate::mqtt::topic`]), limits per client, and merging
//! the subscriptions of one session that overlap.

mod address;
mod filter_map;
mod group_table;
mod subscribers;
mod trie;
mod walk;

#[cfg(test)]
pub(super) mod test_topics;
#[cfg(test)]
mod tests;

pub use address::{SessionSlot, ShardId, ShardSet};
pub use group_table::GroupId;
pub use subscribers::{PackedOptions, Subscriber};
pub use walk::Walk;

use super::presence::Presences;
use super::shared::{Group, Member, MemberAddress, Presence};
use crate::mqtt::charge::{Charge, Recount, Recounted};
use filter_map::FilterMap;
use group_table::GroupTable;

/// Who receives what, as one shard knows it.
///
/// Filters come without `$share/NAME/`, and are valid; an invalid one matches nothing or less than it seems
/// to.
#[derive(Debug)]
pub struct SubscriptionTree {
    /// The shard this is in.
    here: ShardId,
    filters: FilterMap,
    groups: GroupTable,
    /// Of all members of groups.
    presences: Presences,
    version: u64,
    local: usize,
    /// Members of groups, of all shards.
    members: usize,
    /// What all of it takes.
    charge: Charge,
}

/// Bytes of a local subscription, and of a member of a group: their rows are half full at the worst.
const SUBSCRIPTION: usize = 2 * size_of::<Subscriber>();
const MEMBER: usize = 2 * size_of::<Member>();

/// The longest Topic Name, in bytes, that [`Matches`] remembers.
const REMEMBERED: usize = 256;

/// What a topic matched. Kept from publish to publish: its vectors are the walk's only memory, and the next publish to the
/// same topic finds its answer there (8 ns, where among 100,000 filters an exact match takes 38 and one with two wildcards 155).
///
/// Of one tree alone. Who changes the order in it does no harm; who takes something out clears it.
#[derive(Debug, Default)]
pub struct Matches {
    /// Local ones; a session is in it once for each of its filters that matched.
    pub subscribers: Vec<Subscriber>,
    /// Other shards with at least one subscriber.
    pub peers: ShardSet,
    /// Each group that has one member to be chosen; one client may be in several.
    pub groups: Vec<GroupId>,
    /// Nodes of the trie that were visited for it; 0 where it was remembered.
    pub visited: u32,
    frontier: trie::Frontier,
    /// Of which topic, in which version of the tree; empty: of none.
    topic: String,
    version: u64,
}

impl Matches {
    pub fn is_empty(&self) -> bool {
        self.subscribers.is_empty() && self.peers.is_empty() && self.groups.is_empty()
    }

    pub fn clear(&mut self) {
        self.subscribers.clear();
        self.peers = ShardSet::EMPTY;
        self.groups.clear();
        self.topic.clear();
        self.visited = 0;
    }
}

/// What a subscribe or join did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subscribed {
    New {
        /// No other local subscriber had the filter: the peers must learn of it. For a group: it had no
        /// member.
        first_here: bool,
    },
    /// The session had this subscription, maybe with other options.
    Replaced,
}

/// What an unsubscribe or leave did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsubscribed {
    Removed {
        /// No other local subscriber has the filter: the peers must learn of it. For a group: it has no
        /// member left.
        last_here: bool,
    },
    NotFound,
}

/// Whether another shard has a subscriber to a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    Present,
    Absent,
}

impl SubscriptionTree {
    pub fn new(here: ShardId) -> SubscriptionTree {
        SubscriptionTree {
            here,
            filters: FilterMap::default(),
            groups: GroupTable::default(),
            presences: Presences::default(),
            version: 0,
            local: 0,
            members: 0,
            charge: Charge::NONE,
        }
    }

    /// Adds a local subscription, or replaces the session's own to the same filter (5.0 and 3.1.1
    /// [MQTT-3.8.4-3]).
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

    /// Removes the session's subscription to exactly this filter (5.0 and 3.1.1 [MQTT-3.10.4-1]).
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

    /// Notes what another shard said about its own subscribers; saying it twice is harmless.
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

    /// Adds a member of any shard to `$share/GROUP/FILTER`, or replaces the same session's membership.
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
        self.members += 1;
        self.account();
        Subscribed::New { first_here }
    }

    /// Removes a member; the group goes with its last.
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
        self.members -= 1;
        self.account();
        Unsubscribed::Removed { last_here }
    }

    /// Notes that a session got or lost its Network Connection; returns whether it is a member of any group. Costs the same
    /// however many it is in.
    pub fn set_presence(&mut self, address: MemberAddress, presence: Presence) -> bool {
        self.presences.set(address, presence)
    }

    /// Fills `out` with what receives a message to this Topic Name, in place of what was there, or leaves it as it is, if
    /// that is the answer still. Allocates only to grow `out`.
    pub fn matches(&self, topic: &str, out: &mut Matches) {
        self.matches_within(topic, u32::MAX, out);
    }

    /// The same, if it takes no more than some `most` nodes of the trie; else false, and nothing in `out`:
    /// [`go_on`](Self::go_on) then takes it in portions.
    pub fn matches_within(&self, topic: &str, most: u32, out: &mut Matches) -> bool {
        if out.version == self.version && out.topic == topic && !topic.is_empty() {
            out.visited = 0;
            return true;
        }
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

    /// Adds to `out`, from where the walk stands, what `most` more nodes have; whether that was all.
    pub fn go_on(&self, topic: &str, walk: &mut Walk, most: u32, out: &mut Matches) -> bool {
        self.filters.go_on(topic, walk, most, out)
    }

    /// None if the group is gone: an id is never given to another. Who of it is online may not be known yet.
    pub fn group(&self, id: GroupId) -> Option<&Group> {
        self.groups.find(id)
    }

    /// As [`group`](Self::group), to choose a member: it knows who is online.
    pub fn group_mut(&mut self, id: GroupId) -> Option<&mut Group> {
        self.group_caught_up(id).map(|(group, _)| group)
    }

    /// The same, with the number of look-ups that it took.
    pub fn group_caught_up(&mut self, id: GroupId) -> Option<(&mut Group, usize)> {
        let group = self.groups.find_mut(id)?;
        let steps = group.catch_up(&self.presences);
        Some((group, steps))
    }

    /// Changes with every change that could change what [`matches`](Self::matches) answers, for those who
    /// keep answers. Members of a group may change without: the group stays the same.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Subscriptions of sessions that live here, shared ones included.
    pub fn len(&self) -> usize {
        self.local
    }

    pub fn is_empty(&self) -> bool {
        self.local == 0
    }

    /// Exact filters, trie nodes, groups and sessions in them that exist, for whichever shard; 0 once all is removed.
    pub fn entries(&self) -> usize {
        self.filters.len() + self.groups.len() + self.presences.len()
    }

    /// Bytes on the heap, without the allocator's rounding. Looks at every filter: for reports.
    pub fn memory(&self) -> usize {
        self.filters.memory() + self.groups.memory() + self.presences.memory()
    }

    pub fn group_id(&self, group: &str, filter: &str) -> Option<GroupId> {
        self.groups.search(&self.filters.find(filter)?.groups, group).ok()
    }

    /// Puts what the index takes on the account, after a change to it. Counts nothing anew.
    fn account(&mut self) {
        let tables = self.filters.held() + self.groups.held() + self.presences.memory();
        self.charge.set(tables + self.local * SUBSCRIPTION + self.members * MEMBER);
    }

    fn remove_group(&mut self, id: GroupId, name: &str, filter: &str) {
        let SubscriptionTree { filters, groups, .. } = self;
        let Some(receivers) = filters.find_mut(filter) else { return };
        // By name: a filter may have as many groups as a client has subscriptions, and all of them may end at once.
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
        let held =
            filters + self.groups.held() + self.presences.memory() + local * SUBSCRIPTION + members * MEMBER;
        Recounted { held, charged: self.charge.bytes() }
    }
}
