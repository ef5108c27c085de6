//! The driver of one shard on its thread: it passes inputs in with the time, and carries out the
//! effects.
//!
//! The shard is private. Every change goes through one door, [`ShardDriver::with_shard`], which
//! takes the time, runs, and wakes the flusher if the shard has work. [`ShardDriver::look`] only
//! reads and needs no time. The flusher runs [`Shard::turn`] after all connections that were ready
//! with the first of them. So a turn makes one write for each connection, one message to each peer
//! and one to the expiry actor.

use crate::broker::connection::{self, ConnectionHandle, ConnectionNotice, Transport};
use crate::broker::dump::{DumpRequest, SESSIONS, ShardInspection};
use crate::broker::events::EventListeners;
use crate::broker::message::{Adopt, ConnectPeers, Incoming};
use crate::broker::shard_actor::ShardActor;
use crate::broker::statistics::BrokerStatistics;
use crate::clock;
use crate::expiry::actor::ExpiryActor;
use crate::expiry::deadline::Registration;
use crate::expiry::message::{Register, Survey};
use crate::persistence::records::{Batch, RetainedRecord};
use crate::routing::subscription_tree::ShardId;
use crate::session::outbox::Outbox;
use crate::shard::connection::Leaves;
use crate::shard::durability::gates::PageRequest;
use crate::shard::exchange::outbound::PeerBatch;
use crate::shard::features::delayed::DelayedRequest;
use crate::shard::io::{EventMessages, Io};
use crate::shard::observe::client_events::ClientEvent;
use crate::shard::{ConnectionId, ReadProgress, Shard};
use crate::store::writer::{SessionToken, StorePageRequest, ToStore};
use crate::time::Instant;
use actix::Addr;
use std::cell::{Cell, OnceCell, Ref, RefCell};
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

/// Bytes of partial packets that a shard may have taken in before the broker's total includes them.
const PARTIAL_GROWTH: i64 = 1024 * 1024;

/// Runs one shard, and owns its connections' handles.
pub struct ShardDriver {
    shard: RefCell<Shard>,
    /// The read buffer of all connections of this thread, so that an idle connection owns none.
    pub scratch: RefCell<Vec<u8>>,
    here: ShardId,
    /// By slot of the connection.
    handles: RefCell<Vec<Option<ConnectionHandle>>>,
    /// Handles that are not `None`.
    open: Cell<usize>,
    /// True once the broker stops: sockets that come now are closed.
    stopping: Cell<bool>,
    /// Notified when the last connection is closed.
    pub emptied: Notify,
    /// Wakes the flusher. `None` until its first poll.
    flusher: RefCell<Option<Waker>>,
    /// True if the flusher was woken and has not run since.
    awake: Cell<bool>,
    /// By number, this shard included. Empty until [`ConnectPeers`] arrives.
    shards: OnceCell<Vec<Addr<ShardActor>>>,
    expiry: OnceCell<Addr<ExpiryActor>>,
    /// Deadlines that were set before the expiry actor was known.
    early: RefCell<Vec<Registration>>,
    /// Empty without a store.
    store: OnceCell<ToStore>,
    pub statistics: Arc<BrokerStatistics>,
    listeners: RefCell<EventListeners>,
    /// Delay of the latest batch of expired deadlines, from the end of its bucket to its arrival.
    pub tick_late: Cell<Duration>,
    /// Total time that the machine was suspended, as last reported to the shard.
    suspended: Cell<Duration>,
}

impl ShardDriver {
    /// Returns the driver of `shard`. Called on the thread that will run it.
    pub fn new(
        shard: Shard,
        statistics: Arc<BrokerStatistics>,
        listeners: EventListeners,
    ) -> Rc<ShardDriver> {
        Rc::new(ShardDriver {
            here: shard.here(),
            shard: RefCell::new(shard),
            scratch: RefCell::new(vec![0; READ_SIZE]),
            handles: RefCell::default(),
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
            listeners: RefCell::new(listeners),
            tick_late: Cell::default(),
            suspended: Cell::new(clock::suspended()),
        })
    }

    /// Runs `f` on the shard with the time, then wakes the flusher if there is work. The only way
    /// to change the shard.
    ///
    /// `f` continues the present turn: a connection's task does several things in one
    /// ([`Self::begin_turn`]).
    pub fn with_shard<T>(&self, f: impl FnOnce(&mut Shard, Instant) -> T) -> T {
        let now = clock::now();
        let mut shard = self.shard.borrow_mut();
        let result = f(&mut shard, now);
        self.wake_flusher(&shard);
        result
    }

