//! The attempts of one bridge, and the waits between them.

use super::attempt::{Attempt, AttemptEnd};
use super::parts::{BridgeParts, OwnLimits};
use super::session::SessionHere;
use super::status::BridgeReport;
use crate::auth::random::random;
use crate::bridge::BridgeState;
use crate::bridge::backoff::Backoff;
use crate::bridge::rules::TopicRules;
use crate::broker::live_files::READ;
use crate::clock;
use crate::config::{Balance, Bridge, BridgeVersion};
use crate::file_thread::FileThread;
use crate::mqtt::packet::ProtocolVersion;
use crate::operators::bridge_command::SessionThere;
use crate::time::millis;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::watch;
use tracing::{info, warn};

/// The end of a bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The bridge goes on.
    NotYet,
    /// Its configuration has changed, so it begins anew.
    Changed,
    /// The configuration has it no more.
    Removed,
    /// The broker stops.
    Stopped,
}

/// One bridge.
pub(super) struct BridgeTask {
    bridge: Bridge,
    own: OwnLimits,
    rules: Arc<TopicRules>,
    session: SessionHere,
    report: Arc<BridgeReport>,
    files: FileThread,
    ends: watch::Receiver<Ending>,
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
        }
    }

    /// Connects again and again, until the bridge ends.
    pub(super) async fn run(self: Rc<BridgeTask>) {
        let mut ends = self.ends.clone();
        let mut never = self.ends.clone();
        tokio::select! {
            biased;
            () = self.attempts(&mut ends) => {}
            // Attempts that are under way are given up. An established connection ends by itself.
            () = ended_before_established(&mut never, &self.report) => {}
        }
        if *self.ends.borrow() == Ending::Removed {
            self.report_removed().await;
        }
    }

    async fn attempts(&self, ends: &mut watch::Receiver<Ending>) {
        let (first, most) = self.bridge.waits();
        let mut backoff = Backoff::new(first, most);
        let mut is_fresh = None;
        let mut turn = 0_usize;
        let mut version = self.bridge.version().first();
        let attempt = Attempt {
            bridge: &self.bridge,
            own: self.own,
            rules: &self.rules,
            session: &self.session,
            report: &self.report,
            files: &self.files,
        };
        loop {
            if is_fresh.is_none() {
                match self.session.subscribe(&self.rules).await {
                    Ok(is_new) => is_fresh = Some(is_new),
                    Err(end) => {
                        self.wait(&end, &mut backoff).await;
                        continue;
                    }
                }
            }
            let Some(address) = self.address(turn) else { return };
            let established = self.report.change(|facts| facts.established);
            let mut is_new = is_fresh.unwrap_or(false);
            let end = attempt.run(address, version, &mut is_new, ends).await;
            is_fresh = Some(is_new);
            if matches!(end, AttemptEnd::Ended(_)) {
                return;
            }
            let was_established = self.report.change(|facts| facts.established) > established;
            if was_established {
                backoff.reset();
                turn = if self.bridge.balance == Some(Balance::RoundRobin) { turn + 1 } else { 0 };
            } else {
                turn += 1;
            }
            let is_auto = self.bridge.version() == BridgeVersion::Auto;
            if is_auto && attempt.may_speak_less(&end, version) {
                info!(event = "bridge.version_lowered", bridge = self.bridge.label(), %address, "the other broker does not accept MQTT 5.0, so the bridge speaks 3.1.1: {end}");
                (version, turn) = (ProtocolVersion::V3_1_1, turn.saturating_sub(1));
                continue;
            }
            if !was_established {
                // The other broker may be a newer one when it is back.
                version = self.bridge.version().first();
            }
            self.wait(&end, &mut backoff).await;
        }
    }

    fn address(&self, turn: usize) -> Option<&crate::config::BridgeAddress> {
        let addresses = self.bridge.addresses.as_deref().unwrap_or_default();
        addresses.get(turn % addresses.len().max(1))
    }

    /// Reports the end of an attempt, and waits for the next one.
    async fn wait(&self, end: &AttemptEnd, backoff: &mut Backoff) {
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
        tokio::time::sleep(wait).await;
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
            client_id = self.session.client_id,
            "the configuration has this bridge no more: its session stays until it expires, with its messages"
        );
    }
}

/// Waits until a bridge ends that has no connection.
async fn ended_before_established(ends: &mut watch::Receiver<Ending>, report: &BridgeReport) {
    loop {
        if ends.changed().await.is_err() {
            return std::future::pending().await;
        }
        let state = report.change(|facts| facts.state);
        if !matches!(state, BridgeState::Established | BridgeState::Subscribing) {
            return;
        }
    }
}

/// Returns a number from 0 to 1.
fn chance() -> f64 {
    random::<2>().map_or(1.0, |bytes| f64::from(u16::from_le_bytes(*bytes)) / f64::from(u16::MAX))
}
