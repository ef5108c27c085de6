//! Requests to JetStream, and their answers.

use super::client::Nats;
use super::failure::Failure;
use super::link::{Answerer, REQUEST};
use crate::clock;
use crate::time::millis;
use async_nats::client::Request;
use async_nats::{Client, HeaderMap, Message, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::StreamExt;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};
use tokio::time::{sleep, timeout};

/// Bound of a read of many messages.
const READ: Duration = Duration::from_secs(10);
/// Time after which such a read returns what it has, in nanoseconds.
const READ_NS: u64 = 9_000_000_000;
/// Times that "not found" is doubted, and the time between them.
const NOT_FOUND: u32 = 3;
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// Maximum number of messages in one read, so that the client's buffer for them never overflows.
const BATCH: usize = 4096;
/// Maximum bytes in one read, so that the server does not take the client for one that is too slow.
const BATCH_BYTES: usize = 8 * 1024 * 1024;

/// The answer to a publication.
#[derive(Debug, Deserialize)]
pub(super) struct Stored {
    pub(super) stream: String,
    pub(super) seq: u64,
}

/// What a leader says about a stream.
#[derive(Debug, Deserialize)]
pub(super) struct StreamInfo {
    pub(super) config: StreamConfig,
    pub(super) state: StreamState,
    pub(super) cluster: Option<StreamCluster>,
    /// The time of the answer.
    #[serde(default)]
    ts: String,
}

impl StreamInfo {
    /// Returns the time of the answer by the clock of the leader, in milliseconds since 1970.
    pub(super) fn answered_ms(&self) -> Option<u64> {
        unix_ms(&self.ts)
    }
}

/// Reads a time as servers write it. Returns milliseconds since 1970.
fn unix_ms(text: &str) -> Option<u64> {
    let time = humantime::parse_rfc3339(text).ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(millis(time))
}

/// The settings of a stream, as far as they matter here.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct StreamConfig {
    pub(super) subjects: Vec<String>,
    pub(super) retention: String,
    pub(super) storage: String,
    pub(super) discard: String,
    pub(super) num_replicas: u64,
    pub(super) max_age: u64,
    pub(super) max_bytes: i64,
    pub(super) max_msgs: i64,
    pub(super) max_msgs_per_subject: i64,
    pub(super) max_msg_size: i64,
    pub(super) allow_direct: bool,
    pub(super) deny_delete: bool,
    pub(super) deny_purge: bool,
    pub(super) sealed: bool,
    pub(super) no_ack: bool,
    pub(super) allow_rollup_hdrs: bool,
    pub(super) mirror: Option<Value>,
    pub(super) sources: Option<Value>,
}

/// The content of a stream, in numbers.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct StreamState {
    pub(super) messages: u64,
    pub(super) bytes: u64,
    pub(super) first_seq: u64,
    pub(super) last_seq: u64,
    /// The subjects with their counts, if they were asked for.
    pub(super) subjects: Option<BTreeMap<String, u64>>,
}

/// The servers of a stream.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct StreamCluster {
    pub(super) leader: Option<String>,
}

#[derive(Deserialize)]
struct Found {
    message: FoundMessage,
}

/// A message, with headers and content in Base64.
#[derive(Debug, Deserialize)]
pub(super) struct FoundMessage {
    pub(super) seq: u64,
    #[serde(default)]
    hdrs: String,
    #[serde(default)]
    data: String,
    #[serde(default)]
    time: String,
}

impl FoundMessage {
    /// Returns the content.
    pub(super) fn content(&self) -> Result<Bytes, Failure> {
        decode(&self.data)
    }

    /// Returns the time at which the leader stored it, in milliseconds since 1970.
    pub(super) fn stored_ms(&self) -> Option<u64> {
        unix_ms(&self.time)
    }

    /// Returns the headers, as they are sent.
    pub(super) fn headers(&self) -> Result<Bytes, Failure> {
        decode(&self.hdrs)
    }
}

fn decode(text: &str) -> Result<Bytes, Failure> {
    let malformed = |error: base64::DecodeError| Failure::Malformed(error.to_string());
    STANDARD.decode(text).map(Bytes::from).map_err(malformed)
}

/// The answer to a change of which only the success matters.
#[derive(Debug, Deserialize)]
pub(super) struct Done {}

#[derive(Deserialize)]
struct MayFail {
    error: Option<ApiError>,
}

#[derive(Deserialize)]
struct ApiError {
    #[serde(default)]
    err_code: u64,
    #[serde(default)]
    description: String,
}

/// Reads an answer, which is an error or what was asked for.
pub(super) fn parse<T: DeserializeOwned>(payload: &[u8]) -> Result<T, Failure> {
    let malformed = |error: serde_json::Error| Failure::Malformed(error.to_string());
    if let Some(error) = serde_json::from_slice::<MayFail>(payload).map_err(malformed)?.error {
        return Err(Failure::Refused(error.err_code, error.description));
    }
    serde_json::from_slice(payload).map_err(malformed)
}

