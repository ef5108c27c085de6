//! From a Topic Filter to what is kept for it: exact filters in one hash map, filters with wildcards in a
//! trie.
//!
//! A publish costs one hash and one compare for all exact filters together, and walks the trie only if there
//! is a filter with a wildcard at all.

use super::subscribers::Subscribers;
use super::trie::Trie;
use super::walk::Walk;
use super::{GroupId, Matches, ShardSet};
use crate::mqtt::topic;
use foldhash::fast::RandomState;
use hashbrown::HashMap;

/// Hash tables no larger than this are not worth shrinking.
pub(super) const SMALL_TABLE: usize = 64;

/// What is kept for one filter.
#[derive(Debug, Default)]
pub(super) struct Receivers {
    pub local: Subscribers,
    /// Shards with local subscribers to the filter.
    pub peers: ShardSet,
    /// Sorted by share name. Boxed, since few filters are shared, and all would pay for the two words more.
    pub groups: Groups,
}

/// 8 bytes in every filter, instead of the 24 that nearly none would use.
pub(super) type Groups = Option<Box<Vec<GroupId>>>;

const _: () = assert!(size_of::<Receivers>() == 32);

impl Receivers {
    pub fn is_empty(&self) -> bool {
        self.local.is_empty() && self.peers.is_empty() && self.groups.is_none()
    }

    pub fn copy_to(&self, out: &mut Matches) {
        self.local.copy_to(&mut out.subscribers);
        out.peers = out.peers.union(self.peers);
        if let Some(groups) = &self.groups {
            out.groups.extend_from_slice(groups);
        }
    }

    /// How many of this shard.
    pub fn subscriptions(&self) -> usize {
        let mut all = Vec::new();
        self.local.copy_to(&mut all);
        all.len()
    }

    /// Bytes on the heap.
    pub fn memory(&self) -> usize {
        let groups = self.groups.as_ref();
        let groups =
            groups.map_or(0, |ids| size_of::<Vec<GroupId>>() + ids.capacity() * size_of::<GroupId>());
        self.local.memory() + groups
    }
}

/// All filters.
#[derive(Debug, Default)]
pub(super) struct FilterMap {
    exact: HashMap<Box<str>, Receivers, RandomState>,
    /// What the texts of all exact filters take.
    text: usize,
    wildcards: Trie,
}

/// Bytes of a filter's text, as the allocator rounds up.
fn text(filter: &str) -> usize {
    filter.len() + 8
}

impl FilterMap {
    /// What is kept for the filter, made if there is nothing yet: put something in, or
    /// [`prune`](Self::prune).
    pub fn entry(&mut self, filter: &str) -> &mut Receivers {
        if topic::has_wildcard(filter) {
            self.wildcards.entry(filter)
        } else {
            let text_of_all = &mut self.text;
            self.exact.entry(filter.into()).or_insert_with(|| {
                *text_of_all += text(filter);
                Receivers::default()
            })
        }
    }

    pub fn find(&self, filter: &str) -> Option<&Receivers> {
        if topic::has_wildcard(filter) { self.wildcards.find(filter) } else { self.exact.get(filter) }
    }

    pub fn find_mut(&mut self, filter: &str) -> Option<&mut Receivers> {
        if topic::has_wildcard(filter) { self.wildcards.find_mut(filter) } else { self.exact.get_mut(filter) }
    }

    /// Forgets the filter if nothing is kept for it any more.
    pub fn prune(&mut self, filter: &str) {
        if topic::has_wildcard(filter) {
            self.wildcards.prune(filter);
        } else if self.exact.get(filter).is_some_and(Receivers::is_empty) {
            self.exact.remove(filter);
            self.text -= text(filter);
            if self.exact.capacity() > SMALL_TABLE && self.exact.len() * 4 <= self.exact.capacity() {
                self.exact.shrink_to(self.exact.len() * 2);
            }
        }
    }

    /// Appends the receivers of every filter that matches; false where that takes more than `most` nodes of the trie.
    pub fn matches(&self, topic: &str, most: u32, out: &mut Matches) -> bool {
        self.exact_matches(topic, out);
        self.wildcards.is_empty() || self.wildcards.matches(topic, most, out)
    }

    fn exact_matches(&self, topic: &str, out: &mut Matches) {
        if let Some(receivers) = self.exact.get(topic) {
            receivers.copy_to(out);
        }
    }

    /// The same from where a walk stands; whether that was all.
    pub fn go_on(&self, topic: &str, walk: &mut Walk, most: u32, out: &mut Matches) -> bool {
        if !walk.begun {
            self.exact_matches(topic, out);
        }
        self.wildcards.go_on(topic, walk, most, out)
    }

    /// Filters and trie nodes.
    pub fn len(&self) -> usize {
        self.exact.len() + self.wildcards.len()
    }

    /// Bytes on the heap, without those of the receivers, at no cost.
    pub fn held(&self) -> usize {
        self.exact.allocation_size() + self.text + self.wildcards.held()
    }

    /// The same, counted anew; and subscriptions of this shard.
    pub fn recount(&self) -> (usize, usize) {
        let texts = self.exact.keys().map(|filter| text(filter)).sum::<usize>();
        let exact = self.exact.values().map(Receivers::subscriptions).sum::<usize>();
        let (wildcards, subscriptions) = self.wildcards.recount();
        (self.exact.allocation_size() + texts + wildcards, exact + subscriptions)
    }

    /// Bytes on the heap; looks at every filter.
    pub fn memory(&self) -> usize {
        let entries = self.exact.iter().map(|(filter, r)| filter.len() + r.memory()).sum::<usize>();
        self.exact.allocation_size() + entries + self.wildcards.memory()
    }
}
