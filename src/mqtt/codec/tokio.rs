//! The codec in the shape of `tokio_util::codec`, for tools and tests; the broker's connections call
//! [`decode`] on their own buffers instead. A packet read this way is copied and, when looked at, decoded
//! a second time.

use super::{DecodeError, Decoded, EncodeError, decode, decode_connect, encode};
use crate::mqtt::packet::{Packet, ProtocolVersion};
use bytes::{Bytes, BytesMut};
use std::io;
use tokio_util::codec::{Decoder, Encoder};

/// Bytes of room made at once for a packet that is not whole: five bytes may claim a packet of 256 MiB.
const RESERVED_AHEAD: usize = 64 * 1024;

/// Reads and writes packets of one version.
#[derive(Clone, Debug)]
pub struct MqttCodec {
    pub version: ProtocolVersion,
    /// Bytes of a whole packet; larger ones that come in are an error.
    pub max_packet_size: u32,
    /// Whether CONNECT has yet to come, and the version with it.
    awaits_connect: bool,
}

impl MqttCodec {
    /// For a client: it knows its version.
    pub const fn new(version: ProtocolVersion, max_packet_size: u32) -> MqttCodec {
        MqttCodec { version, max_packet_size, awaits_connect: false }
    }

    /// For a server: the first packet has to be CONNECT and settles the version.
    pub const fn awaiting_connect(max_packet_size: u32) -> MqttCodec {
        MqttCodec { version: ProtocolVersion::V3_1_1, max_packet_size, awaits_connect: true }
    }
}

/// The bytes of one packet, which have been decoded once without error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedPacket {
    bytes: Bytes,
    version: ProtocolVersion,
}

impl OwnedPacket {
    /// The packet as it came.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    pub fn packet(&self) -> Packet<'_> {
        match decode(&self.bytes, self.version, u32::MAX) {
            Ok(Decoded::Packet { packet, .. }) => packet,
            other => unreachable!("bytes that were a packet decode to {other:?}"),
        }
    }
}

/// What can fail between a stream of bytes and one of packets.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Decode(#[from] DecodeError),
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

impl Decoder for MqttCodec {
    type Item = OwnedPacket;
    type Error = CodecError;

    fn decode(&mut self, src: &mut BytesMut) -> Result<Option<OwnedPacket>, CodecError> {
        let decoded = if self.awaits_connect {
            decode_connect(src, self.max_packet_size)?
        } else {
            decode(src, self.version, self.max_packet_size)?
        };
        match decoded {
            Decoded::Incomplete { needed } => {
                src.reserve(needed.saturating_sub(src.len()).min(RESERVED_AHEAD));
                Ok(None)
            }
            Decoded::Packet { packet, length } => {
                if let Packet::Connect(connect) = packet
                    && self.awaits_connect
                {
                    self.version = connect.version;
                    self.awaits_connect = false;
                }
                Ok(Some(OwnedPacket { bytes: src.split_to(length).freeze(), version: self.version }))
            }
        }
    }
}

impl Encoder<&Packet<'_>> for MqttCodec {
    type Error = CodecError;

    fn encode(&mut self, packet: &Packet<'_>, dst: &mut BytesMut) -> Result<(), CodecError> {
        let mut bytes = Vec::new();
        encode(packet, self.version, &mut bytes)?;
        dst.extend_from_slice(&bytes);
        Ok(())
    }
}
