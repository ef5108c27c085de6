//! The session of a bridge or a sink, as a part of its row.

use super::client::StallRow;
use crate::admin::human::{bytes, count, counted, long, per_second, seconds};
use crate::broker::bridges::reports::FarSession;
use crate::session::drops::DropReason;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use utoipa::ToSchema;

/// The session of a bridge or a sink, as it was up to two seconds ago.
#[derive(Deserialize, Serialize, ToSchema)]
#[schema(as = FarSession)]
pub(crate) struct FarSessionRow {
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
    /// Messages that were sent, and that are not complete.
    pub(crate) in_flight: usize,
    /// The oldest of the messages in flight.
    #[schema(required)]
    pub(crate) oldest_unacknowledged: Option<StallRow>,
    /// The messages of the session that were dropped, by cause.
    pub(crate) drops: Vec<FarDrops>,
}

/// The dropped messages of a bridge or a sink with one cause.
#[derive(Deserialize, Serialize, ToSchema)]
pub(crate) struct FarDrops {
    pub(crate) cause: DropReason,
    pub(crate) messages: u64,
}

impl FarSessionRow {
    pub(crate) fn of(session: &FarSession) -> FarSessionRow {
        let row = session.row();
        let stall = session.figures.as_ref().and_then(|figures| figures.stall);
        let drops = DropReason::ALL.into_iter().map(|cause| (cause, session.drops.of(cause)));
        FarSessionRow {
            queued: row.map_or(0, |row| row.queued),
            queued_bytes: row.map_or(0, |row| row.queued_bytes),
            queue_used: session.queue_used(),
            oldest_queued_age: row.and_then(|row| row.oldest_queued).map(|age| age.as_secs_f64()),
            in_flight: row.map_or(0, |row| row.in_flight),
            oldest_unacknowledged: row
                .and_then(|row| row.oldest)
                .map(|oldest| StallRow::of(&stall.unwrap_or(oldest), stall.is_some())),
            drops: drops
                .filter(|(_, messages)| *messages > 0)
                .map(|(cause, messages)| FarDrops { cause, messages })
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

    /// Returns the age of the oldest message that is not acknowledged, in flight or in the queue.
    pub(crate) fn oldest(&self) -> Option<f64> {
        let in_flight = self.oldest_unacknowledged.as_ref().map(|stall| stall.age);
        in_flight.into_iter().chain(self.oldest_queued_age).reduce(f64::max)
    }

    /// Returns the oldest message in flight with its holder, if it waits for long; a sentence without
    /// its full stop.
    pub(crate) fn overdue(&self) -> Option<String> {
        self.oldest_unacknowledged.as_ref().and_then(StallRow::overdue)
    }

    /// Returns the drops in words; `None` without one.
    pub(super) fn dropped(&self) -> Option<String> {
        let drops = self.drops.iter().map(|drops| format!("{} {}", count(drops.messages), drops.cause));
        listed("dropped", drops.collect())
    }
}

/// Returns a list behind its name; `None` for an empty one.
pub(super) fn listed(what: &str, of: Vec<String>) -> Option<String> {
    (!of.is_empty()).then(|| format!("{what}: {}", of.join(", ")))
}

/// Returns a number behind its name; `None` for 0.
pub(super) fn with_count(what: &str, number: u64) -> Option<String> {
    (number > 0).then(|| format!("{what}: {}", count(number)))
}

/// Returns the time until the next attempt in words; `None` if none is waited for.
pub(super) fn next_attempt(secs: Option<f64>) -> Option<String> {
    let wait = secs.and_then(|secs| Duration::try_from_secs_f64(secs).ok())?;
    Some(format!("next attempt in {}", seconds(wait)))
}

/// Returns the number of what has passed, with that of a second.
pub(crate) fn passed(number: u64, rate: f64) -> String {
    format!("{}, {}", count(number), per_second(rate))
}
