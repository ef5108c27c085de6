//! Bytes of control packets: decoding and encoding, both directions, every version.
//!
//! `frame` reads the fixed header, `primitive` the data types, `property` is the 5.0 property table;
//! `connect`, `publish` and `acknowledgement` hold those packets for all versions, `v3` and `v5` the bodies
//! of the rest. The codec checks what a packet says by itself. What depends on who sent it, or on what
//! came before (who may send CONNACK, empty client identifiers, alias maxima, filters), is the session's.
//!
//! Decoded packets borrow from the buffer. PUBLISH without properties, or with forwarded ones side by
//! side, and the acknowledgements are decoded without allocation.

mod acknowledgement;
mod connect;
mod error;
mod frame;
mod primitive;
pub mod property;
mod publish;
mod reason;
mod tokio;
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

pub use acknowledgement::{AckKind, put_acknowledgement};
pub use error::{DecodeError, EncodeError};
pub use frame::PacketType;
pub use publish::{LARGEST_PACKET, PublishHead};
pub use tokio::{CodecError, MqttCodec, OwnedPacket};

use crate::mqtt::packet::{Disconnect, Packet, ProtocolVersion, ReasonCode};

/// What stands at the front of the buffer.
#[derive(Clone, Debug, PartialEq)]
pub enum Decoded<'a> {
    /// Not a whole packet yet.
    Incomplete {
        /// Total bytes of the packet if its length is known already, else a lower bound, at least 2.
        needed: usize,
    },
    /// A packet, and how many bytes of the buffer it took.
    Packet { packet: Packet<'a>, length: usize },
}

/// Decodes one packet of a connection whose version is settled. `max_packet_size` counts bytes of the whole packet, and is
/// checked from the length in front, before anything is waited for.
#[inline]
pub fn decode(
    buf: &[u8],
    version: ProtocolVersion,
    max_packet_size: u32,
) -> Result<Decoded<'_>, DecodeError> {
    decode_next(buf, version, max_packet_size, "")
}

/// As [`decode`], behind a PUBLISH with the Topic Name `known`, or an empty string: a PUBLISH with the same is spared its checks,
/// which in a burst to one topic are a third of what decoding costs.
///
/// # Errors
/// As [`decode`].
pub fn decode_next<'a>(
    buf: &'a [u8],
    version: ProtocolVersion,
    max_packet_size: u32,
    known: &'a str,
) -> Result<Decoded<'a>, DecodeError> {
    let Some(&first) = buf.first() else {
        return Ok(Decoded::Incomplete { needed: 2 });
    };
    let packet_type = frame::check_first_byte(first, version)?;
    let Some(lengths) = frame::lengths(buf, max_packet_size)? else {
        return Ok(Decoded::Incomplete { needed: buf.len() + 1 });
    };
    // 5.0 [MQTT-1.5.5-1]; 3.x does not ask for the shortest form
    if !lengths.shortest && version.is_v5() {
        return Err(DecodeError::VariableByteIntegerNotShortest { field: "Remaining Length" });
    }
    let Some(body) = buf.get(lengths.header..lengths.total) else {
        return Ok(Decoded::Incomplete { needed: lengths.total });
    };
    let packet = match packet_type {
        PacketType::Publish => Packet::Publish(publish::decode(first, body, version, known)?),
        PacketType::Puback => Packet::Puback(acknowledgement::decode(AckKind::Puback, body, version)?),
        PacketType::Pubrec => Packet::Pubrec(acknowledgement::decode(AckKind::Pubrec, body, version)?),
        PacketType::Pubrel => Packet::Pubrel(acknowledgement::decode(AckKind::Pubrel, body, version)?),
        PacketType::Pubcomp => Packet::Pubcomp(acknowledgement::decode(AckKind::Pubcomp, body, version)?),
        _ => decode_rare(packet_type, body, version)?,
    };
    Ok(Decoded::Packet { packet, length: lengths.total })
}

/// The packets of which a connection sees few: kept out of the way of the others.
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

/// Decodes the first packet of a connection, which has to be CONNECT, and finds the version itself. What can be refused from
/// the first bytes is refused before the rest has come.
pub fn decode_connect(buf: &[u8], max_packet_size: u32) -> Result<Decoded<'_>, DecodeError> {
    let Some(&first) = buf.first() else {
        return Ok(Decoded::Incomplete { needed: 2 });
    };
    // 3.1.1 [MQTT-3.1.0-1], 5.0 [MQTT-3.1.0-1]
    if first >> 4 != PacketType::Connect as u8 {
        return Err(DecodeError::FirstPacketNotConnect { packet_type: first >> 4 });
    }
    frame::check_first_byte(first, ProtocolVersion::V5)?;
    let Some(lengths) = frame::lengths(buf, max_packet_size)? else {
        return Ok(Decoded::Incomplete { needed: buf.len() + 1 });
    };
    let here = lengths.total.min(buf.len());
    let version = connect::version(buf.get(lengths.header..here).unwrap_or(&[]))?;
    // 5.0 [MQTT-1.5.5-1]
    if !lengths.shortest && version.is_some_and(ProtocolVersion::is_v5) {
        return Err(DecodeError::VariableByteIntegerNotShortest { field: "Remaining Length" });
    }
    let Some(body) = buf.get(lengths.header..lengths.total) else {
        return Ok(Decoded::Incomplete { needed: lengths.total });
    };
    let packet = Packet::Connect(Box::new(connect::decode(body)?));
    Ok(Decoded::Packet { packet, length: lengths.total })
}

/// The version of the CONNECT at the front of `buf`, however broken the rest of it; `None` where its bytes do
/// not say. For whoever answers a [`DecodeError`] of [`decode_connect`]: 5.0 may be told its reason in a
/// CONNACK, 3.x is closed without one.
// 5.0 [MQTT-3.1.4-1], 3.1.1 [MQTT-3.1.4-1]
pub fn connect_version(buf: &[u8]) -> Option<ProtocolVersion> {
    let first = *buf.first()?;
    let lengths = frame::lengths(buf, u32::MAX).ok()??;
    if first != PacketType::Connect.first_byte() {
        return None;
    }
    connect::version(buf.get(lengths.header..)?).ok()?
}

/// Appends the packet. A CONNECT is encoded in its own version, whatever `version` is; the others leave out what `version` does
/// not have. On an error nothing has been appended.
pub fn encode(packet: &Packet<'_>, version: ProtocolVersion, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let v5 = version.is_v5();
    match packet {
        Packet::Publish(publish) => publish::encode(publish, version, out),
        Packet::Puback(ack) => acknowledgement::encode(AckKind::Puback, ack, version, out),
        Packet::Pubrec(ack) => acknowledgement::encode(AckKind::Pubrec, ack, version, out),
        Packet::Pubrel(ack) => acknowledgement::encode(AckKind::Pubrel, ack, version, out),
        Packet::Pubcomp(ack) => acknowledgement::encode(AckKind::Pubcomp, ack, version, out),
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
