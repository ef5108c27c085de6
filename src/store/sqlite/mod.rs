//! The database of a store: `homing.db` in the data directory, an SQLite file with a write-ahead
//! log. It is behind the log of frames, and says how far.
//!
//! | file | what |
//! |---|---|
//! | [`directory`] | the lock and the reserve |
//! | [`base`] | a whole database for a copy of the store |
//! | [`schema`] | the tables and their version |
//! | `write` | a commit group as statements |
//! | `recover` | everything that is stored, at the start |
//! | `read` | pages of queues, delayed messages |
//! | [`owner`] | what a cluster adds to the figures |
//! | `row` | rows as values |
//! | [`inspect`] | commands of an operator: check, dump, backup |
//! | `digest` | the digest of each row |
//! | [`mend`] | goes on without what is damaged |
//! | `error` | the errors that mean that there is no room |

pub mod base;
mod digest;
pub mod directory;
mod error;
pub mod inspect;
pub mod mend;
pub mod owner;
mod read;
mod recover;
mod row;
pub mod schema;
mod write;

use super::database::Database;
use super::wall::{FileTime, Heartbeat, resume};
use super::{Boot, Moment, OpenReader, StoreError};
use crate::config::DurabilityLevel;
use crate::persistence::records::{BodyCopy, Recovered};
use crate::store::coalesce::CommitGroup;
use crate::store::frame::{Digest, Head};
use crate::store::log::recovery::Applied;
use crate::store::statistics::StoreStatistics;
use digest::{BODY, ENTRY, META};
use directory::{Directory, RESERVE};
use error::{GO_ON, failed, refused};
use owner::OwnerMark;
use read::SqliteReader;
use recover::Recovery;
use rusqlite::types::Type;
use rusqlite::{
    CachedStatement, Connection, OpenFlags, OptionalExtension, Transaction, TransactionBehavior, params,
};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::thread::Builder;
use std::time::Duration;
use tracing::warn;
use write::Statements;

/// Pages in the write-ahead log from which on the log is written back into the database, after the
/// commit was reported. A larger number spreads the write-back over more commits, and costs
/// more disk and a longer start after a crash.
const CHECKPOINT_PAGES: i32 = 4096;
/// Bytes to which the write-ahead log is truncated after it was longer: for a commit of many
/// messages, or for a reader that kept it from being reused.
const JOURNAL_BYTES: u64 = 64 * 1024 * 1024;
/// KiB of pages that the writing connection caches: the ends of tables and the inner nodes, not the
/// queues.
const CACHE_KIB: u32 = 16 * 1024;
/// The time that a start and a reader wait for another process with a transaction, such as
/// `sqlite3`.
const BUSY: Duration = if cfg!(test) { Duration::from_millis(300) } else { Duration::from_secs(10) };
/// The same time for the writer of a running broker, which then tries again and logs it.
const BUSY_WRITING: Duration = Duration::from_millis(300);
/// Steps of the check of a file after which it counts as going on.
const STEPS: i32 = 100_000;
/// The largest number of pages that SQLite allows a file.
const MOST_PAGES: u64 = 0xFFFF_FFFE;
/// The settings of the store.
#[derive(Clone, Copy, Debug)]
pub struct SqliteOptions {
    /// The promise behind a commit.
    pub durability: DurabilityLevel,
    /// The largest size of `homing.db` in bytes; `None` for no limit but the disk.
    pub size_limit: Option<u64>,
}

/// The store in an SQLite file, open for writing.
pub struct Sqlite {
    connection: Connection,
    directory: Directory,
    options: SqliteOptions,
    opened: FileTime,
    page_size: u64,
    /// Pages in the write-ahead log after the last commit.
    log_pages: Arc<AtomicI32>,
    /// The reserve was deleted and does not exist again yet.
    is_relieved: bool,
    /// Counts what a recovery has read.
    progress: Arc<AtomicU64>,
}

