//! A bridge as a row.

use super::client::StallRow;
use crate::admin::human::{bytes, count, counted, long, per_second, seconds};
use crate::admin::queries::waits::until;
use crate::bridge::BridgeState;
use crate::broker::bridges::status::BridgeFacts;
use crate::session::drops::DropReason;
use crate::time::Instant;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use utoipa::ToSchema;

/// A bridge. Counts begin with the bridge. What is in the queue and in flight is that of its session,
/// as it was up to two seconds ago.
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
    /// Messages in the queue.
    pub(crate) queued: usize,
    /// Bytes in the queue.
    pub(crate) queued_bytes: usize,
    /// The part of the queue's bound in messages, or in bytes if that is more, that is used: 1 for a
    /// full queue.
    pub(crate) queue_used: f64,
    /// Seconds for which the oldest message of the queue waits; null without one, and if the store
    /// does not answer in time.
    #[schema(required)]
    pub(crate) oldest_queued_age: Option<f64>,
    /// Messages that were sent to the other broker, and that are not complete.
    pub(crate) in_flight: usize,
    /// Messages that the other broker has not acknowledged.
    pub(crate) unacknowledged: usize,
    /// The oldest of the messages in flight.
    #[schema(required)]
    pub(crate) oldest_unacknowledged: Option<StallRow>,
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
    /// The messages of the session that were dropped, by cause. Those of `dropped` are among them as
    /// `negatively_acknowledged`, but for QoS 0.
    pub(crate) drops: Vec<BridgeDrops>,
}

/// The dropped messages of a bridge with one cause.
#[derive(Deserialize, Serialize, ToSchema)]
pub(crate) struct BridgeDrops {
    pub(crate) cause: DropReason,
    pub(crate) messages: u64,
}

impl BridgeRow {
    pub(crate) fn of(facts: &BridgeFacts, now: Instant) -> BridgeRow {
        let row = facts.session.as_ref().map(|session| &session.row);
        let stall = facts.session.as_ref().and_then(|session| session.stall);
        let drops = DropReason::ALL.into_iter().map(|cause| (cause, facts.drops.of(cause)));
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
            queued: row.map_or(0, |row| row.queued),
            queued_bytes: row.map_or(0, |row| row.queued_bytes),
            queue_used: facts.queue_used(),
            oldest_queued_age: row.and_then(|row| row.oldest_queued).map(|age| age.as_secs_f64()),
            in_flight: row.map_or(0, |row| row.in_flight),
            unacknowledged: facts.unacknowledged,
            oldest_unacknowledged: row
                .and_then(|row| row.oldest)
                .map(|oldest| StallRow::of(&stall.unwrap_or(oldest), stall.is_some())),
            sent: facts.counts.sent,
            sent_per_second: facts.rates.sent,
            received: facts.counts.received,
            received_per_second: facts.rates.received,
            refused: facts.counts.refused,
            looped: facts.counts.looped,
            too_large: facts.counts.too_large,
            dropped: facts.counts.dropped,
            lowered: facts.counts.lowered,
            drops: drops
                .filter(|(_, messages)| *messages > 0)
                .map(|(cause, messages)| BridgeDrops { cause, messages })
                .collect(),
        }
    }

    /// Returns the queue in words, with the age of its oldest message.
    pub(crate) fn queue(&self) -> String {
        let oldest = self.oldest_queued_age.and_then(|secs| Duration::try_from_secs_f64(secs).ok());
        let oldest = oldest.map(|age| format!(", oldest {}", long(age))).unwrap_or_default();
        match self.queued {
            0 => "0".to_owned(),
            queued => {
                let messages = counted(queued as u64, "message");
                format!("{messages}, {}{oldest}", bytes(self.queued_bytes as u64))
            }
        }
    }

    /// Returns the number of messages in a direction, with those of a second.
    pub(crate) fn passed(messages: u64, rate: f64) -> String {
        format!("{}, {}", count(messages), per_second(rate))
    }

    /// Returns what is wrong, each as a sentence without its full stop. Empty if all is well.
    pub(crate) fn troubles(&self) -> Vec<String> {
        let next = self.next_attempt_in.and_then(|secs| Duration::try_from_secs_f64(secs).ok());
        let next = next.map(|wait| format!("next attempt in {}", seconds(wait)));
        let stall = self.oldest_unacknowledged.as_ref().and_then(StallRow::overdue);
        let drops = self.drops.iter().map(|drops| format!("{} {}", count(drops.messages), drops.cause));
        let listed =
            |what: &str, of: Vec<String>| (!of.is_empty()).then(|| format!("{what}: {}", of.join(", ")));
        let with_count =
            |what: &str, messages: u64| (messages > 0).then(|| format!("{what}: {}", count(messages)));
        let all = [
            self.last_error.clone(),
            next,
            stall,
            with_count("sessions that the other broker lost", self.sessions_lost),
            listed("refused filters", self.refused_filters.clone()),
            with_count("refused of the other broker", self.refused + self.too_large),
            with_count("in a loop", self.looped),
            listed("dropped", drops.collect()),
            with_count("sent with a lower QoS", self.lowered),
        ];
        all.into_iter().flatten().collect()
    }
}
