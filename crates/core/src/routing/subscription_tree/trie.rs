//! Filters with wildcards, as a tree of topic levels.
//!
//! All nodes are in one slab and refer to each other by number. All literal edges are in one hash
//! table, keyed by parent and level. The table has two advantages. A node without literal children
//! owns no map, and most nodes are `+` or `#`. A publish hashes each level once, however many nodes
//! look the level up.
//!
//! A walk visits the tree level by level with two lists of nodes. So its memory is bounded by the
//! nodes that match, and no depth of topic or filter can exhaust a stack.

use super::matches::Matches;
use super::receivers::Receivers;
use crate::mqtt::topic;
use crate::routing::paged_slab::PagedSlab;
use crate::routing::split_table::SplitTable;
use foldhash::fast::RandomState;
use std::hash::BuildHasher;

/// The number of a node.
pub(super) type NodeId = u32;

const NONE: NodeId = NodeId::MAX;
/// The root, which exists while the tree has any filter.
pub(super) const ROOT: NodeId = 0;

#[derive(Debug)]
struct Node {
    /// The receivers of the filter that ends here.
    receivers: Receivers,
    /// The child `+`.
    plus: NodeId,
    /// The child `#`.
    hash: NodeId,
    /// The number of literal children.
    literals: u32,
}

impl Default for Node {
    fn default() -> Node {
        Node { receivers: Receivers::default(), plus: NONE, hash: NONE, literals: 0 }
    }
}

impl Node {
    /// Returns true if no filter ends here or below.
    fn is_vacant(&self) -> bool {
        self.receivers.is_empty() && self.plus == NONE && self.hash == NONE && self.literals == 0
    }
}

/// A literal child of a node.
#[derive(Debug)]
struct Edge {
    level: Box<[u8]>,
    parent: NodeId,
    child: NodeId,
}

impl Edge {
    fn hash(&self, hasher: &RandomState) -> u64 {
        edge_hash(self.parent, hasher.hash_one(&*self.level))
    }
}

/// All filters with wildcards.
#[derive(Debug, Default)]
pub(super) struct Trie {
    /// The root is the first. Empty while there is no filter.
    nodes: PagedSlab<Node>,
    edges: SplitTable<Edge>,
    /// The bytes of the levels of all edges.
    text: usize,
    hasher: RandomState,
}

/// Returns the bytes of an edge's level, with the allocator's rounding.
fn text(level: &[u8]) -> usize {
    level.len() + 8
}