impl Sqlite {
    /// Opens the store of a data directory, which is created if it does not exist.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be used or is in use, or if its file is of another
    /// program or of a newer version.
    pub fn open(path: &Path, options: SqliteOptions) -> Result<Sqlite, StoreError> {
        let directory = Directory::open(path)?;
        let written = directory.last_written();
        check_write_ahead_log(&directory.database())?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(directory.database(), flags).map_err(failed)?;
        let in_directory = |error| match error {
            StoreError::Full(why) => StoreError::Full(format!("{}: {why}", path.display())),
            StoreError::Failed(why) => StoreError::Failed(format!("{}: {why}", path.display())),
            other => other,
        };
        let set_up = |connection: &mut Connection| {
            set_up(connection, options).map_err(|error| refused(error, directory.path()))
        };
        let log_pages = match set_up(&mut connection) {
            // The index of the log needs room, and a full disk must not keep the broker from
            // starting.
            Err(StoreError::Full(_)) => {
                directory.free_reserve();
                set_up(&mut connection)
            }
            other => other,
        };
        let log_pages = log_pages.map_err(in_directory)?;
        schema::prepare(&connection, written).map_err(in_directory)?;
        directory.has_store();
        let page_size = pragma(&connection, "PRAGMA page_size")?;
        let mut store = Sqlite {
            connection,
            directory,
            options,
            opened: FileTime::default(),
            page_size,
            log_pages,
            is_relieved: false,
            progress: Arc::default(),
        };
        store.is_relieved = !store.directory.restore_reserve()?;
        store.limit_pages()?;
        Ok(store)
    }

    /// Tells SQLite the largest number of pages. With more pages in the file, SQLite takes their
    /// number.
    fn limit_pages(&self) -> Result<(), StoreError> {
        let limit = self.options.size_limit.map_or(MOST_PAGES, |bytes| (bytes / self.page_size).max(1));
        let pages = signed(limit.min(MOST_PAGES));
        let set = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
        self.connection.pragma_update_and_check(None, "max_page_count", pages, set).map_err(failed)?;
        Ok(())
    }

    /// Returns the used and the free bytes of the database, as of the last commit.
    fn measure(&self) -> Result<(u64, u64), StoreError> {
        let pages: u64 = pragma(&self.connection, "PRAGMA page_count")?;
        let free: u64 = pragma(&self.connection, "PRAGMA freelist_count")?;
        Ok(((pages - free) * self.page_size, free * self.page_size))
    }

    /// Converts the error of a write. Without room, the reserve is deleted and the write-ahead log
    /// is written back, so that the log starts again in the room that it has.
    fn refuse(&mut self, error: rusqlite::Error) -> StoreError {
        let refusal = refused(error, self.directory.path());
        if matches!(refusal, StoreError::Full(_)) {
            self.open_reserve();
            if let Err(failure @ StoreError::Failed(_)) = self.write_back("PASSIVE") {
                return failure;
            }
        }
        refusal
    }

    /// Writes the write-ahead log back, as far as readers allow; the next call continues. SQLite's
    /// automatic checkpoint would not report a failure.
    fn write_back(&self, how: &str) -> Result<(), StoreError> {
        let sql = format!("PRAGMA wal_checkpoint({how})");
        let written = self.connection.query_row(&sql, [], |_| Ok(()));
        written.map_err(|error| refused(error, self.directory.path()))
    }

    /// Returns the room on the disk in bytes, without the reserve. Everything is written twice,
    /// first into the write-ahead log.
    fn room_on_disk(&self, free: u64) -> Result<i64, StoreError> {
        let space = self.directory.space()?;
        let beyond = if self.is_relieved { RESERVE / 4 * 3 } else { 0 };
        Ok(signed(space / 2 + free).saturating_sub(signed(beyond)))
    }

