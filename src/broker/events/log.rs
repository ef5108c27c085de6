//! Writes client events as log lines.
//!
//! Lines are bounded in rate and length. Suppressed lines are counted, and the count is logged.

use super::super::rate_limit::{Rate, RateLimiter};
use crate::broker::connection::PeerAddress;
use crate::events::client_events::{ClientEvent, Occurrence};
use crate::events::refusals::{Refusal, RefusedKind};
use crate::session::drops::{Counts, DropReason};
use crate::session::outbound::stall::StallCause;
use crate::time::Instant;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tracing::field::display;
use tracing::{Level, debug, enabled, info, warn};

/// Maximum number of characters that a text chosen by a client takes in a line.
const LONGEST: usize = 256;

/// Writes client events as log lines, within `log.events_per_second` of all threads together.
///
/// The lock is taken for each line that the level lets through, and held for one comparison.
#[derive(Debug)]
pub struct EventLog {
    /// `log.events_per_second`.
    limit: AtomicU32,
    limiter: Mutex<RateLimiter>,
}

impl EventLog {
    /// Returns a log that writes at most `lines_per_second`.
    pub fn new(lines_per_second: u32) -> EventLog {
        EventLog { limit: AtomicU32::new(lines_per_second), limiter: Mutex::default() }
    }

    /// Writes an event, if the log level lets it through and the rate admits it.
    ///
    /// `address` is the client's; `None` if its connection is gone. An event that the level hides
    /// does not count.
    pub fn write(&self, now: Instant, event: &ClientEvent, address: Option<&PeerAddress>) {
        if is_printed(&event.occurrence) && self.admits(now) {
            line(event, address);
        }
    }

    /// Returns true if the rate admits one more line, and counts it. For lines about clients that
    /// are no events.
    pub fn admits(&self, now: Instant) -> bool {
        self.limiter().admit(self.rate(), now)
    }

    /// Logs how many lines were suppressed since the last call, if any. One thread calls it every
    /// second.
    pub fn report_suppressed(&self) {
        let suppressed = self.limiter().take_refused();
        if suppressed > 0 {
            let limit = self.rate().limit;
            warn!(
                event = "log.lines_suppressed",
                "{suppressed} log lines suppressed (limit: log.events_per_second = {limit})"
            );
        }
    }

    /// Sets the maximum number of lines in a second.
    pub fn set_limit(&self, lines_per_second: u32) {
        self.limit.store(lines_per_second, Ordering::Relaxed);
    }

    fn rate(&self) -> Rate {
        Rate::per_second(self.limit.load(Ordering::Relaxed))
    }

    fn limiter(&self) -> MutexGuard<'_, RateLimiter> {
        self.limiter.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A text that a client chose, for a text of the broker's own: escaped, and shortened to `LONGEST`
/// characters.
#[derive(Debug)]
pub struct ClientText<'a>(pub &'a str);

/// A text that a client chose, for a log line: shortened so that it takes `LONGEST` characters once
/// the line's format has escaped it.
#[derive(Debug)]
struct ShortText<'a>(&'a str);

impl fmt::Display for ClientText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        put_shortened(f, self.0, |f, c| c.escape_debug().fmt(f))
    }
}

impl fmt::Display for ShortText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        put_shortened(f, self.0, |f, c| fmt::Write::write_char(f, c))
    }
}

/// Writes the characters that fit `LONGEST` when they are escaped.
fn put_shortened(
    f: &mut fmt::Formatter<'_>,
    text: &str,
    put: impl Fn(&mut fmt::Formatter<'_>, char) -> fmt::Result,
) -> fmt::Result {
    let mut room = LONGEST;
    for c in text.chars() {
        let Some(left) = room.checked_sub(c.escape_debug().len()) else {
            return write!(f, "... ({} bytes)", text.len());
        };
        room = left;
        put(f, c)?;
    }
    Ok(())
}

/// A field of a line: its value, or "?".
struct OrUnknown<T>(Option<T>);

impl<T: fmt::Display> fmt::Display for OrUnknown<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(value) => value.fmt(f),
            None => f.write_str("?"),
        }
    }
}

/// Returns true if the log level lets the line of this event through.
fn is_printed(occurrence: &Occurrence) -> bool {
    // The macro needs a constant.
    match level(occurrence) {
        Some(Level::DEBUG) => enabled!(Level::DEBUG),
        Some(Level::INFO) => enabled!(Level::INFO),
        Some(_) => enabled!(Level::WARN),
        None => false,
    }
}

