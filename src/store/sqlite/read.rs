//! Reads stored messages back, on a connection of its own that sees only committed data.

use super::error::failed;
use super::row;
use crate::mqtt::publisher_name::PublisherName;
use crate::operators::stored::StoredPlace;
use crate::operators::wanted::Wanted;
use crate::persistence::records::{BodyNumber, DelayedNumber, EntryNumber, ReadEntry, StoredDelayed};
use crate::store::wall::FileTime;
use crate::store::{StoreError, StoreReader, ViewedEntry};
use crate::time::Instant;
use rusqlite::{Connection, OptionalExtension, Result, Row, params};
use std::sync::Arc;
use std::time::Duration;

const ENTRY: &str = "SELECT e.qos, e.retain, e.subscription_ids, e.share, \
    b.expires_ms, b.qos, b.retain, b.topic, b.properties, b.payload, b.publisher \
    FROM entry e JOIN body b ON b.number = ?2 WHERE e.number = ?1";

/// The payload comes after the topic in its row, and the publisher after the payload. SQLite reads
/// the pages of a large payload only for what comes behind it.
const VIEW: &str = "SELECT e.qos, e.retain, b.expires_ms, b.recorded_ms, b.topic, length(b.payload), \
    CASE WHEN ?3 THEN b.publisher END FROM entry e JOIN body b ON b.number = ?2 WHERE e.number = ?1";

pub(super) const DELAYED: &str = "SELECT number, due_ms, expires_ms, qos, retain, topic, properties, payload, \
    owner_client, owner_listener FROM delayed WHERE due_ms >= ?1 AND due_ms < ?3 AND (due_ms > ?1 OR number >= ?2) \
    ORDER BY due_ms, number LIMIT ?4";

/// The reading connection of the store.
pub(super) struct SqliteReader {
    pub(super) connection: Connection,
    pub(super) opened: FileTime,
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
        delayed(&self.connection, self.opened, from, until, most).map_err(failed)
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
        let mut statement = transaction.prepare_cached(ENTRY)?;
        let (mut scratch, mut read) = (Vec::new(), Vec::with_capacity(wanted.len()));
        let mut publisher = None;
        for (number, body) in wanted {
            let key = params![number.0 as i64, body.0 as i64];
            let found = statement
                .query_row(key, |row| entry(row, *number, self.opened, &mut publisher, &mut scratch));
            read.extend(found.optional()?);
        }
        Ok(read)
    }

    fn view_entries(
        &self,
        places: &[StoredPlace],
        now: Instant,
        wanted: &Wanted,
        each: &mut dyn FnMut(ViewedEntry<'_>),
    ) -> Result<()> {
        let transaction = self.connection.unchecked_transaction()?;
        let mut statement = transaction.prepare_cached(VIEW)?;
        let (now, publishers) = (self.opened.reads(now), wanted.publisher.is_some());
        for (number, body) in places {
            let mut rows = statement.query(params![number.0 as i64, body.0 as i64, publishers])?;
            let Some(row) = rows.next()? else { continue };
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
    let share: Option<Box<str>> = row.get(3)?;
    let publisher = PublisherName::shared(row.get_ref(10)?.as_str_or_null()?.unwrap_or_default(), last);
    Ok(ReadEntry {
        number,
        message: row::message_by(publisher, row, 4, opened, [7, 8, 9], scratch)?,
        qos: row::qos(row, 0)?,
        retain: row.get(1)?,
        ids: row::ids(row, 2)?,
        share: share.map(Arc::new),
    })
}

pub(super) fn delayed(
    connection: &Connection,
    opened: FileTime,
    from: (Instant, DelayedNumber),
    until: Instant,
    most: usize,
) -> Result<Vec<StoredDelayed>> {
    let mut statement = connection.prepare_cached(DELAYED)?;
    let bounds = params![
        opened.to_file(from.0) as i64,
        from.1.0 as i64,
        opened.to_file(until) as i64,
        i64::try_from(most).unwrap_or(i64::MAX),
    ];
    let mut scratch = Vec::new();
    let rows = statement.query_map(bounds, |row| {
        Ok(StoredDelayed {
            number: DelayedNumber(row::number(row, 0)?),
            due: row::instant(row, 1, opened)?,
            message: row::message(row, 2, opened, [5, 6, 7], &mut scratch)?,
            owner: row::owner(row, 8)?,
        })
    });
    rows?.collect()
}
