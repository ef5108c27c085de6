//! A page of a listing of sessions, the place at which the next page begins, and the result of a
//! search that all pages share.

use crate::broker::question::SocketFacts;
use crate::operators::query::SessionSummary;
use crate::time::Instant;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// Time for which a search is not done again.
const FRESH: Duration = Duration::from_secs(3);

/// The age of a result up to which nobody waits for the next one. A page that follows the broker
/// asks again by then.
const RECENT: Duration = Duration::from_secs(6);

#[derive(Clone, Debug, Default)]
pub(super) struct Listed {
    pub(super) rows: Vec<ListedRow>,
    /// The place of the next page; `None` at the end.
    pub(super) next: Option<ListCursor>,
}

#[derive(Clone, Debug)]
pub(super) struct ListedRow {
    pub(super) shard: usize,
    pub(super) session: SessionSummary,
    /// The facts of its socket; `None` while the client is away.
    pub(super) socket: Option<SocketFacts>,
}

/// The clients that a search found.
#[derive(Clone, Debug, Default)]
pub(super) struct FoundClients {
    /// The clients, the largest figure first.
    pub(super) rows: Vec<ListedRow>,
    /// True if there are more.
    pub(super) has_more: bool,
}

/// The last search of all sessions for one figure. All pages share the search.
#[derive(Default)]
pub(super) struct SharedSearch {
    last: Mutex<Option<(Instant, Arc<FoundClients>)>>,
    /// Locked while a search is under way.
    searching: Arc<AsyncMutex<()>>,
}

impl SharedSearch {
    /// Returns the result, if it is fresh.
    pub(super) fn fresh(&self, now: Instant) -> Option<Arc<FoundClients>> {
        self.younger_than(FRESH, now)
    }

    /// Returns the result, if it is good enough while the next search is under way.
    pub(super) fn recent(&self, now: Instant) -> Option<Arc<FoundClients>> {
        self.younger_than(RECENT, now)
    }

    fn younger_than(&self, age: Duration, now: Instant) -> Option<Arc<FoundClients>> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().filter(|(at, _)| now < *at + age).map(|(_, found)| Arc::clone(found))
    }

    /// Returns the last result, however old it is; an empty one before the first search.
    pub(super) fn last(&self) -> Arc<FoundClients> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().map(|(_, found)| Arc::clone(found)).unwrap_or_default()
    }

    /// Begins a search, which ends when the value is dropped; `None` while one is under way.
    pub(super) fn begin(&self) -> Option<OwnedMutexGuard<()>> {
        Arc::clone(&self.searching).try_lock_owned().ok()
    }

    /// Waits for the end of the search that is under way, for this time at most.
    pub(super) async fn wait(&self, most: Duration) {
        let _ = tokio::time::timeout(most, self.searching.lock()).await;
    }

    /// Keeps a result.
    pub(super) fn found(&self, now: Instant, found: FoundClients) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some((now, Arc::new(found)));
    }
}

/// A place in a listing of sessions, for one filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ListCursor {
    pub(super) shard: u8,
    pub(super) slot: u32,
    /// A hash of the filter: a cursor of another listing is refused.
    pub(super) filter: u32,
}

impl ListCursor {
    /// Returns the text for a URL.
    pub(super) fn encode(self) -> String {
        let mut bytes = [0; 9];
        bytes[0] = self.shard;
        bytes[1..5].copy_from_slice(&self.slot.to_be_bytes());
        bytes[5..].copy_from_slice(&self.filter.to_be_bytes());
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Parses the text of a cursor; `None` if it is invalid.
    pub(super) fn decode(text: &str) -> Option<ListCursor> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let [shard, a, b, c, d, e, f, g, h] = *bytes.as_slice() else { return None };
        let (slot, filter) = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]));
        Some(ListCursor { shard, slot, filter })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_back_and_anything_else_is_none() {
        let cursor = ListCursor { shard: 3, slot: 70_000, filter: 0xdead_beef };
        assert_eq!(ListCursor::decode(&cursor.encode()), Some(cursor));
        for other in ["", "AAAA", "not base64!", &"A".repeat(100)] {
            assert_eq!(ListCursor::decode(other), None);
        }
    }
}