    /// Truncates the write-ahead log if it is as large as the reserve and no reader is in the way.
    /// Returns true if it did. A shorter log stays: records that free room are written there, even
    /// if others fill the disk.
    fn truncate_log(&self) -> Result<bool, StoreError> {
        if std::fs::metadata(self.directory.write_ahead_log()).map_or(0, |log| log.len()) < RESERVE {
            return Ok(false);
        }
        self.connection.busy_timeout(Duration::ZERO).map_err(failed)?;
        let result = self.write_back("TRUNCATE");
        self.connection.busy_timeout(BUSY_WRITING).map_err(failed)?;
        match result {
            Ok(()) => Ok(true),
            Err(StoreError::Full(_) | StoreError::Busy(_)) => Ok(false),
            Err(failure) => Err(failure),
        }
    }
}

/// The file as of its last transaction: everything up to this frame of the log is in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// The position of the frame; 0 before the first one.
    pub position: u64,
    /// The digest of the frame.
    pub digest: Digest,
    /// The moment of the last frame.
    pub moment: Heartbeat,
    /// A number above every number that was given to a row up to the frame.
    pub next_number: u64,
    /// The last Claim up to the frame; `None` without a cluster.
    pub owner: Option<OwnerMark>,
}

impl Mark {
    /// Returns true for a database that no broker has ever used. One that has left a log is at
    /// position 0, and is not new.
    pub fn is_new(&self) -> bool {
        *self == Mark::default()
    }

    /// Returns the mark of a frame that comes next.
    pub fn behind(&self, head: &Head, digest: Digest) -> Mark {
        let Head { position, moment, next_number, .. } = *head;
        let next_number = next_number.max(self.next_number);
        Mark { position, digest, moment, next_number, owner: self.owner }
    }
}

/// The room of the file and its disk, as of the last transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Bytes of the file, free pages included.
    pub bytes: u64,
    /// Bytes that may be added before there is no room for new messages; negative beyond that.
    pub room: i64,
    /// True if there is room for new messages.
    pub has_room: bool,
}

impl Sqlite {
    /// Returns the place in its log up to which the file has everything, and the mark. The position
    /// is 0 in a file that never had a log.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn applied(&self) -> Result<(Applied, Mark), StoreError> {
        read_applied(&self.connection).map_err(failed)
    }

    /// Sets the identifier of the log that goes on from the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn set_log_id(&mut self, id: u64) -> Result<(), StoreError> {
        let put = |connection: &Connection| {
            META.put(&mut connection.prepare(&META.replace())?, params!["log", id as i64]).map(drop)
        };
        put(&self.connection).map_err(|error| self.refuse(error))
    }

    /// Returns the identifier of the directory in its cluster; 0 if it is of none.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn cluster_directory(&self) -> Result<u64, StoreError> {
        owner::read_directory(&self.connection).map_err(failed)
    }

    /// Makes the directory one of a cluster, under this identifier.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn join_cluster(&mut self, id: u64) -> Result<(), StoreError> {
        owner::write_directory(&self.connection, id).map_err(|error| self.refuse(error))
    }

    /// Makes the database that of a broker by itself, at the beginning of a new log.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn leave_cluster(&mut self) -> Result<(), StoreError> {
        let written = self.in_transaction(|transaction| {
            owner::forget(transaction)?;
            let mark = read_mark(transaction)?;
            META.put(&mut transaction.prepare(&META.replace())?, params!["log", 0]).map(drop)?;
            write_mark(transaction, &Mark { position: 0, digest: Digest::default(), owner: None, ..mark })
        });
        written.map_err(|error| self.refuse(error))
    }

    /// Runs a write in one transaction. A failure rolls it back.
    fn in_transaction(
        &self,
        write: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        let transaction = Transaction::new_unchecked(&self.connection, TransactionBehavior::Immediate)?;
        write(&transaction)?;
        transaction.commit()
    }

    fn has_room(&mut self, used: u64, free: u64) -> Result<bool, StoreError> {
        if self.options.size_limit.is_some_and(|limit| used + RESERVE > limit) {
            return Ok(false);
        }
        if !self.is_relieved || free >= RESERVE {
            return Ok(true);
        }
        let restored =
            self.directory.restore_reserve()? || self.truncate_log()? && self.directory.restore_reserve()?;
        self.is_relieved = !restored;
        Ok(!self.is_relieved)
    }

    /// Deletes the reserve, so that others have its room. [`Sqlite::figures`] creates it again once
    /// there is room.
    pub fn open_reserve(&mut self) {
        self.directory.free_reserve();
        self.is_relieved = true;
    }
}

