//! The core of one thread: sessions, their connections and their part of the routing, as a state
//! machine.
//!
//! Pure: a shard knows no clock, no socket and no other thread. [`crate::broker`] passes in bytes,
//! expired deadlines and peer batches with the time, and carries out the [`Effects`] at the end of
//! each turn. The simulation does the same with virtual time. Only those two call it. It imports
//! [`crate::mqtt`], [`crate::persistence`], [`crate::session`], [`crate::routing`] and the pure
//! part of [`crate::expiry`].
//!
//! | file | concern |
//! |---|---|
//! | `connection` | one connection: what it has read and has to write, pauses, its deadlines |
//! | `receive` | from bytes to packets to the session |
//! | `connect` | CONNECT: refusal, take-over, Session Present |
//! | `publish` | PUBLISH: checks, retained message, acknowledgement |
//! | `router` | who is subscribed to what; shared groups |
//! | `route` | from a publication to its receivers |
//! | `fan_out` | a publication whose receivers take more than one turn |
//! | `deliver` | one message to one session: send, queue, hold or drop |
//! | `share` | which member of a shared subscription gets a message |
//! | `subscribe` | SUBSCRIBE and UNSUBSCRIBE, and when they are in force in every shard |
//! | `suback` | SUBACK, UNSUBACK, and the retained messages behind a SUBACK |
//! | `session_change` | the steps that follow after a session's window or queue changed |
//! | `leave` | connections and sessions that end; wills |
//! | `ended` | what an ended session leaves, handed on in portions |
//! | `deadlines` | what the expiry actor is told, and expired deadlines |
//! | `admission` | whether there is memory and disk for a change |
//! | `drops` | messages that a receiver will not get, reported by client |
//! | `totals` | limits that hold for the whole broker |
//! | `turn` | how much work one turn does, and what continues in a later one |
//! | [`io`] | the order of one turn, and the trait that carries out its effects |
//! | `effects` | what the driver has to do after a turn |
//! | `scratch` | buffers that are used again and again, so that nothing allocates |
//! | `slots` | identifiers of sessions and connections |
//! | `session_entry` | one session, with its deadlines and the messages held for it |
//! | `settings` | the operator's settings, as the shard needs them |
//! | `shared_state` | the state that all shards share |
//! | [`exchange`] | messages between shards |
//! | [`durability`] | what is stored, and what waits for a commit |
//! | [`features`] | delayed messages, dead letters, `hold`, orphaned queues, requests |
//! | [`observe`] | events and figures about clients |

mod admission;
mod clients;
mod connect;
pub mod connection;
pub mod deadlines;
mod deliver;
mod drops;
pub mod durability;
pub mod effects;
mod ended;
pub mod exchange;
mod fan_out;
pub mod features;
pub mod io;
mod leave;
pub mod observe;
mod publish;
pub mod receive;
mod route;
mod router;
mod scratch;
mod session_change;
pub mod session_entry;
pub mod settings;
mod share;
pub mod shared_state;
pub mod slots;
mod suback;
mod subscribe;
pub mod totals;
pub mod turn;

use crate::routing::subscription_tree::ShardId;
use crate::session::counters::Counters;
use crate::session::outbound::retry::splitmix64;
use crate::session::outbox::Outbox;
use crate::session::redelivery_rules::Rules;
use crate::shard::drops::DropReports;
use crate::shard::durability::gates::Stored;
use crate::shard::exchange::Exchange;
use crate::shard::fan_out::Fans;
use crate::shard::features::dead_letters::DeadLetters;
use crate::shard::features::delayed::Delayed;
use crate::shard::features::orphaned_queues::OrphanedQueues;
use crate::time::Instant;
use clients::Clients;
pub use connect::shard_of;
use connection::{Connection, Leaves, Pause, Phase};
use deliver::AfterDeliveries;
use effects::Effects;
pub use receive::ReadProgress;
use router::Router;
use scratch::Scratch;
pub use session_entry::SessionEntry;
pub use settings::{DelayedLimits, ShardSettings};
pub use shared_state::{PartialShare, SharedState};
pub use slots::{ConnectionId, SessionId};
use slots::{OfConnection, OfSession, Slots};
use std::collections::VecDeque;
use std::sync::Arc;
use turn::{Jobs, Turn};

