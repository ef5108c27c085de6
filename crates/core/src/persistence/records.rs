//! The records that a shard sends to the store: one record per change, in the order of the changes.
//!
//! A record adds, replaces or removes something; it never asks. Its times are those of this
//! process. The store writes them as file time (`src/store/wall.rs`), which no change of the clock shifts,
//! so expiry goes on while the broker is down.

use crate::mqtt::charge::Charge;
use crate::mqtt::message::Message;
use crate::mqtt::outcome::Outcome;
use crate::mqtt::owner::Owner;
use crate::mqtt::packet::{PacketId, ProtocolVersion, QoS};
use crate::mqtt::retained_message::RetainedMessage;
use crate::mqtt::subscription_ids::SubscriptionIds;
use crate::mqtt::will::Will;
use crate::persistence::letter::{LetterNumber, StoredLetter};
use crate::time::Instant;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// The key of a session in the store. A key is never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionKey(pub u64);

/// The number of one delivery of one session, in its queue and then in its window. A session's
/// entries stand in the order of their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntryNumber(pub u64);

/// The number of a message that entries of one shard share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BodyNumber(pub u64);

/// The number of a message that is published at a later time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DelayedNumber(pub u64);

/// The number of a transaction: a change that several shards commit together, or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TransactionNumber(pub u64);

/// The number of a batch of one shard. Batches count up from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lsn(pub u64);

/// One change.
#[derive(Clone, Debug)]
pub enum Record {
    /// A session with all its fields; replaces its earlier record.
    Session(Box<StoredSession>),
    /// The part of a stored session that connecting and disconnecting changes. The Will Message is
    /// not written again.
    SessionState(SessionState),
    /// The session ended, with its subscriptions and incoming identifiers. Its entries have records
    /// of their own.
    SessionEnded(SessionKey),
    /// A subscription, in place of an earlier one with the same filter.
    Subscribed(Box<StoredSubscription>),
    /// A subscription was removed.
    Unsubscribed {
        /// The session.
        session: SessionKey,
        /// The Topic Filter in full.
        filter: Box<str>,
    },
    /// A message, once for all entries of its shard.
    Body {
        /// The message's number.
        number: BodyNumber,
        /// The message.
        message: Message,
    },
    /// No entry refers to the message any more.
    BodyDone(BodyNumber),
    /// No entry refers to the message any more, and each was acknowledged. No other record of this
    /// batch concerns the message.
    BodyReleased(BodyNumber),
    /// A delivery that one session owes its client.
    Entry(Box<StoredEntry>),
    /// The delivery got a place in the window, or was sent again. Recorded before its first byte is
    /// written, so after a crash nobody knows if the client has it.
    Sent {
        /// The delivery's number.
        number: EntryNumber,
        /// The present place in the window.
        flight: Flight,
    },
    /// PUBREC came. PUBREL until PUBCOMP remains; the body is not needed any more.
    Received(EntryNumber),
    /// The delivery is finished or dropped.
    EntryDone(EntryNumber),
    /// The client has the message. Whatever else this batch says, nobody waits for this delivery.
    EntryAcknowledged(EntryNumber),
    /// A QoS 2 PUBLISH was accepted.
    Incoming {
        /// The publisher's session.
        session: SessionKey,
        /// The Packet Identifier that the client chose.
        packet_id: PacketId,
    },
    /// PUBREL came.
    IncomingDone {
        /// The publisher's session.
        session: SessionKey,
        /// The Packet Identifier that the client chose.
        packet_id: PacketId,
    },
    /// No receiver took the message, so its identifier is free. A transaction with this outcome
    /// frees the identifier too, so this may be recorded twice.
    IncomingRefused {
        /// The publisher's session.
        session: SessionKey,
        /// The Packet Identifier that the client chose.
        packet_id: PacketId,
    },
    /// A message to publish at a later time.
    Delayed(Box<StoredDelayed>),
    /// A delayed message was published, in the same batch or transaction as the entries it led to.
    DelayedDone(DelayedNumber),
    /// A dead letter. Shared with the shard, which keeps it in memory.
    Letter(Arc<StoredLetter>),
    /// A dead letter was republished, in the same batch or transaction as the entries it led to, or
    /// it was deleted.
    LetterDone(LetterNumber),
    /// The place of a record that ended before its batch was sealed. No sealed batch has one.
    Nothing,
}

