//! The snapshots: an object store of NATS (its ADR-20), a stream with chunks and one description
//! for each object.
//!
//! A snapshot is the object `C<cell>/<position>`. Its description is written after its last chunk,
//! so a snapshot is listed whole or not at all. Chunks have a name of their own in each attempt,
//! and an identifier by which the engine drops the second of two equal ones. They are read like
//! frames, without a consumer.

use super::client::Nats;
use super::failure::Failure;
use super::link::{Answerer, LONG_REQUEST, REQUEST};
use super::wire::{self, Done, Range};
use crate::clock;
use crate::cluster::engine::{EngineError, SnapshotError};
use async_nats::HeaderMap;
use aws_lc_rs::digest::{Context, SHA256};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::thread;
use std::time::Duration;

/// Size of a chunk, in bytes: what NATS's own tools use.
const CHUNK: usize = 128 * 1024;
/// Bytes that one read asks for.
const READ_BYTES: usize = 4 * 1024 * 1024;
/// Time without progress after which a copy is given up, in nanoseconds.
const NO_PROGRESS_NS: u64 = 10_000_000_000;
/// Time before another attempt, so that an engine without a leader is not asked without pause.
const RETRY: Duration = Duration::from_millis(100);

/// The description of an object.
#[derive(Serialize, Deserialize)]
struct Description {
    name: String,
    bucket: String,
    /// The name of the chunks.
    nuid: String,
    size: u64,
    chunks: u64,
    digest: String,
    #[serde(default)]
    deleted: bool,
}

pub(super) fn put(nats: &Nats, position: u64, from: &mut dyn Read) -> Result<(), SnapshotError> {
    let name = format!("{}{position}", nats.names.cell);
    let attempt = format!("{}-{}", name.replace('/', "-"), nats.link.unique());
    let result = put_chunks(nats, &attempt, from).and_then(|(size, chunks, digest)| {
        let bucket = nats.names.bucket.clone();
        let nuid = attempt.clone();
        let description =
            Description { name: name.clone(), bucket, nuid, size, chunks, digest, deleted: false };
        let payload = serde_json::to_vec(&description).unwrap_or_default();
        let mut headers = HeaderMap::new();
        // The description replaces the one before.
        headers.insert("Nats-Rollup", "sub");
        let subject = nats.names.description(&URL_SAFE.encode(&name));
        keep_trying(nats, &(subject, headers, payload.into()))
    });
    if result.is_err() {
        // What remains goes with a later removal, if the engine does not answer now.
        let _ = purge(nats, &nats.names.chunks(&attempt));
    }
    result
}

/// Stores the chunks. Returns size, number and digest.
fn put_chunks(nats: &Nats, attempt: &str, from: &mut dyn Read) -> Result<(u64, u64, String), SnapshotError> {
    let (mut size, mut chunks, mut digest) = (0, 0, Context::new(&SHA256));
    loop {
        let mut chunk = Vec::with_capacity(CHUNK);
        from.take(CHUNK as u64).read_to_end(&mut chunk)?;
        if chunk.is_empty() {
            return Ok((size, chunks, digest_text(digest)));
        }
        digest.update(&chunk);
        size += chunk.len() as u64;
        chunks += 1;
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Msg-Id", format!("{attempt}-{chunks}"));
        keep_trying(nats, &(nats.names.chunks(attempt), headers, chunk.into()))?;
    }
}

/// Publishes until the engine has stored it. An attempt whose answer was lost is harmless: chunks
/// have identifiers, and a description replaces itself.
fn keep_trying(nats: &Nats, what: &(String, HeaderMap, Bytes)) -> Result<(), SnapshotError> {
    let begun = clock::nanos();
    loop {
        let failure = match wire::publish(nats, Answerer::Leader, REQUEST, what.clone()) {
            Ok(_) => return Ok(()),
            Err(failure) => failure,
        };
        let is_hopeless = failure.is_final() || failure.is_full() || failure.is_missing_stream();
        if is_hopeless || clock::nanos().saturating_sub(begun) > NO_PROGRESS_NS {
            return Err(explain(nats, failure).into());
        }
        thread::sleep(RETRY);
    }
}

