//! A commit group as SQL statements. Each statement is prepared once for the connection, and taken
//! from the statement cache once for a group.

use super::digest::{BODY, DELAYED, ENTRY, INCOMING, LETTER, RETAINED, SESSION, SUBSCRIPTION};
use crate::mqtt::message::Message;
use crate::mqtt::packet::ReasonCode;
use crate::mqtt::retained_message::RetainedMessage;
use crate::mqtt::subscription_ids::SubscriptionIds;
use crate::persistence::letter::StoredLetter;
use crate::persistence::records::{
    BodyNumber, Record, RetainedRecord, StoredDelayed, StoredEntry, StoredSession,
};
use crate::store::coalesce::CommitGroup;
use crate::store::operation::Operation;
use crate::store::wall::{FAR, FileTime};
use crate::time::Instant;
use rusqlite::types::Null;
use rusqlite::{CachedStatement, Connection, Result, params};
use std::fmt::Write;
use std::time::Duration;

/// The prepared statements of a group.
pub(super) struct Statements<'c> {
    /// For statements that are rare, and so not prepared for each group.
    connection: &'c Connection,
    time: FileTime,
    session: CachedStatement<'c>,
    session_state: CachedStatement<'c>,
    session_ended: [CachedStatement<'c>; 3],
    subscribed: CachedStatement<'c>,
    unsubscribed: CachedStatement<'c>,
    body: CachedStatement<'c>,
    body_done: CachedStatement<'c>,
    entry: CachedStatement<'c>,
    entry_changed: CachedStatement<'c>,
    entry_done: CachedStatement<'c>,
    incoming: CachedStatement<'c>,
    incoming_done: CachedStatement<'c>,
    retained: CachedStatement<'c>,
    retained_removed: CachedStatement<'c>,
    delayed: CachedStatement<'c>,
    delayed_done: CachedStatement<'c>,
}

