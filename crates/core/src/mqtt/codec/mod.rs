//! Control packets as bytes: decoding and encoding, in both directions, for every version.
//!
//! `frame` reads the fixed header, `primitive` the data types, and `property` the properties of
//! 5.0. `connect`, `publish` and `acknowledgement` have those packets for all versions, and `relay` a
//! PUBLISH that passes on. `v3` and `v5` have the bodies of the other packets.
//!
//! The codec checks the rules that one packet can break by itself. The session checks everything
//! that depends on the sender or on earlier packets: who may send CONNACK, empty client
//! identifiers, the alias maximum, and the form of Topic Filters.
//!
//! Decoded packets borrow from the buffer. Decoding allocates nothing for acknowledgements and for
//! a PUBLISH without properties, or with all its forwarded properties side by side.

mod acknowledgement;
mod connect;
mod error;
mod frame;
mod packet_type;
mod primitive;
pub mod property;
mod property_set;
mod publish;
mod publish_front;
mod reason;
mod relay;
mod v3;
mod v5;

#[cfg(test)]
mod cases;
#[cfg(test)]
mod property_tests;
#[cfg(test)]
mod round_trip;
#[cfg(test)]
mod tests;

pub use acknowledgement::{AckKind, encode_acknowledgement, put_acknowledgement, short_acknowledgement};
pub use error::{DecodeError, EncodeError};
pub use packet_type::PacketType;
pub use publish::{LARGEST_PACKET, PublishHead};
pub use publish_front::{PublishFront, publish_front};
pub use relay::RelayedPublish;

use crate::mqtt::packet::{Disconnect, Packet, ProtocolVersion, ReasonCode};

/// The result of decoding the front of a buffer.
#[derive(Clone, Debug, PartialEq)]
pub enum Decoded<'a> {
    /// The packet is not complete.
    Incomplete {
        /// The size of the packet in bytes if its length is known already; else a lower bound, at
        /// least 2.
        needed: usize,
    },
    /// A complete packet.
    Packet {
        /// The packet, which borrows from the buffer.
        packet: Packet<'a>,
        /// The bytes of the buffer that the packet takes.
        length: usize,
    },
}

/// Decodes one packet at the front of `buf`, on a connection with a known version.
///
/// `max_packet_size` bounds the bytes of the whole packet. The length in the fixed header is
/// checked first, so a packet that is too large is refused before its remaining bytes have come.
///
/// # Errors
/// Returns the first rule of the standard that the packet breaks, or
/// [`DecodeError::PacketTooLarge`].
#[inline(never)]
pub fn decode(
    buf: &[u8],
    version: ProtocolVersion,
    max_packet_size: u32,
) -> Result<Decoded<'_>, DecodeError> {
    decode_next(buf, version, max_packet_size, "")
}

/// As [`decode`], for a caller that knows the Topic Name of the PUBLISH before; `known` may be
/// empty.
///
/// `known` must be a checked Topic Name. A PUBLISH with the same topic skips the checks of the
/// topic, which are a third of the decoding cost in a burst to one topic.
///
/// # Errors
/// As [`decode`].
// Inlined into the loop over the packets of a connection: a packet is large, and would be copied
// out of a call. Every other caller takes `decode`.
#[inline(always)]
pub fn decode_next<'a>(
    buf: &'a [u8],
    version: ProtocolVersion,
    max_packet_size: u32,
    known: &'a str,
) -> Result<Decoded<'a>, DecodeError> {
    let Some(fixed) = frame::fixed_header(buf, version, max_packet_size)? else {
        return Ok(incomplete_header(buf));
    };
    // 5.0 [MQTT-1.5.5-1]; 3.x does not ask for the shortest form
    if !fixed.shortest && version.is_v5() {
        return Err(DecodeError::VariableByteIntegerNotShortest { field: "Remaining Length" });
    }
    let Some(body) = buf.get(fixed.header..fixed.total) else {
        return Ok(Decoded::Incomplete { needed: fixed.total });
    };
    // Built in each arm: a packet is large, and would be copied behind the match.
    let whole = |packet| Ok(Decoded::Packet { packet, length: fixed.total });
    let acknowledgement = |kind| acknowledgement::decode(kind, body, version);
    match fixed.packet_type {
        PacketType::Publish => whole(Packet::Publish(publish::decode(fixed.first, body, version, known)?)),
        PacketType::Puback => whole(Packet::Puback(acknowledgement(AckKind::Puback)?)),
        PacketType::Pubrec => whole(Packet::Pubrec(acknowledgement(AckKind::Pubrec)?)),
        PacketType::Pubrel => whole(Packet::Pubrel(acknowledgement(AckKind::Pubrel)?)),
        PacketType::Pubcomp => whole(Packet::Pubcomp(acknowledgement(AckKind::Pubcomp)?)),
        packet_type => whole(decode_rare(packet_type, body, version)?),
    }
}

