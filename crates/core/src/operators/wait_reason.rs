//! The reason why a message has not reached its receiver yet, and the end of the wait.

use crate::mqtt::packet::{PacketId, QoS};
use crate::named_enum::named_enum;
use crate::session::outbound::in_flight_packet::InFlightView;
use crate::session::outbound::stall::{FarSide, SocketView, StallCause};
use crate::session::outbound::transmission::Transmission;
use crate::shard::clients::connection::Connection;
use crate::shard::clients::session_entry::SessionEntry;
use crate::shard::view::ShardView;
use crate::time::Instant;
use crate::time::age::Age;
use std::borrow::Cow;

/// The reason why one message waits for one receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// The receiver is away. Its session ends at this time; [`Instant::NEVER`] for never.
    ReceiverAway(Instant),
    /// The in-flight window is full. An acknowledgement makes room. Names the unfinished packet
    /// that was sent first, and the time since its first transmission; `None` if there is no such
    /// packet.
    WindowFull(Option<(PacketId, Age)>),
    /// This number of messages of the same queue comes first. 0: the message goes in the next turn.
    Behind(usize),
    /// The socket takes no bytes. If that does not change, the connection is closed at this time;
    /// [`Instant::NEVER`] if no time runs.
    SocketBlocked(Instant),
    /// The message was in flight when the receiver left. This number of older ones is sent again
    /// first.
    OlderFirst(usize),
    /// The receiver was sent the message, and has not acknowledged it.
    Unacknowledged(SentPacket),
    /// The receiver has the message. At QoS 2 it still owes PUBCOMP.
    AwaitingPubcomp(SentPacket),
    /// The packet waits until the store has committed its record.
    Committing,
    /// The message is in the store alone, and comes into memory page by page.
    ReadingBack,
    /// The queue is full. The message waits for room until this time, and is refused then.
    Held(Instant),
}

/// A packet without its acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentPacket {
    /// The time of the next look at the packet; [`Instant::NEVER`] for none. `then` happens at this
    /// time only if `cause` is [`StallCause::Application`]. Otherwise the wait begins again.
    pub due: Instant,
    /// The action at `due`.
    pub then: AtDeadline,
    /// The holder of the packet. [`StallCause::Application`] until `diagnose` is called.
    pub cause: StallCause,
    /// The peer. [`FarSide::Client`] until `diagnose` is called.
    pub far_side: FarSide,
    end_offset: u64,
    /// The bytes that the socket took since the connection began.
    written: u64,
}

impl SentPacket {
    /// Returns the cause in words, for an operator.
    pub fn detail(&self) -> &'static str {
        self.cause.detail(self.far_side)
    }
}

named_enum! {
    /// The action of the broker if an acknowledgement does not come in time.
    pub enum AtDeadline {
        /// The packet is sent again.
        Resend = "resend",
        /// The connection is closed. The message is sent again when the client returns.
        Disconnect = "disconnect",
        /// An event and a log line say so.
        Report = "report",
        /// The message is dropped, because it was sent as often as allowed, and becomes a dead
        /// letter. In 5.0 the connection may be closed, too.
        Drop = "drop",
    }

    /// The kind of a [`WaitReason`], or of the wait of a delayed message.
    pub enum WaitKind {
        /// The client is not connected.
        ReceiverAway = "receiver_away",
        /// As many messages are in flight as may be.
        WindowFull = "window_full",
        /// Other messages are before it in the queue.
        Behind = "behind",
        /// The socket takes no bytes.
        SocketBlocked = "socket_blocked",
        /// Older messages are sent again before it.
        OlderFirst = "older_first",
        /// PUBACK or PUBREC has not come.
        Unacknowledged = "unacknowledged",
        /// PUBCOMP has not come.
        AwaitingPubcomp = "awaiting_pubcomp",
        /// The store has not committed it.
        Committing = "committing",
        /// The store reads it back.
        ReadingBack = "reading_back",
        /// The queue has no room for it.
        Held = "held",
        /// Its time has not come.
        Delayed = "delayed",
        /// Its time has come, and it is not published yet.
        Overdue = "overdue",
    }
}

impl WaitReason {
    /// Returns the kind of the reason.
    pub const fn kind(&self) -> WaitKind {
        match self {
            WaitReason::ReceiverAway(_) => WaitKind::ReceiverAway,
            WaitReason::WindowFull(_) => WaitKind::WindowFull,
            WaitReason::Behind(_) => WaitKind::Behind,
            WaitReason::SocketBlocked(_) => WaitKind::SocketBlocked,
            WaitReason::OlderFirst(_) => WaitKind::OlderFirst,
            WaitReason::Unacknowledged(_) => WaitKind::Unacknowledged,
            WaitReason::AwaitingPubcomp(_) => WaitKind::AwaitingPubcomp,
            WaitReason::Committing => WaitKind::Committing,
            WaitReason::ReadingBack => WaitKind::ReadingBack,
            WaitReason::Held(_) => WaitKind::Held,
        }
    }

