//! Ships the log of a store: a thread copies its frames into a folder, seconds after they are on
//! the disk. [`super::replay`] makes a data directory of the copy.
//!
//! The committing thread tells how far the log is synced, asks which files it may free, and does
//! nothing else for the copy. Files that are not shipped yet are kept, up to a bound. Beyond it the
//! log keeps nothing more for the copy, which begins again with a whole database. So a folder that
//! is full, slow, or gone delays no message.
//!
//! | file | what |
//! |---|---|
//! | `names` | the names in the folder, and what follows from them |
//! | `generation` | the files of one log in the folder |
//! | `base` | a whole database on its way to the folder |
//! | `thread` | the start of the thread, and what it does next |

mod base;
mod generation;
pub(super) mod names;
mod thread;

pub(super) use generation::names_in;
pub(super) use thread::start;

use super::StoreError;
use crate::clock;
use crate::time::Instant;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tracing::warn;

/// Bytes of frames that are shipped after a quarter of the interval already. So a copy is as near
/// under load as the interval says, and a disk has at most four syncs an interval for that.
const MANY: u64 = 1 << 20;
/// The most bytes of the log that are kept for the copy.
pub const MOST_KEPT: u64 = 1 << 30;
/// The time that a stop waits for the last frames to be shipped. A thread that hangs in a write
/// stays behind.
const LAST_PASS: Duration = if cfg!(test) { Duration::from_millis(300) } else { Duration::from_secs(2) };
/// The time for which the copy may be behind before it is a problem.
pub const LATE: Duration = Duration::from_secs(60);

/// The settings of the copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShipOptions {
    /// The folder, which must be there.
    pub to: PathBuf,
    /// The longest time between two looks at the log, while the folder can be used.
    pub interval: Duration,
}

impl ShipOptions {
    /// Checks the folder against the data directory.
    ///
    /// # Errors
    /// The folder is in the data directory: it would be lost with what it is a copy of.
    pub fn check(&self, data: &Path) -> Result<(), StoreError> {
        let whole = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if whole(&self.to).starts_with(whole(data)) {
            return Err(StoreError::Failed(format!(
                "{} is in the data directory {}: a copy belongs on another disk (store.ship_to)",
                self.to.display(),
                data.display()
            )));
        }
        Ok(())
    }
}

/// The shared state of the committing thread, the shipping thread, and those who ask.
#[derive(Debug)]
pub struct Shipping {
    folder: PathBuf,
    state: Mutex<State>,
    /// Somebody waits for the other thread's end, for frames, or for a stop.
    wake: Condvar,
    is_stopping: AtomicBool,
}

#[derive(Debug)]
struct State {
    /// The last position of the log that was forced to the disk.
    synced: u64,
    /// Bytes of frames up to there, since the start.
    written: u64,
    keeps: Keeps,
    /// The last position in the folder.
    position: u64,
    /// Bytes of frames in the folder, since the start.
    shipped: u64,
    /// The last time at which the folder had everything.
    complete_at: Instant,
    given_up: u64,
    has_ended: bool,
}

impl State {
    /// Returns the bytes of synced frames that the folder does not have.
    fn behind(&self) -> u64 {
        self.written.saturating_sub(self.shipped)
    }
}

/// The part of the log that is kept for the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keeps {
    /// All of it: the thread does not know yet where it goes on.
    Everything,
    /// Everything behind this position.
    Behind(u64),
    /// Nothing: the copy is too far behind.
    Nothing,
}

/// The figures of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShipFigures {
    /// The last position in the folder.
    pub position: u64,
    /// The time since the folder had everything that was on the disk; zero if it has.
    pub lag: Duration,
    /// Bytes of frames that the folder does not have.
    pub lag_bytes: u64,
    /// How often the copy was too far behind and began again.
    pub given_up: u64,
    /// True from then until the folder has everything again.
    pub is_behind: bool,
}

impl ShipFigures {
    /// Returns true if the copy is so far behind that an operator should look.
    pub fn is_late(&self) -> bool {
        self.is_behind || self.lag > LATE
    }
}

