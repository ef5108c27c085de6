//! Recovery at the start: reads everything that is stored, each table once in the order of its
//! keys.
//!
//! Recovery checks the relations between the tables, removes rows that violate them, and logs that.
//! The broker never writes such rows, except in a crash as described below; a changed file may have
//! them.

use super::digest::{BODY, DELAYED, ENTRY, INCOMING, LETTER, RETAINED, SESSION, SUBSCRIPTION, Table};
use super::{read, row};
use crate::mqtt::message::Message;
use crate::mqtt::packet::PacketId;
use crate::mqtt::retained_message::{RetainedMessage, SharedSources};
use crate::persistence::letter::StoredLetter;
use crate::persistence::records::{
    BodyNumber, CountedDelayed, DelayedNumber, EntryNumber, Record, Recovered, RecoveredBody, RecoveredEntry,
    RecoveredSession, SessionKey, StoredSubscription,
};
use crate::routing::limit_shares::LimitShares;
use crate::store::coalesce::CommitGroup;
use crate::store::wall::FileTime;
use crate::time::Instant;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Result, Row};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tracing::warn;

type ByNumber<T> = HashMap<u64, T, FixedState>;

struct FoundBody {
    known: RecoveredBody,
    is_referred_to: bool,
}

/// Rows that belong to nothing, by table and key.
///
/// A shard's part of another shard's transaction may be committed before the rest of its batch. If
/// a session began in that rest, a crash in between leaves entries and their messages without a
/// session. No client knows of such a session, and no publisher got an acknowledgement for such a
/// message. All other kinds must not occur.
#[derive(Default)]
struct StrayRows {
    subscriptions: Vec<(SessionKey, Box<str>)>,
    incoming: Vec<(SessionKey, PacketId)>,
    entries: Vec<EntryNumber>,
    bodies: Vec<BodyNumber>,
}

/// A recovery in progress.
pub(super) struct Recovery<'c> {
    connection: &'c Connection,
    opened: FileTime,
    strays: StrayRows,
    sessions: Vec<RecoveredSession>,
    orphaned: Vec<RecoveredEntry>,
    /// The index in `sessions`, by session number.
    places: ByNumber<usize>,
    /// Counts the rows.
    progress: Arc<AtomicU64>,
}

