//! The state of the sinks, for operators.

use crate::sink::dispatcher::SinkCounts;
use crate::sink::{self, SinkState};
use crate::time::Instant;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
    /// Filters that the sink may not subscribe to.
    pub refused_filters: Vec<String>,
    /// Messages that the sink has, and that the service has not accepted.
    pub unacknowledged: usize,
    /// Requests without an answer.
    pub open_requests: usize,
    /// The messages since the sink began.
    pub counts: SinkCounts,
}

impl SinkFacts {
    /// Returns the client identifier of the session.
    pub fn client_id(&self) -> String {
        sink::client_id(&self.name)
    }
}

/// The facts about one sink, which its task changes and operators read.
#[derive(Debug)]
pub(in crate::broker) struct SinkReport(Mutex<SinkFacts>);

#[cfg(feature = "sinks")]
impl SinkReport {
    /// Changes the facts.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut SinkFacts) -> T) -> T {
        change(&mut lock(&self.0))
    }

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
#[derive(Debug, Default)]
pub struct SinkDirectory(Mutex<Vec<Arc<SinkReport>>>);

impl SinkDirectory {
    /// Returns the facts about all sinks, by name.
    pub fn all(&self) -> Vec<SinkFacts> {
        let mut all: Vec<SinkFacts> = lock(&self.0).iter().map(|report| lock(&report.0).clone()).collect();
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }

    /// Returns the report of a sink, a new one if there is none. A changed sink goes on with its
    /// counts.
    #[cfg(feature = "sinks")]
    pub(super) fn report_of(&self, name: &str, now: Instant) -> Arc<SinkReport> {
        let mut reports = lock(&self.0);
        if let Some(report) = reports.iter().find(|report| *lock(&report.0).name == *name) {
            return Arc::clone(report);
        }
        let report = Arc::new(SinkReport(Mutex::new(SinkFacts {
            name: name.into(),
            url: String::new(),
            state: SinkState::Starting,
            since: now,
            next_attempt: Instant::NEVER,
            last_error: String::new(),
            refused_filters: Vec::new(),
            unacknowledged: 0,
            open_requests: 0,
            counts: SinkCounts::default(),
        })));
        reports.push(Arc::clone(&report));
        report
    }

    /// Forgets the sinks whose names `is_kept` does not have.
    pub(in crate::broker) fn keep(&self, is_kept: impl Fn(&str) -> bool) {
        lock(&self.0).retain(|report| is_kept(&lock(&report.0).name));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