/// Returns the level of an event's line; `None` if the event has no line. A test holds this table
/// against [`line`].
fn level(occurrence: &Occurrence) -> Option<Level> {
    match occurrence {
        Occurrence::Redelivered { .. } => Some(Level::DEBUG),
        Occurrence::Stalled(stall) if stall.cause != StallCause::Application => Some(Level::DEBUG),
        Occurrence::Dropped(counts) if has_loss(counts) => Some(Level::WARN),
        Occurrence::Connected { .. }
        | Occurrence::Disconnected(_)
        | Occurrence::Adopted { .. }
        | Occurrence::Dropped(_)
        | Occurrence::SessionExpired { .. } => Some(Level::INFO),
        Occurrence::Refused { .. }
        | Occurrence::RequestRefused(_)
        | Occurrence::Stalled(_)
        | Occurrence::Contradiction { .. }
        | Occurrence::RequestUnreadable { .. } => Some(Level::WARN),
        // The line of the disconnect or of the redelivery that follows says the same.
        Occurrence::Exhausted(_) => None,
    }
}

fn line(event: &ClientEvent, address: Option<&PeerAddress>) {
    let client_id = ShortText(event.client_id.as_deref().unwrap_or(""));
    let (address, version) = (OrUnknown(address), OrUnknown(event.version));
    match &event.occurrence {
        Occurrence::Connected { clean_start, session_present, keep_alive_secs } => {
            info!(
                event = "client.connected", %client_id,
                %address,
                %version,
                clean_start,
                session_present,
                keep_alive_s = keep_alive_secs,
                "connected"
            );
        }
        Occurrence::Refused { reason, what, user_name: None } => {
            warn!(event = "client.refused", %client_id, %address, %reason, %what, "refused");
        }
        Occurrence::Refused { reason, what, user_name: Some(user_name) } => {
            let user_name = ShortText(user_name);
            warn!(event = "client.refused", %client_id, %user_name, %address, %reason, %what, "refused");
        }
        Occurrence::Adopted { user_name } => {
            let user_name = ShortText(user_name);
            info!(event = "session.adopted", %client_id, %user_name, "a session without an owner belongs to this user from now on");
        }
        Occurrence::RequestRefused(refusal) => refused(refusal),
        Occurrence::Disconnected(cause) => {
            info!(event = "client.disconnected", %client_id, %address, %version, why = %cause, "disconnected");
        }
        Occurrence::Redelivered { publishes, releases, when } => {
            let when = when.name();
            debug!(event = "client.redelivered", %client_id, publishes, releases, when, "redelivered");
        }
        Occurrence::Stalled(stall) => {
            let cause = stall.cause.holder().name();
            match stall.cause {
                StallCause::Application => {
                    warn!(event = "client.stalled", %client_id, cause, %stall, "stalled")
                }
                _ => debug!(event = "client.stalled", %client_id, cause, %stall, "stalled"),
            }
        }
        Occurrence::Contradiction { packet_id, what } => {
            warn!(event = "client.wrong_acknowledgement", %client_id, %packet_id, what, "client disconnected: its acknowledgement is of the wrong kind for this packet identifier");
        }
        Occurrence::RequestUnreadable { setting, text } => {
            let text = ShortText(text);
            warn!(event = "client.redelivery_request_ignored", %client_id, setting, %text, "redelivery request ignored: the text is no duration such as \"5s\"");
        }
        Occurrence::Dropped(counts) => {
            let client_id = ShortText(event.client_id.as_deref().unwrap_or("(others)"));
            let met = DropReason::ALL.iter().filter(|reason| counts.of(**reason) > 0);
            let reasons: Vec<String> = met.map(|r| format!("{} {}", r.name(), counts.of(*r))).collect();
            let (messages, reasons) = (counts.total(), reasons.join(", "));
            match has_loss(counts) {
                true => {
                    warn!(event = "client.messages_dropped", %client_id, messages, reasons, "messages dropped")
                }
                false => {
                    info!(event = "client.messages_dropped", %client_id, messages, reasons, "messages dropped")
                }
            }
        }
        Occurrence::SessionExpired { unfinished } => {
            info!(event = "session.expired", %client_id, messages_unfinished = unfinished, "session expired");
        }
        Occurrence::Exhausted(_) => {}
    }
}

/// Returns true if a message was dropped for a reason that is not ordinary, such as a full queue.
fn has_loss(counts: &Counts) -> bool {
    DropReason::ALL.into_iter().any(|cause| !cause.is_ordinary() && counts.of(cause) > 0)
}

