//! The two threads of the store: one commits, the other reads back.
//!
//! The committing thread waits for one message and takes everything else that is queued. These
//! messages become one database transaction. Then each shard gets its committed LSN. Messages that
//! arrive meanwhile become the next transaction. So a lone publisher waits for one sync, and a
//! thousand publishers share one.
//!
//! The channels have no bound of their own. Their contents are bounded by the waiting clients: a
//! publisher has at most its Receive Maximum of unacknowledged messages, and messages count towards
//! `limits.memory` until they are committed.

pub mod commit;
mod read;
mod retained_queue;

pub use read::{SessionToken, StorePageRequest};

use super::statistics::StoreStatistics;
use super::{Store, StoreError, StoreReader};
use crate::clock;
use crate::durability::read_requests::DelayedRequest;
use crate::mqtt::charge::Budget;
use crate::persistence::records::{
    Batch, BodyNumber, Committed, EntryNumber, ReadEntry, RetainedRecord, StoredDelayed,
};
use crate::pulse::Pulse;
use crate::store::commit_queue::Bounds;
use commit::Commits;
use read::PageRead;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// The settings of the writer.
#[derive(Clone, Copy, Debug)]
pub struct WriterOptions {
    /// The largest size of one commit group.
    pub bounds: Bounds,
    /// The time between two heartbeats in the store.
    pub heartbeat: Duration,
    /// The time between two syncs to disk; `None` if each commit syncs, or nothing does.
    pub sync: Option<Duration>,
}

impl Default for WriterOptions {
    fn default() -> WriterOptions {
        WriterOptions {
            bounds: Bounds { records: 1024, bytes: 1024 * 1024 },
            heartbeat: Duration::from_secs(10),
            sync: None,
        }
    }
}

/// The reports of the two threads to the broker.
#[derive(Debug)]
pub enum WriterNotice {
    /// The batches of a shard up to this LSN are committed, with the configured durability.
    Committed(Committed),
    /// The reply to [`ToStore::read`]: the entries in the requested order, without those that were
    /// deleted meanwhile.
    Page {
        /// The shard that sent the request.
        shard: u8,
        /// The session whose queue waits for the page, as the shard named it.
        session: SessionToken,
        /// The requested entries, with their bodies.
        wanted: Vec<(EntryNumber, BodyNumber)>,
        /// The entries that were found, in the same order.
        entries: Vec<ReadEntry>,
    },
    /// The reply to [`ToStore::read_delayed`]. Fewer than the request's `most` means that there
    /// are no more before its `until`.
    Delayed {
        /// The shard that sent the request.
        shard: u8,
        /// The request.
        request: DelayedRequest,
        /// The messages that were found, in the order of their times.
        delayed: Vec<StoredDelayed>,
    },
    /// The bytes that may be on their way to the store before new messages have no room. Negative
    /// if there is less than none.
    Room(i64),
    /// True if the store has no room for new messages; false if it has room again.
    Full(bool),
    /// The store failed, and nothing is reported after this. The state of the file is unknown, so
    /// the process must exit.
    Failed(StoreError),
}

/// A message to the committing thread.
enum WriterRequest {
    Batch(Batch),
    Retained(Vec<RetainedRecord>),
    /// The largest size of the store in bytes; `None` for no limit but the disk.
    SizeLimit(Option<u64>),
    /// The time between two syncs to disk, as in [`WriterOptions::sync`].
    SyncEvery(Option<Duration>),
    Beat(Arc<Pulse>),
    Stop,
}

/// The shards' handle of the store. Cheap to clone, and its methods never block.
///
/// After the writer has stopped, requests are dropped.
#[derive(Clone, Debug)]
pub struct ToStore {
    requests: Sender<WriterRequest>,
    reads: Sender<PageRead>,
}

impl ToStore {
    /// Sends the records of one turn of a shard. Batches of one shard are sent in the order of
    /// their LSNs.
    pub fn send(&self, batch: Batch) {
        let _ = self.requests.send(WriterRequest::Batch(batch));
    }

    /// Sends changes of retained messages, in their order. The caller holds the lock of the
    /// retained messages.
    ///
    /// A change that is sent before a batch is never committed after that batch.
    pub fn retained(&self, records: Vec<RetainedRecord>) {
        let _ = self.requests.send(WriterRequest::Retained(records));
    }

