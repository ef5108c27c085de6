//! The writing half of one connection: its outbox, and the limits of the client at its other end.

use crate::mqtt::codec::{self, AckKind, LARGEST_PACKET, PublishHead};
use crate::mqtt::message::{Message, remaining_expiry};
use crate::mqtt::packet::{Packet, PacketId, ProtocolVersion, QoS, ReasonCode};
use crate::persistence::rows::Entry;
use crate::session::drops::DropReason;
use crate::session::frame::{Frame, FrameKind};
use crate::session::mount_point::MountPoint;
use crate::session::outbox::Outbox;
use crate::session::topic_alias::{Naming, OutgoingAliases};
use crate::session::trace_steps::{self, NotedPackets, StepKind, TraceStep, TraceSteps};
use crate::time::Instant;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;

/// Stands for no promise.
const NO_PROMISE: u32 = u32::MAX;

/// The writing half of one connection, as the session sees it.
#[derive(Debug)]
pub struct Wire {
    /// Bytes that wait to be written.
    pub outbox: Outbox,
    /// The protocol version of the connection.
    pub version: ProtocolVersion,
    /// Unfinished QoS 1 and 2 deliveries at most: the lower of the client's Receive Maximum and the
    /// broker's bound.
    pub window: u16,
    /// The client's Maximum Packet Size in bytes, at most [`LARGEST_PACKET`].
    maximum_packet_size: u32,
    /// `None` for most connections.
    rare: Option<Box<RareWire>>,
    /// True if the client accepts Reason Strings (5.0 [MQTT-3.1.2-29]).
    pub problem_information: bool,
    /// The seed of the jitter of this connection's resends.
    pub seed: u32,
    /// The value of [`Self::ack_wait`] in milliseconds. A `Duration` would take 16 bytes of every
    /// connection.
    ack_wait_ms: u32,
    /// Bytes that waited before the first promise since [`Self::take_promise`]; [`NO_PROMISE`] for
    /// none. Nothing is written between both.
    promise: u32,
    /// PUBLISH packets that were appended since [`Self::take_publishes`], with repetitions.
    publishes: u32,
    /// The wait of a packet that is sent for the first time, in milliseconds: `ack_wait` with this
    /// connection's jitter. Zero is off. `u32::MAX` means any longer wait.
    first_wait_ms: u32,
    /// True if the client requested the ack wait.
    pub requested: bool,
    /// Number of disconnects in a row for the same message.
    pub disconnects: u16,
    /// True while the messages of the session are checked against the rules of the client. No
    /// queued message is sent before the end of the check.
    pub queue_waits: bool,
}

/// The limits that a client's CONNECT sets for the packets that it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientLimits {
    /// The protocol version.
    pub version: ProtocolVersion,
    /// The lower of the client's Receive Maximum and the broker's bound.
    pub window: u16,
    /// The Maximum Packet Size in bytes; `None` is no limit.
    pub maximum_packet_size: Option<u32>,
    /// The Topic Alias Maximum; 0 is no alias.
    pub alias_maximum: u16,
    /// True if the client accepts Reason Strings.
    pub problem_information: bool,
}

/// Parts of a [`Wire`] that most connections do not have.
#[derive(Debug, Default)]
struct RareWire {
    aliases: Option<OutgoingAliases>,
    /// The packets that become steps of traces.
    noted: NotedPackets,
    /// Steps that the shard has not collected yet.
    steps: TraceSteps,
    /// The mount point of the listener, which the client does not see.
    mount_point: Option<Arc<MountPoint>>,
}

impl RareWire {
    /// Returns the client's name of a topic, and how the next PUBLISH names it.
    fn name<'a>(&self, topic: &'a str) -> Result<(&'a str, Naming), Unsendable> {
        let topic = match &self.mount_point {
            Some(mount_point) => mount_point.own_name(topic).ok_or(Unsendable::OutsideMountPoint)?,
            None => topic,
        };
        Ok((topic, self.aliases.as_ref().map_or(Naming::Topic, |aliases| aliases.name(topic))))
    }
}

/// The packet exceeds the client's Maximum Packet Size, or the range of Remaining Length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge;

/// Why a PUBLISH cannot be sent to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsendable {
    /// The packet exceeds the client's Maximum Packet Size, or the range of Remaining Length.
    TooLarge,
    /// The topic is not below the mount point of the client's listener. The message is left from an
    /// earlier connection by another listener, or its topic is the parent level of the mount point.
    OutsideMountPoint,
}