impl<'c> Statements<'c> {
    /// Prepares the statements; `time` maps the times of the group to file times.
    ///
    /// # Errors
    /// Returns the error of SQLite.
    pub(super) fn new(connection: &'c Connection, time: FileTime) -> Result<Statements<'c>> {
        let prepare = |sql: &str| connection.prepare_cached(sql);
        let connection_state = SESSION.moved(|column| match column {
            "connected" => Some("?2"),
            "ends_ms" => Some("?3"),
            "will_due_ms" => Some("?4"),
            _ => None,
        });
        let [packet_number, transmissions, body] =
            ["coalesce(?2, packet_number)", "coalesce(?3, transmissions)", "iif(?4, NULL, body)"];
        let flight = ENTRY.moved(|column| match column {
            "packet_number" => Some(packet_number),
            "transmissions" => Some(transmissions),
            "body" => Some(body),
            _ => None,
        });
        Ok(Statements {
            connection,
            time,
            session: prepare(&SESSION.replace())?,
            session_state: prepare(&format!(
                "UPDATE session SET connected = ?2, ends_ms = ?3, will_due_ms = ?4, digest = {connection_state} \
                 WHERE number = ?1"
            ))?,
            session_ended: [
                prepare("DELETE FROM session WHERE number = ?")?,
                prepare("DELETE FROM subscription WHERE session = ?")?,
                prepare("DELETE FROM incoming WHERE session = ?")?,
            ],
            subscribed: prepare(&SUBSCRIPTION.replace())?,
            unsubscribed: prepare("DELETE FROM subscription WHERE session = ? AND filter = ?")?,
            body: prepare(&BODY.insert())?,
            body_done: prepare("DELETE FROM body WHERE number = ?")?,
            entry: prepare(&ENTRY.insert())?,
            entry_changed: prepare(&format!(
                "UPDATE entry SET packet_number = {packet_number}, transmissions = {transmissions}, body = {body}, \
                 digest = {flight} WHERE number = ?1"
            ))?,
            entry_done: prepare("DELETE FROM entry WHERE number = ?")?,
            incoming: prepare(&INCOMING.replace())?,
            incoming_done: prepare("DELETE FROM incoming WHERE session = ? AND packet_id = ?")?,
            retained: prepare(&RETAINED.replace())?,
            retained_removed: prepare("DELETE FROM retained WHERE topic = ?")?,
            delayed: prepare(&DELAYED.insert())?,
            delayed_done: prepare("DELETE FROM delayed WHERE number = ?")?,
        })
    }

    /// Writes a whole group.
    ///
    /// # Errors
    /// Returns the error of SQLite; then the caller must roll the transaction back.
    pub(super) fn write(&mut self, group: &CommitGroup) -> Result<()> {
        // Deletions come first and make room for the rest. So a group that ends with less than
        // there was before always fits.
        self.remove_retained(group)?;
        group.operations().filter(|o| o.deletes()).try_for_each(|operation| self.apply(operation))?;
        let set = |record: &&RetainedRecord| matches!(record, RetainedRecord::Set(_));
        group.retained().iter().filter(set).try_for_each(|record| self.retain(record))?;
        group.operations().filter(|o| !o.deletes()).try_for_each(|operation| self.apply(operation))
    }

    /// Writes only the operations that need no room.
    ///
    /// # Errors
    /// As [`Statements::write`].
    pub(super) fn write_ahead(&mut self, group: &CommitGroup) -> Result<()> {
        self.remove_retained(group)?;
        group.ahead().try_for_each(|operation| self.apply(operation))
    }

    fn remove_retained(&mut self, group: &CommitGroup) -> Result<()> {
        group.retained_removed().try_for_each(|record| self.retain(record))
    }

    fn retain(&mut self, record: &RetainedRecord) -> Result<()> {
        match record {
            RetainedRecord::Set(RetainedMessage { message: m, source, owner }) => RETAINED.put(
                &mut self.retained,
                params![
                    m.topic(),
                    self.time.expiry(m),
                    m.header().qos.bits(),
                    m.header().retain,
                    m.forwarded(),
                    m.payload(),
                    source.as_ref().map(|source| &*source.client_id),
                    source.as_ref().and_then(|source| source.user.as_deref()),
                    source.as_ref().and_then(|source| source.listener.as_deref()),
                    owner.as_ref().map(|owner| owner.client_id()),
                    owner.as_ref().map(|owner| owner.listener()),
                ],
            )?,
            RetainedRecord::Removed(removed) => self.retained_removed.execute([removed.topic()])?,
        };
        Ok(())
    }

    fn apply(&mut self, operation: &Operation) -> Result<()> {
        match &operation.record {
            Record::Session(session) => self.put_session(session)?,
            Record::SessionState(state) => self.session_state.execute(params![
                state.key.0 as i64,
                state.connected,
                self.time.far(state.ends),
                self.time.far(state.will_due),
            ])?,
            Record::SessionEnded(key) => {
                for statement in &mut self.session_ended {
                    statement.execute([key.0 as i64])?;
                }
                0
            }
            Record::Subscribed(s) => SUBSCRIPTION.put(
                &mut self.subscribed,
                params![s.session.0 as i64, s.filter, s.options, s.subscription_id],
            )?,
            Record::Unsubscribed { session, filter } => {
                self.unsubscribed.execute(params![session.0 as i64, filter])?
            }
            Record::Body { number, message } => self.put_body(*number, message, operation.frame_ms)?,
            Record::BodyDone(number) | Record::BodyReleased(number) => {
                self.body_done.execute([number.0 as i64])?
            }
            Record::Entry(entry) => self.put_entry(entry, operation.is_received())?,
            Record::Sent { number, flight } => self.entry_changed.execute(params![
                number.0 as i64,
                flight.running as i64,
                flight.transmissions,
                operation.is_received(),
            ])?,
            Record::Received(number) => {
                self.entry_changed.execute(params![number.0 as i64, Null, Null, true])?
            }
            Record::EntryDone(number) | Record::EntryAcknowledged(number) => {
                self.entry_done.execute([number.0 as i64])?
            }
            Record::Incoming { session, packet_id } => {
                INCOMING.put(&mut self.incoming, params![session.0 as i64, packet_id.get()])?
            }
            Record::IncomingDone { session, packet_id } | Record::IncomingRefused { session, packet_id } => {
                self.incoming_done.execute(params![session.0 as i64, packet_id.get()])?
            }
            Record::Delayed(delayed) => self.put_delayed(delayed)?,
            Record::DelayedDone(number) => self.delayed_done.execute([number.0 as i64])?,
            Record::Letter(letter) => self.put_letter(letter)?,
            Record::LetterDone(number) => {
                let delete = "DELETE FROM letter WHERE number = ?";
                self.connection.prepare_cached(delete)?.execute([number.0 as i64])?
            }
            Record::Nothing => 0,
        };
        Ok(())
    }

    fn put_session(&mut self, session: &StoredSession) -> Result<usize> {
        let will = session.will.as_deref();
        if will.is_some() {
            // SQLite lays a replacing row out before the old one is gone. With a will of up to 1
            // MiB that needs room.
            self.session_ended[0].execute([session.key.0 as i64])?;
        }
        SESSION.put(
            &mut self.session,
            params![
                session.key.0 as i64,
                session.client_id,
                session.version as u8,
                session.expiry,
                session.connected,
                self.time.far(session.ends),
                self.time.far(session.will_due),
                session.retry_interval.map(millis),
                session.ack_timeout.map(millis),
                will.map(|w| &w.topic),
                will.map(|w| w.qos.bits()),
                will.map(|w| w.retain),
                will.map(|w| millis(w.delay)),
                will.and_then(|w| w.message_expiry),
                will.map(|w| &w.forwarded),
                will.map(|w| &w.payload),
                session.user_name,
                session.access.claimed_name,
                session.access.rules,
                session.access.listener,
                session.access.mount_point,
            ],
        )
    }

    fn put_body(&mut self, number: BodyNumber, message: &Message, recorded_ms: u64) -> Result<usize> {
        BODY.put(
            &mut self.body,
            params![
                number.0 as i64,
                message.size() as i64,
                self.time.expiry(message),
                recorded_ms as i64,
                message.header().qos.bits(),
                message.header().retain,
                message.topic(),
                message.forwarded(),
                message.payload(),
                Some(message.publisher()).filter(|name| !name.is_empty()),
            ],
        )
    }

    fn put_delayed(&mut self, delayed: &StoredDelayed) -> Result<usize> {
        let (message, owner) = (&delayed.message, &delayed.owner);
        DELAYED.put(
            &mut self.delayed,
            params![
                delayed.number.0 as i64,
                self.time.to_file(delayed.due) as i64,
                self.time.expiry(message),
                message.header().qos.bits(),
                message.header().retain,
                message.topic(),
                message.forwarded(),
                message.payload(),
                owner.as_ref().map(|owner| owner.client_id()),
                owner.as_ref().map(|owner| owner.listener()),
            ],
        )
    }

    fn put_letter(&self, letter: &StoredLetter) -> Result<usize> {
        let StoredLetter { place, receiver, cause, code, attempts, sent_ms, message } = letter;
        let mut statement = self.connection.prepare_cached(&LETTER.insert())?;
        LETTER.put(
            &mut statement,
            params![
                place.number.0 as i64,
                place.dropped_ms as i64,
                receiver,
                cause,
                code.map(ReasonCode::byte),
                attempts,
                sent_ms.map(|(first, _)| first as i64),
                sent_ms.map(|(_, last)| last as i64),
                message.header().qos.bits(),
                message.topic(),
                message.forwarded(),
                message.payload(),
                Some(message.publisher()).filter(|name| !name.is_empty()),
            ],
        )
    }

    fn put_entry(&mut self, entry: &StoredEntry, received: bool) -> Result<usize> {
        ENTRY.put(
            &mut self.entry,
            params![
                entry.number.0 as i64,
                entry.session.0 as i64,
                (!received).then_some(entry.body.0 as i64),
                entry.qos.bits(),
                entry.retain,
                entry.flight.map(|f| f.running as i64),
                entry.flight.map(|f| f.transmissions),
                ids_as_text(&entry.ids),
                entry.share.as_deref(),
            ],
        )
    }
}

/// Ends the connections of all sessions, in place: the rows keep their lengths.
pub(super) fn disconnect(connection: &Connection, ended_ms: u64, now_ms: u64) -> Result<()> {
    // An expiry of 0xFFFF_FFFF is never.
    const ENDS: &str = "iif(expiry_seconds = 4294967295, ?3, min(?1 + expiry_seconds * 1000, ?3))";
    const WILL_DUE: &str =
        "iif(will_topic IS NULL, ?3, min(?2 + min(will_delay_ms, expiry_seconds * 1000), ?3))";
    let digest = SESSION.moved(|column| match column {
        "connected" => Some("0"),
        "ends_ms" => Some(ENDS),
        "will_due_ms" => Some(WILL_DUE),
        _ => None,
    });
    let sql = format!(
        "UPDATE session SET connected = 0, ends_ms = {ENDS}, will_due_ms = {WILL_DUE}, digest = {digest} \
         WHERE connected = 1"
    );
    connection.execute(&sql, params![ended_ms as i64, now_ms as i64, FAR as i64]).map(drop)
}

impl FileTime {
    /// Returns the file time of a session, which always takes six bytes. An UPDATE of a row that
    /// keeps its length is made in place and needs no room.
    fn far(self, at: Instant) -> i64 {
        self.to_file(at).min(FAR) as i64
    }

    fn expiry(self, message: &Message) -> i64 {
        self.to_file(message.header().expires) as i64
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Returns the identifiers as text such as `7,1`; `None` without identifiers, as nearly always.
fn ids_as_text(ids: &SubscriptionIds) -> Option<String> {
    let (first, rest) = ids.as_slice().split_first()?;
    let mut text = first.to_string();
    for id in rest {
        // Writing to a String cannot fail.
        let _ = write!(text, ",{id}");
    }
    Some(text)
}
