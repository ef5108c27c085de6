//! What a session may write to: the outbox of its connection, and what the client at its other end can take.

use super::topic_alias::{Naming, OutgoingAliases};
use crate::journal::ledger::Entry;
use crate::mqtt::codec::{self, AckKind, LARGEST_PACKET, PublishHead};
use crate::mqtt::message::{LARGE_PAYLOAD, Message};
use crate::mqtt::outbox::Outbox;
use crate::mqtt::packet::{Packet, PacketId, ProtocolVersion, QoS, ReasonCode};
use crate::time::Instant;
use bytes::Bytes;
use std::time::Duration;

/// The writing half of one connection, as the session sees it.
#[derive(Debug)]
pub struct Wire {
    pub outbox: Outbox,
    pub version: ProtocolVersion,
    /// Unfinished QoS 1 and 2 deliveries at most: the client's Receive Maximum or the broker's own bound.
    pub window: u16,
    /// Bytes of a packet that the client takes, at most [`LARGEST_PACKET`].
    maximum_packet_size: u32,
    aliases: Option<Box<OutgoingAliases>>,
    /// Whether the client wants Reason Strings (5.0 [MQTT-3.1.2-29]).
    pub problem_information: bool,
    /// Settles the jitter of this connection's resends.
    pub seed: u64,
    /// How long it waits for an acknowledgement: before the first resend (3.x), before the ack timeout (5.0); zero: it
    /// does not act.
    pub patience: Duration,
    /// Whether that is the client's own wish.
    pub asked: bool,
    /// How often in a row its session was cut for one message.
    pub cuts: u16,
}

/// A packet that the client said it cannot take, or that no Remaining Length can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge;

/// What one PUBLISH adds to its message.
#[derive(Clone, Copy, Debug)]
pub struct Sending<'a> {
    pub dup: bool,
    pub qos: QoS,
    pub retain: bool,
    pub packet_id: Option<PacketId>,
    pub ids: &'a [u32],
}

impl Wire {
    pub fn new(version: ProtocolVersion, seed: u64) -> Wire {
        Wire {
            outbox: Outbox::default(),
            version,
            window: 1,
            maximum_packet_size: LARGEST_PACKET,
            aliases: None,
            problem_information: true,
            seed,
            patience: Duration::ZERO,
            asked: false,
            cuts: 0,
        }
    }

    /// What the client's CONNECT said of itself.
    pub fn set_limits(&mut self, window: u16, maximum_packet_size: Option<u32>, alias_maximum: u16) {
        self.window = window;
        self.maximum_packet_size =
            maximum_packet_size.map_or(LARGEST_PACKET, |size| size.min(LARGEST_PACKET));
        self.aliases = (alias_maximum > 0).then(|| Box::new(OutgoingAliases::new(alias_maximum)));
    }

    /// The aliases that the broker has set.
    pub fn aliases(&self) -> Option<&OutgoingAliases> {
        self.aliases.as_deref()
    }

    /// Whether every PUBLISH to it is the same but for its Packet Identifier: no aliases.
    pub fn takes_frames(&self) -> bool {
        self.aliases.is_none()
    }

    /// What is appended from here on leaves when all that was recorded until now is committed, if the delivery it is about
    /// is in the store at all.
    pub fn wait_for(&mut self, entry: Option<&Entry>) {
        if let Some(lsn) = entry.and_then(Entry::pending) {
            self.outbox.fence(lsn);
        }
    }

    /// Appends a PUBLISH of `message`.
    ///
    /// # Errors
    /// [`TooLarge`], and nothing is appended (5.0 [MQTT-3.1.2-24], [MQTT-3.1.2-25]).
    pub fn put_publish(
        &mut self,
        now: Instant,
        message: &Message,
        sending: Sending<'_>,
    ) -> Result<(), TooLarge> {
        let topic = message.topic();
        let naming = self.aliases.as_ref().map_or(Naming::Topic, |a| a.name(topic));
        let (name, alias) = match naming {
            Naming::Topic => (topic, None),
            Naming::TopicSettingAlias(alias) => (topic, Some(alias)),
            Naming::Alias(alias) => ("", Some(alias)),
        };
        let head = PublishHead {
            dup: sending.dup,
            qos: sending.qos,
            retain: sending.retain,
            topic: name,
            packet_id: sending.packet_id,
            topic_alias: alias,
            message_expiry: remaining_expiry(message.header().expires, now),
            subscription_ids: sending.ids,
            forwarded: message.forwarded(),
        };
        self.put_whole(head, message.payload(), message.large_payload())?;
        if let (Naming::TopicSettingAlias(alias), Some(aliases)) = (naming, &mut self.aliases) {
            aliases.is_set(topic, alias);
        }
        Ok(())
    }

