//! What an owner remembers of a registration, so that a deadline that moves is seldom told.
//!
//! A keep alive moves with every packet and a retransmit deadline with every ack, always to later. Telling the
//! expiry actor each time costs a message per packet; telling it only what falls into an *earlier*
//! bucket than the one registered costs a comparison. The move to later is found when the verdict
//! comes: the owner sees its true deadline ahead and registers that.

use crate::time::Instant;
use std::time::Duration;

/// The bucket the expiry actor has been told of for one deadline, if any: 4 bytes.
///
/// Bucket numbers saturate at 2^32 - 1: after 34 years of running at an interval of 250 ms, 49 days at 1 ms.
/// Beyond that every call answers "tell it", which costs messages, never a deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registered(u32);

impl Registered {
    /// Nothing has been told, or the verdict has come.
    pub const NOTHING: Registered = Registered(0);
    const BEYOND: u32 = u32::MAX;

    /// Whether the expiry actor must be told of `deadline`; if so it is taken as told.
    ///
    /// [`Instant::NEVER`] need not be told: the registration that stands fires once and finds nothing to do.
    /// `interval` is the expiry queue's, at least a millisecond.
    pub fn needs(&mut self, deadline: Instant, interval: Duration) -> bool {
        if deadline.is_never() {
            return false;
        }
        // Asked for every packet sent, and nearly always no: a multiplication says so, a division takes longer.
        let interval_ms = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX).max(1);
        if self.0 != 0
            && self.0 != Self::BEYOND
            && deadline.as_millis() >= u64::from(self.0 - 1) * interval_ms
        {
            return false;
        }
        let bucket = Self::bucket(deadline, interval_ms);
        let earlier = self.0 == 0 || bucket < self.0 || bucket == Self::BEYOND;
        if earlier {
            self.0 = bucket;
        }
        earlier
    }

    /// The verdict came: a polled key is gone from the queue until it is registered again.
    pub fn fired(&mut self) {
        *self = Self::NOTHING;
    }

    pub fn is_registered(self) -> bool {
        self != Self::NOTHING
    }

    /// The number of the bucket, from 1: zero is free to mean nothing.
    fn bucket(deadline: Instant, interval_ms: u64) -> u32 {
        u32::try_from((deadline.as_millis() / interval_ms).saturating_add(1)).unwrap_or(Self::BEYOND)
    }
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
    fn a_verdict_makes_any_deadline_new() {
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
