//! The store: sessions, queues and messages that survive the process. Only this folder knows
//! SQLite.
//!
//! Shards record changes ([`crate::persistence`]). While one commit runs, the committing thread
//! ([`writer`]) gathers the batches of all shards. These batches become the next frame of the log
//! ([`logged`]). Then the thread reports to each shard the last batch that is safe. The database
//! follows. Reading back uses a [`StoreReader`] and a thread of its own, and sees committed rows
//! only. So do the questions of operators ([`view`]).
//!
//! The folder makes no decision about sessions or messages. Its callers are `broker` and `main.rs`.
//! The folder imports `persistence` and the modules below `persistence`, and the words of the
//! questions from `operators`.
//!
//! | file | concern |
//! |---|---|
//! | `catch_up` | brings a database up to the frames of a log |
//! | [`coalesce`] | folds the records of several batches into one commit group |
//! | [`operation`] | one change of the database |
//! | [`commit_queue`] | decides which batches may be committed together |
//! | [`database`] | the database behind a log, as the code between the two sees it |
//! | [`disk_watch`] | tells a disk that hangs from one that is slow |
//! | [`writer`] | the committing thread and the reading thread |
//! | [`lagging`] | the database behind a log, and the thread that applies the log to it |
//! | [`logged`] | the store on a disk: its log, and the database behind it |
//! | `fold` | frames of a log on their way into a database |
//! | [`frame`] | a commit group as bytes |
//! | `frame_file` | reads the frames of a file |
//! | `files` | the size of a file, the sync of a directory, a want of room |
//! | [`log`] | frames in files, and what a start finds in them |
//! | `obstacle` | the log lines about something that keeps a thread from its work |
//! | [`ship`] | a copy of the log in a folder, seconds later |
//! | [`replay`] | a data directory from such a copy |
//! | [`replicated`] | the store of the owner of a cell: the log of a cluster, and the database behind it |
//! | [`sqlite`] | the database |
//! | [`statistics`] | the figures of the store's threads |
//! | [`view`] | looks at stored messages for operators |
//! | [`wall`] | the times in the store, and the time that passed while it was closed |

pub(crate) mod catch_up;
pub mod coalesce;
pub mod commit_queue;
pub mod database;
pub mod disk_watch;
pub(crate) mod files;
pub(crate) mod fold;
pub mod frame;
mod frame_file;
pub mod lagging;
pub mod log;
pub mod logged;
mod obstacle;
pub mod operation;
pub mod replay;
pub mod replicated;
pub mod ship;
pub mod sqlite;
pub mod statistics;
pub mod view;
pub mod wall;
pub mod writer;

#[cfg(test)]
#[path = "../../tests/support/faulty_store.rs"]
#[expect(unreachable_pub, reason = "it is a part of the test kit")]
mod faulty_store;
#[cfg(test)]
#[path = "../../tests/support/memory_store.rs"]
#[expect(unreachable_pub, dead_code, reason = "it is a part of the test kit")]
mod memory_store;
#[cfg(test)]
mod replicated_tests;
#[cfg(test)]
pub(crate) mod tests;

use crate::clock;
use crate::mqtt::charge::Budget;
use crate::mqtt::packet::QoS;
use crate::operators::query::MessageSummary;
use crate::operators::stored::{StoredMessage, StoredPlace};
use crate::operators::wanted::Wanted;
use crate::persistence::records::{
    BodyCopy, BodyNumber, DelayedNumber, EntryNumber, ReadEntry, Recovered, StoredDelayed,
};
use crate::store::coalesce::CommitGroup;
use crate::store::statistics::StoreStatistics;
use crate::time::Instant;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
pub(crate) use wall::SET_SINCE;

/// One moment on all clocks. The store computes from two moments how much time passed between two
/// openings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// The time since the start of the broker.
    pub monotonic: Instant,
    /// Milliseconds since 1970, by the wall clock.
    pub unix_millis: u64,
    /// The time since the boot of the machine; `None` if the system does not say.
    pub boot: Option<Boot>,
}

/// The time since a boot of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boot {
    /// The identifier of the boot; below 2^63.
    pub id: u64,
    /// Milliseconds since the boot, suspends included.
    pub millis: u64,
}

impl Moment {
    /// Returns the present moment.
    pub fn now() -> Moment {
        let boot = clock::boot().map(|(id, millis)| Boot { id, millis });
        Moment { monotonic: clock::now(), unix_millis: clock::unix_millis(), boot }
    }
}

