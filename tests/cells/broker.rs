//! The broker of an owner: its shards, their turns, and the sockets of their clients.

use crate::client::Client;
use crate::core_settings::{settings, shared_state};
use crate::node::Service;
use crate::promises::{Leaving, Promises};
use crate::shard_io::ShardIo;
use crate::world::{Occupant, World};
use homing::durability::read_requests::PageRequest;
use homing::login::arrival::Arrival;
use homing::peers::peer_batch::PeerBatch;
use homing::persistence::records::{Committed, Recovered};
use homing::routing::retained::RetainedLimits;
use homing::routing::subscription_tree::ShardId;
use homing::shard::features::delayed::HORIZON;
use homing::shard::randomness::Randomness;
use homing::shard::recovery::in_flight;
use homing::shard::recovery::placement::{repartition, share_out};
use homing::shard::{ConnectionId, Input, Shard, SharedState, shard_of};
use homing::store::StoreError;
use homing::store::frame::cluster::{FrameKind, body_of, check_sign};
use homing::time::Instant;
use homing_core::ownership::{OwnershipInput, Position};
use std::sync::Arc;

/// Turns of a broker that starts, after which it is taken to go round in circles.
const TURNS: usize = 1_000;

/// The clients of all cells, and what they were promised.
#[derive(Default)]
pub struct Brokers {
    pub clients: Vec<Client>,
    pub sockets: Vec<Socket>,
    pub promises: Promises,
    /// Clients come back and acknowledge, and do nothing else.
    pub is_calm: bool,
    shards: u8,
}

/// The connection of a client.
pub struct Socket {
    pub client: usize,
    pub node: usize,
    pub cell: usize,
    /// The process at its other end.
    pub process: u64,
    pub is_open: bool,
    place: Option<(usize, ConnectionId)>,
    /// When the last bytes arrive that were sent up and down.
    up: u64,
    down: u64,
}

#[derive(Debug)]
pub enum BrokerEvent {
    /// A client does what it does next.
    Step {
        client: usize,
    },
    /// Bytes of a client reach the broker.
    Arrive {
        socket: usize,
        bytes: Vec<u8>,
    },
    /// Bytes of the broker reach a client.
    Deliver {
        socket: usize,
        bytes: Vec<u8>,
    },
    /// A client learns that its connection is closed.
    Closed {
        socket: usize,
    },
    Turn {
        at: Place,
        shard: usize,
    },
    PeerBatch {
        at: Place,
        to: usize,
        batch: PeerBatch,
    },
    Committed {
        node: usize,
        cell: usize,
        process: u64,
        committed: Committed,
    },
    Page {
        at: Place,
        shard: usize,
        request: PageRequest,
    },
}

/// A process.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub node: usize,
    pub cell: usize,
    pub process: u64,
}

/// What an owner has in memory.
pub struct Broker {
    shared: Arc<SharedState>,
    shards: Vec<Shard>,
    links: Vec<Vec<Option<Link>>>,
    is_awake: Vec<bool>,
    peers_arrival: u64,
    /// The end of the latest lease, or the time at which it was ended.
    lease_seen: Instant,
    /// When a shard last ran, in true time and by the node's clock.
    ran: (u64, Instant),
    /// What the clock showed when the node was stopped.
    read_before: Instant,
}

/// A connection, as the broker has it.
struct Link {
    id: ConnectionId,
    socket: usize,
    written: u64,
    /// The stream offsets at which what was put into the outbox ends, with the times.
    put: Vec<(u64, u64, Instant)>,
}

impl Occupant for Brokers {
    type Event = BrokerEvent;
    type Memory = Option<Box<Broker>>;
    const HAS_SNAPSHOTS: bool = true;

    fn begin(world: &mut World<Brokers>, cells: usize) {
        world.occupant.shards = world.rng.pick(&[1, 1, 2]);
        world.by_lease = !world.rng.percent(20);
        world.occupant.clients = (0..cells).flat_map(Client::of_cell).collect();
        for client in 0..world.occupant.clients.len() {
            let at = world.rng.below(1_000);
            world.schedule(at, BrokerEvent::Step { client });
        }
    }

