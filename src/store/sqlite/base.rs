//! A whole database, made from one that is in use, for a copy of the store.

use super::digest::META;
use super::directory::database_in;
use super::error::failed;
use super::{Mark, Sqlite, open_for, owner, read_applied, schema, write_mark};
use crate::store::StoreError;
use crate::store::files;
use crate::store::log::recovery::Applied;
use rusqlite::{OpenFlags, params};
use std::fs;
use std::io;
use std::path::Path;

/// Number of SQLite's instructions between two questions.
const INSTRUCTIONS: i32 = 10_000;

/// Copies a database, as of one moment, into a new file that only its owner may read. An older file
/// by this name is replaced. Nobody waits for the copy: a reader holds up no writer. Stops with an
/// error once `goes_on` returns false.
///
/// # Errors
/// A file cannot be read or written.
pub fn copy_database(
    from: &Path,
    to: &Path,
    mut goes_on: impl FnMut() -> bool + Send + 'static,
) -> Result<(), StoreError> {
    let explain = |error: io::Error| StoreError::Failed(error.to_string());
    files::delete(to).map_err(explain)?;
    let Some(text) = to.to_str() else { return Err(explain(io::Error::other("its name is not UTF-8"))) };
    // SQLite fills a file that is empty, and keeps its mode.
    files::create_new(to).map_err(explain)?;
    let mut source = open_for(from, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    source.progress_handler(INSTRUCTIONS, Some(move || !goes_on())).map_err(failed)?;
    let copied = source.execute("VACUUM INTO ?", [text]);
    if copied.is_err() {
        let _ = fs::remove_file(to);
    }
    copied.map(drop).map_err(failed)
}

/// Returns the place in its log up to which a database has everything, and its mark.
///
/// # Errors
/// The file is no database of ours, or of a newer version.
pub fn mark_of(database: &Path) -> Result<(Applied, Mark), StoreError> {
    let connection = open_for(database, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    schema::check_version(&connection)?;
    read_applied(&connection).map_err(failed)
}

/// Returns the identifier of a database's directory in its cluster; 0 if it is of none.
///
/// # Errors
/// The file is no database.
pub fn directory_of(database: &Path) -> Result<u64, StoreError> {
    let connection = open_for(database, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    owner::read_directory(&connection).map_err(failed)
}

/// Checks that a data directory is none of a node of a cluster, whose log is not beside its database.
///
/// # Errors
/// It is one: the line names the directory, and the commands for it. Or the file is no database.
pub fn refuse_node(data: &Path) -> Result<(), StoreError> {
    match directory_of(&database_in(data))? {
        0 => Ok(()),
        _ => Err(StoreError::Failed(format!(
            "{} belongs to a cluster, whose log is in NATS and is not cut here: see `homing cluster status`, or run \
             `homing cluster leave` to make it the store of a broker by itself",
            data.display()
        ))),
    }
}

/// Makes a database of another node, which no broker uses, one of a directory of a cluster, under this
/// identifier. The clocks of its last heartbeat are those of the other machine, and are dropped.
///
/// # Errors
/// The file cannot be written.
pub fn adopt(database: &Path, directory: u64) -> Result<(), StoreError> {
    let connection = open_for(database, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let write = || {
        let transaction = connection.unchecked_transaction()?;
        let mark = read_applied(&transaction)?.1;
        write_mark(&transaction, &Mark { moment: mark.moment.without_clocks(), ..mark })?;
        owner::write_directory(&transaction, directory)?;
        transaction.commit()
    };
    write().map_err(failed)
}

/// Makes a database that no broker uses the beginning of a log: as of this mark, and of no directory.
/// Everything is in the one file then.
///
/// # Errors
/// The file cannot be written.
pub fn rebase(database: &Path, log: u64, mark: &Mark) -> Result<(), StoreError> {
    let connection = open_for(database, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let write = || {
        let transaction = connection.unchecked_transaction()?;
        META.put(&mut transaction.prepare(&META.replace())?, params!["log", log as i64])?;
        write_mark(&transaction, mark)?;
        owner::write_directory(&transaction, 0)?;
        transaction.commit()?;
        connection.query_row("PRAGMA journal_mode = DELETE", [], |_| Ok(()))
    };
    write().map_err(failed)
}

/// Moves the mark of a database that no broker uses behind frames that change nothing.
///
/// # Errors
/// The file cannot be written.
pub fn move_mark(database: &Path, mark: &Mark) -> Result<(), StoreError> {
    let connection = open_for(database, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let write = || {
        let transaction = connection.unchecked_transaction()?;
        write_mark(&transaction, mark)?;
        transaction.commit()
    };
    write().map_err(failed)
}

impl Sqlite {
    /// Takes the identifier of its log from a database: the next broker begins a log of its own.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn leave_log(&mut self) -> Result<(), StoreError> {
        match self.connection.execute("DELETE FROM meta WHERE name = 'log'", []) {
            Ok(_) => Ok(()),
            Err(error) => Err(self.refuse(error)),
        }
    }
}
