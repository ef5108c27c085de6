//! A page of a listing of sessions, the place at which the next page begins, and the last search
//! for stuck clients.

use crate::broker::question::SocketFacts;
use crate::shard::observe::query::SessionSummary;
use crate::time::Instant;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Time for which the search for stuck clients is not done again.
const FRESH: Duration = Duration::from_secs(3);

/// A page of a listing.
#[derive(Clone, Debug, Default)]
pub(super) struct Listed {
    /// The sessions.
    pub(super) rows: Vec<ListedRow>,
    /// The place of the next page; `None` at the end.
    pub(super) next: Option<ListCursor>,
}

/// A session in a listing.
#[derive(Clone, Debug)]
pub(super) struct ListedRow {
    /// The number of the shard.
    pub(super) shard: usize,
    /// The session.
    pub(super) session: SessionSummary,
    /// What its socket says; `None` while the client is away.
    pub(super) socket: Option<SocketFacts>,
}

/// The last search for clients that left a message unacknowledged for 10 s: the longest wait comes
/// first. All pages share the search.
#[derive(Default)]
pub(super) struct StuckSearch(Mutex<Option<(Instant, Arc<Listed>)>>);

impl StuckSearch {
    /// Returns the result, if it is fresh.
    pub(super) fn fresh(&self, now: Instant) -> Option<Arc<Listed>> {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().filter(|(at, _)| now < *at + FRESH).map(|(_, found)| Arc::clone(found))
    }

    /// Returns the last result, however old it is; an empty one before the first search.
    pub(super) fn last(&self) -> Arc<Listed> {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().map(|(_, found)| Arc::clone(found)).unwrap_or_default()
    }

    /// Keeps a result.
    pub(super) fn found(&self, now: Instant, found: &Arc<Listed>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((now, Arc::clone(found)));
    }
}

/// A place in a listing of sessions, for one filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ListCursor {
    /// The number of the shard.
    pub(super) shard: u8,
    /// The slot in the shard.
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

    /// Reads the text of a cursor; `None` if it is none.
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