/// Publishes to a stream, and waits for its answer.
pub(super) fn publish(
    nats: &Nats,
    answerer: Answerer,
    limit: Duration,
    (subject, headers, payload): (String, HeaderMap, Bytes),
) -> Result<Stored, Failure> {
    nats.link.run(answerer, limit, async |client: &Client| {
        let request = Request::new().headers(headers).payload(payload).timeout(Some(limit));
        let answer = client.send_request(subject, request).await?;
        parse::<Stored>(&answer.payload)
    })
}

/// Asks JetStream, whose answer comes from the leader of the stream or of all.
///
/// A server that has just become the leader of all may not know a stream yet, so "not found" counts
/// when it was said some times.
pub(super) fn ask<T: DeserializeOwned>(
    nats: &Nats,
    limit: Duration,
    verb: &str,
    stream: &str,
    body: &Value,
) -> Result<T, Failure> {
    let (subject, payload) = (format!("$JS.API.{verb}.{stream}"), Bytes::from(body.to_string()));
    nats.link.run(Answerer::Leader, limit, async |client: &Client| {
        let mut is_doubtful = NOT_FOUND;
        loop {
            let request = Request::new().payload(payload.clone()).timeout(Some(limit));
            let answer = client.send_request(subject.clone(), request).await?;
            match parse(&answer.payload) {
                Err(failure) if failure.is_missing_stream() && is_doubtful > 0 => is_doubtful -= 1,
                result => return result,
            }
            sleep(ASK_AGAIN).await;
        }
    })
}

/// Returns what a leader says about a stream.
pub(super) fn info(nats: &Nats, stream: &str, subjects: &str) -> Result<StreamInfo, Failure> {
    let body =
        if subjects.is_empty() { Value::Null } else { serde_json::json!({"subjects_filter": subjects}) };
    ask(nats, REQUEST, "STREAM.INFO", stream, &body)
}

/// Returns a message as the leader of its stream has it, or `None` if it has none.
pub(super) fn find(nats: &Nats, stream: &str, which: &Value) -> Result<Option<FoundMessage>, Failure> {
    match ask::<Found>(nats, REQUEST, "STREAM.MSG.GET", stream, which) {
        Ok(found) => Ok(Some(found.message)),
        Err(failure) if failure.is_missing_message() => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// What messages of a stream a read is about.
pub(super) struct Range<'a> {
    pub(super) stream: &'a str,
    /// The first sequence that may be returned.
    pub(super) from: u64,
    /// Only messages of this subject.
    pub(super) subject: Option<&'a str>,
    /// Bytes after which the read ends.
    pub(super) bytes: usize,
}

/// Reads messages with their sequences from any replica, without a consumer (direct batch read).
/// What has come when the answer breaks off is returned, if it is something.
pub(super) fn read(nats: &Nats, range: &Range<'_>) -> Result<Vec<(u64, Bytes)>, Failure> {
    let mut body = serde_json::json!({"seq": range.from, "batch": BATCH, "max_bytes": range.bytes.clamp(1, BATCH_BYTES)});
    if let Some(subject) = range.subject {
        body["next_by_subj"] = subject.into();
    }
    let (subject, payload) = (format!("$JS.API.DIRECT.GET.{}", range.stream), Bytes::from(body.to_string()));
    nats.link.run(Answerer::Replica, READ, async |client: &Client| {
        let inbox = client.new_inbox();
        let not_sent = |error: &dyn std::error::Error| Failure::NotSent(error.to_string());
        let mut answers = client.subscribe(inbox.clone()).await.map_err(|error| not_sent(&error))?;
        client.publish_with_reply(subject, inbox, payload).await.map_err(|error| not_sent(&error))?;
        let (mut found, begun) = (Vec::new(), clock::nanos());
        loop {
            let message = timeout(REQUEST, answers.next()).await.ok().flatten();
            match message.as_ref().map_or(Err(Failure::NoAnswer), one_of_many) {
                Ok(Some(one)) => {
                    found.push(one);
                    if clock::nanos() - begun > READ_NS {
                        return Ok(found);
                    }
                }
                Ok(None) => return Ok(found),
                Err(_) if !found.is_empty() => return Ok(found),
                Err(failure) => return Err(failure),
            }
        }
    })
}

/// Reads one answer of many: a message with its sequence, or `None` at the end.
fn one_of_many(message: &Message) -> Result<Option<(u64, Bytes)>, Failure> {
    match message.status {
        None => {}
        // "EOB", the end of the batch; "No Results" and "Message Not Found".
        Some(status) if status.as_u16() == 204 || status == StatusCode::NOT_FOUND => return Ok(None),
        Some(StatusCode::NO_RESPONDERS) => return Err(Failure::NoResponders),
        Some(status) => {
            let text = message.description.clone().unwrap_or_default();
            return Err(Failure::Malformed(format!("{status} {text}")));
        }
    }
    let header = |name: &str| message.headers.as_ref().and_then(|headers| headers.get(name));
    let sequence = header("Nats-Sequence").and_then(|value| value.as_str().parse().ok());
    match sequence {
        Some(sequence) => Ok(Some((sequence, message.payload.clone()))),
        None => Err(Failure::Malformed("a message has no sequence".to_owned())),
    }
}