    /// Appends a PUBLISH without a frame. `large`: the payload to share instead of copying, if there is one. Only where
    /// [`Self::takes_frames`].
    pub fn put_parts(
        &mut self,
        now: Instant,
        parts: FrameParts<'_>,
        packet_id: Option<PacketId>,
        large: Option<&Bytes>,
    ) -> Result<(), TooLarge> {
        self.put_whole(parts.head(now, packet_id), parts.payload, large)
    }

    // Into both, so that neither copies the head for the other's sake.
    #[inline]
    fn put_whole(
        &mut self,
        head: PublishHead<'_>,
        payload: &[u8],
        large: Option<&Bytes>,
    ) -> Result<(), TooLarge> {
        // Also where the client sets no limit: with an alias, an accepted PUBLISH may be shorter than the one to be sent.
        if head.exceeds(self.version, payload.len(), self.maximum_packet_size) {
            return Err(TooLarge);
        }
        head.put(self.version, payload.len(), self.outbox.buffer());
        match large {
            Some(bytes) => self.outbox.push_shared(bytes.clone()),
            None => self.outbox.buffer().extend_from_slice(payload),
        }
        Ok(())
    }

    /// Appends a frame that was laid out for several receivers. `large`: its payload, if the frame shares it. Only where
    /// [`Self::takes_frames`].
    pub fn put_frame(
        &mut self,
        frame: &Frame,
        packet_id: Option<PacketId>,
        large: Option<&Bytes>,
    ) -> Result<(), TooLarge> {
        if frame.len > self.maximum_packet_size as usize {
            return Err(TooLarge);
        }
        let out = self.outbox.buffer();
        let at = out.len() + frame.packet_id_at;
        out.extend_from_slice(&frame.bytes);
        if let Some(id) = packet_id
            && let Some(field) = out.get_mut(at..at + 2)
        {
            field.copy_from_slice(&id.get().to_be_bytes());
        }
        if let Some(payload) = large {
            self.outbox.push_shared(payload.clone());
        }
        Ok(())
    }

    pub fn put_acknowledgement(&mut self, kind: AckKind, id: PacketId, reason: ReasonCode) {
        codec::put_acknowledgement(self.outbox.buffer(), kind, id, reason, self.version);
    }

    /// Appends any packet; one over the client's Maximum Packet Size or the protocol's own is left out.
    pub fn put(&mut self, packet: &Packet<'_>) -> Result<(), TooLarge> {
        let at = self.outbox.buffer().len();
        let done = codec::encode(packet, self.version, self.outbox.buffer());
        let len = self.outbox.buffer().len() - at;
        if done.is_err() || len > self.maximum_packet_size as usize {
            self.outbox.buffer().truncate(at);
            return Err(TooLarge);
        }
        Ok(())
    }
}

/// Seconds of a Message Expiry Interval that remain, rounded up so that a fresh message carries what it came with;
/// 0 when none do, which only a message that is in flight already is sent with.
// 5.0 [MQTT-3.3.2-6]
fn remaining_expiry(expires: Instant, now: Instant) -> Option<u32> {
    if expires.is_never() {
        return None;
    }
    Some(u32::try_from(expires.since(now).as_millis().div_ceil(1000)).unwrap_or(u32::MAX))
}

/// Receivers of the same kind get the same bytes: what a [`Frame`] is laid out for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    V3AtMostOnce,
    V3AtLeastOnce,
    V3ExactlyOnce,
    V5AtMostOnce,
    V5AtLeastOnce,
    V5ExactlyOnce,
}

impl FrameKind {
    /// How many kinds there are.
    pub const COUNT: usize = FrameKind::V5ExactlyOnce as usize + 1;