/// Writes the line of refused requests: the first one, and the number of the others of its client.
fn refused(refusal: &Refusal) {
    let Refusal { client_id, user, kind, topic, cause, why, times, .. } = refusal;
    // The texts have at most 128 characters, and the mark of one that is cut.
    let user_name = user.as_ref().map(display);
    let more = times.saturating_sub(1);
    match kind {
        RefusedKind::Publish => {
            warn!(event = "client.publish_refused", %client_id, user_name, %topic, cause, %why, more, "PUBLISH refused");
        }
        RefusedKind::Will => {
            warn!(event = "client.will_refused", %client_id, user_name, %topic, cause, %why, more, "will refused");
        }
        RefusedKind::Subscription => {
            warn!(event = "client.subscription_refused", %client_id, user_name, filter = %topic, cause, %why, more, "subscription refused");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::events::tests::every_event;
    use crate::events::client_events::{DisconnectCause, RedeliveryTime};
    use crate::log::format::LineFormat;
    use crate::log::format::tests::written;
    use std::net::SocketAddr;

    /// Returns the text that `log` writes at level info.
    fn logged(log: impl FnOnce()) -> String {
        logged_at(Level::INFO, log)
    }

    /// Returns the text that `log` writes at this level.
    fn logged_at(most: Level, log: impl FnOnce()) -> String {
        written(LineFormat::Text, most, log)
    }

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    fn event(client_id: &str, occurrence: Occurrence) -> ClientEvent {
        ClientEvent::new(Some(client_id), occurrence)
    }

    fn disconnected(client_id: &str) -> ClientEvent {
        event(client_id, Occurrence::Disconnected(DisconnectCause::TakenOver))
    }

    fn write_times(log: &EventLog, now: Instant, event: &ClientEvent, times: usize) {
        (0..times).for_each(|_| log.write(now, event, None));
    }

    #[test]
    fn each_event_is_written_at_the_level_of_the_table() {
        let log = EventLog::new(1_000);
        for event in every_event() {
            let text = logged_at(Level::TRACE, || log.write(at(0), &event, None));
            match level(&event.occurrence) {
                Some(level) => {
                    assert!(text.contains(&format!(" {level} ")), "{:?}: {text}", event.occurrence);
                    assert_eq!(text.lines().count(), 1, "{text}");
                }
                None => assert_eq!(text, "", "{:?}", event.occurrence),
            }
            let hides = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG]
                .into_iter()
                .filter(|most| level(&event.occurrence).is_some_and(|level| level > *most));
            for most in hides {
                assert_eq!(logged_at(most, || log.write(at(0), &event, None)), "");
            }
        }
    }

    #[test]
    fn a_connection_that_is_gone_has_no_address_in_its_line() {
        let log = EventLog::new(1_000);
        let address = PeerAddress::ip(SocketAddr::from(([10, 1, 2, 3], 4_567)));
        let text = logged(|| log.write(at(0), &disconnected("c"), Some(&address)));
        assert!(text.contains("address=10.1.2.3:4567 version=?"), "{text}");
        let text = logged(|| log.write(at(0), &disconnected("c"), None));
        assert!(text.contains("address=? version=?"), "{text}");
    }

    #[test]
    fn what_the_level_hides_leaves_the_limit_to_what_it_does_not() {
        let log = EventLog::new(5);
        let when = RedeliveryTime::Live;
        let hidden = event("stormy", Occurrence::Redelivered { publishes: 1, releases: 0, when });
        let text = logged(|| {
            write_times(&log, at(0), &hidden, 100);
            log.write(at(0), &disconnected("gone"), None);
            log.report_suppressed();
        });
        assert!(text.contains("disconnected") && text.contains("gone"), "{text}");
        assert!(!text.contains("stormy") && !text.contains("suppressed"), "{text}");
    }

    #[test]
    fn all_threads_share_one_limit_and_suppressed_lines_are_reported_without_another_event() {
        let log = EventLog::new(10);
        let text = logged(|| {
            for thread in 0..4 {
                write_times(&log, at(1_000 + thread), &disconnected("c"), 10);
            }
            log.report_suppressed();
            log.report_suppressed();
            write_times(&log, at(2_000), &disconnected("next"), 10);
        });
        assert_eq!(text.matches("client_id=c ").count(), 10, "{text}");
        assert_eq!(text.matches("30 log lines suppressed").count(), 1, "{text}");
        assert_eq!(text.matches("lines suppressed").count(), 1, "{text}");
        assert_eq!(text.matches("client_id=next ").count(), 10, "{text}");
    }

    /// A client id of 65,535 bytes once made a log line of that length.
    #[test]
    fn a_clients_text_takes_256_characters_of_a_line_at_most() {
        assert_eq!(ClientText("pump-7").to_string(), "pump-7");
        assert_eq!(ClientText("he\nre").to_string(), "he\\nre");
        for (long, of) in [("x".repeat(65_535), "x"), ("\u{1}".repeat(65_535), "\\u{1}")] {
            let short = ClientText(&long).to_string();
            let (start, end) = short.split_once("... ").unwrap();
            assert_eq!(start, of.repeat(256 / of.len()));
            assert_eq!(end, "(65535 bytes)");
            let text = logged(|| EventLog::new(1).write(at(0), &disconnected(&long), None));
            assert!(text.len() < 512, "{}", text.len());
        }
    }
}