/// Returns the type and the size in bytes of the packet at the front of `buf`. Returns `None` if
/// the fixed header is not complete, or breaks a rule that [`decode`] reports. The body may not
/// have come, and is not checked.
pub fn front(buf: &[u8], version: ProtocolVersion, max_packet_size: u32) -> Option<(PacketType, usize)> {
    let fixed = frame::fixed_header(buf, version, max_packet_size).ok()??;
    Some((fixed.packet_type, fixed.total))
}

/// Decodes the packets that are rare on a connection. Not inlined, to keep them away from the hot
/// path.
#[inline(never)]
fn decode_rare(
    packet_type: PacketType,
    body: &[u8],
    version: ProtocolVersion,
) -> Result<Packet<'_>, DecodeError> {
    let v5 = version.is_v5();
    Ok(match packet_type {
        PacketType::Connect => Packet::Connect(Box::new(connect::decode(body)?)),
        PacketType::Connack if v5 => Packet::Connack(Box::new(v5::connack(body)?)),
        PacketType::Connack => Packet::Connack(Box::new(v3::connack(body, version)?)),
        PacketType::Subscribe => {
            Packet::Subscribe(if v5 { v5::subscribe(body)? } else { v3::subscribe(body)? })
        }
        PacketType::Suback => Packet::Suback(if v5 { v5::suback(body)? } else { v3::suback(body)? }),
        PacketType::Unsubscribe => {
            Packet::Unsubscribe(if v5 { v5::unsubscribe(body)? } else { v3::unsubscribe(body)? })
        }
        PacketType::Unsuback => Packet::Unsuback(if v5 { v5::unsuback(body)? } else { v3::unsuback(body)? }),
        PacketType::Disconnect if v5 => Packet::Disconnect(v5::disconnect(body)?),
        PacketType::Auth => Packet::Auth(v5::auth(body)?),
        PacketType::Pingresp => bodiless(packet_type, body, Packet::Pingresp)?,
        PacketType::Disconnect => bodiless(
            packet_type,
            body,
            Packet::Disconnect(Disconnect::new(ReasonCode::NORMAL_DISCONNECTION)),
        )?,
        _ => bodiless(packet_type, body, Packet::Pingreq)?,
    })
}

fn bodiless<'a>(packet: PacketType, body: &[u8], value: Packet<'a>) -> Result<Packet<'a>, DecodeError> {
    match body.len() {
        0 => Ok(value),
        length => Err(DecodeError::RemainingLength { packet, length, expected: 0 }),
    }
}

/// Returns the result for a packet whose fixed header is not complete. A fixed header has at least
/// two bytes.
fn incomplete_header(buf: &[u8]) -> Decoded<'_> {
    Decoded::Incomplete { needed: buf.len().max(1) + 1 }
}

