//! One dense numbering over the deadlines of all shards, and its inverse. Pure.

use super::deadline::DeadlineKind;

/// Local slots with consecutive numbers, before the next kind follows.
const BLOCK: u32 = 1024;

/// The numbering of deadlines for a number of shards.
///
/// Local slots are numbered in blocks of 1,024. Within each block one kind follows the other, and
/// neighbouring numbers belong to different shards. So the numbers are dense if the shards fill
/// alike. A block of a kind that nobody registers has no segment in the index of the queue (16
/// bytes for each slot). An idle connection thus pays only for the deadlines that it has.
#[derive(Clone, Copy, Debug)]
pub struct SlotSpace {
    shards: u32,
}

impl SlotSpace {
    /// Creates the numbering for `shards` shards; 0 counts as 1.
    pub fn new(shards: u16) -> SlotSpace {
        SlotSpace { shards: u32::from(shards).max(1) }
    }

    /// Returns the number of a deadline of a shard.
    ///
    /// # Panics
    /// Panics if the number does not fit 32 bits, which takes more than 800 million slots over all
    /// shards. A number that wrapped would move the deadline of another owner.
    pub fn global(self, shard: u16, kind: DeadlineKind, local: u32) -> u32 {
        let (block, at) = (u64::from(local / BLOCK), u64::from(local % BLOCK));
        let within = (block * DeadlineKind::COUNT as u64 + kind as u64) * u64::from(BLOCK) + at;
        let number = within * u64::from(self.shards) + u64::from(shard);
        u32::try_from(number).expect("at most 2^32 deadlines over all shards")
    }

    /// Returns the shard, the kind and the slot within the shard of a number from
    /// [`SlotSpace::global`].
    pub fn local(self, global: u32) -> (u16, DeadlineKind, u32) {
        let (rest, shard) = (global / self.shards, global % self.shards);
        let (blocks, at) = (rest / BLOCK, rest % BLOCK);
        let kinds = DeadlineKind::COUNT as u32;
        let local = blocks / kinds * BLOCK + at;
        // Fits: the value is below `shards`, which was made from a `u16`.
        (shard as u16, DeadlineKind::ALL[(blocks % kinds) as usize], local)
    }

    /// Returns the kind of a number from [`SlotSpace::global`].
    pub fn kind(self, global: u32) -> DeadlineKind {
        self.local(global).1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn numbers_are_dense_and_lead_back() {
        let space = SlotSpace::new(3);
        let mut seen = HashSet::new();
        for local in 0..2 * BLOCK {
            for kind in DeadlineKind::ALL {
                for shard in 0..3 {
                    let number = space.global(shard, kind, local);
                    assert_eq!(space.local(number), (shard, kind, local));
                    seen.insert(number);
                }
            }
        }
        assert_eq!(seen, (0..2 * BLOCK * 3 * DeadlineKind::COUNT as u32).collect());
    }

    #[test]
    fn kinds_are_numbered_in_the_order_of_the_list() {
        assert!(DeadlineKind::ALL.into_iter().enumerate().all(|(index, kind)| index == kind as usize));
    }
}
