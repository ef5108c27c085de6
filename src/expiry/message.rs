//! What shards and the expiry actor say to each other: a batch each way, never a message per deadline.

use crate::time::Instant;

/// What a deadline is for. Each owner may have one deadline of every kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DeadlineKind {
    /// Something has to come from the peer: CONNECT, then whatever Keep Alive asks for.
    ReadIdle,
    /// The peer's socket takes no bytes.
    WriteIdle,
    /// The earliest unacknowledged QoS 1 or 2 packet.
    Retransmit,
    /// Session Expiry Interval or Will Delay Interval of a session without a connection.
    Session,
}

impl DeadlineKind {
    pub const ALL: [DeadlineKind; 4] =
        [DeadlineKind::ReadIdle, DeadlineKind::WriteIdle, DeadlineKind::Retransmit, DeadlineKind::Session];
    pub const COUNT: usize = Self::ALL.len();
}

/// One deadline of a shard's, to be registered, moved or, with [`Instant::NEVER`], forgotten.
///
/// A newer generation takes the place of an older one; an older one changes nothing while a newer is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    pub kind: DeadlineKind,
    /// Dense within the shard.
    pub slot: u32,
    pub generation: u32,
    pub deadline: Instant,
}

/// What one turn of a shard registers. Sent once a turn, and only if something has to be told ([`lazy`](super::lazy)).
#[derive(Debug)]
pub struct Register {
    pub shard: u16,
    pub batch: Vec<Registration>,
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
