//! Connects, refusals, disconnects and redeliveries, as log lines: bounded in rate and length, with a count of what was left out.

use crate::mqtt::session::loss::LossCause;
use crate::mqtt::session::stall::StallCause;
use crate::routing::shard::ConnectionId;
use crate::routing::shard::effects::Event;
use crate::time::Instant;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use tracing::{debug, enabled, info, warn};

/// Characters that a text of a client's takes in a line at most.
const LONGEST: usize = 256;

/// How many lines a second may have, shared by all arbiters: one atomic change for each line, and none for what is not printed.
#[derive(Debug)]
pub struct EventLog {
    /// Lines a second.
    limit: u32,
    /// The second (upper half) and the lines that were written in it (lower half).
    written: AtomicU64,
    /// Lines suppressed since that was last reported.
    suppressed: AtomicU64,
}

impl EventLog {
    pub fn new(lines_per_second: u32) -> EventLog {
        EventLog { limit: lines_per_second, written: AtomicU64::new(0), suppressed: AtomicU64::new(0) }
    }

    /// Writes events; `address` knows where a connection comes from. What the level hides counts for nothing.
    pub fn write(
        &self,
        now: Instant,
        events: &[Event],
        address: impl Fn(ConnectionId) -> Option<SocketAddr>,
    ) {
        for event in events.iter().filter(|event| is_printed(event)) {
            if self.admits(now) {
                line(event, &address);
            } else {
                self.suppressed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Reports how many lines were suppressed since the last call, if any. One arbiter calls it each second.
    pub fn report(&self) {
        let suppressed = self.suppressed.swap(0, Ordering::Relaxed);
        if suppressed > 0 {
            let limit = self.limit;
            warn!("{suppressed} log lines suppressed (limit: log.events_per_second = {limit})");
        }
    }

    /// Counts a line of this second, if it may have another.
    fn admits(&self, now: Instant) -> bool {
        let second = now.as_millis() / 1000;
        let count = |written: u64| {
            // An arbiter whose time is a little behind counts for the later second.
            let (of, lines) = (written >> 32, written & 0xFFFF_FFFF);
            match lines {
                _ if of < second => Some(second << 32 | 1),
                lines if lines < u64::from(self.limit) => Some(written + 1),
                _ => None,
            }
        };
        self.written.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count).is_ok()
    }
}

/// A text that a client chose, for a line: escaped, and cut to [`LONGEST`] characters.
pub struct Told<'a>(pub &'a str);

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut room = LONGEST;
        for c in self.0.chars() {
            let escaped = c.escape_debug();
            let Some(left) = room.checked_sub(escaped.len()) else {
                return write!(f, "... ({} bytes)", self.0.len());
            };
            room = left;
            escaped.fmt(f)?;
        }
        Ok(())
    }
}

