//! The state of the bridges, for operators.

use crate::bridge::CLIENT_ID_PREFIX;
use crate::bridge::link::LinkCounts;
use crate::bridge::{self, BridgeState, ConnectOrder};
use crate::mqtt::packet::ProtocolVersion;
use crate::operators::query::SessionSummary;
use crate::session::drops::Counts;
use crate::session::outbound::queue::QueueBounds;
use crate::session::outbound::stall::Stall;
use crate::time::Instant;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// The facts about one bridge.
#[derive(Clone, Debug)]
pub struct BridgeFacts {
    /// The name.
    pub name: Arc<str>,
    /// The state.
    pub state: BridgeState,
    /// The time at which the state began.
    pub since: Instant,
    /// The time of the next attempt; [`Instant::NEVER`] if none is waited for.
    pub next_attempt: Instant,
    /// The address of the present or the last attempt; empty before the first.
    pub address: String,
    /// The version of the present or the last connection.
    pub version: Option<ProtocolVersion>,
    /// Why the last connection or attempt ended; empty without one.
    pub last_error: String,
    /// Attempts since the bridge began.
    pub attempts: u64,
    /// Connections that were established since.
    pub established: u64,
    /// Connections at which the other broker had lost the session.
    pub sessions_lost: u64,
    /// Filters that a side does not let the bridge subscribe to, as of the present connection.
    pub refused_filters: Vec<String>,
    /// Messages that the other broker has not acknowledged.
    pub unacknowledged: usize,
    /// The time of its last acknowledgement; [`Instant::NEVER`] without one.
    pub last_acknowledged: Instant,
    /// The bounds of the session's queue.
    pub queue: QueueCapacity,
    /// The messages since the bridge began.
    pub counts: LinkCounts,
    /// The messages of the last seconds.
    pub rates: BridgeRates,
    /// The messages of the session that were dropped since the bridge began. They are counted
    /// within 10 s. One that the link drops is a negative acknowledgement here.
    pub drops: Counts,
    /// The session as it was a moment ago; `None` if there is none yet.
    pub session: Option<SessionFigures>,
}

/// The bounds of the queue of a bridge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCapacity {
    /// Messages.
    pub messages: usize,
    /// Bytes.
    pub bytes: usize,
}

impl QueueCapacity {
    /// Returns these bounds with those of one bridge.
    pub(super) fn within(self, own: &QueueBounds) -> QueueCapacity {
        let (messages, bytes) = (own.messages.unwrap_or(self.messages), own.bytes.unwrap_or(self.bytes));
        QueueCapacity { messages, bytes }
    }
}

/// The messages of a bridge per second, as the mean of the time between two looks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BridgeRates {
    /// To the other broker.
    pub sent: f64,
    /// From the other broker.
    pub received: f64,
}

/// The session of a bridge at one moment.
#[derive(Clone, Debug)]
pub struct SessionFigures {
    /// The session.
    pub row: SessionSummary,
    /// The oldest unacknowledged message with its diagnosed cause; `None` if all is acknowledged,
    /// and while the bridge is not connected.
    pub stall: Option<Stall>,
}

impl BridgeFacts {
    /// Returns the client identifier of the session.
    pub fn client_id(&self) -> String {
        bridge::client_id(&self.name)
    }

    /// Returns the part of the queue's bounds that is used: 1 for a full queue.
    #[expect(clippy::cast_precision_loss, reason = "people and alerts need three digits")]
    pub fn queue_used(&self) -> f64 {
        let Some(SessionFigures { row, .. }) = &self.session else { return 0.0 };
        let used = |used: usize, most: usize| used as f64 / most.max(1) as f64;
        used(row.queued, self.queue.messages).max(used(row.queued_bytes, self.queue.bytes))
    }
}

/// The facts about one bridge, which its task changes and operators read, and the last order of an
/// operator. The order holds over reloads, until the next order.
#[derive(Debug)]
pub(super) struct BridgeReport {
    facts: Mutex<BridgeFacts>,
    order: watch::Sender<ConnectOrder>,
    is_connected: watch::Sender<bool>,
}

