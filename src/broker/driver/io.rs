//! The I/O of one shard under actix: writes to sockets, and messages to the other parts.

use super::answers::AwaitedAnswers;
use super::destinations::Destinations;
use super::handles::Handles;
use crate::broker::connection::{ConnectionDriver, ConnectionNotice};
use crate::broker::events::EventListeners;
use crate::clock;
use crate::durability::read_requests::DelayedRequest;
use crate::durability::read_requests::PageRequest;
use crate::events::client_events::ClientEvent;
use crate::expiry::deadline::Registration;
use crate::login::authentication::AuthRequest;
use crate::operators::publish_command::PublicationAnswer;
use crate::peers::peer_batch::PeerBatch;
use crate::persistence::records::{Batch, RetainedRecord};
use crate::routing::subscription_tree::ShardId;
use crate::session::outbox::Outbox;
use crate::session::trace_steps::TraceSteps;
use crate::shard::ConnectionId;
use crate::shard::clients::connection::Leaves;
use crate::shard::turn::io::{EventMessages, Io, Written};
use crate::store::writer::{SessionToken, StorePageRequest, ToStore};
use crate::time::Instant;
use std::cell::{Cell, Ref, RefCell};
use std::time::Duration;

/// The I/O of one shard. Each method sends or tries and none waits, so no other code of the thread
/// runs during a turn.
pub(super) struct DriverIo<'a, D: ConnectionDriver> {
    /// Peers, expiry actor and store.
    pub(super) destinations: &'a Destinations,
    /// The open connections, borrowed for the whole use.
    pub(super) handles: Ref<'a, Handles<D>>,
    /// The listeners of client events.
    pub(super) listeners: &'a RefCell<EventListeners>,
    /// The write buffer of the connections with TLS or WebSocket.
    pub(super) write_buffer: &'a RefCell<Vec<u8>>,
    /// Counts the MQTT bytes that are written.
    pub(super) traffic: &'a Traffic,
    /// The operators that wait for answers to their messages.
    pub(super) answers: &'a AwaitedAnswers,
    /// Delay of the latest batch of expired deadlines.
    pub(super) tick_late: Duration,
}

/// The bytes that one thread read from sockets and wrote to sockets. A system call costs one count.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    received: Cell<u64>,
    sent: Cell<u64>,
}

impl Traffic {
    /// Counts bytes that were read.
    pub(super) fn add_received(&self, bytes: usize) {
        self.received.set(self.received.get() + bytes as u64);
    }

    /// Counts bytes that were written.
    pub(super) fn add_sent(&self, bytes: usize) {
        self.sent.set(self.sent.get() + bytes as u64);
    }

    /// Returns the bytes received and sent since the last call.
    pub(super) fn take(&self) -> (u64, u64) {
        (self.received.take(), self.sent.take())
    }
}

impl<D: ConnectionDriver> DriverIo<'_, D> {
    fn store(&self, send: impl FnOnce(&ToStore)) {
        if let Some(store) = self.destinations.store() {
            send(store);
        }
    }
}

impl<D: ConnectionDriver> Io for DriverIo<'_, D> {
    fn write(&mut self, id: ConnectionId, outbox: &mut Outbox) -> Option<Written> {
        let handle = self.handles.find(id)?;
        let written = handle.transport().write(outbox, self.write_buffer);
        if written.is_err() {
            // The reading side would meet the same error, but need not be read now.
            handle.notify(ConnectionNotice::Broken);
        }
        let written = written.ok()?;
        if handle.transport().is_wrapped() && handle.transport().take_keys_used_up() {
            handle.notify(ConnectionNotice::KeysUsedUp);
        }
        self.traffic.add_sent(written.taken);
        Some(written)
    }

    fn read_clock(&mut self) -> Instant {
        clock::now()
    }

    fn await_writable(&mut self, id: ConnectionId) {
        self.handles.notify(id, ConnectionNotice::AwaitWritable);
    }

    fn finish(&mut self, id: ConnectionId, leaves: Leaves) {
        let notice = match leaves {
            Leaves::Client => ConnectionNotice::Close,
            Leaves::Broker => ConnectionNotice::Linger,
        };
        self.handles.notify(id, notice);
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
        let shard = self.destinations.here().0;
        self.store(|store| store.read(StorePageRequest { shard, session, wanted }));
    }

    fn read_delayed(&mut self, request: DelayedRequest) {
        self.store(|store| store.read_delayed(self.destinations.here().0, request));
    }

    fn send_to_peer(&mut self, to: ShardId, batch: PeerBatch) {
        self.destinations.send_to_peer(to, batch);
    }

    fn register(&mut self, now: Instant, batch: Vec<Registration>) {
        self.destinations.register(now, batch);
    }

    fn read_now(&mut self, id: ConnectionId) {
        self.handles.notify(id, ConnectionNotice::ReadNow);
    }

    fn resume(&mut self, id: ConnectionId) {
        self.handles.notify(id, ConnectionNotice::Read);
    }

    fn authenticate(&mut self, request: AuthRequest) {
        // Without an authenticator no client is asked about. A lost request ends at `auth.timeout`.
        if let Some(authenticator) = self.destinations.authenticator() {
            let peer = self.handles.find(request.connection);
            let address = peer.and_then(|handle| handle.peer.socket_address());
            authenticator.ask(clock::now(), request, address.map(|address| address.ip()));
        }
    }

    fn answer_operator(&mut self, answer: PublicationAnswer) {
        self.answers.answer(answer);
    }

    fn trace(&mut self, steps: TraceSteps) {
        self.listeners.borrow().trace(steps);
    }

    fn report(&mut self, now: Instant, event: &ClientEvent) -> EventMessages {
        let handle = event.connection.and_then(|id| self.handles.find(id));
        let address = handle.map(|handle| &handle.peer);
        self.listeners.borrow_mut().report(now, event, address, self.tick_late)
    }
}
