//! An application message, kept once for all who will receive it.

use crate::mqtt::packet::QoS;
use crate::time::Instant;
use std::fmt;
use triomphe::ThinArc;

/// A message in one exact allocation: a fixed header, then topic, forwarded properties and payload.
///
/// Cloning counts a reference: 8 bytes to keep, no copy. Nothing in it changes after it is made.
#[derive(Clone)]
pub struct Message(ThinArc<Header, u8>);

/// What a message is apart from its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// As published; a delivery may have a lower one.
    pub qos: QoS,
    /// As published.
    pub retain: bool,
    /// When the Message Expiry Interval runs out; [`Instant::NEVER`] if there is none.
    pub expires: Instant,
    topic_len: u16,
    forwarded_len: u32,
}

impl Message {
    /// Copies the parts into one allocation. `topic` is at most 65,535 bytes, as on the wire.
    pub fn new(
        qos: QoS,
        retain: bool,
        expires: Instant,
        topic: &str,
        forwarded: &[u8],
        payload: &[u8],
    ) -> Message {
        let header = Header {
            qos,
            retain,
            expires,
            topic_len: topic.len() as u16,
            forwarded_len: forwarded.len() as u32,
        };
        let parts = Parts { parts: [topic.as_bytes(), forwarded, payload], part: 0, at: 0 };
        Message(ThinArc::from_header_and_iter(header, parts))
    }

    pub fn header(&self) -> &Header {
        &self.0.header.header
    }

    pub fn topic(&self) -> &str {
        let bytes = &self.0.slice[..usize::from(self.header().topic_len)];
        // Made from a `&str` of this length; checked again rather than trusted to `unsafe`.
        std::str::from_utf8(bytes).unwrap_or_default()
    }

    /// Encoded properties that travel unchanged, without the length in front.
    pub fn forwarded(&self) -> &[u8] {
        let from = usize::from(self.header().topic_len);
        &self.0.slice[from..from + self.header().forwarded_len as usize]
    }

    pub fn payload(&self) -> &[u8] {
        let from = usize::from(self.header().topic_len) + self.header().forwarded_len as usize;
        &self.0.slice[from..]
    }

    /// Bytes this message is charged with wherever one is counted: its parts and the fixed header.
    pub fn size(&self) -> usize {
        self.0.slice.len() + size_of::<Header>() + 16
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Message({:?}, {} B)", self.topic(), self.payload().len())
    }
}

/// The bytes of three slices in a row, of known length.
struct Parts<'a> {
    parts: [&'a [u8]; 3],
    part: usize,
    at: usize,
}

impl Iterator for Parts<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        while self.part < 3 {
            if let Some(byte) = self.parts[self.part].get(self.at) {
                self.at += 1;
                return Some(*byte);
            }
            self.part += 1;
            self.at = 0;
        }
        None
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let all: usize = self.parts[self.part.min(3)..].iter().map(|p| p.len()).sum();
        let left = all - self.at;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Parts<'_> {}