/// Whether the level lets the line of this event through; as [`line`] writes it.
fn is_printed(event: &Event) -> bool {
    match event {
        Event::Redelivered { .. } => enabled!(tracing::Level::DEBUG),
        Event::Stalled { stall, .. } if stall.cause != StallCause::Application => {
            enabled!(tracing::Level::DEBUG)
        }
        Event::Connected { .. }
        | Event::Disconnected { .. }
        | Event::GivenUp { .. }
        | Event::SessionExpired { .. } => enabled!(tracing::Level::INFO),
        Event::Refused { .. }
        | Event::SubscriptionsRefused { .. }
        | Event::Stalled { .. }
        | Event::Contradiction { .. }
        | Event::WishUnreadable { .. } => enabled!(tracing::Level::WARN),
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
                client_id = %Told(client_id),
                address = %from(connection),
                %version,
                clean_start,
                session_present,
                keep_alive_s = keep_alive_secs,
                "connected"
            );
        }
        Event::Refused { connection, client_id, reason, what } => {
            let client_id = Told(client_id.as_deref().unwrap_or(""));
            warn!(%client_id, address = %from(connection), %reason, what = %what, "refused");
        }
        Event::SubscriptionsRefused { client_id, filters, what } => {
            warn!(client_id = %Told(client_id), filters, what, "subscriptions refused");
        }
        Event::Disconnected { connection, client_id, version, why } => {
            let client_id = Told(client_id.as_deref().unwrap_or(""));
            info!(%client_id, address = %from(connection), %version, why = %why, "disconnected");
        }
        Event::Redelivered { client_id, publishes, releases } => {
            debug!(client_id = %Told(client_id), publishes, releases, "redelivered");
        }
        Event::Stalled { client_id, stall } => {
            let client_id = Told(client_id);
            let cause = stall.cause.name();
            match stall.cause {
                StallCause::Application => warn!(%client_id, cause, stall = %stall, "stalled"),
                _ => debug!(%client_id, cause, stall = %stall, "stalled"),
            }
        }
        Event::Contradiction { client_id, packet_id, what } => {
            let client_id = Told(client_id);
            warn!(%client_id, %packet_id, what, "acknowledgement of the wrong kind: the client is broken, and disconnected");
        }
        Event::WishUnreadable { client_id, wish, text } => {
            let (client_id, text) = (Told(client_id), Told(text));
            warn!(%client_id, wish, %text, "not a duration such as \"5s\", and ignored");
        }
        Event::GivenUp { client_id, counts } => {
            let whose = Told(client_id.as_deref().unwrap_or("(others)"));
            let met = LossCause::ALL.iter().filter(|cause| counts.of(**cause) > 0);
            let causes: Vec<String> = met.map(|c| format!("{} {}", c.name(), counts.of(*c))).collect();
            info!(client_id = %whose, messages = counts.total(), causes = causes.join(", "), "given up");
        }
        Event::SessionExpired { client_id, lost } => {
            info!(client_id = %Told(client_id), messages_lost = lost, "session expired");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqtt::packet::ProtocolVersion;
    use crate::routing::shard::effects::Why;
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What is logged at level info.
    fn logged(log: impl FnOnce()) -> String {
        let writer = Page::default();
        let page = Arc::clone(&writer.0);
        let subscriber =
            tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        tracing::subscriber::with_default(subscriber, log);
        let bytes = page.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    fn disconnected(client_id: &str) -> Event {
        let connection = ConnectionId::new(0, 0);
        let (version, why) = (ProtocolVersion::V5, Why::TakenOver);
        Event::Disconnected { connection, client_id: Some(client_id.into()), version, why }
    }

    #[test]
    fn what_the_level_hides_leaves_the_limit_to_what_it_does_not() {
        let log = EventLog::new(5);
        let hidden = Event::Redelivered { client_id: "stormy".into(), publishes: 1, releases: 0 };
        let text = logged(|| {
            log.write(at(0), &vec![hidden; 100], |_| None);
            log.write(at(0), &[disconnected("gone")], |_| None);
            log.report();
        });
        assert!(text.contains("disconnected") && text.contains("gone"), "{text}");
        assert!(!text.contains("stormy") && !text.contains("suppressed"), "{text}");
    }

    #[test]
    fn all_arbiters_share_one_limit_and_what_is_suppressed_is_reported_without_another_event() {
        let log = EventLog::new(10);
        let text = logged(|| {
            for arbiter in 0..4 {
                log.write(at(1_000 + arbiter), &vec![disconnected("c"); 10], |_| None);
            }
            log.report();
            log.report();
            log.write(at(2_000), &vec![disconnected("next"); 10], |_| None);
        });
        assert_eq!(text.matches("client_id=c ").count(), 10, "{text}");
        assert_eq!(text.matches("30 log lines suppressed").count(), 1, "{text}");
        assert_eq!(text.matches("suppressed").count(), 1, "{text}");
        assert_eq!(text.matches("client_id=next ").count(), 10, "{text}");
    }

    /// Finding 19.
    #[test]
    fn a_clients_text_takes_256_characters_of_a_line_at_most() {
        assert_eq!(Told("pump-7").to_string(), "pump-7");
        assert_eq!(Told("he\nre").to_string(), "he\\nre");
        for (long, of) in [("x".repeat(65_535), "x"), ("\u{1}".repeat(65_535), "\\u{1}")] {
            let told = Told(&long).to_string();
            let (start, end) = told.split_once("... ").unwrap();
            assert_eq!(start, of.repeat(256 / of.len()));
            assert_eq!(end, "(65535 bytes)");
            let text = logged(|| EventLog::new(1).write(at(0), &[disconnected(&long)], |_| None));
            assert!(text.len() < 512, "{}", text.len());
        }
    }
}
