//! Virtual time, what happens, and the sockets.

use crate::bridge::Bridge;
use crate::client::{Publisher, Subscriber};
use crate::far::Far;
use crate::near::Near;
use crate::oracle::{Oracle, Side};
use crate::plan::{FAULTS_UNTIL, Plan};
use crate::rng::Rng;
use crate::schedule::Schedule;
use homing::durability::read_requests::PageRequest;
use homing::peers::peer_batch::PeerBatch;
use homing::shard::ConnectionId;
use homing::time::Instant;

/// After the last fault: time for both sides to come back and to be owed nothing.
const CALM_MS: u64 = 60_000;

#[derive(Debug)]
pub enum Event {
    /// A publisher does what it does next.
    Step(Side),
    /// Bytes reach a shard.
    ToShard {
        socket: usize,
        bytes: Vec<u8>,
    },
    /// Bytes of a shard reach the other end of the socket.
    FromShard {
        socket: usize,
        bytes: Vec<u8>,
    },
    /// The other end of a socket learns that the shard has closed it.
    ShardClosed {
        socket: usize,
    },
    Turn {
        process: u64,
        shard: usize,
    },
    PeerBatch {
        process: u64,
        to: usize,
        batch: PeerBatch,
    },
    Commit {
        process: u64,
    },
    Page {
        process: u64,
        shard: usize,
        request: PageRequest,
    },
    /// Bytes reach the other broker. None at all are the end of the stream.
    ToFar {
        link: usize,
        bytes: Vec<u8>,
    },
    /// Bytes of the other broker reach the bridge, or the end of the stream.
    FromFar {
        link: usize,
        bytes: Vec<u8>,
    },
    /// A time that the bridge waits for.
    BridgeWake {
        attempt: u64,
    },
    Fault,
    NearStarts,
    FarListens,
    FarRetransmits,
}

/// Who has the other end of a socket of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    Publisher,
    Subscriber,
    Bridge,
}

/// A connection to a shard.
pub struct Socket {
    pub owner: Owner,
    pub process: u64,
    pub is_open: bool,
    pub place: (usize, ConnectionId),
    /// Bytes that the other end has not read.
    pub unread: usize,
    /// When the last bytes arrive that were sent up and down.
    up: u64,
    down: u64,
}

/// A connection to the other broker.
pub struct Line {
    /// False if bytes do not arrive any more.
    pub up_is_open: bool,
    pub down_is_open: bool,
    /// True once the bridge has closed its end.
    pub up_is_over: bool,
    /// Bytes that the other broker has not read.
    pub unread: usize,
    up: u64,
    down: u64,
}

pub struct World {
    pub now: u64,
    pub rng: Rng,
    pub plan: Plan,
    pub oracle: Oracle,
    pub is_calm: bool,
    traces: bool,
    schedule: Schedule<Event>,
    pub sockets: Vec<Socket>,
    pub lines: Vec<Line>,
    pub near: Near,
    pub far: Far,
    pub bridge: Bridge,
    pub publisher: Publisher,
    pub subscriber: Subscriber,
}

impl World {
    pub fn new(seed: u64, traces: bool) -> World {
        let mut rng = Rng::new(seed);
        let plan = Plan::new(&mut rng);
        World {
            now: 0,
            oracle: Oracle::default(),
            is_calm: false,
            traces,
            schedule: Schedule::new(),
            sockets: Vec::new(),
            lines: Vec::new(),
            near: Near::default(),
            far: Far::new(&plan),
            bridge: Bridge::new(&plan),
            publisher: Publisher::default(),
            subscriber: Subscriber::default(),
            plan,
            rng,
        }
    }

    pub fn instant(&self) -> Instant {
        Instant::from_millis(self.now)
    }

    pub fn at(&mut self, at: u64, event: Event) {
        self.schedule.add(at, event);
    }

    pub fn trace(&self, text: impl FnOnce() -> String) {
        if self.traces {
            println!("{:>6} {}", self.now, text());
        }
    }

    pub fn play(&mut self) {
        let first = self.rng.below(3_000);
        self.at(first, Event::Fault);
        self.at(0, Event::NearStarts);
        self.at(0, Event::Step(Side::Here));
        self.at(0, Event::Step(Side::There));
        self.at(500, Event::FarRetransmits);
        while let Some(at) = self.schedule.next_at().filter(|at| *at < FAULTS_UNTIL + CALM_MS) {
            let Some((_, event)) = self.schedule.pop() else { break };
            self.now = at;
            self.is_calm = at > FAULTS_UNTIL;
            self.happen(event);
        }
        self.check_settled();
    }