    fn node_of(event: &BrokerEvent) -> Option<usize> {
        match event {
            BrokerEvent::Turn { at, .. }
            | BrokerEvent::PeerBatch { at, .. }
            | BrokerEvent::Page { at, .. } => Some(at.node),
            BrokerEvent::Committed { node, .. } => Some(*node),
            // `happen` looks which node the bytes go to.
            BrokerEvent::Arrive { .. } => None,
            BrokerEvent::Step { .. } | BrokerEvent::Deliver { .. } | BrokerEvent::Closed { .. } => None,
        }
    }

    fn happen(world: &mut World<Brokers>, event: BrokerEvent) {
        match event {
            BrokerEvent::Step { client } => world.step(client),
            BrokerEvent::Deliver { socket, bytes } => world.client_reads(socket, &bytes),
            BrokerEvent::Closed { socket } => world.client_is_closed(socket),
            BrokerEvent::Arrive { socket, bytes } => world.arrive(socket, bytes),
            BrokerEvent::Turn { at, shard } => world.turn(at, shard),
            BrokerEvent::PeerBatch { at, to, batch } => {
                world.with_shard(at, to, |shard, now, _| shard.take_peer_batch(now, batch));
            }
            BrokerEvent::Committed { node, cell, process, committed } => {
                let at = Place { node, cell, process };
                let lsn = committed.lsn;
                world.with_shard(at, usize::from(committed.shard), |shard, now, _| shard.committed(now, lsn));
            }
            BrokerEvent::Page { at, shard, request } => world.read_page(at, shard, request),
        }
    }

    fn committed(world: &mut World<Brokers>, node: usize, cell: usize, committed: Committed) {
        let (at, process) = (world.now + 1, world.process(node, cell).expect("it has committed").number);
        world.schedule(at, BrokerEvent::Committed { node, cell, process, committed });
    }

    fn service_changed(world: &mut World<Brokers>, node: usize, cell: usize) {
        let process = world.process(node, cell).expect("it runs");
        let (at, service) = (Place { node, cell, process: process.number }, process.service);
        match service {
            Service::Open => {}
            Service::Isolated => world.in_each_shard(at, |shard, now| shard.input(now, Input::ShutOut)),
            Service::Flushing => world.in_each_shard(at, |shard, now| shard.input(now, Input::Stop)),
            Service::None => {
                Brokers::ends(world, node, cell);
                let process = world.process(node, cell).expect("it runs");
                (process.own, process.owner) = (None, None);
            }
        }
    }

    fn is_flushed(world: &mut World<Brokers>, node: usize, cell: usize) -> bool {
        let Some(broker) = world.process(node, cell).and_then(|process| process.own.as_ref()) else {
            return true;
        };
        let is_at_rest = |shard: &Shard| !shard.has_work() && !shard.is_unfinished();
        broker.shards.iter().all(is_at_rest)
    }

    fn logged(world: &mut World<Brokers>, cell: usize, position: Position) {
        let ((frame, ..), kind) = check_sign(world.engine.frame(cell, position)).expect("a frame");
        let is_empty = kind == FrameKind::Group && body_of(frame).is_empty();
        world.occupant.promises.totals.empty_groups += u64::from(is_empty);
    }

    fn lease_changed(world: &mut World<Brokers>, node: usize, cell: usize) {
        let now = world.local(node);
        let Some(process) = world.process(node, cell) else { return };
        let until = process.core.lease_until();
        let Some(broker) = &mut process.own else { return };
        broker.shared.lease.set_until(until);
        broker.lease_seen = if until > now { until } else { broker.lease_seen.min(now) };
    }

    fn recovered(world: &mut World<Brokers>, node: usize, cell: usize, recovered: Recovered) {
        world.start_broker(node, cell, recovered);
    }

    fn tick(world: &mut World<Brokers>, node: usize, cell: usize) {
        let broker = world.process(node, cell).and_then(|process| process.own.as_ref());
        let is_used = broker.is_some_and(|broker| broker.shared.lease.take_used());
        if is_used {
            world.tell(node, cell, OwnershipInput::Promised);
        }
        world.check_flushed(node, cell);
    }

    fn ends(world: &mut World<Brokers>, node: usize, cell: usize) {
        let Some(process) = world.process(node, cell) else { return };
        let (number, at) = (process.number, world.now + 1);
        let of_process = |socket: &&Socket| {
            (socket.node, socket.cell, socket.process) == (node, cell, number) && socket.is_open
        };
        let sockets: Vec<usize> = (0..world.occupant.sockets.len())
            .filter(|socket| of_process(&&world.occupant.sockets[*socket]))
            .collect();
        for socket in sockets {
            world.occupant.sockets[socket].is_open = false;
            world.schedule(at, BrokerEvent::Closed { socket });
        }
    }
}

