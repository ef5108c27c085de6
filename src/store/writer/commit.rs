//! The committing thread: commits groups, retries when there is no room or the file is locked, and
//! writes heartbeats.

use super::retained_queue::RetainedQueue;
use super::{WriterNotice, WriterOptions, WriterRequest};
use crate::clock;
use crate::mqtt::charge::Budget;
use crate::persistence::records::{Batch, Committed, RetainedRecord};
use crate::store::coalesce::CommitGroup;
use crate::store::commit_queue::{Bounds, CommitQueue};
use crate::store::obstacle::Obstacle;
use crate::store::statistics::StoreStatistics;
use crate::store::wall::clock_step;
use crate::store::{Moment, Store, StoreError};
use crate::time::Instant;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::Duration;
use tracing::{info, warn};

/// The time between two attempts to write without room or against a lock, and between two checks
/// for new room.
const RETRY: Duration = Duration::from_millis(250);
/// Room in bytes from which on the exact value no longer matters: more than can be on its way to
/// the store at once.
const PLENTY: i64 = 4 << 30;
/// With less room than this, in bytes, the store counts as full. The shards' portions of the room
/// are then too small for large messages, and the log must say why large messages are refused.
const LOW: i64 = 4 << 20;
/// Bytes from which on a group takes no more, also if it has no room: a frame has at most 4 GiB. A
/// store may have a lower bound ([`Store::largest_group`]).
const MOST_IN_GROUP: usize = 1 << 30;
/// Number of attempts of a stopping broker to write a group that has no room or meets a lock.
const LAST_ATTEMPTS: u32 = 8;

/// A group that the store has taken, and that may be stored or not.
#[derive(Debug, Default)]
struct Undecided {
    /// The reports to send when it is stored.
    waiters: Vec<Committed>,
    recorded: u64,
    cancelled: u64,
    /// The time at which its oldest change came.
    since: Instant,
}

/// Runs the committing thread until [`WriterRequest::Stop`], until every sender is gone, or until a
/// failure, which it reports. Before a stop the thread commits all sent batches, as far as
/// [`LAST_ATTEMPTS`] allow.
pub(super) fn run<F: Fn(WriterNotice)>(mut commits: Commits<F>, queued: &Receiver<WriterRequest>) {
    if let Err(failure) = commits.run(queued) {
        (commits.on)(WriterNotice::Failed(failure));
    }
}

/// The decisions of the committing thread. The simulation calls them without a thread.
pub struct Commits<F> {
    store: Box<dyn Store>,
    options: WriterOptions,
    on: F,
    statistics: Arc<StoreStatistics>,
    budget: Arc<Budget>,
    commit_queue: CommitQueue,
    /// The contents of the next transaction. Without room the group stays, and later batches are
    /// folded into it. So records that free room come through, and records that cancel out need no
    /// room.
    group: CommitGroup,
    /// The time at which the oldest change of the group came; [`Instant::NEVER`] for none.
    group_since: Instant,
    /// Changes of retained messages for the groups behind this one.
    retained_queue: RetainedQueue,
    /// The reports to send when the group is committed.
    waiters: Vec<Committed>,
    /// The group before this one, while its outcome is not known. Later batches are folded into the
    /// next group meanwhile.
    undecided: Option<Undecided>,
    next_heartbeat: Instant,
    last_heartbeat: Moment,
    next_sync: Instant,
    /// The time of the next attempt to write, or of the next check for room.
    next_attempt: Instant,
    /// True if the last report to the broker was that there is no room for new messages.
    is_full: bool,
    /// A size limit that the store has not taken yet.
    new_limit: Option<Option<u64>>,
    /// True if the last attempt to write the group failed for lack of room or for a lock.
    is_blocked: bool,
    /// A database that is too far behind its log.
    behind: Obstacle,
    is_stopping: bool,
    /// Attempts of a stopping broker that are left.
    attempts_left: u32,
    /// The value of [`Store::room`] in the last report to the broker.
    room: i64,
}

