//! A PUBLISH as bytes that several receivers share.

use crate::mqtt::codec::{LARGEST_PACKET, PublishHead};
use crate::mqtt::message::{LARGE_PAYLOAD, Parts, remaining_expiry};
use crate::mqtt::packet::{PacketId, ProtocolVersion, QoS};
use crate::time::Instant;
use bytes::Bytes;

/// The kind of a receiver: receivers of one kind get the same bytes, so they share a [`Frame`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// 3.x, QoS 0.
    V3AtMostOnce,
    /// 3.x, QoS 1.
    V3AtLeastOnce,
    /// 3.x, QoS 2.
    V3ExactlyOnce,
    /// 5.0, QoS 0.
    V5AtMostOnce,
    /// 5.0, QoS 1.
    V5AtLeastOnce,
    /// 5.0, QoS 2.
    V5ExactlyOnce,
}

impl FrameKind {
    /// Number of kinds.
    pub const COUNT: usize = FrameKind::V5ExactlyOnce as usize + 1;
}

/// A PUBLISH that is laid out once for all receivers of the same bytes: same version, QoS and
/// RETAIN, no Subscription Identifier, no alias. Copies differ in the Packet Identifier alone.
#[derive(Debug, Default)]
pub struct Frame {
    bytes: Vec<u8>,
    packet_id_at: usize,
    /// True if the payload is in a buffer of its own. The frame outlives the message, so it holds
    /// no reference to that buffer.
    is_shared: bool,
    len: usize,
}

impl Frame {
    /// Lays out a new PUBLISH. `large` is the payload if it has a buffer of its own, which each
    /// receiver shares.
    pub fn lay_out(
        &mut self,
        now: Instant,
        version: ProtocolVersion,
        parts: Parts<'_>,
        large: Option<&Bytes>,
    ) {
        self.bytes.clear();
        let head = head(now, parts, PacketId::new(u16::from(parts.qos != QoS::AtMostOnce)));
        self.len = head.packet_len(version, parts.payload.len());
        if self.len > LARGEST_PACKET as usize {
            // No receiver can be sent this packet. `put_frame` sees that by its length.
            return;
        }
        self.packet_id_at = head.put(version, parts.payload.len(), &mut self.bytes);
        self.is_shared = large.is_some();
        if !self.is_shared {
            self.bytes.extend_from_slice(parts.payload);
        }
    }

    /// Returns the bytes of the packet, with a payload that it shares.
    pub fn packet_len(&self) -> usize {
        self.len
    }

    /// Appends the packet with this Packet Identifier, but not a payload that it shares.
    #[inline]
    pub fn append_to(&self, out: &mut Vec<u8>, packet_id: Option<PacketId>) {
        let at = out.len() + self.packet_id_at;
        out.extend_from_slice(&self.bytes);
        if let Some(id) = packet_id
            && let Some(field) = out.get_mut(at..at + 2)
        {
            field.copy_from_slice(&id.get().to_be_bytes());
        }
    }

    /// True if [`Wire::put_frame`](crate::session::wire::Wire::put_frame) needs the payload as `large`.
    pub fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// True if a payload of this size is worth sharing.
    pub fn shares(payload: &[u8]) -> bool {
        payload.len() >= LARGE_PAYLOAD
    }
}

/// Returns all of a new PUBLISH but its payload, for a client without Topic Aliases.
pub(super) fn head(now: Instant, parts: Parts<'_>, packet_id: Option<PacketId>) -> PublishHead<'_> {
    PublishHead {
        dup: false,
        qos: parts.qos,
        retain: parts.retain,
        topic: parts.topic,
        packet_id,
        topic_alias: None,
        message_expiry: remaining_expiry(parts.expires, now),
        subscription_ids: &[],
        forwarded: parts.forwarded,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::wire::{ClientLimits, TooLarge, Wire};

    /// Finding 24: accepted under an alias, a PUBLISH may be longer with its topic than Remaining
    /// Length can say.
    // 5.0 section 1.5.5
    #[test]
    fn a_publish_longer_than_remaining_length_can_say_is_too_large() {
        // Nobody reads or writes it: the kernel gives it no memory.
        let payload = vec![0; 268_435_455 - 100];
        let topic = "t".repeat(65_535);
        let parts = |topic| Parts {
            topic,
            forwarded: &[],
            payload: &payload,
            expires: Instant::NEVER,
            qos: QoS::AtMostOnce,
            retain: false,
        };
        for version in [ProtocolVersion::V3_1_1, ProtocolVersion::V5] {
            let mut wire = Wire::new(version, 0);
            wire.set_limits(&ClientLimits {
                version,
                window: 1,
                maximum_packet_size: Some(u32::MAX),
                alias_maximum: 0,
                problem_information: true,
            });
            let put = |wire: &mut Wire, parts: Parts<'_>, large| {
                wire.put_whole(head(Instant::ZERO, parts, None), parts.payload, large)
            };
            assert_eq!(put(&mut wire, parts(&topic), None), Err(TooLarge));
            let mut frame = Frame::default();
            frame.lay_out(Instant::ZERO, version, parts(&topic), None);
            assert_eq!(wire.put_frame(&frame, None, None), Err(TooLarge));
            assert!(wire.outbox.is_empty());
            let shared = Some(Bytes::from_static(b"in its place"));
            assert_eq!(put(&mut wire, parts("t"), shared.as_ref()), Ok(()), "it fits");
        }
    }
}
