//! What outlives the process. Nothing else in the tree knows how.
//!
//! Shards record changes ([`crate::journal`]); the committing thread ([`writer`]) gathers what all of them recorded while the last
//! commit was under way into one transaction of a [`Store`], and tells each how far it is safe. Reading back goes past
//! it, through a [`Reader`] of its own, and meets only what is committed.

pub mod writer;

use crate::journal::record::{
    BodyNumber, DelayedNumber, EntryNumber, ReadEntry, Recovered, RetainedRecord, StoredDelayed,
};
use crate::journal::group::Group;
use crate::time::Instant;

/// The same moment on both clocks: what the store needs to write this process's times so that another can read them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    pub monotonic: Instant,
    /// Milliseconds since 1970.
    pub unix_millis: u64,
}

/// Keeps what it is given, whole groups at a time.
pub trait Store: Send {
    /// All that is kept, as of `now`; messages to be published later only where they are due within `horizon`.
    ///
    /// What is inconsistent (an entry without its session, a body without entries) is mended and said in the log.
    fn recover(&mut self, now: Moment, horizon: Duration) -> Result<Recovered, StoreError>;

    /// Gives entries that moved to another shard bodies of their own. Once, after [`Store::recover`].
    fn copy_bodies(&mut self, copies: &[BodyCopy]) -> Result<(), StoreError>;

    /// Makes every change of the group in one transaction; on return it is as safe as the durability says.
    fn commit(&mut self, now: Moment, group: &Group) -> Result<(), StoreError>;

    /// Notes that the broker is alive: sessions that were connected when it dies expire counted from here.
    fn heartbeat(&mut self, now: Moment) -> Result<(), StoreError>;

    /// Another way in, for reading only, from another thread.
    fn reader(&self) -> Result<Box<dyn Reader>, StoreError>;
}

/// Reads back what is committed.
pub trait Reader: Send {
    /// These entries with their messages, in the order asked; one that is gone is left out.
    fn entries(&mut self, now: Moment, wanted: &[(EntryNumber, BodyNumber)]) -> Result<Vec<ReadEntry>, StoreError>;

    /// Messages due from `from` on and before `until`, at most `most`, in the order they are due.
    fn delayed(
        &mut self,
        now: Moment,
        from: (Instant, DelayedNumber),
        until: Instant,
        most: usize,
    ) -> Result<Vec<StoredDelayed>, StoreError>;
}

/// A body under another number, for these entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyCopy {
    pub from: BodyNumber,
    pub to: BodyNumber,
    pub entries: Vec<EntryNumber>,
}

/// Why the store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no room on the disk, or the store's own size limit is reached: it may come back.
    #[error("no room: {0}")]
    Full(String),
    /// A write, a sync or a read failed: what is kept is not known any more, so the broker must not go on.
    #[error("{0}")]
    Failed(String),
}
