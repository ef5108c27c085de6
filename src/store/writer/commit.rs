//! Group commit.

use super::{Notice, Options, Request, Statistics};
use crate::clock;
use crate::journal::backlog::{Backlog, Bounds};
use crate::journal::group::Group;
use crate::journal::record::Committed;
use crate::mqtt::charge::Budget;
use crate::store::wall::clock_step;
use crate::store::{Moment, Store, StoreError};
use crate::time::Instant;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::Duration;
use tracing::{info, warn};

/// Between two attempts to write when there is no room, and between two questions whether there is some again.
const RETRY: Duration = Duration::from_millis(250);
/// How often it is said that another process has the store.
const SAY_AGAIN: Duration = Duration::from_secs(10);
/// Room for so many bytes is as good as any: more than can be on its way to the store at once.
const PLENTY: i64 = 4 << 30;
/// With less room than this the store is full: the shards' parts of it are too small for large messages, and an operator is
/// to read why those are refused.
const LOW: i64 = 4 << 20;
/// How often a broker that stops tries to write what there is no room for.
const LAST_ATTEMPTS: u32 = 8;

/// Commits until it is told to stop, or fails.
pub(super) fn run(
    store: Box<dyn Store>,
    options: Options,
    queued: &Receiver<Request>,
    on: &impl Fn(Notice),
    statistics: &Statistics,
    budget: &Budget,
) {
    let now = clock::now();
    let mut commits = Commits {
        store,
        options,
        on,
        statistics,
        budget,
        backlog: Backlog::default(),
        group: Group::default(),
        waiters: Vec::new(),
        next_heartbeat: now,
        last_heartbeat: Moment::now(),
        next_sync: options.sync.map_or(Instant::NEVER, |interval| now + interval),
        next_attempt: now,
        is_full: false,
        is_blocked: false,
        busy: None,
        is_stopping: false,
        room: i64::MAX,
    };
    if let Err(failure) = commits.run(queued) {
        on(Notice::Failed(failure));
    }
}

struct Commits<'a, F> {
    store: Box<dyn Store>,
    options: Options,
    on: &'a F,
    statistics: &'a Statistics,
    budget: &'a Budget,
    backlog: Backlog,
    /// What the next transaction writes. It stays when there is no room, and later batches are folded into it, so that what
    /// frees room gets there and what cancels out needs none.
    group: Group,
    /// Who is told when the group is committed.
    waiters: Vec<Committed>,
    next_heartbeat: Instant,
    last_heartbeat: Moment,
    next_sync: Instant,
    /// While there is no room.
    next_attempt: Instant,
    /// There is no room for new messages, and the broker knows.
    is_full: bool,
    /// Not even the group could be written.
    is_blocked: bool,
    /// Since when another process keeps the store from being written, and when that is said again.
    busy: Option<(Instant, Instant)>,
    is_stopping: bool,
    /// What the broker was last told of [`Store::room`].
    room: i64,
}

