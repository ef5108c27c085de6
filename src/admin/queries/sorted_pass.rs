//! A pass over all sessions in an order, which is kept for the pages that follow.

use crate::admin::listing::ListedRow;
use crate::operators::session_order::SessionRank;
use crate::time::Instant;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A pass is good for so many times its own time, and for [`OLDEST`] at most. So pages that follow
/// the broker, or one another, take a tenth of the time of a shard, however many there are.
const WORTH: u32 = 10;

/// The age of a pass at most.
const OLDEST: Duration = Duration::from_secs(10);

/// Bytes of a cursor before the name of its rank: the filter's hash, the figure, shard and slot.
const HEAD: usize = 4 + 8 + 1 + 4;

/// A page of sessions in an order.
#[derive(Debug, Default)]
pub(crate) struct SortedPage {
    pub(crate) rows: Vec<ListedRow>,
    /// The cursor of the next page; `None` at the end.
    pub(crate) next: Option<String>,
    /// The number of all sessions that fit.
    pub(crate) total: usize,
    /// The number of those before the page.
    pub(crate) before: usize,
    /// False if the time was over before every session was looked at.
    pub(crate) is_complete: bool,
}

/// What a pass over all sessions found: the rows behind a place, in their order.
#[derive(Debug)]
pub(super) struct Pass {
    pub(super) hash: u32,
    pub(super) after: Option<SessionRank>,
    pub(super) ranks: Vec<SessionRank>,
    /// The session at each rank.
    pub(super) rows: Vec<ListedRow>,
    pub(super) total: usize,
    pub(super) before: usize,
    pub(super) is_complete: bool,
}

impl Pass {
    /// Returns the rows of the page behind a place; `None` if the pass does not have them all.
    pub(super) fn find(&self, after: Option<&SessionRank>, limit: usize) -> Option<Range<usize>> {
        let from = match after {
            after if after == self.after.as_ref() => 0,
            Some(after) => self.ranks.iter().position(|rank| rank == after)? + 1,
            None => return None,
        };
        let is_whole = from + limit <= self.ranks.len() || self.before + self.ranks.len() >= self.total;
        is_whole.then(|| from..self.ranks.len().min(from + limit))
    }

    /// Returns the page with these rows.
    pub(super) fn page(&self, at: Range<usize>) -> SortedPage {
        let has_more = self.before + at.end < self.total;
        let last = self.ranks[at.clone()].last().filter(|_| has_more);
        SortedPage {
            next: last.map(|rank| write_cursor(rank, self.hash)),
            before: self.before + at.start,
            rows: self.rows[at].to_vec(),
            total: self.total,
            is_complete: self.is_complete,
        }
    }
}

/// The last pass over all sessions, with the end of its worth: 1 MiB at most.
#[derive(Debug, Default)]
pub(crate) struct LastPass(Mutex<Option<(Instant, Arc<Pass>)>>);

impl LastPass {
    /// Returns the pass of a listing, if it is still good.
    pub(super) fn fresh(&self, now: Instant, hash: u32) -> Option<Arc<Pass>> {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, pass) = last.as_ref().filter(|(until, pass)| now < *until && pass.hash == hash)?;
        Some(Arc::clone(pass))
    }

    /// Keeps a pass that took from `begun` to `ended`.
    pub(super) fn keep(&self, (begun, ended): (Instant, Instant), pass: Pass) {
        let worth = (ended.since(begun) * WORTH).min(OLDEST);
        let kept = pass.is_complete.then(|| (ended + worth, Arc::new(pass)));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = kept;
    }
}

/// Returns the cursor of the page behind a place.
fn write_cursor(rank: &SessionRank, hash: u32) -> String {
    let SessionRank { figure, name, shard, slot } = rank;
    let mut bytes = Vec::with_capacity(HEAD + name.len());
    bytes.extend(hash.to_be_bytes());
    bytes.extend(figure.to_be_bytes());
    bytes.push(*shard);
    bytes.extend(slot.to_be_bytes());
    bytes.extend(name.as_bytes());
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Reads a cursor; `None` if it is invalid or of another listing.
pub(super) fn read_cursor(text: &str, hash: u32) -> Option<SessionRank> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    let (of, bytes) = bytes.split_first_chunk()?;
    let (figure, bytes) = bytes.split_first_chunk()?;
    let (shard, bytes) = bytes.split_first()?;
    let (slot, name) = bytes.split_first_chunk()?;
    let name = std::str::from_utf8(name).ok()?.into();
    let (figure, slot) = (u64::from_be_bytes(*figure), u32::from_be_bytes(*slot));
    (u32::from_be_bytes(*of) == hash).then_some(SessionRank { figure, name, shard: *shard, slot })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pass over ten sessions, of which it has the first `kept`.
    fn pass(kept: u32) -> Pass {
        let rank = |slot| SessionRank { figure: 0, name: "pump".into(), shard: 0, slot };
        let ranks = (0..kept).map(rank).collect();
        Pass { hash: 7, after: None, ranks, rows: Vec::new(), total: 10, before: 0, is_complete: true }
    }

    #[test]
    fn a_pass_has_the_pages_that_are_whole_in_it() {
        let (pass, all) = (pass(6), pass(10));
        assert_eq!(pass.find(None, 3), Some(0..3));
        let after = |slot| Some(&all.ranks[slot]);
        assert_eq!(pass.find(after(2), 3), Some(3..6));
        assert_eq!(pass.find(after(2), 4), None, "it has three of the four");
        assert_eq!(pass.find(after(7), 1), None);
        assert_eq!(all.find(after(7), 5), Some(8..10), "the last page is short");
    }

    #[test]
    fn a_pass_is_good_for_ten_times_its_own_time() {
        let (last, at) = (LastPass::default(), Instant::from_millis);
        last.keep((at(1_000), at(1_200)), pass(6));
        assert!(last.fresh(at(3_199), 7).is_some() && last.fresh(at(3_200), 7).is_none());
        assert!(last.fresh(at(1_300), 8).is_none(), "it is of another listing");
        last.keep((at(1_000), at(6_000)), pass(6));
        assert!(last.fresh(at(15_999), 7).is_some() && last.fresh(at(16_000), 7).is_none());
        last.keep((at(1_000), at(6_000)), Pass { is_complete: false, ..pass(6) });
        assert!(last.fresh(at(6_000), 7).is_none());
    }

    #[test]
    fn a_cursor_leads_behind_its_row_and_one_of_another_listing_is_none() {
        let rank = SessionRank { figure: u64::MAX - 7, name: "pümp".into(), shard: 3, slot: 70_000 };
        let text = write_cursor(&rank, 0xdead_beef);
        assert_eq!(read_cursor(&text, 0xdead_beef), Some(rank));
        assert_eq!(read_cursor(&text, 1), None);
        for other in ["", "AAAA", "not base64!", &text[..20]] {
            assert_eq!(read_cursor(other, 0xdead_beef), None, "{other:?}");
        }
    }
}
