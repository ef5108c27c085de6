//! The figures of one shard at one moment, for metrics and `$SYS`.

use crate::events::client_counts::ClientCounts;
use crate::events::refusals::Refusal;
use crate::session::counters::Counters;
use crate::shard::core::Core;
use crate::shard::observe::session_totals::SessionTotals;
use crate::shard::subscriptions::routes::Routes;
use std::time::Duration;

/// Figures of one shard. Housekeeping copies them out once a second.
#[derive(Clone, Debug, Default)]
pub struct ShardSnapshot {
    /// Established connections.
    pub connected: u64,
    /// Sessions, connected or not.
    pub sessions: u64,
    /// Subscriptions of all sessions.
    pub subscriptions: u64,
    /// Shared subscriptions among them.
    pub shared_subscriptions: u64,
    /// Connected clients with an overdue acknowledgement; at most 1,024 are counted.
    pub stalled: u64,
    /// Processor time of the shard's thread. The driver fills it in, because a shard has no clock.
    pub cpu: Duration,
    /// Bytes that were read and not handled.
    pub partial_bytes: u64,
    /// Peer batches that the peers have not answered.
    pub pending_peer_batches: u64,
    /// The sums of the last walk over all sessions.
    pub session_totals: SessionTotals,
    /// Counts of messages since the start.
    pub counters: Counters,
    /// Counts of clients since the start.
    pub clients: ClientCounts,
    /// The refused request that a client repeated most in the last ten minutes: five times or more.
    pub most_refused: Option<Box<Refusal>>,
}

impl ShardSnapshot {
    /// Returns the figures of a shard.
    pub(crate) fn of(core: &Core, routes: &Routes) -> ShardSnapshot {
        let Core { connections, sessions, peers, figures, counters, .. } = core;
        let tree = routes.router.tree();
        ShardSnapshot {
            connected: connections.established() as u64,
            sessions: sessions.len() as u64,
            subscriptions: tree.len() as u64,
            shared_subscriptions: tree.shared() as u64,
            stalled: figures.stalled() as u64,
            cpu: Duration::ZERO,
            partial_bytes: connections.all_partial_bytes() as u64,
            pending_peer_batches: peers.pending_batches() as u64,
            session_totals: figures.session_totals().clone(),
            counters: counters.clone(),
            clients: figures.counts.clone(),
            most_refused: figures.refusals.most_repeated().cloned().map(Box::new),
        }
    }

    /// Returns the number of sessions without a connection.
    pub fn away(&self) -> u64 {
        self.sessions.saturating_sub(self.connected)
    }

    /// Adds the figures of another shard.
    pub fn add(&mut self, other: &ShardSnapshot) {
        // Without `..`: a new figure that is not added does not compile.
        let ShardSnapshot {
            connected,
            sessions,
            subscriptions,
            shared_subscriptions,
            stalled,
            cpu,
            partial_bytes,
            pending_peer_batches,
            session_totals,
            counters,
            clients,
            most_refused,
        } = other;
        self.connected += connected;
        self.sessions += sessions;
        self.subscriptions += subscriptions;
        self.shared_subscriptions += shared_subscriptions;
        self.stalled += stalled;
        self.cpu += *cpu;
        self.partial_bytes += partial_bytes;
        self.pending_peer_batches += pending_peer_batches;
        self.session_totals.merge(session_totals);
        self.counters.add(counters);
        self.clients.merge(clients);
        let times = |most: &Option<Box<Refusal>>| most.as_ref().map_or(0, |most| most.times);
        if times(most_refused) > times(&self.most_refused) {
            self.most_refused.clone_from(most_refused);
        }
    }
}
