//! What stands around a shard's state machine on its arbiter: sockets, the flush at the end of a turn, the ways out.
//!
//! Connections read and feed the machine one after the other; the flusher is woken with the first thing to do and so runs
//! after those that were ready with it: one write per connection, one message per peer, one to the expiry actor.

use super::connection::{self, Connection, Notice, Transport};
use super::dump::{Asked, SESSIONS, ShardInspection};
use super::events::{EventTopics, Scene};
use super::log::EventLog;
use super::message::{Adopt, Incoming, Introduce};
use super::shard::ShardActor;
use super::statistics::Statistics;
use crate::clock;
use crate::expiry::actor::ExpiryActor;
use crate::expiry::deadline::Registration;
use crate::expiry::message::{Register, Survey};
use crate::journal::record::Lsn;
use crate::routing::shard::commit::PageRequest;
use crate::routing::shard::connection::Leaves;
use crate::routing::shard::{ConnectionId, Flushed, Shard};
use crate::routing::subscription_tree::ShardId;
use crate::store::{self, writer::SessionToken, writer::ToStore};
use crate::time::Instant;
use actix::{Addr, WeakAddr};
use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;
use tokio::sync::Notify;
use tracing::info;

/// Bytes read from a socket at once.
const READ_SIZE: usize = 64 * 1024;

/// Bytes of partial packets that an arbiter may have taken in before the broker's total knows.
const PARTIAL_GROWTH: i64 = 1024 * 1024;

/// Rounds of one flush at most: a flush makes room, room lets queued messages out, and those are flushed again.
const ROUNDS: usize = 16;

/// See the module's text.
pub struct Shell {
    pub core: RefCell<Shard>,
    /// Shared by all connections of the arbiter: an idle one owns no read buffer.
    pub scratch: RefCell<Vec<u8>>,
    here: ShardId,
    links: RefCell<Vec<Option<Link>>>,
    open: Cell<usize>,
    stopping: Cell<bool>,
    /// Signalled when the last connection is gone.
    pub emptied: Notify,
    flusher: RefCell<Option<Waker>>,
    awake: Cell<bool>,
    shards: OnceCell<Vec<Addr<ShardActor>>>,
    expiry: OnceCell<Addr<ExpiryActor>>,
    /// Deadlines from before there was one to tell.
    early: RefCell<Vec<Registration>>,
    store: OnceCell<ToStore>,
    pub statistics: Arc<Statistics>,
    log: Arc<EventLog>,
    topics: RefCell<EventTopics>,
    /// How long after its bucket's end the latest batch of verdicts came.
    pub tick_late: Cell<Duration>,
    /// How long the machine was, as far as the shard was told.
    suspended: Cell<Duration>,
}

/// A connection's way out.
struct Link {
    id: ConnectionId,
    transport: Rc<Transport>,
    actor: WeakAddr<Connection>,
    /// Whether its mailbox may hold something.
    noticed: Cell<bool>,
    peer: SocketAddr,
}

impl Link {
    /// Notices are rare, so an address is made for each and not kept.
    fn send(&self, notice: Notice) {
        self.noticed.set(true);
        if let Some(actor) = self.actor.upgrade() {
            actor.do_send(notice);
        }
    }
}

impl Shell {
    pub fn new(
        core: Shard,
        statistics: Arc<Statistics>,
        log: Arc<EventLog>,
        topics: EventTopics,
    ) -> Rc<Shell> {
        Rc::new(Shell {
            here: core.here,
            core: RefCell::new(core),
            scratch: RefCell::new(vec![0; READ_SIZE]),
            links: RefCell::default(),
            open: Cell::new(0),
            stopping: Cell::new(false),
            emptied: Notify::new(),
            flusher: RefCell::default(),
            awake: Cell::new(false),
            shards: OnceCell::new(),
            expiry: OnceCell::new(),
            early: RefCell::default(),
            store: OnceCell::new(),
            statistics,
            log,
            topics: RefCell::new(topics),
            tick_late: Cell::default(),
            suspended: Cell::new(clock::suspended()),
        })
    }

    pub fn introduce(&self, all: Introduce) {
        let _ = self.shards.set(all.shards);
        if let Some(store) = all.store {
            let _ = self.store.set(store);
        }
        self.turn_ended();
    }

