//! Deadlines as shards and the expiry actor name them. Pure.

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
    /// The shard's own regular work: figures, expired retained messages.
    Chore,
}

impl DeadlineKind {
    pub const ALL: [DeadlineKind; 5] = [
        DeadlineKind::ReadIdle,
        DeadlineKind::WriteIdle,
        DeadlineKind::Retransmit,
        DeadlineKind::Session,
        DeadlineKind::Chore,
    ];
    pub const COUNT: usize = Self::ALL.len();

    /// As in topics.
    pub const fn name(self) -> &'static str {
        match self {
            DeadlineKind::ReadIdle => "read_idle",
            DeadlineKind::WriteIdle => "write_idle",
            DeadlineKind::Retransmit => "retransmit",
            DeadlineKind::Session => "session",
            DeadlineKind::Chore => "chore",
        }
    }
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
