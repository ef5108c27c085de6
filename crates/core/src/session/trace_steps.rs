//! The steps of traced messages, and of the packets of traced clients.
//!
//! A step is made where it happens: by the wire of a connection for a packet that it writes, by the
//! counters for an acknowledgement, and by the shard for all others. The shard adds the time and
//! the client to the first two, when it flushes the connection or reports the effects of a packet.
//! A step is made only for a traced message or a traced client.

use crate::mqtt::audit::AuditTag;
use crate::mqtt::codec::AckKind;
use crate::mqtt::packet::{Packet, PacketId, ProtocolVersion, QoS, ReasonCode};
use crate::mqtt::topic::first_chars;
use crate::named_enum::named_enum;
use crate::time::Instant;
use std::borrow::Cow;

/// Steps that a connection keeps until they are collected.
pub(super) const OF_CONNECTION: usize = 256;

/// Characters of a text of a client that operators are shown at most.
pub const TEXT: usize = 256;

/// Returns a text of a client, the first 256 characters of a longer one.
pub fn cut(text: &str) -> Box<str> {
    first_chars(text, TEXT).into()
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
        /// An event of a traced client, with the detail.
        Client = "client",
    }
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// The name of the packet type in the standard; empty if the step is about no packet.
    pub packet: &'static str,
    /// The Packet Identifier.
    pub packet_id: Option<PacketId>,
    /// The QoS of a PUBLISH.
    pub qos: Option<QoS>,
    /// The DUP flag of a PUBLISH.
    pub dup: bool,
    /// The topic of a PUBLISH or the first filter of a SUBSCRIBE, its first 256 characters; else
    /// empty.
    pub topic: Box<str>,
    /// Bytes of the payload of a PUBLISH.
    pub payload_bytes: usize,
    /// The reason code, if the packet has one.
    pub reason: Option<ReasonCode>,
    /// Further facts, as text.
    pub detail: Cow<'static, str>,
    /// The user property `traceparent` of a received message, its first 256 characters.
    pub traceparent: Option<Box<str>>,
    /// The beginning of the payload, if the operator asked for it.
    pub payload: Option<Box<[u8]>>,
}

impl TraceStep {
    /// Returns a step without time, client and packet.
    pub fn new(kind: StepKind, audit: AuditTag) -> TraceStep {
        TraceStep {
            at: Instant::NEVER,
            kind,
            audit,
            client_id: Box::default(),
            packet: "",
            packet_id: None,
            qos: None,
            dup: false,
            topic: Box::default(),
            payload_bytes: 0,
            reason: None,
            detail: Cow::Borrowed(""),
            traceparent: None,
            payload: None,
        }
    }

    /// Returns a step about the PUBLISH of a message.
    pub fn of_message(kind: StepKind, audit: AuditTag, topic: &str, payload: &[u8]) -> TraceStep {
        let (topic, payload_bytes) = (cut(topic), payload.len());
        TraceStep { packet: "PUBLISH", topic, payload_bytes, ..TraceStep::new(kind, audit) }
    }

    /// Returns a step about an acknowledgement.
    pub fn of_acknowledgement(
        kind: StepKind,
        ack: AckKind,
        packet_id: PacketId,
        reason: ReasonCode,
    ) -> TraceStep {
        TraceStep {
            packet: ack.packet_type().name(),
            packet_id: Some(packet_id),
            reason: Some(reason),
            ..TraceStep::new(kind, AuditTag::NONE)
        }
    }

