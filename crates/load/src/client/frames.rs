//! WebSocket frames (RFC 6455 section 5), client side, as a stream of bytes.
//!
//! The payload passes on as it arrives, so a large frame takes no memory. Frames of the client have
//! a mask of zeros. A mask protects proxies from bytes that an attacker chose, and a load test has
//! none. The broker has the same work with every mask.

use bytes::{Buf, BytesMut};
use homing_core::mqtt::websocket::{BINARY, CLOSE, CONTINUATION, CONTROL_MAX, MASKED, PING, PONG, header};
use std::io;

const NO_MASK: [u8; 4] = [0; 4];

/// Returns one binary frame.
pub(super) fn binary(payload: &[u8], frame: &mut Vec<u8>) {
    write(BINARY, payload, frame);
}

/// Returns the reply to a ping.
pub(super) fn pong(payload: &[u8], frame: &mut Vec<u8>) {
    write(PONG, payload, frame);
}

/// Returns a close frame without a code.
pub(super) fn close() -> Vec<u8> {
    let mut frame = Vec::new();
    write(CLOSE, &[], &mut frame);
    frame
}

/// Replaces the content of `frame` by one frame.
fn write(opcode: u8, payload: &[u8], frame: &mut Vec<u8>) {
    let (mut header, length) = header(opcode, payload.len());
    header[1] |= MASKED;
    frame.clear();
    frame.extend_from_slice(header.get(..length).unwrap_or_default());
    frame.extend_from_slice(&NO_MASK);
    frame.extend_from_slice(payload);
}

/// The next thing in a stream of frames.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BrokerFrame {
    /// MQTT bytes, perhaps a part of a frame.
    Data(BytesMut),
    Ping(BytesMut),
    Close,
}

/// The frames of the broker.
#[derive(Debug, Default)]
pub(super) struct FrameReader {
    /// Bytes of the current binary frame that are still to come.
    left: u64,
}

impl FrameReader {
    /// Takes the next thing out of `input`. Returns `None` if more bytes must come first.
    ///
    /// # Errors
    /// A frame that a broker must not send.
    pub(super) fn next(&mut self, input: &mut BytesMut) -> io::Result<Option<BrokerFrame>> {
        loop {
            if self.left > 0 {
                let here = usize::try_from(self.left).unwrap_or(usize::MAX).min(input.len());
                self.left -= here as u64;
                return Ok((here > 0).then(|| BrokerFrame::Data(input.split_to(here))));
            }
            let Some((header, length)) = lengths(input) else { return Ok(None) };
            let [first, second, ..] = input[..] else { return Ok(None) };
            match first & 0x0F {
                CONTINUATION | BINARY if second & MASKED == 0 => {
                    input.advance(header);
                    self.left = length;
                }
                CLOSE => return Ok(Some(BrokerFrame::Close)),
                PING | PONG if length <= CONTROL_MAX as u64 => {
                    if input.len() < header + length as usize {
                        return Ok(None);
                    }
                    input.advance(header);
                    let payload = input.split_to(length as usize);
                    if first & 0x0F == PING {
                        return Ok(Some(BrokerFrame::Ping(payload)));
                    }
                }
                _ => {
                    return Err(io::Error::other(format!(
                        "unexpected WebSocket frame {first:02x} {second:02x}"
                    )));
                }
            }
        }
    }
}

/// Returns the lengths of the header and of the payload, once the header is there.
fn lengths(input: &[u8]) -> Option<(usize, u64)> {
    match input.get(1)? & !MASKED {
        126 => Some((4, u64::from(u16::from_be_bytes(input.get(2..4)?.try_into().ok()?)))),
        127 => Some((10, u64::from_be_bytes(input.get(2..10)?.try_into().ok()?))),
        short => Some((2, u64::from(short))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame of the broker: without a mask.
    fn sent(opcode: u8, payload: &[u8]) -> Vec<u8> {
        let (header, length) = header(opcode, payload.len());
        [&header[..length], payload].concat()
    }

    #[test]
    fn payloads_are_read_however_the_bytes_are_split() {
        let large = vec![7; 70_000];
        let stream =
            [sent(2, b"abc"), sent(PING, b"who"), sent(PONG, b""), sent(2, &large[..300]), sent(0, &large)]
                .concat();
        for step in [1, 7, 100_000] {
            let (mut reader, mut input) = (FrameReader::default(), BytesMut::new());
            let (mut data, mut pings) = (Vec::new(), Vec::new());
            for bytes in stream.chunks(step) {
                input.extend_from_slice(bytes);
                while let Some(frame) = reader.next(&mut input).unwrap() {
                    match frame {
                        BrokerFrame::Data(bytes) => data.extend_from_slice(&bytes),
                        BrokerFrame::Ping(bytes) => pings.extend_from_slice(&bytes),
                        BrokerFrame::Close => panic!("no close was sent"),
                    }
                }
            }
            assert_eq!((data.len(), &data[..4], &pings[..]), (70_303, &b"abc\x07"[..], &b"who"[..]));
        }
    }

    #[test]
    fn a_text_frame_is_an_error_and_a_close_frame_an_end() {
        let next = |bytes: &[u8]| FrameReader::default().next(&mut BytesMut::from(bytes));
        assert!(next(&sent(1, b"a")).unwrap_err().to_string().contains("unexpected WebSocket frame 81 01"));
        assert_eq!(next(&sent(CLOSE, b"")).unwrap(), Some(BrokerFrame::Close));
    }

    #[test]
    fn frames_of_the_client_have_a_mask() {
        let mut frame = Vec::new();
        binary(b"ab", &mut frame);
        assert_eq!(frame, b"\x82\x82\0\0\0\0ab");
        pong(b"", &mut frame);
        assert_eq!((frame, close()), (b"\x8A\x80\0\0\0\0".to_vec(), b"\x88\x80\0\0\0\0".to_vec()));
    }
}
