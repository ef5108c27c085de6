//! The driver of one shard on its thread: it passes inputs in with the time, and carries out the
//! effects.
//!
//! The shard is private. Every change goes through one door, [`ShardDriver::with_shard`], which
//! takes the time, runs, and wakes the flusher if the shard has work. [`ShardDriver::look`] only
//! reads and needs no time. The flusher runs [`Shard::turn`] after all connections that were ready
//! with the first of them. So a turn makes one write for each connection, one message to each peer
//! and one to the expiry actor.
//!
//! | file | concern |
//! |---|---|
//! | `connection_calls` | what the connection actors tell the shard and ask it |
//! | `io` | carries out the effects of a turn |
//! | `revocation` | bans and certificates of connected clients |
//! | `operators` | questions and commands of operators |
//! | `commits` | answers that wait for a commit |
//! | `answers` | answers to messages that operators published |
//! | `handles` | the open connections, by slot |
//! | `destinations` | peers, expiry actor and store |
//! | `flusher` | wakes the task that runs the turns |

mod answers;
mod commits;
mod connection_calls;
mod destinations;
mod flusher;
mod handles;
mod io;
mod operators;
mod revocation;
#[cfg(test)]
mod tests;

use crate::access::identity::Identity;
use crate::access::strikes::host;
use crate::broker::authenticator::AuthClientParts;
use crate::broker::authenticator::decided::Decided;
use crate::broker::connection::{ConnectionHandle, ConnectionNotice, Incoming, PeerAddress, Transport};
use crate::broker::events::EventListeners;
use crate::broker::message::{ConnectPeers, PasswordsChanged, SettingsChanged};
use crate::broker::revocations::RevokedBy;
use crate::broker::statistics::BrokerStatistics;
use crate::clock;
use crate::expiry::actor::ExpiryActor;
use crate::login::listener_terms::ListenerTerms;
use crate::net::tls::config::TlsServer;
use crate::persistence::records::Lsn;
use crate::routing::subscription_tree::ShardId;
use crate::shard::{ConnectionId, Input, Shard};
use crate::time::Instant;
use actix::Addr;
use answers::AwaitedAnswers;
use commits::CommitWaits;
use destinations::Destinations;
use flusher::FlusherWaker;
use handles::Handles;
use io::{DriverIo, Traffic};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;
use tokio::sync::Notify;
use tracing::info;

/// Bytes read from a socket at once.
const READ_SIZE: usize = 64 * 1024;

