//! A database that is behind its log, and what the log has and the database does not. The log is
//! that of this machine ([`super::logged`]), or that of a cell of a cluster
//! ([`super::replicated`]).
//!
//! The changes of a frame that the log has are folded into those that the database does not have
//! yet (`unapplied`), where most rows of a busy broker end before the database ever sees them. A
//! thread of its own writes the rest into the database, at least once a second (`apply`).

pub mod apply;
pub mod lookup;
mod reader;
pub(super) mod unapplied;

use super::coalesce::CommitGroup;
use super::database::Database;
use super::fold::twice;
use super::sqlite::{Mark, Sqlite};
use super::statistics::StoreStatistics;
use super::wall::{FileTime, Heartbeat};
use super::{Moment, OpenReader, StoreError};
use crate::mqtt::charge::Budget;
use crate::persistence::records::{BodyCopy, Recovered};
use apply::{Applier, Applying};
use reader::LoggedReader;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use unapplied::Unapplied;

/// The time that a commit waits for the database. After it the store counts as behind.
pub(super) const PATIENCE: Duration = Duration::from_millis(250);

/// See the module.
pub(super) struct Lagging<D: Database = Sqlite> {
    /// The database. The applying thread has it while it writes.
    pub(super) database: Arc<Mutex<D>>,
    pub(super) unapplied: Arc<Unapplied>,
    applier: Option<Applier>,
    /// Somebody applies by hand, and no thread does.
    is_by_hand: bool,
    budget: Option<Arc<Budget>>,
    pub(super) statistics: Arc<StoreStatistics>,
    time: FileTime,
}

impl<D: Database> Lagging<D> {
    /// Begins with a database that has everything up to a mark. `many` are the bytes of the log
    /// from which on changes are applied before their time.
    ///
    /// # Errors
    /// The database cannot be read.
    pub(super) fn new(mut database: D, mark: Mark, many: u64) -> Result<Lagging<D>, StoreError> {
        let figures = database.figures()?;
        Ok(Lagging {
            unapplied: Arc::new(Unapplied::new(many, mark, figures)),
            database: Arc::new(Mutex::new(database)),
            applier: None,
            is_by_hand: false,
            budget: None,
            statistics: Arc::default(),
            time: FileTime::default(),
        })
    }

    /// Reads everything, as [`Sqlite::recover`] does. Returns the last heartbeat besides.
    ///
    /// # Errors
    /// The database cannot be read.
    pub(super) fn recover(
        &mut self,
        now: Moment,
        horizon: Duration,
    ) -> Result<(Recovered, CommitGroup, Option<Heartbeat>), StoreError> {
        let mut database = apply::lock(&self.database);
        let (recovered, mends) = database.recover(now, horizon)?;
        self.time = database.time();
        Ok((recovered, mends, database.heartbeat()?))
    }

    /// Returns the mapping of times, which [`Lagging::recover`] has fixed.
    pub(super) fn time(&self) -> FileTime {
        self.time
    }

    /// Applies the changes of a frame at once. Before the first [`Lagging::fold`].
    ///
    /// # Errors
    /// The database cannot be written.
    pub(super) fn apply_now(&self, group: &CommitGroup, mark: Mark) -> Result<(), StoreError> {
        twice(|| apply::lock(&self.database).apply(group, self.time, &mark))?;
        self.unapplied.is_applied(mark);
        Ok(())
    }

    /// As [`Lagging::apply_now`], for copies of bodies.
    ///
    /// # Errors
    /// The database cannot be written.
    pub(super) fn copy_now(&self, copies: &[BodyCopy], mark: Mark) -> Result<(), StoreError> {
        twice(|| apply::lock(&self.database).apply_copies(copies, &mark))?;
        self.unapplied.is_applied(mark);
        Ok(())
    }

    /// Folds a group that the log has into what the database does not have yet. `bytes` are those
    /// of its frames. If the memory of the broker is nearly used up, waits for the release of its
    /// part: the next message would be refused for memory that is free a moment later.
    ///
    /// # Errors
    /// The database failed, or the system refuses a thread.
    pub(super) fn fold(&mut self, group: &mut CommitGroup, mark: Mark, bytes: u64) -> Result<(), StoreError> {
        let is_short = self.budget.as_ref().is_some_and(|budget| budget.is_nearly_exceeded());
        let (waiting, since) = self.unapplied.add(group, mark, bytes, is_short)?;
        self.statistics.waiting_for_database(waiting, since);
        self.start_applier()?;
        let is_released = !is_short || self.unapplied.await_release(PATIENCE);
        self.statistics.disk.set_memory_waits(!is_released);
        Ok(())
    }

    fn start_applier(&mut self) -> Result<(), StoreError> {
        if self.applier.is_none() && !self.is_by_hand {
            apply::lock(&self.database).wait_shortly()?;
            self.applier = Some(Applier::start(self.applying())?);
        }
        Ok(())
    }

    fn applying(&self) -> Applying<D> {
        let (database, unapplied) = (Arc::clone(&self.database), Arc::clone(&self.unapplied));
        Applying::new(database, unapplied, self.time, self.budget.clone(), Arc::clone(&self.statistics))
    }

    /// Starts no thread, and leaves it to the caller to apply. Before the first [`Lagging::fold`].
    pub(super) fn by_hand(&mut self) -> Applying<D> {
        self.is_by_hand = true;
        self.unapplied.nobody_waits();
        self.applying()
    }

    /// Sets the largest size of the database.
    ///
    /// # Errors
    /// [`StoreError::Busy`]: the database is being written, and the call can be made again.
    pub(super) fn limit_size(&self, size_limit: Option<u64>) -> Result<(), StoreError> {
        let Ok(mut database) = self.database.try_lock() else {
            return Err(StoreError::Busy("the database is being written".into()));
        };
        database.limit_size(size_limit)?;
        self.unapplied.measured(database.figures()?);
        Ok(())
    }

    /// Returns true if there is room for new messages in the database.
    ///
    /// # Errors
    /// The database or its disk does not report its room.
    pub(super) fn has_room(&self) -> Result<bool, StoreError> {
        self.unapplied.has_room(&self.database)
    }

    /// Returns a way to readers of the database and of what it does not have.
    pub(super) fn opener(&self) -> OpenReader {
        let open = apply::lock(&self.database).opener(Arc::clone(&self.statistics));
        let (unapplied, time) = (Arc::clone(&self.unapplied), self.time);
        Box::new(move || Ok(Box::new(LoggedReader::new(open()?, Arc::clone(&unapplied), time))))
    }

    /// Sets the account of the memory in use, and the place of the figures.
    pub(super) fn attach(&mut self, budget: &Arc<Budget>, statistics: &Arc<StoreStatistics>) {
        (self.budget, self.statistics) = (Some(Arc::clone(budget)), Arc::clone(statistics));
    }
}

#[cfg(test)]
impl Lagging {
    /// Ends the applying thread, and goes on with other changes that are not applied.
    pub(super) fn begin_anew(&mut self, unapplied: Unapplied) {
        self.unapplied.stop();
        if let Some(applier) = self.applier.take() {
            applier.join();
        }
        self.unapplied = Arc::new(unapplied);
    }
}

impl<D: Database> Drop for Lagging<D> {
    /// Applies the rest. If that fails, the next start applies it from the log.
    fn drop(&mut self) {
        self.unapplied.stop();
        if let Some(applier) = self.applier.take() {
            applier.join();
        }
    }
}
