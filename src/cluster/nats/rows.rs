//! The rows: a key-value bucket of NATS (its ADR-8), a stream that keeps the last message of each
//! subject. Reads go to the leader, because a replica that lags would show an older row.

use super::client::Nats;
use super::failure::Failure;
use super::link::{Answerer, LONG_REQUEST, REQUEST};
use super::wire::{self, Done, StreamInfo};
use crate::cluster::engine::{EngineError, MAX_ROW, Row, check_key};
use async_nats::HeaderMap;
use bytes::Bytes;

/// A row, or the mark that somebody has left in its place with the command `nats kv del`.
struct Entry {
    row: Row,
    is_deleted: bool,
}

fn subject(nats: &Nats, key: &str) -> Result<String, EngineError> {
    check_key(key)?;
    Ok(format!("{}{key}", nats.names.row))
}

fn explain(nats: &Nats, key: &str, failure: Failure) -> EngineError {
    nats.explain(failure, &format!("the row {key:?} of {}", nats.names.rows))
}

pub(super) fn get(nats: &Nats, key: &str) -> Result<Option<Row>, EngineError> {
    let entry = entry(nats, key)?;
    Ok(entry.filter(|entry| !entry.is_deleted).map(|entry| entry.row))
}

fn entry(nats: &Nats, key: &str) -> Result<Option<Entry>, EngineError> {
    let body = serde_json::json!({"last_by_subj": subject(nats, key)?});
    let explain = |failure| explain(nats, key, failure);
    let Some(found) = wire::find(nats, &nats.names.rows, &body).map_err(explain)? else { return Ok(None) };
    let is_deleted = found.headers().map_err(explain)?.windows(13).any(|header| header == b"KV-Operation:");
    let value = found.content().map_err(explain)?;
    let row = Row { value, revision: found.seq, stored_ms: found.stored_ms() };
    Ok(Some(Entry { row, is_deleted }))
}

pub(super) fn clock_ms(nats: &Nats) -> Result<Option<u64>, EngineError> {
    Ok(info(nats, "")?.answered_ms())
}

fn info(nats: &Nats, subjects: &str) -> Result<StreamInfo, EngineError> {
    wire::info(nats, &nats.names.rows, subjects)
        .map_err(|failure| nats.explain(failure, &format!("the rows {}", nats.names.rows)))
}

pub(super) fn all(nats: &Nats) -> Result<Vec<(String, Row)>, EngineError> {
    let info = info(nats, &format!("{}>", nats.names.row))?;
    let mut rows = Vec::new();
    for subject in info.state.subjects.unwrap_or_default().keys() {
        let key = subject.strip_prefix(&nats.names.row).unwrap_or(subject);
        // It may have gone since.
        if let Some(row) = get(nats, key)? {
            rows.push((key.to_owned(), row));
        }
    }
    Ok(rows)
}

pub(super) fn put(nats: &Nats, key: &str, value: Bytes) -> Result<u64, EngineError> {
    write(nats, key, None, value)?.map_err(|failure| explain(nats, key, failure))
}

pub(super) fn swap(nats: &Nats, key: &str, expected: u64, value: Bytes) -> Result<Option<u64>, EngineError> {
    let first = write(nats, key, Some(expected), value.clone())?;
    let result = match first {
        Err(failure) if expected == 0 && failure.is_wrong_last() => match entry(nats, key)? {
            // Not there, and yet it has a revision.
            Some(mark) if mark.is_deleted => write(nats, key, Some(mark.row.revision), value)?,
            _ => return Ok(None),
        },
        other => other,
    };
    match result {
        Ok(revision) => Ok(Some(revision)),
        Err(failure) if failure.is_wrong_last() => Ok(None),
        Err(failure) => Err(explain(nats, key, failure)),
    }
}

/// Writes a row. The outer result is about the arguments.
fn write(
    nats: &Nats,
    key: &str,
    expected: Option<u64>,
    value: Bytes,
) -> Result<Result<u64, Failure>, EngineError> {
    let subject = subject(nats, key)?;
    if value.len() > MAX_ROW {
        let size = value.len();
        return Err(EngineError::Refused(format!("the row {key:?} has {size} bytes, and {MAX_ROW} may be")));
    }
    let mut headers = HeaderMap::new();
    if let Some(expected) = expected {
        headers.insert("Nats-Expected-Last-Subject-Sequence", expected.to_string());
    }
    headers.insert("Nats-Expected-Stream", nats.names.rows.as_str());
    let stored = wire::publish(nats, Answerer::Leader, REQUEST, (subject, headers, value));
    Ok(stored.map(|stored| stored.seq))
}

pub(super) fn remove(nats: &Nats, key: &str) -> Result<(), EngineError> {
    let body = serde_json::json!({"filter": subject(nats, key)?});
    let removed: Result<Done, Failure> =
        wire::ask(nats, LONG_REQUEST, "STREAM.PURGE", &nats.names.rows, &body);
    removed.map(drop).map_err(|failure| explain(nats, key, failure))
}