impl<'c> Recovery<'c> {
    /// Starts a recovery; `opened` maps the times of the file.
    pub(super) fn new(
        connection: &'c Connection,
        opened: FileTime,
        progress: Arc<AtomicU64>,
    ) -> Recovery<'c> {
        let (sessions, places) = (Vec::new(), ByNumber::default());
        let (strays, orphaned) = (StrayRows::default(), Vec::new());
        Recovery { connection, opened, strays, sessions, orphaned, places, progress }
    }

    /// Reads everything, within the transaction of the connection if there is one. Returns the
    /// operations that remove the rows which belong to nothing, too.
    ///
    /// Delayed messages are read up to `horizon` after `now`.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or has values that no broker wrote.
    pub(super) fn run(mut self, now: Instant, horizon: Duration) -> Result<(Recovered, CommitGroup)> {
        self.sessions()?;
        self.subscriptions()?;
        self.incoming()?;
        let mut bodies = self.bodies()?;
        self.entries(&mut bodies)?;
        let nobodys = bodies.values().filter(|body| !body.is_referred_to);
        self.strays.bodies = nobodys.map(|body| body.known.number).collect();
        let mends = self.mends();
        let first = (Instant::ZERO, DelayedNumber(0));
        let until = now + horizon;
        // Damaged rows are refused below.
        let delayed = read::delayed(self.connection, self.opened, (first, until), usize::MAX, |_| {})?;
        let recovered = Recovered {
            next_number: self.next_number()?,
            down: Duration::ZERO,
            retained: self.retained()?,
            delayed,
            delayed_in_all: self.delayed_in_all()?,
            letters: self.letters()?,
            progress: Arc::clone(&self.progress),
            sessions: self.sessions,
            orphaned: self.orphaned,
        };
        Ok((recovered, mends))
    }

    /// Calls `on` with the columns of each row of a table. A row that does not fit its digest is an
    /// error.
    fn each(&self, table: &Table, mut on: impl FnMut(&Row<'_>) -> Result<()>) -> Result<()> {
        self.each_of(table, &table.select(""), |row| match table.fits(row, 0) {
            true => on(row),
            false => Err(table.damaged(row).into()),
        })
    }

    fn each_of(
        &self,
        table: &Table,
        columns: &str,
        mut on: impl FnMut(&Row<'_>) -> Result<()>,
    ) -> Result<()> {
        let sql = format!("SELECT {columns} FROM {}", table.in_order());
        let mut statement = self.connection.prepare(&sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            self.progress.fetch_add(1, Ordering::Relaxed);
            on(row)?;
        }
        Ok(())
    }

    fn sessions(&mut self) -> Result<()> {
        let (mut sessions, mut places) = (Vec::new(), ByNumber::default());
        self.each(&SESSION, |row| {
            let session = row::session(row, self.opened)?;
            places.insert(session.key.0, sessions.len());
            let (subscriptions, incoming, entries) = (Vec::new(), Vec::new(), Vec::new());
            sessions.push(RecoveredSession { session, subscriptions, incoming, entries });
            Ok(())
        })?;
        (self.sessions, self.places) = (sessions, places);
        Ok(())
    }

    fn subscriptions(&mut self) -> Result<()> {
        let (mut sessions, mut strays) = (std::mem::take(&mut self.sessions), Vec::new());
        self.each(&SUBSCRIPTION, |row| {
            let found = StoredSubscription {
                session: SessionKey(row::number(row, 0)?),
                filter: row.get(1)?,
                options: row.get(2)?,
                subscription_id: row.get(3)?,
            };
            match self.places.get(&found.session.0) {
                Some(at) => sessions[*at].subscriptions.push(found),
                None => strays.push((found.session, found.filter)),
            }
            Ok(())
        })?;
        (self.sessions, self.strays.subscriptions) = (sessions, strays);
        Ok(())
    }

    fn incoming(&mut self) -> Result<()> {
        let (mut sessions, mut strays) = (std::mem::take(&mut self.sessions), Vec::new());
        self.each(&INCOMING, |row| {
            let (session, packet_id) = (SessionKey(row::number(row, 0)?), row::packet_id(row, 1)?);
            match self.places.get(&session.0) {
                Some(at) => sessions[*at].incoming.push(packet_id),
                None => strays.push((session, packet_id)),
            }
            Ok(())
        })?;
        (self.sessions, self.strays.incoming) = (sessions, strays);
        Ok(())
    }

    fn bodies(&self) -> Result<ByNumber<FoundBody>> {
        let mut bodies = ByNumber::default();
        self.each_of(&BODY, "number, size, expires_ms, digest", |row| {
            if !BODY.fits_first(row) {
                return Err(BODY.damaged(row).into());
            }
            let known = RecoveredBody {
                number: BodyNumber(row::number(row, 0)?),
                size: row.get(1)?,
                expires: row::instant(row, 2, self.opened)?,
            };
            bodies.insert(known.number.0, FoundBody { known, is_referred_to: false });
            Ok(())
        })?;
        Ok(bodies)
    }

    fn entries(&mut self, bodies: &mut ByNumber<FoundBody>) -> Result<()> {
        let (mut sessions, mut strays) = (std::mem::take(&mut self.sessions), Vec::new());
        let mut orphaned = Vec::new();
        self.each(&ENTRY, |row| {
            let number = EntryNumber(row::number(row, 0)?);
            let session = self.places.get(&row::number(row, 1)?).map(|at| &mut sessions[*at]);
            let body: Option<i64> = row.get(2)?;
            let found = body.map(|body| bodies.get_mut(&(body as u64)));
            let is_whole = found.as_ref().is_none_or(Option::is_some);
            let mut body = found.flatten();
            let known = body.as_ref().map(|body| body.known);
            let (qos, flight, shared) =
                (row::qos(row, 3)?, row::flight(row, 5)?, row.get_ref(8)? != ValueRef::Null);
            let ids = row::count_of_ids(row, 7)?;
            let entry = RecoveredEntry { number, body: known, qos, flight, shared, ids };
            match session {
                Some(session) if is_whole => session.entries.push(entry),
                None if entry.is_orphaned() => orphaned.push(entry),
                _ => {
                    strays.push(number);
                    return Ok(());
                }
            }
            if let Some(body) = &mut body {
                body.is_referred_to = true;
            }
            Ok(())
        })?;
        self.orphaned = orphaned;
        (self.sessions, self.strays.entries) = (sessions, strays);
        Ok(())
    }

    fn retained(&self) -> Result<Vec<RetainedMessage>> {
        let (mut retained, mut scratch, mut sources) = (Vec::new(), Vec::new(), SharedSources::default());
        self.each(&RETAINED, |row| {
            let message = row::message(row, 1, self.opened, [0, 4, 5], &mut scratch)?;
            retained.push(RetainedMessage {
                message,
                source: row::source(row, 6, &mut sources)?,
                owner: row::owner(row, 9)?,
            });
            Ok(())
        })?;
        Ok(retained)
    }

    fn letters(&self) -> Result<Vec<StoredLetter>> {
        let (mut letters, mut scratch) = (Vec::new(), Vec::new());
        self.each(&LETTER, |row| {
            letters.push(row::letter(row, &mut scratch)?);
            Ok(())
        })?;
        Ok(letters)
    }

    /// Returns the count of every delayed message.
    fn delayed_in_all(&self) -> Result<Vec<CountedDelayed>> {
        let (mut all, mut shares) = (Vec::new(), LimitShares::default());
        self.each(&DELAYED, |row| {
            let number = DelayedNumber(row::number(row, 0)?);
            let bytes = row.get_ref(6)?.as_blob()?.len() + row.get_ref(7)?.as_blob()?.len();
            let size = Message::size_of(row.get_ref(5)?.as_str()?.len() + bytes);
            let owner = row::owner(row, 8)?.map(|owner| shares.add(owner, size));
            all.push(CountedDelayed { number, size, owner });
            Ok(())
        })?;
        Ok(all)
    }

    /// Returns the next free number: above all numbers that the file has reserved, and above all
    /// that are in use.
    fn next_number(&self) -> Result<u64> {
        let highest = "SELECT max( \
            ifnull((SELECT value FROM meta WHERE name = 'next_number'), 1), \
            ifnull((SELECT max(number) + 1 FROM session), 1), ifnull((SELECT max(number) + 1 FROM entry), 1), \
            ifnull((SELECT max(number) + 1 FROM body), 1), ifnull((SELECT max(number) + 1 FROM delayed), 1), \
            ifnull((SELECT max(number) + 1 FROM letter), 1))";
        self.connection.query_row(highest, [], |row| row::number(row, 0))
    }

    /// Returns the operations that remove the rows which belong to nothing, and logs them.
    fn mends(&mut self) -> CommitGroup {
        let StrayRows { subscriptions, incoming, entries, bodies } = std::mem::take(&mut self.strays);
        let found = (subscriptions.len(), incoming.len(), entries.len(), bodies.len());
        let mut mends = CommitGroup::default();
        if found == (0, 0, 0, 0) {
            return mends;
        }
        warn!(
            event = "store.orphans_removed",
            subscriptions = found.0,
            incoming = found.1,
            entries = found.2,
            messages = found.3,
            "the store had rows without a session or a message, which were removed; a crash can leave them, before \
             any client knew of the session"
        );
        let subscription = |(session, filter)| Record::Unsubscribed { session, filter };
        subscriptions.into_iter().for_each(|row| mends.fold(subscription(row)));
        let incoming_done = |(session, packet_id)| Record::IncomingDone { session, packet_id };
        incoming.into_iter().for_each(|row| mends.fold(incoming_done(row)));
        entries.into_iter().for_each(|number| mends.fold(Record::EntryDone(number)));
        bodies.into_iter().for_each(|number| mends.fold(Record::BodyDone(number)));
        mends
    }
}
