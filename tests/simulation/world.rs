//! Virtual time and everything that is under way in it.

use crate::authentication::Authenticator;
use crate::broker::{Expiry, Node};
use crate::client::Client;
use crate::clocks::Clocks;
use crate::core_settings::shared_state;
use crate::letters::{LetterStream, Letters};
use crate::network::Socket;
use crate::operator;
use crate::oracle::Oracle;
use crate::permissions::RuleStream;
use crate::plan::Plan;
use crate::rng::Rng;
use crate::shortage::{Short, Shortage};
use crate::store::{Ask, Disk, Found};
use crate::topics::TOPICS;
use crate::trace::{Trace, trace};
use homing::events::trace::TraceWatch;
use homing::expiry::deadline::{DeadlineKind, Registration};
use homing::login::authentication::AuthDecision;
use homing::mqtt::charge::{Recount, Recounted, take_delta};
use homing::mqtt::codec::AckKind;
use homing::peers::peer_batch::PeerBatch;
use homing::persistence::records::Committed;
use homing::routing::retained::{Retained, RetainedLimits};
use homing::routing::subscription_tree::ShardId;
use homing::session::drops::{DropReason, Drops};
use homing::shard::observe::usage::ResourceUsage;
use homing::shard::randomness::Randomness;
use homing::shard::{ConnectionId, Input, Shard, ShardSettings, SharedState};
use homing::time::Instant;
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

/// Something that will happen.
#[derive(Debug)]
pub enum Event {
    /// A shard's flusher runs.
    Turn(usize),
    PeerBatch {
        to: usize,
        peer_batch: PeerBatch,
    },
    Register {
        shard: usize,
        batch: Vec<Registration>,
    },
    Poll {
        wake: u64,
    },
    ExpiredDeadlines {
        shard: usize,
        batch: Vec<(DeadlineKind, u32, u32)>,
    },
    /// The committing thread looks what has come, and is done with what it took.
    Gather,
    Commit,
    /// A shard is told.
    Committed(Committed),
    Heartbeat,
    /// The applying thread takes what the database does not have, and is done with it.
    Apply,
    Applied,
    /// The reading thread comes to a question, and a shard has its answer.
    Read {
        shard: usize,
        ask: Box<Ask>,
    },
    Found {
        shard: usize,
        found: Box<Found>,
    },
    /// The authenticator has decided about a CONNECT.
    Decided {
        shard: usize,
        connection: ConnectionId,
        decision: AuthDecision,
    },
    /// A socket comes to a shard.
    Adopt {
        shard: usize,
        socket: usize,
        unread: Vec<u8>,
    },
    /// Bytes reach the broker's kernel.
    UpArrives {
        socket: usize,
        bytes: Vec<u8>,
    },
    /// The client's side is closed, and the broker's kernel knows.
    UpEnds {
        socket: usize,
    },
    /// The broker's reactor says that a socket is readable.
    Readable {
        socket: usize,
    },
    Writable {
        socket: usize,
    },
    /// Bytes pass from the broker's kernel to the client's.
    DownMoves {
        socket: usize,
    },
    ClientReads {
        socket: usize,
    },
    /// A client does what it does next.
    Step {
        client: usize,
    },
    /// A client sends an acknowledgement that it kept back.
    Acknowledge {
        client: usize,
        socket: usize,
        kind: AckKind,
        packet_id: u16,
    },
    /// Memory or disk runs out, or there is some again.
    Short {
        of: Short,
        is: bool,
    },
    /// The operator looks at a client.
    Operate,
    /// Other bounds on dead letters come into force.
    LetterBounds,
    /// Other rules about topics come into force.
    Rules {
        set: usize,
    },
    /// Looks for what should have happened by now.
    Sweep,
    /// The broker's process ends without a word; another begins.
    Crash,
    Boot,
    /// Every shard knows what the others' sessions are subscribed to.
    Settled,
}

impl Event {
    /// Whether it dies with the broker's process.
    fn is_the_brokers(&self) -> bool {
        use Event::*;
        matches!(
            self,
            Turn(_)
                | PeerBatch { .. }
                | Register { .. }
                | Poll { .. }
                | ExpiredDeadlines { .. }
                | Gather
                | Commit
                | Committed(_)
                | Heartbeat
                | Apply
                | Applied
                | Read { .. }
                | Found { .. }
                | Decided { .. }
                | Adopt { .. }
                | Boot
                | Settled
        )
    }
}

