//! The shell around each shard, as `src/broker/shell.rs` and `src/broker/connection` are under actix, and the expiry actor
//! around its queue: the same order of calls, with virtual sockets and mailboxes that take their time.

use crate::network::take;
use crate::trace::trace;
use crate::world::{Event, World};
use homing::expiry::deadline::{DeadlineKind, Registration};
use homing::expiry::queue::{ExpiryQueue, Key, More};
use homing::expiry::slot::SlotSpace;
use homing::mqtt::packet::ProtocolVersion;
use homing::mqtt::session::stall::SocketView;
use homing::routing::shard::connection::Leaves;
use homing::routing::shard::deadline::{OWN_DELAYED, Overdue, Summons};
use homing::routing::shard::effects::Event as Happened;
use homing::routing::shard::effects::Why;
use homing::routing::shard::exchange::Parcel;
use homing::routing::shard::{ConnectionId, Flushed, Progress, Shard};
use homing::time::Instant;
use std::collections::BTreeMap;
use std::time::Duration;

/// Rounds of one flush at most, as in the shell.
const ROUNDS: usize = 16;

/// Steps that one indivisible thing takes at most: a packet with all that it leads to, or a write to a socket. The largest in
/// these plans is a CONNECT that takes over: it ends a session with a head of 256 shared messages and what is in flight.
const ONE_THING: u32 = 640;

/// How long a closing connection may take, as in the shard.
const LINGER_MS: u64 = 2_000;

pub struct Node {
    pub core: Shard,
    links: Vec<Option<Link>>,
    awake: bool,
    /// When the last thing sent arrives: to each peer, to the expiry actor.
    parcel_arrival: Vec<u64>,
    register_arrival: u64,
    /// Deadlines that the expiry actor is told of once the broker has settled.
    early: Vec<Registration>,
}

struct Link {
    id: ConnectionId,
    socket: usize,
    lingering: bool,
    awaits_writable: bool,
}

impl Node {
    pub fn new(core: Shard, shards: u8) -> Node {
        Node {
            core,
            links: Vec::new(),
            awake: false,
            parcel_arrival: vec![0; usize::from(shards)],
            register_arrival: 0,
            early: Vec::new(),
        }
    }

    fn link(&mut self, id: ConnectionId) -> Option<&mut Link> {
        self.links.get_mut(id.slot as usize)?.as_mut().filter(|l| l.id == id)
    }
}

pub struct Expiry {
    queue: ExpiryQueue,
    slots: SlotSpace,
    wake: Option<u64>,
    verdict_arrival: Vec<u64>,
    /// How many verdicts each owner had in the interval named.
    verdicts: BTreeMap<(usize, u8, u32, u32), (u64, u32)>,
}

impl Expiry {
    pub fn new(interval: Duration, shards: u8, now: Instant) -> Expiry {
        Expiry {
            queue: ExpiryQueue::new(interval, now),
            slots: SlotSpace::new(shards.into()),
            wake: None,
            verdict_arrival: vec![0; usize::from(shards)],
            verdicts: BTreeMap::new(),
        }
    }

    pub fn len(&self) -> usize {
        self.queue.len()
    }
}

/// Verdicts of one kind that one owner may have in one interval: a deadline that moved fires once more.
const VERDICTS_PER_INTERVAL: u32 = 4;

impl World {
    /// After every call of a shard's state machine.
    pub fn after_core(&mut self, shard: usize) {
        self.check_turn(shard);
        let events = std::mem::take(&mut self.nodes[shard].core.effects().events);
        for event in &events {
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
            if !node.core.reads(link.id) {
                self.sockets[link.socket].heard = self.now;
            }
        }
        if !node.awake && node.core.has_work() {
            node.awake = true;
            let at = self.now + self.rng.below(self.plan.turn_ms);
            self.schedule(at, Event::Turn(shard));
        }
    }

