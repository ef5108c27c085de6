//! The state of the bridges, for operators.

use super::reports::{FarDirectory, FarFacts, FarReport, FarSession};
use crate::bridge::link::LinkCounts;
use crate::bridge::{BridgeState, CLIENT_ID_PREFIX, ConnectOrder};
use crate::mqtt::packet::ProtocolVersion;
use crate::time::Instant;
use std::sync::Arc;
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
    /// The time from which the bridge is not connected although it should be;
    /// [`Instant::NEVER`] while it is as it should be.
    pub down_since: Instant,
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
    /// The time of the last of these; [`Instant::NEVER`] without one.
    pub last_session_lost: Instant,
    /// Filters that a side does not let the bridge subscribe to, as of the present connection.
    pub refused_filters: Vec<String>,
    /// Messages that the other broker has not acknowledged.
    pub unacknowledged: usize,
    /// The time of its last acknowledgement; [`Instant::NEVER`] without one.
    pub last_acknowledged: Instant,
    /// The messages since the bridge began.
    pub counts: LinkCounts,
    /// The messages of the last seconds.
    pub rates: BridgeRates,
    /// The session. A message that the link drops is a negative acknowledgement among its drops.
    pub session: FarSession,
}

/// The messages of a bridge per second, as the mean of the time between two looks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BridgeRates {
    /// To the other broker.
    pub sent: f64,
    /// From the other broker.
    pub received: f64,
}

impl FarFacts for BridgeFacts {
    const PREFIX: &'static str = CLIENT_ID_PREFIX;

    type Orders = BridgeOrders;

    fn new(name: &str, now: Instant) -> BridgeFacts {
        BridgeFacts {
            name: name.into(),
            state: BridgeState::Dialling,
            since: now,
            down_since: now,
            next_attempt: Instant::NEVER,
            address: String::new(),
            version: None,
            last_error: String::new(),
            attempts: 0,
            established: 0,
            sessions_lost: 0,
            last_session_lost: Instant::NEVER,
            refused_filters: Vec::new(),
            unacknowledged: 0,
            last_acknowledged: Instant::NEVER,
            counts: LinkCounts::default(),
            rates: BridgeRates::default(),
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
        [self.counts.sent, self.counts.received]
    }

    fn set_rates(&mut self, [sent, received]: [f64; 2]) {
        self.rates = BridgeRates { sent, received };
    }
}

/// The last order of an operator, which holds until the next one, and the news about the connection.
#[derive(Debug, Default)]
pub struct BridgeOrders {
    order: watch::Sender<ConnectOrder>,
    is_connected: watch::Sender<bool>,
}

/// The report about one bridge.
pub type BridgeReport = FarReport<BridgeFacts>;

impl BridgeReport {
    /// Returns true in it while the bridge is connected.
    pub(super) fn connected(&self) -> watch::Receiver<bool> {
        self.orders.is_connected.subscribe()
    }

    /// Returns the orders of operators.
    pub(super) fn orders(&self) -> watch::Receiver<ConnectOrder> {
        self.orders.order.subscribe()
    }

    /// Notes that the connection that was ordered is not needed any more.
    pub(super) fn end_order(&self) {
        self.orders.order.send_if_modified(|order| {
            *order = ConnectOrder::None;
            false
        });
    }

    /// Notes that a state begins.
    pub(super) fn enter(&self, now: Instant, state: BridgeState) {
        self.change(|facts| {
            (facts.state, facts.since, facts.next_attempt) = (state, now, Instant::NEVER);
            if matches!(state, BridgeState::Established | BridgeState::Idle) {
                facts.down_since = Instant::NEVER;
            } else if facts.down_since.is_never() {
                facts.down_since = now;
            }
        });
        let is_connected = state == BridgeState::Established;
        self.orders.is_connected.send_if_modified(|was| std::mem::replace(was, is_connected) != is_connected);
    }
}

/// The bridges of the broker.
pub type BridgeDirectory = FarDirectory<BridgeFacts>;

impl BridgeDirectory {
    /// Gives a bridge an order. Returns false if there is no such bridge.
    pub fn order(&self, name: &str, order: ConnectOrder) -> bool {
        self.find(name).is_some_and(|report| {
            report.orders.order.send_replace(order);
            true
        })
    }
}