struct Entry {
    at: u64,
    serial: u64,
    event: Event,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> Ordering {
        (self.at, self.serial).cmp(&(other.at, other.serial))
    }
}

/// What the clients are at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    Chaos,
    /// Everybody comes back, reads and acknowledges; no connection breaks.
    Settling,
    /// Every session is ended in order.
    Leaving,
    /// Nobody is left; stale deadlines run out.
    Over,
}

pub struct World {
    pub plan: Plan,
    pub rng: Rng,
    /// What the members of a work queue do is drawn apart from all else.
    pub work: Rng,
    /// What the operator does, if there is one.
    pub operator: Option<Rng>,
    /// What becomes of dead letters, if the operator does more with them than to delete them.
    pub letters: Option<Letters>,
    pub now: u64,
    pub phase: Phase,
    pub shared: Arc<SharedState>,
    pub disk: Option<Disk>,
    pub clocks: Clocks,
    pub shortage: Shortage,
    pub authenticator: Authenticator,
    pub nodes: Vec<Node>,
    /// Stands in for a shard that is taken out for its turn.
    pub spare: Option<Shard>,
    pub expiry: Expiry,
    pub sockets: Vec<Socket>,
    pub clients: Vec<Client>,
    pub oracle: Oracle,
    pub trace: Trace,
    pub failure: Option<String>,
    pub events: u64,
    /// What came about and how often, for the test that shows that all of it does.
    pub seen: BTreeMap<&'static str, u64>,
    /// When the broker listens again.
    pub up_at: u64,
    /// When its process's own time began.
    epoch: u64,
    /// What processes that are gone had given up.
    pub drops: Drops,
    pending: BinaryHeap<Reverse<Entry>>,
    serial: u64,
}

const SWEEP_MS: u64 = 500;
/// Deliveries of a client that is away that are kept in memory, where there is a store; well below.
const HEAD: usize = 50;
/// Regular work of a shard: seldom, so that the long end costs few events.
pub const HOUSEKEEPING_MS: u64 = 500_000;
const LEAVING_MS: u64 = 15_000;
/// After a suspend: beyond what a Keep Alive of 3 s allows.
const AWAKE_MS: u64 = 6_000;
/// Beyond the longest session expiry.
const OVER_MS: u64 = 4_000_000;

impl World {
    pub fn new(seed: u64, trace: Trace) -> World {
        World::with_streams(seed, (RuleStream::Common, LetterStream::Common), trace)
    }

    /// As [`World::new`], with rules about topics and dead letters from streams of their own.
    pub fn with_streams(seed: u64, streams: (RuleStream, LetterStream), trace: Trace) -> World {
        let (rules, letters) = streams;
        let mut rng = Rng::new(seed);
        let mut plan = Plan::new(&mut rng, seed);
        let operator = operator::of_seed(seed, letters, plan.work.is_some());
        if operator.is_some() {
            plan.settings.letters = operator::LETTERS;
        }
        let letters = operator.as_ref().and_then(|_| Letters::new(seed, letters, &mut plan));
        let mut authenticator = Authenticator::new(seed, &mut plan);
        let permissions = authenticator.permissions((seed, rules), &mut plan);
        let disk = plan.store.map(|_| Disk::new(plan.shards));
        // A work queue has an account of its own, which knows of no refusal.
        let shortage = Shortage::new(seed, plan.work.is_none());
        let clients: Vec<Client> = plan.clients.iter().cloned().map(Client::new).collect();
        World {
            expiry: Expiry::new(plan.settings.expiry_interval, plan.shards, Instant::ZERO),
            oracle: Oracle { permissions, ..Oracle::new(clients.len()) },
            plan,
            rng,
            work: Rng::new(seed ^ 0x5707_0000),
            operator,
            letters,
            now: 0,
            phase: Phase::Chaos,
            shared: nothing_retained(),
            disk,
            clocks: Clocks::new(seed),
            shortage,
            authenticator,
            nodes: Vec::new(),
            spare: None,
            sockets: Vec::new(),
            clients,
            trace,
            failure: None,
            events: 0,
            seen: BTreeMap::new(),
            up_at: 0,
            epoch: 0,
            drops: Drops::default(),
            pending: BinaryHeap::new(),
            serial: 0,
        }
    }

