//! Who owns a cell of a cluster: a pure state machine for each cell and node.
//!
//! All nodes of a cluster share one log for each cell, which an engine keeps. Each append names the
//! last position that its sender knows, and the engine refuses it if the log has moved. So who did
//! not see the last frame cannot write the next one, and the order of the log decides who owns the
//! cell. Nothing here does I/O or reads a clock: a driver carries out the outputs, and hands in the
//! answers and the time: the module `cluster` of the program.
//!
//! | role | the node | next |
//! |---|---|---|
//! | Following | reads and applies frames | Claiming, Alarmed |
//! | Claiming | has sent a Claim, and does not know its outcome | Recovering, Following, Alarmed |
//! | Recovering | owns the cell, and makes it ready | Holding, Releasing, Lost, Alarmed |
//! | Holding | serves, and may promise while its lease lasts | Releasing, Lost, Alarmed |
//! | Releasing | has ended its lease, flushes, and appends a Release | Released, Lost, Alarmed |
//! | Released, Lost | has ended: with exit code 0; with 75, or 2 if it reads a foreign log | |
//! | Alarmed | serves nothing; a person decides | |
//!
//! **Why no two nodes have a valid lease.** Let frame n be the last one of owner A before the Claim
//! of B, which is n + 1. A's lease comes from frame n or an earlier one, so it ends at the latest
//! one lease after the first attempt of frame n. B saw frame n after this attempt, and sent its
//! Claim at least 1.5 leases later. Clocks are only read as durations, and their rates differ by
//! less than half. So A's lease had ended when B sent its Claim. After the Claim, no append of A is
//! stored. Two cases need no wait: A appended a Release, before which its lease had ended; or A was
//! an earlier process with the same directory and boot, and the lock of the directory says that it
//! has ended.
//!
//! | file | concern |
//! |---|---|
//! | `chain` | whether a frame continues the log that a node has |
//! | `timing` | the durations, and how they are checked against each other |
//! | `undecided` | one append until its outcome is certain |
//! | `recovery` | whether the recovery of a new owner goes on |
//! | `watch` | what the frames and the engine's answers say about owner and log |
//! | `tenure` | an owner's lease, beats and appends |
//! | `cell` | the roles, and the way from one to the next |

mod cell;
mod chain;
mod recovery;
mod tenure;
mod timing;
mod undecided;
mod watch;

pub use cell::{CellOwnership, Role};
pub use chain::{ChainBreak, ChainEnd, ChainLink, Consequence};
pub use timing::{Timing, TimingError};
pub use watch::EngineAnswer;

use std::time::Duration;

/// The number of a frame in the log of its cell. The first frame has 1, and 0 is before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

impl Position {
    /// Returns the next position.
    pub const fn next(self) -> Position {
        Position(self.0 + 1)
    }
}

/// The number of an append of one process. All attempts of a frame have the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendId(pub u64);

/// The content of a Claim, the first frame of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The place of the node in the list of nodes.
    pub node: u16,
    /// The identifier of the node's directory.
    pub directory: u64,
    /// The identifier of the boot of its machine.
    pub boot: u64,
    /// The number of this Claim among all Claims of the log, from 1.
    pub epoch: u64,
    /// The lease of the owner. A standby waits longer than it.
    pub lease: Duration,
}

/// The kinds of frames that an owner appends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendKind {
    /// The first frame of an owner.
    Claim(Claim),
    /// The group of changes that is ready now.
    Group,
    /// A sign of life, which renews the lease.
    Beat,
    /// The last frame of an owner that leaves.
    Release,
}

/// What a frame of the log says about its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeenKind {
    /// A new owner.
    Claim(Claim),
    /// The end of an owner.
    Release,
    /// A frame of the present owner.
    Other,
}

/// The engine's answer to one attempt of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendReply {
    /// The frame is stored.
    Stored,
    /// The last position is another one. The leader counts frames that are not committed, and the
    /// frame itself may be one of these.
    WrongLast,
    /// The log has no room. The attempt was not stored.
    Full,
    /// No answer came in time.
    TimedOut,
}

/// What the log holds at the position of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextFrame {
    /// The frame that was appended, by its digest.
    Ours,
    /// Another frame.
    Another,
    /// Nothing, as far as the server that answered knows.
    Nothing,
    /// No answer came.
    Unknown,
}

/// Whether a node may claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fitness {
    /// It may.
    Fit,
    /// It lags too far, fetches a snapshot, or has no room on its disk.
    Unfit,
}