impl Database for Sqlite {
    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn mark(&self) -> Result<Mark, StoreError> {
        self.applied().map(|(_, mark)| mark)
    }

    fn apply(&mut self, group: &CommitGroup, time: FileTime, mark: &Mark) -> Result<(), StoreError> {
        let written = self.in_transaction(|transaction| {
            write_mark(transaction, mark)?;
            Statements::new(transaction, time)?.write(group)
        });
        written.map_err(|error| self.refuse(error))
    }

    fn apply_ahead(&mut self, group: &CommitGroup, time: FileTime) -> Result<(), StoreError> {
        let written =
            self.in_transaction(|transaction| Statements::new(transaction, time)?.write_ahead(group));
        written.map_err(|error| self.refuse(error))
    }

    fn apply_copies(&mut self, copies: &[BodyCopy], mark: &Mark) -> Result<(), StoreError> {
        let written = self.in_transaction(|transaction| {
            write_mark(transaction, mark)?;
            copies.iter().try_for_each(|copy| copy_body(transaction, copy))
        });
        written.map_err(|error| self.refuse(error))
    }

    fn disconnect(&mut self, ended_ms: u64, mark: &Mark) -> Result<(), StoreError> {
        let written = self.in_transaction(|transaction| {
            write_mark(transaction, mark)?;
            write::disconnect(transaction, ended_ms, mark.moment.file_millis)
        });
        written.map_err(|error| self.refuse(error))
    }

    fn recover(&mut self, now: Moment, horizon: Duration) -> Result<(Recovered, CommitGroup), StoreError> {
        let last = read_heartbeat(&self.connection).map_err(failed)?;
        let resumed = resume(last, now);
        self.opened = resumed.time;
        if let Some(why) = resumed.unknown {
            warn!(
                event = "store.downtime_unknown",
                why,
                "the time that the broker was down is unknown and counts as zero, so sessions and messages may live longer; \
                 start the broker after the clock is set"
            );
        }
        let (database, progress) = (self.directory.database(), Arc::clone(&self.progress));
        // Beside the recovery, for machines with a second core.
        let checking =
            Builder::new().name("homing-check".into()).spawn(move || check_structure(&database, progress));
        let checking =
            checking.map_err(|error| StoreError::Failed(format!("a thread for the store: {error}")))?;
        let transaction = self.connection.unchecked_transaction().map_err(failed)?;
        let recovered =
            Recovery::new(&transaction, self.opened, Arc::clone(&self.progress)).run(now.monotonic, horizon);
        let structure = checking
            .join()
            .unwrap_or_else(|_| Err(StoreError::Failed("the check of the store panicked".into())));
        let (recovered, mends) = recovered.map_err(failed)?;
        structure?;
        Ok((Recovered { down: resumed.down, ..recovered }, mends))
    }

    fn heartbeat(&self) -> Result<Option<Heartbeat>, StoreError> {
        read_heartbeat(&self.connection).map_err(failed)
    }

    fn wait_shortly(&self) -> Result<(), StoreError> {
        self.connection.busy_timeout(BUSY_WRITING).map_err(failed)
    }

