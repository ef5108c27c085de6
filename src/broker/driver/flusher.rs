//! The wake-up of the flusher: the task that runs a shard's turns.

use std::cell::{Cell, RefCell};
use std::task::Waker;

/// Wakes the flusher at most once for each of its runs.
#[derive(Debug, Default)]
pub(super) struct FlusherWaker {
    /// `None` until the flusher's first poll.
    waker: RefCell<Option<Waker>>,
    /// True if the flusher was woken and has not run since.
    is_awake: Cell<bool>,
}

impl FlusherWaker {
    /// Returns true if the flusher was woken and has not run since.
    pub(super) fn is_awake(&self) -> bool {
        self.is_awake.get()
    }

    /// Wakes the flusher, unless it is awake. Before its first poll it runs anyway.
    pub(super) fn wake(&self) {
        if !self.is_awake.replace(true)
            && let Some(waker) = &*self.waker.borrow()
        {
            waker.wake_by_ref();
        }
    }

    /// The flusher runs now. Keeps `waker` for the next wake-up.
    pub(super) fn begin_run(&self, waker: &Waker) {
        let is_known = self.waker.borrow().as_ref().is_some_and(|known| known.will_wake(waker));
        if !is_known {
            *self.waker.borrow_mut() = Some(waker.clone());
        }
        self.is_awake.set(false);
    }

    /// The flusher runs again by itself, so nobody need wake it.
    pub(super) fn stay_awake(&self) {
        self.is_awake.set(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct CountWakes(AtomicUsize);

    impl Wake for CountWakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn many_changes_of_one_turn_wake_the_flusher_once() {
        let (flusher, wakes) = (FlusherWaker::default(), Arc::<CountWakes>::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let count = || wakes.0.load(Ordering::Relaxed);
        flusher.wake();
        assert_eq!(count(), 0, "its first poll comes anyway");
        flusher.begin_run(&waker);
        (0..3).for_each(|_| flusher.wake());
        assert_eq!(count(), 1);
        flusher.begin_run(&waker);
        flusher.wake();
        assert_eq!(count(), 2);
    }

    #[test]
    fn a_flusher_that_continues_by_itself_is_not_woken() {
        let (flusher, wakes) = (FlusherWaker::default(), Arc::<CountWakes>::default());
        flusher.begin_run(&Waker::from(Arc::clone(&wakes)));
        flusher.stay_awake();
        flusher.wake();
        assert!(flusher.is_awake());
        assert_eq!(wakes.0.load(Ordering::Relaxed), 0);
    }
}
