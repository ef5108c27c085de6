//! WebSocket frames (RFC 6455 section 5): of the broker as a server, and of a bridge as a client.
//!
//! A message is not assembled: its payload passes on as it arrives. So a frame of 2^62 bytes (2^63 and
//! more is refused), or a message of a million fragments, takes no memory. A frame may hold several MQTT packets, and a
//! packet may cross frames and fragments [MQTT-6.0.0-2].
//!
//! The state of a connection takes 24 bytes, and 128 more while a ping or a close frame arrives.

use crate::mqtt::websocket::{
    BINARY, CLOSE, CONTINUATION, CONTROL_MAX, FIN, MASKED, PING, PONG, TEXT, UNMASKED_HEADER_MAX, header,
};
use std::fmt;

use thiserror::Error;

/// Longest header of a frame: 2 bytes, a length of 8, a mask of 4.
const HEADER_MAX: usize = 14;

const RESERVED: u8 = 0x70;

/// A close code of RFC 6455 section 7.4.1: normal closure.
const NORMAL: u16 = 1000;

/// An end of a connection: it masks what it sends, or expects the mask of the other end.
pub trait WsEnd {
    /// True if the frames of the other end must be masked.
    const IS_SERVER: bool;

    /// Returns the mask of the next frame that is sent; `None` if this end sends without a mask.
    fn mask(&self) -> Option<[u8; 4]>;
}

/// The end of the broker, whose clients mask their frames (RFC 6455 5.1).
#[derive(Clone, Copy, Debug, Default)]
pub struct ServerEnd;

/// The end of a client. It has the source of the masks. Nobody may know a mask beforehand, because
/// a publisher could choose the bytes on the wire otherwise (RFC 6455 10.3).
#[derive(Clone, Copy, Debug)]
pub struct ClientEnd(pub fn() -> [u8; 4]);

impl WsEnd for ServerEnd {
    const IS_SERVER: bool = true;

    fn mask(&self) -> Option<[u8; 4]> {
        None
    }
}

impl WsEnd for ClientEnd {
    const IS_SERVER: bool = false;

    fn mask(&self) -> Option<[u8; 4]> {
        Some(self.0())
    }
}

/// The frames of one connection, after its HTTP upgrade.
pub struct Ws<E = ServerEnd> {
    end: E,
    phase: FramePhase,
    /// The ping or close frame that arrives or waits for its reply. A newer ping takes the place of
    /// an older one, as RFC 6455 5.5.3 allows.
    control: Option<Box<Control>>,
}

/// The place in the stream of frames.
enum FramePhase {
    /// Inside a header. A header is complete at [`HEADER_MAX`] bytes at the latest, so 13 are kept.
    Header { bytes: [u8; HEADER_MAX - 1], len: u8, in_message: bool },
    /// Inside a payload of which `left` bytes have not arrived.
    Payload {
        left: u64,
        /// The mask, turned so that its first byte is for the next byte of payload.
        mask: [u8; 4],
        purpose: Purpose,
        /// True if a fragmented message continues after this frame.
        in_message: bool,
    },
    /// The peer sent a close frame, and the owner has not replied yet. The owner first handles
    /// what came before, and may still send (RFC 6455 5.5.1).
    PeerClosed { code: Option<[u8; 2]> },
    /// A close frame was sent. Nothing follows in either direction.
    Closed,
}

/// The use of a payload.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// MQTT bytes.
    Data,
    /// The payload of a ping or close frame.
    Control,
    /// A pong: it is not kept.
    Skipped,
}

/// The payload of a ping or close frame.
struct Control {
    opcode: u8,
    len: u8,
    whole: bool,
    payload: [u8; CONTROL_MAX],
}

/// A frame that the WebSocket standard or MQTT forbids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("WebSocket: {reason} (close code {code})")]
pub struct FrameError {
    code: u16,
    reason: &'static str,
}

impl FrameError {
    /// Returns the close code that the peer gets: 1002, 1003, 1007 or 1009 (RFC 6455 7.4.1).
    pub fn code(self) -> u16 {
        self.code
    }

    /// Returns the reason in plain words, without anything that the peer sent.
    pub fn reason(self) -> &'static str {
        self.reason
    }
}

const fn refuse(code: u16, reason: &'static str) -> FrameError {
    FrameError { code, reason }
}