impl<F: Fn(WriterNotice)> Commits<F> {
    /// Begins with a store that was recovered, at the time `now`. `on` gets the reports.
    ///
    /// # Errors
    /// The store does not report its room.
    pub fn new(
        store: Box<dyn Store>,
        options: WriterOptions,
        on: F,
        (statistics, budget): (Arc<StoreStatistics>, Arc<Budget>),
        now: Instant,
    ) -> Result<Commits<F>, StoreError> {
        let mut commits = Commits {
            store,
            options,
            on,
            statistics,
            budget,
            commit_queue: CommitQueue::default(),
            group: CommitGroup::default(),
            group_since: Instant::NEVER,
            retained_queue: RetainedQueue::new(),
            waiters: Vec::new(),
            undecided: None,
            next_heartbeat: now,
            last_heartbeat: Moment::now(),
            next_sync: Instant::NEVER,
            next_attempt: now,
            is_full: false,
            new_limit: None,
            is_blocked: false,
            behind: Obstacle::default(),
            is_stopping: false,
            attempts_left: LAST_ATTEMPTS,
            room: i64::MAX,
        };
        commits.next_sync = commits.next_sync_from(now);
        commits.statistics.bytes.store(commits.store.bytes(), Ordering::Relaxed);
        commits.tell_room()?;
        Ok(commits)
    }

    fn run(&mut self, queued: &Receiver<WriterRequest>) -> Result<(), StoreError> {
        loop {
            // After a full group there is mostly more to take, so there is no wait. While a group is
            // undecided, the store waits.
            let may_wait = self.undecided.is_none() && (self.is_blocked || !self.gather_work());
            if may_wait {
                self.note_pending(Instant::NEVER);
            }
            let now = self.receive(queued, may_wait);
            if self.work(now)? {
                return Ok(());
            }
        }
    }

    /// Makes one attempt to commit what there is, or to decide what is undecided. Returns true at
    /// the end of a stopping broker.
    ///
    /// # Errors
    /// The store failed.
    pub fn work(&mut self, now: Instant) -> Result<bool, StoreError> {
        let is_attempt = !self.is_blocked || now >= self.next_attempt;
        let has_work = self.gather_work();
        self.note_pending(now);
        if self.undecided.is_some() {
            self.decide(now)?;
            self.attempts_left -= u32::from(self.is_stopping && self.undecided.is_some());
        } else if has_work && is_attempt {
            self.write(now)?;
            self.attempts_left -= u32::from(self.is_stopping && self.is_blocked);
        }
        self.housekeep(now)?;
        self.budget.report();
        if self.is_stopping && (!self.has_work() || self.attempts_left == 0) {
            return self.finish().map(|()| true);
        }
        Ok(false)
    }

    /// Returns true if something is to be committed or decided.
    pub fn has_work(&mut self) -> bool {
        self.undecided.is_some() || self.gather_work()
    }

    /// Takes a batch of a shard.
    pub fn take_batch(&mut self, now: Instant, batch: Batch) {
        self.accept(now, WriterRequest::Batch(batch));
    }

    /// Takes changes of retained messages.
    pub fn take_retained(&mut self, now: Instant, records: Vec<RetainedRecord>) {
        self.accept(now, WriterRequest::Retained(records));
    }

    /// Accepts everything that is queued. With `may_wait`, first waits for one message or the next
    /// deadline. Returns the time at which the wait was over.
    fn receive(&mut self, queued: &Receiver<WriterRequest>, may_wait: bool) -> Instant {
        let mut first = None;
        if may_wait {
            let until = self.next_deadline().since(clock::now());
            match queued.recv_timeout(until) {
                Ok(request) => first = Some(request),
                Err(RecvTimeoutError::Timeout) => {}
                // Every sender is dropped, so nobody can send a stop any more.
                Err(RecvTimeoutError::Disconnected) => self.is_stopping = true,
            }
        }
        let now = clock::now();
        if let Some(request) = first {
            self.accept(now, request);
        }
        loop {
            match queued.try_recv() {
                Ok(request) => self.accept(now, request),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return now,
            }
        }
    }