    /// Every shard has been introduced.
    pub fn settle(&self, expiry: Addr<ExpiryActor>) {
        let batch = self.early.take();
        if !batch.is_empty() {
            expiry.do_send(Register { shard: u16::from(self.here.0), batch, sent: clock::now() });
        }
        let _ = self.expiry.set(expiry);
    }

    /// Takes a socket in and starts its actor.
    pub fn adopt(self: &Rc<Shell>, incoming: Incoming) {
        let Incoming { socket, peer, unread } = incoming;
        if self.stopping.get() {
            self.statistics.connection_closed();
            return;
        }
        let Ok(transport) = Transport::new(socket).map(Rc::new) else {
            self.statistics.connection_closed();
            return;
        };
        let now = clock::now();
        let id = self.core.borrow_mut().accept(now);
        let connection = Connection::new(Rc::clone(self), id, Rc::clone(&transport));
        // Its first turn arranges with its mailbox to be woken.
        let link =
            Link { id, transport, actor: connection::start(connection), noticed: Cell::new(true), peer };
        if !unread.is_empty() {
            self.core.borrow_mut().keep_unread(id, unread);
            link.send(Notice::Read);
        }
        let mut links = self.links.borrow_mut();
        let at = id.slot as usize;
        if links.len() <= at {
            links.resize_with(at + 1, || None);
        }
        if let Some(slot) = links.get_mut(at) {
            *slot = Some(link);
            self.open.set(self.open.get() + 1);
        }
    }

    /// Tells the shard if the machine was suspended since the last call: before any deadline is looked at.
    pub fn notice_suspend(&self, now: Instant) {
        const SHORT: Duration = Duration::from_secs(1);
        let suspended = clock::suspended();
        let before = self.suspended.get();
        if suspended >= before + SHORT {
            self.suspended.set(suspended);
            self.core.borrow_mut().woke(now);
            if self.here.0 == 0 {
                let slept_ms = (suspended - before).as_millis() as u64;
                info!(slept_ms, "the machine was suspended: clients have their whole keep alive again");
            }
        }
    }

    /// The connection is gone, or moves: lets go of its socket.
    pub fn forget(&self, id: ConnectionId) -> Option<SocketAddr> {
        let mut links = self.links.borrow_mut();
        let link = links.get_mut(id.slot as usize)?.take_if(|link| link.id == id)?;
        self.open.set(self.open.get() - 1);
        if self.open.get() == 0 {
            self.emptied.notify_waiters();
        }
        Some(link.peer)
    }

    pub fn open(&self) -> usize {
        self.open.get()
    }

    /// Sends a socket to the shard where its session lives.
    pub fn hand_over(&self, shard: ShardId, incoming: Incoming) {
        if let Some(home) = self.shards.get().and_then(|s| s.get(usize::from(shard.0))) {
            home.do_send(Adopt(vec![incoming]));
        }
    }

    pub fn notify(&self, id: ConnectionId, notice: Notice) {
        let links = self.links.borrow();
        if let Some(link) = find(&links, id) {
            link.send(notice);
        }
    }

    /// Whether a connection's mailbox may hold something: nearly never, and to ask the mailbox itself costs some two hundred
    /// instructions and four places in memory.
    pub fn take_noticed(&self, id: ConnectionId) -> bool {
        find(&self.links.borrow(), id).is_none_or(|link| link.noticed.replace(false))
    }

    /// Called after the state machine was fed: wakes the flusher if there is something to do.
    pub fn turn_ended(&self) {
        if !self.awake.get() && self.core.borrow().has_work() {
            self.awake.set(true);
            if let Some(waker) = &*self.flusher.borrow() {
                waker.wake_by_ref();
            }
        }
    }

    /// The flusher's turn; `waker` wakes it again. Ready if it is to have another one, once the sockets were looked at.
    pub fn flusher_turn(&self, waker: &Waker) -> Poll<()> {
        let known = self.flusher.borrow().as_ref().is_some_and(|w| w.will_wake(waker));
        if !known {
            *self.flusher.borrow_mut() = Some(waker.clone());
        }
        self.awake.set(false);
        if self.shards.get().is_none() {
            // Nothing may leave before it is known where to: what was recovered waits in the parcels. Being introduced wakes it.
            return Poll::Pending;
        }
        self.turn();
        self.account();
        if !self.core.borrow().has_work() {
            return Poll::Pending;
        }
        // It is coming back: nobody need wake it.
        self.awake.set(true);
        Poll::Ready(())
    }

