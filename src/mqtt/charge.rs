//! The account of memory that clients can make the broker hold.
//!
//! A struct that owns such memory has a [`Charge`] field and sets it to the bytes that it holds. The charge adds to a counter
//! of the thread, and takes the bytes away when it is dropped, so no path through the code can forget to release them.
//! Each thread's owner adds the counter to the broker's total, once for each turn.
//!
//! A charge costs an addition to a thread-local number: no lock, no atomic operation.

use bytes::Bytes;
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering};

thread_local! {
    /// Bytes charged on this thread less those released on it, since the last [`take_delta`]. A charge may be made on one
    /// thread and released on another, so only the sum over all threads means anything.
    static UNREPORTED: Cell<i64> = const { Cell::new(0) };
}

/// Returns what was charged less what was released on this thread since the last call, in bytes.
pub fn take_delta() -> i64 {
    UNREPORTED.with(Cell::take)
}

/// Returns the same and leaves it as it is: what the broker's total does not know yet.
pub fn unreported() -> i64 {
    UNREPORTED.with(Cell::get)
}

/// Adds to this thread's counter. Use [`Charge`] wherever it fits: who calls this has to take the bytes away again.
pub(crate) fn add(bytes: i64) {
    UNREPORTED.with(|u| u.set(u.get() + bytes));
}

/// What all threads of a broker hold together, and how much that may be.
#[derive(Debug)]
pub struct Budget {
    /// As of each thread's last [`Budget::settle`].
    held: AtomicI64,
    most: AtomicI64,
}

impl Budget {
    /// Nothing is held; `most` bytes may be.
    pub fn new(most: u64) -> Budget {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        Budget { held: AtomicI64::new(0), most: AtomicI64::new(most) }
    }

    /// Adds what this thread charged and released since it last did so. Returns the total, which is never negative.
    ///
    /// Called once for each turn and thread: it is the only place that writes to what all threads read.
    pub fn settle(&self) -> u64 {
        let delta = take_delta();
        let before = match delta {
            0 => self.held.load(Ordering::Relaxed),
            _ => self.held.fetch_add(delta, Ordering::Relaxed),
        };
        u64::try_from(before + delta).unwrap_or(0)
    }

    /// Returns the bytes held, this thread's unreported part included.
    pub fn held(&self) -> u64 {
        u64::try_from(self.held.load(Ordering::Relaxed) + unreported()).unwrap_or(0)
    }

    /// True if more is held than may be. Looks at this thread's unreported part too, so that the bound holds within a turn:
    /// two plain loads and an addition.
    pub fn is_exceeded(&self) -> bool {
        self.is_exceeded_with(0)
    }

    /// The same with so many bytes more.
    pub fn is_exceeded_with(&self, bytes: usize) -> bool {
        self.held.load(Ordering::Relaxed) + unreported() + bytes as i64 > self.most.load(Ordering::Relaxed)
    }

    /// Returns how much may be held.
    pub fn most(&self) -> u64 {
        u64::try_from(self.most.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Changes how much may be held.
    pub fn limit(&self, most: u64) {
        self.most.store(i64::try_from(most).unwrap_or(i64::MAX), Ordering::Relaxed);
    }
}

/// Bytes of memory that are on the account for as long as this exists.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Charge(usize);

impl Charge {
    /// Nothing yet.
    pub const NONE: Charge = Charge(0);

    /// Charges `bytes`.
    pub fn new(bytes: usize) -> Charge {
        add(bytes as i64);
        Charge(bytes)
    }

    /// Returns the bytes that are charged.
    pub fn bytes(&self) -> usize {
        self.0
    }

    /// Charges `bytes` more.
    pub fn add(&mut self, bytes: usize) {
        self.set(self.0 + bytes);
    }

    /// Releases `bytes` of what is charged.
    pub fn sub(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.0, "no more is released than was charged");
        self.set(self.0.saturating_sub(bytes));
    }

    /// Charges `bytes` instead of what was charged before.
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

/// A copy of what is charged is memory of its own.
impl Clone for Charge {
    fn clone(&self) -> Charge {
        Charge::new(self.0)
    }
}

/// What an owner of memory has on the account, and what it finds when it looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recounted {
    pub held: usize,
    pub charged: usize,
}

/// For tests: counts anew what is on the account. Looks at everything, so never in a turn.
pub trait Recount {
    fn recount(&self) -> Recounted;
}

/// Bytes that are on the account until the last reference to them is gone.
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
        assert_eq!((budget.settle(), budget.is_exceeded()), (60, false));
        let second = Charge::new(60);
        assert_eq!((budget.held(), budget.is_exceeded()), (120, true));
        drop(first);
        assert!(!budget.is_exceeded());
        drop(second);
        assert_eq!(budget.settle(), 0);
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
