//! One shard: sessions, their connections, its part of the routing, as a pure state machine.
//!
//! A shell (`crate::broker::shard`) feeds it bytes, verdicts and parcels with the time, and carries out what it finds in
//! [`Effects`] at the end of the turn. So the same shard runs under actix and in a simulation.
//!
//! | file | what |
//! |---|---|
//! | `admission` | whether there is memory and disk for a change |
//! | `connection` | what a connection has read and waits to write, its deadlines |
//! | `receive` | bytes to packets to the session |
//! | `connect` | CONNECT: refusal, take-over, session present |
//! | `publish` | admission of a PUBLISH, retained, acknowledgement |
//! | `route` | from a publication to its receivers |
//! | `deliver` | one message to one session |
//! | `share` | the choice in a shared group |
//! | `subscribe` | SUBSCRIBE, UNSUBSCRIBE, and when they are in force everywhere |
//! | `suback` | their answers, and what is retained behind a SUBACK |
//! | `exchange` | parcels and tickets between shards |
//! | `deadline` | what the expiry actor is told, and its verdicts |
//! | `parcels` | what came from a peer |
//! | `commit` | what waits until the store has it |
//! | `record` | what the store is told of sessions |
//! | `recover` | what the store had |
//! | `homes` | that, shared out among the shards |
//! | `delayed` | what is published later |
//! | `hold` | messages that wait for room in a full queue |
//! | `leave` | connections and sessions that end, wills |
//! | `given_up` | messages that a session will not get, told of by client |
//! | `dead_letter` | such messages, published for whoever wants to know |
//! | `totals` | limits that are the whole broker's |
//! | `last_disconnect` | why a client was last disconnected |
//! | `report` | what the event topics are told of a client |
//! | `census` | what it holds, counted |
//! | `waiting` | who has waited longest for an acknowledgement |
//! | `wish` | what a client asks for about its own redelivery |
//! | `fan` | a publication that takes more than a turn |
//! | `turn` | how much one turn does, and what goes on in a later one |
//! | `slots` | ids |

mod admission;
pub mod census;
pub mod commit;
mod connect;
pub mod connection;
mod dead_letter;
pub mod deadline;
pub mod delayed;
mod deliver;
pub mod effects;
mod estate;
pub mod exchange;
mod fan;
mod given_up;
mod hold;
pub mod homes;
mod last_disconnect;
mod leave;
mod parcels;
mod publish;
pub mod receive;
mod record;
pub mod recover;
pub mod report;
mod route;
mod share;
pub mod slots;
mod suback;
mod subscribe;
pub mod totals;
pub mod turn;
pub mod waiting;
mod wish;

use crate::mqtt::charge::{Budget, Charge};
use crate::mqtt::outbox::Outbox;
use crate::mqtt::session::rules::Rules;
use crate::mqtt::session::sender::Tally;
use crate::mqtt::session::wire::{Frame, FrameKind};
use crate::mqtt::session::{Session, SessionPolicy};
use crate::routing::retained::Retained;
use crate::routing::subscription_tree::{GroupId, Matches, ShardId, ShardSet, SubscriptionTree};
use crate::time::Instant;
use commit::Stored;
pub use connect::home_of;
use connection::{Connection, Leaves, Pause, Phase};
use dead_letter::{Letter, WallClock};
use delayed::{Delayed, DelayedLimits};
use effects::{Effects, Event};
use estate::Estates;
use exchange::Peer;
use fan::Fans;
use given_up::GivenUp;
use hashbrown::{HashMap, HashTable};
use hold::Held;
pub use receive::Progress;
use slots::{Id, Slots};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use subscribe::Fence;
use totals::Totals;
use turn::{Jobs, Turn};

pub type ConnectionId = Id<Connection>;
pub type SessionId = Id<Resident>;

/// What the operator settled, as the shard needs it.
#[derive(Clone, Debug)]
pub struct Settings {
    pub session: SessionPolicy,
    /// Bytes of a packet from a client at most.
    pub packet_size: u32,
    pub connect_timeout: Duration,
    pub write_timeout: Duration,
    /// Sessions in all shards at most.
    pub sessions: usize,
    /// Seconds; 0xFFFF_FFFF is no bound.
    pub session_expiry: u32,
    pub topic_levels: usize,
    pub subscriptions_per_client: usize,
    pub topic_alias_maximum: u16,
    /// Seconds; 0 is no maximum.
    pub keep_alive_maximum: u16,
    /// Whether a 3.x client may do without a keep alive.
    pub allow_never: bool,
    /// How long a publisher's acknowledgement waits for room under the policy `hold`.
    pub hold_timeout: Duration,
    pub expiry_interval: Duration,
    /// See [`turn::STEPS_PER_TURN`].
    pub steps_per_turn: u32,
    pub delayed: DelayedLimits,
    /// Clients at most, of all shards, of which it is kept why they were last disconnected.
    pub last_disconnects: usize,
    /// Whether anybody wants [`Effects::reports`].
    pub reports: bool,
}

