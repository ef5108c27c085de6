//! The commands of an operator on a store: check, dump, backup and cut. Each of the first three
//! sees one moment of the database and the log together, also while a broker uses the store.
//!
//! Frames that the database does not have are applied to it in a transaction that is never
//! committed. Meanwhile a broker cannot write its database; its log goes on.
//!
//! The log of a node of a cluster is in the engine, and none is beside its database. So the database
//! is seen as it is: it is behind its log by about a second.

use super::base::refuse_node;
use super::digest::{META, TABLES, Table};
use super::directory::{Directory, database_in, following_in, refuse_following};
use super::error::{GO_ON, failed};
use super::write::Statements;
use super::{
    check_write_ahead_log, copy_body, open_for, owner, read_applied, read_heartbeat, schema, write_mark,
};
use crate::store::coalesce::CommitGroup;
use crate::store::files::{create_new, sync};
use crate::store::frame::Frame;
use crate::store::log::bytes_in;
use crate::store::log::recovery::{Applied, Scan, scan};
use crate::store::wall::{FAR, FileTime, NEVER, resume};
use crate::store::{Moment, StoreError};
use crate::time::duration;
use rusqlite::{Connection, OpenFlags, Result, Row, Transaction};
use std::fmt::Display;
use std::io::ErrorKind;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A store that is open for reading only.
pub struct StoreInspection {
    /// In a transaction, if the log has frames that the database does not have.
    connection: Connection,
    data: PathBuf,
    /// The position of the last frame of which the file of the database has everything.
    applied: u64,
    log: LogEnd,
}

/// The end of a log.
#[derive(Clone, Copy, Debug, Default)]
struct LogEnd {
    /// The position of the last frame.
    position: u64,
    /// Bytes of the frames that the database does not have.
    unapplied: u64,
}

/// Number of attempts to read a log that a broker writes to. One is in vain if a frame or a file
/// changes in that moment.
const ATTEMPTS: u32 = 5;

/// Faults of a store, each with a query that counts them.
const FAULTS: [(&str, &str); 5] = [
    (
        "subscriptions of no session",
        "SELECT count(*) FROM subscription WHERE session NOT IN (SELECT number FROM session)",
    ),
    (
        "incoming packet identifiers of no session",
        "SELECT count(*) FROM incoming WHERE session NOT IN (SELECT number FROM session)",
    ),
    (
        "entries in flight of no session",
        "SELECT count(*) FROM entry WHERE session NOT IN (SELECT number FROM session) \
            AND (body IS NULL OR packet_number IS NOT NULL)",
    ),
    (
        "queue entries whose message is missing",
        "SELECT count(*) FROM entry WHERE body IS NOT NULL AND body NOT IN (SELECT number FROM body)",
    ),
    (
        "messages in no queue",
        "SELECT count(*) FROM body WHERE number NOT IN (SELECT body FROM entry WHERE body IS NOT NULL)",
    ),
];

const TOTALS: [(&str, &str); 8] = [
    ("sessions", "SELECT count(*) FROM session"),
    ("subscriptions", "SELECT count(*) FROM subscription"),
    ("queue entries", "SELECT count(*) FROM entry"),
    (
        "of ended sessions",
        "SELECT count(*) FROM entry WHERE session NOT IN (SELECT number FROM session) \
            AND body IS NOT NULL AND packet_number IS NULL",
    ),
    ("messages", "SELECT count(*) FROM body"),
    ("message bytes", "SELECT ifnull(sum(size), 0) FROM body"),
    ("retained messages", "SELECT count(*) FROM retained"),
    ("delayed messages", "SELECT count(*) FROM delayed"),
];

/// One line for each session. One pass over the queue entries serves all sessions, because entries
/// are in the order of their numbers and have no other index.
const SESSIONS: &str = "
SELECT s.client_id, s.connected, s.ends_ms,
    (SELECT count(*) FROM subscription u WHERE u.session = s.number),
    ifnull(q.queued, 0), ifnull(q.in_flight, 0), ifnull(q.pubrel, 0),
    (SELECT count(*) FROM incoming i WHERE i.session = s.number),
    q.oldest, b.topic, b.recorded_ms
