//! Reads stored messages back, on a connection of its own that sees only committed data.

use super::digest::{BODY, DELAYED, ENTRY};
use super::error::failed;
use super::row;
use crate::mqtt::publisher_name::PublisherName;
use crate::operators::stored::StoredPlace;
use crate::operators::wanted::Wanted;
use crate::persistence::records::{BodyNumber, DelayedNumber, EntryNumber, ReadEntry, StoredDelayed};
use crate::store::statistics::StoreStatistics;
use crate::store::wall::FileTime;
use crate::store::{StoreError, StoreReader, ViewedEntry};
use crate::time::Instant;
use rusqlite::{Connection, OptionalExtension, Result, Row, params};
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tracing::error;

/// The columns of the entry, those of its body from [`BODY_AT`] on, and from [`HEADER_AT`] on those
/// that [`row::message_by`] reads.
static READ: LazyLock<String> = LazyLock::new(|| {
    let (entry, body) = (ENTRY.select("e."), BODY.select("b."));
    format!(
        "SELECT {entry}, {body}, b.expires_ms, b.qos, b.retain \
         FROM entry e JOIN body b ON b.number = ?2 WHERE e.number = ?1"
    )
});

const BODY_AT: usize = 10;
const HEADER_AT: usize = 21;

/// The digest needs the payload, too. Few operators look at a time.
static VIEW: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT e.qos, e.retain, b.expires_ms, b.recorded_ms, b.topic, length(b.payload), \
         CASE WHEN ?3 THEN b.publisher END, {} AND {} \
         FROM entry e JOIN body b ON b.number = ?2 WHERE e.number = ?1",
        ENTRY.is_sound("e."),
        BODY.is_sound("b.")
    )
});

static DUE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT {} FROM delayed WHERE due_ms >= ?1 AND due_ms < ?3 AND (due_ms > ?1 OR number >= ?2) \
         ORDER BY due_ms, number LIMIT ?4",
        DELAYED.select("")
    )
});

/// The reading connection of the store.
pub(super) struct SqliteReader {
    pub(super) connection: Connection,
    pub(super) opened: FileTime,
    /// Counts the damaged messages.
    pub(super) statistics: Arc<StoreStatistics>,
}

impl StoreReader for SqliteReader {
    fn entries(&mut self, wanted: &[(EntryNumber, BodyNumber)]) -> Result<Vec<ReadEntry>, StoreError> {
        self.read_entries(wanted).map_err(failed)
    }

    fn delayed(
        &mut self,
        from: (Instant, DelayedNumber),
        until: Instant,
        most: usize,
    ) -> Result<Vec<StoredDelayed>, StoreError> {
        let on_damaged = |number| self.say_damaged("delayed", number, None);
        delayed(&self.connection, self.opened, (from, until), most, on_damaged).map_err(failed)
    }

    fn view(
        &mut self,
        places: &[StoredPlace],
        now: Instant,
        wanted: &Wanted,
        each: &mut dyn FnMut(ViewedEntry<'_>),
    ) -> Result<(), StoreError> {
        self.view_entries(places, now, wanted, each).map_err(failed)
    }
}

impl SqliteReader {
    /// Reads a page in one transaction. The page is then of one moment, and the file is locked
    /// once.
    fn read_entries(&self, wanted: &[(EntryNumber, BodyNumber)]) -> Result<Vec<ReadEntry>> {
        let transaction = self.connection.unchecked_transaction()?;
        let mut statement = transaction.prepare_cached(&READ)?;
        let (mut scratch, mut read) = (Vec::new(), Vec::with_capacity(wanted.len()));
        let mut publisher = None;
        for (number, body) in wanted {
            let key = params![number.0 as i64, body.0 as i64];
            let found = statement.query_row(key, |row| {
                let is_sound = ENTRY.fits(row, 0) && BODY.fits(row, BODY_AT);
                let entry = || entry(row, *number, self.opened, &mut publisher, &mut scratch);
                is_sound.then(entry).transpose()
            });
            match found.optional()? {
                Some(Some(entry)) => read.push(entry),
                Some(None) => self.say_damaged("entry", number.0, Some(*body)),
                None => {}
            }
        }
        Ok(read)
    }

