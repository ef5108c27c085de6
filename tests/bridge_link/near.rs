//! The broker here: shards, their turns, commits and crashes.

use crate::core_settings::{settings, shared_state};
use crate::memory_store::Memory;
use crate::shard_io::ShardIo;
use crate::world::{Event, Owner, World};
use homing::access::grant::SessionRules;
use homing::bridge;
use homing::durability::read_requests::PageRequest;
use homing::login::arrival::Arrival;
use homing::login::listener_terms::{ListenerTerms, Served};
use homing::operators::bridge_command::{BridgeSession, PrepareBridge, SessionThere};
use homing::operators::command::Command;
use homing::peers::peer_batch::PeerBatch;
use homing::persistence::records::{Batch, Lsn, RetainedRecord};
use homing::routing::retained::RetainedLimits;
use homing::routing::subscription_tree::ShardId;
use homing::session::authentication::{Anonymous, AuthPolicy, Reach};
use homing::session::outbound::stall::SocketView;
use homing::shard::features::delayed::HORIZON;
use homing::shard::randomness::Randomness;
use homing::shard::recovery::in_flight;
use homing::shard::recovery::placement::{repartition, share_out};
use homing::shard::{ConnectionId, Input, Shard, shard_of};
use homing::store::coalesce::CommitGroup;
use homing::store::commit_queue::{Bounds, CommitQueue};
use homing::store::{Boot, Moment, Store, StoreReader};
use homing::time::Instant;
use std::sync::Arc;

/// Turns of a broker that starts, after which it is taken to go round in circles.
const TURNS: usize = 1_000;

#[derive(Default)]
pub struct Near {
    /// The number of the process that runs, or ran last.
    pub process: u64,
    running: Option<Box<Running>>,
    store: Memory,
}

struct Running {
    shards: Vec<Shard>,
    is_awake: Vec<bool>,
    queue: CommitQueue,
    group: CommitGroup,
    commits: bool,
    peers_arrival: u64,
}

impl World {
    pub fn is_up_here(&self) -> bool {
        self.near.running.is_some()
    }

    pub fn near_crashes(&mut self) {
        if self.near.running.take().is_none() {
            return;
        }
        self.trace(|| "the broker here crashes".into());
        self.oracle.totals.crashes_here += 1;
        self.near.process += 1;
        self.bridge_dies();
        let at = self.now + self.rng.between(1, 4_000);
        self.at(at, Event::NearStarts);
    }

    /// The shards of a process that has what was committed.
    pub fn near_starts(&mut self) {
        self.trace(|| "the broker here starts".into());
        let monotonic = self.instant();
        let boot = Some(Boot { id: 1, millis: self.now });
        let now = Moment { monotonic, unix_millis: 1_800_000_000_000 + self.now, boot };
        let mut store = Memory::from_image(self.near.store.image());
        let mut recovered = store.recover(now, HORIZON).expect("memory does not fail");
        let copies = repartition(&mut recovered, self.plan.shards);
        assert!(copies.is_empty(), "the number of shards is the same: {copies:?}");
        let read = store.entries(&in_flight(&recovered.sessions)).expect("memory does not fail");
        let shared = Arc::new(shared_state(RetainedLimits::UNLIMITED));
        shared.retained().record_changes(0);
        let shares = share_out(recovered, read, monotonic + HORIZON, self.plan.shards);
        let mut settings = settings();
        settings.session.send.in_flight = 50;
        let shards: Vec<Shard> = shares
            .into_iter()
            .enumerate()
            .map(|(here, share)| {
                let random = Randomness::reproducible(self.rng.next());
                let here = ShardId(u8::try_from(here).expect("few shards"));
                let (settings, shared) = (settings.clone(), Arc::clone(&shared));
                let mut shard = Shard::new(here, self.plan.shards, settings, shared, random);
                shard.take_up(monotonic, share);
                shard
            })
            .collect();
        self.near.store = store;
        self.near.running = Some(Box::new(Running {
            is_awake: vec![false; shards.len()],
            shards,
            queue: CommitQueue::default(),
            group: CommitGroup::default(),
            commits: false,
            peers_arrival: 0,
        }));
        self.settle();
        self.bridge_starts();
    }

