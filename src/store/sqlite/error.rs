//! The meaning of SQLite's errors for the broker: no room, a lock, or a failure that ends the
//! process.

use super::digest::Damaged;
use crate::store::StoreError;
use crate::store::files::is_want_of_room;
use rusqlite::{Error, ErrorCode, ffi};
use std::io::{self, Write};
use std::path::Path;

/// Bytes of the probe file: more than a file system rounds a small file up to.
const PROBE: usize = 64 * 1024;

/// Converts an error of an operation that needs no room: a lock of another process, or a failure.
pub(super) fn failed(error: Error) -> StoreError {
    if is_busy(&error) {
        return StoreError::Busy(UNLOCK.into());
    }
    match damage(&error) {
        Some(damage) => StoreError::Failed(format!("homing.db: {damage}. {GO_ON}")),
        None => StoreError::Failed(format!("SQLite: {error}")),
    }
}

/// The ways on with a damaged database.
pub(super) const GO_ON: &str = "`homing store check` lists all damage. Put a backup in place of the store, or go on \
    without what is damaged: homing store mend";

/// Returns what is damaged, if the error says that the file is.
fn damage(error: &Error) -> Option<String> {
    match error {
        Error::FromSqlConversionFailure(_, _, cause) => {
            cause.downcast_ref::<Damaged>().map(|damaged| damaged.to_string())
        }
        Error::SqliteFailure(cause, _) => {
            let is_damaged = matches!(cause.code, ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase);
            is_damaged.then(|| format!("the file is damaged: SQLite: {error}"))
        }
        _ => None,
    }
}

const UNLOCK: &str = "end its transaction, or close it (sqlite3 with BEGIN, a backup program?)";

fn is_busy(error: &Error) -> bool {
    let Error::SqliteFailure(cause, _) = error else { return false };
    matches!(cause.code, ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
}

/// Returns a text that names the process with the right to write, if the system knows it. Its lock
/// is the first byte of the locks in the index of the write-ahead log.
fn owner(directory: &Path) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let index = std::fs::metadata(directory.join("homing.db-shm")).ok()?.ino();
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let pid = locks.lines().find_map(|line| owner_in(line, index))?;
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Some(format!("process {pid} ({}) holds it: ", name.trim_end()))
}

/// Returns the process of a line such as `1: POSIX  ADVISORY  WRITE 1234 08:01:5678 120 120`, if
/// the line is about that lock. A process in another name space has no number here.
fn owner_in(line: &str, inode: u64) -> Option<u32> {
    const WRITE_LOCK: u64 = 120;
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [_, _, _, "WRITE", pid, file, from, to] = fields[..] else { return None };
    let is_it = file.rsplit(':').next()?.parse() == Ok(inode)
        && from.parse::<u64>().ok()? <= WRITE_LOCK
        && to.parse().unwrap_or(u64::MAX) >= WRITE_LOCK;
    pid.parse().ok().filter(|pid| is_it && *pid > 0 && *pid != std::process::id())
}

/// Converts an error of a write in this directory: a lock, no room, or a failure.
pub(super) fn refused(error: Error, directory: &Path) -> StoreError {
    if is_busy(&error) {
        return StoreError::Busy(format!("{}{UNLOCK}", owner(directory).unwrap_or_default()));
    }
    if is_full(&error, directory) { StoreError::Full(format!("SQLite: {error}")) } else { failed(error) }
}

/// True if the error means that there is no room.
///
/// SQLite reports a full disk and the limit of the file. SQLite does not report a quota, and a
/// failed write has many causes, so a probe file asks the file system. A failed sync never counts
/// as lack of room, because its data may be lost.
fn is_full(error: &Error, directory: &Path) -> bool {
    let Error::SqliteFailure(cause, _) = error else { return false };
    match (cause.code, cause.extended_code) {
        (ErrorCode::DiskFull, _) | (_, ffi::SQLITE_IOERR_SHMSIZE) => true,
        (_, ffi::SQLITE_IOERR_WRITE) => probe(directory).is_err_and(|error| is_want_of_room(&error)),
        _ => false,
    }
}

fn probe(directory: &Path) -> io::Result<()> {
    let path = directory.join("probe");
    let written = std::fs::File::create(&path).and_then(|mut file| {
        file.write_all(&[0; PROBE])?;
        file.sync_all()
    });
    written.and(std::fs::remove_file(&path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_write_is_found_among_the_systems_locks() {
        let line = "1: POSIX  ADVISORY  WRITE 1234 08:01:5678 120 120";
        assert_eq!(owner_in(line, 5678), Some(1234));
        assert_eq!(owner_in(line, 678), None, "another file");
        assert_eq!(owner_in(&line.replace("120 120", "121 121"), 5678), None, "another lock");
        assert_eq!(owner_in(&line.replace("120 120", "0 EOF"), 5678), Some(1234));
        assert_eq!(owner_in(&line.replace("WRITE", "READ"), 5678), None);
        assert_eq!(owner_in("1: -> POSIX  ADVISORY  WRITE 99 08:01:5678 120 120", 5678), None, "it waits");
    }
}
