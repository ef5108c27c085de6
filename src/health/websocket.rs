//! A WebSocket client (RFC 6455) that is just enough for the check: one small frame for each
//! packet.

use crate::framed::{CodecError, MqttCodec, OwnedPacket};
use crate::mqtt::packet::Packet;
use crate::mqtt::websocket::{BINARY, CLOSE, CONTINUATION, CONTROL_MAX as LONGEST, FIN, MASKED};
use bytes::{Buf, BytesMut};
use std::io;
use tokio_util::codec::{Decoder, Encoder};

/// A masking key protects proxies from bytes that an attacker chose. The packets of the check are
/// fixed, so the key may be, too.
const MASK: [u8; 4] = [0x37, 0xFA, 0x21, 0x3D];

/// MQTT packets in the frames of a WebSocket.
#[derive(Debug)]
pub struct WebSocketCodec {
    packets: MqttCodec,
    /// The payload of the frames that have come, as far as it is not decoded.
    payload: BytesMut,
}

impl WebSocketCodec {
    /// Returns the codec of packets behind an upgrade.
    pub fn new(packets: MqttCodec) -> WebSocketCodec {
        WebSocketCodec { packets, payload: BytesMut::new() }
    }
}

impl Decoder for WebSocketCodec {
    type Item = OwnedPacket;
    type Error = CodecError;

    fn decode(&mut self, frames: &mut BytesMut) -> Result<Option<OwnedPacket>, CodecError> {
        loop {
            if let Some(packet) = self.packets.decode(&mut self.payload)? {
                return Ok(Some(packet));
            }
            match frames[..] {
                // A binary frame or a part of one, without a mask.
                [first, length, ..]
                    if matches!(first & !FIN, BINARY | CONTINUATION) && usize::from(length) <= LONGEST =>
                {
                    if frames.len() < 2 + usize::from(length) {
                        return Ok(None);
                    }
                    frames.advance(2);
                    self.payload.extend_from_slice(&frames.split_to(usize::from(length)));
                }
                [first, _, ..] if first == FIN | CLOSE => {
                    return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
                }
                [first, second, ..] => {
                    let text = format!("unexpected WebSocket frame {first:02x} {second:02x}");
                    return Err(io::Error::other(text).into());
                }
                _ => return Ok(None),
            }
        }
    }

    fn decode_eof(&mut self, frames: &mut BytesMut) -> Result<Option<OwnedPacket>, CodecError> {
        match self.decode(frames)? {
            None if frames.is_empty() => self.packets.decode_eof(&mut self.payload),
            None => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            packet => Ok(packet),
        }
    }
}

impl Encoder<&Packet<'_>> for WebSocketCodec {
    type Error = CodecError;

    fn encode(&mut self, packet: &Packet<'_>, frames: &mut BytesMut) -> Result<(), CodecError> {
        let mut payload = BytesMut::new();
        self.packets.encode(packet, &mut payload)?;
        for part in payload.chunks(LONGEST) {
            frames.extend_from_slice(&[FIN | BINARY, MASKED | part.len() as u8]);
            frames.extend_from_slice(&MASK);
            frames.extend(part.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqtt::packet::ProtocolVersion;

    fn codec() -> WebSocketCodec {
        WebSocketCodec::new(MqttCodec::new(ProtocolVersion::V3_1_1, 64))
    }

    #[test]
    fn packets_are_read_however_the_frames_and_the_reads_split_them() {
        let (mut codec, mut frames, mut names) = (codec(), BytesMut::new(), Vec::new());
        for &byte in b"\x02\x03\x20\x02\0\x80\x02\0\xD0\x82\x00\x82\x01\0" {
            frames.extend_from_slice(&[byte]);
            while let Some(packet) = codec.decode(&mut frames).expect("legal") {
                names.push(packet.packet().name());
            }
        }
        assert_eq!((names, frames.len()), (vec!["CONNACK", "PINGRESP"], 0));
    }

    #[test]
    fn a_frame_of_another_kind_and_a_close_are_errors() {
        for (frames, text) in
            [(&b"\x81\x01a"[..], "unexpected WebSocket frame 81 01"), (b"\x88\0", "unexpected end")]
        {
            let error = codec().decode(&mut BytesMut::from(frames)).expect_err("no packet").to_string();
            assert!(error.starts_with(text), "{error}");
        }
    }

    #[test]
    fn a_packet_is_one_masked_frame() {
        let mut frames = BytesMut::new();
        codec().encode(&Packet::Pingreq, &mut frames).expect("it fits");
        assert_eq!(frames[..], [&[0x82, 0x82][..], &MASK, &[0xC0 ^ MASK[0], MASK[1]]].concat());
    }
}
