//! The driver of each shard, as `src/broker/driver.rs` and `src/broker/connection` are under actix,
//! and the expiry actor around its queue. The turn is the shard's own ([`Shard::turn`]); here are
//! virtual sockets, and mailboxes that take time.

use crate::network::take;
use crate::store::{Ask, Request};
use crate::trace::trace;
use crate::world::{Event, World};
use homing::durability::read_requests::DelayedRequest;
use homing::durability::read_requests::PageRequest;
use homing::events::client_events::{ClientEvent, DisconnectCause, Occurrence};
use homing::events::refusals::RefusedKind;
use homing::expiry::deadline::{DeadlineKind, Registration};
use homing::expiry::queue::{DeadlineKey, ExpiryQueue, More};
use homing::expiry::slot::SlotSpace;
use homing::login::arrival::Arrival;
use homing::login::authentication::AuthRequest;
use homing::mqtt::packet::{ProtocolVersion, ReasonCode};
use homing::operators::publish_command::PublicationAnswer;
use homing::peers::peer_batch::PeerBatch;
use homing::persistence::records::{Batch, RetainedRecord};
use homing::routing::subscription_tree::ShardId;
use homing::session::drops::DropReason;
use homing::session::outbound::stall::SocketView;
use homing::session::outbox::Outbox;
use homing::session::subscriptions::FilterCause;
use homing::session::trace_steps::TraceSteps;
use homing::shard::clients::connection::Leaves;
use homing::shard::clients::deadlines::{DeadlineAction, IdleConnection};
use homing::shard::randomness::Randomness;
use homing::shard::settings::OWN_DELAYED;
use homing::shard::turn::io::{EventMessages, Io, Written};
use homing::shard::{ConnectionId, Input, ReadProgress, Shard};
use homing::time::Instant;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Steps by which the last thing that a turn begins may go beyond it: a packet with what it leads
/// to at once, or a write to a socket. What leads to more goes on in later turns. A retained
/// message of 9,000 bytes is 141 steps, one for 64 bytes. Finding and storing messages takes some
/// steps more, and the one write that each turn makes takes 16.
/// Two filters of one SUBSCRIBE may match the same retained message, which is then sent twice.
const ONE_THING: u32 = 320;

/// How long a closing connection may take, as in the shard.
const LINGER_MS: u64 = 2_000;

pub struct Node {
    pub core: Shard,
    links: Vec<Option<Link>>,
    awake: bool,
    /// Messages that were refused or dropped for want of room.
    refused: u64,
    /// When the last thing sent arrives: to each peer, to the expiry actor.
    peer_batch_arrival: Vec<u64>,
    register_arrival: u64,
    /// Deadlines that the expiry actor receives once the broker has settled.
    early: Vec<Registration>,
}

struct Link {
    id: ConnectionId,
    socket: usize,
    lingering: bool,
    awaits_writable: bool,
}

/// The I/O of one shard. The shard itself is taken out of the world during a turn.
struct ShardIo<'a> {
    world: &'a mut World,
    shard: usize,
    later: Later,
}

/// What follows a turn: notices to connections come by mailbox under actix, so after the turn.
#[derive(Default)]
struct Later {
    events: Vec<ClientEvent>,
    close: Vec<ConnectionId>,
    read_now: Vec<ConnectionId>,
    resume: Vec<ConnectionId>,
}

