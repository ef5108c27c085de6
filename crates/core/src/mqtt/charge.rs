//! The account of memory that clients can make the broker allocate (`limits.memory`).
//!
//! A struct that owns such memory has a [`Charge`] field, and sets it to the number of bytes. The
//! charge adds the bytes to a counter of the thread, and subtracts them when it is dropped. So no
//! path through the code can forget to release them. Each shard adds the counter of its thread to
//! the broker's total, once in each turn.
//!
//! A charge costs an addition to a thread-local number: no lock and no atomic operation. Tables
//! charge when they grow.
//!
//! Small memory with fixed bounds is not charged. For 16 threads together it is at most: idle
//! outbox buffers 16 MiB, frames 17 MiB, last-disconnect records 6 MiB, scratch buffers 4 MiB, read
//! buffers 1 MiB, and log lines 256 KiB. These 45 MiB are part of the 64 MiB that the process may
//! use beyond 1.5 times `limits.memory`. A socket that moves to its thread, and the places of a
//! connection in the tables of a shard, are part of the 2 KiB that each connection may use.

use bytes::Bytes;
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering};

thread_local! {
    /// Bytes charged on this thread minus bytes released on it, since the last [`take_delta`].
    ///
    /// A charge may be made on one thread and released on another. Only the sum over all threads
    /// has a meaning.
    static UNREPORTED: Cell<i64> = const { Cell::new(0) };
}

/// Returns the bytes charged minus the bytes released on this thread since the last call, and
/// resets the counter.
pub fn take_delta() -> i64 {
    UNREPORTED.with(Cell::take)
}

/// Returns the bytes that this thread has not yet added to the broker's total: charged minus
/// released. The counter keeps its value.
pub fn unreported() -> i64 {
    UNREPORTED.with(Cell::get)
}

/// Adds `bytes`, which may be negative, to the counter of this thread.
///
/// Use [`Charge`] wherever it fits, because a caller of this function must subtract the bytes again
/// itself.
pub(crate) fn add(bytes: i64) {
    UNREPORTED.with(|u| u.set(u.get() + bytes));
}

/// The total of all threads of a broker, in bytes, and its limit.
#[derive(Debug)]
pub struct Budget {
    /// The sum of all [`Budget::settle`] calls. A thread may see it below zero for a moment.
    in_use: AtomicI64,
    most: AtomicI64,
}

impl Budget {
    /// Creates an account with nothing charged and a limit of `most` bytes.
    pub fn new(most: u64) -> Budget {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        Budget { in_use: AtomicI64::new(0), most: AtomicI64::new(most) }
    }

    /// Adds the counter of this thread to the total and resets the counter. Returns the total in
    /// bytes, at least 0.
    ///
    /// Each thread calls this once in each turn. No other place writes to the total, which all
    /// threads read.
    pub fn report(&self) -> u64 {
        let delta = take_delta();
        let before = match delta {
            0 => self.in_use.load(Ordering::Relaxed),
            _ => self.in_use.fetch_add(delta, Ordering::Relaxed),
        };
        u64::try_from(before + delta).unwrap_or(0)
    }

    /// Returns the total in bytes, with the unreported counter of this thread.
    pub fn in_use(&self) -> u64 {
        u64::try_from(self.in_use.load(Ordering::Relaxed) + unreported()).unwrap_or(0)
    }

    /// True if the total would be over the limit with `bytes` more; with 0, if it is.
    ///
    /// The unreported counter of this thread is included, so that the limit holds within a turn.
    /// Costs two plain loads and an addition.
    pub fn is_exceeded_with(&self, bytes: usize) -> bool {
        self.in_use.load(Ordering::Relaxed) + unreported() + bytes as i64 > self.most.load(Ordering::Relaxed)
    }

    /// True if less than a quarter of the limit is left.
    ///
    /// From here on, stored queues are read back in small portions. So clients that read slowly
    /// leave room for publications of others.
    pub fn is_nearly_exceeded(&self) -> bool {
        self.is_exceeded_with(self.most() as usize / 4)
    }