    /// No turn begins a packet once its steps are used up, or goes beyond them by more than one thing takes.
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

    fn happened(&mut self, shard: usize, event: &Happened) {
        trace!(self, "shard {shard}: {event:?}");
        let result = match event {
            Happened::Connected { connection, clean_start, session_present, version, .. } => {
                if *version == ProtocolVersion::V3_1 && *session_present {
                    self.saw("a session of 3.1 is resumed");
                }
                let Some(link) = self.nodes[shard].link(*connection) else { return };
                let socket = link.socket;
                let s = &self.sockets[socket];
                let (client, expiry, will) = (s.client, s.offer.expiry, s.offer.will);
                let late = self.plan.late_ms();
                self.oracle.will_begins(self.now, client, will, *session_present, late);
                self.oracle.connected(self.now, client, socket, *clean_start, expiry, *session_present)
            }
            Happened::Disconnected { connection, client_id, why, .. } => {
                let Some(link) = self.nodes[shard].link(*connection) else { return };
                let socket = link.socket;
                let timely = self.is_timely(socket, why);
                self.sockets[socket].closing = Some(self.now);
                if client_id.is_some() {
                    let s = &self.sockets[socket];
                    let expiry = s.offer.last_expiry.filter(|_| matches!(why, Why::Client(_)));
                    let expiry = self.oracle.disconnected(self.now, s.client, socket, expiry);
                    self.oracle.will_parts(self.now, s.client, why, expiry, self.plan.late_ms());
                }
                timely
            }
            Happened::SessionExpired { client_id, .. } => {
                self.saw("a session expires");
                let client = self.clients.iter().position(|c| *c.manners.name == **client_id);
                client.map_or(Ok(()), |client| self.oracle.expired(self.now, client))
            }
            Happened::SubscriptionsRefused { what, .. } => Err(format!("a SUBSCRIBE was refused: {what}")),
            Happened::Contradiction { what, .. } => {
                Err(format!("an acknowledgement was taken for a wrong one: {what}"))
            }
            Happened::Refused { what, .. } => Err(format!("a CONNECT was refused: {what}")),
            Happened::Redelivered { .. }
            | Happened::Stalled { .. }
            | Happened::GivenUp { .. }
            | Happened::WishUnreadable { .. } => Ok(()),
        };
        self.check(result);
    }

    /// Whether a connection that a deadline ended was not ended early.
    fn is_timely(&self, socket: usize, why: &Why) -> Result<(), String> {
        let s = &self.sockets[socket];
        let (since, limit) = match why {
            Why::KeepAlive { .. } => (s.heard, u64::from(s.offer.keep_alive) * 1_500),
            Why::NoConnect => (s.accepted, self.plan.settings.connect_timeout.as_millis() as u64),
            Why::WriteTimeout { .. } => (s.took, self.plan.settings.write_timeout.as_millis() as u64),
            Why::Violation(reason, what) if !what.contains("hold_timeout") => {
                return Err(format!("the broker took a lawful packet for a violation: {reason:?} {what}"));
            }
            _ => return Ok(()),
        };
        // `heard` and `took` are kept only at turns, so they may be too early by one, and too late by what passed between a
        // read and the turn in which its answer was found to wait.
        if self.now + self.plan.turn_ms < since + limit {
            return Err(format!("socket {socket} was cut after {} of {limit} ms: {why:?}", self.now - since));
        }
        Ok(())
    }

    /// The flusher's turn.
    pub fn turn(&mut self, shard: usize) {
        self.nodes[shard].awake = false;
        let now = self.instant();
        let core = &mut self.nodes[shard].core;
        core.begin_turn();
        core.work(now);
        self.flush(shard);
    }

