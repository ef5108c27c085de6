//! A sink as a row.

use super::far_session::{FarSessionRow, listed, next_attempt, with_count};
use crate::admin::human::{count, seconds};
use crate::admin::queries::waits::until;
use crate::broker::bridges::reports::FarFacts;
use crate::broker::sinks::status::{AnswerFacts, SinkFacts};
use crate::sink::SinkState;
use crate::time::Instant;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use utoipa::ToSchema;

/// A sink. Counts begin with the sink. What is in the queue and in flight is that of its session, as
/// it was up to two seconds ago. The messages of `refused` are among the drops of the session as
/// `negatively_acknowledged`.
#[derive(Deserialize, Serialize, ToSchema)]
#[schema(as = Sink)]
pub(crate) struct SinkRow {
    pub(crate) name: String,
    /// The client identifier of its session.
    pub(crate) client_id: String,
    /// The address of the service, without its query.
    pub(crate) url: String,
    pub(crate) state: SinkState,
    /// Seconds since the state began.
    pub(crate) since: f64,
    /// Seconds until the next attempt; null if none is waited for.
    #[schema(required)]
    pub(crate) next_attempt_in: Option<f64>,
    /// Why the last request failed; null while requests succeed.
    #[schema(required)]
    pub(crate) last_error: Option<String>,
    /// The last answer of the service; null before the first.
    #[schema(required)]
    pub(crate) last_answer: Option<AnswerRow>,
    /// The last answer with which the service accepted messages; null before the first.
    #[schema(required)]
    pub(crate) last_accepted: Option<AnswerRow>,
    /// Topic filters that the sink may not subscribe to.
    pub(crate) refused_filters: Vec<String>,
    #[serde(flatten)]
    #[schema(inline)]
    pub(crate) session: FarSessionRow,
    /// Messages that the sink has, and that the service has not accepted.
    pub(crate) unacknowledged: usize,
    /// Requests without an answer.
    pub(crate) open_requests: usize,
    /// Requests, repetitions included.
    pub(crate) requests: u64,
    /// The same for each of the last seconds.
    pub(crate) requests_per_second: f64,
    /// Requests that failed, and were sent again.
    pub(crate) failed: u64,
    /// Requests that the service accepted: batches of messages.
    pub(crate) batches: u64,
    /// Messages of such a request, as the mean of all; null before the first.
    #[schema(required)]
    pub(crate) messages_per_batch: Option<f64>,
    /// Seconds within which 99 % of the requests of the last half of a minute, or of a whole one,
    /// ended, rounded up to a power of two of milliseconds. Null if none ended.
    #[schema(required)]
    pub(crate) request_p99: Option<f64>,
    /// Messages that the service accepted.
    pub(crate) delivered: u64,
    /// The same for each of the last seconds.
    pub(crate) delivered_per_second: f64,
    /// Messages that the service refused for good. They became dead letters.
    pub(crate) refused: u64,
    /// The same by the status of the answer.
    pub(crate) refused_with: Vec<RefusedWith>,
    /// The last of these, the newest first, one for each topic.
    #[schema(max_items = 32)]
    pub(crate) last_refused: Vec<RefusedMessage>,
}

/// An answer of a service.
#[derive(Deserialize, Serialize, ToSchema)]
pub(crate) struct AnswerRow {
    /// The status of HTTP.
    pub(crate) status: u16,
    /// Seconds since it came.
    pub(crate) ago: f64,
}

/// The messages that a service refused with one status.
#[derive(Deserialize, Serialize, ToSchema)]
pub(crate) struct RefusedWith {
    /// The status of HTTP.
    pub(crate) status: u16,
    pub(crate) messages: u64,
}

/// A message that a service refused for good.
#[derive(Deserialize, Serialize, ToSchema)]
pub(crate) struct RefusedMessage {
    pub(crate) topic: String,
    /// What the service answered, with the beginning of its body.
    pub(crate) why: String,
    /// Seconds.
    pub(crate) ago: f64,
}

impl SinkRow {
    pub(crate) fn of(facts: &SinkFacts, now: Instant) -> SinkRow {
        let answer = |AnswerFacts { status, at }: AnswerFacts| AnswerRow { status, ago: ago(now, at) };
        let counts = facts.counts;
        SinkRow {
            client_id: facts.client_id(),
            name: facts.name.to_string(),
            url: facts.url.clone(),
            state: facts.state,
            since: ago(now, facts.since),
            next_attempt_in: until(now, facts.next_attempt),
            last_error: Some(facts.last_error.clone()).filter(|error| !error.is_empty()),
            last_answer: facts.last_answer.map(answer),
            last_accepted: facts.last_accepted.map(answer),
            refused_filters: facts.refused_filters.clone(),
            session: FarSessionRow::of(&facts.session),
            unacknowledged: facts.unacknowledged,
            open_requests: facts.open_requests,
            requests: counts.requests,
            requests_per_second: facts.rates.requests,
            failed: counts.failed,
            batches: counts.accepted,
            messages_per_batch: mean(counts.delivered, counts.accepted),
            request_p99: facts.times.recent_p99(now).map(|p99| p99.as_secs_f64()),
            delivered: counts.delivered,
            delivered_per_second: facts.rates.delivered,
            refused: counts.refused,
            refused_with: facts
                .refused_with
                .iter()
                .map(|(status, messages)| RefusedWith { status: *status, messages: *messages })
                .collect(),
            last_refused: facts
                .refusals
                .iter()
                .rev()
                .map(|refusal| RefusedMessage {
                    topic: refusal.topic.clone(),
                    why: refusal.cause.clone(),
                    ago: ago(now, refusal.at),
                })
                .collect(),
        }
    }

    /// Returns the last answer in words; empty before the first.
    pub(crate) fn answer(&self) -> String {
        let AnswerRow { status, ago } = match &self.last_answer {
            Some(answer) => answer,
            None => return String::new(),
        };
        format!("HTTP {status}, {} ago", seconds(Duration::try_from_secs_f64(*ago).unwrap_or_default()))
    }

    /// Returns the accepted requests with the messages of each, in words.
    pub(crate) fn batches(&self) -> String {
        match self.messages_per_batch {
            Some(mean) => format!("{} of {mean:.1}", count(self.batches)),
            None => "0".to_owned(),
        }
    }

    /// Returns the time of the service in words; empty if no request ended lately.
    pub(crate) fn time(&self) -> String {
        let p99 = self.request_p99.and_then(|secs| Duration::try_from_secs_f64(secs).ok());
        p99.map(seconds).unwrap_or_default()
    }

    /// Returns what is wrong, each as a sentence without its full stop. Empty if all is well.
    pub(crate) fn troubles(&self) -> Vec<String> {
        let by_status = |RefusedWith { status, messages }: &RefusedWith| {
            format!("{} with HTTP {status}", count(*messages))
        };
        let refused = self.refused_with.iter().map(by_status).collect();
        let all = [
            self.last_error.clone(),
            next_attempt(self.next_attempt_in),
            self.session.overdue(),
            with_count("requests sent again", self.failed),
            listed("refused filters", self.refused_filters.clone()),
            listed("dead letters", refused),
            self.session.dropped(),
        ];
        all.into_iter().flatten().collect()
    }
}

fn ago(now: Instant, at: Instant) -> f64 {
    now.since(at).as_secs_f64()
}

#[expect(clippy::cast_precision_loss, reason = "people read three digits")]
fn mean(of: u64, among: u64) -> Option<f64> {
    (among > 0).then(|| of as f64 / among as f64)
}
