//! A new base of a cluster: the database of one directory takes the place of the whole log before it.
//! `homing cluster init --from-store` begins a cluster with it, and `homing cluster reseed` goes on
//! after an alarm.
//!
//! The database is put into the engine as a snapshot, under a position far behind all that the log has
//! or had. So an owner of before cannot append any more: its frames name another last position. Then
//! one change of the row of the cluster names the new log, and the position at which it begins: that is
//! the moment from which the base counts. What is left is to move the end of the log there, which
//! whoever comes first does: the command itself, the same command again, or a node that starts.
//!
//! | killed | what remains |
//! |---|---|
//! | before the row | all is as before, and a snapshot that nobody names: the next one removes it |
//! | after the row | the row says that the log has to begin: [`finish`] |

use super::engine::{Engine, EngineError, SnapshotError};
use super::follower::{Arrival, Follower};
use super::row::{ALARM, BASE, CLUSTER, ClusterRow, NODE, Pointer, SNAPSHOT, alarm_key, read_node};
use super::tail::Tail;
use crate::clock;
use crate::config::DurabilityLevel;
use crate::store::sqlite::base::{copy_database, mark_of, rebase};
use crate::store::sqlite::directory::database_in;
use crate::store::sqlite::inspect::StoreInspection;
use crate::store::sqlite::{Mark, Sqlite, SqliteOptions};
use crate::store::{Moment, StoreError};
use bytes::Bytes;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Positions between the end of all logs before and a base. No node has written so many that nobody
/// knows of.
const STEP: u64 = 1 << 20;
/// Bytes of the log that are read at once.
const READ: usize = 4 << 20;
/// The name of the folder in the data directory in which a base is made.
const FOLDER: &str = "new-base";
/// The time for which a change of the row of the cluster is tried.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 0 } else { 30 });
/// The time between two attempts.
const AGAIN: Duration = Duration::from_millis(500);

/// Why there is no new base. The cluster is as before.
#[derive(Debug, thiserror::Error)]
pub(super) enum BaseError {
    #[error("{0}")]
    Engine(#[from] EngineError),
    #[error("{0}")]
    Store(#[from] StoreError),
    #[error("the snapshot: {0}")]
    Snapshot(#[from] SnapshotError),
    #[error("{0}: {1}")]
    File(PathBuf, io::Error),
    #[error(
        "another `homing cluster` command has changed the cluster meanwhile: `homing cluster status` shows it"
    )]
    Overtaken,
}

/// A database that is to be the base. Its files are removed with it.
pub(super) struct Base {
    folder: PathBuf,
    /// The data directory, locked against another command.
    _lock: File,
    /// The last frame that it has.
    pub mark: Mark,
}

impl Base {
    /// Copies the database of a node, and adds the frames of the log that continue it. The node may
    /// run, if nothing comes in any more.
    ///
    /// # Errors
    /// A file or the log cannot be read.
    pub(super) fn of_node(engine: &dyn Engine, data: &Path, log: u64) -> Result<Base, BaseError> {
        let mut base = Base::begin(data)?;
        copy_database(&database_in(data), &database_in(&base.folder), || true)?;
        let options = SqliteOptions { durability: DurabilityLevel::Commit, size_limit: None };
        let mut follower = Follower::new(Sqlite::open(&base.folder, options)?)?;
        let mut tail = Tail::new(log, 0, follower.mark());
        let read = Moment::now();
        'log: loop {
            let frames = engine.read(tail.mark().position, READ)?;
            if frames.is_empty() {
                break;
            }
            for (position, bytes) in frames {
                let Ok(next) = follower.read(&tail, position, &bytes) else { break 'log };
                follower.take(&mut tail, next, &bytes, Arrival::Late(read), read.monotonic);
            }
            follower.write_due(read.monotonic)?;
        }
        base.mark = follower.finish()?.1;
        Ok(base)
    }

    /// Copies the store of a broker by itself, its own log included.
    ///
    /// # Errors
    /// A file cannot be read, or the directory has no store.
    pub(super) fn of_broker(data: &Path) -> Result<Base, BaseError> {
        let mut base = Base::begin(data)?;
        let copy = database_in(&base.folder);
        StoreInspection::open(data)?.backup(&copy)?;
        base.mark = mark_of(&copy)?.1;
        Ok(base)
    }

    fn begin(data: &Path) -> Result<Base, BaseError> {
        let folder = data.join(FOLDER);
        let lock = File::open(data).map_err(|error| BaseError::File(data.to_owned(), error))?;
        // The lock of the broker is another one, which its process has.
        let used = io::Error::other("another `homing cluster` command uses it");
        lock.try_lock().map_err(|_| BaseError::File(data.to_owned(), used))?;
        // What an attempt has left that was killed.
        let removed = fs::remove_dir_all(&folder);
        let made = match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => DirBuilder::new().mode(0o700).create(&folder),
        };
        made.map_err(|error| BaseError::File(folder.clone(), error))?;
        Ok(Base { folder, _lock: lock, mark: Mark::default() })
    }

