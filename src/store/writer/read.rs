//! The reading thread. A long queue that drains does not wait for commits, and commits do not wait
//! for it.

use super::WriterNotice;
use crate::clock;
use crate::durability::read_requests::DelayedRequest;
use crate::mqtt::charge::Budget;
use crate::persistence::records::{BodyNumber, EntryNumber};
use crate::pulse::Pulse;
use crate::store::statistics::StoreStatistics;
use crate::store::{StoreError, StoreReader};
use crate::time::Instant;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use tracing::warn;

/// The session that requested a page. A page that comes too late must not go to a successor in the
/// same slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionToken {
    /// The place of the session in its shard.
    pub slot: u32,
    /// The life of that place, since places are reused.
    pub generation: u32,
}

/// A request for messages of a queue, by number.
#[derive(Clone, Debug)]
pub struct StorePageRequest {
    /// The shard that requests the page.
    pub shard: u8,
    /// The session that the page is for.
    pub session: SessionToken,
    /// The entries to read, each with the body it refers to.
    pub wanted: Vec<(EntryNumber, BodyNumber)>,
}

/// A message to the reading thread.
pub(super) enum PageRead {
    Page(StorePageRequest),
    Delayed { shard: u8, request: DelayedRequest },
    Beat(Arc<Pulse>),
    Stop,
}

/// Serves requests until [`PageRead::Stop`] or a failure. Once `is_stopping` is set, no request
/// waits for another process any more.
pub(super) fn run(
    mut reader: Box<dyn StoreReader>,
    requests: &Receiver<PageRead>,
    on: &impl Fn(WriterNotice),
    statistics: &StoreStatistics,
    budget: &Budget,
    is_stopping: &AtomicBool,
) {
    let is_stopping = || is_stopping.load(Ordering::Relaxed);
    for request in requests {
        statistics.disk.reads(clock::now());
        let notice = match request {
            PageRead::Page(request) => page(&mut *reader, request, statistics, is_stopping),
            PageRead::Delayed { shard, request } => {
                let delayed =
                    patiently(is_stopping, || reader.delayed(request.from, request.until, request.most));
                delayed.map(|delayed| WriterNotice::Delayed { shard, request, delayed })
            }
            PageRead::Beat(pulse) => {
                statistics.disk.reads(Instant::NEVER);
                pulse.beat();
                continue;
            }
            PageRead::Stop => return,
        };
        statistics.disk.reads(Instant::NEVER);
        // Before the shard gets the messages.
        budget.report();
        match notice {
            Ok(notice) => on(notice),
            Err(StoreError::Busy(_) | StoreError::Behind(_)) => return,
            Err(error) => return on(WriterNotice::Failed(error)),
        }
    }
}

/// Repeats `attempt` while another process has the database locked, or while the database cannot
/// take what is to be read. Each attempt waits by itself. Gives up only at a stop.
fn patiently<T>(
    is_stopping: impl Fn() -> bool,
    mut attempt: impl FnMut() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    loop {
        match attempt() {
            refusal @ Err(StoreError::Busy(_) | StoreError::Behind(_)) if is_stopping() => return refusal,
            Err(StoreError::Behind(why)) => {
                warn!(
                    event = "store.reads_wait",
                    why,
                    "the database cannot take what is to be read from it: delayed messages and long queues wait"
                );
            }
            Err(StoreError::Busy(why)) => {
                warn!(
                    event = "store.reads_locked",
                    why, "another process has the store locked: long queues wait until it unlocks"
                );
            }
            other => return other,
        }
    }
}

fn page(
    reader: &mut dyn StoreReader,
    request: StorePageRequest,
    statistics: &StoreStatistics,
    is_stopping: impl Fn() -> bool,
) -> Result<WriterNotice, StoreError> {
    let StorePageRequest { shard, session, wanted } = request;
    let entries = patiently(is_stopping, || reader.entries(&wanted))?;
    statistics.read.fetch_add(entries.len() as u64, Ordering::Relaxed);
    Ok(WriterNotice::Page { shard, session, wanted, entries })
}
