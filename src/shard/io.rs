//! The turn of a shard: the one order in which its effects are carried out, and the trait that
//! carries them out.
//!
//! A shard does no I/O. It calls [`Io`], which stands for the sockets, the store, the peers, the
//! expiry actor and the log. There are three implementations: the driver ([`crate::broker`]), the
//! simulation, and the in-memory tests. All of them run the code of this file, so the simulation
//! checks the order that serves clients. Dispatch is static, and a turn allocates nothing of its
//! own.
//!
//! # The order
//!
//! 1. [`Shard::turn`] begins a new budget and continues what earlier turns left ([`Shard::work`]).
//! 2. [`Shard::flush`] runs up to `ROUNDS` rounds, because a flush makes room, room lets queued
//!    messages out, and these messages are flushed again. One round is:
//!    1. Release what waits for the end of a turn: held messages, dead letters, orphaned queues,
//!       overfull receivers.
//!    2. Report client events. So a client that sees its connection end finds its last-disconnect
//!       record.
//!    3. Write each dirty connection once, until the budget of the turn is used up.
//!    4. Send changed retained messages, then the sealed batch, then page requests to the store.
//!    5. Seal and send one batch to each peer. The store has the batch first: a participant's part
//!       of a transaction must not reach the store before the batch that lists it.
//!    6. Register deadlines, resume paused connections.

use crate::expiry::deadline::Registration;
use crate::persistence::records::{Batch, RetainedRecord};
use crate::routing::subscription_tree::ShardId;
use crate::session::outbox::Outbox;
use crate::shard::connection::Leaves;
use crate::shard::durability::gates::PageRequest;
use crate::shard::exchange::outbound::PeerBatch;
use crate::shard::features::delayed::DelayedRequest;
use crate::shard::observe::client_events::ClientEvent;
use crate::shard::slots::ConnectionId;
use crate::shard::{Flushed, ReadProgress, Shard};
use crate::time::Instant;

/// Rounds of one flush at most.
const ROUNDS: usize = 16;

/// Carries out what a shard decided. No method may call back into the shard.
pub trait Io {
    /// Writes as much of the outbox as the connection's socket takes, and returns the number of
    /// bytes. Returns `None` if the socket is gone or failed; the caller then does nothing more
    /// with this connection.
    fn write(&mut self, id: ConnectionId, outbox: &mut Outbox) -> Option<usize>;

    /// The socket takes no more bytes: calls [`Shard::flush_connection`] when it does.
    fn await_writable(&mut self, id: ConnectionId);

    /// Everything is written to a connection that ends. Closes the socket at once if the client
    /// said DISCONNECT, and after the client closed its side if the broker ends the connection.
    fn finish(&mut self, id: ConnectionId, leaves: Leaves);

    /// Sends changes of retained messages to the store. The lock on the retained messages is held
    /// during the call, so that the store has the changes of all shards in one order.
    fn store_retained(&mut self, changes: Vec<RetainedRecord>);

    /// Sends a batch to the store, which answers later with [`Shard::committed`].
    fn commit(&mut self, batch: Batch);

    /// Requests stored deliveries, which come back with [`Shard::take_page`].
    fn read_page(&mut self, request: PageRequest);

    /// Requests stored delayed messages, which come back with [`Shard::take_delayed`].
    fn read_delayed(&mut self, request: DelayedRequest);

    /// Sends a batch to a peer, which passes it to [`Shard::take_peer_batch`].
    fn send_to_peer(&mut self, to: ShardId, batch: PeerBatch);

    /// Registers these deadlines with the expiry actor. `batch` is never empty.
    fn register(&mut self, now: Instant, batch: Vec<Registration>);

    /// Reads from this connection again, in a later turn.
    fn resume(&mut self, id: ConnectionId);

    /// Passes a client event to its listeners, and returns what two of them want to publish.
    fn report(&mut self, now: Instant, event: &ClientEvent) -> EventMessages;
}

/// What the listeners of one client event want to publish: a topic and a payload each.
#[derive(Debug, Default)]
pub struct EventMessages {
    /// For the subscribers of the event topic.
    pub event: Option<(String, String)>,
    /// A last-disconnect record, which is retained.
    pub last_disconnect: Option<(String, String)>,
}

impl Shard {
    /// Runs one turn: continues earlier work, then flushes. Returns true if the shard has work for
    /// another turn.
    ///
    /// `now` is read once for the whole turn, which takes 5 ms at most.
    pub fn turn(&mut self, now: Instant, io: &mut impl Io) -> bool {
        self.begin_turn();
        if self.has_jobs() {
            self.work(now);
        }
        self.flush(now, io);
        self.has_work()
    }

