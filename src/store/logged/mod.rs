//! The store on a disk: a log of frames in front, and the database behind it.
//!
//! A commit writes one frame and forces it to the disk; nothing else stands between a batch and its
//! acknowledgements. The changes of the frame are folded into those that the database does not have
//! yet (`unapplied`), where most rows of a busy broker end before the database ever sees them. A
//! thread of its own writes the rest into the database, at least once a second (`apply`).
//!
//! A start reads the frames behind the database and applies them ([`super::log::recovery`]).

mod apply;
pub mod lookup;
mod reader;
mod unapplied;

use super::coalesce::CommitGroup;
use super::frame::{self, Head};
use super::log::recovery::scan;
use super::log::{LARGEST_SEGMENT, Log, Room, segment_size};
use super::sqlite::directory::space_in;
use super::sqlite::{Mark, Sqlite, SqliteOptions};
use super::statistics::StoreStatistics;
use super::wall::{FileTime, Heartbeat};
use super::{Moment, OpenReader, Store, StoreError};
use crate::clock;
use crate::config::DurabilityLevel;
use crate::mqtt::charge::Budget;
use crate::persistence::records::{BodyCopy, Recovered};
use apply::Applier;
use reader::LoggedReader;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use unapplied::Unapplied;

/// Number of log files that may wait for the database. With more, commits wait.
const MOST_BEHIND: u64 = 8;
/// Largest number of files of a log: [`MOST_BEHIND`], the active file, a free file, the reserve, and
/// a file for a large frame.
const MOST_FILES: u64 = MOST_BEHIND + 4;
/// The time that a commit waits for the database before it says that it is behind.
const PATIENCE: Duration = Duration::from_millis(250);

/// The settings of a store.
#[derive(Clone, Copy, Debug)]
pub struct StoreOptions {
    /// The promise behind a commit.
    pub durability: DurabilityLevel,
    /// The largest size of the log and the database together, in bytes; `None` for no limit but the
    /// disk.
    pub size_limit: Option<u64>,
}

/// A store on a disk, open for writing.
pub struct LoggedStore {
    durability: DurabilityLevel,
    log: Log,
    /// The database. The applying thread has it while it writes.
    database: Arc<Mutex<Sqlite>>,
    unapplied: Arc<Unapplied>,
    applier: Option<Applier>,
    budget: Option<Arc<Budget>>,
    statistics: Arc<StoreStatistics>,
    time: FileTime,
    /// The moment of frames that a start writes: until sessions are recorded again, their times
    /// count from the last heartbeat before.
    moment: Option<Heartbeat>,
    next_number: u64,
    buffer: Vec<u8>,
}

