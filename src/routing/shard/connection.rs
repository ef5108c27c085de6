//! The pure half of one network connection: what it has read of a packet, what it waits to write, its deadlines.

use super::{ConnectionId, SessionId};
use crate::expiry::lazy::Registered;
use crate::mqtt::charge::{Charge, Recount, Recounted};
use crate::mqtt::packet::ProtocolVersion;
use crate::mqtt::session::keep_alive::KeepAlive;
use crate::mqtt::session::topic_alias::IncomingAliases;
use crate::mqtt::session::wire::Wire;
use crate::time::Instant;
use std::time::Duration;

/// A connection from its acceptance to its close.
#[derive(Debug)]
pub struct Connection {
    pub wire: Wire,
    /// `None` until its CONNECT is accepted, and after it was parted from its session.
    pub session: Option<SessionId>,
    pub phase: Phase,
    /// The unread front of a packet that is not whole, or packets that wait while it is paused. An idle connection has
    /// none.
    pub partial: Partial,
    pub keep_alive: KeepAlive,
    pub pauses: Pauses,
    /// Once the client has set one.
    pub aliases: Option<Box<IncomingAliases>>,
    /// When it was last told of a wish that does not read as one.
    pub unreadable: Option<Instant>,
    /// On the shard's list of those to flush.
    pub dirty: bool,
    /// On the list of those whose outbox waits for a commit.
    pub fenced: bool,
    /// When its socket first refused bytes that still wait.
    pub blocked: Option<Instant>,
    pub read_idle: Registered,
    pub write_idle: Registered,
    pub retransmit: Registered,
}

/// Bytes that a connection has read and not handled.
#[derive(Debug)]
pub struct Partial {
    bytes: Vec<u8>,
    charge: Charge,
    /// When the last byte of a packet came that is waited for, and how long the next may take.
    awaited: Option<(Instant, Duration)>,
    /// Whether the connection is on the shard's list of those with much.
    pub listed: bool,
}

impl Default for Partial {
    fn default() -> Partial {
        Partial { bytes: Vec::new(), charge: Charge::NONE, awaited: None, listed: false }
    }
}

impl Partial {
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Keeps these bytes, in place of what was kept.
    pub fn keep(&mut self, bytes: Vec<u8>) {
        self.charge.set(bytes.capacity());
        self.bytes = bytes;
    }

    /// The rest of a packet is waited for, from now on.
    pub fn wait(&mut self, now: Instant, timeout: Duration) {
        self.awaited = Some((now, timeout));
    }

    /// When the next byte of a packet that has begun must have come; [`Instant::NEVER`] unless one is waited for.
    /// `awake_since`: as for a Keep Alive.
    fn deadline(&self, awake_since: Instant) -> Instant {
        self.awaited.map_or(Instant::NEVER, |(since, timeout)| since.max(awake_since) + timeout)
    }

    /// Takes the bytes out.
    pub fn take(&mut self) -> Vec<u8> {
        self.charge.set(0);
        self.awaited = None;
        std::mem::take(&mut self.bytes)
    }
}

impl Recount for Partial {
    fn recount(&self) -> Recounted {
        Recounted { held: self.bytes.capacity(), charged: self.charge.bytes() }
    }
}

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Its first packet has yet to come.
    AwaitingConnect,
    Established,
    /// What waits is written, then it is closed, at the latest at this time; nothing more is read.
    Closing {
        until: Instant,
        leaves: Leaves,
    },
}

/// Who ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaves {
    /// The client said DISCONNECT: it waits for nothing.
    Client,
    /// The broker: the client is given time to read why.
    Broker,
}

/// Why a connection is not read, by cause: each cause ends by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pauses(u8);

/// One cause not to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Pause {
    /// Its own outbox is full: it asks for more than it takes.
    Outbox = 1,
    /// As many of its PUBLISHes wait for their answers as it may have.
    Unanswered = 2,
    /// Another shard has as much from this one as it should.
    Peer = 4,
    /// Its SUBSCRIBE or UNSUBSCRIBE is not in force everywhere yet: what it pipelined behind waits.
    Fence = 8,
    /// Its packets used up a turn: it goes on in a later one.
    Turn = 16,
    /// What its last packet asks for is so much that it goes on in a later turn.
    Work = 32,
}

impl Pauses {
    pub fn set(&mut self, cause: Pause) {
        self.0 |= cause as u8;
    }

    /// Whether that was the last cause.
    pub fn clear(&mut self, cause: Pause) -> bool {
        let had = self.0 & cause as u8 != 0;
        self.0 &= !(cause as u8);
        had && self.0 == 0
    }

    pub fn has(self, cause: Pause) -> bool {
        self.0 & cause as u8 != 0
    }

    pub fn any(self) -> bool {
        self.0 != 0
    }
}

impl Connection {
    /// A connection that was just accepted; `seed` settles its jitter.
    pub fn accepted(now: Instant, connect_timeout: Duration, seed: u64) -> Connection {
        Connection {
            wire: Wire::new(ProtocolVersion::V3_1_1, seed),
            session: None,
            phase: Phase::AwaitingConnect,
            partial: Partial::default(),
            keep_alive: KeepAlive::awaiting_connect(connect_timeout, now),
            pauses: Pauses::default(),
            aliases: None,
            unreadable: None,
            dirty: false,
            fenced: false,
            blocked: None,
            read_idle: Registered::default(),
            write_idle: Registered::default(),
            retransmit: Registered::default(),
        }
    }

    /// Puts it on the list of those to flush, if it is not there.
    pub fn mark_dirty(&mut self, id: ConnectionId, list: &mut Vec<ConnectionId>) {
        if !self.dirty {
            self.dirty = true;
            list.push(id);
        }
    }

    /// When a client is cut that is silent, or silent in the midst of a packet; a connection that is closing is not waited for.
    pub fn read_deadline(&self, awake_since: Instant) -> Instant {
        let keep_alive = self.keep_alive.deadline(awake_since);
        match self.phase {
            // Until CONNECT has come whole this is `listeners.connect_timeout`, which bounds a part of it too.
            Phase::AwaitingConnect => keep_alive,
            Phase::Established => keep_alive.min(self.partial.deadline(awake_since)),
            Phase::Closing { .. } => Instant::NEVER,
        }
    }

    /// When a socket that takes no bytes is given up.
    pub fn write_deadline(&self, timeout: Duration, awake_since: Instant) -> Instant {
        match (self.phase, self.blocked) {
            (Phase::Closing { until, .. }, _) => until,
            (_, Some(since)) => since.max(awake_since) + timeout,
            _ => Instant::NEVER,
        }
    }

    pub fn is_closing(&self) -> bool {
        matches!(self.phase, Phase::Closing { .. })
    }

    pub fn version(&self) -> ProtocolVersion {
        self.wire.version
    }

    /// Stops reading for `cause`.
    pub fn pause(&mut self, cause: Pause, now: Instant) {
        self.pauses.set(cause);
        self.keep_alive.pause(now);
    }

    /// Ends a cause; whether reading goes on.
    pub fn unpause(&mut self, cause: Pause, now: Instant) -> bool {
        let last = self.pauses.clear(cause);
        if last && !self.fenced {
            self.keep_alive.resume(now);
        }
        last
    }

    /// Nothing may be written until a commit: a client that waits for its answer, CONNACK before all, is not silent.
    pub fn fence(&mut self, now: Instant) {
        self.fenced = true;
        self.keep_alive.pause(now);
    }

    pub fn unfence(&mut self, now: Instant) {
        self.fenced = false;
        if !self.pauses.any() {
            self.keep_alive.resume(now);
        }
    }
}