    /// One turn: what earlier ones left, and a flush.
    fn turn(&self) {
        let mut core = self.core.borrow_mut();
        core.begin_turn();
        if core.has_jobs() {
            core.work(clock::now());
        }
        drop(core);
        self.flush();
    }

    /// Turns until nothing is left to go on with, at start and stop.
    pub fn finish(&self) {
        self.turn();
        while !self.core.borrow_mut().effects().dirty.is_empty() || self.core.borrow().has_jobs() {
            self.turn();
        }
    }

    /// Writes what waits, and sends what is to be said; as far as this turn goes.
    pub fn flush(&self) {
        for _ in 0..ROUNDS {
            // Once for all that are flushed: a fan-out flushes many.
            let now = clock::now();
            self.core.borrow_mut().flush_begins(now);
            let dirty = std::mem::take(&mut self.core.borrow_mut().effects().dirty);
            let flushed = self.flush_all(now, &dirty);
            self.give_back_dirty(dirty, flushed);
            self.send_out(now);
            let mut core = self.core.borrow_mut();
            if core.effects().dirty.is_empty() || core.turn().is_over() {
                return;
            }
        }
    }

    /// Each of these, until the turn is over; how many that were.
    fn flush_all(&self, now: Instant, dirty: &[ConnectionId]) -> usize {
        for (at, id) in dirty.iter().enumerate() {
            self.flush_one(now, *id);
            if self.core.borrow().turn().is_over() {
                return at + 1;
            }
        }
        dirty.len()
    }

    /// One write for one connection.
    pub fn flush_one(&self, now: Instant, id: ConnectionId) {
        let links = self.links.borrow();
        let Some(link) = find(&links, id) else { return };
        let mut core = self.core.borrow_mut();
        let wrote = match core.outbox(id).map(|outbox| write(&link.transport, outbox)) {
            Some(Ok(wrote)) => wrote,
            // The reading side would meet the same error, but need not be read now.
            Some(Err(_)) => return link.send(Notice::Broken),
            None => return,
        };
        match core.flushed(now, id, wrote) {
            Flushed::Drained | Flushed::Fenced | Flushed::Gone => {}
            Flushed::Blocked => link.send(Notice::AwaitWritable),
            Flushed::Finished(Leaves::Client) => link.send(Notice::Close),
            Flushed::Finished(Leaves::Broker) => link.send(Notice::Linger),
        }
    }

    /// The list goes back, so that it is allocated once, with those that were not flushed.
    fn give_back_dirty(&self, mut dirty: Vec<ConnectionId>, flushed: usize) {
        let mut core = self.core.borrow_mut();
        if flushed < dirty.len() {
            dirty.drain(..flushed);
            return core.flush_stopped(dirty);
        }
        dirty.clear();
        let now = &mut core.effects().dirty;
        if now.is_empty() {
            *now = dirty;
        }
    }

    fn send_out(&self, now: Instant) {
        self.send_to_store(now);
        let mut core = self.core.borrow_mut();
        core.seal_parcels();
        let effects = core.effects();
        // Nearly always there was only something to write.
        if effects.is_empty() {
            return;
        }
        let resume = std::mem::take(&mut effects.resume);
        let parcels = std::mem::take(&mut effects.parcels);
        let batch = std::mem::take(&mut effects.registrations);
        drop(core);
        for id in resume {
            self.notify(id, Notice::Read);
        }
        match self.expiry.get() {
            _ if batch.is_empty() => {}
            Some(expiry) => expiry.do_send(Register { shard: u16::from(self.here.0), batch, sent: now }),
            None => self.early.borrow_mut().extend(batch),
        }
        for (to, parcel) in parcels {
            if let Some(peer) = self.shards.get().and_then(|s| s.get(usize::from(to.0))) {
                peer.do_send(parcel);
            }
        }
        self.log_events();
    }

    /// Before the parcels: no part of a move may come to the store before the batch that the move stands in.
    fn send_to_store(&self, now: Instant) {
        let Some(store) = self.store.get() else { return };
        let mut core = self.core.borrow_mut();
        if std::mem::take(&mut core.effects().retained) {
            let common = core.common();
            let mut retained = common.retained();
            let changes = retained.take_changes();
            // Still locked: they have one order.
            store.retained(changes);
        }
        if let Some(batch) = core.seal_batch(now) {
            store.send(batch);
        }
        let pages = std::mem::take(&mut core.effects().pages);
        let shard = self.here.0;
        for PageRequest { session, wanted } in pages {
            let session = SessionToken { slot: session.slot, generation: session.generation };
            store.read(store::writer::PageRequest { shard, session, wanted });
        }
        for request in std::mem::take(&mut core.effects().delayed) {
            store.read_delayed(shard, request);
        }
    }