impl LoggedStore {
    /// Opens the store of a data directory, which is created if it does not exist. Applies what the
    /// log has and the database does not.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be used or is in use, if its database is of another
    /// program or of a newer version, or if the log is not whole.
    pub fn open(path: &Path, options: StoreOptions) -> Result<LoggedStore, StoreError> {
        let space = space_in(path.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new(".")));
        let segment_size =
            segment_size(options.size_limit.unwrap_or(u64::MAX).min(space.unwrap_or(u64::MAX)));
        // What the log has was acknowledged, so a limit does not keep it from the database. Beyond the
        // limit there is no room for more.
        let no_limit = SqliteOptions { durability: options.durability, size_limit: None };
        let mut database = Sqlite::open(path, no_limit)?;
        let (applied, mut mark) = database.applied()?;
        let mut group = CommitGroup::default();
        let scanned = scan(path, applied, None, |frame| {
            let frame::Frame { head, digest, operations, retained, copies } = frame;
            if !copies.is_empty() {
                apply_whole(&mut database, &mut group, &mark)?;
            }
            mark = mark.behind(&head, digest);
            if !copies.is_empty() {
                return twice(|| database.apply_copies(&copies, &mark));
            }
            group.absorb_all(operations, retained, head.moment.file_millis);
            if group.bytes() as u64 + 64 * group.recorded() > LARGEST_SEGMENT {
                apply_whole(&mut database, &mut group, &mark)?;
            }
            Ok(())
        })?;
        if scanned.position() > applied.position {
            apply_whole(&mut database, &mut group, &mark)?;
        }
        database.limit_size(limit_of_database(options.size_limit, segment_size))?;
        let log = scanned.open(segment_size, new_id())?;
        if applied.id.is_none() {
            twice(|| database.set_log_id(log.id()))?;
        }
        let figures = database.figures()?;
        Ok(LoggedStore {
            durability: options.durability,
            unapplied: Arc::new(Unapplied::new(log.segment_size(), mark, figures)),
            log,
            database: Arc::new(Mutex::new(database)),
            applier: None,
            budget: None,
            statistics: Arc::default(),
            time: FileTime::default(),
            moment: None,
            next_number: mark.next_number,
            buffer: Vec::new(),
        })
    }

    /// Writes a frame, forces it to the disk as the settings say, and returns its mark. `put` writes
    /// the frame into the buffer.
    fn append(
        &mut self,
        room: Room,
        highest_number: u64,
        put: impl FnOnce(&mut Vec<u8>, &Head, FileTime) -> frame::Digest,
    ) -> Result<Mark, StoreError> {
        let moment = self.moment.unwrap_or_else(|| Heartbeat::at(Moment::now(), self.time));
        let next_number = self.next_number.max(highest_number + 1);
        let head = Head {
            log: self.log.id(),
            position: self.log.position() + 1,
            moment,
            next_number,
            synced: self.log.synced(),
            predecessor: self.log.digest(),
        };
        self.buffer.clear();
        let digest = put(&mut self.buffer, &head, self.time);
        if u32::try_from(self.buffer.len()).is_err() {
            return Err(StoreError::Failed(format!(
                "a commit of {} bytes, and 4 GiB is most",
                self.buffer.len()
            )));
        }
        self.append_or_make_room(digest, room)?;
        if self.durability == DurabilityLevel::Commit {
            self.sync_log()?;
        }
        self.statistics.position.store(head.position, Ordering::Relaxed);
        self.next_number = next_number;
        // A frame of a large message must not keep its memory.
        self.buffer.shrink_to(4 << 20);
        Ok(Mark { position: head.position, digest, moment, next_number })
    }

    /// Appends the frame in the buffer. Without room, files that the database does not need any more
    /// are freed first. If there are none, the reserve of the database is deleted: the next attempt
    /// has the room.
    fn append_or_make_room(&mut self, digest: frame::Digest, room: Room) -> Result<(), StoreError> {
        match self.log.append(&self.buffer, digest, room) {
            Err(StoreError::Full(_)) => {}
            other => return other,
        }
        let applied = self.unapplied.applied();
        self.log.free_up_to(applied)?;
        // The file that is full is free as soon as the log has left it, and is the reserve again.
        let is_left_free = applied == self.log.position();
        let room = if is_left_free { Room::WithReserve } else { room };
        let appended = self.log.append(&self.buffer, digest, room);
        if matches!(appended, Err(StoreError::Full(_)))
            && let Ok(mut database) = self.database.try_lock()
        {
            database.open_reserve();
            self.unapplied.has_no_room();
        }
        appended
    }

    fn sync_log(&mut self) -> Result<(), StoreError> {
        let began = clock::nanos();
        self.log.sync()?;
        self.statistics.sync_time.add(Duration::from_nanos(clock::nanos() - began), 1);
        Ok(())
    }

    /// Folds a group that was appended into what the database does not have yet. If the memory of the
    /// broker is nearly used up, waits for the release of its part: the next message would be refused
    /// for memory that is free a moment later.
    fn fold(&mut self, group: &mut CommitGroup, mark: Mark) -> Result<(), StoreError> {
        let bytes = self.buffer.len() as u64;
        let is_short = self.budget.as_ref().is_some_and(|budget| budget.is_nearly_exceeded());
        let (waiting, since) = self.unapplied.add(group, mark, bytes, is_short)?;
        self.statistics.waiting_for_database(waiting, since);
        self.start_applier()?;
        if is_short {
            self.unapplied.await_release(PATIENCE);
        }
        Ok(())
    }

    fn start_applier(&mut self) -> Result<(), StoreError> {
        if self.applier.is_none() {
            let (database, unapplied) = (Arc::clone(&self.database), Arc::clone(&self.unapplied));
            apply::lock(&self.database).wait_shortly()?;
            self.applier = Some(Applier::start(
                database,
                unapplied,
                self.time,
                self.budget.clone(),
                Arc::clone(&self.statistics),
            )?);
        }
        Ok(())
    }
}

impl Store for LoggedStore {
    fn recover(&mut self, now: Moment, horizon: Duration) -> Result<Recovered, StoreError> {
        let (recovered, mends) = {
            let mut database = apply::lock(&self.database);
            let found = database.recover(now, horizon)?;
            self.time = database.time();
            self.moment = database.heartbeat()?;
            found
        };
        self.next_number = self.next_number.max(recovered.next_number);
        let is_new = self.moment.is_none();
        if is_new || !mends.is_empty() {
            // Time counts from here on in a new store.
            self.moment.get_or_insert(Heartbeat::at(now, self.time));
            let put = |to: &mut Vec<u8>, head: &Head, time| frame::encode(to, head, &mends, time);
            let mark = self.append(Room::WithReserve, 0, put)?;
            twice(|| apply::lock(&self.database).apply(&mends, self.time, &mark))?;
            self.unapplied.is_applied(mark);
        }
        Ok(recovered)
    }

    fn copy_bodies(&mut self, copies: &[BodyCopy]) -> Result<(), StoreError> {
        let highest = copies.iter().map(|copy| copy.to.0).max().unwrap_or(0);
        let put = |to: &mut Vec<u8>, head: &Head, _| frame::encode_copies(to, head, copies);
        let mark = self.append(Room::WithReserve, highest, put)?;
        twice(|| apply::lock(&self.database).apply_copies(copies, &mark))?;
        self.unapplied.is_applied(mark);
        Ok(())
    }

