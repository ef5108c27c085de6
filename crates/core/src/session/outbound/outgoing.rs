//! A new message on its way to the sessions of one shard, and its way into an outbox.

use crate::mqtt::audit::AuditTag;
use crate::mqtt::message::{Message, Parts};
use crate::mqtt::packet::QoS;
use crate::mqtt::publisher_name::PublisherName;
use crate::persistence::rows::{Body, SessionRow};
use crate::session::frame::{Frame, FrameKind, head};
use crate::session::objectives::DeliveryMark;
use crate::session::wire::{Sending, Unsendable, Wire};
use crate::time::Instant;
use std::rc::Rc;
use std::sync::Arc;

/// Largest properties, in bytes, of a message that is laid out in a frame. A frame keeps its buffer
/// for later messages, and the buffer is not charged. A shard has six frames of less than 192 KiB
/// each. In 16 shards the frames have less than 18 MiB.
const MOST_FRAMED: usize = 64 * 1024;

/// A new message, with all that its receivers in one shard share. Borrows the parts of the message
/// from the PUBLISH. Allocates a [`Message`] only when the message must outlive the PUBLISH: in a
/// queue, in an in-flight window, in a peer batch, or as a retained message.
#[derive(Debug)]
pub struct OutgoingMessage<'a> {
    /// The parts of the message.
    pub parts: Parts<'a>,
    /// The name of the publisher. Messages keep it only if some redelivery policy wants dead
    /// letters.
    pub publisher_name: Option<PublisherName>,
    /// The number by which a trace follows the message.
    pub audit: AuditTag,
    message: Option<Message>,
    /// The message's row in the store. `None` until a stored session of this shard receives the
    /// message.
    pub body: Option<Rc<Body>>,
    /// The state of each of the shard's frames.
    framed: [Framed; FrameKind::COUNT],
}

/// The state of the encoded packet that all receivers of one kind share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framed {
    /// No receiver got the packet yet.
    Unsent,
    /// One receiver got the packet, written straight into its outbox. Most messages have one
    /// receiver, and a shared frame would cost an extra copy.
    Once,
    /// The shared frame is encoded.
    LaidOut,
}

/// Buffers for the messages that a shard sends. None has a meaning between two messages.
#[derive(Debug, Default)]
pub struct SendBuffers {
    /// One PUBLISH of each kind, laid out once for all receivers that get the same bytes.
    frames: [Frame; FrameKind::COUNT],
    /// A message is put together here.
    pub bytes: Vec<u8>,
}

/// The fields that a new delivery adds to its message.
#[derive(Clone, Copy, Debug)]
pub struct SentDelivery<'a> {
    /// The lower of publish and granted QoS.
    pub qos: QoS,
    /// The RETAIN flag.
    pub retain: bool,
    /// The Subscription Identifiers.
    pub ids: &'a [u32],
    /// The delivery objective that counts the delivery.
    pub mark: DeliveryMark,
    /// The shared subscription that the message goes by, in full; `None` without one.
    pub share: Option<&'a Arc<Box<str>>>,
    /// The row of the session in the store; `None` if the session is not stored.
    pub row: Option<&'a SessionRow>,
}

impl<'a> OutgoingMessage<'a> {
    /// Returns a message that is not allocated and has no row yet.
    #[inline]
    pub fn new(parts: Parts<'a>) -> OutgoingMessage<'a> {
        OutgoingMessage {
            parts,
            publisher_name: None,
            audit: AuditTag::NONE,
            message: None,
            body: None,
            framed: [Framed::Unsent; FrameKind::COUNT],
        }
    }

    /// Returns an existing message on its way to other receivers.
    pub fn of(message: &'a Message) -> OutgoingMessage<'a> {
        OutgoingMessage {
            publisher_name: message.shared_publisher(),
            audit: message.audit(),
            message: Some(message.clone()),
            ..OutgoingMessage::new(message.parts())
        }
    }

    /// Returns the message that its receivers share. The first call allocates it.
    pub fn message(&mut self, scratch: &mut Vec<u8>) -> &Message {
        let OutgoingMessage { parts, publisher_name, audit, message, .. } = self;
        message.get_or_insert_with(|| Message::audited(*audit, publisher_name.clone(), *parts, scratch))
    }

    /// Appends the PUBLISH to the outbox. Many receivers get the same bytes except for the Packet
    /// Identifier. From the second such receiver on, the bytes are laid out once in a frame and
    /// copied.
    ///
    /// # Errors
    /// The packet cannot be sent to the client, and nothing is appended.
    // A call costs 22 instructions a message.
    #[inline]
    pub(super) fn put(
        &mut self,
        now: Instant,
        sending: Sending<'_>,
        wire: &mut Wire,
        buffers: &mut SendBuffers,
    ) -> Result<(), Unsendable> {
        let kind = wire.frame_kind(sending.qos);
        let Some(kind) = kind.filter(|_| sending.ids.is_empty() && !sending.retain && !self.audit.is_some())
        else {
            return wire.put_publish(now, self.message(&mut buffers.bytes), sending);
        };
        let before = self.framed[kind as usize];
        if before != Framed::LaidOut {
            let in_parts = before == Framed::Unsent || self.parts.forwarded.len() > MOST_FRAMED;
            self.framed[kind as usize] = if in_parts { Framed::Once } else { Framed::LaidOut };
            let parts = Parts { qos: sending.qos, retain: false, ..self.parts };
            let is_large = Frame::shares(parts.payload);
            let large = if is_large { self.message(&mut buffers.bytes).large_payload() } else { None };
            if in_parts {
                return Ok(wire.put_whole(head(now, parts, sending.packet_id), parts.payload, large)?);
            }
            buffers.frames[kind as usize].lay_out(now, wire.version, parts, large);
        }
        let frame = &buffers.frames[kind as usize];
        let large = self.message.as_ref().filter(|_| frame.is_shared()).and_then(|m| m.large_payload());
        Ok(wire.put_frame(frame, sending.packet_id, large)?)
    }
}