pub(super) fn get(nats: &Nats, position: u64, into: &mut dyn Write) -> Result<(), SnapshotError> {
    let description = describe(nats, position)?;
    let damaged = |what: String| SnapshotError::Damaged { position, what };
    let subject = nats.names.chunks(&description.nuid);
    let (mut size, mut from, mut digest) = (0, 1, Context::new(&SHA256));
    let mut progress = clock::nanos();
    while size < description.size {
        let range = Range { stream: &nats.names.snapshots, from, subject: Some(&subject), bytes: READ_BYTES };
        let chunks = wire::read(nats, &range);
        let is_late = clock::nanos().saturating_sub(progress) > NO_PROGRESS_NS;
        match chunks {
            Ok(chunks) if !chunks.is_empty() => {
                for (sequence, chunk) in chunks {
                    from = sequence + 1;
                    size += chunk.len() as u64;
                    digest.update(&chunk);
                    into.write_all(&chunk)?;
                }
                progress = clock::nanos();
            }
            // This replica may lag, so another read may find them.
            Ok(_) if is_late => return Err(damaged(format!("{size} of {} bytes", description.size))),
            Err(failure) if is_late => return Err(explain(nats, failure).into()),
            Ok(_) | Err(_) => thread::sleep(RETRY),
        }
    }
    if size != description.size || digest_text(digest) != description.digest {
        return Err(damaged("its digest is another one".to_owned()));
    }
    Ok(())
}

fn describe(nats: &Nats, position: u64) -> Result<Description, SnapshotError> {
    let name = format!("{}{position}", nats.names.cell);
    let body = serde_json::json!({"last_by_subj": nats.names.description(&URL_SAFE.encode(&name))});
    let found = wire::find(nats, &nats.names.snapshots, &body).map_err(|failure| explain(nats, failure))?;
    let found = found.ok_or(SnapshotError::Missing(position))?;
    let bytes = found.content().map_err(|failure| explain(nats, failure))?;
    let description: Description = serde_json::from_slice(&bytes)
        .map_err(|error| SnapshotError::Damaged { position, what: format!("its description: {error}") })?;
    if description.deleted { Err(SnapshotError::Missing(position)) } else { Ok(description) }
}

pub(super) fn list(nats: &Nats) -> Result<Vec<u64>, EngineError> {
    let of_position = |subject: &String| {
        let name = String::from_utf8(URL_SAFE.decode(subject.rsplit('.').next()?).ok()?).ok()?;
        name.strip_prefix(&nats.names.cell)?.parse().ok()
    };
    let mut positions: Vec<u64> =
        subjects(nats, &nats.names.description(">"))?.iter().filter_map(of_position).collect();
    positions.sort_unstable();
    Ok(positions)
}

pub(super) fn remove(nats: &Nats, position: u64) -> Result<(), EngineError> {
    // The description first, so that nothing is listed without its chunks.
    for old in list(nats)?.into_iter().filter(|old| *old < position) {
        let name = format!("{}{old}", nats.names.cell);
        purge(nats, &nats.names.description(&URL_SAFE.encode(name)))?;
    }
    let prefix = nats.names.chunks(&nats.names.cell.replace('/', "-"));
    for subject in subjects(nats, &nats.names.chunks(">"))? {
        let rest = subject.strip_prefix(&prefix).and_then(|rest| rest.split('-').next());
        if rest.and_then(|rest| rest.parse().ok()).is_some_and(|old: u64| old < position) {
            purge(nats, &subject)?;
        }
    }
    Ok(())
}

/// Returns the subjects that a filter covers.
fn subjects(nats: &Nats, filter: &str) -> Result<Vec<String>, EngineError> {
    let info = wire::info(nats, &nats.names.snapshots, filter).map_err(|failure| explain(nats, failure))?;
    Ok(info.state.subjects.unwrap_or_default().into_keys().collect())
}

fn purge(nats: &Nats, subject: &str) -> Result<(), EngineError> {
    let body = serde_json::json!({"filter": subject});
    let purged: Result<Done, Failure> =
        wire::ask(nats, LONG_REQUEST, "STREAM.PURGE", &nats.names.snapshots, &body);
    purged.map(drop).map_err(|failure| explain(nats, failure))
}

fn explain(nats: &Nats, failure: Failure) -> EngineError {
    nats.explain(failure, &format!("the snapshots {}", nats.names.snapshots))
}

fn digest_text(digest: Context) -> String {
    format!("SHA-256={}", URL_SAFE.encode(digest.finish()))
}
