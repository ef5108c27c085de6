//! The door to the engine of a cluster: the log of one cell, the rows of the cluster and its
//! snapshots, kept on several machines. The store and the nodes know this trait and no engine.
//!
//! Calls block, and come from ordinary threads: several at once, and never from a thread that runs
//! a shard. Each call is bounded in time, so that the bound of a caller is the sum of its calls.
//! Nothing is tried again in here except where a method says so, because only the caller knows
//! which retry is safe.
//!
//! A *position* is the number of a frame in the log. The first frame has 1, and 0 is before it.
//!
//! # What the engine promises
//!
//! A frame that was reported as [`Append::Applied`] stays at its position until it is purged. An
//! append is applied only at the position behind its `last`. All else may go wrong, and
//! [`Append`] says how much is known.

use bytes::Bytes;
use std::io::{self, Read, Write};
use std::time::Duration;
use thiserror::Error;

/// Maximum size of a frame, in bytes.
pub const MAX_FRAME: usize = 512 * 1024;
/// Maximum size of a row, in bytes.
pub const MAX_ROW: usize = 64 * 1024;

/// One cell's log in an engine, with what the cluster keeps beside it.
pub trait Engine: Send + Sync {
    /// Appends a frame behind the position `last`. It takes 1 s at most.
    ///
    /// A frame without a certain outcome must be sent again as the same bytes behind the same
    /// position, and no other frame before: read the position `last + 1` to decide it.
    fn append(&self, last: u64, frame: &Bytes) -> Append;

    /// Returns the frames behind the position `after`, in order and without a gap between them.
    /// At most `bytes` in all, but one frame at least. Any server answers, and one that lags
    /// returns fewer frames than there are. If it has none, the leader is asked: so an empty answer
    /// is the leader's. The first frame has a later position than `after + 1` if the frames before
    /// it were purged.
    ///
    /// It takes 1 s until the first frame and between frames, 1 s more at the leader, and 11 s in
    /// all.
    ///
    /// # Errors
    /// Nobody answered, or not in a way that can be read.
    fn read(&self, after: u64, bytes: usize) -> Result<Vec<(u64, Bytes)>, EngineError>;

    /// Returns where the log begins and ends, as its leader says. It takes 1 s at most.
    ///
    /// A leader that has just been cut off still answers for up to 20 s, without the frames that
    /// others append.
    ///
    /// # Errors
    /// The leader did not answer, or there is none.
    fn bounds(&self) -> Result<Bounds, EngineError>;

    /// Removes the frames up to the position `up_to` and with it. A snapshot must have them. It
    /// takes 11 s at most.
    ///
    /// # Errors
    /// [`EngineError::Refused`] if the log ends before `up_to`: such a purge would move the next
    /// position forward, and hide that frames were lost. Otherwise as for [`Self::bounds`]. After a
    /// timeout the frames may be gone or not.
    fn purge(&self, up_to: u64) -> Result<(), EngineError>;

    /// Removes all frames, and makes the log end at `position`: the next frame is behind it. Does
    /// nothing to a log that ends there or later, but for the frames up to there. A snapshot must have
    /// what is removed. It takes 11 s at most.
    ///
    /// # Errors
    /// As for [`Self::bounds`]. After a timeout it may be done or not.
    fn begin_behind(&self, position: u64) -> Result<(), EngineError>;

    /// Tells the other nodes that the log has reached this position. It is a hint that may be
    /// lost, and costs less than 0.1 s.
    fn announce(&self, position: u64);

    /// Waits until another node has announced a position behind `after`, and returns it. Each
    /// announcement is returned once. `None` after `limit`.
    fn wait_for_tip(&self, after: u64, limit: Duration) -> Option<u64>;

    /// Stores the content as the snapshot of the state after the frame `position`. An attempt that
    /// was broken off is replaced. It fails after 10 s without progress.
    ///
    /// # Errors
    /// The source could not be read, or the engine failed. Nothing of the attempt is listed then.
    fn put_snapshot(&self, position: u64, from: &mut dyn Read) -> Result<(), SnapshotError>;

    /// Writes the content of a snapshot to `into`. It fails after 10 s without progress.
    ///
    /// # Errors
    /// As [`SnapshotError`] says. What was written so far is worthless then.
    fn get_snapshot(&self, position: u64, into: &mut dyn Write) -> Result<(), SnapshotError>;

    /// Returns the positions of the whole snapshots, in order. It takes 1 s at most.
    ///
    /// # Errors
    /// As for [`Self::bounds`].
    fn snapshots(&self) -> Result<Vec<u64>, EngineError>;

    /// Removes the snapshots of positions below `position`, and the remains of attempts to store
    /// one. It takes 11 s at most for each.
    ///
    /// # Errors
    /// As for [`Self::bounds`]. Some may be removed then.
    fn remove_snapshots(&self, position: u64) -> Result<(), EngineError>;

    /// Returns a row, as the leader of the rows says. It takes 1 s at most.
    ///
    /// # Errors
    /// As for [`Self::bounds`].
    fn row(&self, key: &str) -> Result<Option<Row>, EngineError>;

    /// Returns all rows, in the order of their keys. It takes 1 s at most for each and 1 s for
    /// their list.
    ///
    /// # Errors
    /// As for [`Self::bounds`].
    fn rows(&self) -> Result<Vec<(String, Row)>, EngineError>;

    /// Returns the time by the clock that [`Row::stored_ms`] is of, in milliseconds since 1970; `None`
    /// if the engine does not say it. It takes 1 s at most.
    ///
    /// # Errors
    /// As for [`Self::bounds`].
    fn clock_ms(&self) -> Result<Option<u64>, EngineError>;

