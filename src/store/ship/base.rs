//! A whole database on its way to the folder.
//!
//! SQLite cannot shorten its write-ahead log while it makes a copy. So the copy is made in the data
//! directory: a copy straight into a folder that hangs would fill the disk of the store. From there
//! it is carried to the folder in portions, with new frames in between.

use super::generation::{End, Generation, refused};
use super::names;
use super::thread::Refusal;
use crate::scheduling;
use crate::store::sqlite::base::{copy_database, mark_of};
use crate::store::sqlite::directory::{database_in, space_in};
use aws_lc_rs::digest::{Context, SHA256};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

/// Bytes of one portion.
const PORTION: u64 = 16 << 20;

/// See the module.
pub(super) struct BaseCopy {
    /// The place in the log up to which the base has everything.
    pub end: End,
    local: LocalCopy,
    to: File,
    digest: Context,
}

/// The copy in the data directory. Deleted when it is dropped.
struct LocalCopy {
    path: PathBuf,
    file: File,
}

impl Drop for LocalCopy {
    fn drop(&mut self) {
        // The next start deletes what is left.
        let _ = fs::remove_file(&self.path);
    }
}

/// Deletes what a process that was killed has left of a copy.
pub(super) fn clear(data: &Path) {
    // Mostly there is nothing.
    let _ = fs::remove_file(local_in(data));
}

fn local_in(data: &Path) -> PathBuf {
    data.join("ship.db")
}

/// The copy in the data directory while it is made, on a thread of its own: for a large database
/// it takes minutes, and the frames go on meanwhile. Ends when it is dropped.
pub(super) struct Making {
    /// `None` once it was joined.
    thread: Option<JoinHandle<Result<(LocalCopy, End), Refusal>>>,
    is_wanted: Arc<AtomicBool>,
}

impl Making {
    /// Begins with the copy. `goes_on` is asked now and then, and ends it.
    ///
    /// # Errors
    /// There is no room for it in the data directory or in the folder, or the system refuses a
    /// thread.
    pub(super) fn begin(
        data: &Path,
        generation: &Generation,
        goes_on: impl Fn() -> bool + Send + 'static,
    ) -> Result<Making, Refusal> {
        let (database, path) = (database_in(data), local_in(data));
        let size = fs::metadata(&database).map_err(|error| refused(&database, error))?.len();
        // What clients store meanwhile needs room, too.
        for (folder, needed) in [(data, 2 * size), (generation.path(), size)] {
            let free = space_in(folder).map_err(|error| refused(folder, error))?;
            if free < needed {
                let why = format!("no room for a copy of the database: {needed} bytes needed, {free} free");
                return Err(refused(folder, why));
            }
        }
        let is_wanted = Arc::new(AtomicBool::new(true));
        let of_thread = Arc::clone(&is_wanted);
        let make = move || {
            scheduling::yield_to_traffic();
            let goes_on = move || of_thread.load(Ordering::Relaxed) && goes_on();
            copy_database(&database, &path, goes_on).map_err(|error| refused(&path, error))?;
            let file = File::open(&path).map_err(|error| refused(&path, error))?;
            let local = LocalCopy { path, file };
            let (applied, _) = mark_of(&local.path).map_err(|error| refused(&local.path, error))?;
            Ok((local, End { position: applied.position, digest: applied.digest }))
        };
        let thread = Builder::new().name("homing-base".into()).spawn(make);
        let thread = thread.map_err(|error| Refusal::Blocked(format!("a thread for the store: {error}")))?;
        Ok(Making { thread: Some(thread), is_wanted })
    }

    pub(super) fn is_done(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for the copy, and makes its file in the folder.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub(super) fn end(mut self, generation: &mut Generation) -> Result<BaseCopy, Refusal> {
        let made = self.thread.take().and_then(|thread| thread.join().ok());
        let (local, end) = made.unwrap_or(Err(Refusal::Blocked("its thread has panicked".to_owned())))?;
        let to = generation.begin_base(end.position)?;
        Ok(BaseCopy { end, local, to, digest: Context::new(&SHA256) })
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        self.is_wanted.store(false, Ordering::Relaxed);
        // The next copy has the same place.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl BaseCopy {
    /// Copies a portion. Returns true if it was the last one, and everything is on the disk.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub(super) fn carry(&mut self) -> Result<bool, Refusal> {
        let (mut portion, from) = (Vec::new(), &mut self.local.file);
        let read = from.take(PORTION).read_to_end(&mut portion);
        let carried = read.and_then(|_| self.to.write_all(&portion)).and_then(|()| self.to.sync_data());
        carried.map_err(|error| Refusal::Blocked(format!("a copy of the database: {error}")))?;
        self.digest.update(&portion);
        Ok((portion.len() as u64) < PORTION)
    }

    /// Returns the digest of what was copied, in hexadecimal digits.
    pub(super) fn digest(self) -> String {
        names::hexadecimal(self.digest.finish().as_ref())
    }
}
