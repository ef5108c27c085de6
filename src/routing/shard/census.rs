//! What a shard holds right now, counted: for tests that nothing leaks and that bounds hold.
//!
//! Walks over every session and connection: never for a turn's work.

use super::Shard;
use super::exchange::Peer;
use super::share::SHARE;
use crate::mqtt::charge::{Recount, Recounted};

/// See the module's text. After every client has left and every session has ended, all of it is zero, and equal to the
/// default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    pub connections: usize,
    /// Connections that are established.
    pub connected: usize,
    pub sessions: usize,
    /// Entries of the table of client ids.
    pub clients: usize,
    /// Filters and groups in the index, this shard's and what it knows of its peers'.
    pub index_entries: usize,
    /// Shared groups whose filter is kept.
    pub shares: usize,
    /// What waits until every peer has passed: SUBACKs and UNSUBACKs, and at the start what ended sessions left.
    pub fences: usize,
    /// Work that goes on in a later turn.
    pub jobs: usize,
    /// Publications to peers without a ticket, and those that peers hold.
    pub outstanding: usize,
    /// Connections that wait until a peer has room.
    pub waiting_for_peer: usize,
    /// Acknowledgements to publishers that wait.
    pub unanswered: usize,
    /// Messages that wait for room, under the policy `hold`.
    pub held: usize,
    /// Deliveries that ended sessions left in the store, and nobody has read yet.
    pub estates: usize,
    /// What takes more than a turn: a publication, and parcels behind it.
    pub put_off: usize,
    pub partial_bytes: usize,
    /// The most messages in one session's queue, and their bytes.
    pub longest_queue: usize,
    pub largest_queue: usize,
    /// The most unfinished deliveries of one session.
    pub widest_window: usize,
    /// The most bytes in one connection's outbox.
    pub fullest_outbox: usize,
}

impl Shard {
    /// Counts anew what owners of memory have on the account, between two turns. Returns what all of them have charged, or
    /// who has charged something else than it holds.
    ///
    /// # Errors
    /// The first owner whose charge is wrong, with both figures.
    pub fn recount(&self) -> Result<usize, String> {
        let mut charged = 0;
        let mut add = |who: &str, of: Recounted| {
            charged += of.charged;
            if of.held == of.charged { Ok(()) } else { Err(format!("{who}: {of:?}")) }
        };
        add("subscription index", self.tree.recount())?;
        let shares = self.shares.values().map(|full| full.len() + SHARE).sum();
        add("shared groups", Recounted { held: shares, charged: self.shares_charge.bytes() })?;
        add("delayed messages", self.delayed.recount())?;
        if self.here.0 == 0 {
            // All shards share them.
            add("last disconnects", self.common.totals.last_disconnects().recount())?;
        }
        for (_, resident) in self.sessions.iter() {
            let session = &resident.session;
            add("session", session.recount())?;
            add("subscriptions", session.subscriptions.recount())?;
            add("queue and window", session.sender.recount())?;
        }
        for (_, connection) in self.connections.iter() {
            add("partial packet", connection.partial.recount())?;
            add("outbox", connection.wire.outbox.recount())?;
            add(
                "outgoing aliases",
                connection.wire.aliases().map_or_else(Recounted::default, Recount::recount),
            )?;
            let aliases = connection.aliases.as_deref();
            add("incoming aliases", aliases.map_or_else(Recounted::default, Recount::recount))?;
        }
        Ok(charged)
    }

    pub fn census(&self) -> Census {
        let residents = || self.sessions.iter().map(|(_, resident)| resident);
        let sender = || residents().map(|r| &r.session.sender);
        Census {
            connections: self.connections.len(),
            connected: self.connected,
            sessions: self.sessions.len(),
            clients: self.clients.len(),
            index_entries: self.tree.entries(),
            shares: self.shares.len(),
            fences: self.fences.len(),
            jobs: self.jobs.len(),
            outstanding: self.peers.iter().map(Peer::unsettled).sum(),
            waiting_for_peer: self.waiting_for_peer.len(),
            unanswered: residents().map(|r| r.session.receiver.unanswered()).sum(),
            held: residents().map(|r| r.held_messages()).sum(),
            estates: self.estates.unsettled(),
            put_off: self.fans.len(),
            partial_bytes: self.partial_bytes,
            longest_queue: sender().map(|s| s.queued()).max().unwrap_or(0),
            largest_queue: sender().map(|s| s.queued_bytes()).max().unwrap_or(0),
            widest_window: sender().map(|s| s.in_flight()).max().unwrap_or(0),
            fullest_outbox: self.connections.iter().map(|(_, c)| c.wire.outbox.len()).max().unwrap_or(0),
        }
    }
}