const RESERVED_BIT: FrameError = refuse(1002, "a reserved bit is set, but no extension was agreed");
const UNMASKED: FrameError = refuse(1002, "a frame of a client must be masked");
const MASKED_BY_SERVER: FrameError = refuse(1002, "a frame of a server must not be masked");
const UNKNOWN_OPCODE: FrameError = refuse(1002, "unknown opcode");
const LONG_CONTROL: FrameError = refuse(1002, "a control frame has at most 125 bytes");
const FRAGMENTED_CONTROL: FrameError = refuse(1002, "a control frame must not be fragmented");
const NO_START: FrameError = refuse(1002, "a continuation frame without a message before it");
const UNFINISHED: FrameError = refuse(1002, "a new message inside a fragmented message");
const NOT_SHORTEST: FrameError = refuse(1002, "the length is not in its shortest form");
const INVALID_CLOSE: FrameError = refuse(1002, "a close frame with an invalid code");
// [MQTT-6.0.0-1]: MQTT packets travel in binary frames; anything else closes the connection.
const NOT_BINARY: FrameError = refuse(1003, "a text frame; MQTT uses binary frames");
const NOT_UTF8: FrameError = refuse(1007, "the reason in a close frame is not UTF-8");
const TOO_BIG: FrameError = refuse(1009, "a frame of 2^63 bytes or more");

impl Ws {
    /// Returns the state after the HTTP upgrade: the next byte begins a frame.
    pub fn new() -> Ws {
        Ws::of_end(ServerEnd)
    }

    /// Returns the header of one binary frame with `len` bytes of payload, and the header's length.
    pub(crate) fn header(len: usize) -> ([u8; UNMASKED_HEADER_MAX], usize) {
        header(BINARY, len)
    }
}

impl<E: WsEnd> Ws<E> {
    /// Returns the state of this end after the HTTP upgrade.
    pub fn of_end(end: E) -> Ws<E> {
        Ws { end, phase: FramePhase::start(false), control: None }
    }

    /// Takes frames out of `bytes`: moves their payload to the front of `bytes`, unmasked, and
    /// returns its length. [`Ws::close`] replies to a close frame.
    ///
    /// All of `bytes` is used; the state keeps a header that is not whole, and the newest ping for
    /// [`Ws::reply_to_ping`]. Bytes after a close frame are ignored.
    ///
    /// # Errors
    /// A frame that the standard or MQTT forbids. The close frame with its code is in `out`, and
    /// the payload before it is lost. The state is closed.
    pub fn open(&mut self, bytes: &mut [u8], out: &mut Vec<u8>) -> Result<usize, FrameError> {
        let result = self.take_frames(bytes);
        if let Err(error) = result {
            self.close_with(&error.code.to_be_bytes(), out);
        }
        result
    }

    /// Appends a pong for the newest ping to `out`, if a whole ping waits. Several pings between
    /// two calls get one pong [RFC 6455 5.5.3]. So a client that pings and does not read costs one
    /// pong, if the owner calls this only while nothing else waits for the socket.
    pub fn reply_to_ping(&mut self, out: &mut Vec<u8>) {
        if let Some(ping) = self.control.take_if(|control| control.whole) {
            put(&self.end, PONG, ping.payload(), out);
        }
    }

    /// True after a close frame in either direction: nothing more is opened.
    pub fn is_read_closed(&self) -> bool {
        matches!(self.phase, FramePhase::PeerClosed { .. } | FramePhase::Closed)
    }

    /// True after a close frame of this end: nothing more may be sent.
    pub fn is_closed(&self) -> bool {
        matches!(self.phase, FramePhase::Closed)
    }

    /// True if a part of a frame has come, and its rest has not.
    pub fn is_in_frame(&self) -> bool {
        match self.phase {
            FramePhase::Header { len, .. } => len > 0,
            FramePhase::Payload { left, .. } => left > 0,
            FramePhase::PeerClosed { .. } | FramePhase::Closed => false,
        }
    }

    /// Appends one binary frame with this payload to `out`.
    pub fn put_binary(&self, payload: &[u8], out: &mut Vec<u8>) {
        put(&self.end, BINARY, payload, out);
    }

    /// Appends a close frame to `out`, unless one was sent before. Its code is that of the peer's
    /// close frame, which RFC 6455 5.5.1 wants echoed, or 1000.
    pub fn close(&mut self, out: &mut Vec<u8>) {
        match self.phase {
            FramePhase::PeerClosed { code } => self.close_with(code.as_ref().map_or(&[], |c| c), out),
            _ => self.close_with(&NORMAL.to_be_bytes(), out),
        }
    }