/// What all shards of a broker share. The retained messages have one order per topic, so they stand in one place; the
/// lock is taken for retained publishes and for SUBSCRIBE alone.
#[derive(Debug)]
pub struct Common {
    pub retained: Mutex<Retained>,
    /// What clients make the broker hold, and how much that may be.
    pub budget: Arc<Budget>,
    /// What packets that are not whole may hold of it: they cannot starve the messages.
    pub partial: PartialShare,
    /// Set while the store has no room: what would have to be stored is refused.
    pub store_full: AtomicBool,
    pub totals: Totals,
    /// Bytes that may be on their way to the store before it is full; negative beyond that, `i64::MAX` while there is plenty.
    pub store_room: AtomicI64,
}

/// The bytes of packets that are not whole, in all shards, and how many there may be.
#[derive(Debug)]
pub struct PartialShare {
    /// As each shard told last.
    held: AtomicI64,
    most: AtomicI64,
}

impl PartialShare {
    pub fn new(most: u64) -> PartialShare {
        let share = PartialShare { held: AtomicI64::new(0), most: AtomicI64::new(0) };
        share.limit(most);
        share
    }

    /// Changes how many there may be.
    pub fn limit(&self, most: u64) {
        self.most.store(i64::try_from(most).unwrap_or(i64::MAX), Ordering::Relaxed);
    }

    fn tell(&self, grown: i64) {
        self.held.fetch_add(grown, Ordering::Relaxed);
    }

    /// Whether there are too many; `untold`: what a shard has besides what it told.
    fn is_exceeded(&self, untold: i64) -> bool {
        self.held.load(Ordering::Relaxed) + untold > self.most.load(Ordering::Relaxed)
    }
}

impl Common {
    pub fn retained(&self) -> MutexGuard<'_, Retained> {
        // A panic is fatal in this process, so a poisoned lock is never met outside tests.
        self.retained.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A session that lives in this shard, with its connection if it has one.
#[derive(Debug)]
pub struct Resident {
    pub session: Session,
    pub connection: Option<ConnectionId>,
    /// When the session ends; [`Instant::NEVER`] while connected.
    pub ends: Instant,
    /// When its will goes out; [`Instant::NEVER`] unless one waits.
    pub will_due: Instant,
    /// Messages that wait for room in its queue, under the policy `hold`.
    #[expect(
        clippy::box_collection,
        reason = "8 bytes in every session where 32 would nearly always be empty"
    )]
    held: Option<Box<VecDeque<Held>>>,
    /// What the expiry actor was told of the earliest of these.
    pub registered: crate::expiry::lazy::Registered,
}

/// One shard.
#[derive(Debug)]
pub struct Shard {
    pub here: ShardId,
    shards: u8,
    settings: Settings,
    common: Arc<Common>,
    connections: Slots<Connection>,
    sessions: Slots<Resident>,
    /// Sessions by client id: the slot alone, the id stands in the session.
    clients: HashTable<u32>,
    tree: SubscriptionTree,
    /// Full filters of the shared groups, for deliveries that may have to go to another member.
    shares: HashMap<GroupId, Arc<Box<str>>, foldhash::fast::FixedState>,
    shares_charge: Charge,
    peers: Vec<Peer>,
    fences: HashMap<u64, Fence, foldhash::fast::FixedState>,
    next_fence: u64,
    /// Connections that wait until a peer has room.
    waiting_for_peer: Vec<(ConnectionId, ShardSet)>,
    /// Receivers to cut, under the policy `disconnect`.
    overfull: Vec<ConnectionId>,
    /// Receivers whose queue may have room for what is held.
    to_admit: Vec<SessionId>,
    /// Where sessions are stored.
    stored: Option<Box<Stored>>,
    stopping: bool,
    delayed: Delayed,
    rules: Rules,
    given_up: GivenUp,
    /// Dead letters of this turn.
    letters: Vec<Letter>,
    /// What sessions that ended have left in the store.
    estates: Estates,
    /// Whether a message keeps who published it, for its dead letter.
    keeps_publisher: bool,
    wall: WallClock,
    /// When the machine woke from its last suspend: peers had no time to speak before.
    awake_since: Instant,
    /// Kept from publish to publish so that none allocates.
    matches: Matches,
    frames: [Frame; FrameKind::COUNT],
    scratch: Vec<u8>,
    topic: String,
    publisher: String,
    ids: Vec<u32>,
    pool: Vec<Vec<u8>>,
    /// Bytes appended to outboxes since the last flush, about.
    unflushed: usize,
    /// Steps of the present turn.
    turn: Turn,
    /// What goes on in a later turn.
    jobs: Jobs,
    fans: Fans,
    /// Connections established.
    connected: usize,
    /// Bytes held of packets that are not whole.
    partial_bytes: usize,
    /// As last told to the total.
    told_partial: i64,
    /// Connections with more than a little of it, and some that had.
    large_partials: Vec<ConnectionId>,
    received: u64,
    seed: u64,
    tally: Tally,
    effects: Effects,
}

