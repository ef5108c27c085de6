//! What a bridge needs of its session here before it connects, and a sink of its deliveries.

use crate::bridge::hello::{CONNECTED, DISCONNECTED};
use crate::bridge::link::FRESH_SESSION;
use crate::mqtt::packet::PacketId;
use crate::operators::command::{CarriedOut, Command};
use crate::operators::session_rows::OwnSubscription;
use crate::persistence::rows::Entry;
use crate::session::outbound::stall::SocketView;
use crate::shard::{Input, Shard};
use crate::time::Instant;

/// Looks at the session of a bridge. Carried out while the bridge is not connected.
#[derive(Clone, Debug)]
pub struct PrepareBridge {
    /// The client identifier of the bridge.
    pub client_id: Box<str>,
    /// What the other broker has.
    pub there: SessionThere,
}

/// The session of a bridge at the other broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionThere {
    /// Unknown, or as before.
    Kept,
    /// Gone. The identifiers of the other broker denote new messages, so those of its QoS 2
    /// messages are forgotten here.
    Lost,
}

/// The session of a bridge here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BridgeSession {
    /// True if there is no session, or if the session has never been connected with the other
    /// broker.
    pub is_fresh: bool,
    /// Its Topic Filters.
    pub filters: Vec<String>,
    /// QoS 2 identifiers that were forgotten.
    pub forgotten: usize,
    /// The messages in its queue.
    pub queued: usize,
    /// The client's unacknowledged messages in flight.
    pub in_flight: usize,
}

impl Command for PrepareBridge {
    type Outcome = BridgeSession;

    fn carry_out(&self, now: Instant, _: SocketView, shard: &mut Shard) -> CarriedOut<BridgeSession> {
        let mut shard = shard.control(now);
        let Some(id) = shard.view().find(&self.client_id) else {
            let outcome = BridgeSession { is_fresh: true, ..BridgeSession::default() };
            return CarriedOut { outcome, commit: None };
        };
        let forgotten = match self.there {
            SessionThere::Kept => 0,
            SessionThere::Lost => shard.forget_incoming(id),
        };
        let view = shard.view();
        let is_marked = |filter: &str| OwnSubscription::of(view, id, filter).id == FRESH_SESSION;
        let outcome = view.session(id).map(|entry| BridgeSession {
            is_fresh: entry.session.subscriptions.iter().any(is_marked),
            filters: entry.session.subscriptions.iter().map(str::to_owned).collect(),
            forgotten,
            queued: entry.session.sender.queue.len(),
            in_flight: entry.session.sender.window.len(),
        });
        let outcome = outcome.unwrap_or_default();
        CarriedOut { outcome, commit: if forgotten > 0 { shard.commit() } else { None } }
    }
}

/// Publishes the state of a bridge here, retained.
#[derive(Clone, Debug)]
pub struct PublishBridgeState {
    /// The topic.
    pub topic: Box<str>,
    /// True if the bridge is connected.
    pub is_connected: bool,
}

impl Command for PublishBridgeState {
    type Outcome = ();

    fn carry_out(&self, now: Instant, _: SocketView, shard: &mut Shard) -> CarriedOut<()> {
        let payload = if self.is_connected { CONNECTED } else { DISCONNECTED };
        shard.input(now, Input::Own(&self.topic, payload));
        CarriedOut { outcome: (), commit: None }
    }
}

/// Asks for the numbers of deliveries that a connected sink has in flight. A number is the same
/// after a crash, and no other delivery of the store ever has it. A delivery that is not stored has
/// its place in the window for a number.
///
/// Answered once the deliveries are committed: a number that a crash takes back could be given to
/// another delivery.
#[derive(Clone, Debug)]
pub struct NumberDeliveries {
    /// The client identifier of the sink.
    pub client_id: Box<str>,
    /// The Packet Identifiers of the deliveries.
    pub ids: Vec<PacketId>,
}

impl Command for NumberDeliveries {
    /// The number of each identifier; `None` if no message is in flight under it.
    type Outcome = Vec<Option<u64>>;

    fn carry_out(&self, now: Instant, _: SocketView, shard: &mut Shard) -> CarriedOut<Vec<Option<u64>>> {
        let shard = shard.control(now);
        let view = shard.view();
        let Some(entry) = view.find(&self.client_id).and_then(|id| view.session(id)) else {
            return CarriedOut { outcome: vec![None; self.ids.len()], commit: None };
        };
        let window = &entry.session.sender.window;
        let mut commit = None;
        let outcome = self.ids.iter().map(|id| {
            let (delivery, running) = window.delivery_under(*id)?;
            let stored = delivery.stored.as_deref();
            commit = commit.max(stored.and_then(Entry::pending));
            Some(stored.map_or(running, |stored| stored.number().0))
        });
        CarriedOut { outcome: outcome.collect(), commit }
    }
}
