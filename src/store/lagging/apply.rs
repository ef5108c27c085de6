//! The applying thread: writes into the database what the log has and the database does not. When,
//! `unapplied` decides.

use super::unapplied::{Hindrance, Portion, Unapplied};
use crate::clock;
use crate::mqtt::charge::Budget;
use crate::store::StoreError;
use crate::store::database::Database;
use crate::store::obstacle::Obstacle;
use crate::store::sqlite::Figures;
use crate::store::statistics::StoreStatistics;
use crate::store::wall::FileTime;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;
use tracing::{info, warn};

/// The time between two attempts to write without room or against a lock.
const RETRY: Duration = Duration::from_millis(250);
/// Number of attempts of a stopping broker. The next start applies the rest from the log.
const LAST_ATTEMPTS: u32 = 8;

/// The applying thread.
#[derive(Debug)]
pub(in crate::store) struct Applier(JoinHandle<()>);

impl Applier {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(in crate::store) fn start<D: Database>(mut applying: Applying<D>) -> Result<Applier, StoreError> {
        let run = move || {
            while let Some(portion) = applying.unapplied.take() {
                if let Err(failure) = applying.apply(portion) {
                    applying.unapplied.failed(failure.to_string());
                    return;
                }
            }
        };
        let thread = Builder::new().name("homing-apply".into()).spawn(run);
        thread.map(Applier).map_err(|error| StoreError::Failed(format!("a thread for the store: {error}")))
    }

    /// Waits until the thread has ended, after [`Unapplied::stop`].
    pub(in crate::store) fn join(self) {
        // A thread that panicked has already reported it.
        let _ = self.0.join();
    }
}

/// What applies the changes. The applying thread has it, or who applies by hand.
pub struct Applying<D> {
    database: Arc<Mutex<D>>,
    unapplied: Arc<Unapplied>,
    time: FileTime,
    budget: Option<Arc<Budget>>,
    statistics: Arc<StoreStatistics>,
    /// A database that cannot be written.
    obstacle: Obstacle,
    /// What the database has refused, for who applies by hand.
    refused: Option<Portion>,
}

/// A portion that the database has refused, and how.
struct Refused(Portion, StoreError);

impl<D: Database> Applying<D> {
    /// `time` maps the times of groups to file times. The memory that is released with a group is
    /// subtracted from the budget.
    pub(in crate::store) fn new(
        database: Arc<Mutex<D>>,
        unapplied: Arc<Unapplied>,
        time: FileTime,
        budget: Option<Arc<Budget>>,
        statistics: Arc<StoreStatistics>,
    ) -> Applying<D> {
        let obstacle = Obstacle::default();
        Applying { database, unapplied, time, budget, statistics, obstacle, refused: None }
    }

    /// Makes one attempt to apply everything, for who has no thread for it. Returns true if the
    /// database has everything then.
    ///
    /// # Errors
    /// The database failed.
    pub fn step(&mut self) -> Result<bool, StoreError> {
        let portion = match self.refused.take() {
            Some(refused) => self.unapplied.refused(refused, Duration::ZERO),
            None => self.unapplied.take_now(),
        };
        let Some(portion) = portion else { return Ok(true) };
        self.refused = self.attempt(portion)?.map(|Refused(portion, _)| portion);
        Ok(self.refused.is_none())
    }

    /// Applies a portion, and tries again until it works. Gives up only at a stop.
    fn apply(&mut self, mut portion: Portion) -> Result<(), StoreError> {
        let mut attempts_left = LAST_ATTEMPTS;
        loop {
            let Some(Refused(refused, why)) = self.attempt(portion)? else { return Ok(()) };
            self.say_refused(&why);
            attempts_left -= u32::from(self.unapplied.is_stopping());
            match self.unapplied.refused(refused, RETRY) {
                Some(next) if attempts_left > 0 => portion = next,
                // Nothing may be applied after what was not: the log has it.
                _ => return Err(StoreError::Failed("the database could not be written at the stop".into())),
            }
        }
    }

    /// Makes one attempt to apply a portion.
    fn attempt(&mut self, portion: Portion) -> Result<Option<Refused>, StoreError> {
        let shared = Arc::clone(&self.database);
        // Before the lock: who has it may hang.
        self.statistics.disk.applies(clock::now());
        let mut database = lock(&shared);
        let began = clock::nanos();
        let refusal = match database.apply(&portion.group, self.time, &portion.mark) {
            Ok(()) => {
                let took = Duration::from_nanos(clock::nanos() - began);
                self.statistics.apply_time.add(took, 1);
                database.tidy()?;
                let figures = match database.figures() {
                    // The figures of the time before will do.
                    Err(StoreError::Busy(_)) => None,
                    figures => Some(figures?),
                };
                drop(database);
                self.applied(portion, figures);
                return Ok(None);
            }
            Err(refusal @ (StoreError::Full(_) | StoreError::Busy(_))) => refusal,
            Err(failure) => return Err(failure),
        };
        let is_full = matches!(refusal, StoreError::Full(_));
        if is_full {
            // Deletions may make the room that the rest needs.
            let ahead = database.apply_ahead(&portion.group, self.time);
            if let Err(failure @ StoreError::Failed(_)) = ahead {
                return Err(failure);
            }
        }
        drop(database);
        // Before the line of the log: who reads it finds a store without room.
        self.unapplied.hindered(Hindrance { why: refusal.to_string(), is_full });
        Ok(Some(Refused(portion, refusal)))
    }

    fn applied(&mut self, portion: Portion, figures: Option<Figures>) {
        self.goes_on();
        self.statistics.disk.applied(clock::now());
        let position = portion.mark.position;
        self.statistics.applied.store(position, Ordering::Relaxed);
        let (mut group, (bytes, since)) = self.unapplied.done(portion, figures);
        self.statistics.waiting_for_database(bytes, since);
        group.clear();
        if let Some(budget) = &self.budget {
            budget.report();
        }
        self.unapplied.recycle(group, position);
    }

    /// Says that the database cannot be written: at first, and then now and then.
    fn say_refused(&mut self, refusal: &StoreError) {
        let Some(for_ms) = self.obstacle.met(clock::now()) else { return };
        if matches!(refusal, StoreError::Busy(_)) {
            warn!(
                event = "store.locked",
                for_ms,
                why = %refusal,
                "another process has the database locked: changes stay in the log until it unlocks"
            );
        } else {
            warn!(
                event = "store.database_full",
                for_ms,
                why = %refusal,
                "the database has no room: changes stay in the log"
            );
        }
    }

    /// Says that the database can be written again.
    fn goes_on(&mut self) {
        if let Some(for_ms) = self.obstacle.gone(clock::now()) {
            info!(event = "store.applied_again", for_ms, "the database has the changes that were in the log");
        }
    }
}

/// Locks the database.
pub(in crate::store) fn lock<D>(database: &Mutex<D>) -> MutexGuard<'_, D> {
    // A panic elsewhere ends the process.
    database.lock().unwrap_or_else(PoisonError::into_inner)
}
