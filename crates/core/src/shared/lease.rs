//! The lease of the broker that owns a cell of a cluster: until when it may promise without an
//! append. [`crate::ownership`] has the reasons.
//!
//! The driver of the ownership writes the lease, and the shards read it at each write to a socket
//! that has a promise. Without a cluster nobody writes it, and a look costs one relaxed load.

use crate::time::Instant;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Stands for a broker without a cluster, which may always promise.
const UNLIMITED: u64 = u64::MAX;

/// The lease of this process for its cell.
#[derive(Debug)]
pub struct Lease {
    /// The end in milliseconds of the process's clock, or [`UNLIMITED`].
    until: AtomicU64,
    /// True if a promise left by the lease alone since the last look.
    is_used: AtomicBool,
}

impl Default for Lease {
    /// Returns the lease of a broker without a cluster: it has no end.
    fn default() -> Lease {
        Lease { until: AtomicU64::new(UNLIMITED), is_used: AtomicBool::new(false) }
    }
}

impl Lease {
    /// Sets the end. [`Instant::ZERO`] ends the lease at once: from then on each promise waits for
    /// an append. With `acks = "commit"` it is never set to anything else.
    ///
    /// Call it before the first client is let in, and after each append that was stored. A shard
    /// that is between its look and its write does not see the end. So before a Release each shard
    /// has to answer a message that was sent after the end.
    pub fn set_until(&self, until: Instant) {
        // `NEVER` would mean that there is no cluster.
        self.until.store(until.as_millis().min(UNLIMITED - 1), Ordering::Relaxed);
    }

    /// Returns true if a promise left by the lease alone since the last call. The driver then says
    /// so to its ownership, which appends an early beat.
    pub fn take_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed) && self.is_used.swap(false, Ordering::Relaxed)
    }

    /// Returns true if a promise may leave without an append. `now` reads the clock, and is called
    /// only if the lease has an end. A thread may have stood still since its turn began, so the
    /// time of the turn is too old.
    #[inline]
    pub(crate) fn lets_promise(&self, now: impl FnOnce() -> Instant) -> bool {
        let until = self.until.load(Ordering::Relaxed);
        until == UNLIMITED || self.is_before(until, now())
    }

    fn is_before(&self, until: u64, now: Instant) -> bool {
        let is_valid = now.as_millis() < until;
        if is_valid && !self.is_used.load(Ordering::Relaxed) {
            self.is_used.store(true, Ordering::Relaxed);
        }
        is_valid
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_without_a_cluster_promises_and_reads_no_clock() {
        let lease = Lease::default();
        assert!(lease.lets_promise(|| unreachable!("nothing is compared")));
        assert!(!lease.take_used());
    }

    #[test]
    fn a_lease_ends_at_its_time_and_its_use_is_told_once() {
        let at = Instant::from_millis;
        let lease = Lease::default();
        lease.set_until(at(4_000));
        assert!(lease.lets_promise(|| at(3_999)));
        assert!(lease.take_used() && !lease.take_used());
        assert!(!lease.lets_promise(|| at(4_000)) && !lease.take_used(), "what waits does not use it");
        lease.set_until(Instant::NEVER);
        assert!(lease.lets_promise(|| at(5_000)) && lease.take_used(), "it has an end all the same");
        lease.set_until(Instant::ZERO);
        assert!(!lease.lets_promise(|| Instant::ZERO));
    }
}