impl Brokers {
    /// At the end everybody is connected and owed nothing.
    pub fn check_kept(&self) {
        self.clients.iter().for_each(Client::check_settled);
        self.promises.check_delivered();
    }
}

impl World<Brokers> {
    /// The shards of an owner, from what its store has.
    fn start_broker(&mut self, node: usize, cell: usize, mut recovered: Recovered) {
        let (shards, now) = (self.occupant.shards, self.moment(node));
        let copies = repartition(&mut recovered, shards);
        assert!(copies.is_empty(), "the number of shards is the same: {copies:?}");
        let wanted = in_flight(&recovered.sessions);
        let owner = self.process(node, cell).and_then(|process| process.owner.as_mut()).expect("it recovers");
        let read = owner.reader().entries(&wanted).expect("memory does not fail");
        let shared = Arc::new(shared_state(RetainedLimits::UNLIMITED));
        shared.lease.set_until(Instant::ZERO);
        shared.retained().record_changes(0);
        let shares = share_out(recovered, read, now.monotonic + HORIZON, shards);
        let mut started = Vec::new();
        for (here, share) in shares.into_iter().enumerate() {
            let random = Randomness::reproducible(self.rng.next());
            let mut settings = settings();
            settings.session.send.in_flight = 5;
            let mut shard = Shard::new(ShardId(here as u8), shards, settings, Arc::clone(&shared), random);
            shard.take_up(now.monotonic, share);
            started.push(shard);
        }
        let broker = Broker {
            shared,
            links: started.iter().map(|_| Vec::new()).collect(),
            is_awake: vec![false; started.len()],
            shards: started,
            peers_arrival: 0,
            lease_seen: Instant::ZERO,
            ran: (self.now, now.monotonic),
            read_before: now.monotonic,
        };
        let process = self.process(node, cell).expect("it recovers");
        process.own = Some(Box::new(broker));
        let at = Place { node, cell, process: process.number };
        self.settle(at);
    }

    /// Every shard knows the filters of the others before anybody can publish.
    fn settle(&mut self, at: Place) {
        for _ in 0..TURNS {
            let mut has_work = false;
            for here in 0..usize::from(self.occupant.shards) {
                let Some(process) = self.process(at.node, at.cell) else { return };
                let (Some(owner), Some(broker)) = (&mut process.owner, &mut process.own) else { return };
                let mut io = ShardIo { clock: broker.ran.1, ..ShardIo::default() };
                has_work |= broker.shards[here].turn(broker.ran.1, &mut io);
                owner.take(broker.ran.1, io.batches, io.retained);
                for (to, batch) in io.peer_batches {
                    has_work = true;
                    broker.shards[usize::from(to.0)].take_peer_batch(broker.ran.1, batch);
                }
            }
            if !has_work {
                return;
            }
        }
        panic!("a broker that starts never comes to rest");
    }

    fn broker(&mut self, at: Place) -> Option<&mut Broker> {
        let process = self.process(at.node, at.cell).filter(|process| process.number == at.process)?;
        process.own.as_deref_mut()
    }

    /// Calls a shard of a process that runs, and carries out what follows.
    ///
    /// The calls at the end of a stop of its node have the time at which the thread had read the clock
    /// before.
    fn with_shard<T>(
        &mut self,
        at: Place,
        here: usize,
        call: impl FnOnce(&mut Shard, Instant, &mut ShardIo) -> T,
    ) -> Option<T> {
        let (clock, true_now) = (self.local(at.node), self.now);
        let stopped_until = self.nodes[at.node].stopped_until;
        let broker = self.broker(at)?;
        if stopped_until > broker.ran.0 {
            broker.read_before = broker.ran.1;
        }
        let was_stopped = stopped_until > broker.ran.0 || stopped_until == true_now;
        let now = if was_stopped { broker.read_before } else { clock };
        broker.ran = (true_now, clock);
        let mut io = ShardIo { clock, ..ShardIo::default() };
        io.room = broker.links[here].iter().flatten().map(|link| (link.id, usize::MAX)).collect();
        let shard = &mut broker.shards[here];
        shard.begin_turn();
        let result = call(shard, now, &mut io);
        if was_stopped {
            shard.turn(now, &mut io);
            self.occupant.promises.totals.late_turns += 1;
        }
        self.carry_out_io(at, here, io);
        Some(result)
    }