    fn commit(&mut self, group: &mut CommitGroup) -> Result<(), StoreError> {
        self.unapplied.await_room(MOST_BEHIND * self.log.segment_size(), PATIENCE)?;
        self.moment = None;
        let put = |to: &mut Vec<u8>, head: &Head, time| frame::encode(to, head, group, time);
        let mark = self.append(Room::Ordinary, group.highest_number(), put)?;
        self.fold(group, mark)
    }

    fn commit_ahead(&mut self, group: &CommitGroup) -> Result<(), StoreError> {
        self.unapplied.check()?;
        let put = |to: &mut Vec<u8>, head: &Head, time| frame::encode_ahead(to, head, group, time);
        let mark = self.append(Room::WithReserve, 0, put)?;
        let mut ahead = CommitGroup::default();
        ahead.absorb_all(group.ahead().cloned(), group.retained_removed().cloned(), 0);
        self.fold(&mut ahead, mark)
    }

    fn heartbeat(&mut self, now: Moment) -> Result<(), StoreError> {
        self.unapplied.check()?;
        self.moment = Some(Heartbeat::at(now, self.time));
        let mut none = CommitGroup::default();
        let put = |to: &mut Vec<u8>, head: &Head, time| frame::encode(to, head, &none, time);
        let appended = self.append(Room::WithReserve, 0, put);
        self.moment = None;
        self.fold(&mut none, appended?)
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        if self.durability == DurabilityLevel::Interval { self.sync_log() } else { Ok(()) }
    }

    fn tidy(&mut self) -> Result<(), StoreError> {
        self.log.free_up_to(self.unapplied.applied())?;
        self.statistics.log_bytes.store(self.log.bytes(), Ordering::Relaxed);
        Ok(())
    }

    fn has_room(&mut self) -> Result<bool, StoreError> {
        self.log.free_up_to(self.unapplied.applied())?;
        Ok(self.log.restore_reserve()? && self.unapplied.has_room(&self.database)?)
    }

    fn room(&mut self) -> Result<i64, StoreError> {
        Ok(self.unapplied.room())
    }

    fn limit_size(&mut self, size_limit: Option<u64>) -> Result<(), StoreError> {
        let Ok(mut database) = self.database.try_lock() else {
            return Err(StoreError::Busy("the database is being written".into()));
        };
        database.limit_size(limit_of_database(size_limit, self.log.segment_size()))?;
        self.unapplied.measured(database.figures()?);
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.log.bytes() + self.unapplied.database_bytes()
    }

    fn directory(&self) -> Option<&Path> {
        self.log.data()
    }

    fn opener(&self) -> OpenReader {
        let open = apply::lock(&self.database).opener(Arc::clone(&self.statistics));
        let (unapplied, time) = (Arc::clone(&self.unapplied), self.time);
        Box::new(move || Ok(Box::new(LoggedReader::new(open()?, Arc::clone(&unapplied), time))))
    }

    fn attach(&mut self, budget: &Arc<Budget>, statistics: &Arc<StoreStatistics>) {
        (self.budget, self.statistics) = (Some(Arc::clone(budget)), Arc::clone(statistics));
        statistics.log_bytes.store(self.log.bytes(), Ordering::Relaxed);
        statistics.position.store(self.log.position(), Ordering::Relaxed);
    }
}

impl Drop for LoggedStore {
    /// Applies the rest. If that fails, the next start applies it from the log.
    fn drop(&mut self) {
        self.unapplied.stop();
        if let Some(applier) = self.applier.take() {
            applier.join();
        }
    }
}

/// Returns the part of a size limit that is left for the database.
fn limit_of_database(size_limit: Option<u64>, segment_size: u64) -> Option<u64> {
    size_limit.map(|limit| limit.saturating_sub(MOST_FILES * segment_size))
}

/// Applies a group of frames that were read, and empties it.
fn apply_whole(database: &mut Sqlite, group: &mut CommitGroup, mark: &Mark) -> Result<(), StoreError> {
    group.seal();
    // The times of frames are file times already.
    let applied = twice(|| database.apply(group, FileTime::default(), mark));
    applied.map_err(|error| match error {
        StoreError::Full(why) => {
            StoreError::Full(format!("for what the log has and the database does not: {why}"))
        }
        other => other,
    })?;
    database.tidy()?;
    group.clear();
    Ok(())
}

/// Makes two attempts: the first one opens the reserve on a full disk.
fn twice(mut attempt: impl FnMut() -> Result<(), StoreError>) -> Result<(), StoreError> {
    match attempt() {
        Err(StoreError::Full(_)) => attempt(),
        other => other,
    }
}

/// Returns an identifier for a new log.
fn new_id() -> u64 {
    let mut bytes = [0; 8];
    // Without a source of randomness the time has to do: two logs of one database are hours apart.
    if aws_lc_rs::rand::fill(&mut bytes).is_err() {
        bytes = clock::unix_millis().to_le_bytes();
    }
    (u64::from_le_bytes(bytes) >> 1).max(1)
}

#[cfg(test)]
mod tests;