    /// Sets the largest size of the store in bytes; `None` for no limit but the disk. A store that
    /// is larger counts as full, and loses nothing.
    pub fn limit_size(&self, size_limit: Option<u64>) {
        let _ = self.requests.send(WriterRequest::SizeLimit(size_limit));
    }

    /// Sets the time between two syncs to disk; `None` for no syncs besides those of commits.
    pub fn sync_every(&self, interval: Option<Duration>) {
        let _ = self.requests.send(WriterRequest::SyncEvery(interval));
    }

    /// Asks the committing thread for a sign of life.
    pub fn ask_committing(&self, pulse: Arc<Pulse>) {
        let _ = self.requests.send(WriterRequest::Beat(pulse));
    }

    /// Asks the reading thread for a sign of life.
    pub fn ask_reading(&self, pulse: Arc<Pulse>) {
        let _ = self.reads.send(PageRead::Beat(pulse));
    }

    /// Requests stored messages of a queue. The reply is [`WriterNotice::Page`].
    pub fn read(&self, request: StorePageRequest) {
        let _ = self.reads.send(PageRead::Page(request));
    }

    /// Requests stored delayed messages of a range of times. The reply is
    /// [`WriterNotice::Delayed`].
    pub fn read_delayed(&self, shard: u8, request: DelayedRequest) {
        let _ = self.reads.send(PageRead::Delayed { shard, request });
    }
}

/// The two threads of the store, and the handle to them.
#[derive(Debug)]
pub struct Writer {
    to_store: ToStore,
    statistics: Arc<StoreStatistics>,
    /// Set before the threads are told to stop.
    is_stopping: Arc<AtomicBool>,
    committing: JoinHandle<()>,
    reading: JoinHandle<()>,
}

impl Writer {
    /// Starts both threads on a store that was recovered.
    ///
    /// Both threads call `on`, which must not block. Before each call the thread adds its charged
    /// memory to `budget`.
    ///
    /// # Errors
    /// Returns an error if the store's reader cannot be opened, or if the system refuses a thread.
    pub fn start(
        mut store: Box<dyn Store>,
        options: WriterOptions,
        budget: Arc<Budget>,
        on: impl Fn(WriterNotice) + Send + Sync + 'static,
    ) -> Result<Writer, StoreError> {
        let refused = |error: io::Error| StoreError::Failed(format!("a thread for the store: {error}"));
        let statistics = Arc::new(StoreStatistics::default());
        store.attach(&budget, &statistics);
        let reader: Box<dyn StoreReader> = store.reader()?;
        let on = Arc::new(on);
        let (requests, queued) = mpsc::channel();
        let (reads, requested) = mpsc::channel();
        let readers = Arc::clone(&budget);
        let (to_reader, for_reader) = (Arc::clone(&on), Arc::clone(&statistics));
        let is_stopping = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&is_stopping);
        let reading = Builder::new()
            .name("homing-read".into())
            .spawn(move || read::run(reader, &requested, &*to_reader, &for_reader, &readers, &is_over))
            .map_err(refused)?;
        let for_commits = Arc::clone(&statistics);
        let committing = Builder::new()
            .name("homing-store".into())
            .spawn(move || {
                let commits = Commits::new(store, options, &*on, (for_commits, budget), clock::now());
                match commits {
                    Ok(commits) => commit::run(commits, &queued),
                    Err(failure) => on(WriterNotice::Failed(failure)),
                }
            })
            .map_err(refused)?;
        Ok(Writer { to_store: ToStore { requests, reads }, is_stopping, statistics, committing, reading })
    }

    /// Returns a handle for a shard.
    pub fn to_store(&self) -> ToStore {
        self.to_store.clone()
    }

    /// Returns the figures of both threads.
    pub fn statistics(&self) -> Arc<StoreStatistics> {
        Arc::clone(&self.statistics)
    }

    /// Commits everything that was sent, and returns when that is done or has failed.
    ///
    /// The reading thread stops first. The connection that closes the store last tidies the file,
    /// and only the committing thread may write.
    pub fn stop(self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        // A thread that panicked has already reported it.
        let _ = self.to_store.reads.send(PageRead::Stop);
        let _ = self.reading.join();
        let _ = self.to_store.requests.send(WriterRequest::Stop);
        let _ = self.committing.join();
    }
}

#[cfg(test)]
mod tests;
