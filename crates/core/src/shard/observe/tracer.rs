//! Records drops, and the steps of traces, where they happen. It makes dead letters of drops, as
//! [`crate::letters::dead_letters`] decides.
//!
//! While nothing is traced, a caller tests [`Tracer::is_on`], the message's number, the phase of
//! the connection or the mark of the delivery, and nothing here is called. Only a PUBLISH that is
//! refused or delayed costs a call then.

use crate::durability::gates::Durability;
use crate::durability::publication::Publication;
use crate::events::client_events::{ClientEvent, Occurrence};
use crate::events::drop_reports::{DropReceiver, DropReports};
use crate::events::trace::{LONGEST_CLIENT_ID, TraceWatch, TracedPayloads};
use crate::letters::dead_letters::{DeadLetter, DeadLetters};
use crate::mqtt::audit::AuditTag;
use crate::mqtt::codec::property;
use crate::mqtt::message::Message;
use crate::mqtt::outcome::Outcome;
use crate::mqtt::packet::{Packet, Property, Publish, QoS};
use crate::persistence::records::Lsn;
use crate::routing::subscription_tree::Matches;
use crate::session::counters::Counters;
use crate::session::drops::{DropReason, Dropped};
use crate::session::trace_steps::{NotedPackets, StepKind, TraceStep, TraceSteps, cut};
use crate::shard::clients::connections::Connections;
use crate::shard::clients::sessions::Sessions;
use crate::shard::turn::effects::Effects;
use crate::shared::SharedState;
use crate::slots::{ConnectionId, SessionId};
use crate::time::Instant;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

/// Steps of one turn at most. Further steps are counted as lost.
const STEPS: usize = 1_024;

/// Messages of one shard that wait for their commit at most.
const COMMITS: usize = 1_000;

/// Bytes of a payload in a step at most.
const PAYLOAD: usize = 256;

/// The traces of one shard. 8 bytes while nothing is traced.
#[derive(Debug, Default)]
pub(crate) struct Tracer(Option<Box<Armed>>);

#[derive(Debug)]
struct Armed {
    watch: Arc<TraceWatch>,
    /// Messages that wait for their commit, in the order of their batches.
    commits: VecDeque<(Lsn, AuditTag)>,
}

impl Tracer {
    /// True while something is traced.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    fn watches(&self, client_id: &str) -> bool {
        self.0.as_ref().is_some_and(|armed| armed.watch.has_client(client_id))
    }
}

/// Returns `traceparent` of W3C Trace Context, if the publisher sent it as a user property.
fn traceparent(publish: &Publish<'_>) -> Option<Box<str>> {
    property::iter(publish.properties.forwarded()).find_map(|property| match property {
        Property::UserProperty("traceparent", value) => Some(cut(value)),
        _ => None,
    })
}

/// The records of drops and of steps, with the parts of the shard that they read, borrowed for one
/// call.
#[derive(Debug)]
pub(crate) struct Recorder<'a> {
    pub tracer: &'a mut Tracer,
    pub sessions: &'a Sessions,
    pub connections: &'a mut Connections,
    pub durability: &'a Durability,
    pub counters: &'a mut Counters,
    pub shared: &'a SharedState,
    pub effects: &'a mut Effects,
    pub drops: &'a mut DropReports,
    pub dead_letters: &'a mut DeadLetters,
}

impl<'a> Recorder<'a> {
    /// Replaces the traced clients and topics; `None` for nothing. The connections of named clients
    /// note every packet from now on.
    pub(crate) fn follow(&mut self, watch: Option<Arc<TraceWatch>>) {
        let before = self.tracer.0.take();
        for client_id in before.iter().flat_map(|armed| armed.watch.clients.iter()) {
            self.note_packets_of(client_id, NotedPackets::OfTracedMessages);
        }
        for client_id in watch.iter().flat_map(|watch| watch.clients.iter()) {
            self.note_packets_of(client_id, NotedPackets::All);
        }
        let commits = before.map(|armed| armed.commits).unwrap_or_default();
        self.counters.objectives.follow_traces(watch.is_some());
        self.tracer.0 = watch.map(|watch| Box::new(Armed { watch, commits }));
    }

