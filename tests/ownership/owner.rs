//! The store of an owner: the committing thread's decisions over the replicated store, without
//! their threads. All of it is the broker's own code; only the way to the driver is a queue here.

use crate::memory_store::Memory;
use homing::mqtt::charge::Budget;
use homing::persistence::records::{Batch, Committed, Recovered, RetainedRecord};
use homing::shard::features::delayed::HORIZON;
use homing::store::commit_queue::Bounds;
use homing::store::lagging::apply::Applying;
use homing::store::replicated::{CellLog, NextGroup, ReplicatedStore};
use homing::store::sqlite::Mark;
use homing::store::wall::FileTime;
use homing::store::writer::commit::Commits;
use homing::store::writer::{WriterNotice, WriterOptions};
use homing::store::{Moment, Store, StoreError, StoreReader};
use homing::time::Instant;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

type Report = Box<dyn Fn(WriterNotice)>;

/// What the driver and the store tell each other.
#[derive(Default)]
struct ToDriver {
    now: Moment,
    lease_until: Instant,
    is_full: bool,
    group: Option<NextGroup>,
    stored: VecDeque<Mark>,
    time: Option<FileTime>,
}

/// The log as the store sees it.
#[derive(Clone, Default)]
struct QueuedLog(Arc<Mutex<ToDriver>>);

impl QueuedLog {
    fn lock(&self) -> MutexGuard<'_, ToDriver> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CellLog for QueuedLog {
    fn begin(&mut self, group: NextGroup) {
        let before = self.lock().group.replace(group);
        assert!(before.is_none(), "a second group before the first was handed in");
    }

    fn outcome(&mut self, _: Duration) -> Result<Option<Mark>, StoreError> {
        Ok(self.lock().stored.pop_front())
    }

    fn moment(&self) -> Moment {
        self.lock().now
    }

    fn has_lease(&self) -> bool {
        let state = self.lock();
        state.now.monotonic < state.lease_until
    }

    fn has_room(&self) -> bool {
        !self.lock().is_full
    }

    fn capacity(&self) -> u64 {
        u64::MAX
    }

    fn time_runs(&mut self, time: FileTime) {
        self.lock().time = Some(time);
    }
}

pub struct Owner {
    commits: Commits<Report>,
    committed: Arc<Mutex<Vec<Committed>>>,
    log: QueuedLog,
    applying: Applying<Memory>,
    reader: Box<dyn StoreReader>,
}

impl Owner {
    /// Recovers a database that has everything up to its mark.
    pub fn start(database: Memory, mark: Mark, will_grace: Duration, now: Moment) -> (Owner, Recovered) {
        let log = QueuedLog::default();
        log.lock().now = now;
        let mut store = ReplicatedStore::new(database, mark, Box::new(log.clone()), will_grace)
            .expect("memory does not fail");
        let recovered = store.recover(now, HORIZON).expect("memory does not fail");
        let applying = store.by_hand();
        let reader = store.reader().expect("memory does not fail");
        let committed: Arc<Mutex<Vec<Committed>>> = Arc::default();
        let reported = Arc::clone(&committed);
        let on: Report = Box::new(move |notice| {
            if let WriterNotice::Committed(committed) = notice {
                reported.lock().expect("one thread").push(committed);
            }
        });
        let bounds = Bounds { records: u64::MAX, bytes: usize::MAX };
        let options = WriterOptions { bounds, heartbeat: Duration::from_secs(1 << 30), sync: None };
        let parts = (Arc::default(), Arc::new(Budget::new(u64::MAX)));
        let commits = Commits::new(Box::new(store), options, on, parts, now.monotonic);
        let commits = commits.expect("memory does not fail");
        (Owner { commits, committed, log, applying, reader }, recovered)
    }

    pub fn take(&mut self, now: Instant, batches: Vec<Batch>, retained: Vec<RetainedRecord>) {
        if !retained.is_empty() {
            self.commits.take_retained(now, retained);
        }
        batches.into_iter().for_each(|batch| self.commits.take_batch(now, batch));
    }

    /// Makes one attempt to commit what there is. Returns the group that is to be appended, and what
    /// is committed.
    pub fn work(&mut self, now: Moment) -> (Option<NextGroup>, Vec<Committed>) {
        self.log.lock().now = now;
        self.commits.work(now.monotonic).expect("memory does not fail");
        let group = self.log.lock().group.take();
        (group, std::mem::take(&mut *self.committed.lock().expect("one thread")))
    }

    pub fn has_work(&mut self) -> bool {
        self.commits.has_work()
    }

    /// The driver says that a group is stored.
    pub fn is_stored(&self, mark: Mark) {
        self.log.lock().stored.push_back(mark);
    }

    pub fn set_lease(&self, until: Instant) {
        self.log.lock().lease_until = until;
    }

    pub fn set_full(&self, is_full: bool) {
        self.log.lock().is_full = is_full;
    }

    /// Returns the time of the frames that the driver makes, once.
    pub fn take_time(&self) -> Option<FileTime> {
        self.log.lock().time.take()
    }

    /// The applying thread makes one attempt.
    pub fn apply(&mut self) -> bool {
        self.applying.step().expect("memory does not fail")
    }

    pub fn reader(&mut self) -> &mut dyn StoreReader {
        &mut *self.reader
    }
}