    /// Plays it to the end.
    pub fn play(&mut self) -> Result<(), String> {
        take_delta();
        self.boot();
        for at in self.plan.crashes.clone() {
            self.schedule(at, Event::Crash);
        }
        self.plan_shortages();
        self.plan_rule_changes();
        self.plan_letter_bounds();
        for client in 0..self.clients.len() {
            let at = self.rng.below(500);
            self.schedule(at, Event::Step { client });
        }
        self.schedule(SWEEP_MS, Event::Sweep);
        if self.operator.is_some() {
            self.schedule(SWEEP_MS, Event::Operate);
        }
        self.run_until(self.plan.chaos_ms)?;
        self.begin(Phase::Settling);
        self.run_until(self.now + self.plan.settling_ms + self.oracle.unmeasured)?;
        // A window of one message and a slow disk may take longer, as long as something becomes of
        // it.
        let mut before = usize::MAX;
        while (1..before).contains(&self.entries_left()) {
            before = self.entries_left();
            self.run_until(self.now + self.plan.settling_ms / 2)?;
        }
        if self.plan.settles() {
            self.check_settled()?;
            self.settle_letters()?;
            self.suspend()?;
        }
        self.delete_letters();
        self.begin(Phase::Leaving);
        self.run_until(self.now + LEAVING_MS)?;
        if self.letters.is_some() {
            // Those of messages that sessions left at their ends.
            self.delete_letters();
            self.run_until(self.now + LEAVING_MS)?;
        }
        self.close_store()?;
        // What it is charged for belongs to no shard of the broker.
        self.spare = None;
        self.check_nothing_left()?;
        self.begin(Phase::Over);
        self.run_until(self.now + OVER_MS)?;
        self.check_no_deadline_left()
    }

    /// The machine sleeps and wakes, with everybody on it, while all are connected and nobody owes
    /// anything. All deadlines of the broker have passed then, and a client that could not send is
    /// not disconnected.
    fn suspend(&mut self) -> Result<(), String> {
        let Some(slept) = self.clocks.suspend() else { return Ok(()) };
        let away = |node: &Node| node.core.snapshot().sessions > node.core.snapshot().connected;
        if self.nodes.iter().any(away) {
            return Ok(());
        }
        trace!(self, "== the machine is suspended for {slept} ms");
        self.saw("the machine is suspended");
        self.now += slept;
        let later = |Reverse(entry): Reverse<Entry>| Reverse(Entry { at: entry.at + slept, ..entry });
        self.pending = std::mem::take(&mut self.pending).into_iter().map(later).collect();
        let now = self.instant();
        self.nodes.iter_mut().for_each(|node| node.core.input(now, Input::Woke));
        for socket in &mut self.sockets {
            (socket.accepted, socket.heard, socket.took) = (self.now, self.now, self.now);
            socket.closing = socket.closing.map(|_| self.now);
        }
        self.run_until(self.now + AWAKE_MS)
    }

    /// Shards and an expiry queue that know nothing but what the store has.
    pub fn boot(&mut self) {
        if self.disk.is_some() && self.now > 0 {
            // Another process has a time of its own.
            self.epoch = self.now - 7;
        }
        let shared = nothing_retained();
        self.shared = Arc::clone(&shared);
        self.tell_shortage();
        let shares = self.take_up(&shared);
        let now = self.instant();
        let shards = self.plan.shards;
        self.expiry = Expiry::new(self.plan.settings.expiry_interval, shards, now);
        self.nodes.clear();
        for (n, share) in (0..shards).zip(shares) {
            let (shared, seed) = (Arc::clone(&shared), self.rng.next());
            let mut core =
                Shard::new(ShardId(n), shards, self.shard_settings(), shared, Randomness::reproducible(seed));
            if let Some(share) = share {
                core.take_up(now, share);
            }
            // A trace changes nothing, so half of the shards follow every message.
            if seed % 2 == 1 {
                core.input(
                    now,
                    Input::Traces(Some(Arc::new(TraceWatch {
                        filters: vec!["#".into()],
                        ..TraceWatch::default()
                    }))),
                );
            }
            self.nodes.push(Node::new(core, shards));
        }
        self.letters_recovered();
        self.heartbeat();
        self.await_apply();
        for shard in 0..self.nodes.len() {
            self.housekeeping(shard);
        }
    }

