//! The reports about the far sides of sessions: bridges and sinks. A task changes the report about
//! its far side, and operators read it.

use crate::operators::query::SessionSummary;
use crate::session::drops::Counts;
use crate::session::outbound::queue::QueueBounds;
use crate::session::outbound::stall::Stall;
use crate::time::Instant;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The facts about one far side.
pub trait FarFacts: Clone + Debug {
    /// The beginning of the client identifiers of such far sides.
    const PREFIX: &'static str;

    /// What the broker tells the task.
    type Orders: Debug + Default;

    /// Returns the facts about a far side that begins.
    fn new(name: &str, now: Instant) -> Self;

    /// Returns the name.
    fn name(&self) -> &Arc<str>;

    /// Returns the session.
    fn session(&mut self) -> &mut FarSession;

    /// Returns the two counts whose rates are shown.
    fn passed(&self) -> [u64; 2];

    /// Sets the rates of these two counts, per second.
    fn set_rates(&mut self, rates: [f64; 2]);

    /// Returns the client identifier of the session.
    fn client_id(&self) -> String {
        format!("{}{}", Self::PREFIX, self.name())
    }
}

/// The session of a far side, for operators.
#[derive(Clone, Debug, Default)]
pub struct FarSession {
    /// The bounds of its queue.
    pub queue: QueueCapacity,
    /// The messages that were dropped since the far side began. They are counted within 10 s.
    pub drops: Counts,
    /// The session as it was a moment ago; `None` if there is none yet.
    pub figures: Option<SessionFigures>,
}

impl FarSession {
    /// Returns the session as it was a moment ago.
    pub fn row(&self) -> Option<&SessionSummary> {
        self.figures.as_ref().map(|figures| &figures.row)
    }

    /// Returns the part of the queue's bounds that is used: 1 for a full queue.
    #[expect(clippy::cast_precision_loss, reason = "people and alerts need three digits")]
    pub fn queue_used(&self) -> f64 {
        let Some(row) = self.row() else { return 0.0 };
        let used = |used: usize, most: usize| used as f64 / most.max(1) as f64;
        used(row.queued, self.queue.messages).max(used(row.queued_bytes, self.queue.bytes))
    }
}

/// The bounds of the queue of a far side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCapacity {
    /// Messages.
    pub messages: usize,
    /// Bytes.
    pub bytes: usize,
}

impl QueueCapacity {
    /// Returns these bounds with those of one far side.
    pub(super) fn within(self, own: &QueueBounds) -> QueueCapacity {
        let (messages, bytes) = (own.messages.unwrap_or(self.messages), own.bytes.unwrap_or(self.bytes));
        QueueCapacity { messages, bytes }
    }
}

/// The session of a far side at one moment.
#[derive(Clone, Debug)]
pub struct SessionFigures {
    /// The session.
    pub row: SessionSummary,
    /// The oldest unacknowledged message with its diagnosed cause; `None` if all is acknowledged,
    /// and while the far side is not connected.
    pub stall: Option<Stall>,
}

/// The report about one far side.
#[derive(Debug)]
pub struct FarReport<F: FarFacts> {
    facts: Mutex<F>,
    /// What the broker tells the task. It holds over reloads.
    pub(in crate::broker) orders: F::Orders,
}

impl<F: FarFacts> FarReport<F> {
    /// Changes the facts.
    pub(in crate::broker) fn change<T>(&self, change: impl FnOnce(&mut F) -> T) -> T {
        change(&mut lock(&self.facts))
    }
}

/// The far sides of one kind.
#[derive(Debug)]
pub struct FarDirectory<F: FarFacts>(Mutex<Vec<Arc<FarReport<F>>>>);

impl<F: FarFacts> Default for FarDirectory<F> {
    fn default() -> FarDirectory<F> {
        FarDirectory(Mutex::default())
    }
}

impl<F: FarFacts> FarDirectory<F> {
    /// Returns the facts about all far sides, by name.
    pub fn all(&self) -> Vec<F> {
        let mut all = self.look(|facts| Some(facts.clone()));
        all.sort_by(|one, other| one.name().cmp(other.name()));
        all
    }

    /// Returns the number of far sides.
    pub fn count(&self) -> usize {
        lock(&self.0).len()
    }

    /// Returns what `look` finds in the facts, in any order. Copies nothing else.
    pub fn look<T>(&self, look: impl Fn(&F) -> Option<T>) -> Vec<T> {
        self.reports().iter().filter_map(|report| report.change(|facts| look(facts))).collect()
    }

    /// Returns the facts about the far side whose session has this client identifier, if any.
    pub fn of_client(&self, client_id: &str) -> Option<F> {
        let name = client_id.strip_prefix(F::PREFIX)?;
        self.look(|facts| (**facts.name() == *name).then(|| facts.clone())).pop()
    }

    /// Returns the report about a far side.
    pub(in crate::broker) fn find(&self, name: &str) -> Option<Arc<FarReport<F>>> {
        self.reports().into_iter().find(|report| report.change(|facts| **facts.name() == *name))
    }

    /// Returns all reports.
    pub(in crate::broker) fn reports(&self) -> Vec<Arc<FarReport<F>>> {
        lock(&self.0).clone()
    }

    /// Counts dropped messages of a client, if a far side has this client's session.
    pub(in crate::broker) fn count_drops(&self, client_id: &str, drops: &Counts) {
        let Some(name) = client_id.strip_prefix(F::PREFIX) else { return };
        if let Some(report) = self.find(name) {
            report.change(|facts| facts.session().drops.merge(drops));
        }
    }

    /// Returns the report about a far side, a new one if there is none. A changed far side goes on
    /// with its counts.
    pub(in crate::broker) fn report_of(&self, name: &str, now: Instant) -> Arc<FarReport<F>> {
        if let Some(report) = self.find(name) {
            return report;
        }
        let report =
            Arc::new(FarReport { facts: Mutex::new(F::new(name, now)), orders: F::Orders::default() });
        lock(&self.0).push(Arc::clone(&report));
        report
    }

    /// Adds a far side.
    #[cfg(test)]
    pub(in crate::broker) fn add(&self, name: &str) {
        self.report_of(name, Instant::ZERO);
    }

    /// Forgets the far sides whose names `is_kept` does not have.
    pub(in crate::broker) fn keep(&self, is_kept: impl Fn(&str) -> bool) {
        lock(&self.0).retain(|report| report.change(|facts| is_kept(facts.name())));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