FROM session s LEFT JOIN (
    SELECT session, sum(packet_number IS NULL) AS queued,
        sum(packet_number IS NOT NULL AND body IS NOT NULL) AS in_flight,
        sum(body IS NULL AND transmissions > 0) AS pubrel, min(number) AS oldest, body AS oldest_body
    FROM entry GROUP BY session
) q ON q.session = s.number LEFT JOIN body b ON b.number = q.oldest_body
ORDER BY s.client_id";

impl StoreInspection {
    /// Opens the store of a data directory.
    ///
    /// # Errors
    /// Returns an error if the directory has no store, or a store that this program does not know,
    /// or if its log is not whole.
    pub fn open(path: &Path) -> Result<StoreInspection, StoreError> {
        let database = existing_database(path)?;
        check_write_ahead_log(&database)?;
        let mut connection = open_for(&database, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        schema::check_version(&connection)?;
        let has_frames = has_frames(&connection, path)?;
        if has_frames {
            connection = open_for(&database, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
            connection.execute_batch("BEGIN IMMEDIATE").map_err(failed)?;
        }
        let applied = read_applied(&connection).map_err(failed)?.0.position;
        let log = match has_frames {
            true => apply_log(&connection, path)?,
            false => LogEnd { position: applied, unapplied: 0 },
        };
        Ok(StoreInspection { connection, data: path.to_owned(), applied, log })
    }

    /// Returns the position of the last frame of the log; 0 in a store without one.
    pub fn position(&self) -> u64 {
        self.log.position
    }

    /// Returns a line for each figure of the log: its position, its bytes, and what the database
    /// does not have of it.
    pub fn log_lines(&self) -> [String; 3] {
        let LogEnd { position, unapplied } = self.log;
        let behind = match self.applied + 1 {
            first if first > position => "nothing".to_owned(),
            first => format!("{unapplied} bytes, positions {first} to {position}"),
        };
        [
            figure("position", position),
            figure("log bytes", bytes_in(&self.data)),
            figure("not in database", behind),
        ]
    }

    /// Returns every fault of the store as one line; empty for a sound store. Reads the whole file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read.
    pub fn check(&self) -> Result<Vec<String>, StoreError> {
        self.find_faults().map_err(failed)
    }

    /// Begins a transaction, unless there is one.
    fn at_one_moment(&self) -> Result<Moments<'_>> {
        let is_begun = !self.connection.is_autocommit();
        let transaction = if is_begun { None } else { Some(self.connection.unchecked_transaction()?) };
        Ok(Moments { connection: &self.connection, _transaction: transaction })
    }

    fn find_faults(&self) -> Result<Vec<String>> {
        let transaction = self.at_one_moment()?;
        let mut check = transaction.prepare("PRAGMA integrity_check(20)")?;
        let lines = check.query_map([], |row| row.get::<_, String>(0))?;
        let mut faults: Vec<String> =
            lines.filter(|line| !line.as_ref().is_ok_and(|line| line == "ok")).collect::<Result<_>>()?;
        if !faults.is_empty() {
            // Queries on broken trees say nothing more.
            faults.push(format!("the file is damaged. {GO_ON}"));
            return Ok(faults);
        }
        if transaction.column_exists(None, META.name, "digest")? {
            TABLES.iter().try_for_each(|table| find_damaged(&transaction, table, &mut faults))?;
        }
        for (what, sql) in FAULTS {
            let count: i64 = transaction.query_row(sql, [], |row| row.get(0))?;
            if count > 0 {
                faults.push(format!("{count} {what}"));
            }
        }
        Ok(faults)
    }

    /// Writes the totals and then a line for each session. Lines are written as they are read,
    /// because there may be a million sessions.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read.
    pub fn dump(&self, now: Moment, mut line: impl FnMut(&str)) -> Result<(), StoreError> {
        self.write_dump(now, &mut line).map_err(failed)
    }

    fn write_dump(&self, now: Moment, line: &mut impl FnMut(&str)) -> Result<()> {
        let transaction = self.at_one_moment()?;
        line(&figure("version", schema::VERSION));
        self.log_lines().iter().for_each(|figure| line(figure));
        for (what, sql) in TOTALS {
            let count: i64 = transaction.query_row(sql, [], |row| row.get(0))?;
            line(&figure(what, count));
        }
        // A file of an older version has no such table.
        let has_letters = "SELECT count(*) > 0 FROM sqlite_schema WHERE name = 'letter'";
        if transaction.query_row(has_letters, [], |row| row.get(0))? {
            let letters = "SELECT count(*) FROM letter";
            let count: i64 = transaction.query_row(letters, [], |row| row.get(0))?;
            line(&figure("dead letters", count));
        }
        let last = read_heartbeat(&transaction)?;
        let resumed = resume(last, now);
        let now = resumed.time.reads(now.monotonic).min(NEVER - 1);
        if let Some(last) = last {
            let passed = duration::long(resumed.down);
            match resumed.unknown {
                None => line(&figure("last heartbeat", format!("{passed} ago"))),
                Some(why) => line(&figure("last heartbeat", format!("at an unknown time: {why}"))),
            }
            let set = last.unix_millis as i64 - last.file_millis as i64;
            if set.abs() >= 60_000 {
                let by = duration::long(Duration::from_millis(set.unsigned_abs()));
                let way = if set > 0 { "forward" } else { "back" };
                line(&figure("wall clock", format!("was set {way} by {by} since the store was made")));
            }
        }
        let mut sessions = transaction.prepare(SESSIONS)?;
        let mut rows = sessions.query([])?;
        while let Some(row) = rows.next()? {
            line(&session_line(row, now)?);
        }
        Ok(())
    }

    /// Writes a copy of the store as of one moment, without free pages. The copy is on the disk
    /// when this returns. Only its owner may read it, as the store: it has the messages.
    ///
    /// # Errors
    /// Returns an error if `to` exists already or is not UTF-8, or if the copy cannot be written.
    pub fn backup(&self, to: &Path) -> Result<(), StoreError> {
        let explain = |why: &dyn Display| StoreError::Failed(format!("{}: {why}", to.display()));
        let Some(text) = to.to_str() else { return Err(explain(&"its name is not UTF-8")) };
        let copy = create_new(to).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => explain(&"is there already; a backup goes into a new file"),
            _ => explain(&error),
        })?;
        // SQLite fills a file that is empty, and keeps its mode.
        let source = open_for(&database_in(&self.data), OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        source.execute("VACUUM INTO ?", [text]).map_err(|error| explain(&error))?;
        drop(source);
        let whole = open_for(to, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        whole.execute_batch("BEGIN IMMEDIATE").map_err(|error| explain(&error))?;
        apply_log(&whole, &self.data)?;
        // The copy begins a log of its own. It is no second directory of a node: a broker by itself
        // can start on it, and `homing cluster init --from-store` takes it.
        owner::forget(&whole).map_err(|error| explain(&error))?;
        whole
            .execute_batch("DELETE FROM meta WHERE name = 'log'; COMMIT")
            .map_err(|error| explain(&error))?;
        drop(whole);
        copy.sync_all().map_err(|error| explain(&error))?;
        let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        sync(folder).map_err(|error| explain(&error))
    }
}

/// Adds a line for each row that does not fit its digest.
fn find_damaged(connection: &Connection, table: &Table, faults: &mut Vec<String>) -> Result<()> {
    let sql = format!("SELECT {} FROM {} WHERE NOT ({})", table.list(), table.name, table.is_sound(""));
    let mut statement = connection.prepare(&sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        faults.push(format!("damaged: {}", table.key_of(row)));
    }
    Ok(())
}

/// A connection, in a transaction that ends with this value or with the connection.
struct Moments<'c> {
    connection: &'c Connection,
    _transaction: Option<Transaction<'c>>,
}