    /// Writes a row, whatever it was. Returns its revision. It takes 1 s at most.
    ///
    /// # Errors
    /// After a timeout the row may be written or not, and may still be written for some seconds.
    fn put_row(&self, key: &str, value: Bytes) -> Result<u64, EngineError>;

    /// Writes a row if it has the revision `expected`, or is not there and `expected` is 0. Returns
    /// the new revision, or `None` if the row has another one, or if a write of it is under way. It
    /// takes 4 s at most.
    ///
    /// # Errors
    /// As for [`Self::put_row`]. Read the row to learn its outcome.
    fn swap_row(&self, key: &str, expected: u64, value: Bytes) -> Result<Option<u64>, EngineError>;

    /// Removes a row. It is no error if there is none. It takes 10 s at most.
    ///
    /// # Errors
    /// As for [`Self::put_row`].
    fn remove_row(&self, key: &str) -> Result<(), EngineError>;

    /// Compares the engine's settings with those that a cluster needs. It takes 5 s at most.
    ///
    /// # Errors
    /// The engine did not answer, or [`EngineError::Missing`] if `init` never ran.
    fn check(&self) -> Result<Check, EngineError>;

    /// Makes the log of the cell, with room for `log_bytes`, and what the cluster keeps beside it.
    /// It takes 33 s at most.
    ///
    /// # Errors
    /// [`EngineError::Refused`] if they are there already and something was written. An attempt that
    /// was broken off before can be repeated.
    fn init(&self, log_bytes: u64) -> Result<(), EngineError>;
}

/// The outcome of one attempt to append a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Append {
    /// The frame is on the disks of a majority, at this position.
    Applied(u64),
    /// The log's leader has another last position. It also counts frames that it has taken and not
    /// applied yet, and the frame itself may be one of these. So the frame may yet be applied.
    NotLast,
    /// There is no answer, or none that says enough. The frame is applied, may yet be applied, or
    /// never will be. The text says what is known.
    Unknown(String),
    /// The log has no room. This attempt was not applied and never will be.
    Full,
    /// The engine refused this attempt for a reason that only a person can mend, as the text says.
    /// It was not applied and never will be.
    Refused(String),
}

/// The two ends of a log, as its leader knows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The first position with a frame, or `last + 1` if there is none.
    pub first: u64,
    /// The last position that was ever applied, purged or not. 0 if there was none.
    pub last: u64,
    /// The size of the frames, in bytes, as the engine counts them.
    pub bytes: u64,
    /// The size at which the log is full, in bytes.
    pub capacity: u64,
    /// The name of the server that leads the log, if the engine names one.
    pub leader: Option<String>,
}

/// A value that all nodes share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The bytes.
    pub value: Bytes,
    /// The number of its last change. Revisions only grow, and are never 0.
    pub revision: u64,
    /// The time of its last change in milliseconds since 1970, by the clock of the leader of the
    /// rows; `None` if the engine does not say it.
    pub stored_ms: Option<u64>,
}

/// The result of a look at the engine's settings. Each line names what is wrong and what would be
/// right.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Check {
    /// With one of these, a node must not serve: frames may be lost, or refused for ever.
    pub problems: Vec<String>,
    /// These are worth a line of the log.
    pub warnings: Vec<String>,
}

/// The reason why the engine did not do something.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum EngineError {
    /// No answer came in time. A change may have happened, and may still happen.
    #[error("no answer from the engine: {0}")]
    TimedOut(String),
    /// Nobody took the request: no server can be reached, or there is no leader. Nothing happened.
    #[error("the engine is not available: {0}")]
    Unavailable(String),
    /// The engine has no such log, rows or snapshots. Engines that have just started, or made them,
    /// may say so for a moment: act upon it when it was said for some seconds.
    #[error("{0} is not there: has `homing cluster init` been run, with this cluster.name?")]
    Missing(String),
    /// The engine or this node refused it. The same request will be refused again.
    #[error("{0}")]
    Refused(String),
    /// The answer is none that this version can read.
    #[error("the engine's answer cannot be read: {0}")]
    Malformed(String),
}

/// The reason why a snapshot was not stored or fetched.
#[derive(Debug, Error)]
pub enum SnapshotError {
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The local end of the copy failed: the file that is read or written.
    #[error("the local file failed: {0}")]
    File(#[from] io::Error),
    /// There is no whole snapshot of this position.
    #[error("there is no snapshot of position {0}")]
    Missing(u64),
    /// The snapshot is there, and is not what was stored: fetch another one.
    #[error("the snapshot of position {position} is damaged: {what}")]
    Damaged {
        /// The position of the snapshot.
        position: u64,
        /// The difference.
        what: String,
    },
}

/// Returns the reason why a key of a row is not acceptable, if it is not. Keys have 1 to 128
/// letters of ASCII, digits, `-`, `_`, `/`, `=` and `.`, and no `.` at an end or beside another one.
///
/// # Errors
/// [`EngineError::Refused`].
pub fn check_key(key: &str) -> Result<(), EngineError> {
    let is_known = |c: u8| c.is_ascii_alphanumeric() || b"-_/=.".contains(&c);
    let has_empty_part = key.split('.').any(str::is_empty);
    if key.len() > 128 || has_empty_part || !key.bytes().all(is_known) {
        return Err(EngineError::Refused(format!(
            "{key:?} cannot be the key of a row: use letters, digits, -, _, /, = and single dots between them"
        )));
    }
    Ok(())
}