impl<F: Fn(Notice)> Commits<'_, F> {
    fn run(&mut self, queued: &Receiver<Request>) -> Result<(), StoreError> {
        self.statistics.bytes.store(self.store.bytes(), Ordering::Relaxed);
        self.tell_room()?;
        let mut attempts_left = LAST_ATTEMPTS;
        loop {
            // After a full group there is mostly more to take, and nothing to wait for.
            let may_wait = self.is_blocked || !self.has_work();
            self.receive(queued, may_wait);
            let now = clock::now();
            let is_attempt = !self.is_blocked || now >= self.next_attempt;
            if self.has_work() && is_attempt {
                self.write(now)?;
                attempts_left -= u32::from(self.is_stopping && self.is_blocked);
            }
            self.housekeep(now)?;
            self.budget.settle();
            self.statistics.backlog.store(self.backlog.records() as u64, Ordering::Relaxed);
            if self.is_stopping && (!self.has_work() || attempts_left == 0) {
                return self.finish();
            }
        }
    }

    /// Takes in what is queued; waits for one message or the next thing to do if it may.
    fn receive(&mut self, queued: &Receiver<Request>, may_wait: bool) {
        if may_wait {
            let until = self.next_deadline().since(clock::now());
            match queued.recv_timeout(until) {
                Ok(request) => self.accept(request),
                Err(RecvTimeoutError::Timeout) => {}
                // Whoever could tell it to stop is gone.
                Err(RecvTimeoutError::Disconnected) => self.is_stopping = true,
            }
        }
        loop {
            match queued.try_recv() {
                Ok(request) => self.accept(request),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return,
            }
        }
    }

    fn next_deadline(&self) -> Instant {
        let attempt = if self.is_full || self.is_blocked { self.next_attempt } else { Instant::NEVER };
        self.next_heartbeat.min(self.next_sync).min(attempt)
    }

    fn accept(&mut self, request: Request) {
        match request {
            Request::Batch(batch) => {
                self.statistics.committed(batch.cancelled, batch.cancelled);
                self.backlog.push(batch);
            }
            // Into the next transaction, whatever else is in it: so they are never behind a batch that came after.
            Request::Retained(records) => records.into_iter().for_each(|record| self.group.retain(record)),
            Request::Stop => self.is_stopping = true,
        }
    }

    /// Folds in what may be committed, unless the group is full of what could not be written.
    fn has_work(&mut self) -> bool {
        self.backlog.take(self.bounds(), &mut self.group, &mut self.waiters);
        self.group.recorded() > 0 || !self.waiters.is_empty()
    }

    fn bounds(&self) -> Bounds {
        let mut bounds = self.options.bounds;
        if self.is_blocked {
            // Whatever comes is folded in: it is in memory anyway, and room may be what it brings.
            (bounds.records, bounds.bytes) = (u64::MAX, usize::MAX);
        }
        bounds
    }

    fn write(&mut self, now: Instant) -> Result<(), StoreError> {
        self.group.seal();
        if !self.group.is_empty() {
            let began = clock::nanos();
            let outcome = self.store.commit(&self.group);
            let took = Duration::from_nanos(clock::nanos() - began);
            match outcome {
                Ok(()) => self.statistics.wrote(took),
                Err(StoreError::Full(why)) => {
                    self.no_room(now, &why);
                    return self.write_ahead(now);
                }
                Err(StoreError::Busy(why)) => {
                    self.wait_for_other(now, &why);
                    return Ok(());
                }
                Err(failure) => return Err(failure),
            }
            // Before the shards count what was written as in the store.
            self.tell_room()?;
            self.statistics.bytes.store(self.store.bytes(), Ordering::Relaxed);
        }
        self.is_blocked = false;
        if let Some((since, _)) = self.busy.take() {
            let locked_ms = now.since(since).as_millis() as u64;
            info!(locked_ms, "the other process has let go of the store: what waited is committed");
        }
        self.statistics.committed(self.group.recorded(), self.group.cancelled());
        self.group.clear();
        // Before anybody is told: who is told finds the account without what was written.
        self.budget.settle();
        for committed in self.waiters.drain(..) {
            (self.on)(Notice::Committed(committed));
        }
        self.store.tidy()?;
        if !self.is_full && (self.room < LOW || !self.store.has_room()?) {
            self.say_full(now, "it is near its size limit, or the disk has no room for its reserve");
        }
        Ok(())
    }

    /// Another process has the database locked. Nothing is acknowledged until it lets go: publishers wait, as far as their windows
    /// and limits.memory let them.
    fn wait_for_other(&mut self, now: Instant, why: &str) {
        self.is_blocked = true;
        self.next_attempt = now + RETRY;
        let (since, say_again) = *self.busy.get_or_insert((now, now));
        if now >= say_again {
            self.busy = Some((since, now + SAY_AGAIN));
            let for_ms = now.since(since).as_millis() as u64;
            warn!(
                for_ms,
                why, "another process has the store locked: nothing is acknowledged until it lets go"
            );
        }
    }

    /// The group does not fit, and may never: what needs no room of it is made by itself, and then it may.
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
            Err(StoreError::Full(_) | StoreError::Busy(_)) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// What may be taken over before it is committed. Little is said while there is plenty.
    fn tell_room(&mut self) -> Result<(), StoreError> {
        let room = match self.store.room() {
            Err(StoreError::Busy(_)) => return Ok(()),
            other => other?,
        };
        let room = if room > PLENTY { i64::MAX } else { room };
        if room != self.room {
            self.room = room;
            (self.on)(Notice::Room(room));
        }
        Ok(())
    }

    fn no_room(&mut self, now: Instant, why: &str) {
        // The first attempt has opened the reserve, so the next may follow at once.
        self.next_attempt = if self.is_blocked { now + RETRY } else { now };
        self.is_blocked = true;
        if !self.is_full {
            self.say_full(self.next_attempt, why);
        }
    }

    /// Once, and not with every attempt.
    fn say_full(&mut self, next_attempt: Instant, why: &str) {
        self.is_full = true;
        self.next_attempt = next_attempt;
        warn!(why, "the store has no room: QoS 1 and 2 messages are refused until it has");
        (self.on)(Notice::Full(true));
    }

    fn housekeep(&mut self, now: Instant) -> Result<(), StoreError> {
        if now >= self.next_heartbeat {
            self.next_heartbeat = now + self.options.heartbeat;
            self.beat()?;
        }
        if now >= self.next_sync {
            self.next_sync = self.options.sync.map_or(Instant::NEVER, |interval| now + interval);
            self.store.sync()?;
        }
        if self.is_full && !self.is_blocked && now >= self.next_attempt {
            self.next_attempt = now + RETRY;
            let has_room = self.store.has_room()?;
            self.tell_room()?;
            if has_room && self.room >= LOW {
                self.is_full = false;
                info!("the store has room again");
                (self.on)(Notice::Full(false));
            }
        }
        Ok(())
    }

    fn beat(&mut self) -> Result<(), StoreError> {
        let now = Moment::now();
        let step = clock_step(self.last_heartbeat, now);
        if step != 0 {
            info!(
                by_ms = step,
                "the wall clock was set: expiry and delays go on by the time that passed, as if it had not been"
            );
        }
        self.last_heartbeat = now;
        tolerate_full(self.store.heartbeat(now))
    }

    fn finish(&mut self) -> Result<(), StoreError> {
        let left = self.group.recorded() + self.backlog.records() as u64;
        if left > 0 {
            warn!(
                records = left,
                "stopping with changes that could not be written; nothing of them was acknowledged"
            );
        }
        self.beat()?;
        self.store.sync()
    }
}

/// A heartbeat that does not fit, or meets a lock, is missed; the group that does so says it.
fn tolerate_full(outcome: Result<(), StoreError>) -> Result<(), StoreError> {
    match outcome {
        Err(StoreError::Full(_) | StoreError::Busy(_)) => Ok(()),
        other => other,
    }
}