/// Returns the hash of an edge. The multiplication spreads the parent over all bits. The hash of
/// the level is seeded, so a client cannot choose levels that collide.
fn edge_hash(parent: NodeId, level_hash: u64) -> u64 {
    level_hash ^ u64::from(parent).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Trie {
    /// Returns true if there is no filter.
    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns the number of nodes in use.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the receivers of a filter, and adds the filter if it is new.
    pub(super) fn entry(&mut self, filter: &str) -> &mut Receivers {
        if self.nodes.is_empty() {
            self.nodes.insert(Node::default());
        }
        let mut at = ROOT;
        for level in filter.split('/') {
            at = match self.child(at, level) {
                Some(child) => child,
                None => self.add_child(at, level),
            };
        }
        &mut self.node_mut(at).receivers
    }

    /// Returns the receivers of exactly this filter.
    pub(super) fn find(&self, filter: &str) -> Option<&Receivers> {
        self.node_of(filter).map(|id| &self.node(id).receivers)
    }

    /// Returns the same to change them.
    pub(super) fn find_mut(&mut self, filter: &str) -> Option<&mut Receivers> {
        self.node_of(filter).map(|id| &mut self.node_mut(id).receivers)
    }

    /// Removes the filter's node, and each node above that nothing needs any more.
    pub(super) fn prune(&mut self, filter: &str) {
        if self.nodes.is_empty() {
            return;
        }
        let mut path = Vec::new();
        let mut at = ROOT;
        for level in filter.split('/') {
            let Some(child) = self.child(at, level) else { return };
            path.push((at, level, child));
            at = child;
        }
        while let Some((parent, level, child)) = path.pop() {
            if !self.node(child).is_vacant() {
                break;
            }
            self.remove_child(parent, level, child);
        }
        self.give_back();
    }

    /// Appends the receivers of every filter that matches.
    ///
    /// Returns false once more than `most` nodes are needed. The bound is checked once for each
    /// level. Some receivers are appended by then.
    pub(super) fn matches(&self, topic: &str, most: u32, out: &mut Matches) -> bool {
        let mut all = true;
        // Taken out of `out`, so that `out` can be filled meanwhile.
        let mut frontier = std::mem::take(&mut out.frontier);
        frontier.nodes.clear();
        frontier.nodes.push(ROOT);
        // 5.0 and 3.1.1 [MQTT-4.7.2-1] is about the first level, so about the root only.
        let mut wildcards = !topic::begins_with_dollar(topic);
        // As bytes: levels are short, and the search in a `str` is made for long texts.
        for level in topic.as_bytes().split(|b| *b == b'/') {
            out.visited = out.visited.saturating_add(frontier.nodes.len() as u32);
            if out.visited > most {
                all = false;
                frontier.nodes.clear();
                break;
            }
            let level_hash = self.hasher.hash_one(level);
            frontier.next.clear();
            for id in &frontier.nodes {
                let node = self.node(*id);
                if wildcards && node.hash != NONE {
                    self.node(node.hash).receivers.copy_to(out);
                }
                if wildcards && node.plus != NONE {
                    frontier.next.push(node.plus);
                }
                if node.literals > 0
                    && let Some(child) = self.literal(*id, level, level_hash)
                {
                    frontier.next.push(child);
                }
            }
            std::mem::swap(&mut frontier.nodes, &mut frontier.next);
            if frontier.nodes.is_empty() {
                break;
            }
            wildcards = true;
        }
        for id in &frontier.nodes {
            let node = self.node(*id);
            node.receivers.copy_to(out);
            // `#` includes the parent level.
            if node.hash != NONE {
                self.node(node.hash).receivers.copy_to(out);
            }
        }
        out.visited = out.visited.saturating_add(frontier.nodes.len() as u32);
        out.frontier = frontier;
        all
    }

    /// Returns the child `+` of a node.
    pub(super) fn plus(&self, parent: NodeId) -> Option<NodeId> {
        Some(self.node(parent).plus).filter(|id| *id != NONE)
    }

    /// Returns the literal child of a node for a level.
    pub(super) fn literal_child(&self, parent: NodeId, level: &[u8]) -> Option<NodeId> {
        if self.node(parent).literals == 0 {
            return None;
        }
        self.literal(parent, level, self.hasher.hash_one(level))
    }

    /// Appends the receivers of the filter that ends at a node.
    pub(super) fn copy(&self, id: NodeId, out: &mut Matches) {
        self.node(id).receivers.copy_to(out);
    }

    /// Appends the receivers of the filter that ends with `#` directly below a node.
    pub(super) fn copy_hash(&self, id: NodeId, out: &mut Matches) {
        let hash = self.node(id).hash;
        if hash != NONE {
            self.copy(hash, out);
        }
    }

    /// Returns the receivers of the filter that ends at a node.
    pub(super) fn receivers(&self, id: NodeId) -> &Receivers {
        &self.node(id).receivers
    }

    /// Returns the receivers of the filter that ends with `#` directly below a node.
    pub(super) fn receivers_below(&self, id: NodeId) -> Option<&Receivers> {
        let hash = self.node(id).hash;
        (hash != NONE).then(|| self.receivers(hash))
    }

    /// Returns the bytes on the heap. Looks at every node.
    pub(super) fn memory(&self) -> usize {
        self.nodes.memory()
            + self.nodes.iter().map(|node| node.receivers.memory()).sum::<usize>()
            + self.edges.memory()
            + self.edges.iter().map(|edge| edge.level.len()).sum::<usize>()
    }

    /// Returns the bytes on the heap without those of the receivers. Costs nothing.
    pub(super) fn in_use(&self) -> usize {
        self.nodes.memory() + self.edges.memory() + self.text
    }

    /// Counts the same bytes anew, and the subscriptions of this shard. Looks at every node.
    pub(super) fn recount(&self) -> (usize, usize) {
        let text = self.edges.iter().map(|edge| text(&edge.level)).sum::<usize>();
        let subscriptions = self.nodes.iter().map(|node| node.receivers.subscriptions()).sum();
        (self.nodes.recount() + self.edges.recount() + text, subscriptions)
    }

    fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id]
    }

    fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id]
    }

    fn node_of(&self, filter: &str) -> Option<NodeId> {
        if self.nodes.is_empty() {
            return None;
        }
        filter.split('/').try_fold(ROOT, |at, level| self.child(at, level))
    }

    fn child(&self, parent: NodeId, level: &str) -> Option<NodeId> {
        let node = self.node(parent);
        match level {
            "+" => Some(node.plus).filter(|id| *id != NONE),
            "#" => Some(node.hash).filter(|id| *id != NONE),
            _ => self.literal(parent, level.as_bytes(), self.hasher.hash_one(level.as_bytes())),
        }
    }

    fn literal(&self, parent: NodeId, level: &[u8], level_hash: u64) -> Option<NodeId> {
        let is_it = |edge: &Edge| edge.parent == parent && *edge.level == *level;
        self.edges.find(edge_hash(parent, level_hash), is_it).map(|edge| edge.child)
    }

    fn add_child(&mut self, parent: NodeId, level: &str) -> NodeId {
        let child = self.nodes.insert(Node::default());
        match level {
            "+" => self.node_mut(parent).plus = child,
            "#" => self.node_mut(parent).hash = child,
            _ => {
                self.node_mut(parent).literals += 1;
                self.text += text(level.as_bytes());
                self.add_edge(Edge { level: level.as_bytes().into(), parent, child });
            }
        }
        child
    }

    fn add_edge(&mut self, edge: Edge) {
        let hash = |edge: &Edge| edge.hash(&self.hasher);
        self.edges.insert_unique(hash(&edge), edge, hash);
    }

    fn remove_child(&mut self, parent: NodeId, level: &str, child: NodeId) {
        match level {
            "+" => self.node_mut(parent).plus = NONE,
            "#" => self.node_mut(parent).hash = NONE,
            _ => {
                let hash = edge_hash(parent, self.hasher.hash_one(level.as_bytes()));
                let is_it = |edge: &Edge| edge.child == child;
                if self.edges.remove(hash, is_it, |edge| edge.hash(&self.hasher)).is_some() {
                    self.text -= text(level.as_bytes());
                }
                self.node_mut(parent).literals -= 1;
            }
        }
        self.nodes.remove(child);
    }

    /// Frees the root with the last filter.
    fn give_back(&mut self) {
        if self.len() == 1 && self.node(ROOT).is_vacant() {
            self.nodes = PagedSlab::default();
            self.edges = SplitTable::default();
        }
    }
}

const _: () = assert!(size_of::<Node>() == 48);
