//! The mark of a delivery that an objective counts, that waited in the queue, or whose message is
//! traced.

use crate::mqtt::audit::AuditTag;
use crate::time::Instant;

/// The begin of one delivery, and the objective that counts the delivery. The 6 bytes fit into the
/// padding of a delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeliveryMark {
    /// 1 more than the place of the objective's ring; 0 for no mark, and [`UNCOUNTED`] for a mark
    /// without an objective.
    pub(super) objective: u8,
    /// Milliseconds: 34 years.
    began: [u8; 5],
}

/// The place of no objective: there are [`super::MOST`] at most.
const UNCOUNTED: u8 = u8::MAX;

/// The mark of a traced message that no objective counts. Its delivery begins with its
/// transmission, because any other time is earlier.
const TRACED: DeliveryMark = DeliveryMark { objective: UNCOUNTED, began: [u8::MAX; 5] };

impl DeliveryMark {
    /// The mark of a delivery that no objective counts, and whose beginning is its transmission.
    pub const NONE: DeliveryMark = DeliveryMark { objective: 0, began: [0; 5] };

    pub(super) fn new(place: u8, began: Instant) -> DeliveryMark {
        DeliveryMark { objective: place + 1, began: bytes(began) }
    }

    /// Returns the mark of a delivery that no objective counts, and that begins in a queue.
    pub fn queued(began: Instant) -> DeliveryMark {
        DeliveryMark { objective: UNCOUNTED, began: bytes(began) }
    }

    /// Returns the mark of a delivery that no objective counts, and that waits for its receiver to
    /// return. The delivery begins with its transmission all the same: only
    /// [`Self::waits_since`] tells the difference from [`Self::NONE`].
    pub fn waiting(since: Instant) -> DeliveryMark {
        DeliveryMark { objective: 0, began: bytes(since) }
    }

    /// Returns the time since which the message of a queued delivery waits; `None` if the mark does
    /// not say.
    pub fn waits_since(self) -> Option<Instant> {
        (self != DeliveryMark::NONE && self != TRACED).then(|| self.began())
    }

    /// Returns this mark, or for a traced message a mark that is set, so that its acknowledgement
    /// is looked at.
    pub fn or_traced(self, audit: AuditTag) -> DeliveryMark {
        if self.is_none() && audit.is_some() { TRACED } else { self }
    }

    /// True if nothing counts the delivery, and it begins with its transmission.
    #[inline]
    pub fn is_none(self) -> bool {
        self.objective == 0
    }

    /// True if an objective counts the delivery.
    #[inline]
    pub fn is_counted(self) -> bool {
        !matches!(self.objective, 0 | UNCOUNTED)
    }

    /// Returns the time at which the delivery began. Meaningless if [`Self::is_none`]. For a traced
    /// message that no objective counts, it is later than any other time.
    #[inline]
    pub fn began(self) -> Instant {
        let [a, b, c, d, e] = self.began;
        Instant::from_millis(u64::from_le_bytes([a, b, c, d, e, 0, 0, 0]))
    }
}

/// Returns the bytes of a time in a mark.
fn bytes(began: Instant) -> [u8; 5] {
    let [a, b, c, d, e, ..] = began.as_millis().to_le_bytes();
    [a, b, c, d, e]
}
