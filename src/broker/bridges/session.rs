//! The session of a bridge at its shard.

use super::attempt::AttemptEnd;
use super::dial::Dialled;
use super::door::{FarSide, ShardDoor};
use super::parts::{BridgeParts, OwnLimits};
use crate::bridge;
use crate::bridge::hello::{HelloHere, TermsThere};
use crate::bridge::link::{FRESH_SESSION, put_filters_here};
use crate::bridge::path::BrokerPath;
use crate::bridge::rules::TopicRules;
use crate::config::Bridge;
use crate::mqtt::packet::{ProtocolVersion, QoS};
use crate::operators::bridge_command::{BridgeSession, PublishBridgeState, SessionThere};
use tokio::net::UnixStream;

/// The session of one bridge.
pub(super) struct SessionHere {
    door: ShardDoor,
    session_expiry: u32,
    pub(super) in_flight: u16,
    /// This broker in the paths of messages.
    pub(super) name: Option<BrokerPath>,
}

impl SessionHere {
    pub(super) fn new(parts: BridgeParts, bridge: &Bridge, own: OwnLimits) -> SessionHere {
        let far_side = FarSide {
            client_id: bridge::client_id(bridge.label()),
            acl_user: bridge.acl_user.as_deref(),
            label: format!("bridge {}", bridge.label()),
        };
        SessionHere {
            name: parts.observer.shared().name.as_deref().and_then(BrokerPath::of),
            door: ShardDoor::new(parts, far_side),
            session_expiry: bridge.session_expiry_secs(),
            in_flight: bridge.most_in_flight().min(own.in_flight),
        }
    }

    /// Returns the client identifier.
    pub(super) fn client_id(&self) -> &str {
        &self.door.client_id
    }

    /// Looks at the session, and forgets what the other broker has lost.
    pub(super) async fn prepare(&self, there: SessionThere) -> Result<BridgeSession, AttemptEnd> {
        Ok(self.door.prepare(there).await?)
    }

    /// Gives the session its filters before the other broker is connected, so that messages wait
    /// for it from now on. Returns the session as it was before.
    pub(super) async fn subscribe(&self, rules: &TopicRules) -> Result<BridgeSession, AttemptEnd> {
        let before = self.prepare(SessionThere::Kept).await?;
        self.give_missing(rules, &before).await?;
        Ok(before)
    }

    /// Publishes the state of the bridge here.
    pub(super) async fn publish_state(&self, topic: &str, is_connected: bool) {
        // A shard that does not answer is told the next change.
        let _ = self.door.command(PublishBridgeState { topic: topic.into(), is_connected }).await;
    }

    /// Gives the session its filters. Does nothing if the session has them.
    async fn give_missing(&self, rules: &TopicRules, session: &BridgeSession) -> Result<(), AttemptEnd> {
        let filters = rules.subscriptions_here();
        let stale = stale(session, rules);
        let is_missing = |filter: &str| !session.filters.iter().any(|own| own == filter);
        if stale.is_empty() && !filters.iter().any(|(filter, _)| is_missing(filter)) {
            return Ok(());
        }
        let mark = session.is_fresh.then_some(FRESH_SESSION);
        self.give_filters(rules, &stale, mark).await
    }

    /// Notes that the session is connected with the other broker for the first time, which holds
    /// over crashes from here on. Comes before the first message passes.
    pub(super) async fn is_connected_first(&self, rules: &TopicRules) -> Result<(), AttemptEnd> {
        self.give_filters(rules, &[], None).await
    }

    async fn give_filters(
        &self,
        rules: &TopicRules,
        stale: &[String],
        mark: Option<u32>,
    ) -> Result<(), AttemptEnd> {
        let filters = rules.subscriptions_here();
        if filters.is_empty() && stale.is_empty() {
            return Ok(());
        }
        let mut out = Vec::new();
        self.hello(TermsThere::UNKNOWN, 0, &mut out)?;
        put_filters_here(&filters, stale, QoS::ExactlyOnce, mark, &mut out)?;
        Ok(self.door.set_filters(&out, !filters.is_empty()).await?)
    }

    /// Appends the CONNECT of the session. `growth` is that of topics on their way out.
    pub(super) fn hello(
        &self,
        there: TermsThere,
        growth: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), AttemptEnd> {
        let (client_id, session_expiry, in_flight) = (self.client_id(), self.session_expiry, self.in_flight);
        HelloHere { client_id, session_expiry, in_flight, growth, there }.put(out)?;
        Ok(())
    }

    /// Opens a connection to the shard, and returns the bridge's end. `there` is the connection to
    /// the other broker, whose address and socket are the client's for the shard. A broker that
    /// speaks 3.1.1 knows no Receive Maximum.
    pub(super) fn open(
        &self,
        there: Option<&Dialled>,
        version: ProtocolVersion,
    ) -> Result<UnixStream, AttemptEnd> {
        let receive_maximum = (!version.is_v5()).then_some(u16::MAX);
        let there = there.map(|there| (there.peer, Some(&there.far)));
        Ok(self.door.open(there, receive_maximum)?)
    }
}

/// Returns the filters of a session that the rules do not have.
pub(super) fn stale(session: &BridgeSession, rules: &TopicRules) -> Vec<String> {
    let filters = rules.subscriptions_here();
    let is_stale = |own: &&String| !filters.iter().any(|(filter, _)| filter == own);
    session.filters.iter().filter(is_stale).cloned().collect()
}
