//! The metrics of bridges. Without `[[bridges]]` there are none.

use super::text::Kind::{self, Counter, Gauge};
use super::text::MetricsText;
use crate::bridge::BridgeState;
use crate::broker::bridges::status::BridgeFacts;

pub(super) fn write(text: &mut MetricsText, bridges: &[BridgeFacts]) {
    if bridges.is_empty() {
        return;
    }
    let mut each = |kind: Kind, name: &str, help: &str, of: fn(&BridgeFacts) -> u64| {
        text.by(kind, name, "bridge", help, bridges.iter().map(|facts| (&*facts.name, of(facts))));
    };
    let help = "1 while the bridge is connected to the other broker, else 0.";
    each(Gauge, "bridge_connected", help, |facts| (facts.state == BridgeState::Established).into());
    let help = "Messages that the other broker has not acknowledged.";
    each(Gauge, "bridge_unacknowledged_messages", help, |facts| facts.unacknowledged as u64);
    let queued: fn(&BridgeFacts) -> u64 = |facts| facts.session.row().map_or(0, |row| row.queued as u64);
    each(Gauge, "bridge_queued_messages", "Messages that wait for the other broker.", queued);
    let help = "Bytes of these messages.";
    each(Gauge, "bridge_queued_bytes", help, |facts| {
        facts.session.row().map_or(0, |row| row.queued_bytes as u64)
    });
    let help = "Filters that a side does not let the bridge subscribe to.";
    each(Gauge, "bridge_refused_filters", help, |facts| facts.refused_filters.len() as u64);
    each(Counter, "bridge_attempts_total", "Attempts to connect.", |facts| facts.attempts);
    let help = "Connections at which the other broker had lost the session.";
    each(Counter, "bridge_sessions_lost_total", help, |facts| facts.sessions_lost);
    let help = "Messages to the other broker, repetitions included.";
    each(Counter, "bridge_messages_sent_total", help, |facts| facts.counts.sent);
    let help = "Messages from the other broker that a topic of the bridge lets in.";
    each(Counter, "bridge_messages_received_total", help, |facts| facts.counts.received);
    let help = "Messages from the other broker that were refused: for their topic or their size.";
    each(Counter, "bridge_messages_refused_total", help, |facts| {
        facts.counts.refused + facts.counts.too_large
    });
    let help = "Messages that could not leave: for their topic or their size.";
    each(Counter, "bridge_messages_dropped_total", help, |facts| facts.counts.dropped);
    let help = "Messages that came back to this broker, or have passed too many brokers to leave.";
    each(Counter, "bridge_messages_looped_total", help, |facts| facts.counts.looped);
    let help = "The part of the queue's bounds that is used: in messages, or in bytes if that is more.";
    let used = bridges.iter().map(|facts| (&*facts.name, facts.session.queue_used()));
    text.by(Gauge, "bridge_queue_used_ratio", "bridge", help, used);
}
