//! Writes connects, refusals, disconnects and redeliveries as log lines.
//!
//! Lines are bounded in rate and length. Suppressed lines are counted, and the count is logged.

use super::rate_limit::{Rate, RateLimiter};
use crate::session::drops::DropReason;
use crate::session::outbound::stall::StallCause;
use crate::shard::ConnectionId;
use crate::shard::effects::Event;
use crate::time::Instant;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tracing::{debug, enabled, info, warn};

/// Maximum number of characters that a text chosen by a client takes in a line.
const LONGEST: usize = 256;

/// Writes client events as log lines, within `log.events_per_second` of all threads together.
///
/// The lock is taken for each line that the level lets through, and held for one comparison.
#[derive(Debug)]
pub struct EventLog {
    rate: Rate,
    limiter: Mutex<RateLimiter>,
}

impl EventLog {
    /// Returns a log that writes at most `lines_per_second`.
    pub fn new(lines_per_second: u32) -> EventLog {
        EventLog { rate: Rate::per_second(lines_per_second), limiter: Mutex::default() }
    }

    /// Writes the events that the log level lets through, as far as the rate admits them.
    ///
    /// `address` returns where a connection comes from. An event that the level hides does not
    /// count.
    pub fn write(
        &self,
        now: Instant,
        events: &[Event],
        address: impl Fn(ConnectionId) -> Option<SocketAddr>,
    ) {
        for event in events.iter().filter(|event| is_printed(event)) {
            let is_admitted = self.limiter().admit(self.rate, now);
            if is_admitted {
                line(event, &address);
            }
        }
    }

    /// Logs how many lines were suppressed since the last call, if any. One thread calls it every
    /// second.
    pub fn report(&self) {
        let suppressed = self.limiter().take_refused();
        if suppressed > 0 {
            let limit = self.rate.limit;
            warn!("{suppressed} log lines suppressed (limit: log.events_per_second = {limit})");
        }
    }

    fn limiter(&self) -> MutexGuard<'_, RateLimiter> {
        self.limiter.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A text that a client chose, as it stands in a line: escaped, and shortened to [`LONGEST`]
/// characters.
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

/// Returns true if the log level lets the line of this event through. The levels are those of
/// [`line`].
fn is_printed(event: &Event) -> bool {
    match event {
        Event::Redelivered { .. } => enabled!(tracing::Level::DEBUG),
        Event::Stalled { stall, .. } if stall.cause != StallCause::Application => {
            enabled!(tracing::Level::DEBUG)
        }
        Event::Connected { .. }
        | Event::Disconnected { .. }
        | Event::DropReports { .. }
        | Event::SessionExpired { .. } => enabled!(tracing::Level::INFO),
        Event::Refused { .. }
        | Event::SubscriptionsRefused { .. }
        | Event::Stalled { .. }
        | Event::Contradiction { .. }
        | Event::RequestUnreadable { .. } => enabled!(tracing::Level::WARN),
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
            warn!(%client_id, %packet_id, what, "client disconnected: its acknowledgement is of the wrong kind for this packet identifier");
        }
        Event::RequestUnreadable { client_id, setting, text } => {
            let (client_id, text) = (Told(client_id), Told(text));
            warn!(%client_id, setting, %text, "redelivery request ignored: the text is no duration such as \"5s\"");
        }
        Event::DropReports { client_id, counts } => {
            let whose = Told(client_id.as_deref().unwrap_or("(others)"));
            let met = DropReason::ALL.iter().filter(|reason| counts.of(**reason) > 0);
            let reasons: Vec<String> = met.map(|r| format!("{} {}", r.name(), counts.of(*r))).collect();
            info!(client_id = %whose, messages = counts.total(), reasons = reasons.join(", "), "messages dropped");
        }
        Event::SessionExpired { client_id, unfinished } => {
            info!(client_id = %Told(client_id), messages_unfinished = unfinished, "session expired");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqtt::packet::ProtocolVersion;
    use crate::shard::effects::Why;
    use std::io::{self, Write};
    use std::sync::Arc;

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

    /// Returns the text that `log` writes at level info.
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

    /// A client id of 65,535 bytes once made a log line of that length.
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
