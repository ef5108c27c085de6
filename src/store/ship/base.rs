//! A whole database on its way to the folder.
//!
//! SQLite cannot shorten its write-ahead log while it makes a copy. So the copy is made in the data
//! directory: a copy straight into a folder that hangs would fill the disk of the store. From there
//! it is carried to the folder in portions, with new frames in between.

use super::generation::{End, Generation, refused};
use super::names;
use super::thread::Refusal;
use crate::store::sqlite::base::{copy_database, mark_of};
use crate::store::sqlite::directory::{database_in, space_in};
use aws_lc_rs::digest::{Context, SHA256};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

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

impl BaseCopy {
    /// Makes a copy of the database of a data directory, and its file in the folder. `goes_on` is
    /// asked now and then, and ends the copy.
    ///
    /// # Errors
    /// There is no room for it in the data directory or in the folder, or a file cannot be written.
    pub(super) fn begin(
        data: &Path,
        generation: &mut Generation,
        goes_on: impl FnMut() -> bool + Send + 'static,
    ) -> Result<BaseCopy, Refusal> {
        let database = database_in(data);
        let size = fs::metadata(&database).map_err(|error| refused(&database, error))?.len();
        // What clients store meanwhile needs room, too.
        for (folder, needed) in [(data, 2 * size), (generation.path(), size)] {
            let free = space_in(folder).map_err(|error| refused(folder, error))?;
            if free < needed {
                let why = format!("no room for a copy of the database: {needed} bytes needed, {free} free");
                return Err(refused(folder, why));
            }
        }
        let path = local_in(data);
        copy_database(&database, &path, goes_on).map_err(|error| refused(&path, error))?;
        let file = File::open(&path).map_err(|error| refused(&path, error))?;
        let local = LocalCopy { path, file };
        let (applied, _) = mark_of(&local.path).map_err(|error| refused(&local.path, error))?;
        let end = End { position: applied.position, digest: applied.digest };
        let to = generation.begin_base(end.position)?;
        Ok(BaseCopy { end, local, to, digest: Context::new(&SHA256) })
    }

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
