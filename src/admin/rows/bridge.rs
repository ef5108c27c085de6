//! A bridge as a row.

use super::far_session::{FarSessionRow, listed, next_attempt, with_count};
use crate::admin::queries::waits::until;
use crate::bridge::BridgeState;
use crate::broker::bridges::reports::FarFacts;
use crate::broker::bridges::status::BridgeFacts;
use crate::time::Instant;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A bridge. Counts begin with the bridge. What is in the queue and in flight is that of its session,
/// as it was up to two seconds ago. The messages of `dropped` are among the drops of the session as
/// `negatively_acknowledged`, but for QoS 0.
#[derive(Deserialize, Serialize, ToSchema)]
#[schema(as = Bridge)]
pub(crate) struct BridgeRow {
    pub(crate) name: String,
    /// The client identifier of its session.
    pub(crate) client_id: String,
    pub(crate) state: BridgeState,
    /// Seconds since the state began.
    pub(crate) since: f64,
    /// Seconds until the next attempt to connect; null if none is waited for.
    #[schema(required)]
    pub(crate) next_attempt_in: Option<f64>,
    /// The address of the present or the last attempt.
    pub(crate) address: String,
    /// The version of MQTT of the present or the last connection; null before the first.
    #[schema(required)]
    pub(crate) version: Option<String>,
    /// Why the last connection or attempt ended; null while the bridge is connected.
    #[schema(required)]
    pub(crate) last_error: Option<String>,
    pub(crate) attempts: u64,
    /// Attempts that led to a connection.
    pub(crate) established: u64,
    /// Connections at which the other broker had lost the session.
    pub(crate) sessions_lost: u64,
    /// Topic filters that a side does not let the bridge subscribe to.
    pub(crate) refused_filters: Vec<String>,
    #[serde(flatten)]
    #[schema(inline)]
    pub(crate) session: FarSessionRow,
    /// Messages that the other broker has not acknowledged.
    pub(crate) unacknowledged: usize,
    /// Messages to the other broker, repetitions included.
    pub(crate) sent: u64,
    /// The same for each of the last seconds.
    pub(crate) sent_per_second: f64,
    /// Messages from the other broker that a topic of the bridge lets in.
    pub(crate) received: u64,
    /// The same for each of the last seconds.
    pub(crate) received_per_second: f64,
    /// Messages from the other broker that no topic lets in.
    pub(crate) refused: u64,
    /// Messages that came back to this broker, or have passed too many brokers to leave.
    pub(crate) looped: u64,
    /// Messages from the other broker that are too large here.
    pub(crate) too_large: u64,
    /// Messages of the queue that cannot leave: no topic lets them out any more, or the other
    /// broker does not take their size.
    pub(crate) dropped: u64,
    /// Messages that were sent with a lower QoS, because the other broker takes no higher one.
    pub(crate) lowered: u64,
}

impl BridgeRow {
    pub(crate) fn of(facts: &BridgeFacts, now: Instant) -> BridgeRow {
        BridgeRow {
            client_id: facts.client_id(),
            name: facts.name.to_string(),
            state: facts.state,
            since: now.since(facts.since).as_secs_f64(),
            next_attempt_in: until(now, facts.next_attempt),
            address: facts.address.clone(),
            version: facts.version.map(|version| version.name().to_owned()),
            last_error: Some(facts.last_error.clone()).filter(|error| !error.is_empty()),
            attempts: facts.attempts,
            established: facts.established,
            sessions_lost: facts.sessions_lost,
            refused_filters: facts.refused_filters.clone(),
            session: FarSessionRow::of(&facts.session),
            unacknowledged: facts.unacknowledged,
            sent: facts.counts.sent,
            sent_per_second: facts.rates.sent,
            received: facts.counts.received,
            received_per_second: facts.rates.received,
            refused: facts.counts.refused,
            looped: facts.counts.looped,
            too_large: facts.counts.too_large,
            dropped: facts.counts.dropped,
            lowered: facts.counts.lowered,
        }
    }

    /// Returns what is wrong, each as a sentence without its full stop. Empty if all is well.
    pub(crate) fn troubles(&self) -> Vec<String> {
        let all = [
            self.last_error.clone(),
            next_attempt(self.next_attempt_in),
            self.session.overdue(),
            with_count("sessions that the other broker lost", self.sessions_lost),
            listed("refused filters", self.refused_filters.clone()),
            with_count("refused of the other broker", self.refused + self.too_large),
            with_count("in a loop", self.looped),
            self.session.dropped(),
            with_count("sent with a lower QoS", self.lowered),
        ];
        all.into_iter().flatten().collect()
    }
}
