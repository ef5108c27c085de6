//! Counts for limits that concern all shards of a broker together.
//!
//! A shard changes a count when a session or a delayed message comes or goes, but never when it
//! delivers a message.

use crate::events::last_disconnect::LastDisconnects;
use crate::mqtt::audit::AuditTag;
use crate::routing::limit_shares::LimitShares;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A count of all shards together.
#[derive(Debug, Default)]
pub struct Total {
    count: AtomicUsize,
    /// The amount subtracted and never added, since the last report.
    missing: AtomicUsize,
}

impl Total {
    /// Adds `n` if the sum is within the limit. Returns false, and adds nothing, if not.
    pub fn take(&self, n: usize, limit: usize) -> bool {
        let more = |count: usize| count.checked_add(n).filter(|count| *count <= limit);
        self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Adds `n` without a check of the limit. For values that a restart recovered, and for values
    /// that replace others.
    pub fn add(&self, n: usize) {
        self.count.fetch_add(n, Ordering::Relaxed);
    }

    /// Subtracts `n`, which must have been added before.
    ///
    /// If less was added, the total stops at zero: a total that wraps would refuse everything until
    /// a restart. A debug build panics, and a release build reports the missing amount.
    pub fn give_back(&self, n: usize) {
        let less = |count: usize| Some(count.saturating_sub(n));
        let before = self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).unwrap_or(n);
        debug_assert!(before >= n, "{n} given back of {before}");
        if before < n {
            self.missing.fetch_add(n - before, Ordering::Relaxed);
        }
    }

    /// Returns the count.
    pub fn get(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

/// The counts that have a limit for the whole broker.
#[derive(Debug, Default)]
pub struct Totals {
    /// Sessions.
    pub sessions: Total,
    /// Delayed messages.
    pub delayed_messages: Total,
    /// Bytes of delayed messages.
    pub delayed_bytes: Total,
    /// Stored dead letters.
    pub letters: Total,
    /// Bytes of stored dead letters.
    pub letter_bytes: Total,
    /// Dropped dead letters: the oldest in favour of newer ones, and letters too large for the
    /// store. This count only grows.
    pub letters_dropped: Total,
    delayed_shares: Mutex<LimitShares>,
    last_disconnects: Mutex<LastDisconnects>,
    /// The number of the last traced message.
    audited: AtomicU16,
}

impl Totals {
    /// Returns the number of the next traced message. Called for traced messages alone.
    pub(crate) fn next_audit_tag(&self) -> AuditTag {
        let next = |number: u16| Some(number.checked_add(1).unwrap_or(1));
        let before = self.audited.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        AuditTag::new(before.ok().and_then(next).unwrap_or(1))
    }

    /// Returns the amount subtracted and never added, in all totals since the last call: 0 unless
    /// the broker has a fault.
    pub fn take_missing(&self) -> usize {
        let Totals { sessions, delayed_messages, delayed_bytes, letters, letter_bytes, .. } = self;
        let totals = [sessions, delayed_messages, delayed_bytes, letters, letter_bytes];
        totals.iter().map(|total| total.missing.swap(0, Ordering::Relaxed)).sum()
    }

    /// Locks the shares of clients and listeners in the delayed messages. The lock is taken when a
    /// delayed message comes or goes.
    pub(crate) fn delayed_shares(&self) -> MutexGuard<'_, LimitShares> {
        // A panic is fatal in this process, so a poisoned lock is never met outside tests.
        self.delayed_shares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the topics of last-disconnect records. The lock is taken when a record is written.
    pub(crate) fn last_disconnects(&self) -> MutexGuard<'_, LastDisconnects> {
        // A panic is fatal in this process, so a poisoned lock is never met outside tests.
        self.last_disconnects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_who_count_at_once_get_no_more_than_the_limit_together() {
        let total = Total::default();
        let taken = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1_000 {
                        if total.take(1, 100) {
                            taken.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        assert_eq!((taken.into_inner(), total.get()), (100, 100));
        total.give_back(7);
        assert!(!total.take(8, 100) && total.take(7, 100) && !total.take(1, 100));
        total.add(1);
        assert_eq!(total.get(), 101);
    }

    #[test]
    #[cfg_attr(debug_assertions, should_panic(expected = "3 given back of 2"))]
    fn a_total_that_would_wrap_stops_at_zero_and_says_what_is_missing() {
        let totals = Totals::default();
        totals.letters.add(2);
        totals.letters.give_back(3);
        assert_eq!((totals.letters.get(), totals.take_missing(), totals.take_missing()), (0, 1, 0));
    }
}
