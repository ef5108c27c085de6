//! A walk of the trie in portions.
//!
//! If filters have wildcards at many levels, a topic visits up to 2^levels nodes. The plain walk
//! ([`Trie::matches`]) stops once it has visited more nodes than its caller has time for. The walk
//! here then visits the same nodes in portions.
//!
//! The walk goes depth first, the literal child before `+`. Its place is the list of branches
//! taken, one for each level. A place names no node, because filters may be added and removed
//! between two portions, and nodes may get new ids. The walk misses changes behind its place, and
//! sees changes ahead.

use super::matches::Matches;
use super::trie::{NodeId, ROOT, Trie};
use crate::mqtt::topic;

/// The place of a walk between two portions.
#[derive(Debug, Default)]
pub struct Walk {
    /// The branches to the next node.
    path: Vec<Branch>,
    /// True once a portion was walked.
    pub(super) begun: bool,
}

/// A branch from a node to a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Branch {
    /// To the level of the topic itself.
    Literal,
    /// To `+`.
    Plus,
}

impl Trie {
    /// Continues a walk: visits at most `most` nodes, but at least one, and appends the receivers
    /// of the filters that match. Returns true if the walk is complete. Each call also costs one
    /// look-up for each level of the topic.
    pub(super) fn go_on(&self, topic: &str, walk: &mut Walk, most: u32, out: &mut Matches) -> bool {
        walk.begun = true;
        if self.is_empty() {
            return true;
        }
        let mut at = WalkPlace::at(self, topic, std::mem::take(&mut walk.path));
        let mut there = at.descend() || at.pass();
        for _ in 0..most.max(1) {
            if !there {
                return true;
            }
            out.visited = out.visited.saturating_add(1);
            at.take(out);
            there = at.advance();
        }
        walk.path = at.path;
        !there
    }
}

/// A node of the trie with the branches that lead to it.
pub(super) struct WalkPlace<'a> {
    pub(super) trie: &'a Trie,
    pub(super) levels: Vec<&'a [u8]>,
    /// The first level at which wildcards match: 1 for topics that begin with `$`, else 0.
    pub(super) first: usize,
    pub(super) path: Vec<Branch>,
    /// The nodes on the path, from the root. There is one node more than branches.
    pub(super) nodes: Vec<NodeId>,
}

impl<'a> WalkPlace<'a> {
    /// Returns the node at the end of a path, which [`Self::descend`] follows.
    pub(super) fn at(trie: &'a Trie, topic: &'a str, path: Vec<Branch>) -> WalkPlace<'a> {
        let levels = topic.as_bytes().split(|b| *b == b'/').collect();
        // 5.0 and 3.1.1 [MQTT-4.7.2-1]
        let first = usize::from(topic::begins_with_dollar(topic));
        WalkPlace { trie, levels, first, path, nodes: vec![ROOT] }
    }

    /// Follows the path from the root. Returns false if a node of the path was removed; then the
    /// path ends at that node.
    pub(super) fn descend(&mut self) -> bool {
        for at in 0..self.path.len() {
            let Some(child) = self.child(at, self.path[at]) else {
                self.path.truncate(at + 1);
                return false;
            };
            self.nodes.push(child);
        }
        true
    }

    /// Goes to the next node that is not below this one. Returns false at the end.
    pub(super) fn pass(&mut self) -> bool {
        while let Some(branch) = self.path.pop() {
            self.nodes.truncate(self.path.len() + 1);
            if branch == Branch::Literal && self.enter(Branch::Plus) {
                return true;
            }
        }
        false
    }

    /// Goes to the next node, which may be below this one. Returns false at the end.
    pub(super) fn advance(&mut self) -> bool {
        self.enter(Branch::Literal) || self.enter(Branch::Plus) || self.pass()
    }

    /// Goes to a child. Returns false if the node has no such child.
    fn enter(&mut self, branch: Branch) -> bool {
        let Some(child) = self.child(self.path.len(), branch) else { return false };
        self.path.push(branch);
        self.nodes.push(child);
        true
    }

    /// Returns a child of the node at a level of the path.
    fn child(&self, level: usize, branch: Branch) -> Option<NodeId> {
        let name = self.levels.get(level)?;
        let parent = *self.nodes.get(level)?;
        match branch {
            Branch::Plus => self.trie.plus(parent).filter(|_| level >= self.first),
            Branch::Literal => self.trie.literal_child(parent, name),
        }
    }

    /// Appends the receivers of the filters that end here.
    fn take(&self, out: &mut Matches) {
        let Some(node) = self.nodes.last() else { return };
        let level = self.path.len();
        if level >= self.first {
            // `#` includes the parent level.
            self.trie.copy_hash(*node, out);
        }
        if level == self.levels.len() {
            self.trie.copy(*node, out);
        }
    }
}
