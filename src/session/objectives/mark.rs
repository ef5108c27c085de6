//! The mark of a delivery that an objective counts.

use crate::time::Instant;

/// The objective of one delivery and the time at which the delivery began. 6 bytes, which fit into
/// the padding of a delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeliveryMark {
    /// 1 more than the place of the objective in the list; 0 for none.
    pub(super) objective: u8,
    /// Milliseconds: 34 years.
    began: [u8; 5],
}

impl DeliveryMark {
    /// The mark of a delivery that no objective counts.
    pub const NONE: DeliveryMark = DeliveryMark { objective: 0, began: [0; 5] };

    pub(super) fn new(objective: usize, began: Instant) -> DeliveryMark {
        let mut bytes = [0; 5];
        bytes.copy_from_slice(&began.as_millis().to_le_bytes()[..5]);
        DeliveryMark { objective: objective as u8 + 1, began: bytes }
    }

    /// True if no objective counts the delivery.
    #[inline]
    pub fn is_none(self) -> bool {
        self.objective == 0
    }

    pub(super) fn began(self) -> Instant {
        let [a, b, c, d, e] = self.began;
        Instant::from_millis(u64::from_le_bytes([a, b, c, d, e, 0, 0, 0]))
    }
}