    fn progress(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.progress)
    }

    fn time(&self) -> FileTime {
        self.opened
    }

    fn tidy(&mut self) -> Result<(), StoreError> {
        if self.log_pages.load(Ordering::Relaxed) < CHECKPOINT_PAGES {
            return Ok(());
        }
        self.log_pages.store(0, Ordering::Relaxed);
        match self.write_back("PASSIVE") {
            // Everything is still in the write-ahead log.
            Err(StoreError::Busy(_)) => Ok(()),
            Err(StoreError::Full(_)) => {
                self.open_reserve();
                Ok(())
            }
            other => other,
        }
    }

    fn figures(&mut self) -> Result<Figures, StoreError> {
        let (used, free) = self.measure()?;
        let has_room = self.has_room(used, free)?;
        let on_disk = self.room_on_disk(free)?;
        let limit = self.options.size_limit.map_or(i64::MAX, signed);
        let below = limit.saturating_sub(signed(used + RESERVE));
        let room = if self.options.size_limit.is_some() { below.min(on_disk) } else { on_disk };
        Ok(Figures { bytes: used + free, room, has_room })
    }

    fn limit_size(&mut self, size_limit: Option<u64>) -> Result<(), StoreError> {
        self.options.size_limit = size_limit;
        self.limit_pages()
    }

    fn opener(&self, statistics: Arc<StoreStatistics>) -> OpenReader {
        let (database, opened) = (self.directory.database(), self.opened);
        Box::new(move || {
            let connection = open_for(&database, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
            Ok(Box::new(SqliteReader { connection, opened, statistics: Arc::clone(&statistics) }))
        })
    }
}

/// Opens a connection beside that of the broker, which waits [`BUSY`] for a lock.
fn open_for(database: &Path, access: OpenFlags) -> Result<Connection, StoreError> {
    let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(database, flags).map_err(failed)?;
    connection.busy_timeout(BUSY).map_err(failed)?;
    digest::register(&connection).map_err(failed)?;
    Ok(connection)
}

/// Opens a database without its write-ahead log, for reading.
fn open_alone(database: &Path) -> rusqlite::Result<Connection> {
    let path = database.to_string_lossy().replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let name = format!("file:{path}?immutable=1");
    let connection = Connection::open_with_flags(name, flags | OpenFlags::SQLITE_OPEN_URI)?;
    digest::register(&connection)?;
    Ok(connection)
}

/// Refuses a write-ahead log that has less than the database alone. SQLite takes a damaged frame
/// there for its end, and would mix the rest with pages that were written back later. Each
/// transaction writes its position.
///
/// # Errors
/// The write-ahead log is damaged. Other faults are left to those who open the database.
fn check_write_ahead_log(database: &Path) -> Result<(), StoreError> {
    let alone = open_alone(database).and_then(|alone| read_mark(&alone));
    let Ok(Mark { position: alone @ 1.., .. }) = alone else { return Ok(()) };
    let Ok(whole) = open_for(database, OpenFlags::SQLITE_OPEN_READ_ONLY) else { return Ok(()) };
    match read_mark(&whole) {
        Ok(whole) if whole.position < alone => Err(StoreError::Failed(format!(
            "{}-wal is damaged: the database has position {alone}, and with that file only {}. {GO_ON}",
            database.display(),
            whole.position
        ))),
        _ => Ok(()),
    }
}