    fn in_each_shard(&mut self, at: Place, call: impl Fn(&mut Shard, Instant)) {
        for shard in 0..usize::from(self.occupant.shards) {
            self.with_shard(at, shard, |shard, now, _| call(shard, now));
        }
    }

    fn carry_out_io(&mut self, at: Place, here: usize, io: ShardIo) {
        self.note_put(at, here);
        for (id, bytes) in io.written {
            self.leaves(at, here, id, bytes);
        }
        for id in io.finished {
            self.finish(at, here, id);
        }
        let later = self.now + self.rng.below(3);
        let now = self.local(at.node);
        if self.broker(at).is_none() {
            return;
        }
        if let Some(owner) = self.process(at.node, at.cell).and_then(|process| process.owner.as_mut()) {
            owner.take(now, io.batches, io.retained);
        }
        let Some(broker) = self.broker(at) else { return };
        let arrival = later.max(broker.peers_arrival);
        broker.peers_arrival = arrival;
        let wakes = !broker.is_awake[here] && broker.shards[here].has_work();
        broker.is_awake[here] |= wakes;
        for (to, batch) in io.peer_batches {
            self.schedule(arrival, BrokerEvent::PeerBatch { at, to: usize::from(to.0), batch });
        }
        for request in io.pages {
            self.schedule(later, BrokerEvent::Page { at, shard: here, request });
        }
        if wakes {
            self.schedule(later, BrokerEvent::Turn { at, shard: here });
        }
        self.work(at.node, at.cell);
        for id in io.resumed {
            let has_unread =
                self.broker(at).is_some_and(|broker| broker.shards[here].connection(id).has_unread());
            if has_unread {
                self.with_shard(at, here, |shard, now, io| shard.take_in(now, id, &[], io));
            }
        }
    }

    fn turn(&mut self, at: Place, here: usize) {
        if let Some(broker) = self.broker(at) {
            broker.is_awake[here] = false;
        }
        self.with_shard(at, here, |shard, now, io| shard.turn(now, io));
        self.check_flushed(at.node, at.cell);
    }

    /// Notes what the last call has put into the outboxes.
    fn note_put(&mut self, at: Place, here: usize) {
        let (true_now, now) = (self.now, self.local(at.node));
        let Some(Broker { shards, links, .. }) = self.broker(at) else { return };
        for link in links[here].iter_mut().flatten() {
            let Some(outbox) = shards[here].outbox(link.id) else { continue };
            let end = outbox.end_offset();
            if link.put.last().map_or(0, |(end, ..)| *end) < end {
                link.put.push((end, true_now, now));
            }
        }
    }

    /// Bytes leave for a client. Each promise among them has a lease or an append behind it.
    fn leaves(&mut self, at: Place, here: usize, id: ConnectionId, bytes: Vec<u8>) {
        let is_fooled = self.nodes[at.node].is_fooled(at.cell);
        let Some(process) = self.process(at.node, at.cell) else { return };
        let appended = process.stored;
        let Some(Broker { links, lease_seen, .. }) = process.own.as_deref_mut() else { return };
        let lease_seen = *lease_seen;
        let Some(link) = links[here][id.slot as usize].as_mut() else { return };
        let (socket, mut promises) = (link.socket, Vec::new());
        for (kind, packet) in packets(&bytes) {
            link.written += packet.len() as u64;
            if !matches!(kind, 2 | 4 | 5 | 7 | 9 | 11) {
                continue;
            }
            let before = link.put.partition_point(|(end, ..)| *end < link.written);
            let (_, put, put_local) = link.put[before];
            let (has_lease, has_append) = (put_local < lease_seen, appended >= put);
            promises.push((kind, Leaving { has_lease, has_append, is_fooled }, packet.to_vec()));
        }
        for (kind, leaving, packet) in promises {
            if self.occupant.promises.leaves(kind, leaving) && matches!(kind, 4 | 5) {
                self.except(socket, u16::from_be_bytes([packet[2], packet[3]]));
            }
        }
        let arrival = (self.now + self.rng.between(1, 3)).max(self.occupant.sockets[socket].down);
        self.occupant.sockets[socket].down = arrival;
        self.schedule(arrival, BrokerEvent::Deliver { socket, bytes });
    }

