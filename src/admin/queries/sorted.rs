//! Pages of sessions in one order over all shards, with the number of all that fit.

use super::ask::ask;
use super::oldest_queued::add_oldest_queued;
use super::sessions::{ListParameters, SocketFilter, filter_hash};
use super::sorted_pass::{Pass, SortedPage, read_cursor};
use crate::admin::failed::Failed;
use crate::admin::listing::ListedRow;
use crate::admin::state::AdminState;
use crate::clock;
use crate::operators::query::{BYTES, Query, QueryAnswer, SessionFilter};
use crate::operators::session_order::{RankRange, SessionOrder, SessionRank};
use std::time::Duration;

/// Time for one page. A page that is not complete by then says so.
const TIME: Duration = Duration::from_secs(5);

/// Rows that a pass over all sessions collects for this page and the next ones.
const AHEAD: usize = 1_000;

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
