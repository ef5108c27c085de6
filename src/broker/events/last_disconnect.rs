//! Writes the last-disconnect record of a client: why its connection ended, as JSON.
//!
//! A plain DISCONNECT of the client and the broker's own stop have no record. The shard bounds the
//! number of records, because all shards share the retained messages.

use super::client_level;
use crate::events::client_events::{ClientEvent, DisconnectCause, EventDetail, Occurrence};
use crate::session::outbound::stall::Stall;
use crate::time::Instant;
use crate::time::millis;
use serde_json::json;

/// Returns the topic and the JSON of the record, as `docs/client-events.md` describes it.
///
/// Returns `None` if the event is no disconnect, if it needs no explanation, if the shard keeps no
/// records, and if the client id is too long for a topic.
pub fn record(now: Instant, event: &ClientEvent) -> Option<(String, String)> {
    let ClientEvent { client_id, occurrence: Occurrence::Disconnected(cause), .. } = event else {
        return None;
    };
    let detail = event.detail.as_ref().filter(|_| cause.needs_explanation())?;
    let level = client_level(client_id.as_deref()?)?;
    let topic = format!("$homing/clients/{level}/last-disconnect");
    Some((topic, describe(now, event, cause, detail)))
}

fn describe(now: Instant, event: &ClientEvent, cause: &DisconnectCause, detail: &EventDetail) -> String {
    let stall = |stall: Stall| {
        json!({
            "packet_id": stall.packet_id.get(),
            "age_ms": millis(stall.age.least),
            "sent_before_start": stall.age.is_over,
            "transmissions": stall.transmissions,
        })
    };
    json!({
        "cause": cause.name(),
        "text": cause.to_string(),
        "version": event.version.map(|version| version.to_string()),
        "uptime_ms": now.as_millis(),
        "last_packet_ms_ago": detail.silent.map(millis),
        "lateness_ms": detail.late.map(millis),
        "oldest_unacknowledged": detail.oldest_unacknowledged.map(stall),
        "in_flight": detail.in_flight,
        "queued": detail.queued,
    })
    .to_string()
}