    /// The settings of each shard.
    pub fn shard_settings(&self) -> ShardSettings {
        let mut settings = self.plan.settings.clone();
        // What a plan says of queues holds for those in the store, too.
        settings.session.send.stored_queue = settings.session.send.queue.clone();
        settings
    }

    /// A shard's regular work.
    pub fn housekeeping(&mut self, shard: usize) {
        let now = self.instant();
        let every =
            if self.plan.store.is_some() && self.phase < Phase::Leaving { 4_000 } else { HOUSEKEEPING_MS };
        self.nodes[shard].core.input(now, Input::Housekeeping { next: now + Duration::from_millis(every) });
        self.after_core(shard);
    }

    /// What the broker's process had under way is gone.
    pub fn forget_the_brokers(&mut self) {
        self.pending.retain(|Reverse(entry)| !entry.event.is_the_brokers());
    }

    fn begin(&mut self, phase: Phase) {
        trace!(self, "== {phase:?}");
        self.phase = phase;
        for client in 0..self.clients.len() {
            self.phase_begins(client);
        }
    }

    pub fn instant(&self) -> Instant {
        Instant::from_millis(self.now - self.epoch)
    }

    /// When that is for all the others.
    pub fn millis(&self, at: Instant) -> u64 {
        at.as_millis().saturating_add(self.epoch)
    }

    pub fn schedule(&mut self, at: u64, event: Event) {
        self.serial += 1;
        self.pending.push(Reverse(Entry { at: at.max(self.now), serial: self.serial, event }));
    }