    /// Does the same in a new turn: for a message to the shard.
    pub fn in_new_turn<T>(&self, f: impl FnOnce(&mut Shard, Instant) -> T) -> T {
        self.with_shard(|shard, now| {
            shard.begin_turn();
            f(shard, now)
        })
    }

    /// Begins a turn. A connection's task calls this in each poll; it reads no clock.
    pub fn begin_turn(&self) {
        self.shard.borrow_mut().begin_turn();
    }

    /// Reads from the shard. Costs no clock and wakes nobody.
    pub fn look<T>(&self, f: impl FnOnce(&Shard) -> T) -> T {
        f(&self.shard.borrow())
    }

    /// Wakes the flusher if the shard has work and nobody woke the flusher yet.
    fn wake_flusher(&self, shard: &Shard) {
        if !self.awake.get() && shard.has_work() {
            self.awake.set(true);
            if let Some(waker) = &*self.flusher.borrow() {
                waker.wake_by_ref();
            }
        }
    }

    /// Takes the addresses of all shards, and the store. Until then the flusher sends nothing.
    pub fn connect_peers(&self, all: ConnectPeers) {
        let _ = self.shards.set(all.shards);
        if let Some(store) = all.store {
            let _ = self.store.set(store);
        }
        self.with_shard(|_, _| ());
    }

    /// Registers the deadlines that were held back until every shard was connected to its peers.
    pub fn start_timers(&self, expiry: Addr<ExpiryActor>) {
        let batch = self.early.take();
        if !batch.is_empty() {
            expiry.do_send(Register { shard: u16::from(self.here.0), batch, sent: clock::now() });
        }
        let _ = self.expiry.set(expiry);
    }

    /// Takes a socket in and starts its actor.
    pub fn adopt(self: &Rc<ShardDriver>, incoming: Incoming) {
        let Incoming { socket, peer, unread, .. } = incoming;
        if self.stopping.get() {
            self.statistics.connection_closed();
            return;
        }
        let Ok(transport) = Transport::new(socket) else {
            self.statistics.connection_closed();
            return;
        };
        let has_unread = !unread.is_empty();
        let id = self.with_shard(|shard, now| {
            let id = shard.accept(now);
            if has_unread {
                shard.keep_unread(id, unread);
            }
            id
        });
        let handle = connection::start(Rc::clone(self), id, peer, transport);
        if has_unread {
            handle.notify(ConnectionNotice::Read);
        }
        let mut handles = self.handles.borrow_mut();
        let at = id.slot as usize;
        if handles.len() <= at {
            handles.resize_with(at + 1, || None);
        }
        if let Some(slot) = handles.get_mut(at) {
            *slot = Some(handle);
            self.open.set(self.open.get() + 1);
        }
    }

    /// Tells the shard if the machine was suspended since the last call. Call this before any
    /// deadline is compared.
    pub fn notice_suspend(&self, shard: &mut Shard, now: Instant) {
        const SHORT: Duration = Duration::from_secs(1);
        let suspended = clock::suspended();
        let before = self.suspended.get();
        if suspended >= before + SHORT {
            self.suspended.set(suspended);
            shard.woke(now);
            if self.here.0 == 0 {
                let slept_ms = (suspended - before).as_millis() as u64;
                info!(slept_ms, "the machine was suspended: clients have their whole keep alive again");
            }
        }
    }

    /// Drops the handle of a connection that is closed or moves. Returns the client's address, or
    /// `None` if there is no such connection.
    pub fn forget(&self, id: ConnectionId) -> Option<SocketAddr> {
        let mut handles = self.handles.borrow_mut();
        let handle = handles.get_mut(id.slot as usize)?.take_if(|handle| handle.id == id)?;
        self.open.set(self.open.get() - 1);
        if self.open.get() == 0 {
            self.emptied.notify_waiters();
        }
        Some(handle.peer)
    }

    /// Returns the number of open connections.
    pub fn open(&self) -> usize {
        self.open.get()
    }

    /// Sends a socket to the shard of its session.
    pub fn hand_over(&self, shard: ShardId, incoming: Incoming) {
        if let Some(home) = self.shards.get().and_then(|s| s.get(usize::from(shard.0))) {
            home.do_send(Adopt(vec![incoming]));
        }
    }

