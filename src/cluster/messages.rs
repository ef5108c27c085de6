//! The messages between the driver of a node, its decisions, its workers, the broker and the thread
//! of the rows.

use super::engine::{Bounds, EngineError};
pub use super::writes::DatabaseWrite;
use crate::broker::owner_door::OwnerDoor;
use crate::ownership::{AppendId, AppendReply, Position, Role, Start};
use crate::store::StoreError;
use crate::store::frame::Digest;
use crate::store::replicated::{CellLog, NextGroup};
use crate::store::sqlite::{Mark, Sqlite};
use crate::store::wall::FileTime;
use crate::time::Instant;
use bytes::Bytes;
use std::sync::mpsc::Sender;

/// What comes to the driver.
pub(super) enum DriverInput {
    /// The answer to an append.
    Reply(AppendId, AppendReply),
    /// No answer came to an append, for this reason.
    NoReply(AppendId, String),
    /// The engine refused an append for this reason, which only a person can mend.
    Refused(AppendId, String),
    /// What the log holds at the position of an append.
    Frame(AppendId, Position, Result<Vec<(u64, Bytes)>, EngineError>),
    /// The ends of the log.
    Ends(Result<Bounds, EngineError>),
    /// The next frames.
    Frames(Vec<(u64, Bytes)>),
    /// The outcome of a write of the database.
    Written(Result<Box<Sqlite>, StoreError>),
    /// What the rows of all nodes say.
    Rows(RowsSeen),
    /// The log that the node follows is none of the cluster any more.
    Replaced,
    /// The next group of the owner's store.
    Group(NextGroup),
    /// The time of frames that the driver itself makes.
    TimeRuns(FileTime),
    /// The broker has recovered its store, and is ready to let clients in.
    Recovered(OwnerDoor, IsAlive),
    /// The node is to leave.
    Drain,
    /// The broker has ended, with everything committed.
    Flushed,
}

/// What the driver of a cell has to do, in the order in which it is to be done.
#[derive(Debug)]
pub enum DriverAction<D = Sqlite> {
    /// Append this frame at this position.
    Append(AppendId, Position, Bytes),
    /// Read what the log holds at the position of an append.
    AskFrame(AppendId, Position),
    /// Ask the leader for the ends of the log.
    AskEnds,
    /// Write the row of this node and read all rows, at once.
    AskRows,
    /// Read the frames behind a position. `waits` is true if the node has all frames, as far as it
    /// knows.
    Follow {
        /// The last position that the node has.
        after: u64,
        /// The node waits for an announcement first.
        waits: bool,
    },
    /// Write the database on a thread that may wait for the disk, and hand the outcome in by
    /// [`DriverCore::written`](super::driver_core::DriverCore::written).
    Write(DatabaseWrite<D>),
    /// The end of the lease is another one.
    Lease(Instant),
    /// The engine has no room for new frames, or has room again.
    Full(bool),
    /// The cell is owned: start the broker with this database, which has everything up to the mark.
    Recover(D, Mark),
    /// Let clients in.
    LetIn,
    /// No frame was stored for too long.
    Isolate,
    /// The lease has ended: end the broker.
    Flush,
    /// The group is stored, and this is the mark of its last frame.
    GroupStored(Mark),
    /// Nobody may serve until a person has decided, for this reason.
    Alarmed(String),
    /// End the process with this code.
    Exit(u8),
    /// The database of this node cannot be used: end the process.
    Failed(StoreError),
}

/// Tells whether all threads that serve clients give signs of life, and the disk does not hang that
/// clients wait for.
pub type IsAlive = Box<dyn Fn() -> bool + Send>;

/// What the node has to do.
pub enum NodeEvent {
    /// Start the broker with this database, shut for clients.
    Recover(Box<Cell>),
    /// Let clients in.
    LetIn,
    /// Disconnect the clients, and let nobody in.
    ShutOut,
    /// End the broker: everything is committed then.
    Flush,
    /// The cluster is alarmed, for this reason. Serve nobody, and stay.
    Alarmed(String),
    /// The node has left, and the process ends in order.
    Left(End),
}

/// The last frame that a node has, at its end.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// Its mark.
    pub mark: Mark,
    /// The position of the last group: what comes behind it changes no table. 0 if the node never
    /// served.
    pub groups: u64,
}

/// A cell whose owner this node is now.
pub struct Cell {
    /// The database, as of the mark.
    pub database: Sqlite,
    /// The last frame that the database has.
    pub mark: Mark,
    /// The way to the log.
    pub log: Box<dyn CellLog>,
}

/// The facts about a node, for its row and for operators.
#[derive(Clone, Debug)]
pub struct NodeFacts {
    /// What the node does.
    pub role: Role,
    /// The epoch of the last Claim that it knows.
    pub epoch: u64,
    /// The place of the owner by this Claim in the list of nodes; `None` before the first Claim and
    /// after a Release.
    pub owner: Option<u16>,
    /// The last position that it has read or written.
    pub position: u64,
    /// The digest of the frame there.
    pub digest: Digest,
    /// The last position that the database of a standby has, or had when the node became the owner.
    pub database: u64,
    /// The end of its lease; [`Instant::ZERO`] without one.
    pub lease_until: Instant,
    /// The ends of the log as the engine said last.
    pub bounds: Option<Bounds>,
    /// The time of the append that is not decided; [`Instant::NEVER`] without one.
    pub undecided_since: Instant,
    /// Why nothing is stored; empty if frames are.
    pub trouble: String,
    /// Why the cluster is alarmed; empty if it is not.
    pub alarm: String,
}

impl NodeFacts {
    /// Returns the facts about a node that starts.
    pub(super) fn at_start(start: &Start) -> NodeFacts {
        NodeFacts {
            role: Role::Following,
            epoch: start.claim.map_or(0, |claim| claim.epoch),
            owner: None,
            position: start.position.0,
            digest: Digest::default(),
            database: start.position.0,
            lease_until: Instant::ZERO,
            bounds: None,
            undecided_since: Instant::NEVER,
            trouble: String::new(),
            alarm: String::new(),
        }
    }
}

/// What the driver has to know of the rows.
#[derive(Debug)]
pub(super) struct RowsSeen {
    /// The highest position that a node has reported.
    pub reported: u64,
    /// The text of the alarm.
    pub alarm: Option<String>,
    /// The time when they were asked for. A thread that stands still makes no answer younger.
    pub asked: Instant,
}

/// The way to the driver.
#[derive(Clone)]
pub(super) struct DriverDoor(Sender<DriverInput>);

impl DriverDoor {
    pub(super) fn new(inputs: Sender<DriverInput>) -> DriverDoor {
        DriverDoor(inputs)
    }

    pub(super) fn tell(&self, input: DriverInput) {
        // A driver that has ended has nothing to do any more.
        let _ = self.0.send(input);
    }
}
