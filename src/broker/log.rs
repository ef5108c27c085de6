//! Connects, refusals, disconnects and redeliveries, as log lines: bounded in rate, with a count of what was left out.

use crate::mqtt::session::stall::StallCause;
use crate::routing::shard::ConnectionId;
use crate::routing::shard::effects::{Event, Why};
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
        Event::SessionExpired { client_id, lost } => {
            info!(client_id = %client_id.escape_debug(), messages_lost = lost, "session expired");
        }
    }
}

impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Why::Client(reason) => write!(f, "DISCONNECT from the client ({reason})"),
            Why::Network(cause) => write!(f, "network: {cause}"),
            Why::Violation(reason, what) => write!(f, "{what} ({reason})"),
            Why::TakenOver => f.write_str("taken over by another connection of this client"),
            Why::KeepAlive { silent } => write!(f, "keep alive: silent for {} ms", silent.as_millis()),
            Why::NoConnect => f.write_str("no CONNECT within listeners.connect_timeout"),
            Why::WriteTimeout { waiting_bytes } => {
                write!(f, "took no bytes for listeners.write_timeout; {waiting_bytes} bytes wait")
            }
            Why::Exhausted(stall) => write!(f, "redelivery.attempts used up: {stall}; redelivered at return"),
            Why::AckTimeout(stall) => write!(f, "redelivery.ack_timeout: {stall}"),
            Why::QueueFull => f.write_str("its queue is full (limits.queue_policy disconnect)"),
            Why::Shutdown => f.write_str("the broker stops"),
        }
    }
}
