//! The socket and the flag that a connection's actor and its shard's driver share. The flag is set
//! if the mailbox may hold notices.
//!
//! The flag is private to this file. [`ConnectionHandle::notify`] is the only way to send a notice,
//! so no notice comes without the flag. [`Endpoint::take_noticed`] is the only way to clear the
//! flag, and the actor's task then polls the mailbox. The flag exists because notices are rare: to
//! ask the mailbox itself in each poll costs some two hundred instructions and four places in
//! memory.

use super::actor::{ConnectionActor, ConnectionDriver};
use super::context;
use super::peer::PeerAddress;
use super::transport::Transport;
use crate::shard::ConnectionId;
use actix::{Message, WeakAddr};
use std::cell::Cell;
use std::rc::Rc;

/// A message to a connection actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionNotice {
    /// Bytes came with the socket from another shard, or reading continues after a pause.
    Read,
    /// Bytes that the kernel has are to be read before the reactor reports them.
    ReadNow,
    /// The socket did not take the whole outbox: wait until it takes more.
    AwaitWritable,
    /// The last bytes are written: wait for the client to close.
    Linger,
    /// The last bytes are written, and the client has sent DISCONNECT.
    Close,
    /// The keys of TLS 1.2 are nearly used up.
    KeysUsedUp,
    /// A write failed for good.
    Broken,
    /// From the expiry actor: unacknowledged packets are due.
    Retransmit,
    /// From the expiry actor: the client was silent, or took no bytes, for too long.
    Disconnect,
}

impl Message for ConnectionNotice {
    type Result = ();
}

/// A connection's socket, and the flag that its mailbox may hold notices. Actor and driver share
/// it, and live on one thread.
#[derive(Debug)]
pub struct Endpoint {
    transport: Transport,
    noticed: Cell<bool>,
}

impl Endpoint {
    /// Returns an endpoint whose flag is set, so that the first poll registers the task with its
    /// mailbox.
    pub fn new(transport: Transport) -> Rc<Endpoint> {
        Rc::new(Endpoint { transport, noticed: Cell::new(true) })
    }

    /// Returns the socket.
    pub fn transport(&self) -> &Transport {
        &self.transport
    }

    /// Returns the socket for another thread, or `None` while the driver still has its handle.
    pub fn into_transport(self: Rc<Endpoint>) -> Option<Transport> {
        Rc::into_inner(self).map(|endpoint| endpoint.transport)
    }

    /// Returns true if the mailbox may hold notices, and clears the flag. The caller polls the
    /// mailbox.
    pub(super) fn take_noticed(&self) -> bool {
        self.noticed.replace(false)
    }
}

/// The driver's way to one connection.
pub struct ConnectionHandle<D: ConnectionDriver> {
    /// The connection in its shard.
    pub id: ConnectionId,
    /// The client's address.
    pub peer: PeerAddress,
    endpoint: Rc<Endpoint>,
    actor: WeakAddr<ConnectionActor<D>>,
}

impl<D: ConnectionDriver> ConnectionHandle<D> {
    /// Starts the actor of a connection on the current thread, and returns the way to it.
    pub fn start(
        driver: Rc<D>,
        id: ConnectionId,
        peer: PeerAddress,
        transport: Transport,
    ) -> ConnectionHandle<D> {
        let endpoint = Endpoint::new(transport);
        let actor = context::spawn(ConnectionActor::new(driver, id, Rc::clone(&endpoint)));
        ConnectionHandle { id, peer, endpoint, actor }
    }

    /// Returns the socket.
    pub fn transport(&self) -> &Transport {
        &self.endpoint.transport
    }

    /// Sends a notice. Notices are rare, so a strong address is made for each: to hold one costs
    /// two allocations for each connection.
    pub fn notify(&self, notice: ConnectionNotice) {
        self.endpoint.noticed.set(true);
        if let Some(actor) = self.actor.upgrade() {
            actor.do_send(notice);
        }
    }
}
