//! Database rows as values. A value that no broker writes gives an error with its table and column,
//! because the file was changed by somebody else.

use crate::mqtt::charge::Charge;
use crate::mqtt::message::{Message, Parts};
use crate::mqtt::owner::Owner;
use crate::mqtt::packet::{PacketId, ProtocolVersion, QoS, ReasonCode};
use crate::mqtt::publisher_name::PublisherName;
use crate::mqtt::retained_message::{RetainedSource, SharedSources};
use crate::mqtt::subscription_ids::SubscriptionIds;
use crate::mqtt::will::Will;
use crate::persistence::letter::{LetterNumber, LetterPlace, StoredLetter};
use crate::persistence::records::{Flight, SessionKey, StoredAccess, StoredSession};
use crate::store::wall::{FAR, FileTime};
use crate::time::Instant;
use rusqlite::types::Type;
use rusqlite::{Error, Result, Row};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A value that the broker never writes into its column.
#[derive(Debug)]
struct Unlawful(i64);

impl fmt::Display for Unlawful {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is no lawful value", self.0)
    }
}

impl std::error::Error for Unlawful {}

fn unlawful(column: usize, value: i64) -> Error {
    Error::FromSqlConversionFailure(column, Type::Integer, Box::new(Unlawful(value)))
}

/// Returns an unsigned number.
///
/// # Errors
/// Returns an error if the column is no integer.
pub(super) fn number(row: &Row<'_>, column: usize) -> Result<u64> {
    Ok(row.get::<_, i64>(column)? as u64)
}

/// As [`number`], for a column that may be NULL.
fn optional_number(row: &Row<'_>, column: usize) -> Result<Option<u64>> {
    Ok(row.get::<_, Option<i64>>(column)?.map(|number| number as u64))
}

/// Returns the instant of a file time.
///
/// # Errors
/// Returns an error if the column is no integer.
pub(super) fn instant(row: &Row<'_>, column: usize, opened: FileTime) -> Result<Instant> {
    let wall: i64 = row.get(column)?;
    Ok(opened.instant(u64::try_from(wall).unwrap_or(0)))
}

/// As [`instant`], for a time of a session, where [`FAR`] means never.
fn session_time(row: &Row<'_>, column: usize, opened: FileTime) -> Result<Instant> {
    let far = row.get::<_, i64>(column)? as u64 >= FAR;
    if far { Ok(Instant::NEVER) } else { instant(row, column, opened) }
}

/// Returns a QoS.
///
/// # Errors
/// Returns an error if the value is not 0, 1 or 2.
pub(super) fn qos(row: &Row<'_>, column: usize) -> Result<QoS> {
    let bits: u8 = row.get(column)?;
    QoS::from_bits(bits).ok_or_else(|| unlawful(column, i64::from(bits)))
}

/// Returns a Packet Identifier.
///
/// # Errors
/// Returns an error if the value is not a Packet Identifier.
pub(super) fn packet_id(row: &Row<'_>, column: usize) -> Result<PacketId> {
    let id: i64 = row.get(column)?;
    u16::try_from(id).ok().and_then(PacketId::new).ok_or_else(|| unlawful(column, id))
}

/// Returns a message without its publisher.
///
/// The columns `expires_ms`, `qos` and `retain` follow each other from `first`. `columns` are those
/// of topic, properties and payload.
///
/// # Errors
/// Returns an error if a column has a value that the broker never writes.
pub(super) fn message(
    row: &Row<'_>,
    first: usize,
    opened: FileTime,
    columns: [usize; 3],
    scratch: &mut Vec<u8>,
) -> Result<Message> {
    message_by(None, row, first, opened, columns, scratch)
}

/// As [`message`], with the publisher if it is stored.
///
/// # Errors
/// As [`message`].
pub(super) fn message_by(
    publisher: Option<PublisherName>,
    row: &Row<'_>,
    first: usize,
    opened: FileTime,
    [topic, properties, payload]: [usize; 3],
    scratch: &mut Vec<u8>,
) -> Result<Message> {
    let parts = Parts {
        expires: instant(row, first, opened)?,
        qos: qos(row, first + 1)?,
        retain: row.get(first + 2)?,
        topic: row.get_ref(topic)?.as_str()?,
        forwarded: row.get_ref(properties)?.as_blob()?,
        payload: row.get_ref(payload)?.as_blob()?,
    };
    Ok(Message::published_by(publisher, parts, scratch))
}

/// Returns the source of a retained message, if it has one. Equal sources become one, by `known`.
/// Three columns from `first`.
///
/// # Errors
/// Returns an error if a column is of another type.
pub(super) fn source(
    row: &Row<'_>,
    first: usize,
    known: &mut SharedSources,
) -> Result<Option<Arc<RetainedSource>>> {
    let text = |column| row.get_ref(column)?.as_str_or_null().map_err(Error::from);
    let (user, listener) = (text(first + 1)?, text(first + 2)?);
    Ok(text(first)?.map(|client_id| known.share(RetainedSource::new(client_id, user, listener))))
}

/// Returns the client whose limits count a message, if any. Two columns from `first`.
///
/// # Errors
/// Returns an error if a column is of another type.
pub(super) fn owner(row: &Row<'_>, first: usize) -> Result<Option<Arc<Owner>>> {
    let client_id = row.get_ref(first)?.as_str_or_null()?;
    let listener = row.get_ref(first + 1)?.as_str_or_null()?.unwrap_or_default();
    Ok(client_id.map(|client_id| Owner::new(client_id, listener)))
}

