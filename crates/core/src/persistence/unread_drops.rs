//! The rows of dropped messages whose topics only the store has.
//!
//! A queue that drops such a message has its number and nothing else. The rows stay in the store
//! until the topic was read from there, so that an operator sees which message it was. Once a
//! second the shard reads one page at most. Further drops of that second keep no topic, and their
//! rows end at once.
//!
//! A broker that ends meanwhile finds the rows at its start, and drops the message again. So only
//! messages that expired or whose session ended come here. Any other one would be sent after the
//! start, behind younger ones.

use crate::persistence::records::{BodyNumber, EntryNumber};
use crate::persistence::rows::PagedOut;

/// Rows of one page at most.
const ROWS: usize = 64;

/// Bytes of messages after which no more rows are added to a page.
const BYTES: usize = 256 * 1024;

/// The rows of two pages at most: one is read, and one waits.
#[derive(Debug, Default)]
pub(super) struct UnreadDrops {
    waiting: Vec<PagedOut>,
    bytes: usize,
    reading: Vec<PagedOut>,
}

impl UnreadDrops {
    /// Keeps the rows of a dropped message. Returns the rows if there is no room.
    pub(super) fn keep(&mut self, dropped: PagedOut) -> Option<PagedOut> {
        if self.waiting.len() >= ROWS || self.bytes >= BYTES {
            return Some(dropped);
        }
        self.bytes += dropped.size();
        self.waiting.push(dropped);
        None
    }

    /// Begins to read a page. Returns its places, or `None` if there is nothing to read or the last
    /// page has not come.
    pub(super) fn begin_page(&mut self) -> Option<Vec<(EntryNumber, BodyNumber)>> {
        if self.waiting.is_empty() || !self.reading.is_empty() {
            return None;
        }
        self.reading = std::mem::take(&mut self.waiting);
        self.bytes = 0;
        Some(self.reading.iter().filter_map(|row| Some((row.number(), row.body()?))).collect())
    }

    /// Records that the page was read. The rows end with the value that is returned.
    pub(super) fn end_page(&mut self) -> Vec<PagedOut> {
        std::mem::take(&mut self.reading)
    }
}
