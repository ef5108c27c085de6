//! One dense numbering over the deadlines of all shards, and back. Pure.

use super::deadline::DeadlineKind;

/// The numbering for a number of shards: `(local * kinds + kind) * shards + shard`.
///
/// Shards and kinds vary fastest, so that numbers are dense when shards fill alike. Every slot of a
/// shard takes all its kinds' numbers, four bytes each in the queue's index, registered or not.
#[derive(Clone, Copy, Debug)]
pub struct SlotSpace {
    shards: u32,
}

impl SlotSpace {
    pub fn new(shards: u16) -> SlotSpace {
        SlotSpace { shards: u32::from(shards).max(1) }
    }

    /// The number of a shard's deadline.
    ///
    /// # Panics
    /// If it does not fit 32 bits: 1 Gi slots over all shards. Wrapping would move another owner's deadline.
    pub fn global(self, shard: u16, kind: DeadlineKind, local: u32) -> u32 {
        let kinds = DeadlineKind::COUNT as u64;
        let number = (u64::from(local) * kinds + kind as u64) * u64::from(self.shards) + u64::from(shard);
        u32::try_from(number).expect("at most 1 Gi slots over all shards")
    }

    /// Shard, kind and shard-local slot of a number.
    pub fn local(self, global: u32) -> (u16, DeadlineKind, u32) {
        let (rest, shard) = (global / self.shards, global % self.shards);
        let kinds = DeadlineKind::COUNT as u32;
        // Below `shards`, which came from a `u16`.
        (shard as u16, DeadlineKind::ALL[(rest % kinds) as usize], rest / kinds)
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
        for local in 0..5 {
            for kind in DeadlineKind::ALL {
                for shard in 0..3 {
                    let number = space.global(shard, kind, local);
                    assert_eq!(space.local(number), (shard, kind, local));
                    seen.insert(number);
                }
            }
        }
        assert_eq!(seen, (0..75).collect());
    }

    #[test]
    fn kinds_are_numbered_in_the_order_of_the_list() {
        assert!(DeadlineKind::ALL.into_iter().enumerate().all(|(index, kind)| index == kind as usize));
    }
}
