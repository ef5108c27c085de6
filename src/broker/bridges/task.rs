//! The attempts of one bridge, and the waits between them.

use super::attempt::{Attempt, AttemptEnd};
use super::parts::{BridgeParts, OwnLimits};
use super::running::{Beginning, Ending, chance};
use super::session::SessionHere;
use super::status::BridgeReport;
use crate::bridge::backoff::Backoff;
use crate::bridge::rules::TopicRules;
use crate::bridge::{BridgeState, ConnectOrder, ConnectWhen};
use crate::broker::live_files::READ;
use crate::clock;
use crate::config::{Balance, Bridge, BridgeVersion};
use crate::file_thread::FileThread;
use crate::host::Names;
use crate::mqtt::packet::ProtocolVersion;
use crate::operators::bridge_command::SessionThere;
use crate::time::millis;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tracing::{info, warn};

/// The time between two looks at the session of a bridge that connects on demand. A look is one
/// question to the shard, so 1,000 such bridges ask 1,000 times a second.
const LOOK: Duration = Duration::from_secs(1);

/// One bridge.
pub(super) struct BridgeTask {
    bridge: Bridge,
    own: OwnLimits,
    rules: Arc<TopicRules>,
    session: SessionHere,
    report: Arc<BridgeReport>,
    files: FileThread,
    ends: watch::Receiver<Ending>,
    beginning: Cell<Option<Beginning>>,
}

impl BridgeTask {
    pub(super) fn new(
        parts: BridgeParts,
        bridge: Bridge,
        own: OwnLimits,
        ends: watch::Receiver<Ending>,
    ) -> BridgeTask {
        BridgeTask {
            report: parts.observer.bridges().report_of(bridge.label(), clock::now()),
            rules: Arc::new(TopicRules::new(bridge.rules())),
            session: SessionHere::new(parts, &bridge, own),
            files: FileThread::new("homing-bridge-f", READ),
            bridge,
            own,
            ends,
            beginning: Cell::default(),
        }
    }

    /// Lets the start of the broker wait until the session has its subscriptions.
    pub(super) fn holding(self, beginning: Option<Beginning>) -> BridgeTask {
        BridgeTask { beginning: Cell::new(beginning), ..self }
    }

    /// Connects again and again, until the bridge ends.
    pub(super) async fn run(self: Rc<BridgeTask>) {
        let mut ends = self.ends.clone();
        tokio::select! {
            biased;
            () = self.attempts(&mut ends) => {}
            // Attempts that are under way are given up. An established connection ends by itself.
            () = self.told_unconnected(self.ends.clone(), |_| true) => {}
            () = self.notify_here() => {}
        }
        if let Some(topic) = self.bridge.notifications() {
            self.session.publish_state(&topic, false).await;
        }
        if *self.ends.borrow() == Ending::Removed {
            self.report_removed().await;
        }
    }

    /// Returns the turn of the address after an attempt: a bridge without a balance goes back to its
    /// first one after each connection.
    fn next_turn(&self, turn: usize, was_established: bool) -> usize {
        let goes_back = was_established && self.bridge.balance != Some(Balance::RoundRobin);
        if goes_back { 0 } else { turn + 1 }
    }

    async fn attempts(&self, ends: &mut watch::Receiver<Ending>) {
        let (first, most) = self.bridge.waits();
        let mut backoff = Backoff::new(first, most);
        let mut orders = self.report.orders();
        // A session that an earlier configuration of this bridge began may have been connected.
        let mut is_fresh = false;
        let mut turn = 0_usize;
        let mut version = self.bridge.version().first();
        // True if an attempt since the last connection ended by a close without CONNACK.
        let mut was_silent = false;
        let attempt = Attempt {
            bridge: &self.bridge,
            own: self.own,
            rules: &self.rules,
            session: &self.session,
            report: &self.report,
            files: &self.files,
            names: &Names::default(),
        };
        loop {
            let order = *orders.borrow_and_update();
            // The session may have expired meanwhile, or an operator has ended it.
            let session = self.session.subscribe(&self.rules).await;
            self.beginning.take();
            let session = match session {
                Ok(session) => session,
                Err(end) => {
                    self.wait(&end, &mut backoff, &mut orders).await;
                    continue;
                }
            };
            is_fresh |= session.is_fresh;
            let has_messages = session.queued + session.in_flight > 0;
            if !self.bridge.connect_when().wants(order, has_messages) {
                self.idle(order, &mut orders).await;
                continue;
            }
            let Some(address) = self.address(turn) else { return };
            let established = self.report.change(|facts| facts.established);
            let is_disconnect = |order| order == ConnectOrder::Disconnect;
            let stopped = self.told_unconnected(orders.clone(), is_disconnect);
            let end = tokio::select! {
                biased;
                end = attempt.run(address, version, &mut is_fresh, ends, &mut orders) => end,
                () = stopped => AttemptEnd::Ordered,
            };
            // The configuration may have changed while a connection said its last words.
            if matches!(end, AttemptEnd::Ended(_)) || *ends.borrow() != Ending::NotYet {
                return;
            }
            if end.goes_on() {
                continue;
            }
            let (number, since) = self.report.change(|facts| (facts.established, facts.since));
            let was_established = number > established;
            if was_established {
                backoff.lasted(clock::now().since(since));
            }
            turn = self.next_turn(turn, was_established);
            if end.is_unneeded() {
                self.report_unneeded(&end);
                continue;
            }
            // One close without a word says too little about the version.
            let is_guess = end.is_silent() && !std::mem::replace(&mut was_silent, true);
            was_silent &= !was_established;
            let is_auto = self.bridge.version() == BridgeVersion::Auto;
            if is_auto && end.may_speak_less(version) && !is_guess {
                info!(event = "bridge.version_lowered", bridge = self.bridge.label(), %address, "the other broker does not accept MQTT 5.0, so the bridge speaks 3.1.1: {end}");
                (version, turn) = (ProtocolVersion::V3_1_1, turn.saturating_sub(1));
                continue;
            }
            // The other broker may be a newer one when it is back.
            version = self.bridge.version().first();
            self.wait(&end, &mut backoff, &mut orders).await;
        }
    }