    /// Publishes how much waits, and since when. `working_since` is the time since which this
    /// thread works: a call to the disk that hangs keeps later changes in the channel, where they
    /// are not seen. Called once before a wait and once before a commit, and not for each message.
    fn note_pending(&self, working_since: Instant) {
        let undecided = self
            .undecided
            .as_ref()
            .map_or((0, Instant::NEVER), |undecided| (undecided.recorded, undecided.since));
        let pending = undecided.0 + self.waiting_records();
        self.statistics.pending_records.store(pending, Ordering::Relaxed);
        let queued = self.commit_queue.oldest().min(self.retained_queue.oldest());
        let since = self.group_since.min(queued).min(working_since).min(undecided.1);
        self.statistics.uncommitted.set(since);
    }

    /// Returns the number of records that the store has not taken.
    fn waiting_records(&self) -> u64 {
        self.group.recorded() + self.retained_queue.records() + self.commit_queue.records() as u64
    }

    fn next_deadline(&self) -> Instant {
        let attempt = if self.is_full || self.is_blocked { self.next_attempt } else { Instant::NEVER };
        self.next_heartbeat.min(self.next_sync).min(attempt)
    }

    fn accept(&mut self, now: Instant, request: WriterRequest) {
        match request {
            WriterRequest::Batch(batch) => {
                self.statistics.committed(batch.cancelled, batch.cancelled);
                self.commit_queue.push(now, batch);
            }
            // A change of a retained message goes into a group before all batches that wait. So it is
            // never committed after a batch that came later.
            WriterRequest::Retained(records) => {
                let most = self.largest_group();
                if self.retained_queue.is_empty() {
                    self.group_since = self.group_since.min(now);
                }
                for record in records {
                    self.retained_queue.take(now, record, &mut self.group, most);
                }
            }
            WriterRequest::SizeLimit(size_limit) => self.new_limit = Some(size_limit),
            WriterRequest::SyncEvery(interval) => {
                self.options.sync = interval;
                self.next_sync = self.next_sync_from(now);
            }
            WriterRequest::Beat(pulse) => pulse.beat(),
            WriterRequest::Stop => self.is_stopping = true,
        }
    }

    /// Folds what waits into the group, up to its bounds: changes of retained messages, then batches
    /// of the queue. Returns true if there is anything to commit.
    fn gather_work(&mut self) -> bool {
        let most = self.largest_group();
        let given = self.retained_queue.give(&mut self.group, most);
        self.group_since = self.group_since.min(given);
        let oldest = self.commit_queue.oldest();
        if self.retained_queue.is_empty()
            && self.commit_queue.take(self.bounds(), &mut self.group, &mut self.waiters)
        {
            self.group_since = self.group_since.min(oldest);
        }
        self.group.recorded() > 0 || !self.waiters.is_empty()
    }

    fn bounds(&self) -> Bounds {
        let mut bounds = self.options.bounds;
        let most = self.largest_group();
        if self.is_blocked || self.undecided.is_some() {
            // As much as possible is folded in: it is in memory anyway, and it may free room.
            (bounds.records, bounds.bytes) = (u64::MAX, most);
        }
        Bounds { bytes: bounds.bytes.min(most), ..bounds }
    }

    fn largest_group(&self) -> usize {
        self.store.largest_group().min(MOST_IN_GROUP)
    }

    fn write(&mut self, now: Instant) -> Result<(), StoreError> {
        self.group.seal();
        let (recorded, cancelled) = (self.group.recorded(), self.group.cancelled());
        let began = clock::nanos();
        let is_empty = self.group.is_empty();
        // The store takes the operations out.
        let outcome = if is_empty { self.store.confirm() } else { self.store.commit(&mut self.group) };
        match outcome {
            Ok(()) if is_empty => {}
            Ok(()) => self.statistics.wrote(Duration::from_nanos(clock::nanos() - began)),
            Err(StoreError::Full(why)) => {
                self.no_room(now, &why);
                return self.write_ahead(now);
            }
            Err(behind @ (StoreError::Busy(_) | StoreError::Behind(_))) => {
                self.wait_for_database(now, &behind);
                return Ok(());
            }
            Err(StoreError::Undecided) => {
                let waiters = std::mem::take(&mut self.waiters);
                self.undecided = Some(Undecided { waiters, recorded, cancelled, since: self.group_since });
                self.begin_group(now);
                return Ok(());
            }
            Err(failure) => return Err(failure),
        }
        if !is_empty {
            self.measure()?;
        }
        self.begin_group(now);
        self.statistics.committed(recorded, cancelled);
        // The budget comes before the reports, because their receivers must find the account
        // without the written records.
        self.budget.report();
        for committed in self.waiters.drain(..) {
            (self.on)(WriterNotice::Committed(committed));
        }
        self.after_commit(now)
    }

