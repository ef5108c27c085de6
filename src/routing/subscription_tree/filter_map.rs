//! The receivers of each Topic Filter: exact filters in a hash table, filters with wildcards in a
//! trie.
//!
//! All exact filters together cost a publish one hash and one comparison. A publish walks the trie
//! only if at least one filter has a wildcard.

use super::subscribers::Subscribers;
use super::trie::Trie;
use super::walk::Walk;
use super::{GroupId, Matches, ShardSet};
use crate::mqtt::topic;
use foldhash::fast::RandomState;
use hashbrown::HashMap;

/// Hash tables no larger than this are not worth shrinking.
pub(super) const SMALL_TABLE: usize = 64;

/// The receivers of one filter.
#[derive(Debug, Default)]
pub(super) struct Receivers {
    /// Subscribers of this shard.
    pub local: Subscribers,
    /// Other shards that have subscribers to the filter.
    pub peers: ShardSet,
    /// Groups of shared subscriptions, sorted by name.
    pub groups: Groups,
}

/// Groups of one filter. Boxed, because nearly every filter has none: 8 bytes instead of 24.
pub(super) type Groups = Option<Box<Vec<GroupId>>>;

const _: () = assert!(size_of::<Receivers>() == 32);

impl Receivers {
    /// Returns true if the filter has no receiver.
    pub fn is_empty(&self) -> bool {
        self.local.is_empty() && self.peers.is_empty() && self.groups.is_none()
    }

    /// Adds all receivers to `out`.
    pub fn copy_to(&self, out: &mut Matches) {
        self.local.copy_to(&mut out.subscribers);
        out.peers = out.peers.union(self.peers);
        if let Some(groups) = &self.groups {
            out.groups.extend_from_slice(groups);
        }
    }

    /// Returns the number of subscribers of this shard.
    pub fn subscriptions(&self) -> usize {
        let mut all = Vec::new();
        self.local.copy_to(&mut all);
        all.len()
    }

    /// Returns the bytes on the heap.
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
    /// Grows in one step, which hashes each filter anew. At 1,000,000 filters the step takes 270 ms of
    /// CPU, which is longer than a turn should take.
    exact: HashMap<Box<str>, Receivers, RandomState>,
    /// The bytes of the texts of all exact filters.
    text: usize,
    wildcards: Trie,
}

/// Returns the bytes of a filter's text, with the allocator's rounding.
fn text(filter: &str) -> usize {
    filter.len() + 8
}

impl FilterMap {
    /// Returns the receivers of a filter, and adds the filter if it is new. The caller adds a
    /// receiver, or calls [`prune`](Self::prune).
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

    /// Returns the receivers of exactly this filter.
    pub fn find(&self, filter: &str) -> Option<&Receivers> {
        if topic::has_wildcard(filter) { self.wildcards.find(filter) } else { self.exact.get(filter) }
    }

    /// Returns the same to change them.
    pub fn find_mut(&mut self, filter: &str) -> Option<&mut Receivers> {
        if topic::has_wildcard(filter) { self.wildcards.find_mut(filter) } else { self.exact.get_mut(filter) }
    }

    /// Removes a filter if it has no receiver.
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

    /// Appends the receivers of every filter that matches. Returns false if that needs more than
    /// `most` nodes of the trie.
    pub fn matches(&self, topic: &str, most: u32, out: &mut Matches) -> bool {
        self.exact_matches(topic, out);
        self.wildcards.is_empty() || self.wildcards.matches(topic, most, out)
    }

    fn exact_matches(&self, topic: &str, out: &mut Matches) {
        if let Some(receivers) = self.exact.get(topic) {
            receivers.copy_to(out);
        }
    }

    /// Continues a walk over at most `most` nodes. Returns true if the walk is complete.
    pub fn go_on(&self, topic: &str, walk: &mut Walk, most: u32, out: &mut Matches) -> bool {
        if !walk.begun {
            self.exact_matches(topic, out);
        }
        self.wildcards.go_on(topic, walk, most, out)
    }

    /// Returns the number of exact filters and trie nodes.
    pub fn len(&self) -> usize {
        self.exact.len() + self.wildcards.len()
    }

    /// Returns the bytes on the heap without those of the receivers. Costs nothing.
    pub fn held(&self) -> usize {
        self.exact.allocation_size() + self.text + self.wildcards.held()
    }

    /// Counts the same bytes anew, and the subscriptions of this shard. Looks at every filter.
    pub fn recount(&self) -> (usize, usize) {
        let texts = self.exact.keys().map(|filter| text(filter)).sum::<usize>();
        let exact = self.exact.values().map(Receivers::subscriptions).sum::<usize>();
        let (wildcards, subscriptions) = self.wildcards.recount();
        (self.exact.allocation_size() + texts + wildcards, exact + subscriptions)
    }

    /// Returns the bytes on the heap. Looks at every filter.
    pub fn memory(&self) -> usize {
        let entries = self.exact.iter().map(|(filter, r)| filter.len() + r.memory()).sum::<usize>();
        self.exact.allocation_size() + entries + self.wildcards.memory()
    }
}
