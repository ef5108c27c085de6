//! Takes apart the peer batches that come from other shards, and answers them.

use crate::durability::publication::Publication;
use crate::mqtt::outcome::Outcome;
use crate::peers::barrier::AfterBarrier;
use crate::peers::peer_batch::{Item, ReportTo, SharedMessage};
use crate::peers::underway::Underway;
use crate::persistence::records::Lsn;
use crate::routing::retained_order::Place;
use crate::routing::subscription_tree::{Matches, ShardId};
use crate::shard::Shard;
use crate::shard::clients::pause::Pause;
use crate::shard::core::Core;
use crate::shard::delivery::fans::{DeliveryTurns, MatchExtent, PublicationOrigin};
use crate::shard::delivery::receivers::deliver_matches;
use crate::shard::share::SharedDelivery;
use crate::time::Instant;

impl Underway {
    /// Takes the batch apart as far as this turn allows. The publications and their ticket come
    /// first, so that the ticket precedes every deferred answer to one of them. The other items
    /// follow in their order. Publications do not depend on these items.
    pub(crate) fn take_up(mut self: Box<Self>, now: Instant, shard: &mut Shard) {
        while let Some(item) = self.items.next() {
            match item {
                Item::Publish { message, publisher, transaction, set_mark } => {
                    shard.routes.retained_order.note_routed(set_mark);
                    let mut publication = Publication::of(&message, publisher);
                    publication.gate = Some(self.gate());
                    let (extent, mut matches) = shard.routes.receivers(message.topic(), &mut shard.core);
                    shard.core.durability.begin_peer_delivery(&mut publication, transaction);
                    let turns = DeliveryTurns::Several;
                    let delivered = match extent {
                        MatchExtent::All => {
                            deliver_matches(now, &mut publication, &mut matches, turns, &mut shard.core)
                        }
                        large => Err(large),
                    };
                    let outcome = match delivered {
                        Ok(outcome) => outcome,
                        Err(extent) => return self.fan_out(&mut publication, extent, matches, shard),
                    };
                    shard.routes.router.give_back_matches(matches);
                    let deferred = publication.held;
                    self.end_publication(&mut publication, outcome, deferred, &mut shard.core);
                }
                Item::Share(share) => self.take_share(now, &share, shard),
                other => {
                    self.others.push(other);
                    continue;
                }
            }
            shard.core.turn.spend(1);
            if shard.core.turn.is_over() && self.items.len() > 0 {
                return self.put_off(shard);
            }
        }
        self.end(now, shard);
    }

    /// Lets a publication of the batch continue in later turns, and the rest of the batch behind
    /// it.
    fn fan_out(
        self: Box<Self>,
        publication: &mut Publication<'_>,
        extent: MatchExtent,
        matches: Box<Matches>,
        shard: &mut Shard,
    ) {
        if let Some(write_buffer) = shard.core.durability.write_buffer() {
            write_buffer.suspend_participation();
        }
        shard.fans.fan_out(publication, extent, matches, PublicationOrigin::PeerBatch, &mut shard.core);
        self.put_off(shard);
    }

    /// Delivers a message of a shared subscription, or sends it on to another member.
    fn take_share(&mut self, now: Instant, share: &SharedMessage, shard: &mut Shard) {
        let mut publication = Publication::of(&share.message, None);
        shard.core.durability.begin_peer_delivery(&mut publication, share.transaction);
        let gate = self.gate();
        let (outcome, deferred) =
            match shard.routes.take_share(now, share, &mut publication, gate, &mut shard.core) {
                SharedDelivery::Settled(outcome) => (outcome, 0),
                // The shard of the next member answers later, or the member that holds the message
                // does.
                SharedDelivery::Underway { .. } | SharedDelivery::Held => (Outcome::Unmatched, 1),
            };
        self.end_publication(&mut publication, outcome, deferred, &mut shard.core);
    }

    /// Returns the gate of the next publication.
    fn gate(&self) -> ReportTo {
        ReportTo::Peer { shard: self.from, number: self.number, index: self.publications }
    }

    /// Ends a publication of the batch. `deferred` is the number of answers that follow the ticket.
    pub(crate) fn end_publication(
        &mut self,
        publication: &mut Publication<'_>,
        outcome: Outcome,
        deferred: u32,
        core: &mut Core,
    ) {
        let dead_letters = core.begin_for_dead_letters();
        let (from, number) = (self.from, self.number);
        let readiness = core.durability.end_peer_delivery(publication, outcome, from, number, dead_letters);
        self.delivered(outcome, deferred, readiness);
    }

