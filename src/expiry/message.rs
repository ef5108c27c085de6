//! What shards and the expiry actor say to each other: a batch each way, never a message per deadline.

use super::deadline::DeadlineKind;
pub use super::deadline::Registration;
use crate::time::Instant;
use std::time::Duration;

/// What one turn of a shard registers. Sent once a turn, and only if something has to be told ([`lazy`](super::lazy)).
#[derive(Debug)]
pub struct Register {
    pub shard: u16,
    pub batch: Vec<Registration>,
    /// When it was sent.
    pub sent: Instant,
}

impl actix::Message for Register {
    type Result = ();
}

/// A registered bucket has ended. The owner may have moved its deadline or gone since: it compares before it acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub kind: DeadlineKind,
    pub slot: u32,
    pub generation: u32,
}

/// What became due for one shard: one batch a tick, several only where a tick takes several rounds.
///
/// Bounded by the shard's own registrations: a key whose verdict went out is registered no more.
#[derive(Debug)]
pub struct Verdicts {
    pub batch: Vec<Verdict>,
    /// The end of the earliest bucket polled for this batch; the others follow, up to the time of the poll.
    pub tick: Instant,
    /// When it was sent.
    pub sent: Instant,
}

impl actix::Message for Verdicts {
    type Result = ();
}

/// Poll once now rather than at the next bucket's end. Nothing comes early by it.
#[derive(Debug)]
pub struct PollNow;

impl actix::Message for PollNow {
    type Result = ();
}

/// Count what is due soon, for whoever shows it. Looks at every key once, 16 bytes each, in stretches between which all else goes on.
#[derive(Debug)]
pub struct Survey;

impl actix::Message for Survey {
    type Result = ();
}

/// Say what is registered, for a person. Walks over every key: some 10 ms for a million of them, in which no verdict goes out.
#[derive(Debug)]
pub struct Inspect;

impl actix::Message for Inspect {
    type Result = Inspection;
}

/// The answer.
#[derive(Debug)]
pub struct Inspection {
    /// The width of a bucket.
    pub interval: Duration,
    pub keys: usize,
    /// The ends and sizes of buckets with keys in them, the earliest first; all of them.
    pub buckets: Vec<(Instant, usize)>,
    /// By shard, then by kind.
    pub shards: Vec<[Registered; DeadlineKind::COUNT]>,
}

/// What one shard has registered of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Registered {
    pub keys: usize,
    /// The end of the first bucket among them.
    pub first: Option<Instant>,
}
