//! Reading back, on a thread of its own: a long queue that drains does not wait for commits, nor they for it.

use super::{Notice, Statistics};
use crate::journal::record::{BodyNumber, EntryNumber};
use crate::mqtt::charge::Budget;
use crate::routing::shard::delayed::DelayedRequest;
use crate::store::{Reader, StoreError};
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use tracing::warn;

/// A session as its shard knows it: a page that comes too late must not go to a successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionToken {
    pub slot: u32,
    pub generation: u32,
}

/// Messages of a queue, by number.
#[derive(Clone, Debug)]
pub struct PageRequest {
    pub shard: u8,
    pub session: SessionToken,
    pub wanted: Vec<(EntryNumber, BodyNumber)>,
}

/// A message to the reading thread.
pub(super) enum Read {
    Page(PageRequest),
    Delayed { shard: u8, request: DelayedRequest },
    Stop,
}

/// Answers until it is told to stop, or cannot read.
pub(super) fn run(
    mut reader: Box<dyn Reader>,
    asked: &Receiver<Read>,
    on: &impl Fn(Notice),
    statistics: &Statistics,
    budget: &Budget,
) {
    for read in asked {
        let answer = match read {
            Read::Page(request) => page(&mut *reader, request, statistics),
            Read::Delayed { shard, request } => {
                let delayed = patiently(|| reader.delayed(request.from, request.until, request.most));
                delayed.map(|delayed| Notice::Delayed { shard, request, delayed })
            }
            Read::Stop => return,
        };
        // Before the shard has what was read.
        budget.settle();
        match answer {
            Ok(notice) => on(notice),
            Err(error) => return on(Notice::Failed(error)),
        }
    }
}

/// Another process may lock even readers out. Each attempt takes its time.
fn patiently<T>(mut attempt: impl FnMut() -> Result<T, StoreError>) -> Result<T, StoreError> {
    loop {
        match attempt() {
            Err(StoreError::Busy(why)) => {
                warn!(why, "another process has the store locked: long queues wait until it lets go");
            }
            other => return other,
        }
    }
}

fn page(
    reader: &mut dyn Reader,
    request: PageRequest,
    statistics: &Statistics,
) -> Result<Notice, StoreError> {
    let PageRequest { shard, session, wanted } = request;
    let entries = patiently(|| reader.entries(&wanted))?;
    statistics.read.fetch_add(entries.len() as u64, Ordering::Relaxed);
    Ok(Notice::Page { shard, session, wanted, entries })
}