/// Returns a dead letter, from the columns of its table in their order.
///
/// # Errors
/// Returns an error if a column has a value that the broker never writes.
pub(super) fn letter(row: &Row<'_>, scratch: &mut Vec<u8>) -> Result<StoredLetter> {
    let code: Option<u8> = row.get(4)?;
    let read_code = |byte| ReasonCode::from_byte(byte).ok_or_else(|| unlawful(4, i64::from(byte)));
    let parts = Parts {
        expires: Instant::NEVER,
        qos: qos(row, 8)?,
        retain: false,
        topic: row.get_ref(9)?.as_str()?,
        forwarded: row.get_ref(10)?.as_blob()?,
        payload: row.get_ref(11)?.as_blob()?,
    };
    let publisher = row.get_ref(12)?.as_str_or_null()?.unwrap_or_default();
    Ok(StoredLetter {
        place: LetterPlace { dropped_ms: number(row, 1)?, number: LetterNumber(number(row, 0)?) },
        receiver: row.get(2)?,
        cause: row.get(3)?,
        code: code.map(read_code).transpose()?,
        attempts: row.get(5)?,
        sent_ms: optional_number(row, 6)?.zip(optional_number(row, 7)?),
        message: Message::published_by(PublisherName::shared(publisher, &mut None), parts, scratch),
    })
}

/// Returns the transmission state of an entry; `None` if it was never sent. Two columns from
/// `first`.
///
/// # Errors
/// Returns an error if a column has a value that the broker never writes.
pub(super) fn flight(row: &Row<'_>, first: usize) -> Result<Option<Flight>> {
    let running = optional_number(row, first)?;
    let transmissions: Option<u16> = row.get(first + 1)?;
    Ok(running.map(|running| Flight { running, transmissions: transmissions.unwrap_or_default() }))
}

/// Returns the number of Subscription Identifiers of a row, without parsing them.
///
/// # Errors
/// Returns an error if the column is no text.
pub(super) fn count_of_ids(row: &Row<'_>, column: usize) -> Result<u32> {
    let text = row.get_ref(column)?.as_str_or_null()?;
    Ok(text.map_or(0, |text| text.bytes().filter(|b| *b == b',').count() as u32 + 1))
}

/// Returns the Subscription Identifiers of a row.
///
/// # Errors
/// Returns an error if the column has a value that the broker never writes.
pub(super) fn ids(row: &Row<'_>, column: usize) -> Result<SubscriptionIds> {
    let Some(text) = row.get_ref(column)?.as_str_or_null()? else { return Ok(SubscriptionIds::None) };
    let ids = text.split(',').map(|id| id.parse().map_err(|_| unlawful(column, 0)));
    Ok(SubscriptionIds::from_several(&ids.collect::<Result<Vec<u32>>>()?))
}

/// The columns of `session` that came with version 3 and later. A reader may have an older file.
const USER_NAME: usize = 16;
const CLAIMED_NAME: usize = 17;
const RULES: usize = 18;
const LISTENER: usize = 19;

/// The column of version 9.
const MOUNT_POINT: usize = 20;

/// Returns the text of a column that older versions do not have.
fn later_text(row: &Row<'_>, column: usize) -> Result<Option<Box<str>>> {
    if row.as_ref().column_count() > column { row.get(column) } else { Ok(None) }
}

/// Returns a session without its subscriptions and entries.
///
/// # Errors
/// Returns an error if a column has a value that the broker never writes.
pub(super) fn session(row: &Row<'_>, opened: FileTime) -> Result<StoredSession> {
    let version = match row.get(2)? {
        3 => ProtocolVersion::V3_1,
        4 => ProtocolVersion::V3_1_1,
        5 => ProtocolVersion::V5,
        other => return Err(unlawful(2, other)),
    };
    let topic: Option<String> = row.get(9)?;
    let will = topic.map(|topic| {
        let will = Will {
            topic: topic.into(),
            qos: qos(row, 10)?,
            retain: row.get(11)?,
            delay: Duration::from_millis(number(row, 12)?),
            message_expiry: row.get(13)?,
            forwarded: row.get_ref(14)?.as_blob()?.into(),
            payload: row.get_ref(15)?.as_blob()?.into(),
            charge: Charge::NONE,
        };
        Ok::<_, Error>(will.shared())
    });
    let duration = |column| optional_number(row, column).map(|ms| ms.map(Duration::from_millis));
    Ok(StoredSession {
        key: SessionKey(number(row, 0)?),
        client_id: row.get(1)?,
        version,
        expiry: row.get(3)?,
        connected: row.get(4)?,
        ends: session_time(row, 5, opened)?,
        will_due: session_time(row, 6, opened)?,
        retry_interval: duration(7)?,
        ack_timeout: duration(8)?,
        user_name: later_text(row, USER_NAME)?,
        access: StoredAccess {
            claimed_name: later_text(row, CLAIMED_NAME)?,
            rules: later_text(row, RULES)?,
            listener: later_text(row, LISTENER)?,
            mount_point: later_text(row, MOUNT_POINT)?,
        },
        will: will.transpose()?,
    })
}
