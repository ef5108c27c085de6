//! What a connection's actor and its shard's driver share: the socket, and the flag that says that
//! the mailbox has notices.
//!
//! The flag is private to this file. [`ConnectionHandle::notify`] is the only way to send a notice,
//! so no notice comes without the flag. [`Endpoint::take_noticed`] is the only way to clear it, and
//! the actor's task then polls the mailbox. The flag exists because notices are rare: to ask the
//! mailbox itself in each poll costs some two hundred instructions and four places in memory.

use super::{ConnectionActor, ConnectionNotice, Transport};
use crate::shard::ConnectionId;
use actix::WeakAddr;
use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;

/// A connection's socket, and whether its mailbox may hold notices. Shared by actor and driver,
/// which live on one thread.
pub struct Endpoint {
    transport: Transport,
    noticed: Cell<bool>,
}

impl Endpoint {
    /// The flag is set at first, so that the first poll registers the task with its mailbox.
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
pub struct ConnectionHandle {
    pub id: ConnectionId,
    /// The client's address.
    pub peer: SocketAddr,
    endpoint: Rc<Endpoint>,
    actor: WeakAddr<ConnectionActor>,
}

impl ConnectionHandle {
    pub(super) fn new(
        id: ConnectionId,
        peer: SocketAddr,
        endpoint: Rc<Endpoint>,
        actor: WeakAddr<ConnectionActor>,
    ) -> ConnectionHandle {
        ConnectionHandle { id, peer, endpoint, actor }
    }

    /// Returns the socket.
    pub fn transport(&self) -> &Transport {
        self.endpoint.transport()
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