/// One shard.
#[derive(Debug)]
pub struct Shard {
    pub here: ShardId,
    settings: ShardSettings,
    shared: Arc<SharedState>,
    connections: Slots<Connection, OfConnection>,
    sessions: Slots<SessionEntry, OfSession>,
    clients: Clients,
    router: Router,
    exchange: Exchange,
    after_deliveries: AfterDeliveries,
    /// Where sessions are stored.
    stored: Option<Box<Stored>>,
    stopping: bool,
    delayed: Delayed,
    rules: Rules,
    drop_reports: DropReports,
    dead_letters: DeadLetters,
    /// What sessions that ended have left in the store.
    orphaned_queues: OrphanedQueues,
    /// When the machine woke from its last suspend: peers had no time to speak before.
    awake_since: Instant,
    scratch: Scratch,
    /// Bytes appended to outboxes since the last flush, about.
    unflushed: usize,
    /// Steps of the present turn.
    turn: Turn,
    /// What goes on in a later turn.
    jobs: Jobs,
    /// Sessions of which a deadline has come.
    due: VecDeque<SessionId>,
    fans: Fans,
    /// Connections established.
    connected: usize,
    /// Bytes held of packets that are not whole.
    partial_bytes: usize,
    /// As last told to the total.
    reported_partial: i64,
    /// Connections with more than a little of it, and some that had.
    large_partials: Vec<ConnectionId>,
    received: u64,
    seed: u64,
    counters: Counters,
    effects: Effects,
}

/// Figures of one shard, for `$SYS`.
#[derive(Clone, Debug, Default)]
pub struct ShardSnapshot {
    pub connected: u64,
    pub sessions: u64,
    pub subscriptions: u64,
    pub received: u64,
    pub partial_bytes: u64,
    pub counters: Counters,
}

impl ShardSnapshot {
    pub fn add(&mut self, other: &ShardSnapshot) {
        self.connected += other.connected;
        self.sessions += other.sessions;
        self.subscriptions += other.subscriptions;
        self.received += other.received;
        self.partial_bytes += other.partial_bytes;
        self.counters.add(&other.counters);
    }
}

/// Bytes appended to outboxes in one turn beyond which they are flushed before more is read.
const TURN: usize = 256 * 1024;