    /// Every shard knows the filters of the others before anybody can publish.
    fn settle(&mut self) {
        let now = self.instant();
        for _ in 0..TURNS {
            let Some(running) = &mut self.near.running else { return };
            let mut has_work = false;
            for here in 0..running.shards.len() {
                let mut io = ShardIo { clock: now, ..ShardIo::default() };
                has_work |= running.shards[here].turn(now, &mut io);
                running.queue_up(io.batches, io.retained);
                for (to, batch) in io.peer_batches {
                    has_work = true;
                    running.shards[usize::from(to.0)].take_peer_batch(now, batch);
                }
            }
            if !has_work {
                return;
            }
        }
        panic!("a broker that starts never comes to rest");
    }

    /// Calls a shard of the process that runs, and carries out what follows.
    fn with_shard<T>(
        &mut self,
        here: usize,
        call: impl FnOnce(&mut Shard, Instant, &mut ShardIo) -> T,
    ) -> Option<T> {
        let (now, process) = (self.instant(), self.near.process);
        let mut io = ShardIo { clock: now, ..ShardIo::default() };
        let most = self.plan.socket;
        let of_shard = self
            .sockets
            .iter()
            .filter(|socket| socket.is_open && socket.process == process && socket.place.0 == here);
        io.room = of_shard
            .map(|socket| {
                let room = if socket.owner == Owner::Bridge {
                    most.saturating_sub(socket.unread)
                } else {
                    usize::MAX
                };
                (socket.place.1, room)
            })
            .collect();
        let shard = &mut self.near.running.as_mut()?.shards[here];
        shard.begin_turn();
        let result = call(shard, now, &mut io);
        self.carry_out(here, io);
        Some(result)
    }

    fn carry_out(&mut self, here: usize, io: ShardIo) {
        for (id, bytes) in io.written {
            if let Some(socket) = self.socket_of(here, id) {
                self.sockets[socket].unread += bytes.len();
                self.send_down(socket, &bytes);
            }
        }
        for id in io.finished {
            if let Some(socket) = self.socket_of(here, id) {
                self.close_down(socket);
                self.gone(socket);
            }
        }
        let (process, later) = (self.near.process, self.now + self.rng.below(3));
        let commit_at = self.now + self.rng.below(20);
        let Some(running) = &mut self.near.running else { return };
        running.queue_up(io.batches, io.retained);
        let arrival = later.max(running.peers_arrival);
        running.peers_arrival = arrival;
        let wakes = !running.is_awake[here] && running.shards[here].has_work();
        running.is_awake[here] |= wakes;
        let commits = !running.commits && (!running.queue.is_empty() || running.group.recorded() > 0);
        running.commits |= commits;
        for (to, batch) in io.peer_batches {
            self.at(arrival, Event::PeerBatch { process, to: usize::from(to.0), batch });
        }
        for request in io.pages {
            self.at(later, Event::Page { process, shard: here, request });
        }
        if wakes {
            self.at(later, Event::Turn { process, shard: here });
        }
        if commits {
            self.at(commit_at, Event::Commit { process });
        }
        for id in io.resumed {
            let running = self.near.running.as_ref();
            if running.is_some_and(|running| running.shards[here].connection(id).has_unread()) {
                self.with_shard(here, |shard, now, io| shard.take_in(now, id, &[], io));
            }
        }
    }

    fn socket_of(&self, here: usize, id: ConnectionId) -> Option<usize> {
        let process = self.near.process;
        self.sockets
            .iter()
            .rposition(|socket| socket.is_open && socket.process == process && socket.place == (here, id))
    }

    /// The socket of a connection is gone.
    fn gone(&mut self, socket: usize) {
        if std::mem::take(&mut self.sockets[socket].is_open) {
            let (here, id) = self.sockets[socket].place;
            self.with_shard(here, |shard, now, _| shard.input(now, Input::Closed(id, "closed")));
        }
    }

    /// Opens a connection to the shard of a client.
    pub fn open(&mut self, owner: Owner, client_id: &str) -> usize {
        let here = usize::from(shard_of(client_id, self.plan.shards).0);
        let arrival = match owner {
            Owner::Bridge => self.arrival_of_bridge(),
            Owner::Publisher | Owner::Subscriber => Arrival::local(),
        };
        let id = self.with_shard(here, |shard, now, _| shard.accept(now, arrival)).expect("it runs");
        self.add_socket(owner, (here, id))
    }

