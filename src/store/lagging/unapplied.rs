//! The changes that only the log has, shared by three threads: the committing thread adds changes,
//! the applying thread takes them, and the reading thread looks for messages. `take` decides when
//! they are applied: after a second, from a number of bytes on, on demand, and at a stop.
//!
//! There is a growing group, and a group under way to the database. The lock is held for one group
//! of the log, one take, or one page.

use super::lookup::{Lookup, look};
use crate::clock;
use crate::persistence::records::{BodyNumber, EntryNumber};
use crate::store::StoreError;
use crate::store::coalesce::CommitGroup;
use crate::store::database::Database;
use crate::store::sqlite::{Figures, Mark};
use crate::time::Instant;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The time after which a change is in the database, if the disk can keep up.
const AGE: Duration = Duration::from_secs(1);
/// The time that a reader waits for a database that cannot be written, before it says so.
const PATIENCE: Duration = if cfg!(test) { Duration::from_millis(300) } else { Duration::from_secs(2) };

/// See the module.
#[derive(Debug)]
pub(in crate::store) struct Unapplied {
    state: Mutex<State>,
    /// The applying thread waits for work.
    work: Condvar,
    /// Others wait for the applying thread.
    progress: Condvar,
    /// Bytes of the log from which on changes are applied before their time.
    many: u64,
}

/// The words of [`StoreError::Behind`] where nobody may wait for the database.
const BY_HAND: &str = "it is applied by hand";

#[derive(Debug)]
struct State {
    /// The changes that grow.
    open: CommitGroup,
    /// The last frame that was added.
    mark: Mark,
    /// The time of the oldest change in `open`; [`Instant::NEVER`] without one.
    since: Instant,
    /// Bytes of frames in `open`.
    bytes: u64,
    /// The changes that are being applied.
    taken: Option<Arc<CommitGroup>>,
    /// Bytes of frames in `taken`.
    taken_bytes: u64,
    /// The time of the oldest change in `taken`.
    taken_since: Instant,
    /// The last frame that the database has.
    applied: u64,
    /// The last frame with changes.
    changed: u64,
    /// The last frame whose memory is released.
    released: u64,
    /// A thread waits until the database has everything.
    is_wanted: bool,
    is_stopping: bool,
    /// No thread applies, so nobody may wait for it.
    is_by_hand: bool,
    /// Why the last attempt to apply was refused.
    hindrance: Option<Hindrance>,
    failure: Option<String>,
    figures: Figures,
    /// An empty group with its allocations.
    spare: CommitGroup,
}

/// Why the database cannot be written for now.
#[derive(Debug)]
pub(in crate::store) struct Hindrance {
    pub why: String,
    /// The database has no room, and is not only locked by another process.
    pub is_full: bool,
}

/// Changes for the database.
pub(in crate::store) struct Portion {
    pub group: Arc<CommitGroup>,
    pub mark: Mark,
}

