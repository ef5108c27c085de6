//! Sockets that are slow, split what they carry, take only part of what they are given, and break.
//!
//! Bytes on their way up are in events; those on their way down stay in the broker's kernel until
//! the client's has them, which is what TIOCOUTQ counts.

use crate::authentication::Credentials;
use crate::client::Offer;
use crate::trace::trace;
use crate::world::{Event, Phase, World};
use homing::shard::ConnectionId;
use std::collections::VecDeque;

pub struct Socket {
    pub client: usize,
    /// What its CONNECT says.
    pub offer: Offer,
    /// How its client proves its name.
    pub credentials: Credentials,
    /// The shard and connection that it belongs to: none while it is handed over, and once it is
    /// closed.
    pub place: Option<(usize, ConnectionId)>,
    pub closed: bool,
    /// Since when the broker is closing it.
    pub closing: Option<u64>,
    /// In the broker's kernel, unread.
    pub up: Vec<u8>,
    up_arrival: u64,
    pub up_ended: bool,
    pub read_scheduled: bool,
    /// In the broker's kernel, not in the client's.
    pub send_queue: Vec<u8>,
    /// Of what left the broker, the part of a packet that is not whole.
    pub leaving: Vec<u8>,
    moving: bool,
    /// In the client's kernel, unread.
    pub receive_queue: Vec<u8>,
    client_read_scheduled: bool,
    /// The broker writes no more.
    pub finished: bool,
    /// The client has read all there was.
    end_seen: bool,
    /// When a crash of the broker broke it.
    pub broken: Option<u64>,
    /// Nothing passes any more, either way.
    pub severed: bool,
    /// When an operator had packets sent again on it.
    pub hastened: Vec<u64>,
    /// When something was due again on it last and waited, because acknowledgements may be among
    /// what is not read.
    pub put_off: u64,
    /// Where the client's stream ended in the broker's kernel when.
    came: Vec<(u64, u64)>,
    /// Where the broker's stream ended when; each time it grew.
    pub appended: Vec<(u64, u64)>,
    /// Where it ended in the client's kernel when.
    arrived: Vec<(u64, u64)>,
    /// The time at which its present shard took it in.
    pub accepted: u64,
    /// When the broker last took in the end of a packet from it, or was not reading it.
    pub heard: u64,
    /// Bytes of the client's stream: sent, and taken in by the broker; and where packets end that
    /// it has not taken in.
    sent: u64,
    taken_in: u64,
    packet_ends: VecDeque<u64>,
    /// When it last took bytes of the broker's, or none waited.
    pub took: u64,
    pub waits: bool,
}

impl Socket {
    fn new(client: usize, offer: Offer, now: u64) -> Socket {
        Socket {
            client,
            offer,
            credentials: Credentials::default(),
            place: None,
            closed: false,
            closing: None,
            up: Vec::new(),
            up_arrival: now,
            up_ended: false,
            read_scheduled: false,
            send_queue: Vec::new(),
            leaving: Vec::new(),
            moving: false,
            receive_queue: Vec::new(),
            client_read_scheduled: false,
            finished: false,
            end_seen: false,
            broken: None,
            severed: false,
            hastened: Vec::new(),
            put_off: 0,
            came: Vec::new(),
            appended: Vec::new(),
            arrived: Vec::new(),
            accepted: now,
            heard: now,
            sent: 0,
            taken_in: 0,
            packet_ends: VecDeque::new(),
            took: now,
            waits: false,
        }
    }

    /// When the client's kernel had the stream up to this offset.
    pub fn arrived_at(&self, offset: u64) -> u64 {
        let at = self.arrived.partition_point(|(end, _)| *end < offset);
        self.arrived.get(at).map_or(u64::MAX, |(_, when)| *when)
    }

    /// Where the client's stream ends by now.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// When the broker's kernel had the client's stream up to this offset.
    pub fn came_at(&self, offset: u64) -> u64 {
        let at = self.came.partition_point(|(end, _)| *end < offset);
        self.came.get(at).map_or(u64::MAX, |(_, when)| *when)
    }

    /// The client sends a packet of so many bytes.
    fn sends(&mut self, bytes: usize) {
        self.sent += bytes as u64;
        self.packet_ends.push_back(self.sent);
    }

    /// The broker takes in so many bytes, or what it had kept of them; a part of a packet does not
    /// count as heard.
    pub fn takes_in(&mut self, bytes: usize, now: u64) {
        self.taken_in += bytes as u64;
        let mut ended = bytes == 0;
        while self.packet_ends.pop_front_if(|end| *end <= self.taken_in).is_some() {
            ended = true;
        }
        if ended {
            self.heard = now;
        }
    }

    /// When the broker appended the packet that ends at this offset of its stream.
    pub fn appended_at(&self, offset: u64) -> u64 {
        let at = self.appended.partition_point(|(end, _)| *end < offset);
        self.appended.get(at).map_or(0, |(_, when)| *when)
    }
}

/// The first `n` bytes.
pub fn take(bytes: &mut Vec<u8>, n: usize) -> Vec<u8> {
    let rest = bytes.split_off(n.min(bytes.len()));
    std::mem::replace(bytes, rest)
}

impl World {
    fn delay(&mut self) -> u64 {
        let most =
            if self.phase == Phase::Chaos { self.plan.network_ms } else { self.plan.network_ms.min(5) };
        self.rng.between(0, most)
    }

    /// A client opens a connection; some shard's listener accepts it.
    pub fn open(&mut self, client: usize, offer: Offer) -> usize {
        let socket = self.sockets.len();
        self.sockets.push(Socket::new(client, offer, self.now));
        let shard = self.rng.below(u64::from(self.plan.shards)) as usize;
        self.schedule(self.now.max(self.up_at), Event::Adopt { shard, socket, unread: Vec::new() });
        socket
    }

