//! An application message, kept once for all who will receive it.

use crate::mqtt::charge;
use crate::mqtt::packet::QoS;
use crate::time::Instant;
use bytes::Bytes;
use std::fmt;
use triomphe::ThinArc;

/// Payloads of at least this many bytes stay in a buffer of their own, which a socket write can take without a
/// copy per receiver; below it, one copy costs less than one more piece in a vectored write.
pub const LARGE_PAYLOAD: usize = 8 * 1024;

/// A message in one exact allocation: a fixed header, then topic, forwarded properties, publisher where it is kept, and
/// payload (a large payload is shared [`Bytes`]).
///
/// Cloning counts a reference: 8 bytes to keep, no copy. Nothing in it changes after it is made.
#[derive(Clone)]
pub struct Message(ThinArc<Header, u8>);

/// What a message is apart from its bytes.
#[derive(Debug)]
pub struct Header {
    /// When the Message Expiry Interval runs out; [`Instant::NEVER`] if there is none.
    pub expires: Instant,
    /// As published; a delivery may have a lower one.
    pub qos: QoS,
    /// As published.
    pub retain: bool,
    topic_len: u16,
    /// 0 where it is not kept.
    publisher_len: u16,
    forwarded_len: u32,
    charged: u32,
    large: Option<Bytes>,
}

impl Header {
    /// Bytes of a large payload: they are on the account by themselves, for an outbox may have them when the message is gone.
    fn large_len(&self) -> usize {
        self.large.as_ref().map_or(0, Bytes::len)
    }
}

impl Drop for Header {
    // Not a `Charge`: 4 bytes less in every message.
    fn drop(&mut self) {
        charge::add(self.large_len() as i64 - i64::from(self.charged));
    }
}

/// The parts of a message before it is one.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    pub qos: QoS,
    pub retain: bool,
    pub expires: Instant,
    /// At most 65,535 bytes, as on the wire.
    pub topic: &'a str,
    pub forwarded: &'a [u8],
    pub payload: &'a [u8],
}

impl Message {
    /// Copies the parts into one allocation; `scratch` is only room to lay them out in, kept by the caller so that
    /// a message costs one allocation and not two.
    pub fn new(parts: Parts<'_>, scratch: &mut Vec<u8>) -> Message {
        Message::published_by("", parts, scratch)
    }

    /// The same; it keeps the client id of its publisher, which only a dead letter tells.
    pub fn published_by(publisher: &str, parts: Parts<'_>, scratch: &mut Vec<u8>) -> Message {
        let large = (parts.payload.len() >= LARGE_PAYLOAD).then(|| charge::shared_bytes(parts.payload));
        scratch.clear();
        scratch.extend_from_slice(parts.topic.as_bytes());
        scratch.extend_from_slice(parts.forwarded);
        scratch.extend_from_slice(publisher.as_bytes());
        if large.is_none() {
            scratch.extend_from_slice(parts.payload);
        }
        let bytes = scratch.len() + large.as_ref().map_or(0, Bytes::len) + size_of::<Header>() + 16;
        let charged = u32::try_from(bytes).unwrap_or(u32::MAX);
        charge::add(i64::from(charged) - large.as_ref().map_or(0, Bytes::len) as i64);
        let header = Header {
            expires: parts.expires,
            qos: parts.qos,
            retain: parts.retain,
            topic_len: parts.topic.len() as u16,
            publisher_len: publisher.len() as u16,
            forwarded_len: parts.forwarded.len() as u32,
            charged,
            large,
        };
        Message(ThinArc::from_header_and_slice(header, scratch))
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

    /// The client id of its publisher; empty where it is not kept.
    pub fn publisher(&self) -> &str {
        let to = self.payload_at();
        let bytes = &self.0.slice[to - usize::from(self.header().publisher_len)..to];
        std::str::from_utf8(bytes).unwrap_or_default()
    }

    pub fn payload(&self) -> &[u8] {
        match &self.header().large {
            Some(bytes) => bytes,
            None => &self.0.slice[self.payload_at()..],
        }
    }

    /// Where the payload begins, if it is in the same allocation.
    fn payload_at(&self) -> usize {
        let Header { topic_len, publisher_len, forwarded_len, .. } = self.header();
        usize::from(*topic_len) + *forwarded_len as usize + usize::from(*publisher_len)
    }

    /// The payload to write without copying it, if it is large enough to be kept so.
    pub fn large_payload(&self) -> Option<&Bytes> {
        self.header().large.as_ref()
    }

    /// Bytes this message is charged with wherever one is counted: its parts and the fixed header.
    pub fn size(&self) -> usize {
        self.header().charged as usize
    }

    /// Whether its Message Expiry Interval has run out.
    pub fn is_expired(&self, now: Instant) -> bool {
        self.header().expires <= now
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Message({:?}, {} B)", self.topic(), self.payload().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqtt::charge::take_delta;

    fn message(payload: &[u8]) -> Message {
        message_by("", payload)
    }

    fn message_by(publisher: &str, payload: &[u8]) -> Message {
        let parts = Parts {
            qos: QoS::AtLeastOnce,
            retain: false,
            expires: Instant::NEVER,
            topic: "a/b",
            forwarded: b"pp",
            payload,
        };
        Message::published_by(publisher, parts, &mut Vec::new())
    }

    #[test]
    fn parts_come_back_as_they_went_in_small_and_large() {
        for len in [0, 1, LARGE_PAYLOAD - 1, LARGE_PAYLOAD, LARGE_PAYLOAD + 1] {
            let payload = vec![7; len];
            for publisher in ["", "p1"] {
                let m = message_by(publisher, &payload);
                assert_eq!((m.topic(), m.forwarded(), m.payload()), ("a/b", &b"pp"[..], &payload[..]));
                assert_eq!(m.publisher(), publisher);
                assert_eq!(m.large_payload().is_some(), len >= LARGE_PAYLOAD);
            }
        }
    }

    #[test]
    fn bodies_are_counted_once_until_the_last_reference_goes() {
        take_delta();
        let m = message(b"x");
        let size = m.size() as i64;
        let again = m.clone();
        drop(m);
        assert_eq!(take_delta(), size);
        drop(again);
        assert_eq!(take_delta(), -size);
    }
}