impl Deref for Moments<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.connection
    }
}

/// Returns the path of the database in a data directory, which must be there.
pub(super) fn existing_database(data: &Path) -> Result<PathBuf, StoreError> {
    let none = || StoreError::Failed(format!("there is no store in {}", data.display()));
    Some(database_in(data)).filter(|database| database.exists()).ok_or_else(none)
}

/// Returns true if the log of a database is in its data directory: that of a broker by itself is.
fn has_log(connection: &Connection, applied: Applied, data: &Path) -> Result<bool, StoreError> {
    let is_of_cluster = owner::read_directory(connection).map_err(failed)? != 0;
    Ok(applied.id.is_some() && !is_of_cluster && !following_in(data).exists())
}

/// Returns true if the log has frames that the database does not have.
fn has_frames(connection: &Connection, data: &Path) -> Result<bool, StoreError> {
    let patiently = || {
        let (applied, _) = read_applied(connection).map_err(failed)?;
        if !has_log(connection, applied, data)? {
            return Ok(false);
        }
        Ok(scan(data, applied, None, |_| Ok(()))?.position() > applied.position)
    };
    several_times(patiently)
}

/// Applies the frames that a database does not have to it, in its transaction. Returns the end of
/// the log.
fn apply_log(connection: &Connection, data: &Path) -> Result<LogEnd, StoreError> {
    let (applied, first) = read_applied(connection).map_err(failed)?;
    if !has_log(connection, applied, data)? {
        return Ok(LogEnd { position: applied.position, unapplied: 0 });
    }
    schema::prepare(connection, None)?;
    let (steps, mark, unapplied) = several_times(|| {
        // Copies of bodies, with the groups behind them.
        let (mut steps, mut mark) = (vec![(Vec::new(), CommitGroup::default())], first);
        let scanned = scan(data, applied, None, |frame| {
            let Frame { head, digest, operations, retained, copies } = frame;
            if !copies.is_empty() {
                steps.push((copies, CommitGroup::default()));
            }
            mark = mark.behind(&head, digest);
            if let Some((_, group)) = steps.last_mut() {
                group.absorb_all(operations, retained, head.moment.file_millis);
            }
            Ok(())
        })?;
        Ok((steps, mark, scanned.bytes()))
    })?;
    let write = || {
        write_mark(connection, &mark)?;
        for (copies, mut group) in steps {
            copies.iter().try_for_each(|copy| copy_body(connection, copy))?;
            group.seal();
            Statements::new(connection, FileTime::default())?.write(&group)?;
        }
        Ok(())
    };
    write().map_err(failed)?;
    Ok(LogEnd { position: mark.position, unapplied })
}

