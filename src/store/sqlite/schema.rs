//! The tables. An operator may open a copy with `sqlite3`, so the columns have names that tell
//! their contents.
//!
//! Times are milliseconds since 1970, plus or minus the steps by which the wall clock was set since
//! the store was made. The sum of these steps is `wall_ms - heartbeat_ms` in `meta` (`wall`).
//!
//! | version | what is new |
//! |---|---|
//! | 1 | |
//! | 2 | heartbeats: `heartbeat_ms` (file time), `wall_ms`, `boot_id`, `boot_ms` |
//! | 3 | `session.user_name`: the verified user who owns the session |
//! | 4 | `session.claimed_name`: a name that nothing verified; `session.rules`: its own rules |
//! | 5 | `session.listener`: the listener whose ACL file counts |
//! | 6 | `retained.source_client`, `source_user`, `source_listener`: the client that published it |
//! | 7 | `letter`: stored dead letters |
//! | 8 | `owner_client`, `owner_listener` (`retained`, `delayed`): the client whose limits count |
//! | 9 | `session.mount_point`: the mount point behind which the client came last |
//! | 10 | a log beside the file: `log`, `position`, `digest_low`, `digest_high`, `mark_check` in `meta` |
//! | 11 | `digest` in each row: see `digest` |
//!
//! Every look-up is by primary key. Data that would need another index is read completely, once, at
//! the start. A number is never used twice, so no table needs AUTOINCREMENT with its extra table.

use super::digest::{self, register};
use super::error::failed;
use crate::store::StoreError;
use rusqlite::Connection;

/// The `PRAGMA user_version` of the file.
///
/// A change of the tables raises the version. The change needs a step in [`prepare`] for older
/// files, and a file of the version before among the tests.
pub const VERSION: i32 = 11;

/// The `PRAGMA application_id` of the file: "Homi". The command `file` shows it, and the broker
/// refuses the database of another program.
pub const APPLICATION_ID: i32 = 0x486F_6D69;