    /// The broker's process is gone, and its end of every connection with it: what the kernel had
    /// taken of it may still arrive, or not.
    pub fn break_all(&mut self) {
        for socket in 0..self.sockets.len() {
            let lost = self.rng.percent(50);
            let s = &mut self.sockets[socket];
            if s.closed {
                continue;
            }
            (s.place, s.closed, s.finished) = (None, true, true);
            s.broken = Some(self.now);
            s.up.clear();
            if lost {
                s.send_queue.clear();
            }
            self.wake_sender(socket);
            self.wake_client(socket);
        }
    }

    /// A client writes a packet.
    pub fn send_up(&mut self, socket: usize, bytes: &[u8]) {
        let mut rest = bytes.to_vec();
        self.sockets[socket].sends(bytes.len());
        while !rest.is_empty() {
            let n = if self.rng.percent(20) {
                self.rng.between(1, rest.len() as u64) as usize
            } else {
                rest.len()
            };
            let bytes = take(&mut rest, n);
            let at = (self.now + self.delay()).max(self.sockets[socket].up_arrival);
            self.sockets[socket].up_arrival = at;
            self.schedule(at, Event::UpArrives { socket, bytes });
        }
    }

    /// A client closes its side; what it wrote before still arrives.
    pub fn close_up(&mut self, socket: usize) {
        let at = (self.now + self.delay()).max(self.sockets[socket].up_arrival);
        self.sockets[socket].up_arrival = at;
        self.schedule(at, Event::UpEnds { socket });
    }

    /// The connection breaks, with what is under way; the broker learns of it.
    pub fn reset(&mut self, socket: usize) {
        self.sockets[socket].severed = true;
        let at = self.now + self.delay();
        self.schedule(at, Event::UpEnds { socket });
    }

    /// The connection breaks, and neither end notices.
    pub fn vanish(&mut self, socket: usize) {
        self.sockets[socket].severed = true;
    }

    pub fn up_arrives(&mut self, socket: usize, bytes: &[u8]) {
        let s = &mut self.sockets[socket];
        if s.severed || s.closed {
            return;
        }
        s.up.extend_from_slice(bytes);
        let before = s.came.last().map_or(0, |(end, _)| *end);
        s.came.push((before + bytes.len() as u64, self.now));
        self.wake_reader(socket);
    }

    pub fn up_ends(&mut self, socket: usize) {
        self.sockets[socket].up_ended = true;
        self.wake_reader(socket);
    }

    pub fn wake_reader(&mut self, socket: usize) {
        let s = &mut self.sockets[socket];
        if !s.read_scheduled && s.place.is_some() && (!s.up.is_empty() || s.up_ended) {
            s.read_scheduled = true;
            self.schedule(self.now, Event::Readable { socket });
        }
    }

    /// The broker's kernel has bytes for the client, or an end.
    pub fn wake_sender(&mut self, socket: usize) {
        let s = &mut self.sockets[socket];
        if !s.moving && !s.severed && (!s.send_queue.is_empty() || s.finished) {
            s.moving = true;
            let at = self.now + self.delay();
            self.schedule(at, Event::DownMoves { socket });
        }
    }

    pub fn down_moves(&mut self, socket: usize) {
        let capacity = self.plan.receive_buffer;
        let s = &mut self.sockets[socket];
        s.moving = false;
        if s.severed {
            return;
        }
        let room = capacity.saturating_sub(s.receive_queue.len()).min(s.send_queue.len());
        if room > 0 {
            let n = if self.rng.percent(30) { self.rng.between(1, room as u64) as usize } else { room };
            let bytes = take(&mut s.send_queue, n);
            s.receive_queue.extend_from_slice(&bytes);
            let before = s.arrived.last().map_or(0, |(end, _)| *end);
            s.arrived.push((before + n as u64, self.now));
            self.schedule(self.now, Event::Writable { socket });
        }
        self.wake_client(socket);
        // Without room the client's next read wakes it.
        let s = &self.sockets[socket];
        if s.receive_queue.len() < capacity && !s.send_queue.is_empty() {
            self.wake_sender(socket);
        }
    }

    /// There is something for the client to read, or the end.
    pub fn wake_client(&mut self, socket: usize) {
        let s = &mut self.sockets[socket];
        let readable = !s.receive_queue.is_empty() || s.finished && s.send_queue.is_empty();
        if readable && !s.client_read_scheduled && !s.severed {
            s.client_read_scheduled = true;
            let at = self.now + self.rng.below(2);
            self.schedule(at, Event::ClientReads { socket });
        }
    }

    pub fn client_reads(&mut self, socket: usize) {
        let s = &mut self.sockets[socket];
        s.client_read_scheduled = false;
        if s.severed || s.end_seen {
            return;
        }
        let client = s.client;
        let current = self.clients[client].socket() == Some(socket);
        let stalled = self.clients[client].stalled_until;
        if current && stalled > self.now {
            self.sockets[socket].client_read_scheduled = true;
            self.schedule(stalled, Event::ClientReads { socket });
            return;
        }
        let s = &mut self.sockets[socket];
        let bytes = std::mem::take(&mut s.receive_queue);
        let ended = s.finished && s.send_queue.is_empty();
        if current && !bytes.is_empty() {
            self.client_takes(client, socket, &bytes);
        }
        if ended {
            trace!(self, "socket {socket}: the client sees its end");
            if self.clients[client].socket() == Some(socket) {
                self.clients[client].lose_connection();
            }
            self.sockets[socket].end_seen = true;
            self.close_up(socket);
            return;
        }
        self.wake_sender(socket);
    }
}
