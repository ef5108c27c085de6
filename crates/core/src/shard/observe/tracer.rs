//! Adds the steps of traces where they happen.
//!
//! While nothing is traced, a caller tests [`Tracer::is_on`], the message's number, the phase of the
//! connection or the mark of the delivery, and nothing here is called. Only a PUBLISH that is refused
//! or delayed costs a call then.

use crate::mqtt::audit::AuditTag;
use crate::mqtt::codec::{AckKind, property};
use crate::mqtt::outcome::Outcome;
use crate::mqtt::packet::{Packet, Property, Publish, QoS, ReasonCode};
use crate::persistence::records::Lsn;
use crate::routing::subscription_tree::Matches;
use crate::session::counters::Counters;
use crate::session::drops::{DropReason, Dropped};
use crate::session::packet_notes::{AuditedAck, NotedPackets, PacketNote, cut};
use crate::shard::connections::Connections;
use crate::shard::durability::gates::Durability;
use crate::shard::effects::Effects;
use crate::shard::observe::client_events::Occurrence;
use crate::shard::observe::trace::{StepKind, TraceStep, TraceWatch, TracedPayloads};
use crate::shard::publication::Publication;
use crate::shard::sessions::Sessions;
use crate::shard::shared_state::SharedState;
use crate::shard::slots::{ConnectionId, SessionId};
use crate::time::Instant;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

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

/// The tracer with the parts of the shard that it reads, borrowed for one step.
#[derive(Debug)]
pub(crate) struct StepRecorder<'a> {
    pub tracer: &'a mut Tracer,
    pub sessions: &'a Sessions,
    pub connections: &'a mut Connections,
    pub durability: &'a Durability,
    pub counters: &'a mut Counters,
    pub shared: &'a SharedState,
    pub effects: &'a mut Effects,
}

