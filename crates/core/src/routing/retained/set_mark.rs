//! The marks of retained messages: which shard set a message, and when in the order of that shard.

use crate::routing::subscription_tree::ShardId;

/// Bits of the number in a mark. A shard that sets 10,000,000 messages in a second reaches the last
/// number after 200 years.
const NUMBER_BITS: u32 = 56;

/// The shard that set a retained message, and the number that the shard gave it. The numbers of one
/// shard grow. No two messages that were set since the start have the same mark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SetMark(u64);

impl SetMark {
    /// The mark of a message that no shard has set, such as a message from the store.
    pub const NONE: SetMark = SetMark(0);

    /// Returns the mark of the message that a shard sets as `number`, from 1 on.
    pub fn new(shard: ShardId, number: u64) -> SetMark {
        SetMark(u64::from(shard.0) << NUMBER_BITS | number & ((1 << NUMBER_BITS) - 1))
    }

    /// Returns the shard. The shard of [`Self::NONE`] has no meaning.
    pub fn shard(self) -> ShardId {
        ShardId((self.0 >> NUMBER_BITS) as u8)
    }

    /// Returns the number; 0 for [`Self::NONE`].
    pub fn number(self) -> u64 {
        self.0 & ((1 << NUMBER_BITS) - 1)
    }

    /// Returns true unless this is [`Self::NONE`].
    #[inline]
    pub fn is_some(self) -> bool {
        self != SetMark::NONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_has_its_shard_and_its_number() {
        for (shard, number) in [(0, 1), (255, 1), (7, (1 << NUMBER_BITS) - 1)] {
            let mark = SetMark::new(ShardId(shard), number);
            assert_eq!((mark.shard(), mark.number(), mark.is_some()), (ShardId(shard), number, true));
        }
        assert_eq!((SetMark::NONE.number(), SetMark::NONE.is_some()), (0, false));
    }
}
