//! The store of the node that owns a cell of a cluster. The log is that of the cell, which the
//! engine of the cluster keeps; the database behind it is this node's own ([`super::lagging`]).
//!
//! A commit hands its group to the log, and returns when the engine has it. If that takes longer
//! than a moment, the group stays with the store, and the committing thread goes on without it
//! ([`StoreError::Undecided`]): a group may be stored though nobody has heard so, and may be stored
//! only once. Knows no engine: [`CellLog`] is its door.

use super::coalesce::CommitGroup;
use super::database::Database;
use super::frame::cluster::{GroupBody, LARGEST_GROUP};
use super::lagging::apply::Applying;
use super::lagging::{Lagging, PATIENCE};
use super::sqlite::{Mark, Sqlite};
use super::statistics::StoreStatistics;
use super::wall::{FileTime, Heartbeat};
use super::{Moment, OpenReader, Store, StoreError};
use crate::mqtt::charge::Budget;
use crate::persistence::records::{BodyCopy, Recovered};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Bytes of the log from which on changes are applied before their time.
const MANY: u64 = 8 << 20;
/// Bytes of the log that may wait for the database. With more, commits wait.
const MOST_BEHIND: u64 = 8 * MANY;
/// The part of the engine's log that a group may take. The log is freed up to a snapshot, and none is
/// made between the pieces of a group. So a group that does not fit beside what was stored since the
/// last snapshot, two fifths of the log, would wait for room for ever.
const SHARE_OF_LOG: u64 = 8;
/// The largest part in bytes: a follower has a whole group in memory.
const MOST_OF_LOG: u64 = 256 << 20;
// What goes beyond the part is one batch.
const _: () = assert!(4 * MOST_OF_LOG <= LARGEST_GROUP as u64);
/// The time that a commit waits for the engine before its group counts as undecided. An engine that
/// works answers in a tenth of it.
const MOMENT: Duration = Duration::from_millis(150);
/// The time that a start waits for the engine at a time.
const START: Duration = Duration::from_secs(1);

/// A group on its way to the log of its cell.
#[derive(Debug)]
pub struct NextGroup {
    /// Its operations.
    pub body: GroupBody,
    /// A number above every number that it gives to a row.
    pub next_number: u64,
    /// The moment of its frames.
    pub moment: Heartbeat,
}

/// The log of a cell, as the store of its owner sees it.
pub trait CellLog: Send {
    /// Hands in a group. Not before the outcome of the one before.
    fn begin(&mut self, group: NextGroup);

    /// Waits for the outcome of the group that was handed in, and returns the mark of its last
    /// frame; `None` if the engine has not stored it yet.
    ///
    /// # Errors
    /// The cell has another owner, or is alarmed: nothing is stored any more.
    fn outcome(&mut self, patience: Duration) -> Result<Option<Mark>, StoreError>;

    /// Returns the present moment by the clocks of this node.
    fn moment(&self) -> Moment;

    /// Returns true if a promise may leave without a frame.
    fn has_lease(&self) -> bool;

    /// Returns true if the engine has room for new frames.
    fn has_room(&self) -> bool;

    /// Returns the size at which the log is full, in bytes; `u64::MAX` if it is not known.
    fn capacity(&self) -> u64;

    /// Sets the time of frames that the log itself makes. Called once, before the first commit.
    fn time_runs(&mut self, time: FileTime);
}

/// See the module.
pub struct ReplicatedStore<D: Database = Sqlite> {
    lagging: Lagging<D>,
    log: Box<dyn CellLog>,
    path: PathBuf,
    /// The group whose outcome is not known.
    under_way: Option<UnderWay>,
    /// What [`Store::recover`] has found that belongs to nothing, for the first group. A start
    /// stores nothing, so it never waits for the engine.
    mends: CommitGroup,
    next_number: u64,
    is_running: bool,
    /// The time after a start in which no will goes out.
    will_grace: Duration,
}

/// Checks the size of a group that is to be handed in. This owner fails alone, and stores nothing:
/// each standby would end at the group, and so would each new one.
pub(super) fn check_size(bytes: usize) -> Result<(), StoreError> {
    match bytes {
        ..=LARGEST_GROUP => Ok(()),
        _ => Err(StoreError::Failed(format!(
            "a commit of {bytes} bytes is larger than the {LARGEST_GROUP} bytes that a node of a cluster takes: lower \
             limits.packet_size"
        ))),
    }
}

#[derive(Debug)]
struct UnderWay {
    group: CommitGroup,
    bytes: u64,
}

