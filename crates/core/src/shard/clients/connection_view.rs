//! One connection as its driver sees it: if its socket is read, how much at once, and why it waits.

use crate::login::listener_terms::ListenerTerms;
use crate::session::outbound::stall::{SocketView, Stall};
use crate::shard::clients::connection::{Connection, FIRST_READ_SIZE, Phase};
use crate::shard::clients::pause::Pause;
use crate::shard::clients::read_ahead;
use crate::shard::core::Core;
use crate::slots::ConnectionId;
use crate::time::Instant;
use std::sync::Arc;

/// A look at one connection. A connection that is gone is not read, and has no unread bytes.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionView<'a> {
    pub(in crate::shard) id: ConnectionId,
    pub(in crate::shard) core: &'a Core,
}

impl<'a> ConnectionView<'a> {
    /// Returns the listener that accepted the connection.
    pub fn listener(self) -> Option<&'a Arc<ListenerTerms>> {
        Some(&self.core.connections.get(self.id)?.listener)
    }

    /// Returns true if bytes are kept that were read and not handled.
    pub fn has_unread(self) -> bool {
        self.core.connections.get(self.id).is_some_and(|c| c.partial_len() > 0)
    }

    /// Returns true if the connection exists and is not paused, so that all its packets are
    /// handled.
    pub fn reads(self) -> bool {
        self.core.connections.get(self.id).is_some_and(|c| !c.pauses.any())
    }

    /// Returns true if packets of the client wait in the shard behind a pause. The end of its
    /// stream comes after them.
    pub fn has_waiting(self) -> bool {
        self.has_unread() && !self.reads()
    }

    /// Returns the most bytes that are read from the socket at once; 0 if it is not read. A client
    /// that is not connected yet gets little memory, and one whose requests wait gets little more.
    pub fn read_size(self) -> usize {
        match self.core.connections.get(self.id) {
            Some(connection) if connection.pauses.any() => {
                let is_short = || self.core.shared.budget.is_nearly_exceeded();
                if connection.reads_ahead() {
                    read_ahead::room(connection.partial_len(), is_short)
                } else {
                    0
                }
            }
            // Bytes left unhandled by a pause for the rate take memory.
            Some(connection) if connection.is_metered() => FIRST_READ_SIZE,
            Some(connection) if matches!(connection.phase(), Phase::AwaitingConnect | Phase::Exchanging) => {
                FIRST_READ_SIZE
            }
            Some(_) => usize::MAX,
            None => 0,
        }
    }

    /// Returns true if bytes were read that nobody has looked at. Acknowledgements may be among
    /// them, so nothing is sent to the client again yet.
    pub fn has_unsearched(self) -> bool {
        self.core.connections.get(self.id).is_some_and(Connection::has_unsearched)
    }

    /// Returns true if the connection is to be disconnected for its silence, and for nothing else.
    pub fn is_silent(self, now: Instant) -> bool {
        let (id, connections) = (self.id, &self.core.connections);
        let is_paused = connections.get(id).is_some_and(|c| c.pauses.has(Pause::Rate));
        !is_paused && connections.write_deadline(id) > now && connections.read_deadline(id) <= now
    }

    /// Returns the oldest unacknowledged packet, with its cause. `view` is the socket's
    /// view of the bytes that were written to it.
    pub fn diagnose(self, now: Instant, view: SocketView) -> Option<Stall> {
        let connection = self.core.connections.get(self.id)?;
        let sender = &self.core.sessions.get(connection.session?)?.session.sender;
        sender.oldest_diagnosed(now, view, &connection.wire)
    }
}
