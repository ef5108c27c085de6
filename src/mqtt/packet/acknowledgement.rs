//! PUBACK, PUBREC, PUBREL and PUBCOMP: one shape.

use super::{PacketId, Properties, ReasonCode};

/// An acknowledgement of a PUBLISH exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledgement<'a> {
    pub packet_id: PacketId,
    /// [`ReasonCode::SUCCESS`] in 3.x and where 5.0 leaves it out.
    pub reason: ReasonCode,
    /// Reason String and User Property; 5.0 only.
    pub properties: Properties<'a>,
}

impl Acknowledgement<'_> {
    pub const fn success(packet_id: PacketId) -> Acknowledgement<'static> {
        Acknowledgement { packet_id, reason: ReasonCode::SUCCESS, properties: Properties::EMPTY }
    }
}