/// Runs one shard, and owns its connections' handles.
pub struct ShardDriver {
    shard: RefCell<Shard>,
    /// The read buffer of all connections of this thread, so that an idle connection owns none.
    read_buffer: RefCell<Vec<u8>>,
    /// The MQTT bytes of one read, of all connections with TLS or WebSocket.
    opened: RefCell<Vec<u8>>,
    /// The wire bytes of one write, of the same connections.
    write_buffer: RefCell<Vec<u8>>,
    handles: RefCell<Handles<ShardDriver>>,
    destinations: Destinations,
    flusher: FlusherWaker,
    listeners: RefCell<EventListeners>,
    /// The newest TLS of each listener whose clients had to be checked again. A listener that is
    /// gone leaves it with the next change.
    changed_tls: RefCell<Vec<(Weak<ListenerTerms>, Arc<TlsServer>)>>,
    statistics: Arc<BrokerStatistics>,
    traffic: Traffic,
    commits: CommitWaits,
    answers: AwaitedAnswers,
    /// True while sockets that come are closed: the broker stops, or has shut its clients out.
    is_shut: Cell<bool>,
    /// Notified when the last connection is closed.
    emptied: Notify,
    /// Delay of the latest batch of expired deadlines, from the end of its bucket to its arrival.
    tick_late: Cell<Duration>,
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
            destinations: Destinations::new(shard.here()),
            shard: RefCell::new(shard),
            read_buffer: RefCell::new(vec![0; READ_SIZE]),
            opened: RefCell::default(),
            write_buffer: RefCell::default(),
            handles: RefCell::default(),
            flusher: FlusherWaker::default(),
            listeners: RefCell::new(listeners),
            changed_tls: RefCell::default(),
            statistics,
            traffic: Traffic::default(),
            commits: CommitWaits::default(),
            answers: AwaitedAnswers::default(),
            is_shut: Cell::new(false),
            emptied: Notify::new(),
            tick_late: Cell::default(),
            suspended: Cell::new(clock::suspended()),
        })
    }

    /// Runs `f` on the shard with the time, then wakes the flusher if there is work. The only way
    /// to change the shard.
    ///
    /// `f` continues the present turn, because a connection's task does several things in one turn.
    pub fn with_shard<T>(&self, f: impl FnOnce(&mut Shard, Instant) -> T) -> T {
        let now = clock::now();
        let mut shard = self.shard.borrow_mut();
        let result = f(&mut shard, now);
        if !self.flusher.is_awake() && shard.has_work() {
            self.flusher.wake();
        }
        result
    }

    /// As [`Self::with_shard`], in a new turn: for a message to the shard.
    pub fn in_new_turn<T>(&self, f: impl FnOnce(&mut Shard, Instant) -> T) -> T {
        self.with_shard(|shard, now| {
            shard.begin_turn();
            f(shard, now)
        })
    }

    /// Reads from the shard. Costs no clock and wakes nobody.
    pub fn look<T>(&self, f: impl FnOnce(&Shard) -> T) -> T {
        f(&self.shard.borrow())
    }

    /// Takes the ways to all shards, and to the store. Until then the flusher sends nothing.
    pub fn connect_peers(&self, all: ConnectPeers) {
        self.destinations.connect(all);
        self.with_shard(|_, _| ());
    }

    /// Takes the way to the authenticator, if there was none at the start.
    pub fn connect_authenticator(&self, parts: AuthClientParts) {
        self.destinations.connect_authenticator(parts);
    }

    /// Puts new settings in force, between two turns.
    pub fn settings_changed(&self, change: &SettingsChanged) {
        self.listeners.borrow_mut().set_rates(change.events);
        self.in_new_turn(|shard, _| shard.replace_settings((*change.settings).clone()));
    }

    /// Passes a decision of the authenticator to the shard.
    pub fn decided(&self, decided: Decided) {
        let Decided { connection, decision, proof } = decided;
        let Some(authenticator) = self.destinations.authenticator() else { return };
        self.in_new_turn(|shard, now| {
            let decision = authenticator.decided(now, decision, proof);
            shard.input(now, Input::Authenticated(connection, decision));
        });
    }

    /// Disconnects users whose line in the password file of their listener has changed. Looks at a
    /// bounded number of sessions, and returns the slot of the next one, or `None` at the end.
    pub fn passwords_changed(&self, change: &PasswordsChanged) -> Option<u32> {
        let is_revoked = |user: &Identity, listener: &ListenerTerms| change.revokes(user, listener);
        let portion =
            self.in_new_turn(|shard, now| shard.permission_changes().revoke(now, change.from, &is_revoked));
        change.tally.add(RevokedBy::Passwords, portion.disconnected);
        portion.next
    }

    /// Registers the deadlines that waited until every shard was connected to its peers.
    pub fn start_timers(&self, expiry: Addr<ExpiryActor>) {
        self.destinations.start_timers(expiry);
    }

    /// Takes a socket in and starts its actor. Closes the socket if the broker takes none now.
    pub fn adopt(self: &Rc<ShardDriver>, incoming: Incoming) {
        let Incoming { transport, peer, accepted, mut arrival, unread, .. } = incoming;
        if self.is_shut.get() {
            self.statistics.connection_closed(&arrival.listener.connections);
            return;
        }
        let Ok(transport) = Transport::new(transport) else {
            self.statistics.connection_closed(&arrival.listener.connections);
            return;
        };
        if let Err(why) = self.check_newcomer(&arrival.listener, &transport) {
            info!(event = "connection.certificate_ended", address = %peer, %why, "connection refused before CONNECT: the client's certificate is not valid any more");
            transport.shut_down_writing();
            self.statistics.connection_closed(&arrival.listener.connections);
            return;
        }
        arrival.host = peer.socket_address().map(|address| host(address.ip()));
        let has_unread = !unread.is_empty();
        let id = self.with_shard(|shard, now| {
            arrival.ban = shard
                .permission_changes()
                .bans()
                .and_then(|bans| revocation::of_origin(bans, &peer, &transport));
            let id = shard.accept(accepted, arrival);
            if has_unread {
                shard.input(now, Input::Unread(id, unread));
            }
            id
        });
        let handle = ConnectionHandle::start(Rc::clone(self), id, peer, transport);
        if has_unread {
            handle.notify(ConnectionNotice::Read);
        }
        self.handles.borrow_mut().insert(handle);
    }

    /// A batch of expired deadlines arrived. Reports it to the shard if the machine was suspended
    /// since the last batch. Call this before any deadline is compared.
    ///
    /// `tick_late` is the time from the end of the batch's bucket to its arrival.
    pub fn notice_tick(&self, shard: &mut Shard, now: Instant, tick_late: Duration) {
        const SHORT: Duration = Duration::from_secs(1);
        self.tick_late.set(tick_late);
        let suspended = clock::suspended();
        let before = self.suspended.get();
        if suspended >= before + SHORT {
            self.suspended.set(suspended);
            shard.input(now, Input::Woke);
            if self.destinations.here() == ShardId(0) {
                let slept_ms = (suspended - before).as_millis() as u64;
                info!(
                    event = "broker.resumed",
                    slept_ms, "the machine was suspended: clients have their whole keep alive again"
                );
            }
        }
    }

    /// Removes the handle of a connection that is closed or moves. Returns the client's address, or
    /// `None` if there is no such connection.
    fn forget(&self, id: ConnectionId) -> Option<PeerAddress> {
        let mut handles = self.handles.borrow_mut();
        let handle = handles.remove(id)?;
        if handles.open() == 0 {
            self.emptied.notify_waiters();
        }
        Some(handle.peer)
    }

    /// Waits until no connection is open.
    pub async fn emptied(&self) {
        while self.handles.borrow().open() > 0 {
            self.emptied.notified().await;
        }
    }

    /// Sends a notice to a connection, if the connection is still open.
    pub fn notify(&self, id: ConnectionId, notice: ConnectionNotice) {
        self.handles.borrow().notify(id, notice);
    }

    /// Runs turns whenever the shard has work, for ever. The flusher is the task of this future.
    pub async fn run_flusher(self: Rc<ShardDriver>) {
        loop {
            poll_fn(|cx| self.flusher_turn(cx.waker())).await;
            // Unlike a plain wake-up, this lets the reactor poll the sockets and other tasks run
            // first.
            tokio::task::yield_now().await;
        }
    }

    /// Runs the flusher's turn. Keeps `waker` for the next one. Returns `Ready` if the shard has
    /// more work, which the caller does after the reactor has polled the sockets.
    fn flusher_turn(&self, waker: &Waker) -> Poll<()> {
        self.flusher.begin_run(waker);
        if !self.destinations.is_connected() {
            // The peers are not known yet, and recovered messages wait in the peer batches.
            // `connect_peers` wakes the flusher.
            return Poll::Pending;
        }
        if !self.run_turn() {
            return Poll::Pending;
        }
        self.flusher.stay_awake();
        Poll::Ready(())
    }

    /// Runs one turn. Returns true if the shard has work for another.
    fn run_turn(&self) -> bool {
        let mut shard = self.shard.borrow_mut();
        let now = clock::now();
        let has_work = shard.turn(now, &mut self.io());
        shard.report_memory();
        has_work
    }

    /// Runs turns until nothing is left to write or to continue, at start and stop.
    pub fn finish(&self) {
        self.run_turn();
        while self.look(Shard::is_unfinished) {
            self.run_turn();
        }
    }

    /// Returns the I/O of this shard. The handles are borrowed once for everything that is carried
    /// out.
    fn io(&self) -> DriverIo<'_, ShardDriver> {
        DriverIo {
            destinations: &self.destinations,
            handles: self.handles.borrow(),
            listeners: &self.listeners,
            write_buffer: &self.write_buffer,
            traffic: &self.traffic,
            answers: &self.answers,
            tick_late: self.tick_late.get(),
        }
    }

    /// Does the shard's housekeeping, and arranges the next one after `every`.
    pub fn housekeeping(&self, every: Duration) {
        let mut snapshot = self.with_shard(|shard, now| {
            // An operator may set the wall clock at any time.
            shard.input(now, Input::WallClock(clock::unix_millis()));
            shard.input(now, Input::Housekeeping { next: now + every });
            shard.snapshot()
        });
        snapshot.cpu = clock::thread_cpu();
        self.statistics.report(usize::from(self.destinations.here().0), snapshot);
        let (received, sent) = self.traffic.take();
        self.statistics.add_bytes(received, sent);
        if self.destinations.here() == ShardId(0) {
            self.listeners.borrow().report_suppressed_lines();
        }
    }

    /// Notes that everything up to a batch is committed.
    pub fn committed(&self, lsn: Lsn) {
        self.in_new_turn(|shard, now| shard.committed(now, lsn));
        self.commits.committed(lsn);
    }

    /// Returns the counters of the broker.
    pub fn statistics(&self) -> &BrokerStatistics {
        &self.statistics
    }

    /// Requests that the expiry actor counts the deadlines that are due soon.
    pub fn survey_deadlines(&self) {
        self.destinations.survey_deadlines();
    }

    /// Disconnects every client in order, and accepts no more.
    pub fn stop(&self) {
        self.is_shut.set(true);
        self.with_shard(|shard, now| shard.input(now, Input::Stop));
    }

    /// Disconnects every client in order, and accepts no more until [`Self::let_in`].
    pub fn shut_out(&self) {
        self.is_shut.set(true);
        self.in_new_turn(|shard, now| shard.input(now, Input::ShutOut));
    }

    /// Accepts clients again.
    pub fn let_in(&self) {
        self.is_shut.set(false);
    }
}