impl Io for ShardIo<'_> {
    fn write(&mut self, id: ConnectionId, outbox: &mut Outbox) -> Option<Written> {
        let socket = self.world.nodes[self.shard].link(id)?.socket;
        Some(Written::plain(self.world.write(socket, outbox)))
    }

    fn read_clock(&mut self) -> Instant {
        self.world.instant()
    }

    fn await_writable(&mut self, id: ConnectionId) {
        let Some(link) = self.world.nodes[self.shard].link(id) else { return };
        link.awaits_writable = true;
        let socket = link.socket;
        if self.world.sockets[socket].send_queue.len() < self.world.plan.send_buffer {
            self.world.schedule(self.world.now + 1, Event::Writable { socket });
        }
    }

    fn finish(&mut self, id: ConnectionId, leaves: Leaves) {
        if leaves == Leaves::Client {
            return self.later.close.push(id);
        }
        let Some(link) = self.world.nodes[self.shard].link(id).filter(|l| !l.lingering) else { return };
        link.lingering = true;
        let socket = link.socket;
        self.world.sockets[socket].finished = true;
        self.world.wake_sender(socket);
        self.world.wake_reader(socket);
    }

    fn store_retained(&mut self, changes: Vec<RetainedRecord>) {
        self.world.send_to_store(Request::Retained(changes));
    }

    fn commit(&mut self, batch: Batch) {
        trace!(self.world, "shard {} to the store: {batch:?}", self.shard);
        self.world.send_to_store(Request::Batch(batch));
    }

    fn read_page(&mut self, request: PageRequest) {
        self.world.ask_store(self.shard, Ask::Page(request));
    }

    fn read_delayed(&mut self, request: DelayedRequest) {
        self.world.ask_store(self.shard, Ask::Delayed(request));
    }

    fn send_to_peer(&mut self, to: ShardId, peer_batch: PeerBatch) {
        let (world, shard, to) = (&mut *self.world, self.shard, usize::from(to.0));
        let at = world.now + world.rng.below(world.plan.peer_batch_ms);
        let at = at.max(world.nodes[shard].peer_batch_arrival[to]);
        world.nodes[shard].peer_batch_arrival[to] = at;
        trace!(world, "shard {shard} to {to}: {:?}", peer_batch);
        world.schedule(at, Event::PeerBatch { to, peer_batch });
    }

    fn register(&mut self, _: Instant, batch: Vec<Registration>) {
        if self.world.now < self.world.up_at && self.world.disk.is_some() {
            self.world.nodes[self.shard].early.extend(batch);
        } else {
            self.world.send_registrations(self.shard, batch);
        }
    }

    fn read_now(&mut self, id: ConnectionId) {
        self.later.read_now.push(id);
    }

    fn resume(&mut self, id: ConnectionId) {
        self.later.resume.push(id);
    }

    fn answer_operator(&mut self, _: PublicationAnswer) {}

    fn trace(&mut self, _: TraceSteps) {}

    fn authenticate(&mut self, request: AuthRequest) {
        self.world.asked(self.shard, &request);
    }

    fn report(&mut self, _: Instant, event: &ClientEvent) -> EventMessages {
        self.later.events.push(event.clone());
        EventMessages::default()
    }
}

impl Node {
    pub fn new(core: Shard, shards: u8) -> Node {
        Node {
            core,
            links: Vec::new(),
            awake: false,
            refused: 0,
            peer_batch_arrival: vec![0; usize::from(shards)],
            register_arrival: 0,
            early: Vec::new(),
        }
    }

    /// The socket of a connection that this shard has.
    pub fn socket_of(&mut self, id: ConnectionId) -> Option<usize> {
        self.link(id).map(|link| link.socket)
    }

    fn link(&mut self, id: ConnectionId) -> Option<&mut Link> {
        self.links.get_mut(id.slot as usize)?.as_mut().filter(|l| l.id == id)
    }
}

pub struct Expiry {
    queue: ExpiryQueue,
    slots: SlotSpace,
    wake: Option<u64>,
    expired_arrival: Vec<u64>,
    /// The number of expired deadlines that each owner had in the interval named.
    expired_deadlines: BTreeMap<(usize, u8, u32, u32), (u64, u32)>,
}

impl Expiry {
    pub fn new(interval: Duration, shards: u8, now: Instant) -> Expiry {
        Expiry {
            queue: ExpiryQueue::new(interval, now),
            slots: SlotSpace::new(shards.into()),
            wake: None,
            expired_arrival: vec![0; usize::from(shards)],
            expired_deadlines: BTreeMap::new(),
        }
    }

