//! The door through which [`crate::operators`] looks into a shard. Nothing here changes the shard.

use crate::events::recent_drops::RecentDrops;
use crate::events::refusals::Refusals;
use crate::letters::stored_letters::StoredLetters;
use crate::login::access_rules::AccessRules;
use crate::mqtt::message::Message;
use crate::routing::router::Router;
use crate::routing::subscription_tree::ShardId;
use crate::session::policy::SendPolicy;
use crate::session::redelivery_rules::Rules;
use crate::session::slow_deliveries::SlowDeliveries;
use crate::shard::Shard;
use crate::shard::clients::connection::Connection;
use crate::shard::clients::connections::Traffic;
use crate::shard::clients::session_entry::SessionEntry;
use crate::shard::features::delayed::Delayed;
use crate::shard::features::letter_keeping;
use crate::slots::{ConnectionId, SessionId};
use crate::time::Instant;

/// One shard, borrowed to look at it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShardView<'a> {
    shard: &'a Shard,
}

impl Shard {
    /// Returns a look at the shard.
    pub(crate) fn view(&self) -> ShardView<'_> {
        ShardView { shard: self }
    }
}

/// Sessions and connections.
impl<'a> ShardView<'a> {
    /// Returns the number of the shard.
    pub(crate) fn here(self) -> ShardId {
        self.shard.core.peers.here()
    }

    /// Returns the session of a client, if there is one.
    pub(crate) fn find(self, client_id: &str) -> Option<SessionId> {
        self.shard.core.sessions.find(client_id)
    }

    pub(crate) fn session(self, id: SessionId) -> Option<&'a SessionEntry> {
        self.shard.core.sessions.get(id)
    }

    /// Returns the session that uses a slot now.
    pub(crate) fn session_at(self, slot: u32) -> Option<(SessionId, &'a SessionEntry)> {
        self.shard.core.sessions.at(slot)
    }

    /// Returns one more than the highest slot that was ever used.
    pub(crate) fn end_of_slots(self) -> u32 {
        self.shard.core.sessions.end_of_slots()
    }

    pub(crate) fn connection(self, id: ConnectionId) -> Option<&'a Connection> {
        self.shard.core.connections.get(id)
    }

    /// Returns the connection of a session; `None` while the client is away.
    pub(crate) fn connection_of(self, entry: &SessionEntry) -> Option<&'a Connection> {
        self.connection(entry.connection?)
    }

    /// Returns the traffic of a client that is connected.
    pub(crate) fn traffic(self, id: ConnectionId) -> Traffic {
        self.shard.core.connections.traffic(id)
    }

    /// Returns the time at which a connection is closed if its socket takes no bytes.
    pub(crate) fn write_deadline(self, id: ConnectionId) -> Instant {
        self.shard.core.connections.write_deadline(id)
    }

    /// Returns the rules about topics.
    pub(crate) fn access(self) -> &'a AccessRules {
        &self.shard.core.access
    }

    /// Returns the bounds of queues and outboxes.
    pub(crate) fn send_policy(self) -> &'a SendPolicy {
        &self.shard.core.settings.session.send
    }

    /// Returns the largest packet in bytes that the broker takes, at a listener without a bound of
    /// its own.
    pub(crate) fn packet_size(self) -> u32 {
        self.shard.core.settings.session.connect.packet_size
    }

    /// Returns the operator's rules about redelivery.
    pub(crate) fn redelivery_rules(self) -> &'a Rules {
        self.shard.core.sessions.rules()
    }
}

/// Subscriptions, and messages outside of sessions.
impl<'a> ShardView<'a> {
    /// Returns the subscriptions, and the shared groups of all shards.
    pub(crate) fn router(self) -> &'a Router {
        &self.shard.routes.router
    }

    /// Returns the delayed messages.
    pub(crate) fn delayed(self) -> &'a Delayed {
        &self.shard.delayed
    }

    /// Returns the stored dead letters.
    pub(crate) fn letters(self) -> &'a StoredLetters {
        &self.shard.core.dead_letters.stored
    }

    /// Returns true if the dead letter of a parked message would be stored.
    pub(crate) fn keeps_letter(self, receiver: &str, message: &Message) -> bool {
        letter_keeping::is_kept(receiver, message, &self.shard.core)
    }

    /// Returns the last dropped messages.
    pub(crate) fn recent_drops(self) -> &'a RecentDrops {
        self.shard.core.figures.drops.recent()
    }

    /// Returns the last refused requests of clients.
    pub(crate) fn refusals(self) -> &'a Refusals {
        &self.shard.core.figures.refusals
    }

    /// Returns the slow deliveries of the last hour.
    pub(crate) fn slow_deliveries(self) -> &'a SlowDeliveries {
        &self.shard.core.counters.slow
    }
}