    fn note_packets_of(&mut self, client_id: &str, noted: NotedPackets) {
        let session = self.sessions.find(client_id).and_then(|id| self.sessions.get(id));
        if let Some(connection) =
            session.and_then(|entry| entry.connection).and_then(|id| self.connections.get_mut(id))
        {
            connection.note_packets(noted);
        }
    }

    fn client_of(&self, session: SessionId) -> Option<&'a str> {
        self.sessions.get(session).map(|entry| &*entry.session.client_id)
    }

    /// Adds a step of a client while something is traced. `client_id` is empty if the step concerns
    /// no client.
    fn add_step(&mut self, now: Instant, client_id: &str, step: TraceStep) {
        if self.tracer.is_on() {
            let is_short = client_id.len() <= LONGEST_CLIENT_ID;
            let client_id = if is_short { client_id.into() } else { cut(client_id) };
            self.effects.trace.push(TraceStep { at: now, client_id, ..step }, STEPS);
        }
    }

    /// Adds a step of a traced message that concerns no receiver.
    #[cold]
    pub(crate) fn add(
        &mut self,
        now: Instant,
        kind: StepKind,
        audit: AuditTag,
        detail: impl Into<Cow<'static, str>>,
    ) {
        self.add_step(now, "", TraceStep { detail: detail.into(), ..TraceStep::new(kind, audit) });
    }

    /// Adds the steps that a client's connection or packet has left.
    fn add_all(&mut self, now: Instant, client_id: &str, steps: TraceSteps) {
        if self.tracer.is_on() {
            self.effects.trace.lost += steps.lost;
        }
        steps.steps.into_iter().for_each(|step| self.add_step(now, client_id, step));
    }

    /// Adds the steps of a connection about the packets that were written to it.
    #[cold]
    pub(crate) fn collect_written(&mut self, now: Instant, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(id) {
            let (steps, session) = (connection.wire.take_steps(), connection.session);
            let client_id = session.and_then(|session| self.client_of(session)).unwrap_or_default();
            self.add_all(now, client_id, steps);
        }
    }

    /// Adds the acknowledgements of traced messages that a packet of this session brought.
    #[cold]
    pub(crate) fn collect_acknowledgements(&mut self, now: Instant, session: SessionId) {
        let mut steps = std::mem::take(&mut self.counters.audited);
        let Some(entry) = self.sessions.get(session) else { return };
        if let Some(connection) = entry.connection.and_then(|id| self.connections.get(id)) {
            let version = connection.wire.version;
            steps.steps = steps.steps.into_iter().map(|step| step.as_on_wire(version)).collect();
        }
        self.add_all(now, &entry.session.client_id, steps);
    }

    /// Adds the CONNECT of a traced client, whose packets are noted from now on. The client is not
    /// authenticated yet. Called each time that CONNECT is handled, such as when the authenticator
    /// has decided: the step is added once, and the trace may have ended meanwhile.
    #[cold]
    pub(crate) fn add_connect(&mut self, now: Instant, id: ConnectionId, client_id: &str) {
        let is_watched = self.tracer.watches(client_id);
        let Some(connection) = self.connections.get_mut(id) else { return };
        let was_traced = connection.wire.is_traced();
        connection.note_packets(if is_watched { NotedPackets::All } else { NotedPackets::OfTracedMessages });
        if is_watched && !was_traced {
            let step = TraceStep::new(StepKind::PacketIn, AuditTag::NONE);
            self.add_step(now, client_id, TraceStep { packet: "CONNECT", ..step });
        }
    }

    /// Adds a packet that came from a traced client.
    #[cold]
    pub(crate) fn add_packet(&mut self, now: Instant, id: ConnectionId, packet: &Packet<'_>) {
        // A PUBLISH that is no repetition is a step of its message.
        if matches!(packet, Packet::Publish(publish) if !publish.dup) {
            return;
        }
        let Some(connection) = self.connections.get(id) else { return };
        let step = TraceStep::of_packet(StepKind::PacketIn, packet);
        let mut step = step.as_on_wire(connection.wire.version);
        if let Some(mount_point) = connection.wire.mount_point() {
            step.topic = cut(&mount_point.filter(&step.topic));
        }
        if let Some(client_id) = connection.session.and_then(|session| self.client_of(session)) {
            self.add_step(now, client_id, step);
        }
    }

    /// Begins to follow a PUBLISH, if a trace names its client or its topic. Returns the number of
    /// the message; no number if the message is not traced.
    #[cold]
    pub(crate) fn begin(
        &mut self,
        now: Instant,
        session: SessionId,
        publish: &Publish<'_>,
        topic: &str,
    ) -> AuditTag {
        self.client_of(session)
            .map_or(AuditTag::NONE, |client_id| self.begin_by(now, client_id, publish, topic))
    }

    /// As [`Self::begin`], for a publisher with this name.
    #[cold]
    pub(crate) fn begin_by(
        &mut self,
        now: Instant,
        client_id: &str,
        publish: &Publish<'_>,
        topic: &str,
    ) -> AuditTag {
        let Some(armed) = &self.tracer.0 else { return AuditTag::NONE };
        let watch = &armed.watch;
        if !watch.has_client(client_id) && !watch.has_topic(topic) {
            return AuditTag::NONE;
        }
        let audit = self.shared.totals.next_audit_tag();
        let step = TraceStep {
            packet_id: publish.packet_id,
            qos: Some(publish.qos),
            dup: publish.dup,
            traceparent: traceparent(publish),
            payload: (watch.payloads == TracedPayloads::Shown)
                .then(|| publish.payload.iter().take(PAYLOAD).copied().collect()),
            ..TraceStep::of_message(StepKind::Received, audit, topic, publish.payload)
        };
        self.add_step(now, client_id, step);
        audit
    }

    /// Adds that a PUBLISH is not routed. The step of the acknowledgement has the reason code, if
    /// one is sent.
    #[cold]
    pub(crate) fn add_refusal(&mut self, now: Instant, audit: AuditTag, cause: DropReason) {
        self.add(now, StepKind::Refused, audit, cause.name());
    }

    /// Adds how many receivers were found.
    #[cold]
    pub(crate) fn add_matches(&mut self, now: Instant, audit: AuditTag, matches: &Matches) {
        let (here, groups) = (matches.subscribers.len(), matches.groups.len());
        let peers = matches.peers.iter().count();
        let detail = match (here, peers, groups) {
            (0, 0, 0) => Cow::Borrowed("nobody"),
            _ => Cow::Owned(format!("{here} in this thread, {peers} other threads, {groups} shared groups")),
        };
        self.add(now, StepKind::Matched, audit, detail);
    }

    /// Adds that a traced message was recorded in the open batch, if it was.
    #[cold]
    pub(crate) fn add_record(&mut self, now: Instant, publication: &Publication<'_>) {
        let Some(lsn) = self.durability.pending().filter(|_| publication.outgoing.body.is_some()) else {
            return;
        };
        self.add(now, StepKind::Recorded, publication.outgoing.audit, "");
        if let Some(armed) = &mut self.tracer.0 {
            if armed.commits.len() >= COMMITS {
                armed.commits.pop_front();
            }
            armed.commits.push_back((lsn, publication.outgoing.audit));
        }
    }

    /// Adds the traced messages whose batches are committed up to `lsn`.
    #[cold]
    pub(crate) fn add_commits(&mut self, now: Instant, lsn: Lsn) {
        while let Some(armed) = &mut self.tracer.0
            && let Some((_, audit)) = armed.commits.pop_front_if(|(batch, _)| *batch <= lsn)
        {
            self.add(now, StepKind::Committed, audit, "");
        }
    }

    /// Adds that a receiver keeps a message for later, if the message or the receiver is traced.
    #[cold]
    pub(crate) fn add_kept(
        &mut self,
        now: Instant,
        session: SessionId,
        publication: &Publication<'_>,
        (qos, outcome): (QoS, Outcome),
    ) {
        let kind = match outcome {
            Outcome::Taken => StepKind::Queued,
            // The outcome of a held message is not known yet.
            Outcome::Unmatched => StepKind::Held,
            // The drop of the message is a step of its own.
            _ => return,
        };
        let Some(entry) = self.sessions.get(session) else { return };
        let (client_id, audit) = (&entry.session.client_id, publication.outgoing.audit);
        if audit.is_some() || self.tracer.watches(client_id) {
            let away = if entry.connection.is_none() { "the receiver is away" } else { "" };
            let step = TraceStep::of_message(
                kind,
                audit,
                publication.outgoing.parts.topic,
                publication.outgoing.parts.payload,
            );
            self.add_step(now, client_id, TraceStep { qos: Some(qos), detail: away.into(), ..step });
        }
    }

    /// Records a drop that is counted: for the objectives, the traces, the events of the client,
    /// the last drops and the dead letters.
    pub(crate) fn record_drop(&mut self, receiver: &DropReceiver<'_>, dropped: Dropped) {
        self.counters.drops.count_receiver(dropped.cause, receiver.state);
        self.counters.objectives.dropped(dropped.mark);
        if self.tracer.is_on() {
            self.add_drop(receiver.client_id, &dropped);
        }
        self.drops.note(receiver.client_id, &dropped);
        self.dead_letters.add(DeadLetter::of(dropped, receiver));
    }

    /// Adds the drop of a message, if the message or the receiver is traced. The step gets the time
    /// of the next flush.
    #[cold]
    fn add_drop(&mut self, client_id: &str, dropped: &Dropped) {
        let message = dropped.message.as_ref();
        let audit = message.map_or(AuditTag::NONE, Message::audit);
        if !audit.is_some() && !self.tracer.watches(client_id) {
            return;
        }
        let kind = match dropped.cause {
            DropReason::Skipped => StepKind::Skipped,
            DropReason::Parked => StepKind::Parked,
            DropReason::NegativelyAcknowledged => StepKind::Negative,
            _ => StepKind::Dropped,
        };
        let step = match message {
            Some(message) => TraceStep::of_message(kind, audit, message.topic(), message.payload()),
            None => TraceStep::new(kind, audit),
        };
        let (reason, detail) = (dropped.code.filter(|_| message.is_some()), dropped.cause.name().into());
        self.add_step(Instant::NEVER, client_id, TraceStep { reason, detail, ..step });
    }

    /// Adds an event of a traced client, unless other steps show it.
    #[cold]
    pub(crate) fn add_event(&mut self, now: Instant, event: &ClientEvent) {
        let client_id = event.client_id.as_deref().unwrap_or_default();
        if self.tracer.watches(client_id)
            && let Some(text) = told(&event.occurrence)
        {
            let step = TraceStep::new(StepKind::Client, AuditTag::NONE);
            self.add_step(now, client_id, TraceStep { detail: text.into(), ..step });
        }
    }
}

/// Returns an event as a detail of a step; `None` for an event that other steps show.
fn told(occurrence: &Occurrence) -> Option<String> {
    match occurrence {
        Occurrence::Connected { session_present: true, .. } => Some("connected, session present".to_owned()),
        Occurrence::Connected { .. } => Some("connected, new session".to_owned()),
        Occurrence::Refused { what, .. } => Some(format!("refused: {}", cut(what))),
        Occurrence::Disconnected(cause) => Some(format!("disconnected: {}", cut(&cause.to_string()))),
        _ => None,
    }
}
