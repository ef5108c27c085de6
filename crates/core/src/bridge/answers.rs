//! Acknowledgements: those that pass, and those that the link itself gives the shard.

use super::link::Output;
use super::path::Way;
use crate::mqtt::codec::{AckKind, RelayedPublish, put_acknowledgement};
use crate::mqtt::packet::{Acknowledgement, Packet, PacketId, ProtocolVersion, Publish, QoS, ReasonCode};

/// Returns an acknowledgement with its kind; `None` for every other packet.
#[inline]
pub(super) fn acknowledgement_of<'a, 'p>(
    packet: &'a Packet<'p>,
) -> Option<(AckKind, &'a Acknowledgement<'p>)> {
    match packet {
        Packet::Puback(ack) => Some((AckKind::Puback, ack)),
        Packet::Pubrec(ack) => Some((AckKind::Pubrec, ack)),
        Packet::Pubrel(ack) => Some((AckKind::Pubrel, ack)),
        Packet::Pubcomp(ack) => Some((AckKind::Pubcomp, ack)),
        _ => None,
    }
}

/// A topic that the shard refuses: it is reserved for the broker. A message that does not come in is
/// passed on under this name, without its payload, so that its acknowledgement keeps its place
/// among the others. 5.0 [MQTT-4.6.0-2], [MQTT-4.6.0-3]
pub(super) const REFUSED: [&str; 2] = ["$SYS/bridge/refused", ""];

/// Passes a message of the other broker on under [`REFUSED`]. QoS 0 has no acknowledgement.
pub(super) fn put_refused(dup: bool, qos: QoS, packet_id: Option<PacketId>, out: &mut Output) {
    if qos == QoS::AtMostOnce {
        return;
    }
    let (message_expiry, properties) = (None, Default::default());
    let retain = false;
    RelayedPublish { dup, qos, retain, topic: REFUSED, packet_id, message_expiry, properties, payload: &[] }
        .put(ProtocolVersion::V5, &mut out.here);
}

/// Tells the shard that a message cannot pass. The negative acknowledgement is counted, and makes a
/// dead letter where `redelivery.negative_ack` says so.
pub(super) fn refuse_here(publish: &Publish<'_>, out: &mut Output) {
    if let Some(id) = publish.packet_id {
        accept_here(publish.qos, id, ReasonCode::TOPIC_NAME_INVALID, out);
    }
}

/// Answers for a message that does not leave because of its way.
pub(super) fn turn_back(publish: &Publish<'_>, way: Way, out: &mut Output) {
    match publish.packet_id {
        Some(id) if way == Way::Back => accept_here(publish.qos, id, ReasonCode::SUCCESS, out),
        _ => refuse_here(publish, out),
    }
}

/// Acknowledges a message of the shard in place of the other broker.
pub(super) fn accept_here(qos: QoS, packet_id: PacketId, reason: ReasonCode, out: &mut Output) {
    let kind = if qos == QoS::ExactlyOnce { AckKind::Pubrec } else { AckKind::Puback };
    answer_here(kind, packet_id, reason, out);
}

pub(super) fn answer_here(kind: AckKind, packet_id: PacketId, reason: ReasonCode, out: &mut Output) {
    put_acknowledgement(&mut out.here, kind, packet_id, reason, ProtocolVersion::V5);
}