/// Whether the work of an owner goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The owner recovers. The number of rows and sessions that it has read so far: it is stuck if
    /// the number stays for [`Timing::recovery`].
    Recovered(u64),
    /// It serves, and its threads and its disk work.
    Moving,
    /// A thread or the disk hangs, and clients wait for it. Nothing is appended, so that a standby
    /// claims.
    Stuck,
}

/// The node that a machine is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellNode {
    /// The number of the cell.
    pub cell: u16,
    /// The place of the node in the list of nodes.
    pub node: u16,
    /// The number of nodes, at least 1.
    pub nodes: u16,
    /// The identifier of the node's directory.
    pub directory: u64,
    /// The identifier of the boot of its machine.
    pub boot: u64,
}

impl CellNode {
    /// Returns the rank of the node: its place in the list, turned by the number of the cell. So
    /// the cells of a node that ends spread over the others.
    pub fn rank(&self) -> u32 {
        let nodes = u32::from(self.nodes.max(1));
        (u32::from(self.node) + nodes - u32::from(self.cell) % nodes) % nodes
    }
}

/// What the disk of a node says when its process starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// The position of the last frame that was applied.
    pub position: Position,
    /// The last Claim up to there.
    pub claim: Option<Claim>,
    /// True if the owner of this Claim has appended its Release.
    pub is_released: bool,
    /// The starts of this directory in the last 60 s that found its own Claim, this one included.
    pub crashes: u32,
}

/// What a machine is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnershipInput {
    /// The next frame of the log was read and checked.
    Frame(Position, SeenKind),
    /// All frames up to this position are applied.
    Applied(Position),
    /// The leader's answer to [`OwnershipOutput::AskLast`].
    Last(EngineAnswer),
    /// No answer to [`OwnershipOutput::AskLast`] came in time.
    LastUnknown,
    /// An answer to an attempt, in any order and as often as it comes.
    Reply(AppendId, AppendReply),
    /// The answer to [`OwnershipOutput::ReadNext`].
    Next(AppendId, NextFrame),
    /// A group of changes is ready to be appended.
    GroupReady,
    /// A promise left by the lease alone.
    Promised,
    /// The shards are ready.
    Recovered,
    /// The node is to leave.
    Drain,
    /// Nothing is left to append or to acknowledge before the Release.
    Flushed,
    /// Somebody has written an alarm.
    AlarmRead,
    /// A frame does not continue the log that this node has. It is not applied.
    Broken(ChainBreak),
    /// Whether the node may claim has changed.
    Fitness(Fitness),
    /// Time has passed.
    Tick(Progress),
}

/// The reason of an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alarm {
    /// The engine has fewer frames than were applied.
    LostFrames,
    /// A frame has another predecessor.
    ChangedFrames,
}

/// What the driver of a machine does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnershipOutput {
    /// Make a frame and append it, behind the position before this one.
    Append(AppendId, Position, AppendKind),
    /// Append the same bytes again.
    Resend(AppendId),
    /// Read what the log holds at this position.
    ReadNext(AppendId, Position),
    /// Ask the leader for the last position.
    AskLast,
    /// Read the rows of all nodes now: a claim waits for nothing else.
    AskRows,
    /// The Claim was lost: read on.
    Follow,
    /// The cell is owned in this epoch: make it ready, and then say [`OwnershipInput::Recovered`].
    Recover(u64),
    /// Let clients in.
    Serve,
    /// The group is stored: what waited for it may leave.
    GroupStored(AppendId),
    /// The log has no room for the group, and does not have it.
    GroupFull(AppendId),
    /// The lease has ended, and what waits leaves by appends alone: let nobody in, read no more,
    /// and say [`OwnershipInput::Flushed`] in the end.
    Flush,
    /// Disconnect the clients, and let nobody in.
    Isolate,
    /// Let clients in again.
    Rejoin,
    /// The cell has another owner or none: nothing may be acknowledged any more.
    StopAcknowledging,
    /// Write an alarm, for all nodes.
    WriteAlarm(Alarm),
    /// End the process with this code.
    Exit(u8),
}

/// The exit code of a node that has lost its cell. The service manager starts it again, as a
/// standby.
pub const EXIT_LOST: u8 = 75;

/// The exit code of a node that was told to read what is not its log. A start would end in the same
/// way, so the service manager does not start it again.
pub const EXIT_REFUSED: u8 = 2;

#[cfg(test)]
mod tests;
