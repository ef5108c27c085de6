//! The metrics of sinks. Without `[[sinks]]` there are none.

use super::text::Kind::{self, Counter, Gauge, Histogram};
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
    let help = "Messages that wait for the service.";
    each(Gauge, "sink_queued_messages", help, |facts| facts.session.row().map_or(0, |row| row.queued as u64));
    let help = "Bytes of these messages.";
    each(Gauge, "sink_queued_bytes", help, |facts| {
        facts.session.row().map_or(0, |row| row.queued_bytes as u64)
    });
    let help = "1 while the service refuses the credentials of the sink, else 0.";
    each(Gauge, "sink_credentials_refused", help, |facts| facts.refused_credentials().is_some().into());
    let help = "Filters that the sink may not subscribe to.";
    each(Gauge, "sink_refused_filters", help, |facts| facts.refused_filters.len() as u64);
    let help = "Requests that the service accepted: batches of messages.";
    each(Counter, "sink_batches_delivered_total", help, |facts| facts.counts.accepted);
    let help = "Messages that the service accepted.";
    each(Counter, "sink_messages_delivered_total", help, |facts| facts.counts.delivered);
    let help = "Messages that the service refused for good.";
    each(Counter, "sink_messages_refused_total", help, |facts| facts.counts.refused);
    let help = "Messages of the session that were dropped, with those that the service refused.";
    each(Counter, "sink_messages_dropped_total", help, |facts| facts.session.drops.total());
    let help = "The part of the queue's bounds that is used: in messages, or in bytes if that is more.";
    let used = sinks.iter().map(|facts| (&*facts.name, facts.session.queue_used()));
    text.by(Gauge, "sink_queue_used_ratio", "sink", help, used);
    let help = "The time of a request: the connection, the service and its answer.";
    text.family(Histogram, "sink_request_seconds", help);
    for facts in sinks {
        text.histogram(Some(("sink", &facts.name)), &facts.times.distribution());
    }
}
