//! The steps of traced messages become spans: one `publish` for each message, from its PUBLISH to
//! the acknowledgement of the publisher, and below it one `deliver` for each receiver, from the
//! queue to the receiver's acknowledgement. Each step is an event of its span.
//!
//! The trace is that of the publisher, if it sent `traceparent` (W3C Trace Context) as a user
//! property. Otherwise it is a new one.
//!
//! A span is complete once its last step has come. A message that waits must be seen too, so a span
//! that is still open is exported after ten seconds without a step, with the outcome `pending`, and
//! once more when it changes. Pure: time and chance are arguments. Every table has a bound.

use super::attributes::{attribute, flag, number, text, unix_nanos};
use crate::mqtt::audit::AuditTag;
use crate::mqtt::packet::{QoS, ReasonCode};
use crate::session::trace_steps::{StepKind, TraceStep};
use crate::time::Instant;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::trace::v1::span::{Event, SpanKind};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{Span, Status};
use std::collections::HashMap;
use std::time::Duration;

/// Messages that are known at once. Beyond it the oldest one goes, with the spans so far.
const MESSAGES: usize = 1_000;

/// Receivers of one message with a span of their own. Those beyond it are counted in the span of
/// the message.
const RECEIVERS: usize = 100;

/// Events of one span. Further events are counted.
const EVENTS: usize = 32;

/// Events of all spans together. Beyond it the oldest message goes, with the spans so far.
const ALL_EVENTS: usize = 20_000;

/// Time without a step after which a complete message is exported: its steps come from several
/// threads, and not in their order.
const SETTLED: Duration = Duration::from_secs(1);

/// Time without a step after which an open span is exported as pending.
const WAITS: Duration = Duration::from_secs(10);

/// Time without a step after which a complete message is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// Chance: 16 random bytes.
pub(super) type Chance<'a> = &'a mut dyn FnMut() -> [u8; 16];

