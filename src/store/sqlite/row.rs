//! Rows as values. What no broker wrote is an error that names table and column: the file was changed by other hands.

use crate::journal::record::{Flight, SessionKey, StoredSession};
use crate::mqtt::charge::Charge;
use crate::mqtt::message::{Message, Parts};
use crate::mqtt::packet::{ProtocolVersion, QoS};
use crate::mqtt::session::subscription::SubscriptionIds;
use crate::mqtt::session::will::Will;
use crate::store::wall::{FAR, FileTime};
use crate::time::Instant;
use rusqlite::types::Type;
use rusqlite::{Error, Result, Row};
use std::fmt;
use std::time::Duration;

/// A value that is not one of those written there.
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

pub fn number(row: &Row<'_>, column: usize) -> Result<u64> {
    Ok(row.get::<_, i64>(column)? as u64)
}

pub fn instant(row: &Row<'_>, column: usize, opened: FileTime) -> Result<Instant> {
    let wall: i64 = row.get(column)?;
    Ok(opened.instant(u64::try_from(wall).unwrap_or(0)))
}

/// As [`instant`], of a session, whose "never" is shorter.
fn session_time(row: &Row<'_>, column: usize, opened: FileTime) -> Result<Instant> {
    let far = row.get::<_, i64>(column)? as u64 >= FAR;
    if far { Ok(Instant::NEVER) } else { instant(row, column, opened) }
}

pub fn qos(row: &Row<'_>, column: usize) -> Result<QoS> {
    let bits: u8 = row.get(column)?;
    QoS::from_bits(bits).ok_or_else(|| unlawful(column, i64::from(bits)))
}

/// `expires_ms`, `qos`, `retain` from here on, then these.
pub fn message(
    row: &Row<'_>,
    first: usize,
    opened: FileTime,
    columns: [usize; 3],
    scratch: &mut Vec<u8>,
) -> Result<Message> {
    message_by(None, row, first, opened, columns, scratch)
}

/// The same with its publisher, where that is kept.
pub fn message_by(
    publisher: Option<&str>,
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
    Ok(Message::published_by(publisher.unwrap_or_default(), parts, scratch))
}

pub fn flight(row: &Row<'_>, first: usize) -> Result<Option<Flight>> {
    let running: Option<i64> = row.get(first)?;
    let transmissions: Option<u16> = row.get(first + 1)?;
    Ok(running
        .map(|running| Flight { running: running as u64, transmissions: transmissions.unwrap_or_default() }))
}

pub fn ids(row: &Row<'_>, column: usize) -> Result<SubscriptionIds> {
    let Some(text) = row.get_ref(column)?.as_str_or_null()? else { return Ok(SubscriptionIds::None) };
    let ids = text.split(',').map(|id| id.parse().map_err(|_| unlawful(column, 0)));
    Ok(SubscriptionIds::from_several(&ids.collect::<Result<Vec<u32>>>()?))
}

pub fn session(row: &Row<'_>, opened: FileTime) -> Result<StoredSession> {
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
    let duration =
        |column| row.get::<_, Option<i64>>(column).map(|ms| ms.map(|ms| Duration::from_millis(ms as u64)));
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
        will: will.transpose()?,
    })
}