/// Checks the pages, trees and indexes of a database. The digests of rows do not find a row that
/// cannot be reached.
fn check_structure(database: &Path, progress: Arc<AtomicU64>) -> Result<(), StoreError> {
    let mut connection = open_for(database, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let goes_on = move || {
        progress.fetch_add(1, Ordering::Relaxed);
        false
    };
    connection.progress_handler(STEPS, Some(goes_on)).map_err(failed)?;
    let found: String =
        connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0)).map_err(failed)?;
    if found == "ok" {
        return Ok(());
    }
    Err(StoreError::Failed(format!("{} is damaged: {found}. {GO_ON}", database.display())))
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Sets the connection up. Returns the counter of the pages in the write-ahead log.
fn set_up(connection: &mut Connection, options: SqliteOptions) -> rusqlite::Result<Arc<AtomicI32>> {
    connection.busy_timeout(BUSY)?;
    connection.set_prepared_statement_cache_capacity(32);
    let synchronous = match options.durability {
        // Frames leave the log once the file has their changes, so a power loss must not take the
        // changes from the file. Nobody waits for this sync.
        DurabilityLevel::Commit | DurabilityLevel::Interval | DurabilityLevel::Os => "FULL",
        DurabilityLevel::None => "OFF",
    };
    connection.execute_batch(&format!(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = {synchronous}; \
         PRAGMA journal_size_limit = {JOURNAL_BYTES}; PRAGMA cache_size = -{CACHE_KIB}; \
         PRAGMA temp_store = MEMORY;"
    ))?;
    let log_pages = Arc::new(AtomicI32::new(0));
    let counter = Arc::clone(&log_pages);
    // Replaces SQLite's own checkpoint within a commit: see `tidy`.
    connection.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages| {
        counter.store(pages, Ordering::Relaxed);
        Ok(())
    }))?;
    Ok(log_pages)
}

/// Returns a figure of the file. Two are read after each commit, so the statements are cached.
fn pragma(connection: &Connection, question: &str) -> Result<u64, StoreError> {
    let figure =
        connection.prepare_cached(question).and_then(|mut q| q.query_row([], |row| row::number(row, 0)));
    figure.map_err(failed)
}

/// Writes the mark of the file. An unknown boot has identifier 0.
fn write_mark(connection: &Connection, mark: &Mark) -> rusqlite::Result<()> {
    let Heartbeat { file_millis, unix_millis, boot } = mark.moment;
    let boot = boot.unwrap_or(Boot { id: 0, millis: 0 });
    let [low, high] = mark.digest.halves();
    let sql = "INSERT OR REPLACE INTO meta SELECT column1, column2, row_digest(2, column1, column2) FROM (VALUES \
        ('position', ?1), ('digest_low', ?2), ('digest_high', ?3), ('next_number', ?4), \
        ('heartbeat_ms', ?5), ('wall_ms', ?6), ('boot_id', ?7), ('boot_ms', ?8), ('mark_check', ?9))";
    let Mark { position, next_number, .. } = *mark;
    let check = check_of(position, mark.digest, next_number);
    let values = [position, low, high, next_number, file_millis, unix_millis, boot.id, boot.millis, check];
    connection.prepare_cached(sql)?.execute(values.map(|value| value as i64))?;
    mark.owner.map_or(Ok(()), |owner| owner::write_owner(connection, &owner))
}

/// Returns a checksum of a mark. SQLite has none, and frames that a wrong position leaves out would
/// be lost in silence.
fn check_of(position: u64, digest: Digest, next_number: u64) -> u64 {
    let [low, high] = digest.halves();
    Digest::of(&[position, low, high, next_number].map(u64::to_le_bytes).concat()).halves()[0]
}

/// Reads the mark in one statement, and so as of one moment.
fn read_mark(connection: &Connection) -> rusqlite::Result<Mark> {
    check_meta(connection)?;
    let sql = "SELECT \
        ifnull((SELECT value FROM meta WHERE name = 'position'), 0), \
        ifnull((SELECT value FROM meta WHERE name = 'digest_low'), 0), \
        ifnull((SELECT value FROM meta WHERE name = 'digest_high'), 0), \
        ifnull((SELECT value FROM meta WHERE name = 'next_number'), 0), \
        (SELECT value FROM meta WHERE name = 'mark_check'), \
        EXISTS (SELECT 1 FROM meta WHERE name = 'position')";
    let mark = connection.query_row(sql, [], |row| {
        let digest = Digest::from_halves([row::number(row, 1)?, row::number(row, 2)?]);
        let (position, next_number) = (row::number(row, 0)?, row::number(row, 3)?);
        let check = row.get::<_, Option<i64>>(4)?.map(|check| check as u64);
        let has_position: bool = row.get(5)?;
        if (has_position || check.is_some()) && check != Some(check_of(position, digest, next_number)) {
            let why = "the position in the log is broken: put a backup in place of the database";
            return Err(rusqlite::Error::FromSqlConversionFailure(0, Type::Integer, why.into()));
        }
        Ok(Mark { position, digest, next_number, ..Mark::default() })
    })?;
    let moment = read_heartbeat(connection)?.unwrap_or_default();
    Ok(Mark { moment, owner: owner::read_owner(connection)?, ..mark })
}

