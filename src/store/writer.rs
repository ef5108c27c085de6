//! The committing thread, and the reading one.
//!
//! It waits for one message, takes what else is queued, makes one transaction of it and tells each shard how far it is safe;
//! what arrives meanwhile is the next transaction. So a lone publisher waits for one sync, and a thousand share one.
//!
//! The channels have no bound of their own. What stands in them is bounded by who waits for it: a publisher has no more than its
//! Receive Maximum unanswered, and messages count towards the memory budget until they are committed.

mod commit;
mod read;
mod statistics;

pub use read::{PageRequest, SessionToken};
pub use statistics::Statistics;

use super::{Reader, Store, StoreError};
use crate::journal::backlog::Bounds;
use crate::journal::record::{
    Batch, BodyNumber, Committed, EntryNumber, ReadEntry, RetainedRecord, StoredDelayed,
};
use crate::mqtt::charge::Budget;
use crate::routing::shard::delayed::DelayedRequest;
use read::Read;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// How the writer works.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How much one transaction takes.
    pub bounds: Bounds,
    /// How often it is noted that the broker lives.
    pub heartbeat: Duration,
    /// How often what was committed is forced to the disk, where a commit does not do that.
    pub sync: Option<Duration>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            bounds: Bounds { records: 1024, bytes: 1024 * 1024 },
            heartbeat: Duration::from_secs(10),
            sync: None,
        }
    }
}

/// What the broker is told.
#[derive(Debug)]
pub enum Notice {
    /// A shard's batches up to this one are as safe as the durability says.
    Committed(Committed),
    /// The answer to [`ToStore::read`]; the entries in the order asked, without those that are gone.
    Page { shard: u8, session: SessionToken, wanted: Vec<(EntryNumber, BodyNumber)>, entries: Vec<ReadEntry> },
    /// The answer to [`ToStore::read_delayed`]; fewer than `most`: there are no others before `until`.
    Delayed { shard: u8, request: DelayedRequest, delayed: Vec<StoredDelayed> },
    /// So many bytes may be on their way to the store before there is no room for new messages; negative beyond that.
    Room(i64),
    /// Whether there is no room for new messages.
    Full(bool),
    /// What is kept is not known any more: the process has to end. Nothing is said after it.
    Failed(StoreError),
}

/// A message to the committing thread.
enum Request {
    Batch(Batch),
    Retained(Vec<RetainedRecord>),
    Stop,
}

/// What shards hold: cheap to clone, never blocks. After the writer has stopped, what is sent goes nowhere.
#[derive(Clone, Debug)]
pub struct ToStore {
    requests: Sender<Request>,
    reads: Sender<Read>,
}

impl ToStore {
    /// What a shard recorded in one turn, in the order of its batches.
    pub fn send(&self, batch: Batch) {
        let _ = self.requests.send(Request::Batch(batch));
    }

    /// Changes to retained messages, in their order: the caller holds their lock. What is sent before a batch is never
    /// committed after it.
    pub fn retained(&self, records: Vec<RetainedRecord>) {
        let _ = self.requests.send(Request::Retained(records));
    }

    /// Asks for the next messages of a queue.
    pub fn read(&self, request: PageRequest) {
        let _ = self.reads.send(Read::Page(request));
    }

    /// Asks for messages that are due in a time to come.
    pub fn read_delayed(&self, shard: u8, request: DelayedRequest) {
        let _ = self.reads.send(Read::Delayed { shard, request });
    }
}

/// The two threads.
#[derive(Debug)]
pub struct Writer {
    to_store: ToStore,
    statistics: Arc<Statistics>,
    committing: JoinHandle<()>,
    reading: JoinHandle<()>,
}

impl Writer {
    /// Starts both on a store that was recovered. `on` is called on either thread, and must not block. What the threads hold
    /// is on the account of `budget` before `on` is called.
    ///
    /// # Errors
    /// A reader that cannot be opened; a thread that the system refuses.
    pub fn start(
        store: Box<dyn Store>,
        options: Options,
        budget: Arc<Budget>,
        on: impl Fn(Notice) + Send + Sync + 'static,
    ) -> Result<Writer, StoreError> {
        let refused = |error: io::Error| StoreError::Failed(format!("a thread for the store: {error}"));
        let reader: Box<dyn Reader> = store.reader()?;
        let statistics = Arc::new(Statistics::default());
        let on = Arc::new(on);
        let (requests, queued) = mpsc::channel();
        let (reads, asked) = mpsc::channel();
        let readers = Arc::clone(&budget);
        let (to_reader, for_reader) = (Arc::clone(&on), Arc::clone(&statistics));
        let reading = Builder::new()
            .name("homing-read".into())
            .spawn(move || read::run(reader, &asked, &*to_reader, &for_reader, &readers))
            .map_err(refused)?;
        let for_commits = Arc::clone(&statistics);
        let committing = Builder::new()
            .name("homing-store".into())
            .spawn(move || commit::run(store, options, &queued, &*on, &for_commits, &budget))
            .map_err(refused)?;
        Ok(Writer { to_store: ToStore { requests, reads }, statistics, committing, reading })
    }

    pub fn to_store(&self) -> ToStore {
        self.to_store.clone()
    }

    pub fn statistics(&self) -> Arc<Statistics> {
        Arc::clone(&self.statistics)
    }

    /// Commits all that was sent, and returns when that is done, or has failed.
    ///
    /// The reader goes first: whoever closes the store last tidies it up, which takes the right to write.
    pub fn stop(self) {
        // A panic has said so on its own.
        let _ = self.to_store.reads.send(Read::Stop);
        let _ = self.reading.join();
        let _ = self.to_store.requests.send(Request::Stop);
        let _ = self.committing.join();
    }
}

#[cfg(test)]
mod tests;
