//! The metrics of packets, deliveries, drops and redelivery.

use super::text::Kind::{Counter, Gauge, Histogram};
use super::text::MetricsText;
use crate::broker::observer::Observer;
use crate::log::stderr;
use crate::mqtt::codec::PacketType;
use crate::mqtt::packet::QoS;
use crate::session::counters::Counters;
use crate::session::drops::{Counts, DropReason, ReceiverState};
use crate::session::outbound::stall::StallCause;
use crate::session::packet_counts::{PacketCounts, PublishCounts};
use crate::shard::ShardSnapshot;

pub(super) fn write(text: &mut MetricsText, observer: &Observer, total: &ShardSnapshot) {
    traffic(text, observer, &total.counters);
    acknowledgements(text, total);
    drops(text, &total.counters);
    kept(text, observer, total);
    let events = observer.statistics().suppressed_events();
    text.single(Counter, "client_events_dropped_total", "Events that the rates did not admit.", events);
    let help = "Log lines that nobody read in time.";
    text.single(Counter, "log_lines_lost_total", help, stderr::dropped());
}

fn traffic(text: &mut MetricsText, observer: &Observer, counters: &Counters) {
    let statistics = observer.statistics();
    let (received, sent) = (statistics.received_bytes(), statistics.sent_bytes());
    text.single(Counter, "bytes_received_total", "Bytes read from sockets.", received);
    text.single(Counter, "bytes_sent_total", "Bytes written to sockets.", sent);
    let Counters { publishes_received, sent, packets_sent, .. } = counters;
    let packets_received = &counters.packets_received();
    let help = "Payload bytes of PUBLISH packets received.";
    text.single(Counter, "publish_bytes_received_total", help, publishes_received.bytes());
    let help = "Payload bytes of PUBLISH packets sent.";
    text.single(Counter, "publish_bytes_sent_total", help, sent.bytes());
    packets(text, "packets_received_total", "Packets received.", packets_received, publishes_received);
    packets(text, "packets_sent_total", "Packets sent.", packets_sent, sent);
    publishes(text, "publishes_received_total", "PUBLISH packets received.", publishes_received);
    publishes(text, "publishes_sent_total", "PUBLISH packets sent.", sent);
    let help = "PUBLISH packets received that no subscription matched.";
    text.single(Counter, "publishes_unmatched_total", help, counters.unmatched);
    let refusals = DropReason::ALL.into_iter().filter(|reason| reason.refuses_publishes());
    let help = "PUBLISH packets received and refused; retained_full: and not retained.";
    by_reason(text, "publishes_refused_total", help, &counters.refused_publishes, refusals.clone());
    let help = "Will Messages refused, at CONNECT or when they were due.";
    by_reason(text, "wills_refused_total", help, &counters.refused_wills, refusals);
}

fn packets(text: &mut MetricsText, name: &str, help: &str, counts: &PacketCounts, publishes: &PublishCounts) {
    text.family(Counter, name, help);
    text.sample(&[("type", &PacketType::Publish.name().to_ascii_lowercase())], publishes.total());
    for packet in PacketCounts::beside_publish() {
        text.sample(&[("type", &packet.name().to_ascii_lowercase())], counts.of(packet));
    }
}

fn publishes(text: &mut MetricsText, name: &str, help: &str, counts: &PublishCounts) {
    let all = [("0", QoS::AtMostOnce), ("1", QoS::AtLeastOnce), ("2", QoS::ExactlyOnce)];
    text.by(Counter, name, "qos", help, all.map(|(label, qos)| (label, counts.of(qos))));
}

fn by_reason(
    text: &mut MetricsText,
    name: &str,
    help: &str,
    counts: &Counts,
    reasons: impl IntoIterator<Item = DropReason>,
) {
    let samples = reasons.into_iter().map(|reason| (reason.name(), counts.of(reason)));
    text.by(Counter, name, "cause", help, samples);
}

fn acknowledgements(text: &mut MetricsText, total: &ShardSnapshot) {
    let counters = &total.counters;
    let help = "Time from the first transmission of a message to its PUBACK or PUBREC.";
    text.family(Histogram, "delivery_ack_seconds", help)
        .histogram(Some(("qos", "1")), &counters.puback_time.distribution())
        .histogram(Some(("qos", "2")), &counters.pubrec_time.distribution());
    let again = &counters.redelivered;
    text.family(Counter, "redeliveries_total", "Packets sent again.")
        .sample(&[("packet", "publish"), ("when", "live")], again.live_publishes)
        .sample(&[("packet", "publish"), ("when", "return")], again.returned_publishes)
        .sample(&[("packet", "pubrel"), ("when", "live")], again.live_releases)
        .sample(&[("packet", "pubrel"), ("when", "return")], again.returned_releases);
    let help = "Overdue acknowledgements found, at most one for each connection and look.";
    let causes = StallCause::ALL.map(|cause| (cause.name(), counters.stalled.of(cause)));
    text.by(Counter, "stalls_total", "cause", help, causes);
    let help = "Sessions with an overdue acknowledgement that has not come yet.";
    text.single(Gauge, "stalled_sessions", help, total.stalled);
    let help = "Connections closed because an acknowledgement was missing.";
    text.single(Counter, "ack_timeout_disconnects_total", help, counters.disconnected);
    let help = "Acknowledgements of the wrong kind for the packet in flight.";
    text.single(Counter, "contradictions_total", help, counters.contradictions);
}

fn drops(text: &mut MetricsText, counters: &Counters) {
    text.family(Counter, "messages_dropped_total", "Messages that a receiver will not get.");
    for cause in DropReason::ALL {
        for receiver in ReceiverState::ALL {
            let dropped = counters.drops.of_receiver(cause, receiver);
            text.sample(&[("cause", cause.name()), ("receiver", receiver.name())], dropped);
        }
    }
    let help = "Dead letters published.";
    by_reason(text, "dead_letters_total", help, &counters.dead_letters, DropReason::ALL);
}

fn kept(text: &mut MetricsText, observer: &Observer, total: &ShardSnapshot) {
    let session_totals = &total.session_totals;
    let help = "Messages that were sent and not acknowledged to the end.";
    text.single(Gauge, "inflight_messages", help, session_totals.in_flight);
    text.single(Gauge, "queued_messages", "Messages in the queues of sessions.", session_totals.queued);
    text.single(Gauge, "queued_bytes", "Bytes of the messages in queues.", session_totals.queued_bytes);
    let help = "Messages that wait for room in a queue.";
    text.single(Gauge, "held_messages", help, session_totals.held);
    let (messages, bytes) = {
        let retained = observer.shared().retained();
        (retained.len(), retained.bytes())
    };
    text.single(Gauge, "retained_messages", "Retained messages.", messages);
    text.single(Gauge, "retained_bytes", "Bytes of retained messages.", bytes);
    let totals = &observer.shared().totals;
    text.single(Gauge, "delayed_messages", "Delayed messages.", totals.delayed_messages.get());
    text.single(Gauge, "delayed_bytes", "Bytes of delayed messages.", totals.delayed_bytes.get());
    text.single(Gauge, "dead_letters_stored", "Stored dead letters.", totals.letters.get());
    let help = "Bytes of stored dead letters.";
    text.single(Gauge, "dead_letters_stored_bytes", help, totals.letter_bytes.get());
    let help = "Dead letters that were dropped for newer ones, or that were too large to be stored.";
    text.single(Counter, "dead_letters_dropped_total", help, totals.letters_dropped.get());
}
