//! The log of one cell as the engine of a cluster keeps it. Requests go in and answers come out, so
//! that no caller ever waits for an engine.
//!
//! The engine keeps a promise: a frame that it has reported as stored stays in its place for ever,
//! until it is trimmed. All else may go wrong. A request or an answer is lost, late or doubled; an
//! append whose answer is lost is stored or not; a server that lags shows an older end.

use bytes::Bytes;
use homing_core::ownership::{AppendReply, Position};

/// The number of a request. Its sender chooses it, and never gives it twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogRequestNumber(pub u64);

/// A request to the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogRequest {
    /// Append a frame if the last position is `after`.
    Append {
        /// The last position that the sender knows.
        after: Position,
        /// The bytes of the frame.
        frame: Bytes,
    },
    /// Read frames from a position on, from whichever server answers first.
    Read {
        /// The first position.
        from: Position,
        /// The number of bytes after which the answer ends. It has one frame at least.
        bytes: usize,
    },
    /// Ask the leader for the last position.
    Last,
    /// Remove the frames before a position. A snapshot has them.
    Trim(Position),
    /// Keep a snapshot in place of the one before, if it is newer.
    PutSnapshot(LogSnapshot),
}

/// The state after all frames up to a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSnapshot {
    /// The last frame that is part of it.
    pub position: Position,
    /// The state.
    pub state: Bytes,
}

/// The engine's answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogAnswer {
    /// To an append.
    Append(AppendReply),
    /// Frames in order, each with its position. The first is a later one than was asked for if the
    /// frames before it were trimmed. There is none if the server has none.
    Frames(Vec<(Position, Bytes)>),
    /// The last position.
    Last(Position),
    /// The log is trimmed, or the snapshot kept.
    Done,
}

/// The log of one cell, as one node reaches it.
pub trait ReplicatedLog {
    /// Sends a request. An answer may never come, and the sender decides how long to wait.
    fn request(&mut self, number: LogRequestNumber, request: LogRequest);

    /// Returns the next answer that has come, with the number of its request.
    fn next_answer(&mut self) -> Option<(LogRequestNumber, LogAnswer)>;
}