    /// Begins the next group, since the store has taken the present one.
    fn begin_group(&mut self, now: Instant) {
        self.is_blocked = false;
        self.statistics.disk.set_commits_wait(false);
        if let Some(for_ms) = self.behind.gone(now) {
            info!(event = "store.committed_again", for_ms, "pending changes are committed again");
        }
        self.group.clear();
        self.group_since = Instant::NEVER;
    }

    /// Reports sizes, before the notices of a commit: after them the shards count its bytes as in
    /// the store.
    fn measure(&mut self) -> Result<(), StoreError> {
        self.tell_room()?;
        self.statistics.bytes.store(self.store.bytes(), Ordering::Relaxed);
        Ok(())
    }

    /// Does what can wait until the notices of a commit are sent.
    fn after_commit(&mut self, now: Instant) -> Result<(), StoreError> {
        self.store.tidy()?;
        if !self.is_full && (self.room < LOW || !self.store.has_room()?) {
            self.say_full(now, "it is near its size limit, or the disk has no room for its reserve");
        }
        Ok(())
    }

    /// Asks for the outcome of a group that the store has taken.
    fn decide(&mut self, now: Instant) -> Result<(), StoreError> {
        match self.store.decide() {
            Ok(()) => {}
            Err(StoreError::Undecided) => {
                if !self.is_full && !self.store.has_room()? {
                    self.say_full(now, "the log of the cluster has no room");
                }
                return Ok(());
            }
            Err(failure) => return Err(failure),
        }
        let Some(Undecided { waiters, recorded, cancelled, .. }) = self.undecided.take() else {
            return Ok(());
        };
        self.measure()?;
        self.statistics.committed(recorded, cancelled);
        self.budget.report();
        for committed in waiters {
            (self.on)(WriterNotice::Committed(committed));
        }
        self.after_commit(now)
    }

    /// Handles a database that is too far behind its log: another process has it locked, or its
    /// disk is slow. No publisher gets an acknowledgement until it follows: publishers wait as far
    /// as their windows and limits.memory let them.
    fn wait_for_database(&mut self, now: Instant, behind: &StoreError) {
        self.is_blocked = true;
        self.statistics.disk.set_commits_wait(true);
        self.next_attempt = now + RETRY;
        if let Some(for_ms) = self.behind.met(now) {
            warn!(
                event = "store.behind",
                for_ms,
                why = %behind,
                "no stored message is acknowledged until the database follows"
            );
        }
    }

