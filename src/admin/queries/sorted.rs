//! Pages of sessions in one order over all shards, with the number of all that fit.

use super::ask::ask;
use super::oldest_queued::add_oldest_queued;
use super::sessions::{ListParameters, SocketFilter, filter_hash};
use crate::admin::failed::Failed;
use crate::admin::listing::ListedRow;
use crate::admin::state::AdminState;
use crate::clock;
use crate::operators::query::{BYTES, Query, QueryAnswer, SessionFilter};
use crate::operators::session_order::{RankRange, SessionOrder, SessionRank};
use crate::time::Instant;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Time for one page. A page that is not complete by then says so.
const TIME: Duration = Duration::from_secs(5);

/// Rows that a pass over all sessions collects for this page and the next ones.
const AHEAD: usize = 1_000;

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

/// Returns a page of the sessions that fit, in an order: from the last pass over all sessions, if
/// it has the page and is good enough. Else looks at every session. With a filter that only sockets
/// can answer, it also asks each socket that may fit. A page does not wait for the turn of a
/// search, which may take seconds: the shards answer one question at a time in any case.
///
/// # Errors
/// A parameter or the cursor is not valid, or a shard does not answer.
pub(crate) async fn sorted_sessions(
    state: &AdminState,
    (parameters, order): (&ListParameters, SessionOrder),
) -> Result<SortedPage, Failed> {
    let observer = state.running()?;
    let (limit, by_socket) = (parameters.limit()?, SocketFilter::of(parameters)?);
    let filter = by_socket.narrowed(parameters.filter(observer)?);
    let hash = filter_hash(&(&filter, by_socket, order.name()));
    let after = parameters.cursor.as_deref().map(|text| read_cursor(text, hash).ok_or(Failed::Cursor));
    let after = after.transpose()?;
    let begun = clock::now();
    let known = state
        .last_pass
        .fresh(begun, hash)
        .and_then(|pass| Some(pass.page(pass.find(after.as_ref(), limit)?)));
    let mut page = match known {
        Some(page) => page,
        None => {
            let mut rows = Collector::new(AHEAD, after, order, by_socket);
            let is_complete = rows.take_all(state, &filter, |_| Duration::ZERO, TIME).await?;
            let pass = rows.finish(hash, is_complete);
            let page = pass.page(0..pass.ranks.len().min(limit));
            state.last_pass.keep((begun, clock::now()), pass);
            page
        }
    };
    add_oldest_queued(observer, &mut page.rows.iter_mut().map(|row| &mut row.session).collect::<Vec<_>>())
        .await;
    Ok(page)
}

/// Returns the first `most` sessions of an order that a filter admits, and true if every session
/// was looked at. Pauses as [`Collector::take_all`] does.
pub(super) async fn first_sessions(
    state: &AdminState,
    (order, filter): (SessionOrder, SessionFilter),
    most: usize,
    pace: impl Fn(Duration) -> Duration,
    time: Duration,
) -> Result<(Vec<ListedRow>, bool), Failed> {
    let mut first = Collector::new(most, None, order, SocketFilter::default());
    let is_complete = first.take_all(state, &filter, pace, time).await?;
    Ok((first.rows.into_iter().map(|(_, row)| row).collect(), is_complete))
}

/// What a pass over all sessions found: the rows behind a place, in their order.
#[derive(Debug)]
struct Pass {
    hash: u32,
    after: Option<SessionRank>,
    ranks: Vec<SessionRank>,
    /// The session at each rank.
    rows: Vec<ListedRow>,
    total: usize,
    before: usize,
    is_complete: bool,
}

impl Pass {
    /// Returns the rows of the page behind a place; `None` if the pass does not have them all.
    fn find(&self, after: Option<&SessionRank>, limit: usize) -> Option<Range<usize>> {
        let from = match after {
            after if after == self.after.as_ref() => 0,
            Some(after) => self.ranks.iter().position(|rank| rank == after)? + 1,
            None => return None,
        };
        let is_whole = from + limit <= self.ranks.len() || self.before + self.ranks.len() >= self.total;
        is_whole.then(|| from..self.ranks.len().min(from + limit))
    }

    /// Returns the page with these rows.
    fn page(&self, at: Range<usize>) -> SortedPage {
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
    fn fresh(&self, now: Instant, hash: u32) -> Option<Arc<Pass>> {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, pass) = last.as_ref().filter(|(until, pass)| now < *until && pass.hash == hash)?;
        Some(Arc::clone(pass))
    }

