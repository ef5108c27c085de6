//! A PUBLISH that passes from one connection to another with another topic and more properties.
//! This is the hot path of bridges. Its packets are written in the pieces of which they are made, so
//! nothing is put together first.

use super::packet_type::PacketType;
use super::primitive;
use crate::mqtt::packet::{PacketId, ProtocolVersion, QoS};

/// Bytes of a fixed header and the length of the topic, at most.
const HEADER: usize = 7;

/// Bytes of the Packet Identifier, the Property Length and the Message Expiry Interval, at most.
const MIDDLE: usize = 11;

/// A PUBLISH on its way.
///
/// The caller keeps to the bounds of the protocol, because release builds do not check them: the
/// topic has 1 to 65,535 bytes, and the packet is within the limit of the receiver.
#[derive(Clone, Copy, Debug)]
pub struct RelayedPublish<'a> {
    /// The DUP flag.
    pub dup: bool,
    /// The QoS.
    pub qos: QoS,
    /// The RETAIN flag.
    pub retain: bool,
    /// The Topic Name: its new beginning, and its rest.
    pub topic: [&'a str; 2],
    /// The Packet Identifier; present exactly when the QoS is above 0.
    pub packet_id: Option<PacketId>,
    /// The Message Expiry Interval in seconds; written in 5.0 only.
    pub message_expiry: Option<u32>,
    /// Encoded properties, in their order; written in 5.0 only.
    pub properties: [&'a [u8]; 3],
    /// The payload.
    pub payload: &'a [u8],
}

impl RelayedPublish<'_> {
    /// Returns the bytes of the whole packet.
    pub fn packet_len(&self, version: ProtocolVersion) -> usize {
        let remaining = self.remaining(version);
        1 + primitive::variable_byte_integer_len(remaining) + remaining
    }

    /// Appends the packet. Reserves memory once.
    #[inline]
    pub fn put(&self, version: ProtocolVersion, out: &mut Vec<u8>) {
        debug_assert_eq!(self.packet_id.is_some(), self.qos != QoS::AtMostOnce);
        let remaining = self.remaining(version);
        out.reserve(HEADER + remaining);
        let flags = u8::from(self.dup) << 3 | self.qos.bits() << 1 | u8::from(self.retain);
        let mut header = Piece::<HEADER>::default();
        header.push(&[PacketType::Publish.first_byte() | flags]);
        header.push_variable_byte_integer(remaining);
        header.push(&(self.topic_len() as u16).to_be_bytes());
        out.extend_from_slice(header.bytes());
        for part in self.topic {
            put_some(part.as_bytes(), out);
        }
        let mut middle = Piece::<MIDDLE>::default();
        if let Some(id) = self.packet_id {
            middle.push(&id.get().to_be_bytes());
        }
        if version.is_v5() {
            middle.push_variable_byte_integer(self.properties_len());
            if let Some(seconds) = self.message_expiry {
                let [a, b, c, d] = seconds.to_be_bytes();
                middle.push(&[0x02, a, b, c, d]);
            }
        }
        out.extend_from_slice(middle.bytes());
        if version.is_v5() {
            for part in self.properties {
                put_some(part, out);
            }
        }
        out.extend_from_slice(self.payload);
    }

    #[inline]
    fn topic_len(&self) -> usize {
        let [beginning, rest] = self.topic;
        beginning.len() + rest.len()
    }

    #[inline]
    fn properties_len(&self) -> usize {
        let expiry = if self.message_expiry.is_some() { 5 } else { 0 };
        let [a, b, c] = self.properties;
        expiry + a.len() + b.len() + c.len()
    }

    /// Returns the Remaining Length.
    #[inline]
    fn remaining(&self, version: ProtocolVersion) -> usize {
        let id = if self.packet_id.is_some() { 2 } else { 0 };
        let common = 2 + self.topic_len() + id + self.payload.len();
        if !version.is_v5() {
            return common;
        }
        let properties = self.properties_len();
        common + primitive::variable_byte_integer_len(properties) + properties
    }
}

/// A few bytes that are collected before they are appended in one step.
struct Piece<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Default for Piece<N> {
    fn default() -> Self {
        Piece { bytes: [0; N], len: 0 }
    }
}

impl<const N: usize> Piece<N> {
    #[inline]
    fn push<const M: usize>(&mut self, bytes: &[u8; M]) {
        if let Some(room) = self.bytes.get_mut(self.len..self.len + M) {
            room.copy_from_slice(bytes);
            self.len += M;
        }
    }

    #[inline]
    fn push_variable_byte_integer(&mut self, mut value: usize) {
        while value >= 0x80 {
            self.push(&[value as u8 | 0x80]);
            value >>= 7;
        }
        self.push(&[value as u8]);
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

#[inline]
fn put_some(bytes: &[u8], out: &mut Vec<u8>) {
    if !bytes.is_empty() {
        out.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqtt::codec::encode;
    use crate::mqtt::packet::{Packet, Publish, PublishProperties};
    use std::borrow::Cow;

    #[test]
    fn the_pieces_make_the_packet_that_the_encoder_writes() {
        let (content_type, name) = (&b"\x03\0\x01t"[..], &b"\x26\0\x01a\0\x01b"[..]);
        let long = [name; 40].concat();
        for version in [ProtocolVersion::V3_1_1, ProtocolVersion::V5] {
            for (qos, id) in [(QoS::AtMostOnce, None), (QoS::ExactlyOnce, PacketId::new(0x1234))] {
                for (expiry, length) in
                    [(None, 0), (Some(7), 100), (None, 127), (None, 20_000), (Some(1), 3 << 20)]
                {
                    for properties in [[&[][..]; 3], [content_type, &[], name], [content_type, &long, name]] {
                        let payload = vec![b'p'; length];
                        let publish = Publish {
                            dup: id.is_some(),
                            qos,
                            retain: true,
                            topic: "plant/a/b",
                            packet_id: id,
                            properties: PublishProperties {
                                message_expiry: expiry,
                                forwarded: Cow::Owned(properties.concat()),
                                ..PublishProperties::default()
                            },
                            payload: &payload,
                        };
                        let (mut expected, mut found) = (b"before".to_vec(), b"before".to_vec());
                        encode(&Packet::Publish(publish), version, &mut expected).expect("within all bounds");
                        let relayed = RelayedPublish {
                            dup: id.is_some(),
                            qos,
                            retain: true,
                            topic: ["plant/", "a/b"],
                            packet_id: id,
                            message_expiry: expiry,
                            properties,
                            payload: &payload,
                        };
                        relayed.put(version, &mut found);
                        assert!(found == expected, "{version:?} {id:?} {expiry:?} {length}");
                        assert_eq!(found.len(), 6 + relayed.packet_len(version));
                    }
                }
            }
        }
    }
}
