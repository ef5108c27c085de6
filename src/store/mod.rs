//! What outlives the process. Nothing else in the tree knows how.
//!
//! Shards record changes ([`crate::journal`]); the committing thread ([`writer`]) gathers what all of them recorded while the last
//! commit was under way into one transaction of a [`Store`], and tells each how far it is safe. Reading back goes past
//! it, through a [`Reader`] of its own, and meets only what is committed.
//!
//! | file | what |
//! |---|---|
//! | [`fault`] | fails when a test says so |
//! | [`memory`] | keeps it as long as the process lives: for tests, and for a simulation that crashes and recovers |
//! | [`sqlite`] | keeps it in a file |
//! | [`writer`] | the committing thread and the reading one |
//! | `wall` | the times in the store, and what passed while it was closed |

pub mod fault;
pub mod memory;
pub mod sqlite;
mod wall;
pub mod writer;

#[cfg(test)]
mod tests;

use crate::clock;
use crate::journal::group::Group;
use crate::journal::record::{
    BodyCopy, BodyNumber, DelayedNumber, EntryNumber, ReadEntry, Recovered, StoredDelayed,
};
use crate::time::Instant;
use std::time::Duration;

/// The same moment on all clocks: what the store needs to know how much time passed between two of its openings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    pub monotonic: Instant,
    /// Milliseconds since 1970, as the wall clock has it.
    pub unix_millis: u64,
    /// None where it is not known.
    pub boot: Option<Boot>,
}

/// The time since a boot of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boot {
    /// Which one; below 2^63.
    pub id: u64,
    pub millis: u64,
}

impl Moment {
    /// This one.
    pub fn now() -> Moment {
        let boot = clock::boot().map(|(id, millis)| Boot { id, millis });
        Moment { monotonic: clock::now(), unix_millis: clock::unix_millis(), boot }
    }
}

/// Keeps what it is given, whole groups at a time. [`Store::recover`] comes first.
pub trait Store: Send {
    /// All that is kept, as of `now`; messages to be published later only where they are due within `horizon`.
    ///
    /// What is inconsistent (an entry without its session, a body without entries) is mended and said in the log.
    fn recover(&mut self, now: Moment, horizon: Duration) -> Result<Recovered, StoreError>;

    /// Gives entries that moved to another shard bodies of their own. Once, after [`Store::recover`].
    fn copy_bodies(&mut self, copies: &[BodyCopy]) -> Result<(), StoreError>;

    /// Makes every change of the group in one transaction; on return it is as safe as the durability says.
    ///
    /// After [`StoreError::Busy`] nothing of it is done, and the same group can be tried again.
    ///
    /// After [`StoreError::Full`] nothing of it is done, and the store has opened what reserve it had, so that the same group,
    /// or one that frees more, can be tried again.
    fn commit(&mut self, group: &Group) -> Result<(), StoreError>;

    /// Makes only those changes of the group that need no room: [`Group::ahead`], and the ends of retained messages. For a
    /// group that [`Store::commit`] has no room for, so that what would make room does not wait for room.
    fn commit_ahead(&mut self, group: &Group) -> Result<(), StoreError>;

    /// Notes that the broker is alive, by all clocks: sessions that were connected when it dies expire counted from here, and
    /// the next opening counts from here how much time passed.
    fn heartbeat(&mut self, now: Moment) -> Result<(), StoreError>;

    /// Forces to the disk what `commit` left to the system. Nothing to do where a commit does that itself.
    fn sync(&mut self) -> Result<(), StoreError>;

    /// What can wait until those who wait for a commit were told: called after each.
    fn tidy(&mut self) -> Result<(), StoreError>;

    /// Whether there is room for new messages, and not only for what frees room. Asked after each commit, and now and then
    /// while there is none.
    fn has_room(&mut self) -> Result<bool, StoreError>;

    /// Bytes that may still be added before [`Store::has_room`] says that there is no room; negative beyond that. `i64::MAX`
    /// where nothing bounds it. Asked after each commit.
    fn room(&mut self) -> Result<i64, StoreError> {
        Ok(i64::MAX)
    }

    /// What the store takes, free pages and all.
    fn bytes(&self) -> u64;

    /// Another way in, for reading only, from another thread.
    fn reader(&self) -> Result<Box<dyn Reader>, StoreError>;
}

/// Reads back what is committed.
pub trait Reader: Send {
    /// These entries with their messages, in the order asked; one that is gone is left out.
    fn entries(&mut self, wanted: &[(EntryNumber, BodyNumber)]) -> Result<Vec<ReadEntry>, StoreError>;

    /// Messages due from `from` on and before `until`, at most `most`, in the order they are due.
    fn delayed(
        &mut self,
        from: (Instant, DelayedNumber),
        until: Instant,
        most: usize,
    ) -> Result<Vec<StoredDelayed>, StoreError>;
}

/// Why the store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no room on the disk, or the store's own size limit is reached: it may come back.
    #[error("no room: {0}")]
    Full(String),
    /// Another process has the database locked, for longer than the store waits. Nothing was done, and it can be tried again.
    #[error("another process has the database locked: {0}")]
    Busy(String),
    /// A write, a sync or a read failed: what is kept is not known any more, so the broker must not go on.
    #[error("{0}")]
    Failed(String),
}
