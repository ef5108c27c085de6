//! The receivers of each Topic Filter: exact filters in a hash table, filters with wildcards in a
//! trie.
//!
//! All exact filters together cost a publish one hash and one comparison. A publish walks the trie
//! only if at least one filter has a wildcard.

use super::matches::Matches;
use super::receivers::Receivers;
use super::trie::Trie;
use super::walk::Walk;
use crate::mqtt::topic;
use crate::routing::split_table::SplitTable;
use foldhash::fast::RandomState;
use std::hash::BuildHasher;

/// A filter without wildcards.
#[derive(Debug)]
struct ExactFilter {
    filter: Box<str>,
    receivers: Receivers,
}

/// All filters.
#[derive(Debug, Default)]
pub(super) struct FilterMap {
    exact: SplitTable<ExactFilter>,
    hasher: RandomState,
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
    pub(super) fn entry(&mut self, filter: &str) -> &mut Receivers {
        if topic::has_wildcard(filter) { self.wildcards.entry(filter) } else { self.exact_entry(filter) }
    }

    fn exact_entry(&mut self, filter: &str) -> &mut Receivers {
        let FilterMap { exact, hasher, text: text_of_all, .. } = self;
        let new = || {
            *text_of_all += text(filter);
            ExactFilter { filter: filter.into(), receivers: Receivers::default() }
        };
        let hash = |exact: &ExactFilter| hasher.hash_one(&*exact.filter);
        let is_it = |exact: &ExactFilter| *exact.filter == *filter;
        &mut exact.entry(hasher.hash_one(filter), is_it, hash, new).receivers
    }

    /// Returns the receivers of exactly this filter.
    pub(super) fn find(&self, filter: &str) -> Option<&Receivers> {
        if topic::has_wildcard(filter) { self.wildcards.find(filter) } else { self.find_exact(filter) }
    }

    /// Returns the same to change them.
    pub(super) fn find_mut(&mut self, filter: &str) -> Option<&mut Receivers> {
        if topic::has_wildcard(filter) {
            return self.wildcards.find_mut(filter);
        }
        let is_it = |exact: &ExactFilter| *exact.filter == *filter;
        self.exact.find_mut(self.hasher.hash_one(filter), is_it).map(|exact| &mut exact.receivers)
    }

    /// Removes a filter if it has no receiver.
    pub(super) fn prune(&mut self, filter: &str) {
        if topic::has_wildcard(filter) {
            self.wildcards.prune(filter);
        } else {
            let hash = |exact: &ExactFilter| self.hasher.hash_one(&*exact.filter);
            let is_it = |exact: &ExactFilter| *exact.filter == *filter && exact.receivers.is_empty();
            if self.exact.remove(self.hasher.hash_one(filter), is_it, hash).is_some() {
                self.text -= text(filter);
            }
        }
    }

    /// Appends the receivers of every filter that matches. Returns false if that needs more than
    /// `most` nodes of the trie.
    pub(super) fn matches(&self, topic: &str, most: u32, out: &mut Matches) -> bool {
        self.exact_matches(topic, out);
        self.wildcards.is_empty() || self.wildcards.matches(topic, most, out)
    }

    fn exact_matches(&self, topic: &str, out: &mut Matches) {
        if let Some(receivers) = self.find_exact(topic) {
            receivers.copy_to(out);
        }
    }

    pub(super) fn find_exact(&self, filter: &str) -> Option<&Receivers> {
        if self.exact.is_empty() {
            return None; // Saves the hash of the topic.
        }
        let is_it = |exact: &ExactFilter| *exact.filter == *filter;
        self.exact.find(self.hasher.hash_one(filter), is_it).map(|exact| &exact.receivers)
    }

    /// Returns the filters with wildcards.
    pub(super) fn wildcards(&self) -> &Trie {
        &self.wildcards
    }

    /// Continues a walk over at most `most` nodes. Returns true if the walk is complete.
    pub(super) fn go_on(&self, topic: &str, walk: &mut Walk, most: u32, out: &mut Matches) -> bool {
        if !walk.begun {
            self.exact_matches(topic, out);
        }
        self.wildcards.go_on(topic, walk, most, out)
    }

    /// Returns the number of exact filters and trie nodes.
    pub(super) fn len(&self) -> usize {
        self.exact.len() + self.wildcards.len()
    }

    /// Returns the bytes on the heap without those of the receivers. Costs nothing.
    pub(super) fn in_use(&self) -> usize {
        self.exact.memory() + self.text + self.wildcards.in_use()
    }

    /// Counts the same bytes anew, and the subscriptions of this shard. Looks at every filter.
    pub(super) fn recount(&self) -> (usize, usize) {
        let texts = self.exact.iter().map(|exact| text(&exact.filter)).sum::<usize>();
        let exact = self.exact.iter().map(|exact| exact.receivers.subscriptions()).sum::<usize>();
        let (wildcards, subscriptions) = self.wildcards.recount();
        (self.exact.recount() + texts + wildcards, exact + subscriptions)
    }

    /// Returns the bytes on the heap. Looks at every filter.
    pub(super) fn memory(&self) -> usize {
        let entry = |exact: &ExactFilter| exact.filter.len() + exact.receivers.memory();
        let entries = self.exact.iter().map(entry).sum::<usize>();
        self.exact.memory() + entries + self.wildcards.memory()
    }
}
