//! Deadlines as shards and the expiry actor name them. Pure.

use crate::time::Instant;

/// The purpose of a deadline. Each slot of a shard has at most one deadline of every kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DeadlineKind {
    /// The peer must send something: first CONNECT, later any packet within its Keep Alive.
    ReadIdle,
    /// The peer's socket must take pending bytes.
    WriteIdle,
    /// The earliest unacknowledged QoS 1 or 2 packet is due.
    Retransmit,
    /// The earliest of three times of a session: the end of its Session Expiry Interval or Will
    /// Delay Interval, and the end of a hold. Only the hold concerns a connected session too.
    Session,
    /// The regular housekeeping of the shard, such as figures and expired retained messages.
    Housekeeping,
}

impl DeadlineKind {
    /// All kinds, in the order of their discriminants.
    pub const ALL: [DeadlineKind; 5] = [
        DeadlineKind::ReadIdle,
        DeadlineKind::WriteIdle,
        DeadlineKind::Retransmit,
        DeadlineKind::Session,
        DeadlineKind::Housekeeping,
    ];
    /// The number of kinds.
    pub const COUNT: usize = Self::ALL.len();

    /// Returns the name of the kind in `$SYS` topics.
    pub const fn name(self) -> &'static str {
        match self {
            DeadlineKind::ReadIdle => "read_idle",
            DeadlineKind::WriteIdle => "write_idle",
            DeadlineKind::Retransmit => "retransmit",
            DeadlineKind::Session => "session",
            DeadlineKind::Housekeeping => "housekeeping",
        }
    }
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