    /// Reports a row that does not fit its digest, and is left out.
    fn say_damaged(&self, table: &'static str, number: u64, body: Option<BodyNumber>) {
        self.statistics.damaged.fetch_add(1, Ordering::Relaxed);
        let sql = "SELECT client_id FROM session WHERE number = (SELECT session FROM entry WHERE number = ?)";
        let client_id = match body {
            Some(_) => self.connection.query_row(sql, [number as i64], |row| row.get::<_, String>(0)).ok(),
            None => None,
        };
        error!(
            event = "store.damaged",
            table,
            number,
            body = body.map(|body| body.0),
            client_id,
            "a stored message is damaged in homing.db, and is not delivered: its bits do not fit their digest; homing \
             store check lists all that is damaged"
        );
    }

    fn view_entries(
        &self,
        places: &[StoredPlace],
        now: Instant,
        wanted: &Wanted,
        each: &mut dyn FnMut(ViewedEntry<'_>),
    ) -> Result<()> {
        let transaction = self.connection.unchecked_transaction()?;
        let mut statement = transaction.prepare_cached(&VIEW)?;
        let (now, publishers) = (self.opened.reads(now), wanted.publisher.is_some());
        for (number, body) in places {
            let mut rows = statement.query(params![number.0 as i64, body.0 as i64, publishers])?;
            let Some(row) = rows.next()? else { continue };
            if !row.get::<_, bool>(7)? {
                self.say_damaged("entry", number.0, Some(*body));
                continue;
            }
            each(ViewedEntry {
                number: *number,
                topic: row.get_ref(4)?.as_str()?,
                publisher: row.get_ref(6)?.as_str_or_null()?.unwrap_or_default(),
                qos: row::qos(row, 0)?,
                retain: row.get(1)?,
                payload: row::number(row, 5)? as usize,
                expires: row::instant(row, 2, self.opened)?,
                age: Duration::from_millis(now.saturating_sub(row::number(row, 3)?)),
            });
        }
        Ok(())
    }
}

/// Returns an entry with its message. `last` is the publisher of the message before.
fn entry(
    row: &Row<'_>,
    number: EntryNumber,
    opened: FileTime,
    last: &mut Option<PublisherName>,
    scratch: &mut Vec<u8>,
) -> Result<ReadEntry> {
    let share: Option<Box<str>> = row.get(8)?;
    let publisher = row.get_ref(BODY_AT + 9)?.as_str_or_null()?.unwrap_or_default();
    let publisher = PublisherName::shared(publisher, last);
    let columns = [6, 7, 8].map(|at| BODY_AT + at);
    Ok(ReadEntry {
        number,
        message: row::message_by(publisher, row, HEADER_AT, opened, columns, scratch)?,
        qos: row::qos(row, 3)?,
        retain: row.get(4)?,
        ids: row::ids(row, 7)?,
        share: share.map(Arc::new),
    })
}

pub(super) fn delayed(
    connection: &Connection,
    opened: FileTime,
    (from, until): ((Instant, DelayedNumber), Instant),
    most: usize,
    on_damaged: impl Fn(u64),
) -> Result<Vec<StoredDelayed>> {
    let mut statement = connection.prepare_cached(&DUE)?;
    let bounds = params![
        opened.to_file(from.0) as i64,
        from.1.0 as i64,
        opened.to_file(until) as i64,
        i64::try_from(most).unwrap_or(i64::MAX),
    ];
    let (mut delayed, mut scratch) = (Vec::new(), Vec::new());
    let mut rows = statement.query(bounds)?;
    while let Some(row) = rows.next()? {
        let number = row::number(row, 0)?;
        if !DELAYED.fits(row, 0) {
            on_damaged(number);
            continue;
        }
        delayed.push(StoredDelayed {
            number: DelayedNumber(number),
            due: row::instant(row, 1, opened)?,
            message: row::message(row, 2, opened, [5, 6, 7], &mut scratch)?,
            owner: row::owner(row, 8)?,
        });
    }
    Ok(delayed)
}
