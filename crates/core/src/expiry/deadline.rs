//! Deadlines as shards and the expiry actor name them. Pure.

use crate::named_enum::named_enum;
use crate::time::Instant;

named_enum! {
    /// The purpose of a deadline. Each slot of a shard has at most one deadline of every kind.
    #[derive(Hash)]
    #[repr(u8)]
    pub enum DeadlineKind {
        /// The peer must send something: first CONNECT, later any packet within its Keep Alive.
        ReadIdle = "read_idle",
        /// The peer's socket must take pending bytes.
        WriteIdle = "write_idle",
        /// The earliest unacknowledged QoS 1 or 2 packet is due.
        Retransmit = "retransmit",
        /// The earliest of three times of a session: the end of its Session Expiry Interval or Will
        /// Delay Interval, and the end of a hold. Only the hold concerns a connected session too.
        Session = "session",
        /// The regular housekeeping of the shard, such as figures and expired retained messages.
        Housekeeping = "housekeeping",
    }
}

impl DeadlineKind {
    /// The number of kinds.
    pub const COUNT: usize = Self::ALL.len();
}

/// A deadline of a shard, to be registered, moved, or, with [`Instant::NEVER`], removed.
///
/// A newer generation replaces an older one. An older generation changes nothing while a newer one
/// is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The purpose of the deadline.
    pub kind: DeadlineKind,
    /// The number of the owner within its shard. The numbers are dense.
    pub slot: u32,
    /// The life of the slot to which the deadline belongs, since slots are reused.
    pub generation: u32,
    /// The deadline; [`Instant::NEVER`] removes the registration.
    pub deadline: Instant,
}