    fn flush(&mut self, shard: usize) {
        for _ in 0..ROUNDS {
            let now = self.instant();
            self.nodes[shard].core.flush_begins(now);
            let mut dirty = std::mem::take(&mut self.nodes[shard].core.effects().dirty);
            while !dirty.is_empty() && !self.nodes[shard].core.turn().is_over() {
                self.flush_one(shard, dirty.remove(0));
            }
            if !dirty.is_empty() {
                self.nodes[shard].core.flush_stopped(dirty);
            }
            self.send_out(shard);
            let core = &mut self.nodes[shard].core;
            if core.effects().dirty.is_empty() || core.turn().is_over() {
                break;
            }
        }
        self.after_core(shard);
    }

    fn flush_one(&mut self, shard: usize, id: ConnectionId) {
        let Some(link) = self.nodes[shard].link(id) else { return };
        let socket = link.socket;
        let Some(wrote) = self.write(shard, id, socket) else { return };
        let now = self.instant();
        if wrote > 0 {
            self.sockets[socket].took = self.now;
        }
        let flushed = self.nodes[shard].core.flushed(now, id, wrote);
        self.after_core(shard);
        match flushed {
            Flushed::Drained | Flushed::Fenced | Flushed::Gone => {}
            Flushed::Blocked => {
                if let Some(link) = self.nodes[shard].link(id) {
                    link.awaits_writable = true;
                }
                if self.sockets[socket].send_queue.len() < self.plan.send_buffer {
                    self.schedule(self.now + 1, Event::Writable { socket });
                }
            }
            Flushed::Finished(Leaves::Client) => self.gone(shard, id, "closed"),
            Flushed::Finished(Leaves::Broker) => {
                if let Some(link) = self.nodes[shard].link(id).filter(|l| !l.lingering) {
                    link.lingering = true;
                    self.sockets[socket].finished = true;
                    self.wake_sender(socket);
                    self.wake_reader(socket);
                }
            }
        }
    }

    /// Writes as much as the socket takes, or now and then less.
    fn write(&mut self, shard: usize, id: ConnectionId, socket: usize) -> Option<usize> {
        let capacity = self.plan.send_buffer;
        let stingy = self.rng.percent(5).then(|| self.rng.between(0, 40) as usize);
        let outbox = self.nodes[shard].core.outbox(id)?;
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
        Some(wrote)
    }

    fn send_out(&mut self, shard: usize) {
        self.send_to_store(shard);
        let node = &mut self.nodes[shard];
        node.core.seal_parcels();
        let effects = node.core.effects();
        let resume = std::mem::take(&mut effects.resume);
        let parcels = std::mem::take(&mut effects.parcels);
        let batch = std::mem::take(&mut effects.registrations);
        if self.now < self.up_at && self.disk.is_some() {
            self.nodes[shard].early.extend(batch);
        } else {
            self.send_registrations(shard, batch);
        }
        for (to, parcel) in parcels {
            let to = usize::from(to.0);
            let at =
                (self.now + self.rng.below(self.plan.parcel_ms)).max(self.nodes[shard].parcel_arrival[to]);
            self.nodes[shard].parcel_arrival[to] = at;
            trace!(self, "shard {shard} to {to}: {:?}", parcel);
            self.schedule(at, Event::Parcel { to, parcel });
        }
        // A turn of its own, whose parcels are behind these.
        for id in resume {
            self.resume(shard, id);
        }
        self.after_core(shard);
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
    }

    fn resume(&mut self, shard: usize, id: ConnectionId) {
        let Some(link) = self.nodes[shard].link(id) else { return };
        let socket = link.socket;
        self.sockets[socket].heard = self.now;
        if self.nodes[shard].core.has_unread(id) {
            self.take_in(shard, id, socket, &[]);
        }
        self.wake_reader(socket);
    }

    pub fn parcel(&mut self, to: usize, parcel: Parcel) {
        let now = self.instant();
        self.nodes[to].core.begin_turn();
        self.nodes[to].core.take_parcel(now, parcel);
        self.after_core(to);
    }