    /// The store has everything up to this batch.
    pub fn committed(&self, lsn: Lsn) {
        let mut core = self.core.borrow_mut();
        core.begin_turn();
        core.committed(clock::now(), lsn);
        drop(core);
        self.turn_ended();
    }

    /// Writes what happened into the log and the event topics, with the addresses that only the shell knows.
    pub fn log_events(&self) {
        let mut core = self.core.borrow_mut();
        let events = std::mem::take(&mut core.effects().events);
        let reports = std::mem::take(&mut core.effects().reports);
        drop(core);
        if events.is_empty() && reports.is_empty() {
            return;
        }
        let now = clock::now();
        let links = self.links.borrow();
        let address = |id: ConnectionId| find(&links, id).map(|link| link.peer);
        self.log.write(now, &events, address);
        let (unix_ms, tick_late) = (clock::unix_millis(), self.tick_late.get());
        for report in &reports {
            let scene = Scene { unix_ms, address: address(report.connection), tick_late };
            match self.topics.borrow_mut().compose(now, report, scene) {
                Some((topic, text)) => self.core.borrow_mut().announce(now, &topic, text.as_bytes()),
                None => self.statistics.event_left_out(),
            }
        }
    }

    /// Adds what this arbiter charged and released to the broker's account.
    fn account(&self) {
        self.core.borrow_mut().tell_partial();
        self.statistics.settle();
    }

    /// The same at once where partial packets grew much: reading them alone makes no turn of the flusher.
    pub fn account_partial(&self) {
        if self.core.borrow().untold_partial() > PARTIAL_GROWTH {
            self.account();
        }
    }

    /// The shard's regular work.
    pub fn chore(&self, every: Duration) {
        let now = clock::now();
        let mut core = self.core.borrow_mut();
        // The clock on the wall may be set.
        core.tell_wall_clock(now, clock::unix_millis());
        core.chore(now, now + every);
        drop(core);
        self.statistics.report(usize::from(self.here.0), self.core.borrow().figures());
        if self.here == ShardId(0) {
            self.log.report();
        }
        self.turn_ended();
    }

    /// What a person is shown: each session's socket is asked who holds its oldest message.
    pub fn inspect(&self) -> ShardInspection {
        let (now, core, links) = (clock::now(), self.core.borrow(), self.links.borrow());
        let mut waiting = Vec::new();
        for mut found in core.waiting(now, SESSIONS) {
            let link = found.connection.and_then(|(id, _)| find(&links, id));
            let stall = link.and_then(|link| core.diagnose(now, link.id, link.transport.view()));
            let asked = if stall.is_some() { Asked::Yes } else { Asked::No };
            found.stall = stall.unwrap_or(found.stall);
            waiting.push((found, asked));
        }
        ShardInspection { figures: core.figures(), open: self.open.get(), waiting }
    }

    /// Asks the expiry actor to count what is due soon.
    pub fn survey_deadlines(&self) {
        if let Some(expiry) = self.expiry.get() {
            expiry.do_send(Survey);
        }
    }

    /// Ends every connection in order.
    pub fn stop(&self) {
        self.stopping.set(true);
        self.core.borrow_mut().begin_to_stop();
        let now = clock::now();
        let ids = self.core.borrow().connection_ids();
        for id in ids {
            self.core.borrow_mut().shut_down(now, id);
        }
        self.turn_ended();
    }
}

/// The connection's way out, unless its slot is another's by now.
fn find(links: &[Option<Link>], id: ConnectionId) -> Option<&Link> {
    links.get(id.slot as usize)?.as_ref().filter(|link| link.id == id)
}

/// Writes as much as the socket takes.
fn write(transport: &Transport, outbox: &mut crate::mqtt::outbox::Outbox) -> io::Result<usize> {
    let mut wrote = 0;
    while outbox.writable() > 0 {
        let result = if outbox.is_contiguous() {
            transport.try_write(outbox.front())
        } else {
            transport.try_write_vectored(&outbox.pieces())
        };
        match result {
            Ok(n) => {
                outbox.advance(n);
                wrote += n;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(wrote)
}
