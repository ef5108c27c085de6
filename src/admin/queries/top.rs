//! The sessions with the largest values of one figure.

use super::ask::ask;
use crate::admin::failed::Failed;
use crate::admin::listing::ListedRow;
use crate::admin::state::AdminState;
use crate::broker::observer::Observer;
use crate::clock;
use crate::operators::query::{Part, Query, QueryAnswer, ROWS, SessionFilter, SessionSummary};
use std::cmp::Reverse;
use std::time::Duration;

/// The figure by which sessions are compared.
#[derive(Clone, Copy, Debug)]
pub(super) enum TopFigure {
    /// The age of the oldest unacknowledged message.
    OldestUnacknowledged,
    /// The messages in the queue.
    Queued,
}

impl TopFigure {
    /// Returns the figure of a session. An age is that at the beginning of the search, which began
    /// `elapsed` ago, in nanoseconds.
    fn of(self, row: &SessionSummary, elapsed: Duration) -> u128 {
        match self {
            TopFigure::OldestUnacknowledged => {
                row.oldest.map_or(0, |stall| stall.age.saturating_sub(elapsed).as_nanos())
            }
            TopFigure::Queued => row.queued as u128,
        }
    }

    /// Returns the filter of the sessions that `admits` admits and whose figure is above `least`.
    fn above(self, least: u128, elapsed: Duration, admits: &SessionFilter) -> SessionFilter {
        let more = usize::try_from(least).unwrap_or(usize::MAX).saturating_add(1);
        let mut filter = admits.clone();
        match self {
            TopFigure::OldestUnacknowledged => {
                let age = Duration::from_nanos(u64::try_from(least).unwrap_or(u64::MAX));
                let above = age.saturating_add(elapsed).saturating_add(Duration::from_nanos(1));
                filter.min_unacked_age = above.max(filter.min_unacked_age);
            }
            TopFigure::Queued => filter.min_queued = more,
        }
        filter
    }
}

/// Looks at every session, with a pause of `pace` between two questions beside the rest of the
/// shard, for at most `time`. `pace` gets the time since the beginning. Returns true if every
/// session was looked at.
///
/// # Errors
/// A shard does not answer.
pub(super) async fn search(
    state: &AdminState,
    observer: &Observer,
    top: &mut Top,
    pace: impl Fn(Duration) -> Duration,
    time: Duration,
) -> Result<bool, Failed> {
    let started = clock::now();
    for shard in 0..observer.shards() {
        let mut from = Some(0);
        while let Some(slot) = from.take() {
            let elapsed = clock::now().since(started);
            if elapsed > time {
                return Ok(false);
            }
            let query = Query::Sessions { from: slot, most: ROWS, filter: top.filter(elapsed) };
            let answer = ask(state, observer, shard, query).await?;
            let elapsed = clock::now().since(started);
            let QueryAnswer::Sessions(Part { rows: found, next }) = &answer.answer else { break };
            for session in found {
                let socket = answer.socket_of(session.id).cloned();
                top.add(ListedRow { shard, session: session.clone(), socket }, elapsed);
            }
            from = *next;
            let pause = pace(elapsed);
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
        }
    }
    Ok(true)
}

/// The largest figures so far, each with its session.
pub(super) struct Top {
    figure: TopFigure,
    /// The sessions that count.
    admits: SessionFilter,
    most: usize,
    rows: Vec<(u128, ListedRow)>,
    /// Sessions up to this figure cannot come first any more.
    least: u128,
}

impl Top {
    /// Returns an empty list for the `most` sessions with the largest figures, of those that
    /// `admits` admits.
    pub(super) fn new(figure: TopFigure, most: usize, admits: SessionFilter) -> Top {
        Top { figure, admits, most, rows: Vec::new(), least: 0 }
    }

    /// Returns the number of sessions at most.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Returns the filter of the sessions that may still come first.
    fn filter(&self, elapsed: Duration) -> SessionFilter {
        self.figure.above(self.least, elapsed, &self.admits)
    }

    fn add(&mut self, row: ListedRow, elapsed: Duration) {
        self.rows.push((self.figure.of(&row.session, elapsed), row));
        // Cut now and then, so that the list stays short and each row is moved a few times only.
        if self.rows.len() >= 2 * self.most {
            self.cut();
        }
    }

    fn cut(&mut self) {
        self.rows.sort_by_key(|(figure, _)| Reverse(*figure));
        self.rows.truncate(self.most);
        if self.rows.len() == self.most {
            self.least = self.rows.last().map_or(0, |(figure, _)| *figure);
        }
    }

    /// Returns the sessions, the largest figure first.
    pub(super) fn sorted(mut self) -> Vec<ListedRow> {
        self.cut();
        self.rows.into_iter().map(|(_, row)| row).collect()
    }
}
