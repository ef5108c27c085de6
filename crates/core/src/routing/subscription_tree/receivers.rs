//! The receivers of one filter: subscribers, other shards, and groups.

use super::address::{GroupId, ShardSet};
use super::matches::Matches;
use super::subscribers::Subscribers;

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
    pub(super) fn is_empty(&self) -> bool {
        self.local.is_empty() && self.peers.is_empty() && self.groups.is_none()
    }

    /// Adds all receivers to `out`.
    pub(super) fn copy_to(&self, out: &mut Matches) {
        self.local.copy_to(&mut out.subscribers);
        out.peers = out.peers.union(self.peers);
        if let Some(groups) = &self.groups {
            out.groups.extend_from_slice(groups);
        }
    }

    /// Returns the number of subscribers of this shard.
    pub(super) fn subscriptions(&self) -> usize {
        let mut all = Vec::new();
        self.local.copy_to(&mut all);
        all.len()
    }

    /// Returns the bytes on the heap.
    pub(super) fn memory(&self) -> usize {
        let groups = self.groups.as_ref();
        let groups =
            groups.map_or(0, |ids| size_of::<Vec<GroupId>>() + ids.capacity() * size_of::<GroupId>());
        self.local.memory() + groups
    }
}