impl Shipping {
    fn new(folder: PathBuf, synced: u64) -> Shipping {
        let state = State {
            synced,
            written: 0,
            keeps: Keeps::Everything,
            position: 0,
            shipped: 0,
            complete_at: clock::now(),
            given_up: 0,
            has_ended: false,
        };
        let (state, is_stopping) = (Mutex::new(state), AtomicBool::new(false));
        Shipping { folder, state, wake: Condvar::new(), is_stopping }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere ends the process. Nobody holds the lock during a call of the system.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the log is on the disk up to this position, with this many bytes since the
    /// start.
    pub(super) fn synced(&self, position: u64, written: u64) {
        let mut state = self.lock();
        let had_many = state.behind() >= MANY;
        (state.synced, state.written) = (position, written);
        // The thread looks by itself before it waits.
        if !had_many && state.behind() >= MANY {
            self.wake.notify_all();
        }
    }

    /// Returns the position up to which the log may free its files, if the database has everything
    /// up to `applied`.
    pub(super) fn may_free(&self, applied: u64) -> u64 {
        match self.lock().keeps {
            Keeps::Everything => 0,
            Keeps::Behind(position) => position.min(applied),
            Keeps::Nothing => applied,
        }
    }

    /// Lets the log free everything: its disk has no room, or the copy is too far behind. Returns
    /// false if nothing was kept.
    pub(super) fn give_up(&self, why: &str) -> bool {
        let mut state = self.lock();
        if state.keeps == Keeps::Nothing {
            return false;
        }
        (state.keeps, state.given_up) = (Keeps::Nothing, state.given_up + 1);
        let position = state.position;
        drop(state);
        warn!(
            event = "store.ship_behind",
            position,
            why,
            "the copy at store.ship_to is too far behind, and begins again with a whole database"
        );
        true
    }

    /// Returns the folder of the copy.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the figures now.
    pub fn figures(&self, now: Instant) -> ShipFigures {
        let state = self.lock();
        let is_behind = state.keeps == Keeps::Nothing;
        let is_complete = state.position >= state.synced && !is_behind;
        ShipFigures {
            position: state.position,
            lag: if is_complete { Duration::ZERO } else { now.since(state.complete_at) },
            lag_bytes: if is_complete { 0 } else { state.behind() },
            given_up: state.given_up,
            is_behind,
        }
    }

    /// Tells the thread to ship the rest and to end, and waits for it, but not for ever.
    pub(super) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        let state = self.lock();
        self.wake.notify_all();
        let is_on = |state: &mut State| !state.has_ended;
        drop(self.wake.wait_timeout_while(state, LAST_PASS, is_on));
    }
}

/// The thread's side.
impl Shipping {
    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// Waits for `pause`, or until the folder lacks this many bytes, or until a stop.
    fn wait(&self, pause: Duration, many: u64) {
        let is_on = |state: &mut State| !self.is_stopping() && state.behind() < many;
        drop(self.wake.wait_timeout_while(self.lock(), pause, is_on));
    }

    /// Returns the position up to which frames can be shipped, and the bytes up to there.
    fn target(&self) -> (u64, u64) {
        let state = self.lock();
        (state.synced, state.written)
    }

    fn has_given_up(&self) -> bool {
        self.lock().keeps == Keeps::Nothing
    }

    /// Has the log keep everything from now on, until the thread knows where it goes on.
    fn keep_everything(&self) {
        self.lock().keeps = Keeps::Everything;
    }

    /// Records that the folder has everything up to this position, with this many bytes more.
    fn shipped(&self, position: u64, bytes: u64) {
        let mut state = self.lock();
        if state.keeps != Keeps::Nothing {
            (state.keeps, state.position) = (Keeps::Behind(position), position);
        }
        state.shipped += bytes;
    }

    /// Records that at this time the folder had everything, which was this many bytes.
    fn is_complete(&self, at: Instant, written: u64) {
        let mut state = self.lock();
        (state.complete_at, state.shipped) = (at, written);
    }

    fn ended(&self) {
        self.lock().has_ended = true;
        self.wake.notify_all();
    }
}

#[cfg(test)]
pub(super) mod tests;
