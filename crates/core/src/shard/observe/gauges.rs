//! The figures of a shard about its clients.

use crate::events::client_counts::ClientCounts;
use crate::events::drop_reports::DropReports;
use crate::events::number_times::NumberTimes;
use crate::events::refusals::Refusals;
use crate::shard::clients::connections::Connections;
use crate::shard::clients::sessions::Sessions;
use crate::shard::observe::session_totals::{SessionTotals, TotalsWalk};
use crate::shard::observe::stalled::StalledSessions;
use crate::slots::SessionId;
use crate::time::Instant;

/// The figures of one shard about its clients: counts of events, losses, and gauges that
/// housekeeping renews.
#[derive(Debug, Default)]
pub(crate) struct ClientFigures {
    pub(crate) counts: ClientCounts,
    pub(crate) drops: DropReports,
    pub(crate) refusals: Refusals,
    session_totals: TotalsWalk,
    number_times: NumberTimes,
    overdue: StalledSessions,
    /// The number of stalled sessions of connected clients at the last recount.
    stalled: usize,
}

impl ClientFigures {
    /// Notes that the acknowledgement of a message is overdue. `number` is its running number.
    pub(crate) fn note_stall(&mut self, session: SessionId, number: u64) {
        self.overdue.note(session, number);
    }

    /// Renews the gauges. `next_number` is that of the next stored delivery; `None` without a
    /// store. Costs less than 2 ms.
    pub(crate) fn recount(
        &mut self,
        now: Instant,
        next_number: Option<u64>,
        sessions: &Sessions,
        connections: &Connections,
    ) {
        if let Some(next) = next_number {
            self.number_times.note(now, next);
        }
        self.session_totals.step(sessions, connections, &self.number_times);
        self.stalled = self.overdue.recount(sessions);
    }

    /// Returns the number of connected clients with an overdue acknowledgement; at most 1,024.
    pub(crate) fn stalled(&self) -> usize {
        self.stalled
    }

    /// Returns the sums of the last walk over all sessions.
    pub(crate) fn session_totals(&self) -> &SessionTotals {
        self.session_totals.last()
    }
}