impl Unapplied {
    /// Creates it empty: the database has everything up to the mark.
    pub(in crate::store) fn new(many: u64, mark: Mark, figures: Figures) -> Unapplied {
        let state = State {
            open: CommitGroup::default(),
            mark,
            since: Instant::NEVER,
            bytes: 0,
            taken: None,
            taken_bytes: 0,
            taken_since: Instant::NEVER,
            applied: mark.position,
            changed: mark.position,
            released: mark.position,
            is_wanted: false,
            is_stopping: false,
            is_by_hand: false,
            hindrance: None,
            failure: None,
            figures,
            spare: CommitGroup::default(),
        };
        Unapplied { state: Mutex::new(state), work: Condvar::new(), progress: Condvar::new(), many }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere ends the process.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the changes of a frame. With `is_short` they are applied at once, because the memory of
    /// the broker is nearly used up. Returns how many bytes of the log wait for the database, and
    /// since when.
    ///
    /// # Errors
    /// The database failed.
    pub(in crate::store) fn add(
        &self,
        group: &mut CommitGroup,
        mark: Mark,
        bytes: u64,
        is_short: bool,
    ) -> Result<(u64, Instant), StoreError> {
        let mut state = self.lock();
        state.check()?;
        state.mark = mark;
        state.bytes += bytes;
        if !group.is_empty() {
            state.changed = mark.position;
            if state.since.is_never() {
                state.since = clock::now();
                // The applying thread may sleep without an end.
                self.work.notify_one();
            }
            state.open.absorb(group, mark.moment.file_millis);
        }
        if state.bytes >= self.many || is_short {
            self.work.notify_one();
            state.is_wanted |= is_short;
        }
        Ok(state.waiting())
    }

    /// Waits while the database is more than `most` bytes of the log behind, at most for
    /// `patience`.
    ///
    /// # Errors
    /// - [`StoreError::Behind`]: it is still behind. Says why.
    /// - [`StoreError::Failed`]: the database failed.
    pub(in crate::store) fn await_room(&self, most: u64, patience: Duration) -> Result<(), StoreError> {
        let state = self.lock();
        if state.bytes + state.taken_bytes <= most {
            return state.check();
        }
        let is_behind = |state: &mut State| state.bytes + state.taken_bytes > most && state.failure.is_none();
        let waited = self.progress.wait_timeout_while(state, patience, is_behind);
        let (state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        state.check()?;
        if !timeout.timed_out() {
            return Ok(());
        }
        let behind = state.bytes + state.taken_bytes;
        let why = state.hindrance.as_ref().map_or("the disk is slow", |hindrance| &hindrance.why);
        Err(StoreError::Behind(format!("{} MiB of the log, {why}", behind >> 20)))
    }

    /// # Errors
    /// The database failed.
    pub(in crate::store) fn check(&self) -> Result<(), StoreError> {
        self.lock().check()
    }

    /// Records that the database has everything up to this mark, without the applying thread.
    pub(in crate::store) fn is_applied(&self, mark: Mark) {
        let mut state = self.lock();
        (state.mark, state.applied) = (mark, mark.position);
        (state.changed, state.released) = (mark.position, mark.position);
    }

    /// Returns the position of the last frame that the database has.
    pub(in crate::store) fn applied(&self) -> u64 {
        self.lock().applied
    }

    /// Waits until the database has everything that was added before this call.
    ///
    /// # Errors
    /// - [`StoreError::Behind`]: the database cannot be written for now, and the call can be made
    ///   again.
    /// - [`StoreError::Failed`]: the database failed.
    pub(in crate::store) fn await_applied(&self) -> Result<(), StoreError> {
        let mut state = self.lock();
        let position = state.changed;
        if state.applied < position {
            state.is_wanted = true;
            self.work.notify_one();
        }
        let is_behind = |state: &mut State| state.applied < position && state.failure.is_none();
        if state.is_by_hand && is_behind(&mut state) {
            return Err(StoreError::Behind(BY_HAND.into()));
        }
        loop {
            let waited = self.progress.wait_timeout_while(state, PATIENCE, is_behind);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if state.applied >= position {
                return Ok(());
            }
            state.check()?;
            if let Some(hindrance) = &state.hindrance {
                return Err(StoreError::Behind(hindrance.why.clone()));
            }
        }
    }

    /// Looks for the deliveries of a page.
    pub(in crate::store) fn look(&self, wanted: &[(EntryNumber, BodyNumber)]) -> Lookup {
        let state = self.lock();
        look(|| [Some(&state.open), state.taken.as_deref()].into_iter().flatten(), wanted)
    }

    /// Returns true if there is room for new messages. Measures again only if there was none.
    ///
    /// # Errors
    /// The database or its disk does not report its room.
    pub(in crate::store) fn has_room(&self, database: &Mutex<impl Database>) -> Result<bool, StoreError> {
        if self.lock().has_room() {
            return Ok(true);
        }
        if let Ok(mut database) = database.try_lock() {
            match database.figures() {
                // The figures of the time before will do.
                Err(StoreError::Busy(_)) => {}
                figures => self.measured(figures?),
            }
        }
        Ok(self.lock().has_room())
    }

    /// Returns the bytes that may be added before there is no room for new messages: as of the last
    /// write to the database, less what has been added since.
    pub(in crate::store) fn room(&self) -> i64 {
        let state = self.lock();
        let waiting = i64::try_from(state.bytes + state.taken_bytes).unwrap_or(i64::MAX);
        state.figures.room.saturating_sub(waiting)
    }

    /// Returns the bytes of the database, as of the last write to it.
    pub(in crate::store) fn database_bytes(&self) -> u64 {
        self.lock().figures.bytes
    }

    /// Records that there is no room for new messages, until it is measured again.
    pub(in crate::store) fn has_no_room(&self) {
        self.lock().figures.has_room = false;
    }

    pub(in crate::store) fn measured(&self, figures: Figures) {
        self.lock().figures = figures;
    }

    /// Records that no thread applies: who would wait for the database is told that it is behind.
    pub(in crate::store) fn nobody_waits(&self) {
        self.lock().is_by_hand = true;
    }

    /// Takes the changes that there are, due or not; `None` if the database has all.
    pub(in crate::store) fn take_now(&self) -> Option<Portion> {
        let mut state = self.lock();
        (state.applied < state.mark.position).then(|| state.take())
    }

    /// Tells the applying thread to apply what there is, and to end.
    pub(in crate::store) fn stop(&self) {
        self.lock().is_stopping = true;
        self.work.notify_one();
    }

    /// Waits until there are changes to apply, and takes them. Returns `None` at the end.
    pub(in crate::store) fn take(&self) -> Option<Portion> {
        let mut state = self.lock();
        loop {
            if state.failure.is_some() {
                return None;
            }
            let has_frames = state.applied < state.mark.position;
            let due = state.since.as_millis().saturating_add(AGE.as_millis() as u64);
            let now = clock::now().as_millis();
            let is_due = state.is_stopping || state.is_wanted || state.bytes >= self.many || now >= due;
            if has_frames && is_due {
                break;
            }
            if state.is_stopping {
                return None;
            }
            state = if state.since.is_never() {
                self.work.wait(state).unwrap_or_else(PoisonError::into_inner)
            } else {
                let left = Duration::from_millis(due - now);
                self.work.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
            };
        }
        Some(state.take())
    }

    /// Records that a portion is in the database. Returns its group to be emptied, and what waits
    /// now as [`Unapplied::add`] does.
    pub(in crate::store) fn done(
        &self,
        portion: Portion,
        figures: Option<Figures>,
    ) -> (CommitGroup, (u64, Instant)) {
        let mut state = self.lock();
        state.taken = None;
        (state.taken_bytes, state.applied) = (0, portion.mark.position);
        (state.hindrance, state.figures) = (None, figures.unwrap_or(state.figures));
        state.taken_since = Instant::NEVER;
        self.progress.notify_all();
        let waiting = state.waiting();
        drop(state);
        // No other thread keeps a reference beyond its lock.
        (Arc::into_inner(portion.group).unwrap_or_default(), waiting)
    }

    /// Gives the emptied group of a portion back, so that its allocations are used again. The
    /// account has its memory back by now.
    pub(in crate::store) fn recycle(&self, group: CommitGroup, position: u64) {
        let mut state = self.lock();
        (state.spare, state.released) = (group, position);
        self.progress.notify_all();
    }

    /// Waits until the memory of all changes is released, at most for `patience`. Returns true if
    /// it is.
    pub(in crate::store) fn await_release(&self, patience: Duration) -> bool {
        let state = self.lock();
        let position = state.changed;
        let waits = |state: &mut State| state.released < position && state.failure.is_none();
        let waited = self.progress.wait_timeout_while(state, patience, waits);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Records why the database cannot be written for now.
    pub(in crate::store) fn hindered(&self, hindrance: Hindrance) {
        self.lock().hindrance = Some(hindrance);
    }

    /// Adds to a portion that was refused what has come since: it may free room. Waits for `pause`.
    /// Returns `None` at a stop.
    pub(in crate::store) fn refused(&self, portion: Portion, pause: Duration) -> Option<Portion> {
        let mut state = self.lock();
        let is_on = |state: &mut State| !state.is_stopping;
        let waited = self.work.wait_timeout_while(state, pause, is_on);
        state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.taken = None;
        let mut group = Arc::into_inner(portion.group)?;
        let file_ms = state.mark.moment.file_millis;
        let mut open = std::mem::take(&mut state.open);
        group.absorb(&mut open, file_ms);
        group.seal();
        open.clear();
        state.open = open;
        let group = Arc::new(group);
        state.taken = Some(Arc::clone(&group));
        state.taken_bytes += std::mem::take(&mut state.bytes);
        (state.since, state.is_wanted) = (Instant::NEVER, false);
        Some(Portion { group, mark: state.mark })
    }

    pub(in crate::store) fn is_stopping(&self) -> bool {
        self.lock().is_stopping
    }

    /// Records that the database failed. Everyone who waits is told.
    pub(in crate::store) fn failed(&self, why: String) {
        self.lock().failure = Some(why);
        self.progress.notify_all();
    }
}

impl State {
    fn take(&mut self) -> Portion {
        let spare = std::mem::take(&mut self.spare);
        let mut group = std::mem::replace(&mut self.open, spare);
        group.seal();
        let group = Arc::new(group);
        self.taken = Some(Arc::clone(&group));
        (self.taken_bytes, self.bytes) = (self.bytes, 0);
        self.taken_since = self.since;
        (self.since, self.is_wanted) = (Instant::NEVER, false);
        Portion { group, mark: self.mark }
    }

    /// A database that is only locked has room: commits go on in the log.
    fn has_room(&self) -> bool {
        let is_full = self.hindrance.as_ref().is_some_and(|hindrance| hindrance.is_full);
        !is_full && self.figures.has_room
    }

    /// Returns the bytes of the log that wait for the database, and since when.
    fn waiting(&self) -> (u64, Instant) {
        (self.bytes + self.taken_bytes, self.taken_since.min(self.since))
    }

    fn check(&self) -> Result<(), StoreError> {
        match &self.failure {
            Some(why) => Err(StoreError::Failed(why.clone())),
            None => Ok(()),
        }
    }
}
