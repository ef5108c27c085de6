//! The effects of a turn: lists of what the driver has to carry out, and the events that it
//! reports.
//!
//! The shard fills the lists during a turn. [`Shard::flush`](crate::shard::Shard::flush) empties
//! them through the trait [`Io`](crate::shard::io::Io), in the order that `io.rs` documents. An
//! event never holds a payload or a password.

use crate::expiry::deadline::Registration;
use crate::routing::subscription_tree::ShardId;
use crate::shard::durability::gates::PageRequest;
use crate::shard::exchange::outbound::PeerBatch;
use crate::shard::features::delayed::DelayedRequest;
use crate::shard::observe::client_events::ClientEvent;
use crate::shard::slots::ConnectionId;

/// The pending effects of one shard.
#[derive(Debug, Default)]
pub struct Effects {
    /// Connections with something to write. Each stands here once, because the connection knows
    /// that it is dirty.
    pub dirty: Vec<ConnectionId>,
    /// Connections to read again.
    pub resume: Vec<ConnectionId>,
    /// Deadlines for the expiry actor.
    pub registrations: Vec<Registration>,
    /// Sealed batches, at most one for each peer.
    pub peer_batches: Vec<(ShardId, PeerBatch)>,
    /// Parked entries to read back from the store.
    pub pages: Vec<PageRequest>,
    /// Delayed messages to read back from the store.
    pub delayed: Vec<DelayedRequest>,
    /// True if stored retained messages changed. The changes go to the store before this turn's
    /// batch.
    pub retained: bool,
    /// For the log, the event topics and the last-disconnect records.
    pub events: Vec<ClientEvent>,
}

impl Effects {
    /// Returns true if there is nothing to carry out. A change of retained messages alone does not
    /// count: it goes out with the next flush.
    pub fn is_empty(&self) -> bool {
        self.dirty.is_empty()
            && self.resume.is_empty()
            && self.registrations.is_empty()
            && self.peer_batches.is_empty()
            && self.pages.is_empty()
            && self.delayed.is_empty()
            && self.events.is_empty()
    }
}