    /// Tells the state of the bridge here, if it has a topic for it. Never ends.
    async fn notify_here(&self) {
        let mut states = self.report.connected();
        while let Some(topic) = self.bridge.notifications() {
            let is_connected = *states.borrow_and_update();
            self.session.publish_state(&topic, is_connected).await;
            if states.changed().await.is_err() {
                break;
            }
        }
        std::future::pending().await
    }

    /// Waits for an order, or until the session is worth a look again.
    async fn idle(&self, order: ConnectOrder, orders: &mut watch::Receiver<ConnectOrder>) {
        if self.report.change(|facts| facts.state) != BridgeState::Idle {
            self.report.enter(clock::now(), BridgeState::Idle);
        }
        let looks = order == ConnectOrder::None && self.bridge.connect_when() == ConnectWhen::OnDemand;
        tokio::select! {
            _ = orders.changed() => {}
            () = tokio::time::sleep(LOOK), if looks => {}
        }
    }

    /// Waits until something is told that `counts`, while the bridge has no connection.
    async fn told_unconnected<T: Copy>(&self, mut told: watch::Receiver<T>, counts: impl Fn(T) -> bool) {
        while told.changed().await.is_ok() {
            let state = self.report.change(|facts| facts.state);
            let is_connected = matches!(state, BridgeState::Established | BridgeState::Subscribing);
            if counts(*told.borrow_and_update()) && !is_connected {
                return;
            }
        }
        std::future::pending().await
    }

    /// Reports the end of a connection that nobody needs any more.
    fn report_unneeded(&self, end: &AttemptEnd) {
        if !matches!(end, AttemptEnd::Ordered) {
            self.report.end_order();
        }
        let address = self.report.change(|facts| {
            facts.last_error.clear();
            facts.unacknowledged = 0;
            facts.address.clone()
        });
        info!(
            event = "bridge.disconnected",
            bridge = self.bridge.label(),
            address,
            "the bridge has disconnected: {end}"
        );
    }

    fn address(&self, turn: usize) -> Option<&crate::config::BridgeAddress> {
        let addresses = self.bridge.addresses.as_deref().unwrap_or_default();
        addresses.get(turn % addresses.len().max(1))
    }

    /// Reports the end of an attempt, and waits for the next one. An order ends the wait.
    async fn wait(
        &self,
        end: &AttemptEnd,
        backoff: &mut Backoff,
        orders: &mut watch::Receiver<ConnectOrder>,
    ) {
        let wait = backoff.next(chance());
        let now = clock::now();
        self.report.enter(now, BridgeState::Waiting);
        let address = self.report.change(|facts| {
            facts.last_error = end.to_string();
            facts.next_attempt = now + wait;
            facts.unacknowledged = 0;
            facts.address.clone()
        });
        let next_ms = millis(wait);
        warn!(
            event = "bridge.not_connected",
            bridge = self.bridge.label(),
            address,
            next_ms,
            "the bridge is not connected: {end}"
        );
        let _ = tokio::time::timeout(wait, orders.changed()).await;
    }

    /// Says what is left of a bridge that the configuration has no more.
    async fn report_removed(&self) {
        let Ok(session) = self.session.prepare(SessionThere::Kept).await else { return };
        let (queued, in_flight) = (session.queued, session.in_flight);
        warn!(
            event = "bridge.removed",
            bridge = self.bridge.label(),
            queued,
            in_flight,
            client_id = self.session.client_id(),
            "the configuration has this bridge no more: its session stays until it expires, with its messages"
        );
    }
}
