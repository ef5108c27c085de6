//! What SQLite's errors mean to a broker: there is no room, or it must not go on.

use crate::store::StoreError;
use rusqlite::{Error, ErrorCode, ffi};
use std::io::{self, Write};
use std::path::Path;

/// More than a file system rounds a small file up to.
const PROBE: usize = 64 * 1024;

/// Nothing but a failure, wherever room is not the question.
pub fn failed(error: Error) -> StoreError {
    StoreError::Failed(format!("SQLite: {error}"))
}

/// What a write that was refused means in this directory.
pub fn refused(error: Error, directory: &Path) -> StoreError {
    if is_full(&error, directory) { StoreError::Full(format!("SQLite: {error}")) } else { failed(error) }
}

/// SQLite says so where the disk or the file's own limit is full. It does not where a quota is, and a failed write has many
/// causes; so a file of our own asks the file system. A failed sync is never taken for want of room: what it was to write may
/// be lost.
fn is_full(error: &Error, directory: &Path) -> bool {
    let Error::SqliteFailure(cause, _) = error else { return false };
    match (cause.code, cause.extended_code) {
        (ErrorCode::DiskFull, _) | (_, ffi::SQLITE_IOERR_SHMSIZE) => true,
        (_, ffi::SQLITE_IOERR_WRITE) => probe(directory).is_err_and(|error| is_want_of_room(&error)),
        _ => false,
    }
}

pub fn is_want_of_room(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

fn probe(directory: &Path) -> io::Result<()> {
    let path = directory.join("probe");
    let written = std::fs::File::create(&path).and_then(|mut file| {
        file.write_all(&[0; PROBE])?;
        file.sync_all()
    });
    written.and(std::fs::remove_file(&path))
}