impl Shard {
    /// The shard `here` of `shards`. `seed` settles what would else be random: assigned client ids,
    /// jitter.
    pub fn new(
        here: ShardId,
        shards: u8,
        settings: ShardSettings,
        shared: Arc<SharedState>,
        seed: u64,
    ) -> Shard {
        let rules = Rules::new(&settings.session.send.redelivery, &settings.session.send.rules);
        let turn = Turn::new(settings.steps_per_turn);
        Shard {
            here,
            settings,
            shared,
            connections: Slots::default(),
            sessions: Slots::default(),
            clients: Clients::new(),
            router: Router::new(here),
            exchange: Exchange::new(here, shards),
            after_deliveries: AfterDeliveries::default(),
            stored: None,
            stopping: false,
            delayed: Delayed::default(),
            drop_reports: DropReports::default(),
            dead_letters: DeadLetters::new(rules.keep_dead_letters()),
            rules,
            orphaned_queues: OrphanedQueues::default(),
            awake_since: Instant::ZERO,
            scratch: Scratch::default(),
            unflushed: 0,
            turn,
            jobs: Jobs::new(),
            due: VecDeque::new(),
            fans: Fans::default(),
            connected: 0,
            partial_bytes: 0,
            reported_partial: 0,
            large_partials: Vec::new(),
            received: 0,
            seed,
            counters: Counters::default(),
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

    /// What the turn asks of the driver, so far.
    pub fn effects(&mut self) -> &mut Effects {
        &mut self.effects
    }

    /// Whether the turn left anything for the driver to do.
    pub fn has_work(&self) -> bool {
        !self.effects.is_empty()
            || !self.after_deliveries.is_empty()
            || self.has_jobs()
            || !self.dead_letters.is_empty()
            || self.orphaned_queues.is_nudged()
            || self.exchange.has_outgoing()
            || self.write_buffer().is_some_and(|l| l.is_due())
    }

    /// Returns true if a flush or a job is left: for a driver that runs turns until there is none.
    pub fn is_unfinished(&self) -> bool {
        !self.effects.dirty.is_empty() || self.has_jobs()
    }

    /// The outbox of a connection that is to be flushed.
    pub fn outbox(&mut self, id: ConnectionId) -> Option<&mut Outbox> {
        let outbox = &mut self.connections.get_mut(id)?.wire.outbox;
        if let Some(stored) = &self.stored {
            outbox.committed(stored.write_buffer.last_committed());
        }
        Some(outbox)
    }

    /// Releases what waits for the end of a turn, before the dirty connections are written.
    fn release_for_flush(&mut self, now: Instant) {
        debug_assert!(!self.counters.drops.are_unreported(), "every loss is settled with its session");
        self.disconnect_overfull(now);
        self.admit_held_of_all(now);
        if self.orphaned_queues.is_nudged() {
            self.settle_orphaned_queues(now);
        }
        self.publish_dead_letters(now);
        self.release_finished(now);
        self.unflushed = 0;
    }

    /// The turn ended before these were flushed, in their order before those that are dirty since.
    /// Whoever publishes waits for them: else it would fill outboxes faster than they are written.
    fn flush_stopped(&mut self, mut rest: Vec<ConnectionId>) {
        rest.append(&mut self.effects.dirty);
        self.effects.dirty = rest;
        self.unflushed = self.unflushed.max(TURN);
    }

    /// One connection was flushed as far as its socket takes bytes; `progress`: it took some,
    /// `drained`: all. Answers whether the connection is closing and has nothing left to write.
    fn flushed(&mut self, now: Instant, id: ConnectionId, wrote: usize) -> Flushed {
        self.turn.charge_write(wrote);
        let Some(connection) = self.connections.get_mut(id) else { return Flushed::Gone };
        connection.dirty = false;
        let drained = connection.wire.outbox.reset_if_drained();
        if drained {
            connection.blocked = Instant::NEVER;
            self.scratch.pool.give_back(connection.wire.outbox.reclaim());
        } else if connection.wire.outbox.writable() == 0 {
            // Not the socket's doing.
            connection.blocked = Instant::NEVER;
            if let Some(stored) = &mut self.stored
                && !connection.held_until_commit
            {
                connection.hold_until_commit(now);
                stored.held_until_commit.push(id);
            }
        } else if wrote > 0 || connection.blocked.is_never() {
            connection.blocked = now;
        }
        let held_until_commit = connection.held_until_commit;
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
        match (drained, held_until_commit) {
            (true, _) => Flushed::Drained,
            (_, true) => Flushed::HeldUntilCommit,
            _ => Flushed::Blocked,
        }
    }

    /// Bytes left the outbox: what waited for that goes on.
    fn has_room(&mut self, now: Instant, id: ConnectionId) {
        let Shard { connections, sessions, settings, counters, .. } = self;
        let Some(connection) = connections.get_mut(id) else { return };
        let Some(session) = connection.session else { return };
        let Some(session_entry) = sessions.get_mut(session) else { return };
        let waits = session_entry.session.sender.has_waiting() || session_entry.holds();
        let paused = connection.pauses.has(Pause::Outbox);
        if !waits && !paused {
            return;
        }
        let policy = &settings.session.send;
        if connection.wire.outbox.len() >= policy.outbox / 2 {
            return;
        }
        if waits {
            connection.wire.outbox.lend(&mut self.scratch.pool);
            session_entry.session.sender.pump(now, &mut connection.wire, policy, counters);
            self.after_session_change(now, session);
        }
        if paused {
            self.unpause(now, id, Pause::Outbox);
        }
    }

    /// What the counters say.
    pub fn snapshot(&self) -> ShardSnapshot {
        ShardSnapshot {
            connected: self.connected as u64,
            sessions: self.sessions.len() as u64,
            subscriptions: self.router.tree().len() as u64,
            received: self.received,
            partial_bytes: self.partial_bytes as u64,
            counters: self.counters.clone(),
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
    pub fn shared(&self) -> Arc<SharedState> {
        Arc::clone(&self.shared)
    }

    /// Returns the next number of the sequence that the seed begins.
    fn random(&mut self) -> u64 {
        splitmix64(&mut self.seed)
    }
}

/// How a flush ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flushed {
    /// Nothing waits.
    Drained,
    /// The socket takes no more for now.
    Blocked,
    /// What waits may not leave before it is committed.
    HeldUntilCommit,
    /// Nothing waits, and the connection is to be closed.
    Finished(Leaves),
    /// There is no such connection any more.
    Gone,
}
