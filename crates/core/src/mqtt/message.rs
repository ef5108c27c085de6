//! An application message, stored once for all its receivers.

use crate::mqtt::audit::AuditTag;
use crate::mqtt::charge;
use crate::mqtt::packet::QoS;
use crate::mqtt::publisher_name::PublisherName;
use crate::time::Instant;
use bytes::Bytes;
use std::fmt;
use triomphe::ThinArc;

/// Size in bytes from which a payload has a buffer of its own.
///
/// A socket write can take such a buffer without a copy for each receiver. Below this size, one
/// copy costs less than one more piece in a vectored write.
pub const LARGE_PAYLOAD: usize = 8 * 1024;

/// A message in one allocation of exact size: a fixed header, then topic, forwarded properties and
/// payload. A large payload is shared [`Bytes`] instead. So is the name of the publisher, if it is
/// kept.
///
/// A clone is 8 bytes: it counts a reference and copies nothing. A message never changes after it
/// is made.
#[derive(Clone)]
pub struct Message(ThinArc<Header, u8>);

/// The fixed part of a message: everything but its bytes.
#[derive(Debug)]
pub struct Header {
    /// The end of the Message Expiry Interval; [`Instant::NEVER`] without one.
    pub expires: Instant,
    /// The QoS of the PUBLISH. A delivery may have a lower one.
    pub qos: QoS,
    /// The RETAIN flag of the PUBLISH.
    pub retain: bool,
    /// The number by which a trace follows the message. The number fits into padding.
    audit: AuditTag,
    topic_len: u16,
    forwarded_len: u32,
    charged: u32,
    /// `None` if the publisher is not kept.
    publisher: Option<PublisherName>,
    large: Option<Bytes>,
}

impl Header {
    /// Returns the bytes of a large payload, else 0. A large payload has a charge of its own,
    /// because an outbox may still hold it when the message is gone.
    fn large_len(&self) -> usize {
        self.large.as_ref().map_or(0, Bytes::len)
    }
}

impl Drop for Header {
    // A `u32` instead of a `Charge` saves 4 bytes in every message.
    fn drop(&mut self) {
        charge::add(self.large_len() as i64 - i64::from(self.charged));
    }
}

/// The parts from which a message is made.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    /// The QoS of the PUBLISH.
    pub qos: QoS,
    /// The RETAIN flag of the PUBLISH.
    pub retain: bool,
    /// The end of the Message Expiry Interval; [`Instant::NEVER`] without one.
    pub expires: Instant,
    /// The Topic Name: at most 65,535 bytes, as on the wire.
    pub topic: &'a str,
    /// Encoded properties that are forwarded unchanged, without the length in front.
    pub forwarded: &'a [u8],
    /// The application payload; may be empty.
    pub payload: &'a [u8],
}

/// Largest capacity in bytes that a caller's scratch buffer keeps. With one buffer for each of 16
/// threads, 4 MiB are not on the account.
const MOST_SCRATCH: usize = 256 * 1024;

/// Returns the size of a message whose variable parts have `bytes` bytes together.
fn charged(bytes: usize) -> u32 {
    u32::try_from(bytes + size_of::<Header>() + 16).unwrap_or(u32::MAX)
}

impl Message {
    /// Copies the parts into one allocation. The publisher is not stored.
    ///
    /// `scratch` is only room to put the parts one after the other. The caller keeps the buffer, so
    /// that a message costs one allocation instead of two. Its contents are overwritten.
    pub fn new(parts: Parts<'_>, scratch: &mut Vec<u8>) -> Message {
        Message::audited(AuditTag::NONE, None, parts, scratch)
    }

    /// As [`Message::new`], and keeps the client identifier of the publisher. Only dead letters
    /// report it.
    pub fn published_by(
        publisher: Option<PublisherName>,
        parts: Parts<'_>,
        scratch: &mut Vec<u8>,
    ) -> Message {
        Message::audited(AuditTag::NONE, publisher, parts, scratch)
    }

    /// As [`Message::published_by`], for a message that a trace follows.
    pub fn audited(
        audit: AuditTag,
        publisher: Option<PublisherName>,
        parts: Parts<'_>,
        scratch: &mut Vec<u8>,
    ) -> Message {
        let large = (parts.payload.len() >= LARGE_PAYLOAD).then(|| charge::shared_bytes(parts.payload));
        scratch.clear();
        scratch.extend_from_slice(parts.topic.as_bytes());
        // Most messages have none, and a copy of nothing is still a call.
        if !parts.forwarded.is_empty() {
            scratch.extend_from_slice(parts.forwarded);
        }
        if large.is_none() {
            scratch.extend_from_slice(parts.payload);
        }
        let charged = charged(scratch.len() + large.as_ref().map_or(0, Bytes::len));
        charge::add(i64::from(charged) - large.as_ref().map_or(0, Bytes::len) as i64);
        let header = Header {
            expires: parts.expires,
            qos: parts.qos,
            retain: parts.retain,
            audit,
            topic_len: parts.topic.len() as u16,
            forwarded_len: parts.forwarded.len() as u32,
            charged,
            publisher,
            large,
        };
        let message = Message(ThinArc::from_header_and_slice(header, scratch));
        if scratch.capacity() > MOST_SCRATCH {
            *scratch = Vec::new();
        }
        message
    }