    pub fn saw(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    pub fn fail(&mut self, what: String) {
        trace!(self, "FAILURE {what}");
        self.failure.get_or_insert(what);
    }

    pub fn check(&mut self, result: Result<(), String>) {
        if let Err(what) = result {
            self.fail(what);
        }
    }

    pub fn run_until(&mut self, end: u64) -> Result<(), String> {
        while self.pending.peek().is_some_and(|Reverse(e)| e.at <= end)
            && let Some(Reverse(entry)) = self.pending.pop()
        {
            self.now = entry.at;
            self.events += 1;
            self.happen(entry.event);
            if let Some(failure) = self.failure.take() {
                return Err(failure);
            }
            if self.events > 2_000_000 {
                return Err("it never comes to rest".into());
            }
        }
        self.now = end;
        Ok(())
    }

    fn happen(&mut self, event: Event) {
        self.nodes.iter_mut().for_each(|node| node.core.begin_turn());
        match event {
            Event::Operate => self.operate(),
            Event::LetterBounds => self.change_letter_bounds(),
            Event::Turn(shard) => self.turn(shard),
            Event::PeerBatch { to, peer_batch } => self.peer_batch(to, peer_batch),
            Event::Register { shard, batch } => self.register(shard, &batch),
            Event::Poll { wake } => self.poll(wake),
            Event::ExpiredDeadlines { shard, batch } => self.expired_deadlines(shard, &batch),
            Event::Gather => self.gather(),
            Event::Commit => self.commit(),
            Event::Committed(committed) => self.committed(committed),
            Event::Heartbeat => self.heartbeat(),
            Event::Apply => self.take_unapplied(),
            Event::Applied => self.applied(),
            Event::Read { shard, ask } => self.read(shard, *ask),
            Event::Found { shard, found } => self.found(shard, *found),
            Event::Decided { shard, connection, decision } => self.decided(shard, connection, decision),
            Event::Adopt { shard, socket, unread } => self.adopt(shard, socket, unread),
            Event::UpArrives { socket, bytes } => self.up_arrives(socket, &bytes),
            Event::UpEnds { socket } => self.up_ends(socket),
            Event::Readable { socket } => self.readable(socket),
            Event::Writable { socket } => self.writable(socket),
            Event::DownMoves { socket } => self.down_moves(socket),
            Event::ClientReads { socket } => self.client_reads(socket),
            Event::Step { client } => self.step(client),
            Event::Acknowledge { client, socket, kind, packet_id } => {
                self.acknowledge_late(client, socket, kind, packet_id);
            }
            Event::Short { of, is } => self.short(of, is),
            Event::Rules { set } => self.change_rules(set),
            Event::Sweep => self.sweep(),
            Event::Crash => self.crash(),
            Event::Boot => self.boot(),
            Event::Settled => self.settled(),
        }
    }

    fn sweep(&mut self) {
        if self.phase == Phase::Over {
            return;
        }
        self.sweep_broker();
        self.sweep_clients();
        // Between two turns, whatever goes on.
        let counted = self.recount();
        self.check(counted.map(drop));
        let result =
            self.oracle.sessions_end_in_time(self.now, self.plan.interval_ms() + self.plan.lateness_ms());
        self.check(result);
        // Retained messages that a SUBSCRIBE asked for are beside the limit, one of each topic.
        let mut messages = self.plan.settings.session.send.queue.messages.saturating_add(TOPICS.len());
        // Once more in the queue with each crash: what was held for it, and what was sent, of which
        // that was not committed.
        let held = usize::from(self.plan.settings.session.receive_maximum).max(8) * self.clients.len();
        let more = self.oracle.crashes.len() * (held + self.plan.most_in_flight());
        messages = messages.saturating_add(more);
        for node in &self.nodes {
            let usage = node.core.usage();
            self.oracle.paged |= self.plan.store.is_some() && usage.longest_queue > HEAD;
            if usage.longest_queue > messages {
                self.failure.get_or_insert(format!("a queue of {} messages", usage.longest_queue));
            }
        }
        self.schedule(self.now + SWEEP_MS, Event::Sweep);
    }

    pub fn check_settled(&mut self) -> Result<(), String> {
        self.recount()?;
        self.check_store_settled()?;
        let mut drops = self.drops.clone();
        for node in &self.nodes {
            drops.merge(&node.core.snapshot().counters.drops);
        }
        for client in &self.clients {
            client.check_settled()?;
        }
        if drops.of(DropReason::Expired) > 0 {
            self.saw("a message expires");
        }
        self.check_work_done()?;
        self.oracle.check_released()?;
        self.oracle.check_delivered(self.now, &drops, self.plan.loses())?;
        if !self.plan.loses() {
            self.oracle.check_retained(self.plan.store.is_some())?;
        }
        for (shard, node) in self.nodes.iter().enumerate() {
            let ResourceUsage {
                barriers,
                outstanding,
                waiting_for_peer,
                unanswered,
                held,
                orphaned_queues,
                longest_queue,
                widest_window,
                ..
            } = node.core.usage();
            let waits = [barriers, outstanding, waiting_for_peer, unanswered, held, orphaned_queues];
            if waits != [0; 6] {
                return Err(format!("shard {shard} still waits when all is quiet: {:?}", node.core.usage()));
            }
            let offline = node.core.snapshot().sessions > node.core.snapshot().connected;
            if !offline && (longest_queue, widest_window) != (0, 0) {
                return Err(format!(
                    "shard {shard} has not delivered when all is quiet: {:?}",
                    node.core.usage()
                ));
            }
        }
        Ok(())
    }

    fn check_nothing_left(&self) -> Result<(), String> {
        for (shard, node) in self.nodes.iter().enumerate() {
            let usage = node.core.usage();
            if usage != ResourceUsage::default() {
                return Err(format!("shard {shard} leaks: {usage:?}"));
            }
        }
        if let Some(client) = self.clients.iter().find(|c| !c.has_left()) {
            return Err(format!("{} has not left", client.manners.name));
        }
        self.recount()?;
        // What retained messages share, such as the names of their publishers, goes with the last.
        *self.shared.retained() = Retained::new(RetainedLimits::UNLIMITED);
        let known = self.recount()? + self.shared.debts.charged();
        match take_delta() - known as i64 {
            0 => Ok(()),
            bytes => Err(format!("{bytes} bytes on the account leak, beside {known} that are known")),
        }
    }

    /// Every owner of memory has on the account what it holds; how much that is in all, without
    /// messages.
    pub fn recount(&self) -> Result<usize, String> {
        let Recounted { in_use, charged } = self.shared.retained().recount();
        if in_use != charged {
            return Err(format!("retained messages have {in_use} bytes, and {charged} are on the account"));
        }
        self.nodes.iter().enumerate().try_fold(charged, |known, (shard, node)| {
            let own = node.core.recount().map_err(|why| format!("shard {shard} has miscounted: {why}"))?;
            Ok(known + own)
        })
    }

    fn check_no_deadline_left(&self) -> Result<(), String> {
        let left = self.expiry.len();
        // The shards' regular work.
        if left > self.nodes.len() { Err(format!("{left} deadlines are left")) } else { Ok(()) }
    }
}

fn nothing_retained() -> Arc<SharedState> {
    Arc::new(shared_state(RetainedLimits::UNLIMITED))
}
