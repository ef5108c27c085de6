//! The numbers that name receivers: sessions within a shard, shards, and groups.

/// The slot of a session in its shard. Slots are dense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionSlot(pub u32);

/// The number of a shard, below [`ShardSet::MAX_SHARDS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u8);

/// The number of a group in this tree. An id that is kept over several turns never names a later
/// group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupId {
    /// The place of the group in the table of groups.
    pub(super) index: u32,
    /// The count of groups made before this one. The count wraps after 2^32 groups, so only an id
    /// as old as that could name another group.
    pub(super) serial: u32,
}

/// A set of shards, one bit for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ShardSet(pub u64);

impl ShardSet {
    /// The set without shards.
    pub const EMPTY: ShardSet = ShardSet(0);
    /// The largest number of shards. The configuration starts no more threads than this.
    pub const MAX_SHARDS: u8 = 64;

    /// Adds a shard. Returns true if it was not in the set.
    pub fn insert(&mut self, shard: ShardId) -> bool {
        let before = self.0;
        self.0 |= bit(shard);
        self.0 != before
    }

    /// Removes a shard. Returns true if it was in the set.
    pub fn remove(&mut self, shard: ShardId) -> bool {
        let before = self.0;
        self.0 &= !bit(shard);
        self.0 != before
    }

    /// Returns true if the shard is in the set.
    pub const fn contains(self, shard: ShardId) -> bool {
        self.0 & bit(shard) != 0
    }

    /// Returns true if no shard is in the set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the number of shards in the set.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Returns the set of the shards that are in either of two sets.
    #[must_use]
    pub const fn union(self, other: ShardSet) -> ShardSet {
        ShardSet(self.0 | other.0)
    }

    /// Returns the shards in ascending order.
    pub fn iter(self) -> impl Iterator<Item = ShardId> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let lowest = left.trailing_zeros();
            // Clears the lowest bit; an empty set ends the iteration.
            left &= left.checked_sub(1)?;
            Some(ShardId(lowest as u8))
        })
    }
}

impl FromIterator<ShardId> for ShardSet {
    fn from_iter<I: IntoIterator<Item = ShardId>>(shards: I) -> ShardSet {
        shards.into_iter().fold(ShardSet::EMPTY, |set, shard| ShardSet(set.0 | bit(shard)))
    }
}

const fn bit(shard: ShardId) -> u64 {
    debug_assert!(shard.0 < ShardSet::MAX_SHARDS, "a shard number beyond the set");
    1 << (shard.0 & 63)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_set_holds_each_shard_once() {
        let mut set = ShardSet::EMPTY;
        assert!(set.is_empty() && set.iter().next().is_none());
        assert!(set.insert(ShardId(63)) && set.insert(ShardId(0)) && !set.insert(ShardId(0)));
        assert_eq!(set.iter().collect::<Vec<_>>(), [ShardId(0), ShardId(63)]);
        assert!(set.contains(ShardId(63)) && !set.contains(ShardId(1)));
        assert_eq!(set.union([ShardId(5)].into_iter().collect()).len(), 3);
        assert!(set.remove(ShardId(0)) && !set.remove(ShardId(0)));
        assert_eq!(set.len(), 1);
    }
}
