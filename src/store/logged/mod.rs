//! The store on a disk: a log of frames in front, and the database behind it.
//!
//! A commit writes one frame and forces it to the disk; nothing else stands between a batch and its
//! acknowledgements. The database follows ([`super::lagging`]). A disk without room gets some by
//! files of the log that are no longer needed, and by reserves (`append_or_make_room`).
//!
//! A start reads the frames behind the database and applies them ([`super::log::recovery`]).

use super::catch_up::CatchUp;
use super::coalesce::CommitGroup;
use super::database::Database;
use super::fold::twice;
use super::frame::{self, Head};
use super::lagging::{Lagging, PATIENCE};
use super::log::recovery::scan;
use super::log::{Log, Room, new_id, segment_size};
use super::ship::{self, MOST_KEPT, ShipOptions, Shipping};
use super::sqlite::directory::{existing_part, refuse_following, space_in};
use super::sqlite::{Mark, Sqlite, SqliteOptions};
use super::statistics::StoreStatistics;
use super::wall::{FileTime, Heartbeat};
use super::{Moment, OpenReader, Store, StoreError};
use crate::clock;
use crate::config::DurabilityLevel;
use crate::mqtt::charge::Budget;
use crate::persistence::records::{BodyCopy, Recovered};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Number of log files that may wait for the database. With more, commits wait.
const MOST_BEHIND: u64 = 8;
/// Largest number of files of a log: [`MOST_BEHIND`], the active file, a free file, the reserve,
/// and a file for a large frame.
const MOST_FILES: u64 = MOST_BEHIND + 4;

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
    options: StoreOptions,
    log: Log,
    lagging: Lagging,
    copy: LogCopy,
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
        refuse_following(path)?;
        let space = space_in(existing_part(path));
        let segment_size =
            segment_size(options.size_limit.unwrap_or(u64::MAX).min(space.unwrap_or(u64::MAX)));
        // What the log has was acknowledged, so a limit does not keep it from the database. Beyond
        // the limit there is no room for more.
        let no_limit = SqliteOptions { durability: options.durability, size_limit: None };
        let database = Sqlite::open(path, no_limit)?;
        if database.cluster_directory()? != 0 {
            return Err(StoreError::Failed(format!(
                "{} belongs to a cluster: set the section [cluster] as before, or run `homing cluster leave` \
                 to make it the store of a broker by itself",
                path.display()
            )));
        }
        let mut catch_up = CatchUp::new(database)?;
        let (applied, _) = catch_up.database.applied()?;
        let scanned = scan(path, applied, None, |frame| catch_up.take(frame))?;
        catch_up.apply()?;
        let (mark, mut database) = (catch_up.mark(), catch_up.database);
        database.limit_size(limit_of_database(options.size_limit, segment_size))?;
        let log = scanned.open(segment_size, new_id())?;
        if applied.id.is_none() {
            twice(|| database.set_log_id(log.id()))?;
        }
        Ok(LoggedStore {
            options,
            lagging: Lagging::new(database, mark, log.segment_size())?,
            log,
            copy: LogCopy::None,
            moment: None,
            next_number: mark.next_number,
            buffer: Vec::new(),
        })
    }

    /// Ships the log to a folder from the first commit on. Called before that.
    ///
    /// # Errors
    /// The folder is in the data directory.
    pub fn ship(&mut self, options: ShipOptions) -> Result<(), StoreError> {
        options.check(self.log.data().unwrap_or(Path::new(".")))?;
        self.copy = LogCopy::Wanted(options);
        Ok(())
    }

    /// Writes a frame, forces it to the disk as the settings say, and returns its mark. `put`
    /// writes the frame into the buffer.
    fn append(
        &mut self,
        room: Room,
        highest_number: u64,
        put: impl FnOnce(&mut Vec<u8>, &Head, FileTime) -> frame::Digest,
    ) -> Result<Mark, StoreError> {
        let moment = self.moment.unwrap_or_else(|| Heartbeat::at(Moment::now(), self.lagging.time()));
        let next_number = self.next_number.max(highest_number + 1);
        let head = Head {
            cell: 0,
            epoch: 0,
            log: self.log.id(),
            position: self.log.position() + 1,
            moment,
            next_number,
            synced: self.log.synced(),
            predecessor: self.log.digest(),
        };
        self.buffer.clear();
        let digest = put(&mut self.buffer, &head, self.lagging.time());
        if u32::try_from(self.buffer.len()).is_err() {
            return Err(StoreError::Failed(format!(
                "a commit of {} bytes, and 4 GiB is most",
                self.buffer.len()
            )));
        }
        self.append_or_make_room(digest, room)?;
        if self.options.durability == DurabilityLevel::Commit {
            self.sync_log()?;
        }
        if let LogCopy::Shipped(_, written) = &mut self.copy {
            *written += self.buffer.len() as u64;
        }
        self.tell_copy();
        self.lagging.statistics.position.store(head.position, Ordering::Relaxed);
        self.next_number = next_number;
        // A frame of a large message must not keep its memory.
        self.buffer.shrink_to(4 << 20);
        Ok(Mark { position: head.position, digest, moment, next_number, owner: None })
    }

    /// Appends the frame in the buffer. Without room, files that the database does not need any
    /// more are freed first. If there are none, the reserve of the database is deleted: the next
    /// attempt has the room.
    fn append_or_make_room(&mut self, digest: frame::Digest, room: Room) -> Result<(), StoreError> {
        match self.log.append(&self.buffer, digest, room) {
            Err(StoreError::Full(_)) => {}
            other => return other,
        }
        let applied = self.lagging.unapplied.applied();
        self.free_log()?;
        self.keep_nothing_for_copy()?;
        // The file that is full is free as soon as the log has left it, and is the reserve again.
        let is_left_free = applied == self.log.position();
        let room = if is_left_free { Room::WithReserve } else { room };
        let appended = self.log.append(&self.buffer, digest, room);
        if matches!(appended, Err(StoreError::Full(_)))
            && let Ok(mut database) = self.lagging.database.try_lock()
        {
            database.open_reserve();
            self.lagging.unapplied.has_no_room();
        }
        appended
    }

    fn sync_log(&mut self) -> Result<(), StoreError> {
        let began = clock::nanos();
        self.log.sync()?;
        self.lagging.statistics.sync_time.add(Duration::from_nanos(clock::nanos() - began), 1);
        Ok(())
    }

    /// Frees the files of the log that neither the database nor the copy needs. If too many are
    /// kept for the copy, it begins again.
    fn free_log(&mut self) -> Result<(), StoreError> {
        let applied = self.lagging.unapplied.applied();
        let LogCopy::Shipped(shipping, _) = &self.copy else { return self.log.free_up_to(applied) };
        self.log.free_up_to(shipping.may_free(applied))?;
        let most = self.most_unapplied() + self.most_kept();
        if self.log.older_bytes(u64::MAX) > most && shipping.may_free(applied) < applied {
            shipping.give_up(&format!("more than {} MiB of the log wait for it", most >> 20));
        }
        Ok(())
    }

    /// Returns the most bytes of the log that may wait for the database.
    fn most_unapplied(&self) -> u64 {
        MOST_BEHIND * self.log.segment_size()
    }

    /// Returns the most bytes of the log that are kept for the copy. Files that may wait for the
    /// database have their room in any case.
    fn most_kept(&self) -> u64 {
        match self.copy {
            LogCopy::None => 0,
            LogCopy::Wanted(_) | LogCopy::Shipped(..) => {
                u64::try_from(self.lagging.unapplied.room()).unwrap_or(0).min(MOST_KEPT)
            }
        }
    }

    /// Reports the sizes of the log, and their bounds.
    fn report_sizes(&self) {
        let StoreStatistics { size_limit, log_bytes, log_limit, unapplied_limit, .. } =
            &*self.lagging.statistics;
        let most_log = MOST_FILES * self.log.segment_size() + self.most_kept();
        for (figure, value) in [
            (size_limit, self.options.size_limit.unwrap_or(0)),
            (log_bytes, self.log.bytes()),
            (log_limit, most_log),
            (unapplied_limit, self.most_unapplied()),
        ] {
            figure.store(value, Ordering::Relaxed);
        }
    }

    /// Frees the files that are kept for the copy alone: the disk has no room. Returns false if
    /// there are none.
    fn keep_nothing_for_copy(&mut self) -> Result<bool, StoreError> {
        let LogCopy::Shipped(shipping, _) = &self.copy else { return Ok(false) };
        let applied = self.lagging.unapplied.applied();
        if self.log.older_bytes(applied) == 0 {
            return Ok(false);
        }
        shipping.give_up("the disk of the store has no room");
        self.log.free_up_to(applied)?;
        Ok(true)
    }

    /// Tells the copy that the whole log is forced to the disk, if it is.
    fn tell_copy(&self) {
        if let LogCopy::Shipped(shipping, written) = &self.copy
            && self.log.synced() == self.log.position()
        {
            shipping.synced(self.log.synced(), *written);
        }
    }

    fn start_copy(&mut self) -> Result<(), StoreError> {
        if let LogCopy::Wanted(options) = &self.copy {
            let data = self.log.data().unwrap_or(Path::new(".")).to_owned();
            let shipping = ship::start(options.clone(), data, self.log.id(), self.log.synced())?;
            // The same broker may open a store twice in a test, and each has its statistics.
            let _ = self.lagging.statistics.copy.set(Arc::clone(&shipping));
            self.copy = LogCopy::Shipped(shipping, 0);
        }
        Ok(())
    }

    /// Folds a group that was appended into what the database does not have yet.
    fn fold(&mut self, group: &mut CommitGroup, mark: Mark) -> Result<(), StoreError> {
        self.lagging.fold(group, mark, self.buffer.len() as u64)?;
        self.start_copy()
    }
}

