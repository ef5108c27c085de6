//! The state of the sinks, for operators.

use crate::broker::bridges::reports::{FarDirectory, FarFacts, FarReport, FarSession};
use crate::sink::answer::Verdict;
use crate::sink::dispatcher::SinkCounts;
use crate::sink::times::RequestTimes;
use crate::sink::{CLIENT_ID_PREFIX, SinkState};
use crate::time::Instant;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The last refused messages that are kept, one for each topic.
#[cfg(feature = "sinks")]
const REFUSALS: usize = 32;

/// The facts about one sink.
#[derive(Clone, Debug)]
pub struct SinkFacts {
    /// The name.
    pub name: Arc<str>,
    /// The address of the service, without its query.
    pub url: String,
    /// The state.
    pub state: SinkState,
    /// The time at which the state began.
    pub since: Instant,
    /// The time of the next attempt; [`Instant::NEVER`] if none is waited for.
    pub next_attempt: Instant,
    /// Why the last request failed; empty while requests succeed.
    pub last_error: String,
    /// The status of the last answer, if it is why requests fail; `None` otherwise.
    pub failing_with: Option<u16>,
    /// The last answer of the service, whatever its status.
    pub last_answer: Option<AnswerFacts>,
    /// The last answer with which the service accepted messages.
    pub last_accepted: Option<AnswerFacts>,
    /// Filters that the sink may not subscribe to.
    pub refused_filters: Vec<String>,
    /// Messages that the sink has, and that the service has not accepted.
    pub unacknowledged: usize,
    /// Requests without an answer.
    pub open_requests: usize,
    /// The messages since the sink began.
    pub counts: SinkCounts,
    /// The messages that the service refused for good, by the status of its answer.
    pub refused_with: BTreeMap<u16, u64>,
    /// The last of these, the newest at the end, one for each topic.
    pub refusals: VecDeque<RefusalFacts>,
    /// The times of requests.
    pub times: RequestTimes,
    /// The messages and requests of the last seconds.
    pub rates: SinkRates,
    /// The session.
    pub session: FarSession,
}

/// An answer of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerFacts {
    /// The status.
    pub status: u16,
    /// The time at which the answer came.
    pub at: Instant,
}

/// A message that a service refused for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusalFacts {
    /// Its topic.
    pub topic: String,
    /// What the service answered, as a sentence without its full stop.
    pub cause: String,
    /// The time.
    pub at: Instant,
}

/// What a sink does in a second, as the mean of the time between two looks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SinkRates {
    /// Messages that the service accepted.
    pub delivered: f64,
    /// Requests, repetitions included.
    pub requests: f64,
}

impl FarFacts for SinkFacts {
    const PREFIX: &'static str = CLIENT_ID_PREFIX;

    type Orders = SinkOrders;

    fn new(name: &str, now: Instant) -> SinkFacts {
        SinkFacts {
            name: name.into(),
            url: String::new(),
            state: SinkState::Starting,
            since: now,
            next_attempt: Instant::NEVER,
            last_error: String::new(),
            failing_with: None,
            last_answer: None,
            last_accepted: None,
            refused_filters: Vec::new(),
            unacknowledged: 0,
            open_requests: 0,
            counts: SinkCounts::default(),
            refused_with: BTreeMap::new(),
            refusals: VecDeque::new(),
            times: RequestTimes::default(),
            rates: SinkRates::default(),
            session: FarSession::default(),
        }
    }

    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn session(&mut self) -> &mut FarSession {
        &mut self.session
    }

    fn passed(&self) -> [u64; 2] {
        [self.counts.delivered, self.counts.requests]
    }

    fn set_rates(&mut self, [delivered, requests]: [f64; 2]) {
        self.rates = SinkRates { delivered, requests };
    }
}

impl SinkFacts {
    /// Returns the status with which the service refuses the credentials of the sink at present.
    pub fn refused_credentials(&self) -> Option<u16> {
        self.failing_with.filter(|status| Verdict::speaks_of_credentials(*status))
    }

    /// Notes a message that the service refused for good.
    #[cfg(feature = "sinks")]
    pub(super) fn refuse(&mut self, refusal: RefusalFacts, status: u16) {
        *self.refused_with.entry(status).or_default() += 1;
        self.refusals.retain(|other| other.topic != refusal.topic);
        if self.refusals.len() >= REFUSALS {
            self.refusals.pop_front();
        }
        self.refusals.push_back(refusal);
    }
}

/// What the broker tells the task of a sink.
#[derive(Debug, Default)]
pub struct SinkOrders {
    /// True if the files are to be read again before the next request.
    pub(in crate::broker) reads_files: AtomicBool,
}

/// The report about one sink.
pub type SinkReport = FarReport<SinkFacts>;

#[cfg(feature = "sinks")]
impl SinkReport {
    /// Notes that a state begins. A state that goes on keeps its beginning.
    pub(super) fn enter(&self, now: Instant, state: SinkState) {
        self.change(|facts| {
            if facts.state != state {
                (facts.state, facts.since) = (state, now);
            }
            facts.next_attempt = Instant::NEVER;
        });
    }
}

/// The sinks of the broker.
pub type SinkDirectory = FarDirectory<SinkFacts>;
