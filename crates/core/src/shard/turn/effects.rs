//! The effects of a turn: lists of work for the driver, and events to report.
//!
//! The shard fills the lists during a turn. [`Shard::flush`](crate::shard::Shard::flush) empties
//! them through the trait [`Io`](crate::shard::turn::io::Io), in the order that `io.rs` documents.
//! An event never holds a payload or a password.

use crate::expiry::deadline::Registration;
use crate::persistence::records::{BodyNumber, DelayedNumber, EntryNumber};
use crate::routing::subscription_tree::ShardId;
use crate::session::trace_steps::TraceSteps;
use crate::shard::clients::slots::{ConnectionId, SessionId};
use crate::shard::features::unanswered::PublicationAnswer;
use crate::shard::login::authentication::AuthRequest;
use crate::shard::observe::client_events::ClientEvent;
use crate::shard::peers::peer_batch::PeerBatch;
use crate::time::Instant;

/// Bytes that a turn appends to outboxes before they are flushed and more is read.
const MUCH: usize = 256 * 1024;

/// The pending effects of one shard.
#[derive(Debug, Default)]
pub struct Effects {
    /// Connections with something to write. Each is listed once, because the connection knows that
    /// it is dirty.
    pub dirty: Vec<ConnectionId>,
    /// Bytes appended to outboxes since the last flush, about.
    pub(crate) unflushed: usize,
    /// Connections whose bytes in the kernel are read before those in `resume` go on.
    pub read_now: Vec<ConnectionId>,
    /// Connections to read again.
    pub resume: Vec<ConnectionId>,
    /// Deadlines for the expiry actor.
    pub registrations: Vec<Registration>,
    /// Sealed batches, at most one for each peer.
    pub peer_batches: Vec<(ShardId, PeerBatch)>,
    /// Paged-out entries to read back from the store.
    pub pages: Vec<PageRequest>,
    /// Delayed messages to read back from the store.
    pub delayed: Vec<DelayedRequest>,
    /// CONNECT packets that the authenticator decides.
    pub auth_requests: Vec<AuthRequest>,
    /// True if stored retained messages changed. The changes go to the store before this turn's
    /// batch.
    pub retained: bool,
    /// For the log, the event topics and the last-disconnect records.
    pub events: Vec<ClientEvent>,
    /// For the traces of operators.
    pub trace: TraceSteps,
    /// Answers to messages that operators published.
    pub answered: Vec<PublicationAnswer>,
}

impl Effects {
    /// Returns true if so much waits in outboxes that they are flushed before more is read.
    #[inline]
    pub(crate) fn is_much_unflushed(&self) -> bool {
        self.unflushed >= MUCH
    }

    /// Puts back connections that the turn did not get to flush, before those that are dirty since.
    /// Nothing more is read before they are flushed. Otherwise a publisher would fill outboxes
    /// faster than they are written.
    pub(crate) fn flush_first(&mut self, mut rest: Vec<ConnectionId>) {
        rest.append(&mut self.dirty);
        self.dirty = rest;
        self.unflushed = self.unflushed.max(MUCH);
    }

    /// Moves a client behind the receivers of its packets in the dirty list. So a publisher gets no
    /// acknowledgement before the kernel has the message for every receiver of this shard that
    /// takes it at once.
    ///
    /// `from` is the length of the dirty list before the packets. Costs one comparison if the
    /// client is already the last one, else a look at each connection that its packets made dirty.
    pub(crate) fn flush_last(&mut self, id: ConnectionId, from: usize) {
        if self.dirty.last() == Some(&id) {
            return;
        }
        if let Some(at) = self.dirty.iter().skip(from).position(|d| *d == id) {
            self.dirty.swap_remove(from + at);
            self.dirty.push(id);
        }
    }

    /// Returns true if there is nothing to carry out. A change of retained messages alone does not
    /// count: it goes out with the next flush.
    pub fn is_empty(&self) -> bool {
        self.dirty.is_empty()
            && self.read_now.is_empty()
            && self.resume.is_empty()
            && self.registrations.is_empty()
            && self.peer_batches.is_empty()
            && self.pages.is_empty()
            && self.delayed.is_empty()
            && self.auth_requests.is_empty()
            && self.events.is_empty()
            && self.trace.is_empty()
            && self.answered.is_empty()
    }
}

/// A request for entries of a session's queue.
#[derive(Debug, PartialEq, Eq)]
pub struct PageRequest {
    /// The session.
    pub session: SessionId,
    /// The entries, in the order of the queue, with their bodies.
    pub wanted: Vec<(EntryNumber, BodyNumber)>,
}

/// A request for delayed messages that are due from `from` on and before `until`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayedRequest {
    /// The time and number of the first message.
    pub from: (Instant, DelayedNumber),
    /// The end of the time span, exclusive.
    pub until: Instant,
    /// Maximum number of messages.
    pub most: usize,
}