impl Store for LoggedStore {
    fn recover(&mut self, now: Moment, horizon: Duration) -> Result<Recovered, StoreError> {
        let (recovered, mends, moment) = self.lagging.recover(now, horizon)?;
        self.moment = moment;
        self.next_number = self.next_number.max(recovered.next_number);
        let is_new = self.moment.is_none();
        if is_new || !mends.is_empty() {
            // Time counts from here on in a new store.
            self.moment.get_or_insert(Heartbeat::at(now, self.lagging.time()));
            let put = |to: &mut Vec<u8>, head: &Head, time| frame::encode(to, head, &mends, time);
            let mark = self.append(Room::WithReserve, 0, put)?;
            self.lagging.apply_now(&mends, mark)?;
        }
        Ok(recovered)
    }

    fn copy_bodies(&mut self, copies: &[BodyCopy]) -> Result<(), StoreError> {
        let highest = copies.iter().map(|copy| copy.to.0).max().unwrap_or(0);
        let put = |to: &mut Vec<u8>, head: &Head, _| frame::encode_copies(to, head, copies);
        let mark = self.append(Room::WithReserve, highest, put)?;
        self.lagging.copy_now(copies, mark)
    }

    fn commit(&mut self, group: &mut CommitGroup) -> Result<(), StoreError> {
        self.lagging.unapplied.await_room(self.most_unapplied(), PATIENCE)?;
        self.moment = None;
        let put = |to: &mut Vec<u8>, head: &Head, time| frame::encode(to, head, group, time);
        let mark = self.append(Room::Ordinary, group.highest_number(), put)?;
        self.fold(group, mark)
    }

