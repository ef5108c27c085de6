//! Counts the resources that a shard holds. Tests use the counts to show that nothing leaks and
//! that bounds hold.
//!
//! Counting visits every session and every connection, so it is not a part of the regular work of a
//! turn.

use crate::mqtt::charge::{Recount, Recounted};
use crate::shard::core::Core;
use crate::shard::delivery::fans::Fans;
use crate::shard::features::delayed::Delayed;
use crate::shard::subscriptions::routes::Routes;
use crate::shard::turn::work::Work;

/// The numbers of resources that a shard holds. When every client has left and every session has
/// ended, all numbers are zero, and the value is equal to the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceUsage {
    /// Connections, established or not.
    pub connections: usize,
    /// Connections that are established.
    pub connected: usize,
    /// Sessions, connected or not.
    pub sessions: usize,
    /// Entries in the table of client identifiers.
    pub clients: usize,
    /// Filters and groups in the subscription tree: those of this shard, and those known of its
    /// peers.
    pub index_entries: usize,
    /// Shared groups whose filter is kept.
    pub shares: usize,
    /// SUBACKs, UNSUBACKs and orphaned queues that wait for a peer barrier.
    pub barriers: usize,
    /// Jobs that continue in a later turn.
    pub jobs: usize,
    /// Publications to peers that have no ticket yet or that a peer holds.
    pub outstanding: usize,
    /// Connections that wait until a peer has room.
    pub waiting_for_peer: usize,
    /// Acknowledgements to publishers that are pending.
    pub unanswered: usize,
    /// Messages that wait for room, under the policy `hold`.
    pub held: usize,
    /// Deliveries that ended sessions left in the store, and that no shard has read yet.
    pub orphaned_queues: usize,
    /// Publications that take more than one turn, and the peer batches behind them.
    pub put_off: usize,
    /// Bytes that were read from connections and not handled.
    pub partial_bytes: usize,
    /// The most messages in one session's queue.
    pub longest_queue: usize,
    /// The most bytes in one session's queue.
    pub largest_queue: usize,
    /// The most unfinished deliveries of one session.
    pub widest_window: usize,
    /// The most bytes in one connection's outbox.
    pub fullest_outbox: usize,
}

impl ResourceUsage {
    /// Counts the resources of one shard. Costs a walk over every session and connection.
    pub(crate) fn of(core: &Core, routes: &Routes, fans: &Fans, work: &Work) -> ResourceUsage {
        let session_entries = || core.sessions.iter().map(|(_, session_entry)| session_entry);
        let sender = || session_entries().map(|r| &r.session.sender);
        ResourceUsage {
            connections: core.connections.len(),
            connected: core.connections.established(),
            sessions: core.sessions.len(),
            clients: core.sessions.clients(),
            index_entries: routes.router.tree().entries(),
            shares: routes.router.groups(),
            barriers: core.peers.barriers(),
            jobs: work.len(),
            outstanding: core.peers.unsettled(),
            waiting_for_peer: core.peers.waiting_for_peer(),
            unanswered: session_entries().map(|r| r.session.receiver.unanswered()).sum(),
            held: session_entries().map(|r| r.held_messages()).sum(),
            orphaned_queues: routes.orphaned_queues.unsettled(),
            put_off: fans.len(),
            partial_bytes: core.connections.all_partial_bytes(),
            longest_queue: sender().map(|s| s.queue.len()).max().unwrap_or(0),
            largest_queue: sender().map(|s| s.queue.bytes()).max().unwrap_or(0),
            widest_window: sender().map(|s| s.window.len()).max().unwrap_or(0),
            fullest_outbox: core.connections.iter().map(|(_, c)| c.wire.outbox.len()).max().unwrap_or(0),
        }
    }
}

/// Compares the charge of each owner of memory with the memory that it holds. Returns the sum of
/// all charges. Call it between two turns.
///
/// # Errors
/// The first owner whose charge is wrong, with both numbers.
pub(crate) fn recount(core: &Core, routes: &Routes, delayed: &Delayed) -> Result<usize, String> {
    let owners = core.connections.iter().filter_map(|(_, connection)| connection.rare()?.owner.as_ref());
    let mut charged = owners.map(|owner| owner.charged()).sum();
    let mut add = |who: &str, of: Recounted| {
        charged += of.charged;
        if of.in_use == of.charged { Ok(()) } else { Err(format!("{who}: {of:?}")) }
    };
    add("routing", routes.router.recount())?;
    add("delayed messages", delayed.recount())?;
    add("stored dead letters", core.dead_letters.stored.recount())?;
    if core.peers.here().0 == 0 {
        // All shards share these topics, so only the first shard counts them.
        add("last disconnects", core.shared.totals.last_disconnects().recount())?;
    }
    for peer in core.peers.recount() {
        add("peer", peer)?;
    }
    add("orphaned_queues", routes.orphaned_queues.recount())?;
    add("order of retained messages", routes.retained_order.recount())?;
    add("gates of the store", core.durability.recount())?;
    for (_, session_entry) in core.sessions.iter() {
        let session = &session_entry.session;
        if let Some(will) = &session.will {
            add("will", will.recount())?;
        }
        add("session", session.recount())?;
        add("subscriptions", session.subscriptions.recount())?;
        add("queue and window", session.sender.recount())?;
        add("acknowledgements and identifiers", session.receiver.recount())?;
    }
    for (_, connection) in core.connections.iter() {
        let partial = connection.rare().map(|rare| rare.partial.recount());
        add("partial packet", partial.unwrap_or_default())?;
        add("CONNECT of an exchange", connection.exchange().map(Recount::recount).unwrap_or_default())?;
        // A dirty outbox is charged only when it is flushed.
        if !connection.dirty {
            add("outbox", connection.wire.outbox.recount())?;
        }
        add("outgoing aliases", connection.wire.aliases().map_or_else(Recounted::default, Recount::recount))?;
        let aliases = connection.rare().and_then(|rare| rare.aliases.as_deref());
        add("incoming aliases", aliases.map_or_else(Recounted::default, Recount::recount))?;
    }
    Ok(charged)
}
