//! What a shard tells the store: one record per change, in the order the changes were made.
//!
//! A record says what to keep or what no longer is; it never asks. Times in it are this process's own: the store writes
//! them as wall-clock time and reads them back the same way, so that expiry goes on while the broker is down.

use crate::mqtt::charge::Charge;
use crate::mqtt::message::Message;
use crate::mqtt::packet::{PacketId, ProtocolVersion, QoS};
use crate::mqtt::session::receiver::Outcome;
use crate::mqtt::session::subscription::SubscriptionIds;
use crate::mqtt::session::will::Will;
use crate::time::Instant;
use std::sync::Arc;
use std::time::Duration;

/// Names a session in the store for as long as it lives; never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionKey(pub u64);

/// Names one delivery of one session: in its queue, then in its window. A session's entries stand in the order of their
/// numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntryNumber(pub u64);

/// Names a message that entries of one shard share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BodyNumber(pub u64);

/// Names a message that waits for its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DelayedNumber(pub u64);

/// Names a message that is taken over, or moved, in several shards at once: all of it is committed in one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MoveNumber(pub u64);

/// Counts the batches of one shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lsn(pub u64);

/// One change.
#[derive(Clone, Debug)]
pub enum Record {
    /// A session as it now is, in place of what was kept of it before.
    Session(Box<StoredSession>),
    /// Of a session that is kept, what its comings and goings change: its will is not written again.
    SessionState(SessionState),
    /// The session, its subscriptions and its incoming identifiers are no more. Its entries have records of their own.
    SessionEnded(SessionKey),
    /// A subscription, in place of one of the same filter.
    Subscribed(Box<StoredSubscription>),
    Unsubscribed {
        session: SessionKey,
        filter: Box<str>,
    },
    /// A message, once for all entries of its shard.
    Body {
        number: BodyNumber,
        message: Message,
    },
    /// No entry refers to it any more.
    BodyDone(BodyNumber),
    /// The same, and every entry that did was acknowledged: nothing that this batch says elsewhere stands for it.
    BodyReleased(BodyNumber),
    /// A delivery that one session owes its client.
    Entry(Box<StoredEntry>),
    /// It was given a place in the window, or sent again.
    Sent {
        number: EntryNumber,
        flight: Flight,
    },
    /// PUBREC came: what remains is PUBREL until PUBCOMP, and the body is nothing to it.
    Received(EntryNumber),
    /// It is finished, or given up.
    EntryDone(EntryNumber),
    /// Its client has it: whatever else is in this batch, it is owed to nobody.
    EntryAcknowledged(EntryNumber),
    /// A QoS 2 PUBLISH was taken over.
    Incoming {
        session: SessionKey,
        packet_id: PacketId,
    },
    /// Its PUBREL came.
    IncomingDone {
        session: SessionKey,
        packet_id: PacketId,
    },
    /// Nobody took the message, so its identifier is free. A move that ends so says it by itself, so that it may be said twice.
    IncomingRefused {
        session: SessionKey,
        packet_id: PacketId,
    },
    /// A message to publish at its time.
    Delayed(Box<StoredDelayed>),
    /// It was published: in the same batch, or move, as the entries that came of it.
    DelayedDone(DelayedNumber),
    /// It ended before its batch was sealed; no batch has one.
    Nothing,
}

impl Record {
    /// Bytes that it takes, without messages, wills and identifiers: those are on the account by themselves.
    pub fn size(&self) -> usize {
        let beside = match self {
            Record::Nothing => return 0,
            Record::Session(session) => size_of::<StoredSession>() + session.client_id.len(),
            Record::Subscribed(s) => size_of::<StoredSubscription>() + s.filter.len(),
            Record::Unsubscribed { filter, .. } => filter.len(),
            Record::Entry(_) => size_of::<StoredEntry>(),
            Record::Delayed(_) => size_of::<StoredDelayed>(),
            _ => 0,
        };
        size_of::<Record>() + beside
    }

    /// Returns the bytes that it takes in the store at most, about; 0 for what frees some.
    pub fn weight(&self) -> u64 {
        match self {
            Record::Session(s) => {
                256 + s.client_id.len() as u64 + s.will.as_ref().map_or(0, |w| w.size() as u64)
            }
            // By key, so pages are split where they are full.
            Record::Subscribed(s) => 2 * (64 + s.filter.len() as u64),
            Record::Body { message, .. } => stored_bytes(message.size()),
            Record::Delayed(delayed) => stored_bytes(delayed.message.size()),
            Record::Entry(entry) => {
                let share = entry.share.as_ref().map_or(0, |share| share.len());
                128 + (share + 8 * entry.ids.as_slice().len()) as u64
            }
            Record::Sent { .. } => 16,
            Record::Incoming { .. } => 32,
            _ => 0,
        }
    }
}

/// Bytes that a message of this size takes in the store at most: what does not fit a page has pages of its own.
pub fn stored_bytes(size: usize) -> u64 {
    let size = size as u64;
    size + size.min(8192) + 256
}

/// What the comings and goings of a client change of its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionState {
    pub key: SessionKey,
    /// As in [`StoredSession`].
    pub connected: bool,
    pub ends: Instant,
    pub will_due: Instant,
}

/// A session that outlives its connection.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredSession {
    pub key: SessionKey,
    pub client_id: Box<str>,
    /// Of its last connection.
    pub version: ProtocolVersion,
    /// Session Expiry Interval, seconds; 0xFFFF_FFFF never.
    pub expiry: u32,
    /// Whether it has a connection: if the broker dies, it expires counted from the last heartbeat.
    pub connected: bool,
    /// When it ends, if it is not connected.
    pub ends: Instant,
    pub will: Option<Arc<Will>>,
    /// When the will goes out, if it waits for its delay.
    pub will_due: Instant,
    /// What the client asked for, as granted; zero is off.
    pub retry_interval: Option<Duration>,
    pub ack_timeout: Option<Duration>,
}