/// Checks the figures of the file, if it is of a version that has digests.
fn check_meta(connection: &Connection) -> rusqlite::Result<()> {
    if !connection.column_exists(None, META.name, "digest")? {
        return Ok(());
    }
    let sql = format!("SELECT name FROM meta WHERE NOT ({})", META.is_sound(""));
    let damaged = connection.query_row(&sql, [], |row| Ok(META.damaged(row))).optional()?;
    damaged.map_or(Ok(()), |damaged| Err(damaged.into()))
}

/// Returns the place in its log up to which a database has everything, and its mark.
fn read_applied(connection: &Connection) -> rusqlite::Result<(Applied, Mark)> {
    let mark = read_mark(connection)?;
    let id = Some(meta(connection, "log")?).filter(|id| *id != 0);
    Ok((Applied { id, position: mark.position, digest: mark.digest }, mark))
}

/// Returns a number of the file's own; 0 if it has none by this name.
fn meta(connection: &Connection, name: &str) -> rusqlite::Result<u64> {
    let sql = "SELECT ifnull((SELECT value FROM meta WHERE name = ?), 0)";
    connection.query_row(sql, [name], |row| row::number(row, 0))
}

/// Returns the last heartbeat; `None` if no broker ever opened the store.
fn read_heartbeat(connection: &Connection) -> rusqlite::Result<Option<Heartbeat>> {
    let sql = "SELECT \
        (SELECT value FROM meta WHERE name = 'heartbeat_ms'), \
        ifnull((SELECT value FROM meta WHERE name = 'wall_ms'), 0), \
        ifnull((SELECT value FROM meta WHERE name = 'boot_id'), 0), \
        ifnull((SELECT value FROM meta WHERE name = 'boot_ms'), 0)";
    connection.query_row(sql, [], |row| {
        let Some(file_millis) = row.get::<_, Option<i64>>(0)? else { return Ok(None) };
        let boot = Boot { id: row::number(row, 2)?, millis: row::number(row, 3)? };
        let boot = (boot.id != 0).then_some(boot);
        Ok(Some(Heartbeat { file_millis: file_millis as u64, unix_millis: row::number(row, 1)?, boot }))
    })
}

/// Copies a body. A copy that is there already, from an attempt before, is replaced by the same.
fn copy_body(connection: &Connection, copy: &BodyCopy) -> rusqlite::Result<()> {
    let (columns, moved) = (BODY.list(), BODY.moved(|column| (column == "number").then_some("?2")));
    let others = columns.trim_start_matches("number");
    let mut insert: CachedStatement<'_> = connection.prepare_cached(&format!(
        "INSERT OR REPLACE INTO body ({columns}, digest) SELECT ?2{others}, {moved} FROM body WHERE number = ?1"
    ))?;
    insert.execute([copy.from.0 as i64, copy.to.0 as i64])?;
    let moved = ENTRY.moved(|column| (column == "body").then_some("?2"));
    let mut refer = connection.prepare_cached(&format!(
        "UPDATE entry SET body = ?2, digest = {moved} WHERE number = ?1 AND body IS NOT NULL"
    ))?;
    copy.entries
        .iter()
        .try_for_each(|entry| refer.execute(params![entry.0 as i64, copy.to.0 as i64]).map(drop))
}

#[cfg(test)]
mod tests;