    /// Returns the fixed part of the message.
    pub fn header(&self) -> &Header {
        &self.0.header.header
    }

    /// Returns the number by which a trace follows the message.
    #[inline]
    pub fn audit(&self) -> AuditTag {
        self.header().audit
    }

    /// Returns the message with the number of a trace: a copy, or the message itself without a
    /// number. For messages that were read back from the store, which does not keep the number.
    pub fn with_audit(self, audit: AuditTag) -> Message {
        if !audit.is_some() {
            return self;
        }
        let Header { qos, retain, expires, .. } = *self.header();
        let (topic, forwarded, payload) = (self.topic(), self.forwarded(), self.payload());
        let parts = Parts { qos, retain, expires, topic, forwarded, payload };
        Message::audited(audit, self.shared_publisher(), parts, &mut Vec::new())
    }

    /// Returns the Topic Name.
    pub fn topic(&self) -> &str {
        let bytes = &self.0.slice[..usize::from(self.header().topic_len)];
        // The bytes are from a `&str` of this length. A second check is better than `unsafe` code.
        std::str::from_utf8(bytes).unwrap_or_default()
    }

    /// Returns the parts of which another message like this one can be made.
    pub fn parts(&self) -> Parts<'_> {
        let Header { expires, qos, retain, .. } = *self.header();
        let (topic, forwarded, payload) = (self.topic(), self.forwarded(), self.payload());
        Parts { qos, retain, expires, topic, forwarded, payload }
    }

    /// Returns the encoded properties that are forwarded unchanged, without the length in front.
    pub fn forwarded(&self) -> &[u8] {
        let from = usize::from(self.header().topic_len);
        &self.0.slice[from..from + self.header().forwarded_len as usize]
    }

    /// Returns the client identifier of the publisher; empty if it is not kept.
    pub fn publisher(&self) -> &str {
        self.header().publisher.as_ref().map_or("", PublisherName::as_str)
    }

    /// Returns the name of the publisher, to make another message with it.
    pub fn shared_publisher(&self) -> Option<PublisherName> {
        self.header().publisher.clone()
    }

    /// Returns the application payload, from either place.
    pub fn payload(&self) -> &[u8] {
        let Header { topic_len, forwarded_len, large, .. } = self.header();
        match large {
            Some(bytes) => bytes,
            None => &self.0.slice[usize::from(*topic_len) + *forwarded_len as usize..],
        }
    }

    /// Returns the payload for a write without a copy; `None` below [`LARGE_PAYLOAD`].
    pub fn large_payload(&self) -> Option<&Bytes> {
        self.header().large.as_ref()
    }

    /// Returns the bytes that this message counts wherever it is counted: its parts, the fixed
    /// header and the name of the publisher. In memory the name is shared, and charged once.
    pub fn size(&self) -> usize {
        let Header { charged, publisher, .. } = self.header();
        *charged as usize + publisher.as_ref().map_or(0, PublisherName::len)
    }

    /// Returns the [`Message::size`] of a message whose topic, forwarded properties, publisher and
    /// payload have `bytes` bytes together. For messages that are in the store alone.
    pub fn size_of(bytes: usize) -> usize {
        charged(bytes) as usize
    }

    /// True if the Message Expiry Interval has ended at `now`.
    pub fn is_expired(&self, now: Instant) -> bool {
        self.header().expires <= now
    }
}

/// Returns the remaining seconds of a Message Expiry Interval, or `None` without one. The value is
/// rounded up, so that a fresh message carries its original interval. Only a message that is
/// already in flight is sent with 0.
// 5.0 [MQTT-3.3.2-6]
pub(crate) fn remaining_expiry(expires: Instant, now: Instant) -> Option<u32> {
    if expires.is_never() {
        return None;
    }
    Some(u32::try_from(expires.since(now).as_millis().div_ceil(1000)).unwrap_or(u32::MAX))
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Message({:?}, {} B)", self.topic(), self.payload().len())
    }
}

#[cfg(test)]
impl Message {
    /// Returns a message for a test: not retained, without an expiry time and without properties.
    pub(crate) fn sample(topic: &str, qos: QoS, payload: &[u8]) -> Message {
        let parts = Parts { qos, retain: false, expires: Instant::NEVER, topic, forwarded: &[], payload };
        Message::new(parts, &mut Vec::new())
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
        let publisher = PublisherName::shared(publisher, &mut None);
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