    fn arrival_of_bridge(&self) -> Arrival {
        let is_v5 = self.plan.version.is_v5();
        let terms = ListenerTerms {
            serves: Served::Bridge(Some(SessionRules::Superuser)),
            receive_maximum: Some(if is_v5 { self.plan.receive_maximum } else { u16::MAX }),
            auth: Some(AuthPolicy { anonymous: Anonymous::Never, methods: Vec::new() }),
            keep_alive_maximum: Some(0),
            ..ListenerTerms::default()
        };
        Arrival {
            listener: Arc::new(terms),
            reach: Reach::Local,
            certificate_user: Some("bridge:x".into()),
            ..Arrival::default()
        }
    }

    pub fn shard_reads(&mut self, socket: usize, bytes: &[u8]) {
        if !self.sockets[socket].is_open || self.sockets[socket].process != self.near.process {
            return;
        }
        if bytes.is_empty() {
            return self.gone(socket);
        }
        let (here, id) = self.sockets[socket].place;
        self.with_shard(here, |shard, now, io| shard.take_in(now, id, bytes, io));
    }

    /// The other end of a socket has read so many bytes, so the shard may write more.
    pub fn has_read(&mut self, socket: usize, bytes: usize) {
        self.sockets[socket].unread -= bytes;
        if self.sockets[socket].is_open && self.sockets[socket].process == self.near.process {
            let (here, id) = self.sockets[socket].place;
            self.with_shard(here, |shard, now, io| shard.flush_connection(now, id, io));
        }
    }

    pub fn turn(&mut self, process: u64, here: usize) {
        if process != self.near.process {
            return;
        }
        if let Some(running) = &mut self.near.running {
            running.is_awake[here] = false;
        }
        self.with_shard(here, |shard, now, io| shard.turn(now, io));
    }

    pub fn take_peer_batch(&mut self, process: u64, to: usize, batch: PeerBatch) {
        if process == self.near.process {
            self.with_shard(to, |shard, now, _| shard.take_peer_batch(now, batch));
        }
    }

    pub fn read_page(&mut self, process: u64, here: usize, request: PageRequest) {
        if process == self.near.process {
            let read = self.near.store.entries(&request.wanted).expect("memory does not fail");
            self.with_shard(here, |shard, now, _| shard.input(now, Input::Page(request, read)));
        }
    }

    /// The committing thread commits what has come, and tells the shards.
    pub fn commit(&mut self, process: u64) {
        let Some(running) = self.near.running.as_mut().filter(|_| process == self.near.process) else {
            return;
        };
        running.commits = false;
        let mut waiters = Vec::new();
        let bounds = Bounds { records: u64::MAX, bytes: usize::MAX };
        running.queue.take(bounds, &mut running.group, &mut waiters);
        running.group.seal();
        self.near.store.write(&running.group);
        running.group.clear();
        for committed in waiters {
            let here = usize::from(committed.shard);
            self.with_shard(here, |shard, now, _| shard.committed(now, committed.lsn));
            self.bridge_has_commit(here, committed.lsn);
        }
    }

    /// Looks at the session of the bridge, as its task does before it connects.
    pub fn prepare(&mut self, there: SessionThere) -> (BridgeSession, Option<(usize, Lsn)>) {
        let client_id = bridge::client_id("x");
        let here = usize::from(shard_of(&client_id, self.plan.shards).0);
        let command = PrepareBridge { client_id: client_id.into(), there };
        let done = self
            .with_shard(here, |shard, now, _| command.carry_out(now, SocketView::default(), shard))
            .expect("it runs");
        (done.outcome, done.commit.map(|lsn| (here, lsn)))
    }

    /// Returns the messages of the session that are queued, and those in flight.
    pub fn look_at_session(&mut self) -> (usize, usize) {
        let (session, _) = self.prepare(SessionThere::Kept);
        (session.queued, session.in_flight)
    }
}

impl Running {
    fn queue_up(&mut self, batches: Vec<Batch>, retained: Vec<RetainedRecord>) {
        retained.into_iter().for_each(|record| self.group.retain(record));
        batches.into_iter().for_each(|batch| self.queue.push(Instant::ZERO, batch));
    }
}