    /// Takes in bytes that a socket had, and flushes whenever much waits to be written. Never
    /// returns [`ReadProgress::Flush`].
    pub fn take_in(
        &mut self,
        now: Instant,
        id: ConnectionId,
        bytes: &[u8],
        io: &mut impl Io,
    ) -> ReadProgress {
        let mut progress = self.receive(now, id, bytes);
        while progress == ReadProgress::Flush {
            self.flush(now, io);
            progress = self.receive(now, id, &[]);
        }
        progress
    }

    /// Carries out all effects, in rounds, until none makes a connection dirty or the turn is over.
    pub fn flush(&mut self, now: Instant, io: &mut impl Io) {
        for _ in 0..ROUNDS {
            self.release_for_flush(now);
            self.report_events(now, io);
            self.flush_dirty(now, io);
            if self.stored.is_some() {
                self.send_to_store(now, io);
            }
            self.send_effects(now, io);
            if self.effects.dirty.is_empty() || self.turn.is_over() {
                return;
            }
        }
    }

    /// Writes each dirty connection once, in order, until the turn is over. Writes one at least, so
    /// that jobs that use up turn after turn do not stop all writes. The list is taken out
    /// meanwhile and put back, so that it is allocated once.
    fn flush_dirty(&mut self, now: Instant, io: &mut impl Io) {
        let mut dirty = std::mem::take(&mut self.effects.dirty);
        let mut flushed = 0;
        for id in &dirty {
            self.flush_connection(now, *id, io);
            flushed += 1;
            if self.turn.is_over() {
                break;
            }
        }
        if flushed < dirty.len() {
            dirty.drain(..flushed);
            return self.flush_stopped(dirty);
        }
        dirty.clear();
        if self.effects.dirty.is_empty() {
            self.effects.dirty = dirty;
        }
    }

    /// Writes one connection's outbox as far as its socket takes bytes.
    pub fn flush_connection(&mut self, now: Instant, id: ConnectionId, io: &mut impl Io) {
        let Some(outbox) = self.outbox(id) else { return };
        let Some(wrote) = io.write(id, outbox) else { return };
        match self.flushed(now, id, wrote) {
            Flushed::Drained | Flushed::HeldUntilCommit | Flushed::Gone => {}
            Flushed::Blocked => io.await_writable(id),
            Flushed::Finished(leaves) => io.finish(id, leaves),
        }
    }

    /// Sends to the store what this turn recorded, and what it has to read back.
    fn send_to_store(&mut self, now: Instant, io: &mut impl Io) {
        if std::mem::take(&mut self.effects.retained) {
            let mut retained = self.shared.retained();
            let changes = retained.take_changes();
            io.store_retained(changes);
        }
        if let Some(batch) = self.seal_batch(now) {
            io.commit(batch);
        }
        self.effects.pages.drain(..).for_each(|request| io.read_page(request));
        self.effects.delayed.drain(..).for_each(|request| io.read_delayed(request));
    }

    /// Sends everything that does not go to the store. Nearly always there was only something to
    /// write.
    fn send_effects(&mut self, now: Instant, io: &mut impl Io) {
        self.seal_peer_batches();
        if self.effects.is_empty() {
            return;
        }
        self.effects.peer_batches.drain(..).for_each(|(to, batch)| io.send_to_peer(to, batch));
        if !self.effects.registrations.is_empty() {
            io.register(now, std::mem::take(&mut self.effects.registrations));
        }
        self.effects.resume.drain(..).for_each(|id| io.resume(id));
    }

    /// Ends the turn between shards: seals one batch for each peer that is owed one.
    fn seal_peer_batches(&mut self) {
        if self.holds_seals() {
            // The batches grow from turn to turn.
            return self.exchange.account();
        }
        self.exchange.seal(&mut self.effects.peer_batches);
    }

    /// Reports client events, and publishes what the listeners make of them. A driver calls this by
    /// itself only when a connection closes, because it knows the address of the client until then.
    pub fn report_events(&mut self, now: Instant, io: &mut impl Io) {
        if self.effects.events.is_empty() {
            return;
        }
        // The list is dropped and not kept: a reconnect storm makes it long, and nothing like it
        // may follow.
        for event in std::mem::take(&mut self.effects.events) {
            let EventMessages { event, last_disconnect } = io.report(now, &event);
            if let Some((topic, text)) = last_disconnect {
                self.keep_last_disconnect(now, &topic, &text);
            }
            if let Some((topic, text)) = event {
                self.announce(now, &topic, text.as_bytes());
            }
        }
    }
}
