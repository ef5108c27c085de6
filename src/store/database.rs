//! The database behind a log, as the code between the two sees it: SQLite, and a model in memory of
//! the simulation. So what is simulated is what is shipped.

use super::sqlite::{Figures, Mark};
use super::statistics::StoreStatistics;
use super::wall::{FileTime, Heartbeat};
use super::{Moment, OpenReader, StoreError};
use crate::persistence::records::{BodyCopy, Recovered};
use crate::store::coalesce::CommitGroup;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// See the module. A change and the mark that says how far the log is applied are one transaction.
pub trait Database: Send + 'static {
    /// Returns the path of the data directory.
    fn path(&self) -> &Path;

    /// Returns the mark: everything up to it is in the database.
    ///
    /// # Errors
    /// The database cannot be read.
    fn mark(&self) -> Result<Mark, StoreError>;

    /// Returns the last heartbeat; `None` if no broker ever opened the database.
    ///
    /// # Errors
    /// The database cannot be read.
    fn heartbeat(&self) -> Result<Option<Heartbeat>, StoreError>;

    /// Makes every change of a sealed group, and moves the mark. `time` maps the times of the group
    /// to file times.
    ///
    /// # Errors
    /// - [`StoreError::Busy`]: no change is made, and the call can be made again.
    /// - [`StoreError::Full`]: no change is made, and there may be room for a second attempt.
    /// - [`StoreError::Failed`]: nobody knows which changes are stored.
    fn apply(&mut self, group: &CommitGroup, time: FileTime, mark: &Mark) -> Result<(), StoreError>;

    /// Makes only those changes of the group that need no room. The mark stays.
    ///
    /// # Errors
    /// As [`Database::apply`].
    fn apply_ahead(&mut self, group: &CommitGroup, time: FileTime) -> Result<(), StoreError>;

    /// Copies bodies, and moves the mark.
    ///
    /// # Errors
    /// As [`Database::apply`].
    fn apply_copies(&mut self, copies: &[BodyCopy], mark: &Mark) -> Result<(), StoreError>;

    /// Notes that the owner of the cell is gone, and moves the mark behind the Claim of the next one:
    /// no session is connected. The expiry of those that were counts from the file time `ended_ms`,
    /// and the delay of their wills from that of the mark.
    ///
    /// # Errors
    /// As [`Database::apply`].
    fn disconnect(&mut self, ended_ms: u64, mark: &Mark) -> Result<(), StoreError>;

    /// Returns all that is stored, as of `now`, and the operations that remove rows which belong to
    /// nothing. Delayed messages are returned only if they are due within `horizon`. Fixes the
    /// mapping of times.
    ///
    /// # Errors
    /// The database cannot be read.
    fn recover(&mut self, now: Moment, horizon: Duration) -> Result<(Recovered, CommitGroup), StoreError>;

    /// Returns what counts the rows that [`Database::recover`] has read, for who watches it from
    /// another thread.
    fn progress(&self) -> Arc<AtomicU64>;

    /// Returns the mapping of times, which [`Database::recover`] has fixed.
    fn time(&self) -> FileTime;

    /// From now on a lock of another process is waited for only shortly: the caller tries again.
    ///
    /// # Errors
    /// The database refuses the setting.
    fn wait_shortly(&self) -> Result<(), StoreError>;

    /// Does what can wait. Called after each transaction, with nobody waiting.
    ///
    /// # Errors
    /// [`StoreError::Failed`]: nobody knows what is stored.
    fn tidy(&mut self) -> Result<(), StoreError>;

    /// Measures the room.
    ///
    /// # Errors
    /// The database or its disk does not report its room.
    fn figures(&mut self) -> Result<Figures, StoreError>;

    /// Sets the largest size in bytes; `None` for no limit but the disk.
    ///
    /// # Errors
    /// The database cannot be used.
    fn limit_size(&mut self, size_limit: Option<u64>) -> Result<(), StoreError>;

    /// Returns a way to readers of the database, for other threads.
    fn opener(&self, statistics: Arc<StoreStatistics>) -> OpenReader;
}