const TABLES: &str = "
CREATE TABLE meta (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL,
    digest INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE session (
    number INTEGER PRIMARY KEY,
    client_id TEXT NOT NULL,
    version INTEGER NOT NULL,
    expiry_seconds INTEGER NOT NULL,
    connected INTEGER NOT NULL,
    ends_ms INTEGER NOT NULL,
    will_due_ms INTEGER NOT NULL,
    retry_interval_ms INTEGER,
    ack_timeout_ms INTEGER,
    will_topic TEXT,
    will_qos INTEGER,
    will_retain INTEGER,
    will_delay_ms INTEGER,
    will_expiry_seconds INTEGER,
    will_properties BLOB,
    will_payload BLOB,
    user_name TEXT,
    claimed_name TEXT,
    rules TEXT,
    listener TEXT,
    mount_point TEXT,
    digest INTEGER NOT NULL
) STRICT;

CREATE TABLE subscription (
    session INTEGER NOT NULL,
    filter TEXT NOT NULL,
    options INTEGER NOT NULL,
    subscription_id INTEGER NOT NULL,
    digest INTEGER NOT NULL,
    PRIMARY KEY (session, filter)
) STRICT, WITHOUT ROWID;

CREATE TABLE incoming (
    session INTEGER NOT NULL,
    packet_id INTEGER NOT NULL,
    digest INTEGER NOT NULL,
    PRIMARY KEY (session, packet_id)
) STRICT, WITHOUT ROWID;

-- What recovery needs stands first: it reads neither payloads nor, where they are large, their pages.
CREATE TABLE body (
    number INTEGER PRIMARY KEY,
    digest INTEGER NOT NULL,
    size INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL,
    recorded_ms INTEGER NOT NULL,
    qos INTEGER NOT NULL,
    retain INTEGER NOT NULL,
    topic TEXT NOT NULL,
    properties BLOB NOT NULL,
    payload BLOB NOT NULL,
    publisher TEXT
) STRICT;

-- body is NULL once PUBREC came; packet_number and transmissions are, until it was sent.
-- If body is NULL and transmissions is 0, the message was dropped: its identifier stays in use.
CREATE TABLE entry (
    number INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    body INTEGER,
    qos INTEGER NOT NULL,
    retain INTEGER NOT NULL,
    packet_number INTEGER,
    transmissions INTEGER,
    subscription_ids TEXT,
    share TEXT,
    digest INTEGER NOT NULL
) STRICT;

CREATE TABLE retained (
    topic TEXT PRIMARY KEY,
    expires_ms INTEGER NOT NULL,
    qos INTEGER NOT NULL,
    retain INTEGER NOT NULL,
    properties BLOB NOT NULL,
    payload BLOB NOT NULL,
    source_client TEXT,
    source_user TEXT,
    source_listener TEXT,
    owner_client TEXT,
    owner_listener TEXT,
    digest INTEGER NOT NULL
) STRICT;

CREATE TABLE delayed (
    number INTEGER PRIMARY KEY,
    due_ms INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL,
    qos INTEGER NOT NULL,
    retain INTEGER NOT NULL,
    topic TEXT NOT NULL,
    properties BLOB NOT NULL,
    payload BLOB NOT NULL,
    owner_client TEXT,
    owner_listener TEXT,
    digest INTEGER NOT NULL
) STRICT;
CREATE INDEX delayed_due ON delayed (due_ms);
";

/// The table of version 7. Its times are of the wall clock, because only people read them.
/// `first_sent_ms` is 0 if the message was first sent before the start of the broker.
const LETTERS: &str = "
CREATE TABLE letter (
    number INTEGER PRIMARY KEY,
    dropped_ms INTEGER NOT NULL,
    receiver TEXT NOT NULL,
    cause TEXT NOT NULL,
    reason_code INTEGER,
    attempts INTEGER NOT NULL,
    first_sent_ms INTEGER,
    last_sent_ms INTEGER,
    qos INTEGER NOT NULL,
    topic TEXT NOT NULL,
    properties BLOB NOT NULL,
    payload BLOB NOT NULL,
    publisher TEXT,
    digest INTEGER NOT NULL
) STRICT;
";

/// The origin of a file, according to its marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SchemaOrigin {
    Empty,
    Ours(i32),
    Foreign,
}

/// Creates the tables in an empty file, and upgrades those of an older version.
///
/// `written` is the time of the last write to the file, by the wall clock of that time.
///
/// # Errors
/// Returns an error for a file of a newer version, and for the database of another program.
pub fn prepare(connection: &Connection, written: Option<u64>) -> Result<(), StoreError> {
    register(connection).map_err(failed)?;
    match origin(connection)? {
        SchemaOrigin::Empty => create(connection),
        SchemaOrigin::Ours(version @ 1..VERSION) => {
            (version..VERSION).try_for_each(|from| upgrade(connection, from, written.unwrap_or(0)))
        }
        other => check(other),
    }
}

/// Upgrades a file by one version, in one transaction.
fn upgrade(connection: &Connection, from: i32, written: u64) -> Result<(), StoreError> {
    match from {
        1 => add_clocks(connection, written),
        2 => add_columns(connection, 3, &["session ADD COLUMN user_name TEXT"]),
        3 => add_columns(
            connection,
            4,
            &["session ADD COLUMN claimed_name TEXT", "session ADD COLUMN rules TEXT"],
        ),
        4 => add_columns(connection, 5, &["session ADD COLUMN listener TEXT"]),
        5 => add_columns(
            connection,
            6,
            &[
                "retained ADD COLUMN source_client TEXT",
                "retained ADD COLUMN source_user TEXT",
                "retained ADD COLUMN source_listener TEXT",
            ],
        ),
        6 => change(connection, 7, LETTERS),
        7 => add_columns(
            connection,
            8,
            &[
                "retained ADD COLUMN owner_client TEXT",
                "retained ADD COLUMN owner_listener TEXT",
                "delayed ADD COLUMN owner_client TEXT",
                "delayed ADD COLUMN owner_listener TEXT",
            ],
        ),
        8 => add_columns(connection, 9, &["session ADD COLUMN mount_point TEXT"]),
        // The marks of a store without a log are missing, and count as 0.
        9 => change(connection, 10, ""),
        _ => add_digests(connection),
    }
}

