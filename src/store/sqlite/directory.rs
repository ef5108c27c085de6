//! The data directory: one process at a time, nobody else's eyes, and a file that is there to be deleted.

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

/// The directory, locked for as long as this lives.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// Held, not read: the lock goes with the file.
    _lock: File,
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
        let lock = lock(path)?;
        let directory = Directory { path: path.to_owned(), _lock: lock };
        // SQLite would make it readable to all, and gives its other files the same rights.
        open_private(&directory.database()).map_err(explain)?;
        sync(path).map_err(explain)?;
        Ok(directory)
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

    fn reserve(&self) -> PathBuf {
        self.path.join("reserve")
    }
}

pub fn database_in(directory: &Path) -> PathBuf {
    directory.join("homing.db")
}

fn lock(directory: &Path) -> Result<File, StoreError> {
    let path = directory.join("homing.lock");
    let explain = |error: io::Error| StoreError::Failed(format!("{}: {error}", path.display()));
    let mut file = open_private(&path).map_err(explain)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut owner = String::new();
            let _ = file.read_to_string(&mut owner);
            return Err(StoreError::Failed(format!(
                "the data directory {} is in use by another process{}",
                directory.display(),
                if owner.is_empty() { String::new() } else { format!(" ({})", owner.trim_end()) }
            )));
        }
        Err(TryLockError::Error(error)) => return Err(explain(error)),
    }
    let say_whose = |file: &mut File| {
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "pid {}", std::process::id())
    };
    match say_whose(&mut file) {
        Err(error) if !is_want_of_room(&error) => Err(explain(error)),
        _ => Ok(file),
    }
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