impl Record {
    /// Returns the bytes that the record takes in memory. Messages, wills and identifiers have
    /// charges of their own.
    pub fn size(&self) -> usize {
        let beside = match self {
            Record::Nothing => return 0,
            Record::Session(session) => {
                size_of::<StoredSession>() + session.client_id.len() + session.access.len()
            }
            Record::Subscribed(s) => size_of::<StoredSubscription>() + s.filter.len(),
            Record::Unsubscribed { filter, .. } => filter.len(),
            Record::Entry(_) => size_of::<StoredEntry>(),
            Record::Delayed(_) => size_of::<StoredDelayed>(),
            _ => 0,
        };
        size_of::<Record>() + beside
    }

    /// Returns an upper estimate of the bytes that the record takes in the store; 0 if it frees
    /// some.
    pub fn weight(&self) -> u64 {
        match self {
            Record::Session(s) => {
                let texts = (s.client_id.len() + s.access.len()) as u64;
                256 + texts + s.will.as_ref().map_or(0, |w| w.size() as u64)
            }
            // Rows are stored by key, so full pages are split.
            Record::Subscribed(s) => 2 * (64 + s.filter.len() as u64),
            Record::Body { message, .. } => stored_bytes(message.size()),
            Record::Delayed(delayed) => stored_bytes(delayed.message.size()),
            Record::Letter(letter) => stored_bytes(letter.size()),
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

/// Returns the most bytes that a message of this size takes in the store. A message that does not
/// fit a page has pages of its own.
pub fn stored_bytes(size: usize) -> u64 {
    let size = size as u64;
    size + size.min(8192) + 256
}

/// The part of a session that connecting and disconnecting changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionState {
    /// The session.
    pub key: SessionKey,
    /// As in [`StoredSession`].
    pub connected: bool,
    /// As in [`StoredSession`].
    pub ends: Instant,
    /// As in [`StoredSession`].
    pub will_due: Instant,
}

/// A session that outlives its connection.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredSession {
    /// The session's key.
    pub key: SessionKey,
    /// The Client Identifier.
    pub client_id: Box<str>,
    /// The protocol version of the last connection.
    pub version: ProtocolVersion,
    /// The Session Expiry Interval in seconds; 0xFFFF_FFFF is never.
    pub expiry: u32,
    /// True while the client is connected. If the broker dies then, the session expires counted
    /// from the last heartbeat.
    pub connected: bool,
    /// The end of the session, if the client is not connected.
    pub ends: Instant,
    /// The Will Message.
    pub will: Option<Arc<Will>>,
    /// The time of the Will Message's publication, while its delay runs.
    pub will_due: Instant,
    /// The retry interval that the client requested, as granted. Zero is off.
    pub retry_interval: Option<Duration>,
    /// The ack timeout that the client requested, as granted. Zero is off.
    pub ack_timeout: Option<Duration>,
    /// The verified user who owns the session; `None` if nobody does.
    pub user_name: Option<Box<str>>,
    /// The other facts that decide which topics the client may write and read.
    pub access: StoredAccess,
}

/// The facts of a session, beside its owner, for the rules about topics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct StoredAccess {
    /// The user name that the client claimed, if nothing verified it.
    pub claimed_name: Option<Box<str>>,
    /// The rules of the session alone, as text; `None` if the ACL file counts.
    pub rules: Option<Box<str>>,
    /// The listener by which the client came last, if it has an ACL file of its own.
    pub listener: Option<Box<str>>,
    /// The mount point behind which the client came last; `None` without one, and for a session
    /// that a store of version 8 or before had.
    pub mount_point: Option<Box<str>>,
}

impl StoredAccess {
    fn len(&self) -> usize {
        let StoredAccess { claimed_name, rules, listener, mount_point } = self;
        [claimed_name, rules, listener, mount_point].into_iter().flatten().map(|text| text.len()).sum()
    }
}

/// A subscription of a stored session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSubscription {
    /// The session.
    pub session: SessionKey,
    /// The Topic Filter in full, `$share/...` included.
    pub filter: Box<str>,
    /// The Subscription Options byte of 5.0.
    pub options: u8,
    /// The Subscription Identifier; 0 without one.
    pub subscription_id: u32,
}

