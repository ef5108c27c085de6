//! The metrics of sinks. Without `[[sinks]]` there are none.

use super::text::Kind::{self, Counter, Gauge};
use super::text::MetricsText;
use crate::broker::sinks::status::SinkFacts;
use crate::sink::SinkState;

pub(super) fn write(text: &mut MetricsText, sinks: &[SinkFacts]) {
    if sinks.is_empty() {
        return;
    }
    let mut each = |kind: Kind, name: &str, help: &str, of: fn(&SinkFacts) -> u64| {
        text.by(kind, name, "sink", help, sinks.iter().map(|facts| (&*facts.name, of(facts))));
    };
    let help = "1 while requests to the service succeed, else 0.";
    each(Gauge, "sink_ready", help, |facts| (facts.state == SinkState::Ready).into());
    let help = "Messages that the sink has, and that the service has not accepted.";
    each(Gauge, "sink_unacknowledged_messages", help, |facts| facts.unacknowledged as u64);
    each(Counter, "sink_requests_total", "Requests, repetitions included.", |facts| facts.counts.requests);
    let help = "Requests that failed, and were sent again.";
    each(Counter, "sink_requests_failed_total", help, |facts| facts.counts.failed);
    let help = "Messages that the service accepted.";
    each(Counter, "sink_messages_delivered_total", help, |facts| facts.counts.delivered);
    let help = "Messages that the service refused for good.";
    each(Counter, "sink_messages_refused_total", help, |facts| facts.counts.refused);
}
