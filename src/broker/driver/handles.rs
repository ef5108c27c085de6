//! The handles of one thread's connections, by slot.

use crate::broker::connection::{ConnectionDriver, ConnectionHandle, ConnectionNotice};
use crate::shard::ConnectionId;
use std::ops::Range;

/// The handles of the open connections of one shard.
pub(super) struct Handles<D: ConnectionDriver> {
    /// By slot of the connection. A slot is reused, so a search compares the generation, too.
    slots: Vec<Option<ConnectionHandle<D>>>,
    /// Slots that are not `None`.
    open: usize,
}

impl<D: ConnectionDriver> Default for Handles<D> {
    fn default() -> Handles<D> {
        Handles { slots: Vec::new(), open: 0 }
    }
}

impl<D: ConnectionDriver> Handles<D> {
    /// Adds the handle of a new connection, whose slot is free.
    pub(super) fn insert(&mut self, handle: ConnectionHandle<D>) {
        let at = handle.id.slot as usize;
        if self.slots.len() <= at {
            self.slots.resize_with(at + 1, || None);
        }
        if let Some(slot) = self.slots.get_mut(at) {
            debug_assert!(slot.is_none(), "the connection before it is forgotten");
            *slot = Some(handle);
            self.open += 1;
        }
    }

    /// Returns the handle of a connection, or `None` if the connection is closed.
    pub(super) fn find(&self, id: ConnectionId) -> Option<&ConnectionHandle<D>> {
        self.slots.get(id.slot as usize)?.as_ref().filter(|handle| handle.id == id)
    }

    /// Removes the handle of a connection, and returns it; `None` if the connection is closed.
    pub(super) fn remove(&mut self, id: ConnectionId) -> Option<ConnectionHandle<D>> {
        let handle = self.slots.get_mut(id.slot as usize)?.take_if(|handle| handle.id == id)?;
        self.open -= 1;
        Some(handle)
    }

    /// Sends a notice to a connection, if the connection is still open.
    pub(super) fn notify(&self, id: ConnectionId, notice: ConnectionNotice) {
        if let Some(handle) = self.find(id) {
            handle.notify(notice);
        }
    }

    pub(super) fn range(&self, slots: Range<usize>) -> impl Iterator<Item = &ConnectionHandle<D>> {
        self.slots.iter().skip(slots.start).take(slots.len()).flatten()
    }

    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Returns the number of open connections.
    pub(super) fn open(&self) -> usize {
        self.open
    }
}
