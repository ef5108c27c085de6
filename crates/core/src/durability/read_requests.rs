//! Requests to read back from the store.

use crate::persistence::records::{BodyNumber, DelayedNumber, EntryNumber};
use crate::slots::SessionId;
use crate::time::Instant;

/// The requests that a turn leads to.
#[derive(Debug, Default)]
pub struct ReadRequests {
    /// Paged-out entries.
    pub pages: Vec<PageRequest>,
    /// Delayed messages.
    pub delayed: Vec<DelayedRequest>,
}

/// A request for entries of a session's queue, or for those that queues have dropped.
#[derive(Debug, PartialEq, Eq)]
pub struct PageRequest {
    /// The session, or a reader that is none.
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