/// A delivery: which message, to whom, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredEntry {
    /// The delivery's number.
    pub number: EntryNumber,
    /// The receiver.
    pub session: SessionKey,
    /// The message.
    pub body: BodyNumber,
    /// The lower of published and granted QoS: 1 or 2.
    pub qos: QoS,
    /// The RETAIN flag.
    pub retain: bool,
    /// The Subscription Identifiers.
    pub ids: SubscriptionIds,
    /// The shared subscription that the message came by, in full.
    pub share: Option<Arc<Box<str>>>,
    /// The place in the window, once the delivery was sent.
    pub flight: Option<Flight>,
}

/// The place of a delivery in the in-flight window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flight {
    /// The running number that determines the Packet Identifier.
    pub running: u64,
    /// Transmissions over all connections; 0 if the message was dropped and its Packet Identifier
    /// is withheld, because no PUBREC came.
    pub transmissions: u16,
}

impl Flight {
    /// Creates the place of a Packet Identifier that is in use without a message.
    pub fn withheld(running: u64) -> Flight {
        Flight { running, transmissions: 0 }
    }

    /// Creates the place of a PUBREL whose message was dropped before its PUBREC. The number of its
    /// transmissions is not known any more, but there was one.
    pub fn dropped(running: u64) -> Flight {
        Flight { running, transmissions: 1 }
    }

    /// True if the message was dropped and its Packet Identifier is withheld. A message has at
    /// least one transmission when its place is recorded.
    pub fn is_withheld(self) -> bool {
        self.transmissions == 0
    }
}

/// A message that is published later.
#[derive(Clone, Debug)]
pub struct StoredDelayed {
    /// The message's number.
    pub number: DelayedNumber,
    /// The time of the message's publication.
    pub due: Instant,
    /// The message.
    pub message: Message,
    /// The client for which the message counts; `None` if it counts for nobody.
    pub owner: Option<Arc<Owner>>,
}

/// The count of a delayed message that is in the store.
#[derive(Clone, Debug)]
pub struct CountedDelayed {
    /// The message's number.
    pub number: DelayedNumber,
    /// The [`Message::size`].
    pub size: usize,
    /// The client for which the message counts.
    pub owner: Option<Arc<Owner>>,
}

/// A change to a retained message. The shards share the retained messages, so these changes have an
/// order of their own.
#[derive(Clone, Debug)]
pub enum RetainedRecord {
    /// The topic has this retained message now.
    Set(RetainedMessage),
    /// The topic has no retained message any more.
    Removed(Removed),
}

/// A topic whose retained message was removed. Charged until the removal is committed.
#[derive(Clone, Debug)]
pub struct Removed {
    topic: Box<str>,
    _charge: Charge,
}

impl Removed {
    /// Returns the Topic Name.
    pub fn topic(&self) -> &str {
        &self.topic
    }
}

impl From<&str> for Removed {
    fn from(topic: &str) -> Removed {
        Removed { topic: topic.into(), _charge: Charge::new(topic.len() + size_of::<RetainedRecord>()) }
    }
}

/// The records of one shard that are sealed together, and committed together or not at all.
#[derive(Debug, Default)]
pub struct Batch {
    /// The number of the shard.
    pub shard: u8,
    /// The number of the batch.
    pub lsn: Lsn,
    /// Number of records that cancelled each other out before the batch was sealed, for the
    /// statistics.
    pub cancelled: u64,
    /// The charge of the records. Messages have charges of their own.
    pub charge: Charge,
    /// The records, in order.
    pub records: Vec<Record>,
    /// Transactions that this shard began. The batch is committed together with all their
    /// participants.
    pub transactions: Vec<Transaction>,
    /// This shard's parts of transactions that others began. Each part is committed with the batch
    /// that began its transaction.
    pub participants: Vec<Participant>,
}

/// A message that several shards accept in one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// The transaction's number.
    pub number: TransactionNumber,
    /// Number of participants besides the batch itself. Each always sends its part, even an empty
    /// one. Each peer is a participant, and counts once more for each shared group whose chosen
    /// member it has.
    pub participants: u32,
    /// The outcome in the batch's own shard.
    pub outcome: Outcome,
    /// The session and identifier of the PUBLISH, if it is QoS 2 and its session is stored. The
    /// identifier is not stored if no receiver took the message.
    pub incoming: Option<(SessionKey, PacketId)>,
}