    /// Returns the word in an answer.
    pub const fn name(&self) -> &'static str {
        self.kind().name()
    }

    /// Finds the holder of a sent packet. `view` is the socket's view of the bytes that were
    /// written to it.
    pub(super) fn diagnose(&mut self, view: SocketView) {
        if let WaitReason::Unacknowledged(sent) | WaitReason::AwaitingPubcomp(sent) = self {
            sent.cause = StallCause::of(sent.end_offset, view.peer_has(sent.written), view);
            sent.far_side = view.far_side;
        }
    }
}

/// One receiver, whose messages wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting<'a> {
    now: Instant,
    entry: &'a SessionEntry,
    /// The connection, and the time at which it is closed if its socket takes no bytes.
    connection: Option<(&'a Connection, Instant)>,
    shard: ShardView<'a>,
}

impl<'a> Waiting<'a> {
    /// Looks at the messages of one session.
    pub(super) fn new(now: Instant, entry: &'a SessionEntry, shard: ShardView<'a>) -> Waiting<'a> {
        let connection =
            entry.connection.and_then(|id| Some((shard.connection(id)?, shard.write_deadline(id))));
        Waiting { now, entry, connection, shard }
    }

    /// Returns why a message in flight waits. `older` is the number of messages that are sent again
    /// before it.
    pub(super) fn in_flight(&self, view: &InFlightView<'_>, older: usize) -> WaitReason {
        let Some((connection, closes)) = self.connection else {
            return WaitReason::ReceiverAway(self.entry.ends);
        };
        if !view.sent_here {
            return WaitReason::OlderFirst(older);
        }
        let outbox = &connection.wire.outbox;
        let end = view.transmission.end_offset;
        if end > outbox.written() + outbox.writable() as u64 {
            return WaitReason::Committing;
        }
        if end > outbox.written() {
            return WaitReason::SocketBlocked(closes);
        }
        let sent = self.sent(view, connection);
        if view.delivery.is_some() {
            WaitReason::Unacknowledged(sent)
        } else {
            WaitReason::AwaitingPubcomp(sent)
        }
    }

    fn sent(&self, view: &InFlightView<'_>, connection: &Connection) -> SentPacket {
        let Transmission { due, end_offset, .. } = *view.transmission;
        let session = &self.entry.session;
        let redelivery = session.sender.redelivery();
        let policy = match view.delivery {
            Some(delivery) => redelivery.of(delivery.message.topic()),
            None => Cow::Borrowed(&redelivery.own),
        };
        // The message of a PUBREL has arrived, so nothing is left to drop.
        let then = if view.delivery.is_some() && policy.gives_up(view.transmission.own_transmissions()) {
            AtDeadline::Drop
        } else if connection.wire.version.is_v5() {
            let disconnects = policy.ack.on_timeout.disconnects(session.outlives());
            if disconnects { AtDeadline::Disconnect } else { AtDeadline::Report }
        } else if policy.retry.closes(view.transmission.own_attempts(), session.outlives()) {
            AtDeadline::Disconnect
        } else {
            AtDeadline::Resend
        };
        let written = connection.wire.outbox.written();
        SentPacket {
            due,
            then,
            cause: StallCause::Application,
            far_side: FarSide::default(),
            end_offset,
            written,
        }
    }

    /// Returns why a queued message waits. `ahead` is the number of messages before it in the
    /// queue.
    pub(super) fn queued(&self, qos: QoS, ahead: usize) -> WaitReason {
        let Some((connection, closes)) = self.connection else {
            return WaitReason::ReceiverAway(self.entry.ends);
        };
        if ahead > 0 {
            return WaitReason::Behind(ahead);
        }
        let (sender, policy) = (&self.entry.session.sender, self.shard.send_policy());
        let outbox = &connection.wire.outbox;
        if outbox.len() >= policy.outbox {
            let is_gated = outbox.writable() < outbox.len();
            return if is_gated { WaitReason::Committing } else { WaitReason::SocketBlocked(closes) };
        }
        if qos != QoS::AtMostOnce && !sender.has_quota(&connection.wire, policy) {
            let oldest = sender.oldest_unacknowledged(self.now);
            return WaitReason::WindowFull(oldest.map(|stall| (stall.packet_id, stall.age)));
        }
        WaitReason::Behind(0)
    }

    /// Returns why a message waits whose content is in the store alone.
    pub(super) fn paged_out(&self) -> WaitReason {
        match self.connection {
            Some(_) => WaitReason::ReadingBack,
            None => WaitReason::ReceiverAway(self.entry.ends),
        }
    }
}