/// Decodes the first packet of a connection, which must be a CONNECT, and detects its version.
///
/// Rules that the first bytes break are reported before the rest of the packet has come.
///
/// # Errors
/// As [`decode`]; also [`DecodeError::FirstPacketNotConnect`], and
/// [`DecodeError::UnsupportedProtocolVersion`] or [`DecodeError::LaterProtocolVersion`].
pub fn decode_connect(buf: &[u8], max_packet_size: u32) -> Result<Decoded<'_>, DecodeError> {
    // 3.1.1 [MQTT-3.1.0-1], 5.0 [MQTT-3.1.0-1]
    if let Some(packet_type) = buf.first().map(|first| first >> 4)
        && packet_type != PacketType::Connect as u8
    {
        return Err(DecodeError::FirstPacketNotConnect { packet_type });
    }
    let Some(fixed) = frame::fixed_header(buf, ProtocolVersion::V5, max_packet_size)? else {
        return Ok(incomplete_header(buf));
    };
    let here = fixed.total.min(buf.len());
    let version = connect::version(buf.get(fixed.header..here).unwrap_or(&[]))?;
    // 5.0 [MQTT-1.5.5-1]
    if !fixed.shortest && version.is_some_and(ProtocolVersion::is_v5) {
        return Err(DecodeError::VariableByteIntegerNotShortest { field: "Remaining Length" });
    }
    let Some(body) = buf.get(fixed.header..fixed.total) else {
        return Ok(Decoded::Incomplete { needed: fixed.total });
    };
    let packet = Packet::Connect(Box::new(connect::decode(body)?));
    Ok(Decoded::Packet { packet, length: fixed.total })
}

/// Appends a packet to `out`, without the fields that `version` does not have.
///
/// A CONNECT is encoded in its own version; `version` is ignored. On an error nothing is appended.
///
/// # Errors
/// Returns the limit of the protocol that the packet exceeds, or its field that `version` cannot
/// encode.
pub fn encode(packet: &Packet<'_>, version: ProtocolVersion, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let v5 = version.is_v5();
    match packet {
        Packet::Publish(publish) => publish::encode(publish, version, out),
        Packet::Puback(ack) => acknowledgement::encode_acknowledgement(AckKind::Puback, ack, version, out),
        Packet::Pubrec(ack) => acknowledgement::encode_acknowledgement(AckKind::Pubrec, ack, version, out),
        Packet::Pubrel(ack) => acknowledgement::encode_acknowledgement(AckKind::Pubrel, ack, version, out),
        Packet::Pubcomp(ack) => acknowledgement::encode_acknowledgement(AckKind::Pubcomp, ack, version, out),
        Packet::Connect(connect) => connect::encode(connect, out),
        Packet::Connack(connack) if v5 => v5::put_connack(connack, out),
        Packet::Connack(connack) => v3::put_connack(connack, version, out),
        Packet::Subscribe(subscribe) if v5 => v5::put_subscribe(subscribe, out),
        Packet::Subscribe(subscribe) => v3::put_subscribe(subscribe, out),
        Packet::Suback(suback) if v5 => v5::put_suback(suback, out),
        Packet::Suback(suback) => v3::put_suback(suback, out),
        Packet::Unsubscribe(unsubscribe) if v5 => v5::put_unsubscribe(unsubscribe, out),
        Packet::Unsubscribe(unsubscribe) => v3::put_unsubscribe(unsubscribe, out),
        Packet::Unsuback(unsuback) if v5 => v5::put_unsuback(unsuback, out),
        Packet::Unsuback(unsuback) => v3::put_unsuback(unsuback, out),
        Packet::Pingreq => put_bodiless(PacketType::Pingreq, out),
        Packet::Pingresp => put_bodiless(PacketType::Pingresp, out),
        Packet::Disconnect(disconnect) if v5 => v5::put_disconnect(disconnect, out),
        Packet::Disconnect(_) => put_bodiless(PacketType::Disconnect, out),
        Packet::Auth(auth) if v5 => v5::put_auth(auth, out),
        Packet::Auth(_) => Err(EncodeError::NotInVersion { packet: PacketType::Auth, version }),
    }
}

fn put_bodiless(packet: PacketType, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    out.extend_from_slice(&[packet.first_byte(), 0]);
    Ok(())
}