    fn commit_ahead(&mut self, group: &CommitGroup) -> Result<(), StoreError> {
        self.lagging.unapplied.check()?;
        let put = |to: &mut Vec<u8>, head: &Head, time| frame::encode_ahead(to, head, group, time);
        let mark = self.append(Room::WithReserve, 0, put)?;
        let mut ahead = CommitGroup::default();
        ahead.absorb_all(group.ahead().cloned(), group.retained_removed().cloned(), 0);
        self.fold(&mut ahead, mark)
    }

    fn heartbeat(&mut self, now: Moment) -> Result<(), StoreError> {
        self.lagging.unapplied.check()?;
        self.moment = Some(Heartbeat::at(now, self.lagging.time()));
        let mut none = CommitGroup::default();
        let put = |to: &mut Vec<u8>, head: &Head, time| frame::encode(to, head, &none, time);
        let appended = self.append(Room::WithReserve, 0, put);
        self.moment = None;
        self.fold(&mut none, appended?)
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        match (self.options.durability, &self.copy) {
            (DurabilityLevel::Commit | DurabilityLevel::None, _) => return Ok(()),
            // Only synced frames are shipped.
            (DurabilityLevel::Os, LogCopy::None) => return Ok(()),
            (DurabilityLevel::Os | DurabilityLevel::Interval, _) => self.sync_log()?,
        }
        self.tell_copy();
        Ok(())
    }

    fn tidy(&mut self) -> Result<(), StoreError> {
        self.free_log()?;
        self.report_sizes();
        Ok(())
    }

    fn has_room(&mut self) -> Result<bool, StoreError> {
        self.free_log()?;
        let has_room = self.log.restore_reserve()? && self.lagging.has_room()?;
        if has_room || !self.keep_nothing_for_copy()? {
            return Ok(has_room);
        }
        Ok(self.log.restore_reserve()? && self.lagging.has_room()?)
    }

    fn room(&mut self) -> Result<i64, StoreError> {
        Ok(self.lagging.unapplied.room())
    }

    fn limit_size(&mut self, size_limit: Option<u64>) -> Result<(), StoreError> {
        self.lagging.limit_size(limit_of_database(size_limit, self.log.segment_size()))?;
        self.options.size_limit = size_limit;
        self.report_sizes();
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.log.bytes() + self.lagging.unapplied.database_bytes()
    }

    fn directory(&self) -> Option<&Path> {
        self.log.data()
    }

    fn opener(&self) -> OpenReader {
        self.lagging.opener()
    }

    fn attach(&mut self, budget: &Arc<Budget>, statistics: &Arc<StoreStatistics>) {
        self.lagging.attach(budget, statistics);
        statistics.position.store(self.log.position(), Ordering::Relaxed);
        self.report_sizes();
    }
}

impl Drop for LoggedStore {
    fn drop(&mut self) {
        if let LogCopy::Shipped(shipping, _) = &self.copy {
            shipping.stop();
        }
    }
}

/// The copy of the log.
enum LogCopy {
    None,
    /// From the first commit on.
    Wanted(ShipOptions),
    /// Under way, with the bytes of all frames since the start.
    Shipped(Arc<Shipping>, u64),
}

/// Returns the part of a size limit that is left for the database.
fn limit_of_database(size_limit: Option<u64>, segment_size: u64) -> Option<u64> {
    size_limit.map(|limit| limit.saturating_sub(MOST_FILES * segment_size))
}

#[cfg(test)]
mod tests;