    fn take_frames(&mut self, bytes: &mut [u8]) -> Result<usize, FrameError> {
        let (mut read, mut kept) = (0, 0);
        while read < bytes.len() {
            match &mut self.phase {
                FramePhase::PeerClosed { .. } | FramePhase::Closed => break,
                FramePhase::Header { .. } => {
                    read += self.take_header(bytes.get(read..).unwrap_or_default())?;
                }
                FramePhase::Payload { left, mask, purpose, .. } => {
                    let present = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len() - read);
                    let range = read..read + present;
                    *left -= present as u64;
                    read += present;
                    match purpose {
                        Purpose::Data => {
                            bytes.copy_within(range, kept);
                            unmask(mask, bytes.get_mut(kept..kept + present).unwrap_or_default());
                            kept += present;
                        }
                        Purpose::Control => {
                            let part = bytes.get_mut(range).unwrap_or_default();
                            unmask(mask, part);
                            if let Some(control) = &mut self.control {
                                control.append(part);
                            }
                        }
                        Purpose::Skipped => {}
                    }
                }
            }
            self.end_frame()?;
        }
        Ok(kept)
    }

    /// Takes bytes of a header and returns their number. Enters the payload after the last one.
    fn take_header(&mut self, bytes: &[u8]) -> Result<usize, FrameError> {
        let FramePhase::Header { bytes: before, len, in_message } = &self.phase else { return Ok(0) };
        let (mut header, mut have, in_message) = ([0; HEADER_MAX], usize::from(*len), *in_message);
        if let Some(start) = header.get_mut(..before.len()) {
            start.copy_from_slice(before);
        }
        let mut used = 0;
        loop {
            let need = header_len::<E>(&header, have);
            if have >= 2 {
                // The first two bytes decide on most refusals, so nothing more is waited for.
                check_start::<E>(header[0], header[1], in_message)?;
            }
            if have == need {
                break;
            }
            let Some(byte) = bytes.get(used) else {
                let mut bytes = [0; HEADER_MAX - 1];
                bytes.copy_from_slice(&header[..HEADER_MAX - 1]);
                self.phase = FramePhase::Header { bytes, len: u8::try_from(have).unwrap_or(0), in_message };
                return Ok(used);
            };
            if let Some(place) = header.get_mut(have) {
                *place = *byte;
            }
            have += 1;
            used += 1;
        }
        self.begin_payload(&header, in_message)?;
        Ok(used)
    }

    fn begin_payload(&mut self, header: &[u8; HEADER_MAX], in_message: bool) -> Result<(), FrameError> {
        let [first, second, rest @ ..] = header;
        let (left, mask) = match (second & !MASKED, rest) {
            (126, [a, b, mask @ ..]) => (u64::from(u16::from_be_bytes([*a, *b])), first_four(mask)),
            (127, [a, b, c, d, e, f, g, h, mask @ ..]) => {
                (u64::from_be_bytes([*a, *b, *c, *d, *e, *f, *g, *h]), first_four(mask))
            }
            (len, mask) => (u64::from(len), first_four(mask)),
        };
        match second & !MASKED {
            127 if left >= 1 << 63 => return Err(TOO_BIG),
            // 5.2: the minimal number of bytes must be used to encode the length.
            126 if left < 126 => return Err(NOT_SHORTEST),
            127 if left <= 0xFFFF => return Err(NOT_SHORTEST),
            _ => {}
        }
        let opcode = first & 0x0F;
        let purpose = match opcode {
            CONTINUATION | BINARY => Purpose::Data,
            PONG => Purpose::Skipped,
            _ => {
                self.control = Some(Box::new(Control::new(opcode)));
                Purpose::Control
            }
        };
        let in_message = if purpose == Purpose::Data { first & FIN == 0 } else { in_message };
        self.phase = FramePhase::Payload { left, mask, purpose, in_message };
        Ok(())
    }

    /// Leaves a payload of which the last byte has arrived.
    fn end_frame(&mut self) -> Result<(), FrameError> {
        let FramePhase::Payload { left: 0, purpose, in_message, .. } = self.phase else { return Ok(()) };
        self.phase = FramePhase::start(in_message);
        if purpose != Purpose::Control {
            return Ok(());
        }
        if let Some(control) = &mut self.control {
            control.whole = true;
            if control.opcode == CLOSE {
                self.phase = FramePhase::PeerClosed { code: control.close_code()? };
                self.control = None;
            }
        }
        Ok(())
    }

    /// Appends a close frame, unless one was sent before.
    fn close_with(&mut self, payload: &[u8], out: &mut Vec<u8>) {
        if !self.is_closed() {
            put(&self.end, CLOSE, payload, out);
            self.phase = FramePhase::Closed;
            self.control = None;
        }
    }
}

