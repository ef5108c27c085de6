//! The data directory: one process at a time, nobody else's eyes, and a file that is there to be deleted.
//!
//! | file | what |
//! |---|---|
//! | `homing.db` | the database, with `homing.db-wal` and `homing.db-shm` while it is in use |
//! | `homing.lock` | locked by the broker that has the directory; says its process, and `BEGINS` until the tables are made |
//! | `reserve` | deleted when the disk is full |
//!
//! A database of 0 bytes is a new one only in a directory in which no store was ever made. Elsewhere it is what a file system
//! left after a power loss: who begins anew there forgets every session without a word.

use super::error::is_want_of_room;
use crate::store::StoreError;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// What the reserve holds: room for what was on its way when the disk filled up, some thousand transactions of
/// acknowledgements.
pub const RESERVE: u64 = 16 * 1024 * 1024;

/// In the lock's file while a new store is made.
const BEGINS: &str = "begins a new store";

/// The directory, locked for as long as this lives.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// The lock goes with the file.
    lock: File,
}

impl Directory {
    /// Creates it where it is missing, and locks it.
    ///
    /// # Errors
    /// It cannot be made or written, or another process has it: in one line that names it.
    pub fn open(path: &Path) -> Result<Directory, StoreError> {
        let explain =
            |error: io::Error| StoreError::Failed(format!("the data directory {}: {error}", path.display()));
        if !path.exists() {
            DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(explain)?;
            sync(path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")))
                .map_err(explain)?;
        }
        let was_used = path.join("reserve").exists();
        let (lock, owner) = lock(path)?;
        let directory = Directory { path: path.to_owned(), lock };
        let was_used = was_used || owner.is_some_and(|owner| !owner.contains(BEGINS));
        match fs::metadata(directory.database()) {
            Ok(database) if database.len() > 0 => directory.say_whose("").map_err(explain)?,
            Ok(_) if was_used => {
                return Err(StoreError::Failed(format!(
                    "{} is empty, and there was a store in it: a file system leaves such a file after a power loss. Put a \
                     backup in its place, or delete it to begin with an empty store",
                    directory.database().display()
                )));
            }
            _ => directory.say_whose(BEGINS).map_err(explain)?,
        }
        // SQLite would make it readable to all, and gives its other files the same rights.
        open_private(&directory.database()).map_err(explain)?;
        sync(path).map_err(explain)?;
        Ok(directory)
    }

    /// The tables are made: an empty file is not a new store any more.
    pub fn has_store(&self) {
        // Where it fails, a later empty file is taken for a new store, as after a crash in the making.
        let _ = self.say_whose("");
    }

    /// A full disk does not keep the broker from starting.
    fn say_whose(&self, more: &str) -> io::Result<()> {
        let mut file = &self.lock;
        let said = (|| {
            file.set_len(0)?;
            file.rewind()?;
            writeln!(file, "pid {}", std::process::id())?;
            if more.is_empty() { Ok(()) } else { writeln!(file, "{more}") }
        })();
        said.or_else(|error| if is_want_of_room(&error) { Ok(()) } else { Err(error) })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn database(&self) -> PathBuf {
        database_in(&self.path)
    }

    /// When something was last written to the database, in milliseconds since 1970 by the wall clock of that time; none if
    /// never. What a broker wrote its heartbeats into was written no longer than a heartbeat before it ended.
    pub fn last_written(&self) -> Option<u64> {
        let modified = |path: PathBuf| {
            let file = fs::metadata(path).ok().filter(|file| file.len() > 0)?;
            let since = file.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
            u64::try_from(since.as_millis()).ok()
        };
        modified(self.database()).max(modified(self.write_ahead_log()))
    }

    pub fn write_ahead_log(&self) -> PathBuf {
        self.path.join("homing.db-wal")
    }

    /// Deletes the reserve: now there is room for what frees room.
    pub fn free_reserve(&self) {
        // It may be gone already, and then there is nothing to free.
        let _ = fs::remove_file(self.reserve());
    }

    /// Has the reserve again. False: there is no room for it.
    pub fn restore_reserve(&self) -> Result<bool, StoreError> {
        let path = self.reserve();
        if fs::metadata(&path).is_ok_and(|file| file.len() == RESERVE) {
            return Ok(true);
        }
        match open_private(&path).and_then(|file| preallocate(&file)) {
            Ok(()) => Ok(true),
            Err(error) => {
                let _ = fs::remove_file(&path);
                if is_want_of_room(&error) {
                    return Ok(false);
                }
                Err(StoreError::Failed(format!("the reserve {}: {error}", path.display())))
            }
        }
    }

    /// Bytes that the file system has for us.
    pub fn space(&self) -> Result<u64, StoreError> {
        let explain =
            |error| StoreError::Failed(format!("the file system of {}: {error}", self.path.display()));
        let figures = rustix::fs::statvfs(&self.path).map_err(explain)?;
        Ok(figures.f_bavail.saturating_mul(figures.f_frsize))
    }

    fn reserve(&self) -> PathBuf {
        self.path.join("reserve")
    }
}

pub fn database_in(directory: &Path) -> PathBuf {
    directory.join("homing.db")
}

/// The locked file, and what was in it; none where it was not there.
fn lock(directory: &Path) -> Result<(File, Option<String>), StoreError> {
    let path = directory.join("homing.lock");
    let was_there = path.exists();
    let explain = |error: io::Error| StoreError::Failed(format!("{}: {error}", path.display()));
    let mut file = open_private(&path).map_err(explain)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut owner = String::new();
            let _ = file.read_to_string(&mut owner);
            let owner = owner.lines().next().unwrap_or_default();
            return Err(StoreError::Failed(format!(
                "the data directory {} is in use by another process{}",
                directory.display(),
                if owner.is_empty() { String::new() } else { format!(" ({owner})") }
            )));
        }
        Err(TryLockError::Error(error)) => return Err(explain(error)),
    }
    let mut owner = String::new();
    file.read_to_string(&mut owner).map_err(explain)?;
    Ok((file, was_there.then_some(owner)))
}

fn open_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

fn preallocate(file: &File) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    use rustix::io::Errno;
    match fallocate(file, FallocateFlags::empty(), 0, RESERVE) {
        // Zeros are as good, and slower.
        Err(Errno::OPNOTSUPP) => {
            let (mut file, zeros) = (file, vec![0; 1024 * 1024]);
            (0..RESERVE / zeros.len() as u64).try_for_each(|_| file.write_all(&zeros))
        }
        other => Ok(other?),
    }
}

/// So that what was created is found again after a power loss.
pub fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}
