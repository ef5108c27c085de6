//! The data directory: one process at a time, private, and with a reserve file to delete on a full
//! disk.
//!
//! | file | what |
//! |---|---|
//! | `log` | the frames that the database does not have yet |
//! | `homing.db` | the database, with `homing.db-wal` and `homing.db-shm` while it is in use |
//! | `homing.lock` | locked by the broker; has its process id, and `BEGINS` until tables exist |
//! | `reserve` | deleted when the disk is full |
//! | `homing.following` | the directory follows a copy, whose folder the file names; no broker starts on it |
//!
//! A database of 0 bytes is a new one only in a directory that never had a store. Elsewhere a file
//! system left the empty file after a power loss. A broker that started anew there would forget
//! every session silently.

use crate::file_thread;
use crate::store::StoreError;
use crate::store::files::{self, is_want_of_room, preallocate, sync};
use rustix::fs::Access;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// Size of the reserve in bytes. The records that are on their way when the disk fills up fit into
/// it, some thousand transactions of acknowledgements.
pub const RESERVE: u64 = 16 * 1024 * 1024;

/// Stands in the lock file while a new store is created.
const BEGINS: &str = "begins a new store";

/// The data directory, locked while this value lives.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// The lock ends when the file is closed.
    lock: File,
}

impl Directory {
    /// Opens and locks the directory, and creates it if it does not exist.
    ///
    /// # Errors
    /// Returns a one-line error that names the directory if it cannot be created or written, if
    /// another process has it, or if its database was emptied by a power loss.
    pub fn open(path: &Path) -> Result<Directory, StoreError> {
        let explain =
            |error: io::Error| StoreError::Failed(format!("the data directory {}: {error}", path.display()));
        check(path)?;
        if !path.exists() {
            DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(explain)?;
            sync(path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")))
                .map_err(explain)?;
        }
        let (lock, owner) = lock(path)?;
        let directory = Directory { path: path.to_owned(), lock };
        refuse_emptied(path, owner.as_deref())?;
        let is_new = fs::metadata(directory.database()).map_or(true, |database| database.len() == 0);
        directory.say_whose(if is_new { BEGINS } else { "" }).map_err(explain)?;
        // SQLite would make the file readable for everybody, and gives its other files the same
        // rights.
        files::open(&directory.database()).map_err(explain)?;
        sync(path).map_err(explain)?;
        Ok(directory)
    }

    /// Records that the tables exist. From now on an empty file is no new store.
    pub fn has_store(&self) {
        // After a failure here, a later empty file counts as a new store, as after a crash during
        // creation.
        let _ = self.say_whose("");
    }

    /// Writes the process id, and `more` if it is not empty, to the lock file. Ignores a full disk,
    /// which must not keep the broker from starting.
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

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of the database file.
    pub fn database(&self) -> PathBuf {
        database_in(&self.path)
    }

    /// Returns the time of the last write to the database, in milliseconds since 1970; `None` if
    /// there was none.
    ///
    /// The time is by the wall clock of that time. A broker writes heartbeats, so the last write is
    /// at most one heartbeat older than its end.
    pub fn last_written(&self) -> Option<u64> {
        let modified = |path: PathBuf| {
            let file = fs::metadata(path).ok().filter(|file| file.len() > 0)?;
            let since = file.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
            u64::try_from(since.as_millis()).ok()
        };
        modified(self.database()).max(modified(self.write_ahead_log()))
    }

    /// Returns the path of the write-ahead log.
    pub fn write_ahead_log(&self) -> PathBuf {
        self.path.join("homing.db-wal")
    }

    /// Deletes the reserve, so that records that free room can be written.
    pub fn free_reserve(&self) {
        // A reserve that is already gone needs no deletion.
        let _ = fs::remove_file(self.reserve());
    }

    /// Creates the reserve again. Returns false if the disk has no room for it.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written for another reason than room.
    pub fn restore_reserve(&self) -> Result<bool, StoreError> {
        let path = self.reserve();
        if fs::metadata(&path).is_ok_and(|file| file.len() == RESERVE) {
            return Ok(true);
        }
        match files::open(&path).and_then(|file| preallocate(&file, RESERVE)) {
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

    /// Returns the free bytes of the file system for this process.
    ///
    /// # Errors
    /// Returns an error if the file system does not report its size.
    pub fn space(&self) -> Result<u64, StoreError> {
        let explain =
            |error| StoreError::Failed(format!("the file system of {}: {error}", self.path.display()));
        space_in(&self.path).map_err(explain)
    }

    fn reserve(&self) -> PathBuf {
        reserve_in(&self.path)
    }
}

/// Returns the free bytes of the file system of a directory, for this process.
///
/// # Errors
/// Returns the error of the system if the file system does not report its size.
pub fn space_in(directory: &Path) -> io::Result<u64> {
    let figures = rustix::fs::statvfs(directory)?;
    Ok(figures.f_bavail.saturating_mul(figures.f_frsize))
}

/// Returns the path of the lock file in a data directory.
pub fn lock_in(directory: &Path) -> PathBuf {
    directory.join("homing.lock")
}

fn reserve_in(directory: &Path) -> PathBuf {
    directory.join("reserve")
}

/// Returns the longest beginning of a path that is there: the directory in which the rest would be
/// made.
pub fn existing_part(path: &Path) -> &Path {
    path.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("."))
}

/// Returns the path of the file that marks a data directory which follows a copy.
pub fn following_in(directory: &Path) -> PathBuf {
    directory.join("homing.following")
}

/// Checks that a data directory does not follow a copy.
///
/// # Errors
/// It follows one. The line names the directory, the folder, and the command that ends the
/// following.
pub fn refuse_following(directory: &Path) -> Result<(), StoreError> {
    let Ok(folder) = fs::read_to_string(following_in(directory)) else { return Ok(()) };
    let (path, folder) = (directory.display(), folder.trim_end());
    Err(StoreError::Failed(format!(
        "the data directory {path} follows the copy in {folder}: end that with homing store promote {path}"
    )))
}

/// Returns true if a process has the directory locked. Holds the lock for a moment.
pub fn is_locked(directory: &Path) -> bool {
    let lock = OpenOptions::new().read(true).write(true).open(lock_in(directory));
    lock.is_ok_and(|lock| matches!(lock.try_lock(), Err(TryLockError::WouldBlock)))
}

/// Checks that a start could use the directory, or create it. Changes nothing, and takes no lock: a
/// broker may be using the directory.
///
/// # Errors
/// One line that names the path: the path is no directory, this user may not write to it or create
/// it, or a power loss emptied its database.
pub fn check(path: &Path) -> Result<(), StoreError> {
    let _opened = file_thread::opens(path);
    let explain =
        |error: io::Error| StoreError::Failed(format!("the data directory {}: {error}", path.display()));
    let existing = existing_part(path);
    if !existing.is_dir() {
        return Err(explain(io::ErrorKind::NotADirectory.into()));
    }
    rustix::fs::access(existing, Access::WRITE_OK | Access::EXEC_OK)
        .map_err(|error| explain(error.into()))?;
    let owner = fs::read_to_string(lock_in(path)).ok();
    refuse_emptied(path, owner.as_deref())
}

/// Checks that the database of a data directory was not emptied. `owner` is the text of the lock
/// file; `None` without the file.
///
/// # Errors
/// Returns a one-line error that names the database if it is empty and there was a store in it.
pub fn refuse_emptied(directory: &Path, owner: Option<&str>) -> Result<(), StoreError> {
    let database = database_in(directory);
    let is_empty = fs::metadata(&database).is_ok_and(|database| database.len() == 0);
    let was_used = || reserve_in(directory).exists() || owner.is_some_and(|owner| !owner.contains(BEGINS));
    if is_empty && was_used() {
        return Err(StoreError::Failed(format!(
            "{} is empty, and there was a store in it: a file system leaves such a file after a power loss. Move \
             the log beside it away. Put a backup in its place, or delete it to begin with an empty store",
            database.display()
        )));
    }
    Ok(())
}

/// Returns the path of the database file in a data directory.
pub fn database_in(directory: &Path) -> PathBuf {
    directory.join("homing.db")
}

/// Locks the directory. Returns the lock file and its earlier contents, or `None` if the file is
/// new.
fn lock(directory: &Path) -> Result<(File, Option<String>), StoreError> {
    let path = lock_in(directory);
    let was_there = path.exists();
    let explain = |error: io::Error| StoreError::Failed(format!("{}: {error}", path.display()));
    let mut file = files::open(&path).map_err(explain)?;
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