impl Default for Ws {
    fn default() -> Ws {
        Ws::new()
    }
}

impl<E: WsEnd> fmt::Debug for Ws<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ws").field("closed", &self.is_closed()).finish_non_exhaustive()
    }
}

impl FramePhase {
    fn start(in_message: bool) -> FramePhase {
        FramePhase::Header { bytes: [0; HEADER_MAX - 1], len: 0, in_message }
    }
}

impl Control {
    fn new(opcode: u8) -> Control {
        Control { opcode, len: 0, whole: false, payload: [0; CONTROL_MAX] }
    }

    fn append(&mut self, part: &[u8]) {
        let at = usize::from(self.len);
        if let Some(place) = self.payload.get_mut(at..at + part.len()) {
            place.copy_from_slice(part);
            self.len += u8::try_from(part.len()).unwrap_or(0);
        }
    }

    fn payload(&self) -> &[u8] {
        self.payload.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// Returns the code of a close frame, or `None` if the frame is empty.
    fn close_code(&self) -> Result<Option<[u8; 2]>, FrameError> {
        match self.payload() {
            [] => Ok(None),
            [_] => Err(INVALID_CLOSE),
            [high, low, reason @ ..] => {
                // 7.4.1 and 7.4.2: the other codes must not appear in a frame.
                let code = u16::from_be_bytes([*high, *low]);
                if !matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999) {
                    return Err(INVALID_CLOSE);
                }
                if std::str::from_utf8(reason).is_err() {
                    return Err(NOT_UTF8);
                }
                Ok(Some([*high, *low]))
            }
        }
    }
}

/// Returns the length of the header, as far as its first `have` bytes tell it.
fn header_len<E: WsEnd>(header: &[u8; HEADER_MAX], have: usize) -> usize {
    if have < 2 {
        return 2;
    }
    let mask = if E::IS_SERVER { 4 } else { 0 };
    match header[1] & !MASKED {
        126 => 4 + mask,
        127 => 10 + mask,
        _ => 2 + mask,
    }
}

/// Checks the first two bytes of a frame.
fn check_start<E: WsEnd>(first: u8, second: u8, in_message: bool) -> Result<(), FrameError> {
    if first & RESERVED != 0 {
        return Err(RESERVED_BIT);
    }
    match (E::IS_SERVER, second & MASKED) {
        (true, 0) => return Err(UNMASKED),
        (false, MASKED) => return Err(MASKED_BY_SERVER),
        _ => {}
    }
    match first & 0x0F {
        CONTINUATION if !in_message => Err(NO_START),
        CONTINUATION => Ok(()),
        TEXT | BINARY if in_message => Err(UNFINISHED),
        TEXT => Err(NOT_BINARY),
        BINARY => Ok(()),
        CLOSE | PING | PONG if first & FIN == 0 => Err(FRAGMENTED_CONTROL),
        CLOSE | PING | PONG if second & !MASKED > 125 => Err(LONG_CONTROL),
        CLOSE | PING | PONG => Ok(()),
        _ => Err(UNKNOWN_OPCODE),
    }
}

/// Returns the first four bytes; missing ones are 0.
fn first_four(bytes: &[u8]) -> [u8; 4] {
    bytes.first_chunk().copied().unwrap_or_default()
}

/// Applies the mask to `payload`, which sets or removes it, and turns `mask` for the bytes that follow (RFC 6455 5.3).
///
/// Eight bytes are done in one step.
fn unmask(mask: &mut [u8; 4], payload: &mut [u8]) {
    let [a, b, c, d] = *mask;
    let wide = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (eights, rest) = payload.as_chunks_mut::<8>();
    for eight in eights {
        *eight = (u64::from_ne_bytes(*eight) ^ wide).to_ne_bytes();
    }
    for (byte, mask) in rest.iter_mut().zip([a, b, c, d, a, b, c, d]) {
        *byte ^= mask;
    }
    mask.rotate_left(payload.len() % 4);
}

/// Appends one whole frame of this end to `out`.
fn put<E: WsEnd>(end: &E, opcode: u8, payload: &[u8], out: &mut Vec<u8>) {
    let (mut header, len) = header(opcode, payload.len());
    let mask = end.mask();
    header[1] |= if mask.is_some() { MASKED } else { 0 };
    out.extend_from_slice(header.get(..len).unwrap_or_default());
    out.extend_from_slice(mask.as_ref().map_or(&[], |mask| mask));
    let start = out.len();
    out.extend_from_slice(payload);
    if let Some(mut mask) = mask {
        unmask(&mut mask, out.get_mut(start..).unwrap_or_default());
    }
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