/// Makes several attempts to read a log.
fn several_times<T>(mut attempt: impl FnMut() -> Result<T, StoreError>) -> Result<T, StoreError> {
    for _ in 1..ATTEMPTS {
        if let Ok(result) = attempt() {
            return Ok(result);
        }
    }
    attempt()
}

/// Goes on without everything behind a position of the log: moves it aside. Returns the files that
/// have it.
///
/// # Errors
/// A broker uses the directory, the directory is of a cluster, the database has more than that, or the
/// log is not whole up to there.
pub fn cut(path: &Path, at: u64) -> Result<Vec<PathBuf>, StoreError> {
    let database = existing_database(path)?;
    refuse_following(path)?;
    // For its lock.
    let _directory = Directory::open(path)?;
    let connection = open_for(&database, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    schema::check_version(&connection)?;
    refuse_node(path)?;
    let (applied, _) = read_applied(&connection).map_err(failed)?;
    if at < applied.position {
        return Err(StoreError::Failed(format!(
            "the database has everything up to position {}: cut there or behind it",
            applied.position
        )));
    }
    match scan(path, applied, Some(at), |_| Ok(())) {
        Ok(whole) => whole.cut(),
        // Nothing of the log is needed: a new one begins.
        Err(_) if at == applied.position => {
            let aside = Scan::nothing(path, applied).cut()?;
            connection.execute("DELETE FROM meta WHERE name = 'log'", []).map_err(failed)?;
            Ok(aside)
        }
        Err(why) => Err(why),
    }
}

/// Returns the line of a figure.
fn figure(name: &str, value: impl Display) -> String {
    format!("{name:<18} {value}")
}

fn session_line(row: &Row<'_>, now: u64) -> Result<String> {
    let client_id: String = row.get(0)?;
    let count = |column| row.get::<_, i64>(column);
    let state = match (row.get(1)?, row.get::<_, i64>(2)?) {
        (true, _) => "connected".to_owned(),
        (false, ends) if ends as u64 >= FAR => "away, never expires".to_owned(),
        (false, ends) => format!("away, expires in {}", duration::long(between(now as i64, ends))),
    };
    let subscriptions = if count(3)? == 1 { "subscription" } else { "subscriptions" };
    let mut line = format!(
        "session {client_id:?}: {state}; {} {subscriptions}; {} queued, {} in flight, {} awaiting PUBCOMP, {} incoming",
        count(3)?,
        count(4)?,
        count(5)?,
        count(6)?,
        count(7)?
    );
    let (topic, recorded): (Option<String>, Option<i64>) = (row.get(9)?, row.get(10)?);
    match (row.get::<_, Option<i64>>(8)?, topic, recorded) {
        (Some(_), Some(topic), Some(recorded)) => {
            line += &format!("; oldest {} ago, on {topic:?}", duration::long(between(recorded, now as i64)));
        }
        (Some(_), ..) => line += "; oldest awaits PUBCOMP",
        _ => {}
    }
    Ok(line)
}

fn between(earlier: i64, later: i64) -> Duration {
    Duration::from_millis(u64::try_from(later.saturating_sub(earlier)).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::DurabilityLevel;
    use crate::store::Store;
    use crate::store::log::log_in;
    use crate::store::logged::{LoggedStore, StoreOptions};
    use crate::store::sqlite::base::{directory_of, mark_of};
    use crate::store::sqlite::{Sqlite, SqliteOptions};

    const LOG: u64 = 77;

    /// The data directory of a node of a cluster, with a directory `log` from an earlier life.
    fn node() -> tempfile::TempDir {
        let data = tempfile::tempdir().unwrap();
        let options = SqliteOptions { durability: DurabilityLevel::Os, size_limit: None };
        let mut database = Sqlite::open(data.path(), options).unwrap();
        database.set_log_id(LOG).unwrap();
        database.join_cluster(5).unwrap();
        std::fs::create_dir(log_in(data.path())).unwrap();
        data
    }

    #[test]
    fn the_database_of_a_node_is_inspected_without_a_log() {
        let data = node();
        let inspection = StoreInspection::open(data.path()).unwrap();
        assert_eq!(inspection.check().unwrap(), [""; 0]);
        assert!(inspection.log_lines()[2].ends_with("nothing"), "{:?}", inspection.log_lines());
    }

    #[test]
    fn a_backup_of_a_node_is_the_store_of_a_broker_by_itself() {
        let (data, to) = (node(), tempfile::tempdir().unwrap());
        let copy = database_in(to.path());
        StoreInspection::open(data.path()).unwrap().backup(&copy).unwrap();
        assert_eq!((mark_of(&copy).unwrap().0.id, directory_of(&copy).unwrap()), (None, 0));
        let options = StoreOptions { durability: DurabilityLevel::Os, size_limit: None };
        let mut store = LoggedStore::open(to.path(), options).unwrap();
        assert_eq!(store.recover(Moment::now(), Duration::ZERO).unwrap().sessions.len(), 0);
    }

    #[test]
    fn the_log_of_a_node_is_not_cut() {
        let data = node();
        let refusal = cut(data.path(), 0).unwrap_err().to_string();
        assert!(refusal.contains("belongs to a cluster") && !refusal.contains('\n'), "{refusal}");
        assert_eq!(mark_of(&database_in(data.path())).unwrap().0.id, Some(LOG));
    }
}