    /// Sends a notice to a connection, if it is still open.
    pub fn notify(&self, id: ConnectionId, notice: ConnectionNotice) {
        let handles = self.handles.borrow();
        if let Some(handle) = find(&handles, id) {
            handle.notify(notice);
        }
    }

    /// Takes in bytes that a connection read, after the bytes that the shard keeps of it.
    pub fn take_in(&self, id: ConnectionId, bytes: &[u8]) -> ReadProgress {
        self.with_shard(|shard, now| {
            let progress = shard.take_in(now, id, bytes, &mut self.io());
            // To read parts of packets alone makes no turn of the flusher.
            if shard.unreported_partial() > PARTIAL_GROWTH {
                self.account(shard);
            }
            progress
        })
    }

    /// Writes one connection's outbox.
    pub fn flush_connection(&self, id: ConnectionId) {
        self.with_shard(|shard, now| shard.flush_connection(now, id, &mut self.io()));
    }

    /// A connection's socket is at its end. Reports that at once, while the driver knows the
    /// client's address.
    pub fn closed(&self, id: ConnectionId, why: &str) {
        self.with_shard(|shard, now| {
            shard.closed(now, id, why);
            shard.report_events(now, &mut self.io());
        });
        // Counted before the socket closes, because a client that sees the close may take the free
        // place at once.
        self.statistics.connection_closed();
        self.forget(id);
    }

    /// Runs the flusher's turn. Keeps `waker` for the next one. Returns `Ready` if the shard has
    /// more work, which the caller does after the reactor has polled the sockets.
    pub fn flusher_turn(&self, waker: &Waker) -> Poll<()> {
        let known = self.flusher.borrow().as_ref().is_some_and(|w| w.will_wake(waker));
        if !known {
            *self.flusher.borrow_mut() = Some(waker.clone());
        }
        self.awake.set(false);
        if self.shards.get().is_none() {
            // The peers are not known yet, and what was recovered waits in the peer batches.
            // `connect_peers` wakes the flusher.
            return Poll::Pending;
        }
        if !self.run_turn() {
            return Poll::Pending;
        }
        // The flusher runs again by itself, so nobody need wake it.
        self.awake.set(true);
        Poll::Ready(())
    }

    /// Runs one turn. Returns true if the shard has work for another.
    fn run_turn(&self) -> bool {
        let mut shard = self.shard.borrow_mut();
        let has_work = shard.turn(clock::now(), &mut self.io());
        self.account(&mut shard);
        has_work
    }

    /// Runs turns until nothing is left to write or to continue, at start and stop.
    pub fn finish(&self) {
        self.run_turn();
        while self.look(Shard::is_unfinished) {
            self.run_turn();
        }
    }

    /// The handles are borrowed once for everything that is carried out.
    fn io(&self) -> DriverIo<'_> {
        DriverIo { driver: self, handles: self.handles.borrow() }
    }

    /// Adds what this thread charged and released to the broker's account.
    fn account(&self, shard: &mut Shard) {
        shard.report_partial();
        self.statistics.settle();
    }

    /// Does the shard's housekeeping, and arranges the next one after `every`.
    pub fn housekeeping(&self, every: Duration) {
        let snapshot = self.with_shard(|shard, now| {
            // An operator may set the wall clock at any time.
            shard.set_wall_clock(now, clock::unix_millis());
            shard.housekeeping(now, now + every);
            shard.snapshot()
        });
        self.statistics.report(usize::from(self.here.0), snapshot);
        if self.here == ShardId(0) {
            self.listeners.borrow().report_suppressed_lines();
        }
    }

    /// Returns what a dump shows of this shard. Asks the socket of each listed session who holds
    /// its oldest message: one or two system calls each, for `SESSIONS` sessions at most.
    pub fn inspect(&self) -> ShardInspection {
        let (now, shard, handles) = (clock::now(), self.shard.borrow(), self.handles.borrow());
        let mut waiting = Vec::new();
        for mut found in shard.waiting(now, SESSIONS) {
            let handle = found.connection.and_then(|(id, _)| find(&handles, id));
            let stall = handle.and_then(|handle| shard.diagnose(now, handle.id, handle.transport().view()));
            let asked = if stall.is_some() { DumpRequest::Yes } else { DumpRequest::No };
            found.stall = stall.unwrap_or(found.stall);
            waiting.push((found, asked));
        }
        ShardInspection { snapshot: shard.snapshot(), open: self.open.get(), waiting }
    }

    /// Asks the expiry actor to count the deadlines that are due soon.
    pub fn survey_deadlines(&self) {
        if let Some(expiry) = self.expiry.get() {
            expiry.do_send(Survey);
        }
    }

    /// Disconnects every client in order, and accepts no more.
    pub fn stop(&self) {
        self.stopping.set(true);
        self.with_shard(|shard, now| {
            shard.begin_to_stop();
            for id in shard.connection_ids() {
                shard.shut_down(now, id);
            }
        });
    }
}