    /// The broker closes a connection.
    fn finish(&mut self, at: Place, here: usize, id: ConnectionId) {
        let Some(broker) = self.broker(at) else { return };
        let Some(link) = broker.links[here][id.slot as usize].take_if(|link| link.id == id) else { return };
        let socket = link.socket;
        let arrival = self.occupant.sockets[socket].down.max(self.now + 1);
        self.schedule(arrival, BrokerEvent::Closed { socket });
        self.occupant.sockets[socket].is_open = false;
        self.with_shard(at, here, |shard, now, _| shard.input(now, Input::Closed(id, "closed")));
    }

    /// A client opens a connection to a node.
    pub fn open(&mut self, client: usize, node: usize, cell: usize) -> usize {
        let process = self.process(node, cell).expect("it serves").number;
        let (is_open, place) = (true, None);
        let socket = Socket { client, node, cell, process, is_open, place, up: 0, down: 0 };
        self.occupant.sockets.push(socket);
        self.occupant.sockets.len() - 1
    }

    /// A client sends bytes.
    pub fn send_up(&mut self, socket: usize, bytes: Vec<u8>) {
        let arrival = (self.now + self.rng.between(1, 3)).max(self.occupant.sockets[socket].up);
        self.occupant.sockets[socket].up = arrival;
        self.schedule(arrival, BrokerEvent::Arrive { socket, bytes });
    }

    /// Bytes wait in the socket while the node stands still. None at all are the end of the stream.
    fn arrive(&mut self, number: usize, bytes: Vec<u8>) {
        let socket = &self.occupant.sockets[number];
        let at = Place { node: socket.node, cell: socket.cell, process: socket.process };
        let (place, client) = (socket.place, socket.client);
        let stopped_until = self.nodes[at.node].stopped_until;
        if stopped_until > self.now {
            return self.schedule(stopped_until, BrokerEvent::Arrive { socket: number, bytes });
        }
        if !self.is_running(at.node, at.cell, at.process) || !self.serves(at.node, at.cell) {
            return;
        }
        if bytes.is_empty() {
            if let Some((here, id)) = place.filter(|_| self.occupant.sockets[number].is_open) {
                self.finish(at, here, id);
            }
            return;
        }
        let (here, id) = place.unwrap_or_else(|| self.accept(at, number, client));
        if self.occupant.sockets[number].is_open {
            self.with_shard(at, here, |shard, now, io| shard.take_in(now, id, &bytes, io));
        }
    }

    fn accept(&mut self, at: Place, number: usize, client: usize) -> (usize, ConnectionId) {
        let here = usize::from(shard_of(&self.occupant.clients[client].name, self.occupant.shards).0);
        let now = self.local(at.node);
        let broker = self.broker(at).expect("it serves");
        let id = broker.shards[here].accept(now, Arrival::local());
        let links = &mut broker.links[here];
        if links.len() <= id.slot as usize {
            links.resize_with(id.slot as usize + 1, || None);
        }
        links[id.slot as usize] = Some(Link { id, socket: number, written: 0, put: Vec::new() });
        self.occupant.sockets[number].place = Some((here, id));
        (here, id)
    }

    fn read_page(&mut self, at: Place, shard: usize, request: PageRequest) {
        if self.broker(at).is_none() {
            return;
        }
        let owner =
            self.process(at.node, at.cell).and_then(|process| process.owner.as_mut()).expect("it runs");
        let read = match owner.reader().entries(&request.wanted) {
            // The reading thread waits for the applying thread.
            Err(StoreError::Behind(_)) => {
                owner.apply();
                let again = self.now + 50;
                return self.schedule(again, BrokerEvent::Page { at, shard, request });
            }
            read => read.expect("memory does not fail"),
        };
        self.occupant.promises.totals.pages += 1;
        self.with_shard(at, shard, |shard, now, _| shard.input(now, Input::Page(request, read)));
    }
}

/// Returns the packets of a stream, with their types. All are whole.
pub fn packets(mut bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let first = *bytes.first()?;
        let (mut length, mut at) = (0, 1);
        loop {
            let byte = bytes[at];
            length |= usize::from(byte & 127) << (7 * (at - 1));
            at += 1;
            if byte < 128 {
                break;
            }
        }
        let (packet, rest) = bytes.split_at(at + length);
        bytes = rest;
        Some((first >> 4, packet))
    })
}