/// A subscription of such a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSubscription {
    pub session: SessionKey,
    /// In full, `$share/...` included.
    pub filter: Box<str>,
    /// As the Subscription Options byte of 5.0.
    pub options: u8,
    /// 0 is none.
    pub subscription_id: u32,
}

/// A delivery: which message, to whom, how.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredEntry {
    pub number: EntryNumber,
    pub session: SessionKey,
    pub body: BodyNumber,
    /// 1 or 2: the lower of publish and granted QoS.
    pub qos: QoS,
    pub retain: bool,
    pub ids: SubscriptionIds,
    /// The shared subscription it came by, in full.
    pub share: Option<Arc<Box<str>>>,
    /// Once it was sent.
    pub flight: Option<Flight>,
}

/// A delivery's place in the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flight {
    /// The running number that its Packet Identifier follows from.
    pub running: u64,
    /// How often it was sent, over all connections.
    pub transmissions: u16,
}

/// A message that is published later.
#[derive(Clone, Debug)]
pub struct StoredDelayed {
    pub number: DelayedNumber,
    pub due: Instant,
    pub message: Message,
}

/// A change to a retained message. Shards share these, so they have one order of their own.
#[derive(Clone, Debug)]
pub enum RetainedRecord {
    Set(Message),
    Removed(Box<str>),
}

/// What one shard recorded in one turn: committed whole or not at all.
#[derive(Debug, Default)]
pub struct Batch {
    pub shard: u8,
    pub lsn: Lsn,
    /// Records that cancelled each other out before they came here, for the figures.
    pub cancelled: u64,
    /// What all of it takes; messages are on the account by themselves.
    pub charge: Charge,
    pub records: Vec<Record>,
    /// What this shard began and others take part in: this batch is committed with all those parts, or not yet.
    pub moves: Vec<Move>,
    /// This shard's parts of others' moves: each is committed with the batch that its move stands in.
    pub parts: Vec<Part>,
}

/// A message taken over by several shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    pub number: MoveNumber,
    /// Parts that belong to it, besides the batch it stands in. They always come, be they empty. One for each peer, and one more for
    /// each shared group whose member is at one.
    pub parts: u32,
    /// What it came to in the batch's own shard.
    pub outcome: Outcome,
    /// The identifier of its PUBLISH, where a publisher's session keeps one: it is not taken over with a message that nobody
    /// took.
    pub incoming: Option<(SessionKey, PacketId)>,
}

/// One other shard's part of a move.
#[derive(Debug)]
pub struct Part {
    pub of: MoveNumber,
    pub records: Vec<Record>,
    /// Parts of other shards that belong to the move besides those it named: this one passed a shared message on.
    pub more: u32,
    /// What it came to.
    pub outcome: Outcome,
}

/// What a shard is told when a batch, and with it all before it, is as safe as the durability says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    pub shard: u8,
    pub lsn: Lsn,
}

/// All that was kept, at the start.
#[derive(Debug, Default)]
pub struct Recovered {
    /// Above every number that was ever given for a session, entry, body or delayed message.
    pub next_number: u64,
    /// How long the broker was down, from the last heartbeat.
    pub down: Duration,
    pub sessions: Vec<RecoveredSession>,
    /// Unsent deliveries that sessions left behind which have ended: of shared subscriptions, others of their groups are to have
    /// them, the rest is to be counted. None that was begun: it ended with its session, 5.0 [MQTT-4.8.2-5].
    pub heirless: Vec<RecoveredEntry>,
    pub retained: Vec<Message>,
    /// Those due before the horizon that was asked for; the others stay where they are.
    pub delayed: Vec<StoredDelayed>,
    /// Every one, with its size as [`Message::size`] says it, about.
    pub delayed_in_all: Vec<(DelayedNumber, usize)>,
}

/// A session and what belongs to it.
#[derive(Debug)]
pub struct RecoveredSession {
    pub session: StoredSession,
    pub subscriptions: Vec<StoredSubscription>,
    pub incoming: Vec<PacketId>,
    /// In the order of their numbers.
    pub entries: Vec<RecoveredEntry>,
}

/// A delivery as it is known without its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveredEntry {
    pub number: EntryNumber,
    /// None once PUBREC came.
    pub body: Option<RecoveredBody>,
    pub qos: QoS,
    pub flight: Option<Flight>,
    /// Whether it came by a shared subscription.
    pub shared: bool,
}

impl RecoveredEntry {
    /// Whether somebody is to see to it, if its session is gone.
    pub fn is_heirless(&self) -> bool {
        self.body.is_some() && self.flight.is_none()
    }
}

/// A message as it is known without its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveredBody {
    pub number: BodyNumber,
    /// As [`Message::size`].
    pub size: u32,
    pub expires: Instant,
}

/// A delivery that was read back.
#[derive(Clone, Debug)]
pub struct ReadEntry {
    pub number: EntryNumber,
    pub message: Message,
    pub qos: QoS,
    pub retain: bool,
    pub ids: SubscriptionIds,
    pub share: Option<Arc<Box<str>>>,
}

/// A body under another number, for these entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyCopy {
    pub from: BodyNumber,
    pub to: BodyNumber,
    pub entries: Vec<EntryNumber>,
}