impl StepRecorder<'_> {
    /// Replaces what is traced; `None` for nothing. The connections of named clients note every
    /// packet from now on.
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

    /// Adds the CONNECT of a traced client, whose packets are noted from now on. The client is not
    /// authenticated yet. Called each time that CONNECT is handled, such as when the authenticator has
    /// decided: the step is added once,
    /// and the trace may have ended meanwhile.
    #[cold]
    pub(crate) fn add_connect(&mut self, now: Instant, id: ConnectionId, client_id: &str) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        let was_traced = connection.wire.is_traced();
        if !self.tracer.watches(client_id) {
            connection.note_packets(NotedPackets::OfTracedMessages);
            return;
        }
        connection.note_packets(NotedPackets::All);
        if was_traced {
            return;
        }
        let packet = PacketNote { name: "CONNECT", ..PacketNote::default() };
        let step = TraceStep::new(now, StepKind::PacketIn, AuditTag::NONE, client_id).about(packet);
        self.effects.trace.push(step);
    }

    /// Adds a packet that came from a traced client.
    #[cold]
    pub(crate) fn add_packet(&mut self, now: Instant, id: ConnectionId, packet: &Packet<'_>) {
        // A PUBLISH that is no repetition is a step of its message.
        if matches!(packet, Packet::Publish(publish) if !publish.dup) {
            return;
        }
        let session = self.connections.get(id).and_then(|connection| connection.session);
        if let Some(entry) = session.and_then(|session| self.sessions.get(session))
            && self.tracer.is_on()
        {
            let client_id = &entry.session.client_id;
            let step = TraceStep::new(now, StepKind::PacketIn, AuditTag::NONE, client_id);
            let mut note = PacketNote::of(packet);
            if let Some(mount_point) = self.connections.get(id).and_then(|c| c.wire.mount_point()) {
                note.topic = cut(&mount_point.filter(&note.topic));
            }
            self.effects.trace.push(step.about(note));
        }
    }

    /// Begins to follow a PUBLISH, if a trace names its client or its topic. Returns the number of
    /// the message, which is none if no trace does, or nothing is traced.
    #[cold]
    pub(crate) fn begin(
        &mut self,
        now: Instant,
        session: SessionId,
        publish: &Publish<'_>,
        topic: &str,
    ) -> AuditTag {
        let (Some(armed), Some(entry)) = (&self.tracer.0, self.sessions.get(session)) else {
            return AuditTag::NONE;
        };
        let (watch, client_id) = (&armed.watch, &entry.session.client_id);
        if !watch.has_client(client_id) && !watch.has_topic(topic) {
            return AuditTag::NONE;
        }
        let audit = self.shared.totals.next_audit_tag();
        let packet = PacketNote {
            name: "PUBLISH",
            audit,
            packet_id: publish.packet_id,
            qos: Some(publish.qos),
            dup: publish.dup,
            topic: cut(topic),
            payload: publish.payload.len(),
            reason: None,
        };
        let payload = (watch.payloads == TracedPayloads::Shown)
            .then(|| publish.payload.iter().take(PAYLOAD).copied().collect());
        let step = TraceStep::new(now, StepKind::Received, audit, client_id).about(packet);
        self.effects.trace.push(TraceStep { traceparent: traceparent(publish), payload, ..step });
        audit
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
        if self.tracer.is_on() {
            self.effects.trace.push(TraceStep::new(now, kind, audit, "").saying(detail));
        }
    }

    /// Adds that a PUBLISH is not routed.
    #[cold]
    pub(crate) fn add_refusal(
        &mut self,
        now: Instant,
        audit: AuditTag,
        (reason, cause): (ReasonCode, DropReason),
    ) {
        let detail = format!("{}, reason code {:#04x}", cause.name(), reason.byte());
        self.add(now, StepKind::Refused, audit, detail);
    }

    /// Adds that a traced message was recorded in the open batch, if it was.
    #[cold]
    pub(crate) fn add_record(&mut self, now: Instant, publication: &Publication<'_>) {
        let Some(lsn) = self.durability.pending().filter(|_| publication.body.is_some()) else { return };
        self.add(now, StepKind::Recorded, publication.audit, "");
        if let Some(armed) = &mut self.tracer.0 {
            if armed.commits.len() >= COMMITS {
                armed.commits.pop_front();
            }
            armed.commits.push_back((lsn, publication.audit));
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
        let Some(entry) = self.sessions.get(session) else { return };
        let client_id = &entry.session.client_id;
        if !publication.audit.is_some() && !self.tracer.watches(client_id) {
            return;
        }
        let packet = PacketNote {
            name: "PUBLISH",
            audit: publication.audit,
            qos: Some(qos),
            topic: cut(publication.parts.topic),
            payload: publication.parts.payload.len(),
            ..PacketNote::default()
        };
        let kind = match outcome {
            Outcome::Taken => StepKind::Queued,
            // The outcome of a held message is not known yet.
            Outcome::Unmatched => StepKind::Held,
            // The drop of the message is a step of its own.
            _ => return,
        };
        let away = if entry.connection.is_none() { "the receiver is away" } else { "" };
        let step = TraceStep::new(now, kind, publication.audit, client_id).about(packet).saying(away);
        self.effects.trace.push(step);
    }

    /// Adds the drops of a session.
    #[cold]
    pub(crate) fn add_drops(&mut self, session: SessionId, drops: &[Dropped]) {
        let client_id = self.sessions.get(session).map(|entry| entry.session.client_id.clone());
        if let Some(client_id) = client_id {
            drops.iter().for_each(|dropped| self.add_drop(&client_id, dropped));
        }
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

    /// Adds that a dead letter is published.
    #[cold]
    pub(crate) fn add_dead_letter(&mut self, now: Instant, audit: AuditTag, topic: &str) {
        self.add(now, StepKind::DeadLetter, audit, String::from(cut(topic)));
    }

    /// Adds the drop of a message, if the message or the receiver is traced. The step gets the time
    /// of the next flush.
    #[cold]
    pub(crate) fn add_drop(&mut self, client_id: &str, dropped: &Dropped) {
        let audit = dropped.message.as_ref().map_or(AuditTag::NONE, |message| message.audit());
        if !audit.is_some() && !self.tracer.watches(client_id) {
            return;
        }
        let kind = match dropped.cause {
            DropReason::Skipped => StepKind::Skipped,
            DropReason::Parked => StepKind::Parked,
            DropReason::NegativelyAcknowledged => StepKind::Negative,
            _ => StepKind::Dropped,
        };
        let step = TraceStep::new(Instant::NEVER, kind, audit, client_id);
        let packet = dropped.message.as_ref().map(|message| PacketNote {
            name: "PUBLISH",
            audit,
            topic: cut(message.topic()),
            payload: message.payload().len(),
            reason: dropped.code,
            ..PacketNote::default()
        });
        self.effects.trace.push(TraceStep { packet, ..step }.saying(dropped.cause.name()));
    }

    /// Adds the acknowledgements of traced messages that a packet of this session brought.
    #[cold]
    pub(crate) fn add_acknowledgements(&mut self, now: Instant, session: SessionId) {
        let acks = self.counters.audited.take();
        let Some(entry) = self.sessions.get(session).filter(|_| self.tracer.is_on()) else { return };
        for AuditedAck { audit, kind, packet_id, reason } in acks {
            let step = match kind {
                AckKind::Puback => StepKind::Acknowledged,
                _ => StepKind::Pubrec,
            };
            let packet = PacketNote { audit, ..PacketNote::of_acknowledgement(kind, packet_id, reason) };
            let step = TraceStep::new(now, step, audit, &entry.session.client_id).about(packet);
            self.effects.trace.push(step);
        }
    }

    /// Collects the notes of a connection about the packets that were written to it.
    #[cold]
    pub(crate) fn collect_notes(&mut self, now: Instant, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        let (notes, lost) = connection.wire.take_notes();
        let entry = connection.session.and_then(|session| self.sessions.get(session));
        let client_id = entry.map_or("", |entry| &entry.session.client_id);
        if !self.tracer.is_on() {
            return;
        }
        self.effects.trace.lost += u64::from(lost);
        for note in notes {
            let kind = match note.name {
                "PUBLISH" if note.dup => StepKind::Resent,
                "PUBLISH" => StepKind::Sent,
                "PUBACK" | "PUBREC" => StepKind::PublisherAcknowledged,
                _ => StepKind::PacketOut,
            };
            self.effects.trace.push(TraceStep::new(now, kind, note.audit, client_id).about(note));
        }
    }

    /// Adds what happened to traced clients, from the events of the turn.
    #[cold]
    pub(crate) fn add_events(&mut self, now: Instant) {
        let StepRecorder { tracer, effects, .. } = self;
        for event in &effects.events {
            let client_id = event.client_id.as_deref().unwrap_or_default();
            if tracer.watches(client_id)
                && let Some(text) = told(&event.occurrence)
            {
                let step = TraceStep::new(now, StepKind::Client, AuditTag::NONE, client_id);
                effects.trace.push(step.saying(text));
            }
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