    /// Returns a step about a packet of either direction.
    pub fn of_packet(kind: StepKind, packet: &Packet<'_>) -> TraceStep {
        let (packet_id, topic, reason) = match packet {
            Packet::Publish(publish) => {
                let step = TraceStep::of_message(kind, AuditTag::NONE, publish.topic, publish.payload);
                let (packet_id, qos, dup) = (publish.packet_id, Some(publish.qos), publish.dup);
                return TraceStep { packet_id, qos, dup, ..step };
            }
            Packet::Puback(ack) | Packet::Pubrec(ack) | Packet::Pubrel(ack) | Packet::Pubcomp(ack) => {
                (Some(ack.packet_id), "", Some(ack.reason))
            }
            Packet::Subscribe(subscribe) => {
                let first = subscribe.filters.first().map_or("", |filter| filter.filter);
                (Some(subscribe.packet_id), first, None)
            }
            Packet::Suback(suback) => (Some(suback.packet_id), "", None),
            Packet::Unsubscribe(unsubscribe) => (Some(unsubscribe.packet_id), "", None),
            Packet::Unsuback(unsuback) => (Some(unsuback.packet_id), "", None),
            Packet::Disconnect(disconnect) => (None, "", Some(disconnect.reason)),
            Packet::Connect(_)
            | Packet::Connack(_)
            | Packet::Pingreq
            | Packet::Pingresp
            | Packet::Auth(_) => (None, "", None),
        };
        let (packet, topic) = (packet.name(), cut(topic));
        TraceStep { packet, packet_id, topic, reason, ..TraceStep::new(kind, AuditTag::NONE) }
    }

    /// Returns the step of a packet as this version has it: 3.x acknowledgements have no reason
    /// code, and neither has DISCONNECT.
    pub fn as_on_wire(self, version: ProtocolVersion) -> TraceStep {
        TraceStep { reason: self.reason.filter(|_| version.is_v5()), ..self }
    }

    /// Returns the bytes that the step takes, about.
    pub fn size(&self) -> usize {
        let texts = self.client_id.len() + self.topic.len() + self.detail.len();
        let traceparent = self.traceparent.as_ref().map_or(0, |text| text.len());
        size_of::<TraceStep>() + texts + traceparent + self.payload.as_ref().map_or(0, |bytes| bytes.len())
    }
}

/// The steps of a connection, a packet or a turn that are not collected yet. A clone leaves them
/// behind.
#[derive(Debug, Default)]
pub struct TraceSteps {
    /// The steps, in their order.
    pub steps: Vec<TraceStep>,
    /// Number of steps that had no place.
    pub lost: u64,
}

impl Clone for TraceSteps {
    fn clone(&self) -> TraceSteps {
        TraceSteps::default()
    }
}

impl TraceSteps {
    /// Adds a step. A step beyond `most` is counted as lost.
    #[cold]
    pub fn push(&mut self, step: TraceStep, most: usize) {
        if self.steps.len() < most {
            self.steps.push(step);
        } else {
            self.lost += 1;
        }
    }

    /// True if there is nothing to collect.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.lost == 0
    }
}

/// The packets of a connection that become steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NotedPackets {
    /// Packets with a traced message.
    #[default]
    OfTracedMessages,
    /// All packets: a trace follows the client.
    All,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqtt::packet::ProtocolVersion;
    use crate::session::wire::{ClientLimits, Wire};

    #[test]
    fn an_untraced_connection_notes_traced_messages_alone_and_never_more_than_the_bound() {
        let version = ProtocolVersion::V5;
        let mut wire = Wire::new(version, 1);
        wire.set_limits(&ClientLimits {
            version,
            window: 1,
            maximum_packet_size: None,
            // The connection has aliases, which are kept beside the steps.
            alias_maximum: 1,
            problem_information: true,
        });
        let id = PacketId::new(1).expect("not zero");
        let put = |wire: &mut Wire| {
            wire.put(&Packet::Pingresp).expect("a short packet");
            wire.put_acknowledgement(AckKind::Puback, id, ReasonCode::SUCCESS);
        };
        put(&mut wire);
        assert!(!wire.has_steps());
        wire.note_packets(NotedPackets::All);
        (0..OF_CONNECTION / 2 + 2).for_each(|_| put(&mut wire));
        let taken = wire.take_steps();
        assert_eq!((taken.steps.len(), taken.lost, wire.has_steps()), (OF_CONNECTION, 4, false));
    }

    #[test]
    fn a_long_topic_is_cut_between_two_characters() {
        assert_eq!(cut(&"é".repeat(300)).chars().count(), TEXT);
        assert_eq!(&*cut("short"), "short");
    }
}