impl Unsendable {
    /// Returns the reason of the drop.
    pub fn drop_reason(self) -> DropReason {
        match self {
            Unsendable::TooLarge => DropReason::TooLarge,
            Unsendable::OutsideMountPoint => DropReason::NotAuthorized,
        }
    }
}

impl From<TooLarge> for Unsendable {
    fn from(_: TooLarge) -> Unsendable {
        Unsendable::TooLarge
    }
}

/// The fields that one PUBLISH adds to its message.
#[derive(Clone, Copy, Debug)]
pub struct Sending<'a> {
    /// The DUP flag.
    pub dup: bool,
    /// The lower of published and granted QoS.
    pub qos: QoS,
    /// The RETAIN flag.
    pub retain: bool,
    /// The Packet Identifier; `None` at QoS 0.
    pub packet_id: Option<PacketId>,
    /// The Subscription Identifiers.
    pub ids: &'a [u32],
}

impl Wire {
    /// Creates the writing half of a connection before its CONNECT was read.
    pub fn new(version: ProtocolVersion, seed: u32) -> Wire {
        Wire {
            outbox: Outbox::default(),
            version,
            window: 1,
            maximum_packet_size: LARGEST_PACKET,
            rare: None,
            problem_information: true,
            seed,
            ack_wait_ms: 0,
            promise: NO_PROMISE,
            publishes: 0,
            first_wait_ms: 0,
            requested: false,
            disconnects: 0,
            queue_waits: false,
        }
    }

    /// Sets the limits that CONNECT announced. The limits hold from CONNACK on.
    pub fn set_limits(&mut self, limits: &ClientLimits) {
        let ClientLimits { version, window, maximum_packet_size, alias_maximum, problem_information } =
            *limits;
        self.version = version;
        self.window = window;
        self.maximum_packet_size =
            maximum_packet_size.map_or(LARGEST_PACKET, |size| size.min(LARGEST_PACKET));
        let aliases = (alias_maximum > 0).then(|| OutgoingAliases::new(alias_maximum));
        if aliases.is_some() || self.rare.is_some() {
            self.rare_mut().aliases = aliases;
            self.forget_rare();
        }
        self.problem_information = problem_information;
    }

    /// Returns how long the connection waits for an acknowledgement: until the first resend (3.x),
    /// or until the ack timeout (5.0). Zero is off.
    pub fn ack_wait(&self) -> Duration {
        Duration::from_millis(self.ack_wait_ms.into())
    }

    /// Sets how long the connection waits for an acknowledgement, in whole milliseconds, and 49
    /// days at most.
    pub fn set_ack_wait(&mut self, wait: Duration) {
        self.ack_wait_ms = u32::try_from(wait.as_millis()).unwrap_or(u32::MAX);
    }

    /// Takes the number of PUBLISH packets that were appended since the last call, with
    /// repetitions.
    pub fn take_publishes(&mut self) -> u32 {
        std::mem::take(&mut self.publishes)
    }

    /// Takes the stream offset of the first promise that was appended since the last call, if there
    /// is one. A promise is a packet after which its receiver counts on this broker, or on the next
    /// owner of the cell: CONNACK, SUBACK, UNSUBACK, PUBACK, PUBREC or PUBCOMP.
    #[inline]
    pub fn take_promise(&mut self) -> Option<u64> {
        let promise = std::mem::replace(&mut self.promise, NO_PROMISE);
        (promise != NO_PROMISE).then(|| self.outbox.written() + u64::from(promise))
    }

    /// Notes that the next packet is a promise. The first one counts, because a stream has one
    /// order. Behind 4 GiB the promise seems to come earlier, so more is held.
    #[inline]
    fn note_promise(&mut self) {
        if self.promise == NO_PROMISE {
            self.promise = self.outbox.len().min(NO_PROMISE as usize - 1) as u32;
        }
    }

    /// Returns the wait of a packet that is sent for the first time: the ack wait with this
    /// connection's jitter. Zero is off. Returns `None` for a wait of more than 49 days, which the
    /// caller has to compute.
    #[inline]
    pub fn first_wait(&self) -> Option<Duration> {
        (self.first_wait_ms < u32::MAX).then(|| Duration::from_millis(self.first_wait_ms.into()))
    }

    /// Sets the wait of a packet that is sent for the first time, in whole milliseconds.
    pub fn set_first_wait(&mut self, wait: Duration) {
        self.first_wait_ms = u32::try_from(wait.as_millis()).unwrap_or(u32::MAX);
    }

    /// Returns the aliases that the broker has set; `None` if the client allows none.
    pub fn aliases(&self) -> Option<&OutgoingAliases> {
        self.rare.as_ref()?.aliases.as_ref()
    }