/// The end of a span.
#[derive(Clone, Debug, PartialEq, Eq)]
enum SpanEnd {
    /// The last step has not come yet.
    Pending,
    /// The message got where it was to go.
    Done(&'static str),
    /// The message did not, and why.
    Failed(&'static str, String),
}

/// A span that still changes.
#[derive(Debug)]
struct OpenSpan {
    started: u64,
    ended: u64,
    events: Vec<Event>,
    dropped_events: u32,
    end: SpanEnd,
    /// True if a step has come since the last export.
    is_changed: bool,
}

/// The span of one receiver.
#[derive(Debug)]
struct ReceiverSpan {
    client_id: Box<str>,
    qos: Option<QoS>,
    span: OpenSpan,
}

/// One traced message.
#[derive(Debug)]
struct TracedMessage {
    trace_id: [u8; 16],
    /// The span of the publisher; `None` if it sent none.
    parent: Option<[u8; 8]>,
    /// The span of the message.
    span_id: [u8; 8],
    publisher: Box<str>,
    topic: Box<str>,
    qos: Option<QoS>,
    payload_bytes: usize,
    message: OpenSpan,
    /// Batches of the store with the message that are not committed.
    uncommitted: i32,
    is_exported: bool,
    receivers: Vec<ReceiverSpan>,
    receivers_left_out: u32,
    /// The time of the last step.
    last: Instant,
}

/// The traced messages whose spans still change.
#[derive(Debug, Default)]
pub(super) struct MessageSpans {
    messages: HashMap<AuditTag, TracedMessage>,
    events: usize,
}

impl MessageSpans {
    /// Takes a step in. Returns the spans that had to make room. Steps that belong to no message
    /// are skipped. `unix_ms` is the time `now` since 1970.
    pub(super) fn take(
        &mut self,
        now: Instant,
        unix_ms: u64,
        step: &TraceStep,
        chance: Chance<'_>,
    ) -> Vec<Span> {
        if !step.audit.is_some() {
            return Vec::new();
        }
        let mut spans = Vec::new();
        let is_known = self.messages.contains_key(&step.audit);
        if is_known && step.kind == StepKind::Received {
            // The numbers of messages come again.
            self.remove(step.audit, unix_ms, chance, &mut spans);
        } else if !is_known && self.messages.len() >= MESSAGES {
            self.remove_oldest(unix_ms, chance, &mut spans);
        }
        let at = if step.at.is_never() { now } else { step.at };
        let nanos = unix_nanos(unix_ms.saturating_sub(now.millis_since(at)));
        let message =
            self.messages.entry(step.audit).or_insert_with(|| TracedMessage::new(step, nanos, chance));
        message.last = now;
        self.events += usize::from(message.take(step, nanos));
        while self.events > ALL_EVENTS && self.messages.len() > 1 {
            self.remove_oldest(unix_ms, chance, &mut spans);
        }
        spans
    }

    /// Returns the spans that are due: complete spans, and spans of waiting messages. Forgets
    /// messages that are complete for long.
    pub(super) fn due(&mut self, now: Instant, unix_ms: u64, chance: Chance<'_>) -> Vec<Span> {
        let mut spans = Vec::new();
        for message in self.messages.values_mut() {
            let silent = now.since(message.last);
            if silent >= WAITS || silent >= SETTLED && message.is_complete() {
                message.export(unix_ms, chance, &mut spans);
            }
        }
        let events = &mut self.events;
        self.messages.retain(|_, message| {
            let stays = !message.is_complete() || now.since(message.last) < FORGOTTEN;
            if !stays {
                *events -= message.events();
            }
            stays
        });
        spans
    }

    /// Returns all spans that changed, at the end of the process.
    pub(super) fn all(&mut self, unix_ms: u64, chance: Chance<'_>) -> Vec<Span> {
        let mut spans = Vec::new();
        self.messages.values_mut().for_each(|message| message.export(unix_ms, chance, &mut spans));
        spans
    }

    fn remove_oldest(&mut self, unix_ms: u64, chance: Chance<'_>, spans: &mut Vec<Span>) {
        let oldest = self.messages.iter().min_by_key(|(_, message)| message.last);
        if let Some(tag) = oldest.map(|(tag, _)| *tag) {
            self.remove(tag, unix_ms, chance, spans);
        }
    }

    fn remove(&mut self, tag: AuditTag, unix_ms: u64, chance: Chance<'_>, spans: &mut Vec<Span>) {
        if let Some(mut message) = self.messages.remove(&tag) {
            self.events -= message.events();
            message.export(unix_ms, chance, spans);
        }
    }
}

impl OpenSpan {
    fn new(nanos: u64) -> OpenSpan {
        OpenSpan {
            started: nanos,
            ended: nanos,
            events: Vec::new(),
            dropped_events: 0,
            end: SpanEnd::Pending,
            is_changed: false,
        }
    }

    /// Adds a step. Returns true if it had room.
    fn add(&mut self, step: &TraceStep, nanos: u64) -> bool {
        self.is_changed = true;
        // A step of another thread may come late.
        self.started = self.started.min(nanos);
        self.ended = self.ended.max(nanos);
        let has_room = self.events.len() < EVENTS;
        if has_room {
            self.events.push(event(step, nanos));
        } else {
            self.dropped_events += 1;
        }
        has_room
    }

    /// Returns the span, if it changed since the last time.
    fn export(
        &mut self,
        unix_ms: u64,
        name: &str,
        kind: SpanKind,
        attributes: Vec<KeyValue>,
    ) -> Option<Span> {
        if !std::mem::take(&mut self.is_changed) {
            return None;
        }
        let mut events = self.events.clone();
        events.sort_by_key(|event| event.time_unix_nano);
        let (status, outcome) = match &self.end {
            SpanEnd::Pending => (None, "pending"),
            SpanEnd::Done(outcome) => {
                (Some(Status { code: StatusCode::Unset.into(), ..Status::default() }), *outcome)
            }
            SpanEnd::Failed(outcome, why) => {
                (Some(Status { code: StatusCode::Error.into(), message: why.clone() }), *outcome)
            }
        };
        let ended =
            if self.end == SpanEnd::Pending { unix_nanos(unix_ms).max(self.ended) } else { self.ended };
        Some(Span {
            name: name.to_owned(),
            kind: kind.into(),
            start_time_unix_nano: self.started,
            end_time_unix_nano: ended,
            attributes: [attributes, vec![attribute("homing.outcome", text(outcome))]].concat(),
            events,
            dropped_events_count: self.dropped_events,
            status,
            ..Span::default()
        })
    }
}

impl TracedMessage {
    fn new(step: &TraceStep, nanos: u64, chance: Chance<'_>) -> TracedMessage {
        let context = step.traceparent.as_deref().and_then(trace_context);
        let (trace_id, parent) = match context {
            Some((trace_id, parent)) => (trace_id, Some(parent)),
            None => (chance(), None),
        };
        TracedMessage {
            trace_id,
            parent,
            span_id: span_id(chance),
            publisher: Box::default(),
            topic: step.topic.clone(),
            qos: None,
            payload_bytes: 0,
            message: OpenSpan::new(nanos),
            uncommitted: 0,
            is_exported: false,
            receivers: Vec::new(),
            receivers_left_out: 0,
            last: step.at,
        }
    }

    fn events(&self) -> usize {
        self.message.events.len() + self.receivers.iter().map(|one| one.span.events.len()).sum::<usize>()
    }

    fn is_complete(&self) -> bool {
        self.message.end != SpanEnd::Pending
            && self.receivers.iter().all(|one| one.span.end != SpanEnd::Pending)
    }

    /// Takes a step in. Returns true if it had room.
    fn take(&mut self, step: &TraceStep, nanos: u64) -> bool {
        if self.topic.is_empty() {
            self.topic.clone_from(&step.topic);
        }
        match step.kind {
            StepKind::Received => {
                self.publisher.clone_from(&step.client_id);
                (self.qos, self.payload_bytes) = (step.qos, step.payload_bytes);
            }
            StepKind::Recorded => self.uncommitted += 1,
            StepKind::Committed => self.uncommitted -= 1,
            StepKind::Refused => self.message.end = SpanEnd::Failed("refused", step.detail.to_string()),
            StepKind::Retained | StepKind::Matched | StepKind::PublisherAcknowledged => {}
            _ if !step.client_id.is_empty() => return self.take_of_receiver(step, nanos),
            _ => {}
        }
        // A trace that follows a topic does not see the acknowledgement of the publisher.
        self.message.end = match (&self.message.end, step.kind) {
            (SpanEnd::Pending | SpanEnd::Done("routed"), StepKind::PublisherAcknowledged) => {
                SpanEnd::Done("acknowledged")
            }
            (SpanEnd::Pending | SpanEnd::Done("routed"), _) if self.uncommitted > 0 => SpanEnd::Pending,
            (SpanEnd::Pending, StepKind::Matched | StepKind::Committed) => SpanEnd::Done("routed"),
            (end, _) => end.clone(),
        };
        self.message.add(step, nanos)
    }

    fn take_of_receiver(&mut self, step: &TraceStep, nanos: u64) -> bool {
        let found = self.receivers.iter().position(|one| one.client_id == step.client_id);
        let at = match found {
            Some(at) => at,
            None if self.receivers.len() < RECEIVERS => {
                let (client_id, span) = (step.client_id.clone(), OpenSpan::new(nanos));
                self.receivers.push(ReceiverSpan { client_id, qos: None, span });
                self.receivers.len() - 1
            }
            None => {
                // The step is counted, not the receiver: whose it is, nobody remembers.
                self.receivers_left_out += 1;
                self.message.is_changed = true;
                return false;
            }
        };
        let Some(receiver) = self.receivers.get_mut(at) else { return false };
        receiver.qos = step.qos.or(receiver.qos);
        let failed = |what| Some(SpanEnd::Failed(what, step.detail.to_string()));
        let end = match step.kind {
            StepKind::Sent | StepKind::Resent if step.qos == Some(QoS::AtMostOnce) => {
                Some(SpanEnd::Done("sent"))
            }
            StepKind::Acknowledged | StepKind::Pubrec => Some(SpanEnd::Done("acknowledged")),
            StepKind::Negative => failed("negative"),
            StepKind::Dropped => failed("dropped"),
            StepKind::Skipped => failed("skipped"),
            StepKind::Parked => failed("parked"),
            _ => None,
        };
        if let Some(end) = end {
            receiver.span.end = end;
        }
        receiver.span.add(step, nanos)
    }

    /// Adds the spans that changed.
    fn export(&mut self, unix_ms: u64, chance: Chance<'_>, spans: &mut Vec<Span>) {
        let ids = |span: Span, id: [u8; 8], parent: Option<[u8; 8]>| Span {
            trace_id: self.trace_id.into(),
            span_id: id.into(),
            parent_span_id: parent.map(Vec::from).unwrap_or_default(),
            ..span
        };
        let attributes = self.message_attributes();
        if let Some(span) = self.message.export(unix_ms, "publish", SpanKind::Consumer, attributes) {
            // A span is never sent twice: what changes later has an id of its own, below the first.
            spans.push(match self.is_exported {
                false => ids(span, self.span_id, self.parent),
                true => ids(span, span_id(chance), Some(self.span_id)),
            });
            self.is_exported = true;
        }
        for receiver in &mut self.receivers {
            let attributes = attributes_of("deliver", &self.topic, &receiver.client_id, receiver.qos);
            if let Some(span) = receiver.span.export(unix_ms, "deliver", SpanKind::Producer, attributes) {
                spans.push(ids(span, span_id(chance), Some(self.span_id)));
            }
        }
    }

    fn message_attributes(&self) -> Vec<KeyValue> {
        let mut attributes = attributes_of("publish", &self.topic, &self.publisher, self.qos);
        attributes.push(attribute("messaging.message.body.size", number(self.payload_bytes)));
        attributes.push(attribute("homing.receivers", number(self.receivers.len())));
        if self.receivers_left_out > 0 {
            attributes.push(attribute("homing.steps_left_out", number(self.receivers_left_out)));
        }
        attributes
    }
}

/// Returns the attributes of both kinds of spans, by the names of OpenTelemetry where it has some.
fn attributes_of(operation: &str, topic: &str, client_id: &str, qos: Option<QoS>) -> Vec<KeyValue> {
    let mut attributes = vec![
        attribute("messaging.system", text("mqtt")),
        attribute("messaging.operation.name", text(operation)),
        attribute("messaging.destination.name", text(topic)),
        attribute("messaging.client.id", text(client_id)),
    ];
    attributes.extend(qos.map(|qos| attribute("mqtt.qos", number(qos as u8))));
    attributes
}

/// Returns a step as an event.
fn event(step: &TraceStep, nanos: u64) -> Event {
    let mut attributes = Vec::new();
    attributes.extend(step.packet_id.map(|id| attribute("mqtt.packet_id", number(id.get()))));
    attributes.extend(step.qos.map(|qos| attribute("mqtt.qos", number(qos as u8))));
    attributes.extend(step.dup.then(|| attribute("mqtt.dup", flag(true))));
    attributes
        .extend(step.reason.map(|reason: ReasonCode| attribute("mqtt.reason_code", number(reason.byte()))));
    attributes.extend((!step.detail.is_empty()).then(|| attribute("detail", text(&*step.detail))));
    Event { time_unix_nano: nanos, name: step.kind.name().to_owned(), attributes, ..Event::default() }
}

/// Returns a new id of a span, which is never zero.
fn span_id(chance: Chance<'_>) -> [u8; 8] {
    let [a, b, c, d, e, f, g, h, ..] = chance();
    [a, b, c, d, e, f, g, h | 1]
}

/// Reads `traceparent`: `00-<32 digits>-<16 digits>-<2 digits>`, in hexadecimal. Returns `None` for
/// another form, and for ids that are zero.
fn trace_context(text: &str) -> Option<([u8; 16], [u8; 8])> {
    let mut parts = text.split('-');
    let (version, trace_id, parent) = (parts.next()?, hex(parts.next()?)?, hex(parts.next()?)?);
    let _: [u8; 1] = hex(version).filter(|version: &[u8; 1]| *version != [0xff])?;
    let _: [u8; 1] = hex(parts.next()?)?;
    (trace_id != [0; 16] && parent != [0; 8]).then_some((trace_id, parent))
}

fn hex<const N: usize>(digits: &str) -> Option<[u8; N]> {
    let is_right =
        digits.len() == 2 * N && digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    let mut bytes = [0; N];
    for (at, byte) in bytes.iter_mut().enumerate().filter(|_| is_right) {
        *byte = u8::from_str_radix(digits.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    is_right.then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTEXT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    struct Lab {
        spans: MessageSpans,
        last: u8,
    }

    impl Lab {
        fn new() -> Lab {
            Lab { spans: MessageSpans::default(), last: 0 }
        }

        fn take(&mut self, ms: u64, step: TraceStep) -> Vec<Span> {
            let (now, last) = (Instant::from_millis(ms), &mut self.last);
            let step = TraceStep { at: now, ..step };
            self.spans.take(now, 1_000_000 + ms, &step, &mut || {
                *last = last.wrapping_add(2);
                [*last; 16]
            })
        }

        fn due(&mut self, ms: u64) -> Vec<Span> {
            let last = &mut self.last;
            self.spans.due(Instant::from_millis(ms), 1_000_000 + ms, &mut || {
                *last = last.wrapping_add(2);
                [*last; 16]
            })
        }
    }

    fn step(kind: StepKind, tag: u16, client: &str) -> TraceStep {
        let step = TraceStep::of_message(kind, AuditTag::new(tag), "alarms/7", b"on");
        TraceStep { client_id: client.into(), qos: Some(QoS::AtLeastOnce), ..step }
    }

    fn value(span: &Span, key: &str) -> String {
        let found = span.attributes.iter().find(|attribute| attribute.key == key);
        format!("{:?}", found.and_then(|attribute| attribute.value.as_ref()?.value.clone()))
    }

    fn events(span: &Span) -> Vec<&str> {
        span.events.iter().map(|event| event.name.as_str()).collect()
    }

    #[test]
    fn a_message_is_one_span_with_a_span_below_it_for_each_receiver() {
        let mut lab = Lab::new();
        lab.take(0, TraceStep { traceparent: Some(CONTEXT.into()), ..step(StepKind::Received, 7, "app") });
        lab.take(1, step(StepKind::Matched, 7, ""));
        lab.take(3, step(StepKind::Sent, 7, "pump-7"));
        lab.take(4, step(StepKind::PublisherAcknowledged, 7, "app"));
        lab.take(9, step(StepKind::Acknowledged, 7, "pump-7"));
        assert_eq!(lab.due(500), [], "later steps may come from another thread");
        let spans = lab.due(1_009);
        let [publish, deliver] = &spans[..] else { panic!("{spans:?}") };
        assert_eq!(publish.trace_id, [&[0x0a, 0xf7][..], &publish.trace_id[2..]].concat());
        assert_eq!((publish.trace_id.len(), publish.parent_span_id[0]), (16, 0xb7));
        assert_eq!((&deliver.trace_id, &deliver.parent_span_id), (&publish.trace_id, &publish.span_id));
        assert_eq!(events(publish), ["received", "matched", "publisher_acknowledged"]);
        assert_eq!(events(deliver), ["sent", "acknowledged"]);
        let times =
            |span: &Span| (span.start_time_unix_nano / 1_000_000, span.end_time_unix_nano / 1_000_000);
        assert_eq!((times(publish), times(deliver)), ((1_000_000, 1_000_004), (1_000_003, 1_000_009)));
        assert!(value(deliver, "messaging.client.id").contains("pump-7"));
        assert!(value(deliver, "homing.outcome").contains("acknowledged"));
        assert_eq!(lab.due(5_000), [], "nothing is sent twice");
        lab.due(100_000);
        assert_eq!((lab.spans.messages.len(), lab.spans.events), (0, 0));
    }

    #[test]
    fn a_message_that_waits_is_seen_as_pending_and_again_once_it_is_acknowledged() {
        let mut lab = Lab::new();
        lab.take(0, step(StepKind::Received, 7, "app"));
        lab.take(0, step(StepKind::PublisherAcknowledged, 7, "app"));
        lab.take(0, step(StepKind::Recorded, 7, ""));
        lab.take(0, step(StepKind::Queued, 7, "pump-7"));
        lab.take(0, step(StepKind::Committed, 7, ""));
        assert_eq!(lab.due(9_999), []);
        let spans = lab.due(10_000);
        assert_eq!(spans.len(), 2);
        assert!(value(&spans[1], "homing.outcome").contains("pending"));
        assert_eq!(spans[1].end_time_unix_nano - spans[1].start_time_unix_nano, 10_000 * 1_000_000);
        lab.due(500_000);
        lab.take(600_000, step(StepKind::Sent, 7, "pump-7"));
        lab.take(600_001, step(StepKind::Acknowledged, 7, "pump-7"));
        let later = lab.due(601_001);
        let [deliver] = &later[..] else { panic!("{later:?}") };
        assert_eq!(events(deliver), ["queued", "sent", "acknowledged"]);
        assert_eq!((&deliver.trace_id, &deliver.parent_span_id), (&spans[0].trace_id, &spans[0].span_id));
        assert_ne!(deliver.span_id, spans[1].span_id);
    }

    #[test]
    fn a_drop_and_a_refusal_are_errors_with_their_cause() {
        let mut lab = Lab::new();
        lab.take(0, step(StepKind::Received, 1, "app"));
        lab.take(0, TraceStep { detail: "denied".into(), ..step(StepKind::Refused, 1, "") });
        lab.take(0, step(StepKind::Received, 2, "app"));
        lab.take(0, step(StepKind::PublisherAcknowledged, 2, "app"));
        lab.take(0, TraceStep { detail: "queue_full".into(), ..step(StepKind::Dropped, 2, "pump-7") });
        let mut failed: Vec<(String, String)> = lab
            .due(1_000)
            .into_iter()
            .filter_map(|span| Some((span.name, span.status?)))
            .filter(|(_, status)| status.code() == StatusCode::Error)
            .map(|(name, status)| (name, status.message))
            .collect();
        failed.sort();
        let expected = [("deliver", "queue_full"), ("publish", "denied")];
        assert_eq!(failed, expected.map(|(name, why)| (name.to_owned(), why.to_owned())));
    }

    #[test]
    fn every_table_has_a_bound_and_what_makes_room_is_exported() {
        let mut lab = Lab::new();
        let mut spans = Vec::new();
        for tag in 1..=u16::try_from(MESSAGES).expect("few") + 5 {
            spans.extend(lab.take(u64::from(tag), step(StepKind::Received, tag, "app")));
        }
        assert_eq!((spans.len(), lab.spans.messages.len()), (5, MESSAGES));
        let mut lab = Lab::new();
        lab.take(0, step(StepKind::Received, 1, "app"));
        for n in 0..RECEIVERS + 9 {
            lab.take(0, step(StepKind::Queued, 1, &format!("c{n}")));
        }
        for _ in 0..EVENTS + 9 {
            lab.take(0, step(StepKind::Resent, 1, "c0"));
        }
        let spans = lab.due(10_000);
        assert_eq!(spans.len(), 1 + RECEIVERS);
        assert!(value(&spans[0], "homing.steps_left_out").contains('9'));
        assert_eq!((spans[1].events.len(), spans[1].dropped_events_count), (EVENTS, 10));
        let mut lab = Lab::new();
        for tag in 1..=u16::try_from(ALL_EVENTS / EVENTS).expect("few") + 50 {
            lab.take(u64::from(tag), step(StepKind::Received, tag, "app"));
            (0..EVENTS).for_each(|_| drop(lab.take(u64::from(tag), step(StepKind::Resent, tag, "c"))));
        }
        let kept: usize = lab.spans.messages.values().map(TracedMessage::events).sum();
        assert!(kept == lab.spans.events && kept <= ALL_EVENTS, "{kept}");
    }

    #[test]
    fn only_a_right_traceparent_counts() {
        assert!(trace_context(CONTEXT).is_some());
        for wrong in [
            "",
            "00",
            &CONTEXT[..54],
            &CONTEXT.to_uppercase(),
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-é",
        ] {
            assert_eq!(trace_context(wrong), None, "{wrong}");
        }
    }
}