/// A store. Changes are made in whole groups. Call [`Store::recover`] first.
pub trait Store: Send {
    /// Returns all that is stored, as of `now`. Delayed messages are returned only if they are due
    /// within `horizon`.
    ///
    /// Inconsistent rows (an entry without its session, a body without entries) are mended and
    /// logged.
    ///
    /// # Errors
    /// The store cannot be read or mended; [`StoreError::Full`] can be tried again once.
    fn recover(&mut self, now: Moment, horizon: Duration) -> Result<Recovered, StoreError>;

    /// Gives entries that moved to another shard bodies of their own. Called once, after
    /// [`Store::recover`].
    ///
    /// # Errors
    /// The store cannot be written; [`StoreError::Full`] can be tried again once.
    fn copy_bodies(&mut self, copies: &[BodyCopy]) -> Result<(), StoreError>;

    /// Commits every change of a sealed group together. On return the group is as safe as
    /// `store.durability` says. The store may take the operations out of a group that it commits.
    ///
    /// # Errors
    /// - [`StoreError::Busy`], [`StoreError::Behind`]: no change is made, and the same group can be
    ///   tried again.
    /// - [`StoreError::Full`]: no change is made, and the store has opened its reserve. The same
    ///   group, or a group that frees more, can be tried again.
    /// - [`StoreError::Undecided`]: the store has taken the changes out of the group, and
    ///   [`Store::decide`] says when they are safe. No other commit is allowed before.
    /// - [`StoreError::Failed`]: nobody knows which changes are stored.
    fn commit(&mut self, group: &mut CommitGroup) -> Result<(), StoreError>;

