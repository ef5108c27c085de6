//! The codec as a `tokio_util::codec`, for readers of MQTT from an async stream: the check of
//! `homing health`, and programs that use this library.
//!
//! The broker's connections use [`decode`] instead, on a buffer that all connections of a thread
//! share, so that no packet is copied. A packet read here is copied once, and decoded again at each
//! call of [`OwnedPacket::packet`].

use crate::mqtt::codec::{DecodeError, Decoded, EncodeError, decode, decode_connect, encode};
use crate::mqtt::packet::{Packet, ProtocolVersion};
use crate::mqtt::websocket::{UpgradeProgress, UpgradeResponse, upgrade_request};
use bytes::{Bytes, BytesMut};
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_util::codec::{Decoder, Encoder};

/// Bytes of room made at once for an incomplete packet. Five bytes may claim a packet of 256 MiB.
const RESERVED_AHEAD: usize = 64 * 1024;

/// Asks the server `host` for the WebSocket at `path`. Reads 8 KiB at most, and no byte of the first
/// frame. The caller bounds the time.
///
/// # Errors
/// The stream fails, or the response is not the upgrade of a WebSocket.
pub async fn upgrade_to_websocket(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    host: &str,
    path: &str,
) -> io::Result<()> {
    stream.write_all(upgrade_request(host, path).as_bytes()).await?;
    stream.flush().await?;
    let mut response = UpgradeResponse::default();
    while response.take(stream.read_u8().await?, path).map_err(io::Error::other)?
        == UpgradeProgress::Incomplete
    {}
    Ok(())
}

/// Reads and writes the packets of one connection.
#[derive(Clone, Debug)]
pub struct MqttCodec {
    version: ProtocolVersion,
    max_packet_size: u32,
    /// True until CONNECT came, which settles the version.
    awaits_connect: bool,
}

impl MqttCodec {
    /// Returns the codec of a client, which knows its version. A received packet of more than
    /// `max_packet_size` bytes is an error.
    pub const fn new(version: ProtocolVersion, max_packet_size: u32) -> MqttCodec {
        MqttCodec { version, max_packet_size, awaits_connect: false }
    }

    /// Returns the codec of a server. The first packet has to be CONNECT, and settles the version.
    pub const fn awaiting_connect(max_packet_size: u32) -> MqttCodec {
        MqttCodec { version: ProtocolVersion::V3_1_1, max_packet_size, awaits_connect: true }
    }

    /// Returns the version of the connection; 3.1.1 until CONNECT came.
    pub const fn version(&self) -> ProtocolVersion {
        self.version
    }
}

/// The bytes of one packet, which have been decoded once without error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedPacket {
    bytes: Bytes,
    version: ProtocolVersion,
}

impl OwnedPacket {
    /// Returns the whole received packet, with its fixed header.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Decodes the packet again. The packet borrows from these bytes.
    pub fn packet(&self) -> Packet<'_> {
        match decode(&self.bytes, self.version, u32::MAX) {
            Ok(Decoded::Packet { packet, .. }) => packet,
            other => unreachable!("bytes that were a packet decode to {other:?}"),
        }
    }
}

/// The reason why a stream of bytes is no stream of packets.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// The stream failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A received packet breaks a rule.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// A packet to be sent cannot be encoded.
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

    fn decode_eof(&mut self, src: &mut BytesMut) -> Result<Option<OwnedPacket>, CodecError> {
        match self.decode(src)? {
            None if !src.is_empty() => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            packet => Ok(packet),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqtt::packet::{Acknowledgement, PacketId};

    #[test]
    fn packets_are_read_however_they_are_split() {
        let mut codec = MqttCodec::awaiting_connect(1_024);
        let mut buffer = BytesMut::new();
        let mut names = Vec::new();
        for &byte in b"\x10\x0E\0\x04MQTT\x05\x02\0\x3C\0\0\x01a\xC0\0\x30\x06\0\x01t\0hi" {
            buffer.extend_from_slice(&[byte]);
            while let Some(packet) = codec.decode(&mut buffer).expect("legal") {
                names.push(packet.packet().name());
            }
        }
        assert_eq!(names, ["CONNECT", "PINGREQ", "PUBLISH"]);
        assert_eq!(codec.version(), ProtocolVersion::V5);
        let ack = Packet::Puback(Acknowledgement::success(PacketId::new(1).expect("not 0")));
        codec.encode(&ack, &mut buffer).expect("encodes");
        assert_eq!(buffer[..], *b"\x40\x02\0\x01");
    }

    #[test]
    fn a_claimed_length_alone_reserves_a_bounded_room() {
        let mut codec = MqttCodec::new(ProtocolVersion::V5, u32::MAX);
        let mut buffer = BytesMut::from(&b"\x30\xFF\xFF\xFF\x7F"[..]);
        assert_eq!(codec.decode(&mut buffer).expect("not whole yet"), None);
        assert!(buffer.capacity() <= 2 * RESERVED_AHEAD);
    }
}