    /// Sets the mount point of the client's listener; `None` without one.
    pub fn set_mount_point(&mut self, mount_point: Option<Arc<MountPoint>>) {
        if mount_point.is_some() || self.rare.is_some() {
            self.rare_mut().mount_point = mount_point;
            self.forget_rare();
        }
    }

    /// Returns the mount point of the client's listener, if it has one.
    #[inline]
    pub fn mount_point(&self) -> Option<&Arc<MountPoint>> {
        self.rare.as_ref()?.mount_point.as_ref()
    }

    /// Returns the kind of [`Frame`]s that the client takes at a QoS: without aliases, copies differ
    /// in the Packet Identifier alone. Returns `None` while packets are noted, because a frame does
    /// not know its message, and behind a mount point, because the client has other names of the
    /// topics.
    #[inline]
    pub fn frame_kind(&self, qos: QoS) -> Option<FrameKind> {
        if self.rare.is_some() {
            return None;
        }
        Some(match (self.version.is_v5(), qos) {
            (false, QoS::AtMostOnce) => FrameKind::V3AtMostOnce,
            (false, QoS::AtLeastOnce) => FrameKind::V3AtLeastOnce,
            (false, QoS::ExactlyOnce) => FrameKind::V3ExactlyOnce,
            (true, QoS::AtMostOnce) => FrameKind::V5AtMostOnce,
            (true, QoS::AtLeastOnce) => FrameKind::V5AtLeastOnce,
            (true, QoS::ExactlyOnce) => FrameKind::V5ExactlyOnce,
        })
    }