/// The part of one other shard in a transaction.
#[derive(Debug)]
pub struct Participant {
    /// The transaction's number.
    pub of: TransactionNumber,
    /// The records of this part.
    pub records: Vec<Record>,
    /// Further participants that this shard added, because it passed a shared message on.
    pub more: u32,
    /// The outcome in this shard.
    pub outcome: Outcome,
}

/// Reports to a shard that this batch and all before it are as safe as the durability setting says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The number of the shard.
    pub shard: u8,
    /// The number of the batch.
    pub lsn: Lsn,
}

/// Everything that a start finds in the store.
#[derive(Debug, Default)]
pub struct Recovered {
    /// A number above every number that was ever given to a session, entry, body, delayed message
    /// or dead letter.
    pub next_number: u64,
    /// The downtime of the broker, counted from the last heartbeat.
    pub down: Duration,
    /// Counts the rows that were read and the sessions that were taken up, for who watches that a
    /// start goes on.
    pub progress: Arc<AtomicU64>,
    /// The stored sessions.
    pub sessions: Vec<RecoveredSession>,
    /// Unsent deliveries of sessions that have ended. Deliveries of shared subscriptions go to
    /// other members of their groups; the rest is counted as dropped. No delivery that was begun is
    /// here: such a delivery ended with its session, 5.0 [MQTT-4.8.2-5].
    pub orphaned: Vec<RecoveredEntry>,
    /// The retained messages.
    pub retained: Vec<RetainedMessage>,
    /// Delayed messages that are due before the requested horizon. The others stay in the store.
    pub delayed: Vec<StoredDelayed>,
    /// Every delayed message. The totals subtract for a message exactly what they added.
    pub delayed_in_all: Vec<CountedDelayed>,
    /// All dead letters.
    pub letters: Vec<StoredLetter>,
}

/// A session with everything that belongs to it.
#[derive(Debug)]
pub struct RecoveredSession {
    /// The session.
    pub session: StoredSession,
    /// Its subscriptions.
    pub subscriptions: Vec<StoredSubscription>,
    /// Its QoS 2 identifiers between PUBLISH and PUBREL.
    pub incoming: Vec<PacketId>,
    /// Its deliveries, in the order of their numbers.
    pub entries: Vec<RecoveredEntry>,
}

/// A stored delivery without its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveredEntry {
    /// The delivery's number.
    pub number: EntryNumber,
    /// The message; `None` once PUBREC came.
    pub body: Option<RecoveredBody>,
    /// The lower of published and granted QoS.
    pub qos: QoS,
    /// The place in the window, once the delivery was sent.
    pub flight: Option<Flight>,
    /// True if the message came by a shared subscription.
    pub shared: bool,
    /// Number of Subscription Identifiers.
    pub ids: u32,
}

impl RecoveredEntry {
    /// True if the delivery needs a new owner when its session is gone.
    // 5.0 [MQTT-4.8.2-5]: a QoS 2 delivery that was begun with one receiver goes to no other.
    pub fn is_orphaned(&self) -> bool {
        self.body.is_some() && (self.flight.is_none() || self.qos != QoS::ExactlyOnce)
    }
}

/// A stored message without its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveredBody {
    /// The message's number.
    pub number: BodyNumber,
    /// The size in bytes, as in [`Message::size`].
    pub size: u32,
    /// The expiry of the message, or [`Instant::NEVER`].
    pub expires: Instant,
}

/// A delivery that was read back from the store.
#[derive(Clone, Debug)]
pub struct ReadEntry {
    /// The delivery's number.
    pub number: EntryNumber,
    /// The message.
    pub message: Message,
    /// The lower of published and granted QoS.
    pub qos: QoS,
    /// The RETAIN flag.
    pub retain: bool,
    /// The Subscription Identifiers.
    pub ids: SubscriptionIds,
    /// The shared subscription that the message came by, in full.
    pub share: Option<Arc<Box<str>>>,
}

/// The order to copy a body under another number, for these entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyCopy {
    /// The body to copy.
    pub from: BodyNumber,
    /// The number of the copy.
    pub to: BodyNumber,
    /// The entries that refer to the copy from now on.
    pub entries: Vec<EntryNumber>,
}
