//! PUBACK, PUBREC, PUBREL and PUBCOMP, which have the same fields.

use super::{PacketId, Properties, ReasonCode};

/// An acknowledgement of a PUBLISH exchange. The packet type is in [`super::Packet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledgement<'a> {
    /// The Packet Identifier of the PUBLISH.
    pub packet_id: PacketId,
    /// The reason code; [`ReasonCode::SUCCESS`] in 3.x and where a 5.0 packet omits it.
    pub reason: ReasonCode,
    /// Reason String and User Properties; 5.0 only.
    pub properties: Properties<'a>,
}

impl Acknowledgement<'_> {
    /// Returns an acknowledgement with [`ReasonCode::SUCCESS`] and no properties.
    pub const fn success(packet_id: PacketId) -> Acknowledgement<'static> {
        Acknowledgement { packet_id, reason: ReasonCode::SUCCESS, properties: Properties::EMPTY }
    }
}
