//! A store whose calls fail when a test says so. Tests use it to show that the broker survives a
//! fault or stops loudly, whichever call fails.
//!
//! Calls are counted by kind, over the store and all its readers. A test runs once without a fault
//! to learn which calls there are, and then once for each call.

use homing::operators::stored::StoredPlace;
use homing::operators::wanted::Wanted;
use homing::persistence::records::{
    BodyCopy, BodyNumber, DelayedNumber, EntryNumber, ReadEntry, Recovered, StoredDelayed,
};
use homing::store::coalesce::CommitGroup;
use homing::store::{Moment, OpenReader, Store, StoreError, StoreReader, ViewedEntry};
use homing::time::Instant;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The way in which a call goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call fails and makes no change.
    Failed,
    /// The call fails after it has made all changes. The caller does not know.
    FailedAfter,
    /// The call finds no room. From then on there is no room for new messages, until
    /// [`Faults::make_room`].
    Full,
    /// Another process has the store locked; the call makes no change.
    Busy,
    /// The call blocks until [`Faults::release`].
    Stopped,
}

/// The kind of a call: a method of [`Store`] or [`StoreReader`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Call {
    /// [`Store::recover`]
    Recover,
    /// [`Store::copy_bodies`]
    CopyBodies,
    /// [`Store::commit`]
    Commit,
    /// [`Store::commit_ahead`]
    CommitAhead,
    /// [`Store::heartbeat`]
    Heartbeat,
    /// [`Store::sync`]
    Sync,
    /// [`Store::tidy`]
    Tidy,
    /// [`Store::has_room`]
    HasRoom,
    /// [`Store::reader`]
    Reader,
    /// [`StoreReader::entries`]
    ReadEntries,
    /// [`StoreReader::delayed`]
    ReadDelayed,
    /// [`StoreReader::view`]
    View,
}

/// The planned faults and the calls so far, shared by the test and the store.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<FaultState>);

#[derive(Debug, Default)]
struct FaultState {
    state: Mutex<FaultPlan>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct FaultPlan {
    calls: BTreeMap<Call, usize>,
    planned: BTreeMap<(Call, usize), Fault>,
    is_full: bool,
    is_stopped: bool,
}

impl Faults {
    /// Plans a fault for the `nth` call of this kind, counted from 0.
    pub fn plan(&self, call: Call, nth: usize, fault: Fault) {
        self.lock().planned.insert((call, nth), fault);
    }

    /// Plans a fault for the next call of this kind.
    pub fn plan_next(&self, call: Call, fault: Fault) {
        self.plan(call, self.count(call), fault);
    }

    /// Removes the planned faults. A call that is stopped stays stopped.
    pub fn unplan(&self) {
        self.lock().planned.clear();
    }

    /// Returns the number of calls of this kind so far.
    pub fn count(&self, call: Call) -> usize {
        self.lock().calls.get(&call).copied().unwrap_or(0)
    }

    /// Returns all kinds of calls so far, each with its number of calls.
    pub fn calls(&self) -> Vec<(Call, usize)> {
        self.lock().calls.iter().map(|(call, count)| (*call, *count)).collect()
    }

    /// Ends the lack of room that [`Fault::Full`] began.
    pub fn make_room(&self) {
        self.lock().is_full = false;
    }

    /// Waits until a call is stopped. Returns false if no call is stopped within `timeout`.
    pub fn wait_until_stopped(&self, timeout: Duration) -> bool {
        let waited = self.0.changed.wait_timeout_while(self.lock(), timeout, |state| !state.is_stopped);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_stopped
    }

    /// Lets the stopped call continue.
    pub fn release(&self) {
        self.lock().is_stopped = false;
        self.0.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, FaultPlan> {
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
            Some(Fault::Stopped) => {
                state.is_stopped = true;
                self.0.changed.notify_all();
                let waited = self.0.changed.wait_while(state, |state| state.is_stopped);
                drop(waited.unwrap_or_else(PoisonError::into_inner));
                return go();
            }
        }
        drop(state);
        go()
    }
}

/// A store that passes calls on to a working store, except for the planned faults.
pub struct Faulty {
    inner: Box<dyn Store>,
    faults: Faults,
}

impl Faulty {
    /// Returns a store around `inner` with these faults.
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

    fn commit(&mut self, group: &mut CommitGroup) -> Result<(), StoreError> {
        self.faults.call(Call::Commit, || self.inner.commit(group))
    }

    fn commit_ahead(&mut self, group: &CommitGroup) -> Result<(), StoreError> {
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

    fn limit_size(&mut self, size_limit: Option<u64>) -> Result<(), StoreError> {
        self.inner.limit_size(size_limit)
    }

    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }

    fn opener(&self) -> OpenReader {
        let (open, faults) = (self.inner.opener(), self.faults.clone());
        Box::new(move || {
            let inner = faults.call(Call::Reader, &open)?;
            Ok(Box::new(FaultyReader { inner, faults: faults.clone() }))
        })
    }
}

struct FaultyReader {
    inner: Box<dyn StoreReader>,
    faults: Faults,
}

impl StoreReader for FaultyReader {
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

    fn view(
        &mut self,
        places: &[StoredPlace],
        now: Instant,
        wanted: &Wanted,
        each: &mut dyn FnMut(ViewedEntry<'_>),
    ) -> Result<(), StoreError> {
        self.faults.call(Call::View, || self.inner.view(places, now, wanted, each))
    }
}
