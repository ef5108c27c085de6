//! The sessions with the largest values of one figure.

use super::ask::{ask, search_turn};
use super::oldest_queued::add_oldest_queued;
use crate::admin::failed::Failed;
use crate::admin::listing::ListedRow;
use crate::admin::request::named;
use crate::admin::state::AdminState;
use crate::clock;
use crate::named_enum::named_enum;
use crate::operators::query::{Part, Query, QueryAnswer, ROWS, SessionFilter, SessionSummary};
use std::cmp::Reverse;
use std::time::Duration;

/// Time for one search. A search that is not complete by then says so.
const TIME: Duration = Duration::from_secs(5);

named_enum! {
    /// The figure by which sessions are compared.
    pub(crate) enum TopFigure {
        /// The age of the oldest unacknowledged message.
        OldestUnacknowledged = "oldest_unacked",
        /// The messages in the queue.
        Queued = "queued",
        /// The bytes of these messages.
        QueuedBytes = "queued_bytes",
        /// The messages in flight.
        InFlight = "in_flight",
    }
}

impl TopFigure {
    /// Reads the word of a figure. Errors: the word is not one of the four.
    pub(crate) fn read(word: &str) -> Result<TopFigure, Failed> {
        named("by", word, &TopFigure::ALL, TopFigure::name)
    }

    /// Returns the figure of a session. An age is that at the beginning of the search, which began
    /// `elapsed` ago, in nanoseconds.
    fn of(self, row: &SessionSummary, elapsed: Duration) -> u128 {
        match self {
            TopFigure::OldestUnacknowledged => {
                row.oldest.map_or(0, |stall| stall.age.saturating_sub(elapsed).as_nanos())
            }
            TopFigure::Queued => row.queued as u128,
            TopFigure::QueuedBytes => row.queued_bytes as u128,
            TopFigure::InFlight => row.in_flight as u128,
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
            TopFigure::QueuedBytes => filter.min_queued_bytes = more,
            TopFigure::InFlight => filter.min_in_flight = more,
        }
        filter
    }
}

/// The sessions that come first by a figure.
#[derive(Debug)]
pub(crate) struct TopSessions {
    /// The sessions, the largest figure first. Sessions with the figure 0 are left out.
    pub(crate) rows: Vec<ListedRow>,
    /// False if the time was over before every session was looked at.
    pub(crate) is_complete: bool,
}

/// Returns the `most` sessions with the largest figures. One search runs at a time. Looks at every
/// session: a million take a few seconds.
pub(crate) async fn top_sessions(
    state: &AdminState,
    figure: TopFigure,
    most: usize,
) -> Result<TopSessions, Failed> {
    let observer = state.running()?;
    let _turn = search_turn(state).await?;
    let mut top = Top::new(figure, most, SessionFilter::default());
    let is_complete = search(state, &mut top, |_| Duration::ZERO, TIME).await?;
    let mut rows = top.sorted();
    add_oldest_queued(observer, &mut rows.iter_mut().map(|row| &mut row.session).collect::<Vec<_>>()).await;
    Ok(TopSessions { rows, is_complete })
}

/// Looks at every session, with a pause of `pace` between two questions beside the rest of the
/// shard, for at most `time`. `pace` gets the time since the beginning. Returns true if every
/// session was looked at.
pub(super) async fn search(
    state: &AdminState,
    top: &mut Top,
    pace: impl Fn(Duration) -> Duration,
    time: Duration,
) -> Result<bool, Failed> {
    let observer = state.running()?;
    let started = clock::now();
    for shard in 0..observer.shards() {
        let mut from = Some(0);
        while let Some(slot) = from.take() {
            let elapsed = clock::now().since(started);
            if elapsed > time {
                return Ok(false);
            }
            let query = Query::Sessions { from: slot, most: ROWS, filter: top.filter(elapsed) };
            let answer = ask(state, shard, query).await?;
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