/// Upgrades version 1. Its heartbeat was a computed time: the wall clock as if nobody had set it
/// since the start of the broker. The real wall clock is the time at which the file was last
/// written.
fn add_clocks(connection: &Connection, written: u64) -> Result<(), StoreError> {
    let wall = i64::try_from(written).unwrap_or(i64::MAX);
    let sql = format!(
        "INSERT OR REPLACE INTO meta SELECT 'wall_ms', {wall} FROM meta WHERE name = 'heartbeat_ms' AND value > 0; \
         DELETE FROM meta WHERE name = 'heartbeat_ms' AND value = 0;"
    );
    change(connection, 2, &sql)
}

/// Adds columns, which are NULL in the rows that are there. No row is written again.
fn add_columns(connection: &Connection, version: i32, columns: &[&str]) -> Result<(), StoreError> {
    let alter: String = columns.iter().map(|column| format!("ALTER TABLE {column}; ")).collect();
    change(connection, version, &alter)
}

/// Upgrades version 10: writes each row again, with its digest. Needs room for the tables a second
/// time.
fn add_digests(connection: &Connection) -> Result<(), StoreError> {
    let rename = |table: &digest::Table| format!("ALTER TABLE {0} RENAME TO old_{0}; ", table.name);
    let copy = |table: &digest::Table| {
        let (name, columns, digest) = (table.name, table.list(), table.digest(""));
        format!(
            "INSERT INTO {name} ({columns}, digest) SELECT {columns}, {digest} FROM old_{name}; DROP TABLE old_{name}; "
        )
    };
    let old: String = digest::TABLES.map(rename).concat();
    let new: String = digest::TABLES.map(copy).concat();
    change(connection, 11, &format!("{old} DROP INDEX delayed_due; {TABLES} {LETTERS} {new}"))
}

/// Runs statements that bring the tables to a version, and notes the version, in one transaction.
/// So a crash leaves the tables either unchanged or in this version.
fn change(connection: &Connection, version: i32, statements: &str) -> Result<(), StoreError> {
    // An inspection has a transaction already, which never ends well.
    let (begin, end) = if connection.is_autocommit() { ("BEGIN IMMEDIATE;", "COMMIT;") } else { ("", "") };
    let sql = format!("{begin} {statements} PRAGMA user_version = {version}; {end}");
    connection.execute_batch(&sql).map_err(failed)
}

fn check(origin: SchemaOrigin) -> Result<(), StoreError> {
    match origin {
        SchemaOrigin::Empty => Err(StoreError::Failed(
            "the store is empty: no broker has used it yet, or a power loss took what was in it".into(),
        )),
        SchemaOrigin::Ours(1..=VERSION) => Ok(()),
        SchemaOrigin::Ours(version) => Err(StoreError::Failed(format!(
            "the store is of version {version}, and this program knows version {VERSION}: run the program that wrote it, or a newer one"
        ))),
        SchemaOrigin::Foreign => Err(StoreError::Failed("the file is a database of another program".into())),
    }
}

/// Checks the version for a reader, which can read the tables of all versions up to this one.
///
/// # Errors
/// Returns an error for an empty file, a newer version, or the database of another program.
pub fn check_version(connection: &Connection) -> Result<(), StoreError> {
    check(origin(connection)?)
}

fn origin(connection: &Connection) -> Result<SchemaOrigin, StoreError> {
    let pragma = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0)).map_err(failed);
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(failed)?;
    let (version, application) = (pragma("user_version")?, pragma("application_id")?);
    Ok(match (application, version, tables) {
        (0, 0, 0) => SchemaOrigin::Empty,
        (APPLICATION_ID, version, _) => SchemaOrigin::Ours(version),
        _ => SchemaOrigin::Foreign,
    })
}

/// Creates the tables in an empty file.
fn create(connection: &Connection) -> Result<(), StoreError> {
    let tables = format!("{TABLES} {LETTERS} PRAGMA application_id = {APPLICATION_ID};");
    change(connection, VERSION, &tables)
}