impl<D: Database> ReplicatedStore<D> {
    /// Makes the store of a database that has everything up to `mark`. No will goes out before
    /// `will_grace` has passed since the start: the clients have to find the new owner first. 5.0
    /// 3.1.2.5 lets a server wait.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn new(
        database: D,
        mark: Mark,
        log: Box<dyn CellLog>,
        will_grace: Duration,
    ) -> Result<ReplicatedStore<D>, StoreError> {
        Ok(ReplicatedStore {
            path: database.path().to_owned(),
            lagging: Lagging::new(database, mark, MANY)?,
            log,
            under_way: None,
            mends: CommitGroup::default(),
            next_number: mark.next_number,
            is_running: false,
            will_grace,
        })
    }

    /// Hands in a group.
    ///
    /// Errors: no follower would take it.
    fn begin(&mut self, body: GroupBody, highest_number: u64) -> Result<(), StoreError> {
        check_size(body.len())?;
        self.next_number = self.next_number.max(highest_number + 1);
        let moment = Heartbeat::at(self.log.moment(), self.lagging.time());
        self.log.begin(NextGroup { body, next_number: self.next_number, moment });
        Ok(())
    }

    /// Hands in a group, and waits until it is stored: at a start, before there are clients.
    fn store_now(&mut self, body: GroupBody, highest_number: u64) -> Result<Mark, StoreError> {
        self.begin(body, highest_number)?;
        loop {
            if let Some(mark) = self.log.outcome(START)? {
                return Ok(mark);
            }
        }
    }

    /// Hands in a group whose operations the store keeps.
    fn hand_in(&mut self, group: CommitGroup, body: GroupBody) -> Result<(), StoreError> {
        let bytes = body.len() as u64;
        let highest = group.highest_number();
        self.begin(body, highest)?;
        self.under_way = Some(UnderWay { group, bytes });
        self.decide()
    }

    /// Starts no thread that applies, and leaves it to the caller. After [`Store::recover`].
    pub fn by_hand(&mut self) -> Applying<D> {
        self.lagging.by_hand()
    }

    /// Notes that the broker writes for itself from here on.
    fn runs(&mut self) {
        if !self.is_running {
            self.is_running = true;
            self.log.time_runs(self.lagging.time());
        }
    }
}

impl<D: Database> Store for ReplicatedStore<D> {
    fn recover(&mut self, now: Moment, horizon: Duration) -> Result<Recovered, StoreError> {
        let (mut recovered, mends, _) = self.lagging.recover(now, horizon)?;
        let earliest = now.monotonic + self.will_grace;
        let wills = recovered.sessions.iter_mut().filter(|recovered| recovered.session.will.is_some());
        for session in wills.map(|recovered| &mut recovered.session) {
            session.will_due = session.will_due.max(earliest);
        }
        self.next_number = self.next_number.max(recovered.next_number);
        self.mends = mends;
        Ok(recovered)
    }

    fn copy_bodies(&mut self, copies: &[BodyCopy]) -> Result<(), StoreError> {
        let highest = copies.iter().map(|copy| copy.to.0).max().unwrap_or(0);
        let mark = self.store_now(GroupBody::of_copies(copies), highest)?;
        self.lagging.copy_now(copies, mark)
    }

    fn commit(&mut self, group: &mut CommitGroup) -> Result<(), StoreError> {
        self.lagging.unapplied.await_room(MOST_BEHIND, PATIENCE)?;
        self.runs();
        let mut group = std::mem::take(group);
        if !self.mends.is_empty() {
            let mut mends = std::mem::take(&mut self.mends);
            mends.absorb(&mut group, 0);
            mends.seal();
            group = mends;
        }
        let body = GroupBody::of(&group, self.lagging.time());
        self.hand_in(group, body)
    }

    fn decide(&mut self) -> Result<(), StoreError> {
        self.lagging.unapplied.check()?;
        let Some(mark) = self.log.outcome(MOMENT)? else { return Err(StoreError::Undecided) };
        let Some(UnderWay { mut group, bytes }) = self.under_way.take() else { return Ok(()) };
        self.lagging.statistics.position.store(mark.position, Ordering::Relaxed);
        self.lagging.fold(&mut group, mark, bytes)
    }

    fn confirm(&mut self) -> Result<(), StoreError> {
        if self.log.has_lease() {
            return Ok(());
        }
        self.runs();
        self.hand_in(CommitGroup::default(), GroupBody::default())
    }

    fn commit_ahead(&mut self, _group: &CommitGroup) -> Result<(), StoreError> {
        // Only a snapshot makes room in the engine, and the database of this node has its own room.
        Err(StoreError::Full("the log of the cluster".into()))
    }

    fn heartbeat(&mut self, _now: Moment) -> Result<(), StoreError> {
        // The beats of the owner say it.
        self.lagging.unapplied.check()
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    fn tidy(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    fn has_room(&mut self) -> Result<bool, StoreError> {
        Ok(self.log.has_room() && self.lagging.has_room()?)
    }

    fn room(&mut self) -> Result<i64, StoreError> {
        Ok(self.lagging.unapplied.room())
    }

    fn largest_group(&self) -> usize {
        let most = (self.log.capacity() / SHARE_OF_LOG).min(MOST_OF_LOG);
        usize::try_from(most).unwrap_or(usize::MAX)
    }

    fn limit_size(&mut self, size_limit: Option<u64>) -> Result<(), StoreError> {
        self.lagging.limit_size(size_limit)
    }

    fn bytes(&self) -> u64 {
        self.lagging.unapplied.database_bytes()
    }

    fn directory(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn opener(&self) -> OpenReader {
        self.lagging.opener()
    }

    fn attach(&mut self, budget: &Arc<Budget>, statistics: &Arc<StoreStatistics>) {
        self.lagging.attach(budget, statistics);
    }
}