    /// Keeps a pass that took from `begun` to `ended`.
    fn keep(&self, (begun, ended): (Instant, Instant), pass: Pass) {
        let worth = (ended.since(begun) * WORTH).min(OLDEST);
        let kept = pass.is_complete.then(|| (ended + worth, Arc::new(pass)));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = kept;
    }
}

/// The rows of a page so far, and the numbers of sessions.
struct Collector {
    limit: usize,
    by_socket: SocketFilter,
    /// The part of the order that may still be on the page.
    range: RankRange,
    rows: Vec<(SessionRank, ListedRow)>,
    total: usize,
    before: usize,
}

impl Collector {
    fn new(
        limit: usize,
        after: Option<SessionRank>,
        order: SessionOrder,
        by_socket: SocketFilter,
    ) -> Collector {
        let range = RankRange { order, after, until: None };
        Collector { limit, by_socket, range, rows: Vec::new(), total: 0, before: 0 }
    }

    /// Looks at every session, with a pause of `pace` between two questions beside the rest of the
    /// shard, for at most `time`. `pace` gets the time since the beginning. Returns true if every
    /// session was looked at.
    async fn take_all(
        &mut self,
        state: &AdminState,
        filter: &SessionFilter,
        pace: impl Fn(Duration) -> Duration,
        time: Duration,
    ) -> Result<bool, Failed> {
        let (shards, started) = (state.running()?.shards(), clock::now());
        for shard in 0..shards {
            let mut from = Some(0);
            while let Some(slot) = from {
                let elapsed = clock::now().since(started);
                if elapsed >= time {
                    return Ok(false);
                }
                let range = self.asked_range();
                let query = Query::RankedSessions { from: slot, filter: filter.clone(), range };
                let answer = ask(state, shard, query).await?;
                let QueryAnswer::RankedSessions(ranked) = &answer.answer else { return Err(Failed::Busy) };
                from = ranked.part.next;
                let rows = ranked.part.rows.iter().map(|(rank, session)| {
                    let socket = answer.socket_of(session.id).cloned();
                    (rank.clone(), ListedRow { shard, session: session.clone(), socket })
                });
                self.take(rows, (ranked.admitted, ranked.before));
                let pause = pace(elapsed);
                if !pause.is_zero() {
                    tokio::time::sleep(pause).await;
                }
            }
        }
        Ok(true)
    }

    /// Returns the range for the shard: everything, if only sockets can say which sessions count.
    fn asked_range(&self) -> Box<RankRange> {
        let RankRange { order, .. } = self.range;
        let all = RankRange { order, after: None, until: None };
        Box::new(if self.by_socket.admits_all() { self.range.clone() } else { all })
    }

    /// Takes the rows of an answer. `counts` are two numbers of the shard: the sessions that the
    /// filter admits, and the admitted sessions before the page.
    fn take(&mut self, rows: impl Iterator<Item = (SessionRank, ListedRow)>, counts: (usize, usize)) {
        if self.by_socket.admits_all() {
            self.total += counts.0;
            self.before += counts.1;
            self.rows.extend(rows);
        } else {
            for (rank, row) in rows.filter(|(_, row)| self.by_socket.admits(row.socket.as_ref())) {
                self.total += 1;
                if self.range.after.as_ref().is_some_and(|after| rank <= *after) {
                    self.before += 1;
                } else if self.range.until.as_ref().is_none_or(|until| rank < *until) {
                    self.rows.push((rank, row));
                }
            }
        }
        self.cut();
    }

    /// Keeps the first rows, and narrows the range once the page is full.
    fn cut(&mut self) {
        self.rows.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        let mut bytes = 0;
        let is_last = |(at, row): (usize, &(SessionRank, ListedRow))| {
            bytes += row.1.session.client_id.len();
            at + 1 >= self.limit || bytes >= BYTES
        };
        if let Some(last) = self.rows.iter().enumerate().position(is_last) {
            self.rows.truncate(last + 1);
            self.range.until = self.rows.last().map(|(rank, _)| rank.clone());
        }
    }

    fn finish(self, hash: u32, is_complete: bool) -> Pass {
        let Collector { range, rows, total, before, .. } = self;
        let (ranks, rows) = rows.into_iter().unzip();
        Pass { hash, after: range.after, ranks, rows, total, before, is_complete }
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
fn read_cursor(text: &str, hash: u32) -> Option<SessionRank> {
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