    pub fn of(version: ProtocolVersion, qos: QoS) -> FrameKind {
        match (version.is_v5(), qos) {
            (false, QoS::AtMostOnce) => FrameKind::V3AtMostOnce,
            (false, QoS::AtLeastOnce) => FrameKind::V3AtLeastOnce,
            (false, QoS::ExactlyOnce) => FrameKind::V3ExactlyOnce,
            (true, QoS::AtMostOnce) => FrameKind::V5AtMostOnce,
            (true, QoS::AtLeastOnce) => FrameKind::V5AtLeastOnce,
            (true, QoS::ExactlyOnce) => FrameKind::V5ExactlyOnce,
        }
    }
}

/// A PUBLISH laid out once for all receivers that get the same bytes: same version, QoS and RETAIN, no Subscription
/// Identifier, no alias. Each copy differs in the Packet Identifier alone.
#[derive(Debug, Default)]
pub struct Frame {
    bytes: Vec<u8>,
    packet_id_at: usize,
    /// Whether the payload is not in it, but in a buffer of its own. The frame outlives the message, so it holds none.
    is_shared: bool,
    len: usize,
}

/// What is laid out.
#[derive(Clone, Copy, Debug)]
pub struct FrameParts<'a> {
    pub topic: &'a str,
    pub forwarded: &'a [u8],
    pub payload: &'a [u8],
    pub expires: Instant,
    pub qos: QoS,
    pub retain: bool,
}

impl<'a> FrameParts<'a> {
    fn head(&self, now: Instant, packet_id: Option<PacketId>) -> PublishHead<'a> {
        PublishHead {
            dup: false,
            qos: self.qos,
            retain: self.retain,
            topic: self.topic,
            packet_id,
            topic_alias: None,
            message_expiry: remaining_expiry(self.expires, now),
            subscription_ids: &[],
            forwarded: self.forwarded,
        }
    }
}

impl Frame {
    /// Lays it out anew. `is_shared`: the payload has a buffer of its own, which each receiver shares.
    pub fn lay_out(
        &mut self,
        now: Instant,
        version: ProtocolVersion,
        parts: FrameParts<'_>,
        is_shared: bool,
    ) {
        self.bytes.clear();
        let head = parts.head(now, PacketId::new(u16::from(parts.qos != QoS::AtMostOnce)));
        self.len = head.packet_len(version, parts.payload.len());
        if self.len > LARGEST_PACKET as usize {
            // Nobody can be sent it, and `put_frame` sees that by its length.
            return;
        }
        self.packet_id_at = head.put(version, parts.payload.len(), &mut self.bytes);
        self.is_shared = is_shared;
        if !is_shared {
            self.bytes.extend_from_slice(parts.payload);
        }
    }

    /// Whether the payload is given with each [`Wire::put_frame`].
    pub fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Whether a payload of this size is worth sharing.
    pub fn shares(payload: &[u8]) -> bool {
        payload.len() >= LARGE_PAYLOAD
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Finding 24: accepted under an alias, a PUBLISH may be longer with its topic than Remaining Length can say.
    #[test]
    fn mqtt5_1_5_5_a_publish_longer_than_remaining_length_can_say_is_too_large() {
        // Nobody reads or writes it: the kernel gives it no memory.
        let payload = vec![0; 268_435_455 - 100];
        let topic = "t".repeat(65_535);
        let parts = |topic| FrameParts {
            topic,
            forwarded: &[],
            payload: &payload,
            expires: Instant::NEVER,
            qos: QoS::AtMostOnce,
            retain: false,
        };
        for version in [ProtocolVersion::V3_1_1, ProtocolVersion::V5] {
            let mut wire = Wire::new(version, 0);
            wire.set_limits(1, Some(u32::MAX), 0);
            assert_eq!(wire.put_parts(Instant::ZERO, parts(&topic), None, None), Err(TooLarge));
            let mut frame = Frame::default();
            frame.lay_out(Instant::ZERO, version, parts(&topic), false);
            assert_eq!(wire.put_frame(&frame, None, None), Err(TooLarge));
            assert!(wire.outbox.is_empty());
            let shared = Some(Bytes::from_static(b"in its place"));
            assert_eq!(wire.put_parts(Instant::ZERO, parts("t"), None, shared.as_ref()), Ok(()), "it fits");
        }
    }
}
