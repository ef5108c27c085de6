//! A store whose commits wait at a gate.

use crate::support::memory_store::Memory;
use crate::support::{PATIENCE, now};
use homing::persistence::records::BodyCopy;
use homing::persistence::records::Recovered;
use homing::store::coalesce::CommitGroup;
use homing::store::{Moment, OpenReader, Store, StoreError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[derive(Debug, Default)]
pub struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_closed: bool,
    /// A commit stands before it.
    is_waiting: bool,
    /// The one that stands there may go, and no other.
    lets_one: bool,
    commits: u64,
}

impl Gate {
    /// Every commit from here on waits.
    pub fn close(&self) {
        self.change(|state| state.is_closed = true);
    }

    pub fn open(&self) {
        self.change(|state| state.is_closed = false);
    }

    /// Waits until there is something to commit, and for nothing that it would answer.
    pub fn wait_for_commit(&self) {
        self.wait_until("no commit comes", |state| state.is_waiting);
    }

    /// Lets the commit through that waits.
    pub fn let_one(&self) {
        let commits = self.lock().commits;
        self.change(|state| state.lets_one = true);
        self.wait_until("it does not commit", |state| state.commits > commits);
    }

    /// Commits that went through, or wait.
    pub fn commits(&self) -> u64 {
        let state = self.lock();
        state.commits + u64::from(state.is_waiting)
    }

    /// A test that failed while it held the lock still has to let its broker go.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    fn wait_until(&self, what: &str, holds: impl Fn(&State) -> bool) {
        let deadline = now() + PATIENCE;
        let mut state = self.lock();
        while !holds(&state) {
            let left = deadline.saturating_duration_since(now());
            if left.is_zero() {
                let state = format!("{state:?}");
                panic!("{what}: {state}");
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn pass(&self) {
        let mut state = self.lock();
        state.is_waiting = true;
        self.changed.notify_all();
        while state.is_closed && !std::mem::take(&mut state.lets_one) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn passed(&self) {
        self.change(|state| {
            state.is_waiting = false;
            state.commits += 1;
        });
    }
}

/// See the module's text.
pub struct Gated {
    inner: Memory,
    gate: Arc<Gate>,
    /// Time by which the wall clock is ahead.
    later: Duration,
}

impl Gated {
    pub fn new(inner: Memory, gate: Arc<Gate>, later: Duration) -> Gated {
        Gated { inner, gate, later }
    }
}

impl Store for Gated {
    fn recover(&mut self, now: Moment, horizon: Duration) -> Result<Recovered, StoreError> {
        let unix_millis = now.unix_millis + self.later.as_millis() as u64;
        self.inner.recover(Moment { unix_millis, boot: None, ..now }, horizon)
    }

    fn copy_bodies(&mut self, copies: &[BodyCopy]) -> Result<(), StoreError> {
        self.inner.copy_bodies(copies)
    }

    fn commit(&mut self, group: &mut CommitGroup) -> Result<(), StoreError> {
        self.gate.pass();
        let outcome = self.inner.commit(group);
        self.gate.passed();
        outcome
    }

    fn commit_ahead(&mut self, group: &CommitGroup) -> Result<(), StoreError> {
        self.inner.commit_ahead(group)
    }

    fn heartbeat(&mut self, now: Moment) -> Result<(), StoreError> {
        self.inner.heartbeat(now)
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        self.inner.sync()
    }

    fn tidy(&mut self) -> Result<(), StoreError> {
        self.inner.tidy()
    }

    fn has_room(&mut self) -> Result<bool, StoreError> {
        self.inner.has_room()
    }

    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }

    fn opener(&self) -> OpenReader {
        self.inner.opener()
    }
}