    /// Makes this database the base of the cluster, of which `before` is the row with its revision, 0
    /// for none. `row` is the next row, in which the position is added. The base counts if this returns
    /// a row.
    ///
    /// # Errors
    /// The engine does not do it in time. If the row was being changed, it may have been.
    pub(super) fn put(
        &self,
        engine: &dyn Engine,
        before: u64,
        row: ClusterRow,
    ) -> Result<ClusterRow, BaseError> {
        let position = reserve(engine, self.mark.position)?;
        let database = database_in(&self.folder);
        rebase(&database, row.log, &Mark { position, ..self.mark })?;
        let file = File::open(&database);
        let mut file = file.map_err(|error| BaseError::File(database.clone(), error))?;
        engine.put_snapshot(position, &mut file)?;
        let row = ClusterRow { begins: Some(position), ..row };
        change(engine, before, &row)?;
        Ok(row)
    }
}

impl Drop for Base {
    fn drop(&mut self) {
        // The next attempt removes what stays.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Returns a position for a base that no other attempt gets.
fn reserve(engine: &dyn Engine, own: u64) -> Result<u64, BaseError> {
    let last = engine.bounds()?.last;
    let rows = engine.rows()?;
    let reported = rows.iter().filter(|(key, _)| key.starts_with(NODE));
    let reported = reported.filter_map(|(_, row)| read_node(&row.value)).map(|row| row.position).max();
    let before = rows.iter().find(|(key, _)| key == BASE).map(|(_, row)| row);
    let reserved = before.and_then(|row| std::str::from_utf8(&row.value).ok()?.parse().ok()).unwrap_or(0);
    let known = own.max(last).max(reported.unwrap_or(0)).max(reserved);
    let position = (known / STEP + 2) * STEP;
    let revision = before.map_or(0, |row| row.revision);
    let swapped = engine.swap_row(BASE, revision, Bytes::from(position.to_string()))?;
    swapped.map(|_| position).ok_or(BaseError::Overtaken)
}

/// Changes the row of the cluster from this revision. Repeats what has no answer: the row says in the
/// end whether it was changed.
fn change(engine: &dyn Engine, before: u64, row: &ClusterRow) -> Result<(), BaseError> {
    let until = clock::now() + PATIENCE;
    loop {
        let error = match engine.swap_row(CLUSTER, before, row.bytes()) {
            Ok(Some(_)) => return Ok(()),
            Ok(None) => None,
            Err(error) => Some(error),
        };
        if let Ok(found) = engine.row(CLUSTER) {
            let revision = found.as_ref().map_or(0, |found| found.revision);
            // Somebody else may have finished it already.
            if found
                .and_then(|found| ClusterRow::read(&found.value))
                .is_some_and(|found| found.log == row.log)
            {
                return Ok(());
            }
            if revision != before {
                return Err(BaseError::Overtaken);
            }
        }
        if clock::now() >= until {
            return Err(error.map_or(BaseError::Overtaken, BaseError::Engine));
        }
        std::thread::sleep(AGAIN);
    }
}

/// Moves the log to its base, if the row of the cluster says that this is left to do. It may be called
/// by several at once, and again.
///
/// # Errors
/// The engine does not answer. It is to be called again then.
pub(super) fn finish(engine: &dyn Engine) -> Result<(), EngineError> {
    let Some(found) = engine.row(CLUSTER)? else { return Ok(()) };
    let Some(cluster) = ClusterRow::read(&found.value) else { return Ok(()) };
    let Some(position) = cluster.begins else { return Ok(()) };
    point_to(engine, position)?;
    if engine.bounds()?.last < position {
        engine.begin_behind(position)?;
    }
    // If the row is another one by now, somebody else has finished.
    let row = ClusterRow { begins: None, ..cluster.clone() };
    engine.swap_row(CLUSTER, found.revision, row.bytes())?;
    // All that counted before, and counts no more. A later snapshot removes what stays.
    let _ = engine.remove_snapshots(position);
    let rows = engine.rows().unwrap_or_default();
    let is_old = |key: &&String| key.starts_with(ALARM) && **key != alarm_key(cluster.log);
    rows.iter().map(|(key, _)| key).filter(is_old).for_each(|key| drop(engine.remove_row(key)));
    Ok(())
}

/// Makes the snapshot of a position the newest one, if there is none that is newer.
fn point_to(engine: &dyn Engine, position: u64) -> Result<(), EngineError> {
    let pointer = Pointer { position, before: 0 };
    let until = clock::now() + PATIENCE;
    loop {
        let row = engine.row(SNAPSHOT)?;
        if row.as_ref().is_some_and(|row| Pointer::read(&row.value).position >= position) {
            return Ok(());
        }
        let revision = row.map_or(0, |row| row.revision);
        if engine.swap_row(SNAPSHOT, revision, pointer.bytes())?.is_some() {
            return Ok(());
        }
        if clock::now() >= until {
            return Err(EngineError::TimedOut(format!("the row {SNAPSHOT:?} changes again and again")));
        }
    }
}