    pub fn len(&self) -> usize {
        self.queue.len()
    }
}

/// Expired deadlines of one kind that one owner may have in one interval: a deadline that moved
/// fires once more.
const VERDICTS_PER_INTERVAL: u32 = 4;

impl World {
    /// Calls a shard with its I/O. What follows is left to [`Self::follow`].
    fn with_shard<T>(
        &mut self,
        shard: usize,
        call: impl FnOnce(&mut Shard, Instant, &mut ShardIo<'_>) -> T,
    ) -> (T, Later) {
        let now = self.instant();
        let idle = || {
            Shard::new(
                ShardId(0),
                1,
                self.plan.settings.clone(),
                Arc::clone(&self.shared),
                Randomness::reproducible(0),
            )
        };
        let spare = self.spare.take().unwrap_or_else(idle);
        let mut core = std::mem::replace(&mut self.nodes[shard].core, spare);
        let mut io = ShardIo { world: self, shard, later: Later::default() };
        let result = call(&mut core, now, &mut io);
        let later = io.later;
        self.spare = Some(std::mem::replace(&mut self.nodes[shard].core, core));
        (result, later)
    }

    /// Does what follows a call.
    fn follow(&mut self, shard: usize, later: Later) {
        self.after_call(shard, &later.events);
        for id in later.close {
            self.gone(shard, id, "closed");
        }
        for id in later.read_now {
            if let Some(socket) = self.nodes[shard].link(id).map(|link| link.socket) {
                self.readable(socket);
            }
        }
        for id in later.resume {
            self.resume(shard, id);
        }
    }

    /// After every call of a shard that does no I/O.
    pub fn after_core(&mut self, shard: usize) {
        self.after_call(shard, &[]);
    }

    fn after_call(&mut self, shard: usize, logged: &[ClientEvent]) {
        self.check_turn(shard);
        self.check_refused(shard);
        self.note_letters();
        let events = std::mem::take(&mut self.nodes[shard].core.effects().events);
        for event in logged.iter().chain(&events) {
            self.happened(shard, event);
        }
        let node = &mut self.nodes[shard];
        for link in node.links.iter().flatten() {
            if let Some(outbox) = node.core.outbox(link.id) {
                let (end, waits) = (outbox.end_offset(), outbox.writable() > 0);
                let socket = &mut self.sockets[link.socket];
                if socket.appended.last().is_none_or(|(last, _)| *last < end) && end > 0 {
                    socket.appended.push((end, self.now));
                }
                if !waits || !socket.waits {
                    socket.took = self.now;
                }
                socket.waits = waits;
            }
            if !node.core.connection(link.id).reads() {
                self.sockets[link.socket].heard = self.now;
            }
        }
        if !node.awake && node.core.has_work() {
            node.awake = true;
            let at = self.now + self.rng.below(self.plan.turn_ms);
            self.schedule(at, Event::Turn(shard));
        }
    }

    /// No turn begins a packet once its steps are used up, or goes beyond them by more than one
    /// thing takes.
    fn check_turn(&mut self, shard: usize) {
        let core = &mut self.nodes[shard].core;
        let (longest, late) = core.take_longest_turn();
        let most = self.plan.settings.steps_per_turn;
        if late > 0 {
            self.fail(format!("{late} packets are begun in a turn that is over"));
        } else if longest > most + ONE_THING {
            self.fail(format!("a turn of {longest} steps where {most} are allowed"));
        } else if longest > most {
            self.saw("a turn is used up");
        }
        if self.nodes[shard].core.is_fanning() {
            self.saw("a publication takes several turns");
        }
    }

    /// Messages and filters are refused or dropped for want of room only while there is none.
    fn check_refused(&mut self, shard: usize) {
        if !self.shortage.plays {
            return;
        }
        let node = &mut self.nodes[shard];
        let counters = &node.core.snapshot().counters;
        let filters = counters.refused_subscriptions[FilterCause::QuotaExceeded as usize];
        let drops = &counters.drops;
        let refused = drops.of(DropReason::MemoryBudget) + drops.of(DropReason::StoreFull) + filters;
        let before = std::mem::replace(&mut node.refused, refused);
        if refused > before && !self.shortage.is() {
            self.fail(format!(
                "shard {shard} refuses messages or filters for want of room, and there is some"
            ));
        }
    }

    fn happened(&mut self, shard: usize, event: &ClientEvent) {
        trace!(self, "shard {shard}: {event:?}");
        let ClientEvent { connection, client_id, version, occurrence, .. } = event;
        let result = match occurrence {
            Occurrence::Connected { clean_start, session_present, .. } => {
                if *version == Some(ProtocolVersion::V3_1) && *session_present {
                    self.saw("a session of 3.1 is resumed");
                }
                let Some(link) = connection.and_then(|id| self.nodes[shard].link(id)) else { return };
                let socket = link.socket;
                let s = &self.sockets[socket];
                let (client, expiry, will) = (s.client, s.offer.expiry, s.offer.will);
                let late = self.plan.late_ms();
                let entered = self.check_entered(socket);
                self.check(entered);
                let admitted = self.check_admitted(client, socket, true);
                self.check(admitted);
                self.oracle.will_begins(self.now, client, will, *session_present, late);
                self.oracle.connected(self.now, client, socket, *clean_start, expiry, *session_present)
            }
            Occurrence::Disconnected(why) => {
                let ended = self.check_operated(client_id.as_deref(), why);
                self.check(ended);
                let Some(link) = connection.and_then(|id| self.nodes[shard].link(id)) else { return };
                let socket = link.socket;
                let timely = self.is_timely(socket, why);
                self.sockets[socket].closing = Some(self.now);
                if matches!(why, DisconnectCause::TakenOver) {
                    self.shortage.took_over = Some((self.sockets[socket].client, self.now));
                }
                if client_id.is_some() {
                    let s = &self.sockets[socket];
                    let expiry = s.offer.last_expiry.filter(|_| matches!(why, DisconnectCause::Client(_)));
                    let expiry = self.oracle.disconnected(self.now, s.client, socket, expiry);
                    self.oracle.will_parts(self.now, s.client, why, expiry, self.plan.late_ms());
                }
                timely
            }
            Occurrence::SessionExpired { .. } => {
                self.saw("a session expires");
                let client = self.clients.iter().position(|c| Some(&*c.manners.name) == client_id.as_deref());
                client.map_or(Ok(()), |client| self.oracle.expired(self.now, client))
            }
            // A bound that only a shortage reaches; `check_refused` counts those while one plays. What
            // the rules deny, the oracle judges.
            Occurrence::RequestRefused(refusal)
                if !self.shortage.plays
                    && refusal.kind == RefusedKind::Subscription
                    && refusal.cause != "not_authorized" =>
            {
                Err(format!("a SUBSCRIBE was refused: {}", refusal.why))
            }
            Occurrence::Contradiction { what, .. } => {
                Err(format!("an acknowledgement was taken for a wrong one: {what}"))
            }
            Occurrence::Refused { reason, .. }
                if self.authenticator.script.is_some()
                    && let Some(link) = connection.and_then(|id| self.nodes[shard].link(id))
                    && let socket = link.socket
                    && let Some(result) = self.check_kept_out(socket, *reason) =>
            {
                self.sockets[socket].closing = Some(self.now);
                result
            }
            Occurrence::Refused { .. } if self.shortage.is() => {
                let Some(link) = connection.and_then(|id| self.nodes[shard].link(id)) else { return };
                let socket = link.socket;
                self.sockets[socket].closing = Some(self.now);
                self.check_admitted(self.sockets[socket].client, socket, false)
            }
            Occurrence::Refused { what, .. } => Err(format!("a CONNECT was refused: {what}")),
            Occurrence::Redelivered { .. }
            | Occurrence::Adopted { .. }
            | Occurrence::Stalled(_)
            | Occurrence::Dropped(_)
            | Occurrence::RequestRefused(_)
            | Occurrence::Exhausted(_)
            | Occurrence::RequestUnreadable { .. } => Ok(()),
        };
        self.check(result);
    }

    /// Whether a connection that a deadline ended was not ended early.
    fn is_timely(&self, socket: usize, why: &DisconnectCause) -> Result<(), String> {
        let s = &self.sockets[socket];
        let (since, limit) = match why {
            DisconnectCause::KeepAlive { .. } => (s.heard, u64::from(s.offer.keep_alive) * 1_500),
            DisconnectCause::NoConnect => (s.accepted, self.plan.settings.connect_timeout.as_millis() as u64),
            DisconnectCause::WriteTimeout { .. } => {
                (s.took, self.plan.settings.write_timeout.as_millis() as u64)
            }
            DisconnectCause::Violation(ReasonCode::QUOTA_EXCEEDED, _) if self.shortage.is() => return Ok(()),
            DisconnectCause::Violation(reason, what) if !what.contains("hold_timeout") => {
                return Err(format!("the broker took a lawful packet for a violation: {reason:?} {what}"));
            }
            _ => return Ok(()),
        };
        // `heard` and `took` are kept only at turns, so they may be too early by one, and too late
        // by what passed between a read and the turn in which its answer was found to wait.
        if self.now + self.plan.turn_ms < since + limit {
            return Err(format!(
                "socket {socket} was disconnected after {} of {limit} ms: {why:?}",
                self.now - since
            ));
        }
        Ok(())
    }

    /// The flusher's turn.
    pub fn turn(&mut self, shard: usize) {
        self.nodes[shard].awake = false;
        let (_, later) = self.with_shard(shard, |core, now, io| core.turn(now, io));
        self.follow(shard, later);
    }

    /// Writes as much as the socket takes, or now and then less.
    fn write(&mut self, socket: usize, outbox: &mut Outbox) -> usize {
        let capacity = self.plan.send_buffer;
        let stingy = self.rng.percent(5).then(|| self.rng.between(0, 40) as usize);
        let queue = &mut self.sockets[socket].send_queue;
        let mut room = capacity.saturating_sub(queue.len()).min(stingy.unwrap_or(usize::MAX));
        let before = queue.len();
        let mut wrote = 0;
        while room > 0 && outbox.writable() > 0 {
            let mut n = 0;
            for piece in outbox.pieces() {
                let part = piece.get(..room).unwrap_or(&piece);
                queue.extend_from_slice(part);
                (n, room) = (n + part.len(), room - part.len());
            }
            outbox.advance(n);
            wrote += n;
        }
        if wrote > 0 && self.disk.is_some() {
            let bytes = self.sockets[socket].send_queue[before..].to_vec();
            self.check_gates(socket, &bytes);
        }
        self.wake_sender(socket);
        if wrote > 0 {
            self.sockets[socket].took = self.now;
        }
        wrote
    }

    fn send_registrations(&mut self, shard: usize, batch: Vec<Registration>) {
        if batch.is_empty() {
            return;
        }
        let at = (self.now + self.rng.below(self.plan.register_ms)).max(self.nodes[shard].register_arrival);
        self.nodes[shard].register_arrival = at;
        self.schedule(at, Event::Register { shard, batch });
    }

    /// Deadlines count from when every shard knows of the others' subscriptions.
    pub fn settled(&mut self) {
        for shard in 0..self.nodes.len() {
            let early = std::mem::take(&mut self.nodes[shard].early);
            self.send_registrations(shard, early);
        }
        let counted = self.recount();
        self.check(counted.map(drop).map_err(|why| format!("after a start {why}")));
    }

    fn resume(&mut self, shard: usize, id: ConnectionId) {
        let Some(link) = self.nodes[shard].link(id) else { return };
        let socket = link.socket;
        self.sockets[socket].heard = self.now;
        if self.nodes[shard].core.connection(id).has_unread() {
            self.take_in(shard, id, socket, &[]);
        }
        self.wake_reader(socket);
    }

    pub fn peer_batch(&mut self, to: usize, peer_batch: PeerBatch) {
        let now = self.instant();
        self.nodes[to].core.begin_turn();
        self.nodes[to].core.take_peer_batch(now, peer_batch);
        self.after_core(to);
    }

    pub fn adopt(&mut self, shard: usize, socket: usize, unread: Vec<u8>) {
        let now = self.instant();
        let id = self.nodes[shard].core.accept(now, Arrival::local());
        self.sockets[socket].place = Some((shard, id));
        let s = &mut self.sockets[socket];
        (s.accepted, s.heard, s.took) = (self.now, self.now, self.now);
        let links = &mut self.nodes[shard].links;
        let at = id.slot as usize;
        if links.len() <= at {
            links.resize_with(at + 1, || None);
        }
        links[at] = Some(Link { id, socket, lingering: false, awaits_writable: false });
        trace!(self, "socket {socket} of client {} is {id:?} at shard {shard}", self.sockets[socket].client);
        if !unread.is_empty() {
            self.nodes[shard].core.input(now, Input::Unread(id, unread));
            self.take_in(shard, id, socket, &[]);
        }
        self.after_core(shard);
        self.wake_reader(socket);
    }

    pub fn readable(&mut self, socket: usize) {
        // Nothing has come, or it was read before the event.
        if !std::mem::take(&mut self.sockets[socket].read_scheduled) {
            return;
        }
        let Some((shard, id)) = self.sockets[socket].place else { return };
        let lingering = self.nodes[shard].link(id).is_some_and(|l| l.lingering);
        let connection = self.nodes[shard].core.connection(id);
        let size = if lingering { usize::MAX } else { connection.read_size() };
        if size == 0 {
            return;
        }
        let has_waiting = connection.has_waiting();
        let s = &mut self.sockets[socket];
        if s.up.is_empty() && s.up_ended {
            if !has_waiting {
                self.gone(shard, id, "closed by the peer");
            }
            return;
        }
        let all = s.up.len().min(size);
        let n = if self.rng.percent(20) { self.rng.between(1, all.max(1) as u64) as usize } else { all };
        let bytes = take(&mut self.sockets[socket].up, n);
        if !lingering && !bytes.is_empty() {
            self.take_in(shard, id, socket, &bytes);
        }
        self.wake_reader(socket);
    }

    fn take_in(&mut self, shard: usize, id: ConnectionId, socket: usize, bytes: &[u8]) {
        self.nodes[shard].core.begin_turn();
        let (progress, later) = self.with_shard(shard, |core, now, io| core.take_in(now, id, bytes, io));
        self.sockets[socket].takes_in(bytes.len(), self.now);
        if let ReadProgress::Home { shard: to, unread } = progress {
            self.nodes[shard].links[id.slot as usize] = None;
            self.nodes[shard].core.moved(id);
            self.sockets[socket].place = None;
            let at = self.now + self.rng.below(self.plan.peer_batch_ms);
            self.schedule(at, Event::Adopt { shard: usize::from(to.0), socket, unread });
        }
        self.follow(shard, later);
    }

    pub fn writable(&mut self, socket: usize) {
        let Some((shard, id)) = self.sockets[socket].place else { return };
        if let Some(link) = self.nodes[shard].link(id)
            && link.awaits_writable
        {
            link.awaits_writable = false;
            let ((), later) = self.with_shard(shard, |core, now, io| core.flush_connection(now, id, io));
            self.follow(shard, later);
        }
    }

    /// The broker lets go of a socket.
    fn gone(&mut self, shard: usize, id: ConnectionId, why: &str) {
        let Some(link) = self.nodes[shard].link(id) else { return };
        let socket = link.socket;
        let now = self.instant();
        self.nodes[shard].core.input(now, Input::Closed(id, why));
        self.after_core(shard);
        self.nodes[shard].links[id.slot as usize] = None;
        let s = &mut self.sockets[socket];
        (s.place, s.closed, s.finished) = (None, true, true);
        s.up.clear();
        self.wake_sender(socket);
        self.wake_client(socket);
    }

    pub fn register(&mut self, shard: usize, batch: &[Registration]) {
        let epoch = self.millis(Instant::ZERO);
        for r in batch {
            let slot = self.expiry.slots.global(shard as u16, r.kind, r.slot);
            let key = DeadlineKey { slot, generation: r.generation };
            if let Some(bucket) = self.expiry.queue.update(key, r.deadline) {
                let bucket = bucket.as_millis().saturating_add(epoch);
                self.expiry.wake = Some(self.expiry.wake.map_or(bucket, |wake| wake.min(bucket)));
            }
        }
        self.sleep();
    }

    /// Arranges the next poll.
    fn sleep(&mut self) {
        if let Some(wake) = self.expiry.wake {
            let at = wake.max(self.now) + self.rng.below(3);
            self.schedule(at, Event::Poll { wake });
        }
    }

    pub fn poll(&mut self, wake: u64) {
        // An earlier one has been arranged since, or this one has been done.
        if self.expiry.wake != Some(wake) {
            return;
        }
        let now = self.instant();
        let mut polled = Vec::new();
        let more = self.expiry.queue.poll(now, self.plan.poll_budget, &mut polled);
        let mut batches = vec![Vec::new(); self.nodes.len()];
        for DeadlineKey { slot, generation } in polled {
            let (shard, kind, slot) = self.expiry.slots.local(slot);
            self.count_expired(usize::from(shard), kind, slot, generation);
            batches[usize::from(shard)].push((kind, slot, generation));
        }
        for (shard, batch) in batches.into_iter().enumerate().filter(|(_, b)| !b.is_empty()) {
            let at =
                (self.now + self.rng.below(self.plan.expired_ms)).max(self.expiry.expired_arrival[shard]);
            self.expiry.expired_arrival[shard] = at;
            self.schedule(at, Event::ExpiredDeadlines { shard, batch });
        }
        self.expiry.wake = match more {
            More::Due => Some(self.now),
            More::Nothing => self.expiry.queue.next_boundary().map(|at| self.millis(at)),
        };
        self.sleep();
    }

    /// An owner whose deadline expires again and again keeps two threads busy for nothing.
    fn count_expired(&mut self, shard: usize, kind: DeadlineKind, slot: u32, generation: u32) {
        let interval = self.now / self.plan.interval_ms();
        let count = self.expiry.expired_deadlines.entry((shard, kind as u8, slot, generation)).or_default();
        *count = if count.0 == interval { (interval, count.1 + 1) } else { (interval, 1) };
        if count.1 > VERDICTS_PER_INTERVAL {
            let what = format!("{kind:?} of {slot}.{generation} at shard {shard} fires over and over");
            self.fail(what);
        }
    }

    pub fn expired_deadlines(&mut self, shard: usize, batch: &[(DeadlineKind, u32, u32)]) {
        for (kind, slot, generation) in batch {
            let now = self.instant();
            if *kind == DeadlineKind::Housekeeping {
                if *slot == OWN_DELAYED {
                    self.nodes[shard].core.input(now, Input::DelayedDue);
                    self.after_core(shard);
                } else {
                    self.housekeeping(shard);
                }
                continue;
            }
            let action = self.nodes[shard].core.expired_deadline(now, *kind, *slot, *generation);
            trace!(self, "shard {shard}: expired deadline {kind:?} {slot}.{generation}: {action:?}");
            self.after_core(shard);
            match action {
                Some(DeadlineAction::Retransmit(id)) => self.retransmit(shard, id),
                Some(DeadlineAction::Disconnect(id)) => self.overdue(shard, id),
                None => {}
            }
        }
    }

    /// Returns the socket of a connection.
    pub fn socket_of(&mut self, shard: usize, id: ConnectionId) -> Option<usize> {
        self.nodes[shard].link(id).map(|link| link.socket)
    }

    fn retransmit(&mut self, shard: usize, id: ConnectionId) {
        let now = self.instant();
        let Some(socket) = self.socket_of(shard, id) else { return };
        // The acknowledgement may be among what came.
        while self.sockets[socket].place == Some((shard, id))
            && let size = self.nodes[shard].core.connection(id).read_size()
            && size > 0
            && !self.sockets[socket].up.is_empty()
        {
            let bytes = take(&mut self.sockets[socket].up, size);
            self.take_in(shard, id, socket, &bytes);
        }
        let s = &self.sockets[socket];
        let view = SocketView { unsent: s.send_queue.len(), arrived: s.up.len(), ..SocketView::default() };
        if view.arrived > 0 || self.nodes[shard].core.connection(id).has_unsearched() {
            self.sockets[socket].put_off = self.now;
        }
        self.nodes[shard].core.input(now, Input::AcknowledgementDue(id, view));
        self.after_core(shard);
    }

    /// It was silent or took nothing for too long, it is said: reads its socket empty, then looks.
    fn overdue(&mut self, shard: usize, id: ConnectionId) {
        let Some(link) = self.nodes[shard].link(id) else { return };
        let (socket, lingering) = (link.socket, link.lingering);
        while !lingering
            && self.sockets[socket].place == Some((shard, id))
            && self.nodes[shard].core.connection(id).reads()
            && !self.sockets[socket].up.is_empty()
        {
            let bytes = std::mem::take(&mut self.sockets[socket].up);
            self.take_in(shard, id, socket, &bytes);
        }
        if self.sockets[socket].place != Some((shard, id)) {
            return;
        }
        let now = self.instant();
        let overdue = IdleConnection::check(now, id, &mut self.nodes[shard].core);
        self.after_core(shard);
        match overdue {
            IdleConnection::Abandon => self.gone(shard, id, "takes no bytes"),
            IdleConnection::Paused => self.resume(shard, id),
            IdleConnection::NotYet | IdleConnection::Disconnected => {}
        }
    }

    /// Looks for connections that a deadline should have ended by now.
    pub fn sweep_broker(&mut self) {
        let late = self.plan.interval_ms() + self.plan.lateness_ms();
        self.sweep_authentication(late);
        let write_timeout = self.plan.settings.write_timeout.as_millis() as u64;
        for socket in 0..self.sockets.len() {
            let s = &self.sockets[socket];
            let Some((shard, id)) = s.place else { continue };
            let keep_alive = match self.oracle.joined.contains_key(&socket) {
                true => u64::from(s.offer.keep_alive) * 1_500,
                false => self.plan.settings.connect_timeout.as_millis() as u64,
            };
            // While its answers wait for a commit the time stands still: commits take much less
            // than that in all.
            let still = if self.disk.is_some() { keep_alive + self.shortage.blocked_ms } else { 0 };
            let reads = self.nodes[shard].core.connection(id).reads();
            if let Some(since) = s.closing {
                if self.now > since + LINGER_MS + late {
                    self.fail(format!("socket {socket} has been closing since {since}"));
                    return;
                }
                continue;
            }
            if reads && keep_alive > 0 && self.now > s.heard + keep_alive + still + late {
                let what =
                    format!("socket {socket} has been silent for {} ms of {keep_alive}", self.now - s.heard);
                self.fail(what);
                return;
            }
            let waits = self.nodes[shard].core.outbox(id).is_some_and(|o| o.writable() > 0);
            if waits && self.now > s.took + write_timeout + late {
                let what = format!("socket {socket} has taken nothing for {} ms", self.now - s.took);
                self.fail(what);
                return;
            }
        }
    }
}