    /// Lets the rest of the batch wait for a later turn. Promises the ticket, so that no deferred
    /// answer precedes it.
    fn put_off(mut self: Box<Self>, shard: &mut Shard) {
        if !std::mem::replace(&mut self.put_off, true)
            && let Some(peer) = shard.core.peers.peer(self.from)
        {
            peer.promise(self.number);
        }
        shard.fans.put_off_batch(self);
    }

    /// Sends the ticket for the publications of the batch, then handles the other items.
    fn end(self, now: Instant, shard: &mut Shard) {
        let Underway { from, number, publications, not_taken, deferred, others, needs, put_off, .. } = self;
        let committed = shard.core.durability.write_buffer().map_or(Lsn(0), |l| l.last_committed());
        if publications > 0
            && let Some(peer) = shard.core.peers.peer(from)
        {
            let ticket = Item::Ticket { number, not_taken, deferred };
            if put_off {
                peer.answer_promised(number, ticket, needs, committed);
            } else {
                peer.answer(number, ticket, needs);
            }
        }
        shard.core.turn.spend(others.len() as u32);
        for item in others {
            take_item(now, from, item, shard);
        }
    }
}

/// Handles an item that is not a publication.
fn take_item(now: Instant, from: ShardId, item: Item, shard: &mut Shard) {
    match item {
        Item::Ticket { number, not_taken, deferred } => {
            take_ticket(now, from, number, &not_taken, &deferred, shard);
        }
        Item::Late { number, index, outcome } => {
            let peer = shard.core.peers.peer(from);
            if let Some((gate, outcome)) = peer.and_then(|p| p.late(number, index, outcome)) {
                shard.answer_gate(now, gate, outcome);
            }
        }
        Item::Interest { filter, interest } => shard.routes.router.set_peer_interest(&filter, from, interest),
        Item::Join { group, filter, member } => {
            shard.routes.router.join(&group, &filter, member);
        }
        Item::Leave { group, filter, address } => {
            shard.routes.drop_member(&group, &filter, address);
        }
        Item::Presence { address, presence } => {
            shard.routes.router.set_presence(address, presence);
        }
        Item::PeerBarrier { token } => {
            let at = shard.routes.retained_order.last();
            if let Some(peer) = shard.core.peers.peer(from) {
                peer.send(Item::Passed { token, at });
            }
        }
        Item::Passed { token, at } => pass_barrier(now, (from, at), token, shard),
        // `Underway` handles publications by itself.
        Item::Publish { .. } | Item::Share(_) => {}
    }
}

/// Takes in a ticket. Answers the gates that wait for it, and unpauses publishers that waited for
/// room.
fn take_ticket(
    now: Instant,
    from: ShardId,
    number: u64,
    not_taken: &[(u32, Outcome)],
    deferred: &[(u32, u32)],
    shard: &mut Shard,
) {
    // Each shard knows all its peers.
    let Some(peer) = shard.core.peers.peer(from) else { return };
    let waiters = peer.settle(number);
    shard.core.turn.spend(waiters.len() as u32);
    for waiter in waiters {
        let index = waiter.index;
        let found = not_taken.binary_search_by_key(&index, |(index, _)| *index);
        let outcome = found.map_or(Outcome::Taken, |at| not_taken[at].1);
        let answers =
            deferred.binary_search_by_key(&index, |(index, _)| *index).map_or(0, |at| deferred[at].1);
        if answers == 0 {
            shard.answer_gate(now, waiter.report_to, outcome);
        } else if let Some(peer) = shard.core.peers.peer(from) {
            peer.defer(number, &waiter, answers, outcome);
        }
    }
    for id in shard.core.peers.freed_by(from) {
        shard.core.unpause(now, id, Pause::Peer);
    }
    shard.work.later(shard.delayed.peers_have_room(&shard.core.peers));
}

/// Notes that a peer passed a barrier, at a place of its own order. Does the work that waits for
/// the barrier if that was the last peer.
fn pass_barrier(now: Instant, by: (ShardId, Place), token: u64, shard: &mut Shard) {
    match shard.core.peers.pass_barrier(token, by) {
        Some(AfterBarrier::Answer { connection, session, answer }) => {
            let left = answer.send(now, connection, session, shard);
            shard.work.pause_for(now, connection, left, &mut shard.core.connections);
            shard.core.unpause(now, connection, Pause::PeerBarrier);
        }
        Some(AfterBarrier::ReadOrphanedQueues) => shard.routes.members_are_known(now, &mut shard.core),
        None => {}
    }
}
