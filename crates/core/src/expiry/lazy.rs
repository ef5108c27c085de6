//! Lazy registration: an owner remembers its registered bucket, so that few moves of its deadline
//! are sent.
//!
//! A keep-alive deadline moves with every packet, and a retransmit deadline with every
//! acknowledgement, always to later. Sending each move to the expiry actor would cost a message for
//! each packet. Sending only a move to an *earlier* bucket costs a comparison. The owner finds a
//! move to later when its expired deadline comes: the true deadline is still ahead, and the owner
//! registers that one.

use crate::time::{Instant, millis};
use std::time::Duration;

/// The bucket that one deadline has at the expiry actor, if any. 4 bytes.
///
/// Bucket numbers saturate at 2^32 - 1: after 34 years of running with a tick of 250 ms, or 49 days
/// with 1 ms. From then on every deadline is sent, which costs messages and never a deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registered(u32);

impl Registered {
    /// No registration: nothing was sent yet, or the expired deadline came back.
    pub const NOTHING: Registered = Registered(0);
    const BEYOND: u32 = u32::MAX;

    /// Returns true if the caller must send `deadline` to the expiry actor, and then remembers its
    /// bucket.
    ///
    /// [`Instant::NEVER`] need not be sent: the present registration expires once, and its owner
    /// then finds nothing to do. `interval` is the bucket width of the expiry queue, at least a
    /// millisecond.
    pub fn needs(&mut self, deadline: Instant, interval: Duration) -> bool {
        if self.covers(deadline, interval) {
            return false;
        }
        let bucket = Self::bucket(deadline, milliseconds(interval));
        let earlier = self.0 == 0 || bucket < self.0 || bucket == Self::BEYOND;
        if earlier {
            self.0 = bucket;
        }
        earlier
    }

    /// Returns true if `deadline` need not be sent: its own or an earlier bucket is registered, or
    /// it is [`Instant::NEVER`].
    ///
    /// Nearly every packet that is sent ends here. Costs a multiplication, where a division would
    /// take longer.
    #[inline]
    pub fn covers(self, deadline: Instant, interval: Duration) -> bool {
        let stands = self.0 != 0 && self.0 != Self::BEYOND;
        deadline.is_never()
            || stands && deadline.as_millis() >= u64::from(self.0 - 1) * milliseconds(interval)
    }

    /// Records that the expired deadline came. The queue has no registration of the owner any more.
    pub fn fired(&mut self) {
        *self = Self::NOTHING;
    }

    /// True if a bucket is registered.
    pub fn is_registered(self) -> bool {
        self != Self::NOTHING
    }

    /// Returns the number of the bucket, from 1, because 0 means no registration.
    fn bucket(deadline: Instant, interval_ms: u64) -> u32 {
        u32::try_from((deadline.as_millis() / interval_ms).saturating_add(1)).unwrap_or(Self::BEYOND)
    }
}

/// Returns the milliseconds of an interval, at least 1.
#[inline]
fn milliseconds(interval: Duration) -> u64 {
    millis(interval).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(250);

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    #[test]
    fn only_an_earlier_bucket_is_told() {
        let mut told = Registered::default();
        assert!(!told.is_registered());
        assert!(told.needs(at(1_000), INTERVAL), "nothing was registered");
        assert!(!told.needs(at(1_249), INTERVAL), "the same bucket");
        assert!(!told.needs(at(60_000), INTERVAL), "later: found when it fires");
        assert!(told.needs(at(999), INTERVAL), "one bucket earlier");
        assert!(!told.needs(at(1_000), INTERVAL));
    }

    #[test]
    fn an_expired_deadline_makes_any_deadline_new() {
        let mut told = Registered::default();
        assert!(told.needs(at(0), INTERVAL));
        told.fired();
        assert!(!told.is_registered());
        assert!(told.needs(at(60_000), INTERVAL));
    }

    #[test]
    fn never_is_not_told_and_forgets_nothing() {
        let mut told = Registered::default();
        assert!(!told.needs(Instant::NEVER, INTERVAL));
        assert!(!told.is_registered());
        assert!(told.needs(at(500), INTERVAL));
        assert!(!told.needs(Instant::NEVER, INTERVAL));
        assert!(told.is_registered());
    }

    #[test]
    fn beyond_the_range_every_deadline_is_told() {
        let mut told = Registered::default();
        let far = at(250 * u64::from(u32::MAX));
        assert!(told.needs(far, INTERVAL));
        assert!(told.needs(far, INTERVAL), "buckets can no longer be told apart");
        assert!(told.needs(at(10), INTERVAL), "one within the range is earlier");
        assert_eq!(size_of::<Registered>(), 4);
    }
}