    /// Writes the operations of a group that need no room, because the whole group does not fit and
    /// may never fit. These operations may free room for the rest.
    fn write_ahead(&mut self, now: Instant) -> Result<(), StoreError> {
        if !self.group.has_ahead() {
            return Ok(());
        }
        match self.store.commit_ahead(&self.group) {
            Ok(()) => {
                let before = self.group.len();
                self.group.went_ahead();
                if self.group.len() < before {
                    self.next_attempt = now;
                }
                self.tell_room()
            }
            Err(
                StoreError::Full(_) | StoreError::Busy(_) | StoreError::Behind(_) | StoreError::Undecided,
            ) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// Reports the room for new messages in bytes, if it changed. Any room over 4 GiB counts as the
    /// same. Reports nothing while the store is locked.
    fn tell_room(&mut self) -> Result<(), StoreError> {
        let room = match self.store.room() {
            Err(StoreError::Busy(_)) => return Ok(()),
            other => other?,
        };
        self.statistics.room.store(u64::try_from(room).unwrap_or(0), Ordering::Relaxed);
        let room = if room > PLENTY { i64::MAX } else { room };
        if room != self.room {
            self.room = room;
            (self.on)(WriterNotice::Room(room));
        }
        Ok(())
    }

    fn no_room(&mut self, now: Instant, why: &str) {
        // The first failed attempt has released the reserve, so the next attempt may follow at
        // once.
        self.next_attempt = if self.is_blocked { now + RETRY } else { now };
        self.is_blocked = true;
        if !self.is_full {
            self.say_full(self.next_attempt, why);
        }
    }

    /// Reports that there is no room: once, and not with every attempt.
    fn say_full(&mut self, next_attempt: Instant, why: &str) {
        self.is_full = true;
        self.next_attempt = next_attempt;
        warn!(
            event = "store.full",
            why, "the store has no room: QoS 1 and 2 messages are refused until it has"
        );
        (self.on)(WriterNotice::Full(true));
    }

    fn housekeep(&mut self, now: Instant) -> Result<(), StoreError> {
        if now >= self.next_heartbeat {
            self.next_heartbeat = now + self.options.heartbeat;
            self.beat()?;
        }
        if now >= self.next_sync {
            self.next_sync = self.next_sync_from(now);
            self.store.sync()?;
        }
        self.take_limit(now)?;
        if self.is_full && !self.is_blocked && now >= self.next_attempt {
            self.next_attempt = now + RETRY;
            let has_room = self.store.has_room()?;
            self.tell_room()?;
            if has_room && self.room >= LOW {
                self.is_full = false;
                info!(event = "store.has_room", "the store has room again");
                (self.on)(WriterNotice::Full(false));
            }
        }
        Ok(())
    }

    /// Returns the time of the sync after one at `now`; [`Instant::NEVER`] for none.
    fn next_sync_from(&self, now: Instant) -> Instant {
        self.options.sync.map_or(Instant::NEVER, |interval| now + interval)
    }

    /// Sets a new size limit. Reports at once that there is no room below it; that there is room
    /// again, [`Self::housekeep`] finds out as ever.
    fn take_limit(&mut self, now: Instant) -> Result<(), StoreError> {
        let Some(size_limit) = self.new_limit else { return Ok(()) };
        match self.store.limit_size(size_limit) {
            // Tried again at the next request or heartbeat.
            Err(StoreError::Busy(_)) => return Ok(()),
            other => other?,
        }
        self.new_limit = None;
        self.next_attempt = now;
        self.tell_room()?;
        if !self.is_full && (self.room < LOW || !self.store.has_room()?) {
            self.say_full(now, "store.size_limit was set below the size of the store and its reserve");
        }
        Ok(())
    }

    fn beat(&mut self) -> Result<(), StoreError> {
        let now = Moment::now();
        let step = clock_step(self.last_heartbeat, now);
        if step != 0 {
            info!(
                event = "clock.set",
                by_ms = step,
                "the wall clock was set: expiry and delays are not affected, they count the time that passed"
            );
        }
        self.last_heartbeat = now;
        tolerate_full(self.store.heartbeat(now))
    }

    fn finish(&mut self) -> Result<(), StoreError> {
        let undecided = self.undecided.as_ref().map_or(0, |undecided| undecided.recorded);
        let left = undecided + self.waiting_records();
        if left > 0 {
            warn!(
                event = "store.changes_lost",
                records = left,
                "stopping with changes that could not be written; none of them was acknowledged"
            );
        }
        self.beat()?;
        self.store.sync()?;
        self.note_pending(Instant::NEVER);
        Ok(())
    }
}

/// Ignores a heartbeat that has no room or meets a lock. The next group meets the same and reports
/// it.
fn tolerate_full(outcome: Result<(), StoreError>) -> Result<(), StoreError> {
    match outcome {
        Err(StoreError::Full(_) | StoreError::Busy(_) | StoreError::Behind(_) | StoreError::Undecided) => {
            Ok(())
        }
        other => other,
    }
}
