//! A bounded channel from every thread to one listener on the thread of the HTTP interface.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// A bounded channel that has at most one listener. A thread never waits: a record without room is
/// lost and counted. Without a listener an offer costs one load.
#[derive(Debug)]
pub struct Feed<T> {
    to: OnceLock<Sender<T>>,
    lost: AtomicU64,
}

impl<T> Default for Feed<T> {
    fn default() -> Feed<T> {
        Feed { to: OnceLock::new(), lost: AtomicU64::new(0) }
    }
}

impl<T> Feed<T> {
    /// Begins the feed, and returns its end, where at most `room` records wait. Returns `None` if
    /// the feed has begun already.
    pub fn listen(&self, room: usize) -> Option<Receiver<T>> {
        let (to, from) = channel(room);
        self.to.set(to).ok().map(|()| from)
    }

    /// Offers a record, which is made only if somebody listens and there is room.
    pub fn offer(&self, record: impl FnOnce() -> T) {
        match self.to.get().map(Sender::try_reserve) {
            Some(Ok(room)) => room.send(record()),
            Some(Err(_)) => self.add_lost(1),
            None => {}
        }
    }

    /// Counts records for which there was no room.
    pub(super) fn add_lost(&self, records: u64) {
        self.lost.fetch_add(records, Ordering::Relaxed);
    }

    /// Returns the number of records for which there was no room.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}
