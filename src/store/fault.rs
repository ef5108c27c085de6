//! A store whose calls fail when a test says so: for what has to hold, or stop loudly, whichever call it is that fails.
//!
//! Calls are counted by kind, over the store and all its readers. A test runs once without a fault to learn which calls there
//! are, and then once for each of them.

use super::{BodyCopy, Moment, Reader, Store, StoreError};
use crate::journal::group::Group;
use crate::journal::record::{BodyNumber, DelayedNumber, EntryNumber, ReadEntry, Recovered, StoredDelayed};
use crate::time::Instant;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What goes wrong with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It fails, and nothing of it was done.
    Failed,
    /// It fails, and all of it was done: nobody can tell.
    FailedAfter,
    /// There is no room. From then on there is none for new messages, until [`Faults::make_room`].
    Full,
    /// Another process has the store, and nothing of it was done.
    Busy,
    /// It takes until [`Faults::release`].
    Held,
}

/// What a store can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Call {
    Recover,
    CopyBodies,
    Commit,
    CommitAhead,
    Heartbeat,
    Sync,
    Tidy,
    HasRoom,
    Reader,
    ReadEntries,
    ReadDelayed,
}

/// What is planned, and what has happened: shared by the test and the store.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    calls: BTreeMap<Call, usize>,
    planned: BTreeMap<(Call, usize), Fault>,
    is_full: bool,
    is_held: bool,
}

impl Faults {
    /// The call of this kind and number, counted from 0, goes wrong.
    pub fn plan(&self, call: Call, nth: usize, fault: Fault) {
        self.lock().planned.insert((call, nth), fault);
    }

    /// The next call of this kind goes wrong.
    pub fn plan_next(&self, call: Call, fault: Fault) {
        self.plan(call, self.count(call), fault);
    }

    /// How many calls of this kind there were.
    pub fn count(&self, call: Call) -> usize {
        self.lock().calls.get(&call).copied().unwrap_or(0)
    }

    /// All kinds of calls that there were, with their numbers.
    pub fn calls(&self) -> Vec<(Call, usize)> {
        self.lock().calls.iter().map(|(call, count)| (*call, *count)).collect()
    }

    pub fn make_room(&self) {
        self.lock().is_full = false;
    }

    /// Waits until a call is held; false if none is after so long.
    pub fn wait_until_held(&self, patience: Duration) -> bool {
        let waited = self.0.changed.wait_timeout_while(self.lock(), patience, |state| !state.is_held);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_held
    }

    /// Lets the held call go on.
    pub fn release(&self) {
        self.lock().is_held = false;
        self.0.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call<T>(&self, call: Call, go: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
        let mut state = self.lock();
        let count = state.calls.entry(call).or_insert(0);
        let number = *count;
        *count += 1;
        let fault = state.planned.remove(&(call, number));
        let failed = || StoreError::Failed(format!("{call:?} number {number} was to fail"));
        match fault {
            None => {}
            Some(Fault::Busy) => {
                return Err(StoreError::Busy(format!("{call:?} number {number} was to find it locked")));
            }
            Some(Fault::Failed) => return Err(failed()),
            Some(Fault::FailedAfter) => {
                drop(state);
                go()?;
                return Err(failed());
            }
            Some(Fault::Full) => {
                state.is_full = true;
                return Err(StoreError::Full(format!("{call:?} number {number} was to find no room")));
            }
            Some(Fault::Held) => {
                state.is_held = true;
                self.0.changed.notify_all();
                let waited = self.0.changed.wait_while(state, |state| state.is_held);
                drop(waited.unwrap_or_else(PoisonError::into_inner));
                return go();
            }
        }
        drop(state);
        go()
    }
}

/// The store, around one that works.
pub struct Faulty {
    inner: Box<dyn Store>,
    faults: Faults,
}

impl Faulty {
    pub fn new(inner: Box<dyn Store>, faults: Faults) -> Faulty {
        Faulty { inner, faults }
    }
}

impl Store for Faulty {
    fn recover(&mut self, now: Moment, horizon: Duration) -> Result<Recovered, StoreError> {
        self.faults.call(Call::Recover, || self.inner.recover(now, horizon))
    }

    fn copy_bodies(&mut self, copies: &[BodyCopy]) -> Result<(), StoreError> {
        self.faults.call(Call::CopyBodies, || self.inner.copy_bodies(copies))
    }

    fn commit(&mut self, group: &Group) -> Result<(), StoreError> {
        self.faults.call(Call::Commit, || self.inner.commit(group))
    }

    fn commit_ahead(&mut self, group: &Group) -> Result<(), StoreError> {
        self.faults.call(Call::CommitAhead, || self.inner.commit_ahead(group))
    }

    fn heartbeat(&mut self, now: Moment) -> Result<(), StoreError> {
        self.faults.call(Call::Heartbeat, || self.inner.heartbeat(now))
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        self.faults.call(Call::Sync, || self.inner.sync())
    }

    fn tidy(&mut self) -> Result<(), StoreError> {
        self.faults.call(Call::Tidy, || self.inner.tidy())
    }

    fn has_room(&mut self) -> Result<bool, StoreError> {
        let has_room = self.faults.call(Call::HasRoom, || self.inner.has_room())?;
        Ok(has_room && !self.faults.lock().is_full)
    }

    fn room(&mut self) -> Result<i64, StoreError> {
        self.inner.room()
    }

    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }

    fn reader(&self) -> Result<Box<dyn Reader>, StoreError> {
        let inner = self.faults.call(Call::Reader, || self.inner.reader())?;
        Ok(Box::new(FaultyReader { inner, faults: self.faults.clone() }))
    }
}

struct FaultyReader {
    inner: Box<dyn Reader>,
    faults: Faults,
}

impl Reader for FaultyReader {
    fn entries(&mut self, wanted: &[(EntryNumber, BodyNumber)]) -> Result<Vec<ReadEntry>, StoreError> {
        self.faults.call(Call::ReadEntries, || self.inner.entries(wanted))
    }

    fn delayed(
        &mut self,
        from: (Instant, DelayedNumber),
        until: Instant,
        most: usize,
    ) -> Result<Vec<StoredDelayed>, StoreError> {
        self.faults.call(Call::ReadDelayed, || self.inner.delayed(from, until, most))
    }
}