/// Figures of a shard, for `$SYS`.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    pub connected: u64,
    pub sessions: u64,
    pub subscriptions: u64,
    pub received: u64,
    pub partial_bytes: u64,
    pub tally: Tally,
}

impl Figures {
    pub fn add(&mut self, other: &Figures) {
        self.connected += other.connected;
        self.sessions += other.sessions;
        self.subscriptions += other.subscriptions;
        self.received += other.received;
        self.partial_bytes += other.partial_bytes;
        self.tally.add(&other.tally);
    }
}

/// Buffers that idle outboxes leave behind, at most; and the largest that is kept.
const POOLED: usize = 256;
const POOLED_CAPACITY: usize = 64 * 1024;

/// Bytes appended to outboxes in one turn beyond which they are flushed before more is read.
const TURN: usize = 256 * 1024;

impl Shard {
    /// The shard `here` of `shards`. `seed` settles what would else be random: assigned client ids, jitter.
    pub fn new(here: ShardId, shards: u8, settings: Settings, common: Arc<Common>, seed: u64) -> Shard {
        let rules = Rules::new(&settings.session.send.terms, &settings.session.send.rules);
        let turn = Turn::new(settings.steps_per_turn);
        Shard {
            here,
            shards,
            keeps_publisher: rules.keep_dead_letters(),
            rules,
            settings,
            common,
            connections: Slots::default(),
            sessions: Slots::default(),
            clients: HashTable::new(),
            tree: SubscriptionTree::new(here),
            shares: HashMap::default(),
            shares_charge: Charge::NONE,
            peers: (0..shards).map(|_| Peer::default()).collect(),
            fences: HashMap::default(),
            next_fence: 0,
            waiting_for_peer: Vec::new(),
            overfull: Vec::new(),
            to_admit: Vec::new(),
            stored: None,
            stopping: false,
            delayed: Delayed::default(),
            given_up: GivenUp::default(),
            letters: Vec::new(),
            estates: Estates::default(),
            wall: WallClock::default(),
            awake_since: Instant::ZERO,
            matches: Matches::default(),
            frames: Default::default(),
            scratch: Vec::new(),
            topic: String::new(),
            publisher: String::new(),
            ids: Vec::new(),
            pool: Vec::new(),
            unflushed: 0,
            turn,
            jobs: Jobs::new(),
            fans: Fans::default(),
            connected: 0,
            partial_bytes: 0,
            told_partial: 0,
            large_partials: Vec::new(),
            received: 0,
            seed,
            tally: Tally::default(),
            effects: Effects::default(),
        }
    }

    /// A socket was accepted, or came from another shard.
    pub fn accept(&mut self, now: Instant) -> ConnectionId {
        let seed = self.random();
        let id = self.connections.insert(Connection::accepted(now, self.settings.connect_timeout, seed));
        self.register_read_idle(id);
        id
    }

    /// What the turn asks of the shell, so far.
    pub fn effects(&mut self) -> &mut Effects {
        &mut self.effects
    }

    /// Whether the turn left anything for the shell to do.
    pub fn has_work(&self) -> bool {
        !self.effects.is_empty()
            || !self.overfull.is_empty()
            || self.has_jobs()
            || !self.to_admit.is_empty()
            || !self.letters.is_empty()
            || self.estates.is_nudged()
            || self.peers.iter().any(Peer::has_outgoing)
            || self.ledger().is_some_and(|l| l.is_due())
    }

    /// Ends the turn between shards: what each peer is sent.
    pub fn seal_parcels(&mut self) {
        if self.fans.holds_seals() {
            return;
        }
        for at in 0..self.peers.len() {
            if let Some(parcel) = self.peers[at].seal(self.here) {
                self.effects.parcels.push((ShardId(at as u8), parcel));
            }
        }
    }

    /// The outbox of a connection that is to be flushed.
    pub fn outbox(&mut self, id: ConnectionId) -> Option<&mut Outbox> {
        let outbox = &mut self.connections.get_mut(id)?.wire.outbox;
        if let Some(stored) = &self.stored {
            outbox.committed(stored.ledger.last_committed());
        }
        Some(outbox)
    }