    /// Waits for a moment until the changes of an undecided commit are safe.
    ///
    /// # Errors
    /// - [`StoreError::Undecided`]: not yet.
    /// - [`StoreError::Failed`]: nobody knows which changes are stored.
    fn decide(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Called in place of [`Store::commit`] if all changes of a group have cancelled out, before
    /// what waits for it may leave. A store that others may take over makes sure that nobody has.
    ///
    /// # Errors
    /// [`StoreError::Undecided`]: as for [`Store::commit`].
    fn confirm(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Makes only those changes of the group that need no room: [`CommitGroup::ahead`], and the
    /// deletions of retained messages. Used after [`StoreError::Full`], so that changes which make
    /// room do not wait for room.
    ///
    /// # Errors
    /// As [`Store::commit`].
    fn commit_ahead(&mut self, group: &CommitGroup) -> Result<(), StoreError>;

    /// Stores that the broker is alive at this moment. After a crash, connected sessions expire
    /// counted from the last heartbeat, and the next opening counts from there how much time
    /// passed.
    ///
    /// # Errors
    /// As [`Store::commit`].
    fn heartbeat(&mut self, now: Moment) -> Result<(), StoreError>;

    /// Forces changes to the disk that [`Store::commit`] left to the system. Does nothing if each
    /// commit is forced.
    ///
    /// # Errors
    /// [`StoreError::Failed`]: written bytes may be lost.
    fn sync(&mut self) -> Result<(), StoreError>;

    /// Does the work that can wait until the shards have the report of a commit. Called after each
    /// commit.
    ///
    /// # Errors
    /// As [`Store::commit`].
    fn tidy(&mut self) -> Result<(), StoreError>;

    /// Returns true if there is room for new messages, and not only for changes that free room.
    /// Called after each commit, and at intervals while there is no room.
    ///
    /// # Errors
    /// The file system does not report its room.
    fn has_room(&mut self) -> Result<bool, StoreError>;

    /// Returns the bytes that may be added before [`Store::has_room`] returns false; negative
    /// beyond that point, `i64::MAX` without a bound. Called after each commit.
    ///
    /// # Errors
    /// The file system does not report its room.
    fn room(&mut self) -> Result<i64, StoreError> {
        Ok(i64::MAX)
    }

    /// Returns the bytes from which on a group should take no more. A group that has one batch goes
    /// whatever its size is.
    fn largest_group(&self) -> usize {
        usize::MAX
    }

    /// Sets the largest size in bytes; `None` for no limit but the disk. A size below the present
    /// one deletes nothing: the store has no room until it is smaller.
    ///
    /// # Errors
    /// - [`StoreError::Busy`]: the same call can be made again.
    /// - [`StoreError::Failed`]: the store cannot be used.
    fn limit_size(&mut self, _size_limit: Option<u64>) -> Result<(), StoreError> {
        Ok(())
    }

    /// Returns the bytes that the store takes, free pages included.
    fn bytes(&self) -> u64;

    /// Sets the account of the memory that the store has in use, and the place of its figures.
    /// Called once, before the first commit.
    fn attach(&mut self, _budget: &Arc<Budget>, _statistics: &Arc<StoreStatistics>) {}

    /// Returns the directory of the store; `None` if the store is in memory.
    fn directory(&self) -> Option<&Path> {
        None
    }

    /// Returns a way to readers of the same store, for other threads. Call [`Store::recover`]
    /// first.
    fn opener(&self) -> OpenReader;

    /// Returns a reader of the same store, for another thread.
    ///
    /// # Errors
    /// The store cannot be opened a second time.
    fn reader(&self) -> Result<Box<dyn StoreReader>, StoreError> {
        self.opener()()
    }
}

/// Opens a reader of a store. Fails if the store cannot be opened a second time.
pub type OpenReader = Box<dyn Fn() -> Result<Box<dyn StoreReader>, StoreError> + Send + Sync>;

/// Reads back committed rows.
pub trait StoreReader: Send {
    /// Returns these entries with their messages, in the order of `wanted`. An entry that is gone
    /// is left out.
    ///
    /// # Errors
    /// The store cannot be read.
    fn entries(&mut self, wanted: &[(EntryNumber, BodyNumber)]) -> Result<Vec<ReadEntry>, StoreError>;

    /// Returns at most `most` delayed messages that are due from `from` on and before `until`, in
    /// the order of their times.
    ///
    /// # Errors
    /// The store cannot be read.
    fn delayed(
        &mut self,
        from: (Instant, DelayedNumber),
        until: Instant,
        most: usize,
    ) -> Result<Vec<StoredDelayed>, StoreError>;

    /// Calls `each` with each of these entries that is stored, in the order of `places`, as of one
    /// moment. Reads no payload, and publishers only if one is wanted: then all entries have
    /// theirs, wanted or not. Ages are counted to `now`.
    ///
    /// # Errors
    /// The store cannot be read. `each` may have been called.
    fn view(
        &mut self,
        places: &[StoredPlace],
        now: Instant,
        wanted: &Wanted,
        each: &mut dyn FnMut(ViewedEntry<'_>),
    ) -> Result<(), StoreError>;
}

/// A stored delivery without its payload.
#[derive(Clone, Copy, Debug)]
pub struct ViewedEntry<'a> {
    /// The delivery's number.
    pub number: EntryNumber,
    /// The Topic Name.
    pub topic: &'a str,
    /// The publisher's Client Identifier; empty if it is not known, or was not read.
    pub publisher: &'a str,
    /// The lower of published and granted QoS.
    pub qos: QoS,
    /// The RETAIN flag.
    pub retain: bool,
    /// Bytes of the payload.
    pub payload: usize,
    /// The time at which the message expires; [`Instant::NEVER`] without an interval.
    pub expires: Instant,
    /// Time since the message was recorded; zero if the store does not know.
    pub age: Duration,
}

impl ViewedEntry<'_> {
    /// Returns the message for an answer.
    fn to_message(self) -> StoredMessage {
        let ViewedEntry { topic, qos, payload, retain, expires, age, .. } = self;
        StoredMessage { message: MessageSummary { topic: topic.into(), qos, payload, retain, expires }, age }
    }
}

/// The reason why a call of the store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no room on the disk, or `store.size_limit` is reached. Room may come back.
    #[error("no room: {0}")]
    Full(String),
    /// Another process holds a lock on the database for longer than the store waits. No change was
    /// made, and the call can be tried again.
    #[error("another process has the database locked: {0}")]
    Busy(String),
    /// The database is too far behind the log. No change was made, and the call can be tried again.
    #[error("the database is behind by {0}")]
    Behind(String),
    /// Nobody knows yet whether the changes are stored.
    #[error("the engine of the cluster has not answered yet")]
    Undecided,
    /// A write, a sync or a read failed. The content of the store is unknown, so the broker must
    /// not go on.
    #[error("{0}")]
    Failed(String),
}