    /// Returns the limit in bytes.
    pub fn most(&self) -> u64 {
        u64::try_from(self.most.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Changes the limit to `most` bytes. Nothing is released by this call.
    pub fn limit(&self, most: u64) {
        self.most.store(i64::try_from(most).unwrap_or(i64::MAX), Ordering::Relaxed);
    }
}

/// A number of bytes that stay on the account until this value is dropped.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Charge(usize);

impl Charge {
    /// A charge of zero bytes.
    pub const NONE: Charge = Charge(0);

    /// Creates a charge of `bytes`.
    pub fn new(bytes: usize) -> Charge {
        add(bytes as i64);
        Charge(bytes)
    }

    /// Returns the number of charged bytes.
    pub fn bytes(&self) -> usize {
        self.0
    }

    /// Adds `bytes` to the charge.
    pub fn add(&mut self, bytes: usize) {
        self.set(self.0 + bytes);
    }

    /// Subtracts `bytes` from the charge. `bytes` must not be more than the charge; debug builds
    /// check this.
    pub fn sub(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.0, "no more is released than was charged");
        self.set(self.0.saturating_sub(bytes));
    }

    /// Replaces the charge by `bytes`.
    pub fn set(&mut self, bytes: usize) {
        if bytes != self.0 {
            add(bytes as i64 - self.0 as i64);
            self.0 = bytes;
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.0 > 0 {
            add(-(self.0 as i64));
        }
    }
}

/// A copy of charged memory is memory of its own, so a clone is charged again.
impl Clone for Charge {
    fn clone(&self) -> Charge {
        Charge::new(self.0)
    }
}

/// The result of [`Recount::recount`], in bytes. The two numbers must be equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recounted {
    /// Bytes that the owner has, counted again from its data.
    pub in_use: usize,
    /// Bytes that the owner has on the account.
    pub charged: usize,
}

/// Counts the charged memory of an owner again, for tests.
///
/// A recount visits everything that the owner has. Never call it in a turn.
pub trait Recount {
    /// Returns the bytes found and the bytes charged.
    fn recount(&self) -> Recounted;
}

/// Copies `bytes` into shared memory that stays on the account until the last reference to it is
/// dropped.
pub fn shared_bytes(bytes: &[u8]) -> Bytes {
    struct Charged {
        bytes: Box<[u8]>,
        _charge: Charge,
    }

    impl AsRef<[u8]> for Charged {
        fn as_ref(&self) -> &[u8] {
            &self.bytes
        }
    }

    Bytes::from_owner(Charged { bytes: bytes.into(), _charge: Charge::new(bytes.len()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_is_on_the_account_until_it_is_dropped() {
        take_delta();
        let mut charge = Charge::new(10);
        charge.set(25);
        assert_eq!((charge.bytes(), unreported(), take_delta()), (25, 25, 25));
        charge.set(5);
        let copy = charge.clone();
        assert_eq!(take_delta(), -15);
        drop((charge, copy));
        assert_eq!(take_delta(), -10);
    }

    #[test]
    fn shared_bytes_are_charged_once_and_until_the_last_reference_goes() {
        take_delta();
        let bytes = shared_bytes(&[7; 100]);
        let again = bytes.slice(10..20);
        drop(bytes);
        assert_eq!((unreported(), again.len()), (100, 10));
        drop(again);
        assert_eq!(take_delta(), 0);
    }

    #[test]
    fn the_bound_holds_within_a_turn_before_the_total_knows() {
        take_delta();
        let budget = Budget::new(100);
        let first = Charge::new(60);
        assert_eq!((budget.report(), budget.is_exceeded_with(0)), (60, false));
        let second = Charge::new(60);
        assert_eq!((budget.in_use(), budget.is_exceeded_with(0)), (120, true));
        drop(first);
        assert!(!budget.is_exceeded_with(0));
        drop(second);
        assert_eq!(budget.report(), 0);
    }

    #[test]
    fn a_budget_is_nearly_exceeded_when_less_than_a_quarter_is_left() {
        take_delta();
        let budget = Budget::new(100);
        let first = Charge::new(75);
        assert!(!budget.is_nearly_exceeded());
        let second = Charge::new(1);
        assert!(budget.is_nearly_exceeded() && !budget.is_exceeded_with(0));
        drop((first, second));
        assert_eq!(budget.report(), 0);
    }

    #[test]
    fn a_charge_released_on_another_thread_leaves_the_sum_over_all_threads_right() {
        take_delta();
        let charge = Charge::new(7);
        let there = std::thread::spawn(move || {
            drop(charge);
            take_delta()
        });
        assert_eq!(there.join().ok().map(|delta| delta + take_delta()), Some(0));
    }
}