    /// All dirty connections are about to be flushed.
    pub fn flush_begins(&mut self, now: Instant) {
        debug_assert!(!self.tally.losses.are_untold(), "every loss is settled with its session");
        self.cut_overfull(now);
        self.admit_held_of_all(now);
        if self.estates.is_nudged() {
            self.settle_estates(now);
        }
        self.post_letters(now);
        self.release_finished(now);
        self.unflushed = 0;
    }

    /// The turn ended before these were flushed, in their order before those that are dirty since. Whoever publishes waits for
    /// them: else it would fill outboxes faster than they are written.
    pub fn flush_stopped(&mut self, mut rest: Vec<ConnectionId>) {
        rest.append(&mut self.effects.dirty);
        self.effects.dirty = rest;
        self.unflushed = self.unflushed.max(TURN);
    }

    /// One connection was flushed as far as its socket takes bytes; `progress`: it took some, `drained`: all. Answers
    /// whether the connection is closing and has nothing left to write.
    pub fn flushed(&mut self, now: Instant, id: ConnectionId, wrote: usize) -> Flushed {
        self.turn.charge_write(wrote);
        let Some(connection) = self.connections.get_mut(id) else { return Flushed::Gone };
        connection.dirty = false;
        let drained = connection.wire.outbox.reset_if_drained();
        if drained {
            connection.blocked = None;
            let buffer = connection.wire.outbox.reclaim();
            if self.pool.len() < POOLED && (1..=POOLED_CAPACITY).contains(&buffer.capacity()) {
                self.pool.push(buffer);
            }
        } else if connection.wire.outbox.writable() == 0 {
            // Not the socket's doing.
            connection.blocked = None;
            if let Some(stored) = &mut self.stored
                && !connection.fenced
            {
                connection.fence(now);
                stored.fenced.push(id);
            }
        } else if wrote > 0 || connection.blocked.is_none() {
            connection.blocked = Some(now);
        }
        let fenced = connection.fenced;
        let closing = connection.is_closing();
        if drained && let Phase::Closing { leaves, .. } = connection.phase {
            return Flushed::Finished(leaves);
        }
        if !drained {
            self.register_write_idle(id);
        }
        if !closing && wrote > 0 {
            self.has_room(now, id);
        }
        match (drained, fenced) {
            (true, _) => Flushed::Drained,
            (_, true) => Flushed::Fenced,
            _ => Flushed::Blocked,
        }
    }

    /// Bytes left the outbox: what waited for that goes on.
    fn has_room(&mut self, now: Instant, id: ConnectionId) {
        let Shard { connections, sessions, settings, tally, .. } = self;
        let Some(connection) = connections.get_mut(id) else { return };
        let Some(session) = connection.session else { return };
        let Some(resident) = sessions.get_mut(session) else { return };
        let waits = resident.session.sender.has_waiting() || resident.holds();
        let paused = connection.pauses.has(Pause::Outbox);
        if !waits && !paused {
            return;
        }
        let policy = &settings.session.send;
        if connection.wire.outbox.len() >= policy.outbox / 2 {
            return;
        }
        if waits {
            connection.wire.outbox.lend(&mut self.pool);
            resident.session.sender.pump(now, &mut connection.wire, policy, tally);
            self.settle_losses(session);
            self.admit_held(now, session);
            self.touch(id);
            self.register_retransmit(now, id);
            self.fetch(session);
        }
        if paused {
            self.unpause(now, id, Pause::Outbox);
        }
    }

    /// What the counters say.
    pub fn figures(&self) -> Figures {
        Figures {
            connected: self.connected as u64,
            sessions: self.sessions.len() as u64,
            subscriptions: self.tree.len() as u64,
            received: self.received,
            partial_bytes: self.partial_bytes as u64,
            tally: self.tally.clone(),
        }
    }

    /// Every connection, for an orderly stop.
    pub fn connection_ids(&self) -> Vec<ConnectionId> {
        self.connections.iter().map(|(id, _)| id).collect()
    }

    /// Notes that a connection has something to write, if it has.
    fn touch(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        if !connection.wire.outbox.is_empty() || connection.is_closing() {
            connection.mark_dirty(id, &mut self.effects.dirty);
        }
    }

    /// What it shares with the others.
    pub fn common(&self) -> Arc<Common> {
        Arc::clone(&self.common)
    }

    fn note(&mut self, event: Event) {
        self.effects.events.push(event);
    }

    /// The next of a sequence that the seed settles (splitmix64).
    fn random(&mut self) -> u64 {
        self.seed = self.seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.seed;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

/// How a flush ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushed {
    /// Nothing waits.
    Drained,
    /// The socket takes no more for now.
    Blocked,
    /// What waits may not leave before it is committed.
    Fenced,
    /// Nothing waits, and the connection is to be closed.
    Finished(Leaves),
    /// There is no such connection any more.
    Gone,
}
