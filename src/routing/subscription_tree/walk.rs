//! A walk of the trie that goes on later.
//!
//! Wildcards at many levels make a topic visit up to 2^levels nodes. The plain walk ([`Trie::matches`]) stops where that is
//! more than its caller has time for; this one then visits the same nodes in portions. It goes depth first, the literal child
//! before `+`, and remembers its place as the branch taken at each level. That names no node: between two portions filters may
//! come and go, and nodes be freed and named anew. What is behind its place then is not looked at again, and what is before
//! it is found as it is by then.

use super::Matches;
use super::trie::{NodeId, ROOT, Trie};
use crate::mqtt::topic;

/// Where a walk stands.
#[derive(Debug, Default)]
pub struct Walk {
    /// To the node that is to be visited next: `true` for `+`, `false` for the level itself.
    path: Vec<bool>,
    /// Whether anything was visited.
    pub(super) begun: bool,
}

impl Trie {
    /// Appends the receivers of the filters that match, from where the walk stands, and visits at most `most` nodes, which is
    /// at least one; whether that was all. Costs the levels of the topic besides.
    pub fn go_on(&self, topic: &str, walk: &mut Walk, most: u32, out: &mut Matches) -> bool {
        walk.begun = true;
        if self.is_empty() {
            return true;
        }
        let levels: Vec<&[u8]> = topic.as_bytes().split(|b| *b == b'/').collect();
        // 5.0 and 3.1.1 [MQTT-4.7.2-1]
        let first = usize::from(topic::begins_with_dollar(topic));
        let mut at =
            Place { trie: self, levels, first, path: std::mem::take(&mut walk.path), nodes: vec![ROOT] };
        let mut there = at.descend() || at.pass();
        for _ in 0..most.max(1) {
            if !there {
                return true;
            }
            out.visited = out.visited.saturating_add(1);
            at.take(out);
            there = at.enter(false) || at.enter(true) || at.pass();
        }
        walk.path = at.path;
        !there
    }
}

/// A node with the way to it.
struct Place<'a> {
    trie: &'a Trie,
    levels: Vec<&'a [u8]>,
    /// The first level at which wildcards match.
    first: usize,
    path: Vec<bool>,
    /// Those on the way: one more than the path has branches.
    nodes: Vec<NodeId>,
}

impl Place<'_> {
    /// Follows the path from the root; false where a node of it is gone, and the path then leads to that.
    fn descend(&mut self) -> bool {
        for at in 0..self.path.len() {
            let Some(child) = self.child(at, self.path[at]) else {
                self.path.truncate(at + 1);
                return false;
            };
            self.nodes.push(child);
        }
        true
    }

    /// Goes to the next node that is not below this one; false where there is none.
    fn pass(&mut self) -> bool {
        while let Some(plus) = self.path.pop() {
            self.nodes.truncate(self.path.len() + 1);
            if !plus && self.enter(true) {
                return true;
            }
        }
        false
    }

    /// Goes to a child, if there is one.
    fn enter(&mut self, plus: bool) -> bool {
        let Some(child) = self.child(self.path.len(), plus) else { return false };
        self.path.push(plus);
        self.nodes.push(child);
        true
    }

    fn child(&self, level: usize, plus: bool) -> Option<NodeId> {
        let name = self.levels.get(level)?;
        let parent = *self.nodes.get(level)?;
        match plus {
            true => self.trie.plus(parent).filter(|_| level >= self.first),
            false => self.trie.literal_child(parent, name),
        }
    }

    /// Appends the receivers of the filters that end here.
    fn take(&self, out: &mut Matches) {
        let Some(node) = self.nodes.last() else { return };
        let level = self.path.len();
        if level >= self.first {
            // `#` stands for the parent level too.
            self.trie.copy_hash(*node, out);
        }
        if level == self.levels.len() {
            self.trie.copy(*node, out);
        }
    }
}
