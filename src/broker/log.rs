//! Connects, refusals, disconnects and redeliveries, as log lines: bounded in rate, with a count of what was left out.

use crate::mqtt::session::loss::LossCause;
use crate::mqtt::session::stall::StallCause;
use crate::routing::shard::ConnectionId;
use crate::routing::shard::effects::Event;
use crate::time::Instant;
use std::net::SocketAddr;
use std::time::Duration;
use tracing::{debug, info, warn};

/// One arbiter's share of the log.
#[derive(Debug)]
pub struct EventLog {
    /// Lines a second.
    limit: u32,
    second: Instant,
    written: u32,
    left_out: u64,
}

impl EventLog {
    pub fn new(lines_per_second: u32) -> EventLog {
        EventLog { limit: lines_per_second, second: Instant::ZERO, written: 0, left_out: 0 }
    }

    /// Writes events; `address` knows where a connection comes from.
    pub fn write(
        &mut self,
        now: Instant,
        events: &[Event],
        address: impl Fn(ConnectionId) -> Option<SocketAddr>,
    ) {
        if now.since(self.second) >= Duration::from_secs(1) {
            if self.left_out > 0 {
                warn!(left_out = self.left_out, "log lines left out, by log.events_per_second");
            }
            (self.second, self.written, self.left_out) = (now, 0, 0);
        }
        for event in events {
            if self.written >= self.limit {
                self.left_out += 1;
                continue;
            }
            self.written += 1;
            line(event, &address);
        }
    }
}

fn line(event: &Event, address: &impl Fn(ConnectionId) -> Option<SocketAddr>) {
    let from = |id: &ConnectionId| address(*id).map_or_else(|| "?".to_owned(), |a| a.to_string());
    match event {
        Event::Connected {
            connection,
            client_id,
            version,
            clean_start,
            session_present,
            keep_alive_secs,
        } => {
            info!(
                client_id = %client_id.escape_debug(),
                address = %from(connection),
                %version,
                clean_start,
                session_present,
                keep_alive_s = keep_alive_secs,
                "connected"
            );
        }
        Event::Refused { connection, client_id, reason, what } => {
            let client_id = client_id.as_deref().unwrap_or("").escape_debug();
            warn!(%client_id, address = %from(connection), %reason, what = %what, "refused");
        }
        Event::SubscriptionsRefused { client_id, filters, what } => {
            warn!(client_id = %client_id.escape_debug(), filters, what, "subscriptions refused");
        }
        Event::Disconnected { connection, client_id, version, why } => {
            let client_id = client_id.as_deref().unwrap_or("").escape_debug();
            info!(%client_id, address = %from(connection), %version, why = %why, "disconnected");
        }
        Event::Redelivered { client_id, publishes, releases } => {
            debug!(client_id = %client_id.escape_debug(), publishes, releases, "redelivered");
        }
        Event::Stalled { client_id, stall } => {
            let client_id = client_id.escape_debug();
            let cause = stall.cause.name();
            match stall.cause {
                StallCause::Application => warn!(%client_id, cause, stall = %stall, "stalled"),
                _ => debug!(%client_id, cause, stall = %stall, "stalled"),
            }
        }
        Event::Contradiction { client_id, packet_id, what } => {
            let client_id = client_id.escape_debug();
            warn!(%client_id, %packet_id, what, "acknowledgement of the wrong kind: the client is broken, and disconnected");
        }
        Event::WishUnreadable { client_id, wish, text } => {
            let (client_id, text) = (client_id.escape_debug(), text.escape_debug());
            warn!(%client_id, wish, %text, "not a duration such as \"5s\", and ignored");
        }
        Event::GivenUp { client_id, counts } => {
            let whose = client_id.as_deref().unwrap_or("(others)").escape_debug();
            let met = LossCause::ALL.iter().filter(|cause| counts.of(**cause) > 0);
            let causes: Vec<String> = met.map(|c| format!("{} {}", c.name(), counts.of(*c))).collect();
            info!(client_id = %whose, messages = counts.total(), causes = causes.join(", "), "given up");
        }
        Event::SessionExpired { client_id, lost } => {
            info!(client_id = %client_id.escape_debug(), messages_lost = lost, "session expired");
        }
    }
}
