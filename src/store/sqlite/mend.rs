//! Goes on without what is damaged: copies the sound rows of a database into a new one.
//!
//! Rows that belong to a row that is lost are copied, too. The next start removes them, and says
//! so.

use super::digest::{META, TABLES, Table};
use super::directory::Directory;
use super::error::failed;
use super::inspect::existing_database;
use super::{check_write_ahead_log, open_alone, open_for, read_mark, schema};
use crate::store::StoreError;
use crate::store::files;
use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags, Result, params_from_iter};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A database that was mended.
#[derive(Debug)]
pub struct Mended {
    /// Each row that is lost, or rows that cannot be reached, as a line.
    pub lost: Vec<String>,
    /// The database as it was.
    pub aside: PathBuf,
}

/// Puts a database with all sound rows in place of the one in a data directory.
///
/// # Errors
/// A broker uses the directory; the place in the log is lost; or the new database cannot be
/// written. Then the old one stays in place.
pub fn mend(path: &Path) -> Result<Mended, StoreError> {
    let database = existing_database(path)?;
    let directory = Directory::open(path)?;
    let aside = path.join("homing.db.damaged");
    if aside.exists() {
        let text = format!("{} is there from another time: move it away", aside.display());
        return Err(StoreError::Failed(text));
    }
    let explain = |error: io::Error| StoreError::Failed(format!("{}: {error}", path.display()));
    let new = path.join("homing.db.new");
    files::delete(&new).and_then(|()| files::create_new(&new)).map_err(explain)?;
    let lost = {
        let source = source(&database, &directory)?;
        let to = Connection::open(&new).map_err(failed)?;
        schema::prepare(&to, None)?;
        copy(&source, &to)?
    };
    // The new file is on the disk: SQLite syncs what it commits.
    fs::hard_link(&database, &aside).map_err(explain)?;
    let log = directory.write_ahead_log();
    if log.exists() {
        fs::rename(&log, path.join("homing.db.damaged-wal")).map_err(explain)?;
    }
    let _ = fs::remove_file(path.join("homing.db-shm"));
    fs::rename(&new, &database).map_err(explain)?;
    files::sync(path).map_err(explain)?;
    Ok(Mended { lost, aside })
}

/// Opens the damaged database: without its write-ahead log, if that is damaged.
fn source(database: &Path, directory: &Directory) -> Result<Connection, StoreError> {
    if check_write_ahead_log(database).is_err() {
        return open_alone(database).map_err(failed);
    }
    let source = open_for(database, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    schema::prepare(&source, directory.last_written())?;
    Ok(source)
}

/// Copies all sound rows. Returns a line for each that is lost.
fn copy(source: &Connection, to: &Connection) -> Result<Vec<String>, StoreError> {
    to.execute_batch("BEGIN IMMEDIATE").map_err(failed)?;
    let mut lost = Vec::new();
    for table in TABLES {
        copy_table(table, source, to, &mut lost)?;
    }
    let figures_of = |connection| {
        let count = format!("SELECT count(*) FROM {}", META.name);
        Connection::query_row(connection, &count, [], |row| row.get::<_, i64>(0)).unwrap_or(-1)
    };
    if figures_of(source) != figures_of(to) || read_mark(to).is_err() {
        return Err(StoreError::Failed(
            "the place of the database in the log is damaged: put a backup in place of the store".into(),
        ));
    }
    to.execute_batch("COMMIT").map_err(failed)?;
    Ok(lost)
}

/// Copies the sound rows of a table. Where the table is broken, copies from both ends up to there.
fn copy_table(
    table: &Table,
    source: &Connection,
    to: &Connection,
    lost: &mut Vec<String>,
) -> Result<(), StoreError> {
    for direction in ["ASC", "DESC"] {
        let Err(error) = copy_rows(table, direction, source, to, lost)? else { return Ok(()) };
        if direction == "ASC" {
            lost.push(format!("{}: rows that cannot be reached ({}): {error}", table.name, table.what));
        }
    }
    Ok(())
}

/// Copies rows in one direction. Returns the error of the reading as a value.
fn copy_rows(
    table: &Table,
    direction: &str,
    source: &Connection,
    to: &Connection,
    lost: &mut Vec<String>,
) -> Result<Result<()>, StoreError> {
    let (columns, is_sound, order) = (table.select(""), table.is_sound(""), table.order(direction));
    let read = format!("SELECT {columns}, {is_sound} FROM {} ORDER BY {order}", table.name);
    let mut read = match source.prepare(&read) {
        Ok(read) => read,
        Err(error) => return Ok(Err(error)),
    };
    let count = read.column_count() - 1;
    let mut write = to.prepare(&table.insert_missing()).map_err(failed)?;
    let mut rows = match read.query([]) {
        Ok(rows) => rows,
        Err(error) => return Ok(Err(error)),
    };
    loop {
        let row = match rows.next() {
            Ok(Some(row)) => row,
            Ok(None) => return Ok(Ok(())),
            Err(error) => return Ok(Err(error)),
        };
        if row.get(count).unwrap_or(false) {
            let values = (0..count).map(|at| row.get::<_, Value>(at));
            let values = values.collect::<Result<Vec<Value>>>().map_err(failed)?;
            write.execute(params_from_iter(values)).map_err(failed)?;
        } else {
            let line = table.key_of(row);
            if !lost.contains(&line) {
                lost.push(line);
            }
        }
    }
}