    pub fn adopt(&mut self, shard: usize, socket: usize, unread: Vec<u8>) {
        let now = self.instant();
        let id = self.nodes[shard].core.accept(now);
        self.sockets[socket].home = Some((shard, id));
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
            self.nodes[shard].core.keep_unread(id, unread);
            self.take_in(shard, id, socket, &[]);
        }
        self.after_core(shard);
        self.wake_reader(socket);
    }

    pub fn readable(&mut self, socket: usize) {
        self.sockets[socket].read_scheduled = false;
        let Some((shard, id)) = self.sockets[socket].home else { return };
        let lingering = self.nodes[shard].link(id).is_some_and(|l| l.lingering);
        if !lingering && !self.nodes[shard].core.reads(id) {
            return;
        }
        let s = &mut self.sockets[socket];
        if s.up.is_empty() && s.up_ended {
            self.gone(shard, id, "closed by the peer");
            return;
        }
        let all = s.up.len();
        let n = if self.rng.percent(20) { self.rng.between(1, all.max(1) as u64) as usize } else { all };
        let bytes = take(&mut self.sockets[socket].up, n);
        if !lingering && !bytes.is_empty() {
            self.take_in(shard, id, socket, &bytes);
        }
        self.wake_reader(socket);
    }

    fn take_in(&mut self, shard: usize, id: ConnectionId, socket: usize, bytes: &[u8]) {
        let now = self.instant();
        self.nodes[shard].core.begin_turn();
        let mut progress = self.nodes[shard].core.receive(now, id, bytes);
        while progress == Progress::Flush {
            self.nodes[shard].awake = false;
            self.flush(shard);
            progress = self.nodes[shard].core.receive(now, id, &[]);
        }
        self.sockets[socket].takes_in(bytes.len(), self.now);
        if let Progress::Home { shard: home, unread } = progress {
            self.nodes[shard].links[id.slot as usize] = None;
            self.nodes[shard].core.moved(id);
            self.sockets[socket].home = None;
            let at = self.now + self.rng.below(self.plan.parcel_ms);
            self.schedule(at, Event::Adopt { shard: usize::from(home.0), socket, unread });
        }
        self.after_core(shard);
    }

    pub fn writable(&mut self, socket: usize) {
        let Some((shard, id)) = self.sockets[socket].home else { return };
        if let Some(link) = self.nodes[shard].link(id)
            && link.awaits_writable
        {
            link.awaits_writable = false;
            self.flush_one(shard, id);
            self.after_core(shard);
        }
    }

    /// The broker lets go of a socket.
    fn gone(&mut self, shard: usize, id: ConnectionId, why: &str) {
        let Some(link) = self.nodes[shard].link(id) else { return };
        let socket = link.socket;
        let now = self.instant();
        self.nodes[shard].core.closed(now, id, why);
        self.after_core(shard);
        self.nodes[shard].links[id.slot as usize] = None;
        let s = &mut self.sockets[socket];
        (s.home, s.closed, s.finished) = (None, true, true);
        s.up.clear();
        self.wake_sender(socket);
        self.wake_client(socket);
    }

    pub fn register(&mut self, shard: usize, batch: &[Registration]) {
        let epoch = self.millis(Instant::ZERO);
        for r in batch {
            let slot = self.expiry.slots.global(shard as u16, r.kind, r.slot);
            let key = Key { slot, generation: r.generation };
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
        for Key { slot, generation } in polled {
            let (shard, kind, slot) = self.expiry.slots.local(slot);
            self.count_verdict(usize::from(shard), kind, slot, generation);
            batches[usize::from(shard)].push((kind, slot, generation));
        }
        for (shard, batch) in batches.into_iter().enumerate().filter(|(_, b)| !b.is_empty()) {
            let at =
                (self.now + self.rng.below(self.plan.verdict_ms)).max(self.expiry.verdict_arrival[shard]);
            self.expiry.verdict_arrival[shard] = at;
            self.schedule(at, Event::Verdicts { shard, batch });
        }
        self.expiry.wake = match more {
            More::Due => Some(self.now),
            More::Nothing => self.expiry.queue.next_boundary().map(|at| self.millis(at)),
        };
        self.sleep();
    }

    /// An owner that has a verdict again and again keeps two threads busy for nothing.
    fn count_verdict(&mut self, shard: usize, kind: DeadlineKind, slot: u32, generation: u32) {
        let interval = self.now / self.plan.interval_ms();
        let count = self.expiry.verdicts.entry((shard, kind as u8, slot, generation)).or_default();
        *count = if count.0 == interval { (interval, count.1 + 1) } else { (interval, 1) };
        if count.1 > VERDICTS_PER_INTERVAL {
            let what = format!("{kind:?} of {slot}.{generation} at shard {shard} fires over and over");
            self.fail(what);
        }
    }

    pub fn verdicts(&mut self, shard: usize, batch: &[(DeadlineKind, u32, u32)]) {
        for (kind, slot, generation) in batch {
            let now = self.instant();
            if *kind == DeadlineKind::Chore {
                if *slot == OWN_DELAYED {
                    self.nodes[shard].core.publish_delayed(now);
                    self.after_core(shard);
                } else {
                    self.chore(shard);
                }
                continue;
            }
            let summons = self.nodes[shard].core.verdict(now, *kind, *slot, *generation);
            trace!(self, "shard {shard}: verdict {kind:?} {slot}.{generation}: {summons:?}");
            self.after_core(shard);
            match summons {
                Some(Summons::Retransmit(id)) => self.retransmit(shard, id),
                Some(Summons::Disconnect(id)) => self.overdue(shard, id),
                None => {}
            }
        }
    }

    fn retransmit(&mut self, shard: usize, id: ConnectionId) {
        let now = self.instant();
        let Some(link) = self.nodes[shard].link(id) else { return };
        let unsent = self.sockets[link.socket].send_queue.len();
        let view = SocketView { unsent, ..SocketView::default() };
        self.nodes[shard].core.acknowledgement_due(now, id, view);
        self.after_core(shard);
    }

    /// It was silent or took nothing for too long, it is said: reads its socket empty, then looks.
    fn overdue(&mut self, shard: usize, id: ConnectionId) {
        let Some(link) = self.nodes[shard].link(id) else { return };
        let (socket, lingering) = (link.socket, link.lingering);
        while !lingering
            && self.sockets[socket].home == Some((shard, id))
            && self.nodes[shard].core.reads(id)
            && !self.sockets[socket].up.is_empty()
        {
            let bytes = std::mem::take(&mut self.sockets[socket].up);
            self.take_in(shard, id, socket, &bytes);
        }
        if self.sockets[socket].home != Some((shard, id)) {
            return;
        }
        let now = self.instant();
        let overdue = self.nodes[shard].core.disconnect_if_due(now, id);
        self.after_core(shard);
        if overdue == Overdue::Abandon {
            self.gone(shard, id, "takes no bytes");
        }
    }

    /// Looks for connections that a deadline should have ended by now.
    pub fn sweep_broker(&mut self) {
        let late = self.plan.interval_ms() + self.plan.lateness_ms();
        let write_timeout = self.plan.settings.write_timeout.as_millis() as u64;
        for socket in 0..self.sockets.len() {
            let s = &self.sockets[socket];
            let Some((shard, id)) = s.home else { continue };
            let keep_alive = match self.oracle.joined.contains_key(&socket) {
                true => u64::from(s.offer.keep_alive) * 1_500,
                false => self.plan.settings.connect_timeout.as_millis() as u64,
            };
            // While its answers wait for a commit the time stands still: commits take much less than that in all.
            let still = if self.disk.is_some() { keep_alive } else { 0 };
            let reads = self.nodes[shard].core.reads(id);
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
