//! The messages between shards and the expiry actor. Each message is a batch, never a single
//! deadline.

use super::deadline::DeadlineKind;
use super::deadline::Registration;
use super::queue::WheelCount;
use crate::time::Instant;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// The registrations of one turn of a shard.
///
/// Sent at most once in a turn, and only if [`lazy`](super::lazy) finds a deadline to send.
#[derive(Debug)]
pub struct Register {
    /// The number of the shard that registers.
    pub shard: u16,
    /// The registrations, in the order in which they were made.
    pub batch: Vec<Registration>,
    /// The time at which the batch was sent.
    pub sent: Instant,
}

impl actix::Message for Register {
    type Result = ();
}

/// A deadline whose registered bucket has ended.
///
/// The owner may have moved its deadline since, or may be gone. So the shard compares with the true
/// deadline before it acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpiredDeadline {
    /// The purpose of the deadline.
    pub kind: DeadlineKind,
    /// The number of the owner within its shard.
    pub slot: u32,
    /// The life of the slot that registered the deadline.
    pub generation: u32,
}

/// The expired deadlines of one shard. One batch for each tick, or several if a tick takes several
/// rounds.
///
/// The size is bounded by the shard's own registrations: a key that was sent is no longer
/// registered.
#[derive(Debug)]
pub struct ExpiredDeadlines {
    /// The expired deadlines, in any order within a bucket.
    pub batch: Vec<ExpiredDeadline>,
    /// The end of the earliest bucket in this batch. Later buckets, up to the time of the poll, may
    /// follow in the same batch.
    pub tick: Instant,
    /// The time at which the batch was sent.
    pub sent: Instant,
}

impl actix::Message for ExpiredDeadlines {
    type Result = ();
}

/// Tells the expiry actor to poll now instead of at the end of the next bucket. No deadline expires
/// early by it.
#[derive(Debug)]
pub struct PollNow;

impl actix::Message for PollNow {
    type Result = ();
}

/// Tells the expiry actor to count the keys that are due soon, for [`ExpiryStatistics::due`].
///
/// The survey looks at every key once, 16 bytes each. After each stretch of slots the survey makes
/// way for other work.
///
/// [`ExpiryStatistics::due`]: super::statistics::ExpiryStatistics::due
#[derive(Debug)]
pub struct Survey;

impl actix::Message for Survey {
    type Result = ();
}

/// Asks the expiry actor for the keys of each bucket by kind.
///
/// The actor counts in stretches of 0.3 ms and makes way for other work between them. So no
/// deadline is later for it. Callers that ask while a count is under way share its result.
#[derive(Debug)]
pub struct CountKeys {
    /// The way back.
    pub reply: oneshot::Sender<Arc<WheelCount>>,
}

impl actix::Message for CountKeys {
    type Result = ();
}

/// Asks the expiry actor for everything that is registered, for a person to read.
///
/// The actor walks over every key, some 10 ms for a million keys. No expired deadline is sent
/// meanwhile.
#[derive(Debug)]
pub struct Inspect;

impl actix::Message for Inspect {
    type Result = ExpiryInspection;
}

/// The answer to [`Inspect`].
#[derive(Debug)]
pub struct ExpiryInspection {
    /// The width of a bucket.
    pub interval: Duration,
    /// The number of registered keys.
    pub keys: usize,
    /// The end and the number of keys of every bucket with keys, earliest first.
    pub buckets: Vec<(Instant, usize)>,
    /// The registrations by shard, then by kind.
    pub shards: Vec<[RegisteredDeadlines; DeadlineKind::COUNT]>,
}

/// The registrations of one kind in one shard.
#[derive(Clone, Copy, Debug, Default)]
pub struct RegisteredDeadlines {
    /// The number of registered keys.
    pub keys: usize,
    /// The end of the first bucket with such a key; `None` without keys.
    pub first: Option<Instant>,
}
