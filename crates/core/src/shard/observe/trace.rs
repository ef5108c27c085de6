//! What traces of operators follow, and their steps: of some messages, and of some clients'
//! packets. `tracer` adds the steps.
//!
//! The operator names clients and Topic Filters. A PUBLISH of a client that matches gets a number,
//! its [`AuditTag`], which travels with the shared message: into queues, in-flight windows and
//! other shards. A connection of a named client notes every packet. Steps are effects of a turn:
//! the driver sends them to the collector, which knows which trace they belong to.
//!
//! A trace changes nothing: no packet, no order, no record. While nothing is traced, a PUBLISH
//! costs one branch, an acknowledgement and a write one each.

use crate::mqtt::audit::AuditTag;
use crate::mqtt::topic;
use crate::named_enum::named_enum;
use crate::session::packet_notes::{PacketNote, cut};
use crate::time::Instant;
use std::borrow::Cow;

/// Steps of one turn at most. Further ones are counted as lost.
const STEPS: usize = 1_024;

/// Bytes of a Client Identifier that a trace can follow at most. A longer one is cut in a step.
pub const LONGEST_CLIENT_ID: usize = 1_024;

/// The payloads of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TracedPayloads {
    /// No step has a payload.
    #[default]
    Hidden,
    /// The step of a received message has the first 256 bytes.
    Shown,
}

/// The clients and topics that traces follow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceWatch {
    /// Client Identifiers.
    pub clients: Vec<Box<str>>,
    /// Topic Filters of messages that clients publish.
    pub filters: Vec<Box<str>>,
    /// The payloads in the steps.
    pub payloads: TracedPayloads,
}

impl TraceWatch {
    /// True if a trace follows the client.
    pub fn has_client(&self, client_id: &str) -> bool {
        self.clients.iter().any(|watched| **watched == *client_id)
    }

    /// True if a trace follows messages of the topic.
    pub fn has_topic(&self, topic: &str) -> bool {
        self.filters.iter().any(|filter| topic::matches(filter, topic))
    }
}

named_enum! {
    /// The kind of a step.
    #[derive(Hash)]
    pub enum StepKind {
        /// A client's PUBLISH came.
        Received = "received",
        /// The PUBLISH was not routed; the detail has the reason.
        Refused = "refused",
        /// The message is the retained message of its topic.
        Retained = "retained",
        /// The receivers were found.
        Matched = "matched",
        /// The message is in the open batch of the store.
        Recorded = "recorded",
        /// The batch is committed.
        Committed = "committed",
        /// PUBACK or PUBREC went to the publisher.
        PublisherAcknowledged = "publisher_acknowledged",
        /// The message is in the queue of a receiver.
        Queued = "queued",
        /// The message waits for room in the queue of a receiver.
        Held = "held",
        /// PUBLISH was written for a receiver.
        Sent = "sent",
        /// PUBLISH was written with DUP.
        Resent = "resent",
        /// PUBREC came from a receiver.
        Pubrec = "pubrec",
        /// PUBACK came from a receiver.
        Acknowledged = "acknowledged",
        /// A receiver sent a negative PUBACK or PUBREC.
        Negative = "negative",
        /// A receiver will not get the message.
        Dropped = "dropped",
        /// A dead letter was made of the message.
        DeadLetter = "dead_letter",
        /// An operator dropped the message for a receiver.
        Skipped = "skipped",
        /// An operator moved the message to the dead letters.
        Parked = "parked",
        /// A packet came from a traced client.
        PacketIn = "packet_in",
        /// A packet was written for a traced client.
        PacketOut = "packet_out",
        /// Something happened to a traced client; the detail says what.
        Client = "client",
    }
}

/// One step.
#[derive(Clone, Debug)]
pub struct TraceStep {
    /// The time, to the turn: a turn takes 5 ms at most.
    pub at: Instant,
    /// The kind.
    pub kind: StepKind,
    /// The message; [`AuditTag::NONE`] for a step of a client alone.
    pub audit: AuditTag,
    /// The client: the publisher of a received message, else the receiver. Empty if the step
    /// concerns no client.
    pub client_id: Box<str>,
    /// The packet, if the step is about one.
    pub packet: Option<PacketNote>,
    /// What else there is to say.
    pub detail: Cow<'static, str>,
    /// The user property `traceparent` of a received message, its first 256 characters.
    pub traceparent: Option<Box<str>>,
    /// The beginning of the payload, if the operator asked for it.
    pub payload: Option<Box<[u8]>>,
}

impl TraceStep {
    pub(super) fn new(at: Instant, kind: StepKind, audit: AuditTag, client_id: &str) -> TraceStep {
        let client_id: Box<str> =
            if client_id.len() <= LONGEST_CLIENT_ID { client_id.into() } else { cut(client_id) };
        let (packet, detail, traceparent, payload) = (None, Cow::Borrowed(""), None, None);
        TraceStep { at, kind, audit, client_id, packet, detail, traceparent, payload }
    }

    pub(super) fn about(self, packet: PacketNote) -> TraceStep {
        TraceStep { packet: Some(packet), ..self }
    }

    pub(super) fn saying(self, detail: impl Into<Cow<'static, str>>) -> TraceStep {
        TraceStep { detail: detail.into(), ..self }
    }

    /// Returns the bytes that the step takes, about.
    pub fn size(&self) -> usize {
        let topic = self.packet.as_ref().map_or(0, |packet| packet.topic.len());
        let texts = self.client_id.len() + topic + self.detail.len();
        let traceparent = self.traceparent.as_ref().map_or(0, |text| text.len());
        size_of::<TraceStep>() + texts + traceparent + self.payload.as_ref().map_or(0, |bytes| bytes.len())
    }
}

/// The steps of a turn.
#[derive(Debug, Default)]
pub struct TraceSteps {
    /// The steps, in their order.
    pub steps: Vec<TraceStep>,
    /// Number of steps that had no place.
    pub lost: u64,
}

impl TraceSteps {
    pub(super) fn push(&mut self, step: TraceStep) {
        if self.steps.len() < STEPS {
            self.steps.push(step);
        } else {
            self.lost += 1;
        }
    }

    /// True if there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.lost == 0
    }

    /// Gives the steps without a time the present one. Called when they are sent.
    pub(crate) fn stamp(&mut self, now: Instant) {
        for step in self.steps.iter_mut().filter(|step| step.at.is_never()) {
            step.at = now;
        }
    }
}