    /// True if a trace follows the client.
    #[inline]
    pub fn is_traced(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.noted == NotedPackets::All)
    }

    /// Sets which packets become steps.
    pub fn note_packets(&mut self, noted: NotedPackets) {
        self.rare_mut().noted = noted;
        self.forget_rare();
    }

    /// True if there are steps to collect.
    #[inline]
    pub fn has_steps(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| !rare.steps.is_empty())
    }

    /// Takes the steps of packets that were written.
    pub fn take_steps(&mut self) -> TraceSteps {
        let taken = self.rare.as_mut().map(|rare| std::mem::take(&mut rare.steps)).unwrap_or_default();
        self.forget_rare();
        taken
    }

    fn rare_mut(&mut self) -> &mut RareWire {
        self.rare.get_or_insert_default()
    }

    /// Frees the rare parts if nothing is left in them.
    fn forget_rare(&mut self) {
        let is_used = |rare: &RareWire| {
            rare.aliases.is_some()
                || rare.noted == NotedPackets::All
                || !rare.steps.is_empty()
                || rare.mount_point.is_some()
        };
        if !self.rare.as_deref().is_some_and(is_used) {
            self.rare = None;
        }
    }

    #[cold]
    fn note(&mut self, step: TraceStep) {
        debug_assert!(self.is_traced() || step.audit.is_some());
        let step = step.as_on_wire(self.version);
        self.rare_mut().steps.push(step, trace_steps::OF_CONNECTION);
    }

    /// Notes an acknowledgement if a trace follows the client. The caller tests one pointer.
    #[inline(never)]
    fn note_acknowledgement(&mut self, kind: AckKind, id: PacketId, reason: ReasonCode) {
        if self.is_traced() {
            let step = match kind {
                AckKind::Puback | AckKind::Pubrec => StepKind::PublisherAcknowledged,
                AckKind::Pubrel | AckKind::Pubcomp => StepKind::PacketOut,
            };
            self.note(TraceStep::of_acknowledgement(step, kind, id, reason));
        }
    }

    #[cold]
    fn note_publish(&mut self, message: &Message, sending: Sending<'_>) {
        let kind = if sending.dup { StepKind::Resent } else { StepKind::Sent };
        let step = TraceStep::of_message(kind, message.audit(), message.topic(), message.payload());
        let (packet_id, qos, dup) = (sending.packet_id, Some(sending.qos), sending.dup);
        self.note(TraceStep { packet_id, qos, dup, ..step });
    }

    /// Gates the bytes that are appended from now on until everything recorded so far is
    /// committed. Does nothing if `entry` is `None`, because the delivery is not stored.
    pub fn wait_for(&mut self, entry: Option<&Entry>) {
        if let Some(lsn) = entry.and_then(Entry::pending) {
            self.outbox.gate_until_commit(lsn);
        }
    }

    /// Appends a PUBLISH of `message`.
    ///
    /// # Errors
    /// [`Unsendable`], and nothing is appended (5.0 [MQTT-3.1.2-24], [MQTT-3.1.2-25]).
    pub fn put_publish(
        &mut self,
        now: Instant,
        message: &Message,
        sending: Sending<'_>,
    ) -> Result<(), Unsendable> {
        let (topic, mut naming) = match &self.rare {
            Some(rare) => rare.name(message.topic())?,
            None => (message.topic(), Naming::Topic),
        };
        let (name, alias) = match naming {
            Naming::Topic => (topic, None),
            Naming::TopicSettingAlias(alias) => (topic, Some(alias)),
            Naming::Alias(alias) => ("", Some(alias)),
        };
        let mut head = PublishHead {
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
        if matches!(naming, Naming::TopicSettingAlias(_))
            && head.exceeds(self.version, message.payload().len(), self.maximum_packet_size)
        {
            // The packet may fit without the new alias. An alias that is set already never makes a
            // packet longer. 5.0 [MQTT-3.1.2-25]
            (head.topic_alias, naming) = (None, Naming::Topic);
        }
        self.put_whole(head, message.payload(), message.large_payload())?;
        if let (Naming::TopicSettingAlias(alias), Some(rare)) = (naming, &mut self.rare)
            && let Some(aliases) = &mut rare.aliases
        {
            aliases.is_set(topic, alias);
        }
        if self.is_traced() || message.audit().is_some() {
            self.note_publish(message, sending);
        }
        Ok(())
    }

    /// Appends a PUBLISH without a frame. `large` is the payload to share instead of copying, if
    /// there is one.
    ///
    /// # Errors
    /// [`TooLarge`], and nothing is appended.
    // Inlined into both callers, so that neither copies the head.
    #[inline]
    pub(super) fn put_whole(
        &mut self,
        head: PublishHead<'_>,
        payload: &[u8],
        large: Option<&Bytes>,
    ) -> Result<(), TooLarge> {
        // Checked even if the client sets no limit: an incoming PUBLISH with an alias may be
        // shorter than the outgoing PUBLISH.
        if head.exceeds(self.version, payload.len(), self.maximum_packet_size) {
            return Err(TooLarge);
        }
        head.put(self.version, payload.len(), self.outbox.buffer());
        match large {
            Some(bytes) => self.outbox.push_shared(bytes.clone()),
            None => self.outbox.buffer().extend_from_slice(payload),
        }
        self.publishes += 1;
        Ok(())
    }

    /// Appends a frame that was laid out for several receivers. `large` is its payload, if the
    /// frame shares it. Only if the client has a
    /// [`Self::frame_kind`].
    ///
    /// # Errors
    /// [`TooLarge`], and nothing is appended.
    pub fn put_frame(
        &mut self,
        frame: &Frame,
        packet_id: Option<PacketId>,
        large: Option<&Bytes>,
    ) -> Result<(), TooLarge> {
        if frame.packet_len() > self.maximum_packet_size as usize {
            return Err(TooLarge);
        }
        frame.append_to(self.outbox.buffer(), packet_id);
        if let Some(payload) = large {
            self.outbox.push_shared(payload.clone());
        }
        self.publishes += 1;
        Ok(())
    }

    /// Appends a PUBACK, PUBREC, PUBREL or PUBCOMP. 3.x leaves the reason code out.
    #[inline]
    pub fn put_acknowledgement(&mut self, kind: AckKind, id: PacketId, reason: ReasonCode) {
        if kind != AckKind::Pubrel {
            self.note_promise();
        }
        codec::put_acknowledgement(self.outbox.buffer(), kind, id, reason, self.version);
        if self.rare.is_some() {
            self.note_acknowledgement(kind, id, reason);
        }
    }

    /// Appends any packet.
    ///
    /// # Errors
    /// [`TooLarge`] if the packet exceeds the client's Maximum Packet Size or the protocol's range.
    /// Nothing is appended then.
    pub fn put(&mut self, packet: &Packet<'_>) -> Result<(), TooLarge> {
        if matches!(packet, Packet::Connack(_) | Packet::Suback(_) | Packet::Unsuback(_)) {
            self.note_promise();
        }
        self.encode(packet)?;
        if self.is_traced() {
            self.note(TraceStep::of_packet(StepKind::PacketOut, packet));
        }
        Ok(())
    }

    /// Returns true if the client takes this packet. Nothing is appended. Costs as much as to write
    /// it.
    pub fn takes(&mut self, packet: &Packet<'_>) -> bool {
        let at = self.outbox.buffer().len();
        let fits = self.encode(packet).is_ok();
        self.outbox.buffer().truncate(at);
        fits
    }

    /// Errors: the packet is too large, and nothing is appended.
    fn encode(&mut self, packet: &Packet<'_>) -> Result<(), TooLarge> {
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