impl BridgeReport {
    fn new(name: &str, now: Instant) -> BridgeReport {
        let facts = BridgeFacts {
            name: name.into(),
            state: BridgeState::Dialling,
            since: now,
            next_attempt: Instant::NEVER,
            address: String::new(),
            version: None,
            last_error: String::new(),
            attempts: 0,
            established: 0,
            sessions_lost: 0,
            refused_filters: Vec::new(),
            unacknowledged: 0,
            last_acknowledged: Instant::NEVER,
            queue: QueueCapacity::default(),
            counts: LinkCounts::default(),
            rates: BridgeRates::default(),
            drops: Counts::default(),
            session: None,
        };
        BridgeReport {
            facts: Mutex::new(facts),
            order: watch::Sender::default(),
            is_connected: watch::Sender::default(),
        }
    }

    /// Returns true in it while the bridge is connected.
    pub(super) fn connected(&self) -> watch::Receiver<bool> {
        self.is_connected.subscribe()
    }

    /// Returns the orders of operators.
    pub(super) fn orders(&self) -> watch::Receiver<ConnectOrder> {
        self.order.subscribe()
    }

    /// Notes that the connection that was ordered is not needed any more.
    pub(super) fn end_order(&self) {
        self.order.send_if_modified(|order| {
            *order = ConnectOrder::None;
            false
        });
    }

    /// Changes the facts.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut BridgeFacts) -> T) -> T {
        change(&mut lock(&self.facts))
    }

    /// Notes that a state begins.
    pub(super) fn enter(&self, now: Instant, state: BridgeState) {
        self.change(|facts| {
            (facts.state, facts.since, facts.next_attempt) = (state, now, Instant::NEVER);
        });
        let is_connected = state == BridgeState::Established;
        self.is_connected.send_if_modified(|was| std::mem::replace(was, is_connected) != is_connected);
    }
}

/// The bridges of the broker.
#[derive(Debug, Default)]
pub struct BridgeDirectory(Mutex<Vec<Arc<BridgeReport>>>);

impl BridgeDirectory {
    /// Returns the facts about all bridges, by name.
    pub fn all(&self) -> Vec<BridgeFacts> {
        let mut all: Vec<BridgeFacts> =
            lock(&self.0).iter().map(|report| lock(&report.facts).clone()).collect();
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }

    /// Gives a bridge an order. Returns false if there is no such bridge.
    pub fn order(&self, name: &str, order: ConnectOrder) -> bool {
        let reports = lock(&self.0);
        let report = reports.iter().find(|report| *lock(&report.facts).name == *name);
        report.is_some_and(|report| {
            report.order.send_replace(order);
            true
        })
    }

    /// Returns the facts about the bridge whose session has this client identifier, if any.
    pub fn of_client(&self, client_id: &str) -> Option<BridgeFacts> {
        let name = client_id.strip_prefix(CLIENT_ID_PREFIX)?;
        let found = |facts: &mut BridgeFacts| (*facts.name == *name).then(|| facts.clone());
        self.reports().iter().find_map(|report| report.change(found))
    }

    /// Returns the reports of all bridges.
    pub(super) fn reports(&self) -> Vec<Arc<BridgeReport>> {
        lock(&self.0).clone()
    }

    /// Counts dropped messages of a client, if the client is a bridge.
    pub(in crate::broker) fn count_drops(&self, client_id: &str, drops: &Counts) {
        let Some(name) = client_id.strip_prefix(CLIENT_ID_PREFIX) else { return };
        let count = |facts: &mut BridgeFacts| (*facts.name == *name).then(|| facts.drops.merge(drops));
        let _ = self.reports().iter().find_map(|report| report.change(count));
    }

    /// Returns the report of a bridge, a new one if there is none. A changed bridge goes on with
    /// its counts.
    pub(super) fn report_of(&self, name: &str, now: Instant) -> Arc<BridgeReport> {
        let mut reports = lock(&self.0);
        if let Some(report) = reports.iter().find(|report| *lock(&report.facts).name == *name) {
            return Arc::clone(report);
        }
        let report = Arc::new(BridgeReport::new(name, now));
        reports.push(Arc::clone(&report));
        report
    }

    /// Adds a bridge.
    #[cfg(test)]
    pub(in crate::broker) fn add(&self, name: &str) {
        self.report_of(name, Instant::ZERO);
    }

    /// Forgets the bridges whose names `is_kept` does not have.
    pub(super) fn keep(&self, is_kept: impl Fn(&str) -> bool) {
        lock(&self.0).retain(|report| is_kept(&lock(&report.facts).name));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
