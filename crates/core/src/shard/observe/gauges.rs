//! The figures of a shard about its clients.

use crate::shard::clients::connections::Connections;
use crate::shard::clients::sessions::Sessions;
use crate::shard::clients::slots::SessionId;
use crate::shard::delivery::drops::DropReports;
use crate::shard::observe::client_counts::ClientCounts;
use crate::shard::observe::refusals::Refusals;
use crate::shard::observe::session_totals::{SessionTotals, TotalsWalk};
use crate::shard::observe::stalled::StalledSessions;

/// The figures of one shard about its clients: counts of events, losses, and gauges that
/// housekeeping renews.
#[derive(Debug, Default)]
pub(crate) struct ClientFigures {
    pub(crate) counts: ClientCounts,
    pub(crate) drops: DropReports,
    pub(crate) refusals: Refusals,
    session_totals: TotalsWalk,
    overdue: StalledSessions,
    /// The number of stalled sessions of connected clients at the last recount.
    stalled: usize,
}

impl ClientFigures {
    /// Notes that the acknowledgement of a message is overdue. `number` is its running number.
    pub(crate) fn note_stall(&mut self, session: SessionId, number: u64) {
        self.overdue.note(session, number);
    }

    /// Renews the gauges. Costs less than 1 ms.
    pub(crate) fn recount(&mut self, sessions: &Sessions, connections: &Connections) {
        self.session_totals.step(sessions, connections);
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
