//! The sessions with the largest values of one figure: the first ones of an order of all sessions.

use super::ask::search_turn;
use super::oldest_queued::add_oldest_queued;
use super::sorted::first_sessions;
use crate::admin::failed::Failed;
use crate::admin::listing::ListedRow;
use crate::admin::request::named;
use crate::admin::state::AdminState;
use crate::named_enum::named_enum;
use crate::operators::query::SessionFilter;
use crate::operators::session_order::SessionOrder;
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

    /// Returns the order by the figure, and the filter of the sessions whose figure is not 0.
    fn order(self) -> (SessionOrder, SessionFilter) {
        let mut filter = SessionFilter::default();
        let order = match self {
            TopFigure::OldestUnacknowledged => {
                filter.min_unacked_age = Duration::from_nanos(1);
                SessionOrder::OldestUnacknowledged
            }
            TopFigure::Queued => {
                filter.min_queued = 1;
                SessionOrder::Queued
            }
            TopFigure::QueuedBytes => {
                filter.min_queued_bytes = 1;
                SessionOrder::QueuedBytes
            }
            TopFigure::InFlight => {
                filter.min_in_flight = 1;
                SessionOrder::InFlight
            }
        };
        (order, filter)
    }
}

/// Returns the `most` sessions with the largest figures, without those whose figure is 0, and true
/// if every session was looked at. One search runs at a time: a million sessions take a few seconds.
pub(crate) async fn top_sessions(
    state: &AdminState,
    figure: TopFigure,
    most: usize,
) -> Result<(Vec<ListedRow>, bool), Failed> {
    let _turn = search_turn(state).await?;
    let (mut rows, is_complete) =
        first_sessions(state, figure.order(), most, |_| Duration::ZERO, TIME).await?;
    let sessions = &mut rows.iter_mut().map(|row| &mut row.session).collect::<Vec<_>>();
    add_oldest_queued(state.running()?, sessions).await;
    Ok((rows, is_complete))
}
