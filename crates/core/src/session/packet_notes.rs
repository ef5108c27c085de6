//! Notes about the packets that are written to a connection, for the traces of operators.
//!
//! A connection has notes only while it is traced, or while a traced message was written to it and
//! the notes are not collected yet. The shard collects them when it flushes the connection.

use crate::mqtt::audit::AuditTag;
use crate::mqtt::codec::AckKind;
use crate::mqtt::message::Message;
use crate::mqtt::packet::{Acknowledgement, Packet, PacketId, QoS, ReasonCode};
use crate::mqtt::topic::first_chars;

/// Notes that a connection keeps until they are collected.
const MOST: usize = 256;

/// Characters of a text of a client that operators are shown at most.
pub const TEXT: usize = 256;

/// One packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PacketNote {
    /// The name of the packet type in the standard.
    pub name: &'static str,
    /// The traced message in the packet, if there is one.
    pub audit: AuditTag,
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
    pub payload: usize,
    /// The reason code, if the packet has one.
    pub reason: Option<ReasonCode>,
}

/// Returns a text of a client, the first 256 characters of a longer one.
pub fn cut(text: &str) -> Box<str> {
    first_chars(text, TEXT).into()
}

impl PacketNote {
    /// Describes a packet of either direction.
    pub fn of(packet: &Packet<'_>) -> PacketNote {
        let acknowledgement = |name, packet_id, reason: ReasonCode| PacketNote {
            name,
            packet_id: Some(packet_id),
            reason: Some(reason),
            ..PacketNote::default()
        };
        let named = |name| PacketNote { name, ..PacketNote::default() };
        let numbered = |name, id, topic: &str| PacketNote {
            name,
            packet_id: Some(id),
            topic: cut(topic),
            ..PacketNote::default()
        };
        match packet {
            Packet::Connect(_) => named("CONNECT"),
            Packet::Connack(_) => named("CONNACK"),
            Packet::Publish(publish) => PacketNote {
                name: "PUBLISH",
                packet_id: publish.packet_id,
                qos: Some(publish.qos),
                dup: publish.dup,
                topic: cut(publish.topic),
                payload: publish.payload.len(),
                ..PacketNote::default()
            },
            Packet::Puback(ack) => acknowledgement("PUBACK", ack.packet_id, ack.reason),
            Packet::Pubrec(ack) => acknowledgement("PUBREC", ack.packet_id, ack.reason),
            Packet::Pubrel(ack) => acknowledgement("PUBREL", ack.packet_id, ack.reason),
            Packet::Pubcomp(ack) => acknowledgement("PUBCOMP", ack.packet_id, ack.reason),
            Packet::Subscribe(subscribe) => {
                let first = subscribe.filters.first().map_or("", |filter| filter.filter);
                numbered("SUBSCRIBE", subscribe.packet_id, first)
            }
            Packet::Suback(suback) => numbered("SUBACK", suback.packet_id, ""),
            Packet::Unsubscribe(unsubscribe) => numbered("UNSUBSCRIBE", unsubscribe.packet_id, ""),
            Packet::Unsuback(unsuback) => numbered("UNSUBACK", unsuback.packet_id, ""),
            Packet::Pingreq => named("PINGREQ"),
            Packet::Pingresp => named("PINGRESP"),
            Packet::Disconnect(disconnect) => {
                PacketNote { reason: Some(disconnect.reason), ..named("DISCONNECT") }
            }
            Packet::Auth(_) => named("AUTH"),
        }
    }

    /// Describes an acknowledgement that is written without a [`Packet`].
    pub fn of_acknowledgement(kind: AckKind, packet_id: PacketId, reason: ReasonCode) -> PacketNote {
        let name = match kind {
            AckKind::Puback => "PUBACK",
            AckKind::Pubrec => "PUBREC",
            AckKind::Pubrel => "PUBREL",
            AckKind::Pubcomp => "PUBCOMP",
        };
        PacketNote { name, packet_id: Some(packet_id), reason: Some(reason), ..PacketNote::default() }
    }
}

/// The packets of a connection that are noted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NotedPackets {
    /// Those with a traced message.
    #[default]
    OfTracedMessages,
    /// All packets: a trace follows the client.
    All,
}

/// The notes of one connection that are not collected yet.
#[derive(Debug, Default)]
pub struct PacketNotes {
    /// The packets that are noted.
    pub noted: NotedPackets,
    notes: Vec<PacketNote>,
    lost: u32,
}

impl PacketNotes {
    /// Adds a note. A note beyond 256 is counted as lost. The caller checks that the packet is one
    /// of [`Self::noted`], so that no other packet is described.
    pub fn add(&mut self, note: PacketNote) {
        debug_assert!(self.noted == NotedPackets::All || note.audit.is_some());
        if self.notes.len() < MOST {
            self.notes.push(note);
        } else {
            self.lost += 1;
        }
    }

    /// True if there is nothing to collect.
    pub fn is_empty(&self) -> bool {
        self.notes.is_empty()
    }

    /// Takes the notes, and the number of lost ones.
    pub fn take(&mut self) -> (Vec<PacketNote>, u32) {
        (std::mem::take(&mut self.notes), std::mem::take(&mut self.lost))
    }
}

/// An acknowledgement of a traced message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditedAck {
    /// The message.
    pub audit: AuditTag,
    /// PUBACK or PUBREC.
    pub kind: AckKind,
    /// The Packet Identifier of the delivery.
    pub packet_id: PacketId,
    /// The reason code.
    pub reason: ReasonCode,
}

/// Acknowledgements of traced messages in the packet that is being handled. They belong to the
/// turn: a clone leaves them behind.
#[derive(Debug, Default)]
pub struct AuditedAcks(Vec<AuditedAck>);

impl Clone for AuditedAcks {
    fn clone(&self) -> AuditedAcks {
        AuditedAcks::default()
    }
}

impl AuditedAcks {
    /// Adds an acknowledgement of a message.
    #[cold]
    pub fn push(&mut self, message: &Message, kind: AckKind, ack: &Acknowledgement<'_>) {
        let (audit, packet_id, reason) = (message.audit(), ack.packet_id, ack.reason);
        self.0.push(AuditedAck { audit, kind, packet_id, reason });
    }

    /// True if there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the acknowledgements.
    pub fn take(&mut self) -> Vec<AuditedAck> {
        std::mem::take(&mut self.0)
    }
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
            // The connection has aliases, which stand beside the notes.
            alias_maximum: 1,
            problem_information: true,
        });
        let id = PacketId::new(1).expect("not zero");
        let put = |wire: &mut Wire| {
            wire.put(&Packet::Pingresp).expect("a short packet");
            wire.put_acknowledgement(AckKind::Puback, id, ReasonCode::SUCCESS);
        };
        put(&mut wire);
        assert!(!wire.has_notes());
        wire.note_packets(NotedPackets::All);
        (0..MOST / 2 + 2).for_each(|_| put(&mut wire));
        let (taken, lost) = wire.take_notes();
        assert_eq!((taken.len(), lost, wire.has_notes()), (MOST, 4, false));
    }

    #[test]
    fn a_long_topic_is_cut_between_two_characters() {
        assert_eq!(cut(&"é".repeat(300)).chars().count(), TEXT);
        assert_eq!(&*cut("short"), "short");
    }
}