/// The I/O of one shard under actix. Each method sends or tries and none waits, so no other code of
/// the thread runs during a turn.
struct DriverIo<'a> {
    driver: &'a ShardDriver,
    handles: Ref<'a, Vec<Option<ConnectionHandle>>>,
}

impl DriverIo<'_> {
    fn notify(&self, id: ConnectionId, notice: ConnectionNotice) {
        if let Some(handle) = find(&self.handles, id) {
            handle.notify(notice);
        }
    }

    fn store(&self, send: impl FnOnce(&ToStore)) {
        if let Some(store) = self.driver.store.get() {
            send(store);
        }
    }
}

impl Io for DriverIo<'_> {
    fn write(&mut self, id: ConnectionId, outbox: &mut Outbox) -> Option<usize> {
        let handle = find(&self.handles, id)?;
        let wrote = write(handle.transport(), outbox);
        if wrote.is_err() {
            // The reading side would meet the same error, but need not be read now.
            handle.notify(ConnectionNotice::Broken);
        }
        wrote.ok()
    }

    fn await_writable(&mut self, id: ConnectionId) {
        self.notify(id, ConnectionNotice::AwaitWritable);
    }

    fn finish(&mut self, id: ConnectionId, leaves: Leaves) {
        self.notify(
            id,
            match leaves {
                Leaves::Client => ConnectionNotice::Close,
                Leaves::Broker => ConnectionNotice::Linger,
            },
        );
    }

    fn store_retained(&mut self, changes: Vec<RetainedRecord>) {
        self.store(|store| store.retained(changes));
    }

    fn commit(&mut self, batch: Batch) {
        self.store(|store| store.send(batch));
    }

    fn read_page(&mut self, request: PageRequest) {
        let PageRequest { session, wanted } = request;
        let session = SessionToken { slot: session.slot, generation: session.generation };
        self.store(|store| store.read(StorePageRequest { shard: self.driver.here.0, session, wanted }));
    }

    fn read_delayed(&mut self, request: DelayedRequest) {
        self.store(|store| store.read_delayed(self.driver.here.0, request));
    }

    fn send_to_peer(&mut self, to: ShardId, batch: PeerBatch) {
        if let Some(peer) = self.driver.shards.get().and_then(|s| s.get(usize::from(to.0))) {
            peer.do_send(batch);
        }
    }

    fn register(&mut self, now: Instant, batch: Vec<Registration>) {
        match self.driver.expiry.get() {
            Some(expiry) => {
                expiry.do_send(Register { shard: u16::from(self.driver.here.0), batch, sent: now })
            }
            None => self.driver.early.borrow_mut().extend(batch),
        }
    }

    fn resume(&mut self, id: ConnectionId) {
        self.notify(id, ConnectionNotice::Read);
    }

    fn report(&mut self, now: Instant, event: &ClientEvent) -> EventMessages {
        let handle = event.connection.and_then(|id| find(&self.handles, id));
        let (address, tick_late) = (handle.map(|handle| handle.peer), self.driver.tick_late.get());
        self.driver.listeners.borrow_mut().report(now, event, address, tick_late)
    }
}

/// Returns the connection's handle, or `None` if the connection is closed. Its slot may belong to
/// another by then.
fn find(handles: &[Option<ConnectionHandle>], id: ConnectionId) -> Option<&ConnectionHandle> {
    handles.get(id.slot as usize)?.as_ref().filter(|handle| handle.id == id)
}

/// Writes as much as the socket takes, and returns the number of bytes.
fn write(transport: &Transport, outbox: &mut Outbox) -> io::Result<usize> {
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