    fn check_settled(&mut self) {
        assert!(self.bridge.is_established(), "the bridge is not connected after the calm");
        let has_calmed = FAULTS_UNTIL + CALM_MS / 2;
        assert!(self.bridge.connected < has_calmed, "the bridge connects again without a fault");
        assert!(self.publisher.is_settled(), "the publisher waits after the calm");
        self.far.check_settled();
        let (queued, in_flight) = self.look_at_session();
        assert_eq!((queued, in_flight), (0, 0), "the session here has messages after the calm");
        self.oracle.check_delivered();
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Step(Side::Here) => self.step_here(),
            Event::Step(Side::There) => self.step_there(),
            Event::ToShard { socket, bytes } => self.shard_reads(socket, &bytes),
            Event::FromShard { socket, bytes } => self.end_reads(socket, &bytes),
            Event::ShardClosed { socket } => self.end_is_closed(socket),
            Event::Turn { process, shard } => self.turn(process, shard),
            Event::PeerBatch { process, to, batch } => self.take_peer_batch(process, to, batch),
            Event::Commit { process } => self.commit(process),
            Event::Page { process, shard, request } => self.read_page(process, shard, request),
            Event::ToFar { link, bytes } => {
                self.lines[link].up_is_over |= bytes.is_empty();
                self.far_reads(link, &bytes);
            }
            Event::FromFar { link, bytes } => self.bridge_reads(link, bytes),
            Event::BridgeWake { attempt } => self.bridge_wakes(attempt),
            Event::Fault => self.fault(),
            Event::NearStarts => self.near_starts(),
            Event::FarListens => self.far_listens(),
            Event::FarRetransmits => self.far_retransmits(),
        }
    }

    fn fault(&mut self) {
        if self.is_calm {
            return;
        }
        match self.rng.below(6) {
            0 => self.near_crashes(),
            1 | 2 => self.far_crashes(),
            3 => self.break_line(),
            4 => self.far_hangs(),
            _ => self.reload(),
        }
        let next = self.now + self.rng.between(100, 8_000);
        self.at(next, Event::Fault);
    }

    /// The network loses a connection. Either side learns of it at once, later or never.
    fn break_line(&mut self) {
        let Some(link) = self.far.link() else { return };
        self.trace(|| format!("connection {link} breaks"));
        self.oracle.totals.breaks += 1;
        (self.lines[link].up_is_open, self.lines[link].down_is_open) = (false, false);
        if self.rng.percent(70) {
            let at = self.now + self.rng.below(3_000);
            self.at(at, Event::FromFar { link, bytes: Vec::new() });
        }
        if self.rng.percent(70) {
            self.far.connection_ends();
        }
    }

    /// The end of a socket reads what a shard wrote.
    fn end_reads(&mut self, socket: usize, bytes: &[u8]) {
        let Socket { owner, process, .. } = self.sockets[socket];
        if process != self.near.process {
            return;
        }
        if owner != Owner::Bridge {
            self.has_read(socket, bytes.len());
        }
        match owner {
            Owner::Publisher => self.publisher_reads(socket, bytes),
            Owner::Subscriber => self.subscriber_reads(socket, bytes),
            Owner::Bridge => self.bridge_reads_here(socket, bytes),
        }
    }

    fn end_is_closed(&mut self, socket: usize) {
        match self.sockets[socket].owner {
            _ if self.sockets[socket].process != self.near.process => {}
            Owner::Publisher => self.publisher_is_closed(socket),
            Owner::Subscriber => self.subscriber.is_closed(socket),
            Owner::Bridge => self.bridge_is_closed_here(socket),
        }
    }

    /// Bytes on their way up or down: in pieces, each behind the one before.
    fn pieces(&mut self, bytes: &[u8], from: u64) -> Vec<(u64, Vec<u8>)> {
        let (mut rest, mut at, mut pieces) = (bytes, from, Vec::new());
        while !rest.is_empty() {
            let is_cut = rest.len() > 1 && self.rng.percent(20);
            let length = if is_cut { 1 + self.rng.below(rest.len() as u64 - 1) as usize } else { rest.len() };
            let (piece, behind) = rest.split_at(length);
            pieces.push((at, piece.to_vec()));
            rest = behind;
            at += self.rng.below(3);
        }
        pieces
    }

    /// Sends bytes to a shard. None at all are the end of the stream.
    pub fn send_up(&mut self, socket: usize, bytes: &[u8]) {
        let from = (self.now + self.rng.below(3)).max(self.sockets[socket].up);
        let mut pieces = self.pieces(bytes, from);
        if bytes.is_empty() {
            pieces.push((from, Vec::new()));
        }
        for (at, bytes) in pieces {
            self.sockets[socket].up = at;
            self.at(at, Event::ToShard { socket, bytes });
        }
    }

    pub fn send_down(&mut self, socket: usize, bytes: &[u8]) {
        let from = (self.now + self.rng.below(3)).max(self.sockets[socket].down);
        for (at, bytes) in self.pieces(bytes, from) {
            self.sockets[socket].down = at;
            self.at(at, Event::FromShard { socket, bytes });
        }
    }

    /// Closes a socket behind what the shard has written to it.
    pub fn close_down(&mut self, socket: usize) {
        let at = self.now.max(self.sockets[socket].down);
        self.sockets[socket].down = at;
        self.at(at, Event::ShardClosed { socket });
    }

    pub fn add_socket(&mut self, owner: Owner, place: (usize, ConnectionId)) -> usize {
        let process = self.near.process;
        self.sockets.push(Socket { owner, process, is_open: true, place, unread: 0, up: 0, down: 0 });
        self.sockets.len() - 1
    }

    /// Opens a connection to the other broker.
    pub fn dial(&mut self) -> usize {
        self.lines.push(Line {
            up_is_open: true,
            down_is_open: true,
            up_is_over: false,
            unread: 0,
            up: 0,
            down: 0,
        });
        self.lines.len() - 1
    }

    pub fn send_to_far(&mut self, link: usize, bytes: &[u8]) {
        let from = (self.now + self.rng.between(1, 5)).max(self.lines[link].up);
        let mut pieces = self.pieces(bytes, from);
        if bytes.is_empty() {
            pieces.push((from, Vec::new()));
        }
        self.lines[link].unread += bytes.len();
        for (at, bytes) in pieces {
            self.lines[link].up = at;
            self.at(at, Event::ToFar { link, bytes });
        }
    }

    /// The other broker sends bytes after a while.
    pub fn send_from_far(&mut self, link: usize, after: u64, bytes: &[u8]) {
        let from = (self.now + after + self.rng.between(1, 5)).max(self.lines[link].down);
        let mut pieces = self.pieces(bytes, from);
        if bytes.is_empty() {
            pieces.push((from, Vec::new()));
        }
        for (at, bytes) in pieces {
            self.lines[link].down = at;
            self.at(at, Event::FromFar { link, bytes });
        }
    }
}
