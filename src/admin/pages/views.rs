//! The texts that the pages show of a session and its messages.

use crate::admin::segment::segment;
use crate::broker::question::SocketFacts;
use crate::clock;
use crate::session::outbound::stall::Stall;
use crate::shard::observe::query::{InFlightSummary, MessageSummary, SessionSummary};
use crate::time::Instant;
use std::time::Duration;

/// A session in a list.
pub(super) struct ClientView {
    /// The Client Identifier, its first 256 characters.
    pub(super) name: String,
    /// The Client Identifier as one segment of a path.
    pub(super) path: String,
    pub(super) version: String,
    pub(super) state: &'static str,
    pub(super) in_flight: usize,
    pub(super) queued: usize,
    pub(super) oldest: String,
    pub(super) detail: &'static str,
}

/// A message in flight.
pub(super) struct InFlightRow {
    pub(super) packet_id: u16,
    pub(super) topic: String,
    pub(super) qos: u8,
    pub(super) waits_for: &'static str,
    pub(super) age: String,
    pub(super) sent: String,
    pub(super) due: String,
}

/// A message in the queue.
pub(super) struct QueueRow {
    pub(super) topic: String,
    pub(super) qos: u8,
    pub(super) bytes: usize,
}

impl ClientView {
    pub(super) fn of(row: &SessionSummary, socket: Option<&SocketFacts>) -> ClientView {
        let diagnosed = socket.and_then(|socket| socket.stall);
        let oldest = diagnosed.or(row.oldest);
        ClientView {
            name: row.client_id.chars().take(256).collect(),
            path: segment(&row.client_id),
            version: row.version.to_string(),
            state: row.state(),
            in_flight: row.in_flight,
            queued: row.queued,
            oldest: oldest.map(|stall| seconds(stall.age)).unwrap_or_default(),
            detail: match (oldest, diagnosed) {
                (None, _) => "",
                (Some(_), Some(stall)) => stall.cause.detail(),
                (Some(_), None) => "the client is away",
            },
        }
    }
}

impl InFlightRow {
    pub(super) fn of(row: &InFlightSummary) -> InFlightRow {
        let qos = row.message.as_ref().map_or(2, |message| message.qos as u8);
        InFlightRow {
            packet_id: row.packet_id.get(),
            topic: row
                .message
                .as_ref()
                .map_or_else(|| "(PUBREL)".to_owned(), |message| message.topic.to_string()),
            qos,
            waits_for: row.waits_for(),
            age: seconds(row.age),
            sent: format!("{}x", row.transmissions),
            due: until(row.due),
        }
    }
}

impl QueueRow {
    pub(super) fn of(row: &MessageSummary) -> QueueRow {
        QueueRow { topic: row.topic.to_string(), qos: row.qos as u8, bytes: row.payload }
    }
}

/// Returns what holds the oldest message, and for how long, as one sentence.
pub(super) fn sentence(stall: &Stall) -> String {
    let Stall { packet_id, age, transmissions, cause, .. } = stall;
    let (id, age, detail) = (packet_id.get(), seconds(*age), cause.detail());
    format!("Packet {id} is unacknowledged for {age}, sent {transmissions}x: {detail} ({}).", cause.name())
}

/// Returns the time from now, or nothing for never.
pub(super) fn until(then: Instant) -> String {
    if then.is_never() { String::new() } else { format!("in {}", seconds(then.since(clock::now()))) }
}

pub(super) fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}
