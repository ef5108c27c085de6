//! The routes of a shard: from a publication to its receivers in this shard, at the peers and in
//! shared groups. The shard's subscriptions are inserted and removed here too.

use crate::durability::publication::merge;
use crate::durability::publication::{Publication, Routed, Target};
use crate::mqtt::outcome::Outcome;
use crate::mqtt::owner::Owner;
use crate::mqtt::retained_message::{RetainedMessage, RetainedSource};
use crate::mqtt::topic::TopicFilter;
use crate::peers::peer_batch::{Item, ReportTo};
use crate::persistence::records::stored_bytes;
use crate::routing::retained;
use crate::routing::retained_order::RetainedOrder;
use crate::routing::router::Router;
use crate::routing::shared_group::{Member, MemberAddress, Presence};
use crate::routing::subscription_tree::{
    Interest, Matches, PackedOptions, SessionSlot, ShardId, ShardSet, Subscribed, Subscriber, Unsubscribed,
};
use crate::session::drops::DropReason;
use crate::shard::admission::Change;
use crate::shard::core::Core;
use crate::shard::delivery::fans::{DeliveryTurns, MatchExtent};
use crate::shard::features::orphaned_queues::OrphanedQueues;
use crate::slots::SessionId;
use crate::time::Instant;
use std::sync::Arc;

/// The subscriptions, the shared groups, the messages that wait for a member of a group, and the
/// order between subscriptions and retained messages.
#[derive(Debug)]
pub(crate) struct Routes {
    pub router: Router,
    pub orphaned_queues: OrphanedQueues,
    pub retained_order: RetainedOrder,
}

/// The result of retaining a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetainedUpdate {
    /// True if the store has to commit the change before the publisher is acknowledged.
    pub waits: bool,
    /// Why there was no room for the message, if there was none.
    pub refused: Option<DropReason>,
}

impl Routes {
    /// Returns the routes of the shard `here`, without subscriptions.
    pub(crate) fn new(here: ShardId) -> Routes {
        Routes {
            router: Router::new(here),
            orphaned_queues: OrphanedQueues::default(),
            retained_order: RetainedOrder::new(here),
        }
    }

    /// Delivers a publication to every receiver in `matches`: to the sessions of this shard, to the
    /// peers, and to one member of each shared group. `publication.gate` is the gate of the
    /// publisher. Returns the outcome so far, and the number of answers that are pending.
    ///
    /// # Errors
    /// The progress, if the rest must wait for a later turn. Only sessions of this shard have the
    /// message then.
    pub(crate) fn route_matched(
        &mut self,
        now: Instant,
        publication: &mut Publication<'_>,
        matches: &mut Matches,
        turns: DeliveryTurns,
        core: &mut Core,
    ) -> Result<Routed, MatchExtent> {
        let outcome = deliver_matches(now, publication, matches, turns, core)?;
        let mut routed = Routed { outcome, gates: publication.held, full: ShardSet::EMPTY };
        if !matches.peers.is_empty() || !matches.groups.is_empty() {
            self.route_on(now, publication, matches, &mut routed, core);
        }
        Ok(routed)
    }

    /// Sends the publication to the peers and to the shared groups.
    fn route_on(
        &mut self,
        now: Instant,
        publication: &mut Publication<'_>,
        matches: &Matches,
        routed: &mut Routed,
        core: &mut Core,
    ) {
        // The gate is taken out, because a message that one member of a group has no room for is
        // offered to another member before it is held.
        let gate = publication.gate.take();
        if !matches.peers.is_empty() {
            forward(publication, matches, gate, routed, core);
        }
        for group in &matches.groups {
            self.share(now, *group, publication, gate, routed, core);
        }
    }
}

/// Retained messages.
impl Routes {
    /// Sets, replaces or erases the retained message of a topic.
    ///
    /// If there is no room for the message, the old retained message is erased all the same. A
    /// subscriber is better served with no value than with a value that is known to be old.
    ///
    /// `source` is the client that published the message, from [`Core::retained_source`], and
    /// `owner` the client for which it counts, from [`Core::owner_of`].
    // 3.1.1 [MQTT-3.3.1-5], [MQTT-3.3.1-7], [MQTT-3.3.1-10], [MQTT-3.3.1-11];
    // 5.0 [MQTT-3.3.1-5], [MQTT-3.3.1-6], [MQTT-3.3.1-7]
    pub(crate) fn retain(
        &mut self,
        now: Instant,
        publication: &mut Publication<'_>,
        source: Option<Arc<RetainedSource>>,
        owner: Option<Arc<Owner>>,
        core: &mut Core,
    ) -> RetainedUpdate {
        let topic = publication.parts.topic;
        let stored = core.durability.is_on() && retained::is_kept(topic);
        let refused = if publication.parts.payload.is_empty() {
            core.shared.retained().remove(topic);
            None
        } else {
            let message = publication.message(&mut core.scratch.bytes).clone();
            let mut retained = core.shared.retained();
            let bytes = message.size();
            let want = if stored && core.shared.store_is_short() {
                core.admits(Change::Retain { bytes, replaces: retained.size_of(topic) }).err()
            } else {
                None
            };
            match want {
                Some(want) => {
                    retained.remove(topic);
                    Some(want.cause())
                }
                None => {
                    let mark = self.retained_order.set();
                    let set = retained.set_by(mark, RetainedMessage { message, source, owner }, now);
                    publication.set_mark = mark;
                    set.err().map(|_| DropReason::RetainedFull)
                }
            }
        };
        if let Some(cause) = refused {
            core.counters.drops.count(cause);
        }
        if stored && let Some(write_buffer) = core.durability.write_buffer() {
            // The change is recorded in the list of retained changes, whose order all shards share.
            // The open batch of this shard must be committed after it, so it is sealed even if it
            // is empty.
            write_buffer.begin();
            if refused.is_none() {
                write_buffer.weigh(stored_bytes(topic.len() + publication.parts.payload.len()));
            }
            core.effects.retained = true;
        }
        RetainedUpdate { waits: stored, refused }
    }
}

/// Subscriptions, here and at the peers.
impl Routes {
    /// Adds a subscription: to the subscription tree, or as a member with this presence to a shared
    /// group. Tells the peers of the member, or of a filter that had no subscriber in this shard.
    pub(crate) fn insert_filter(
        &mut self,
        session: SessionId,
        filter: &TopicFilter<'_>,
        options: PackedOptions,
        subscription_id: u32,
        presence: Presence,
        core: &mut Core,
    ) {
        let (slot, filter, group) = (SessionSlot(session.slot), filter.filter, filter.share_name);
        let Some(group) = group else {
            let subscriber = Subscriber { session: slot, options, subscription_id };
            if let Subscribed::New { first_here: true } = self.router.subscribe(filter, subscriber) {
                for peer in core.peers.others() {
                    peer.send(Item::Interest { filter: filter.into(), interest: Interest::Present });
                }
            }
            return;
        };
        let member = Member {
            shard: core.here,
            session: slot,
            generation: session.generation,
            options,
            subscription_id,
            online: presence == Presence::Online,
        };
        self.router.join(group, filter, member);
        for peer in core.peers.others() {
            peer.send(Item::Join { group: group.into(), filter: filter.into(), member });
        }
    }

    /// Removes a subscription without a shared group from the subscription tree. Tells the peers if
    /// it was the last one of its filter in this shard. Returns false if there was no such
    /// subscription.
    fn leave_index(&mut self, filter: &str, session: SessionId, core: &mut Core) -> bool {
        match self.router.unsubscribe(filter, SessionSlot(session.slot)) {
            Unsubscribed::Removed { last_here } => {
                if last_here {
                    for peer in core.peers.others() {
                        peer.send(Item::Interest { filter: filter.into(), interest: Interest::Absent });
                    }
                }
                true
            }
            Unsubscribed::NotFound => false,
        }
    }

    /// Removes one subscription of a session, shared or not, and tells the peers that have to know.
    /// `full` is the filter as in SUBSCRIBE. Returns false if there was no such subscription.
    pub(crate) fn leave_filter(&mut self, id: SessionId, full: &str, core: &mut Core) -> bool {
        // A filter that is not valid has no subscription.
        let Ok(filter) = TopicFilter::parse(full, usize::MAX) else { return false };
        match filter.share_name {
            Some(group) => {
                let address = MemberAddress { shard: core.here, session: SessionSlot(id.slot) };
                self.leave_group(group, filter.filter, address, core)
            }
            None => self.leave_index(filter.filter, id, core),
        }
    }

    /// Removes a member of this shard from a group, in this shard and at every peer. Returns false
    /// if the session was not a member.
    fn leave_group(&mut self, group: &str, filter: &str, address: MemberAddress, core: &mut Core) -> bool {
        let left = self.drop_member(group, filter, address);
        if left {
            for peer in core.peers.others() {
                peer.send(Item::Leave { group: group.into(), filter: filter.into(), address });
            }
        }
        left
    }

    /// Removes a member of any shard from a group in this shard's routing. Returns false if the
    /// session was not a member.
    pub(crate) fn drop_member(&mut self, group: &str, filter: &str, address: MemberAddress) -> bool {
        self.orphaned_queues.member_left();
        self.router.leave(group, filter, address)
    }

    /// Notes that a session connected or disconnected, in this shard and at every peer. The
    /// session's groups then choose members accordingly. Costs one item for each peer, however many
    /// groups the session is in.
    pub(crate) fn set_presence(&mut self, id: SessionId, presence: Presence, core: &mut Core) {
        let address = MemberAddress { shard: core.here, session: SessionSlot(id.slot) };
        if self.router.set_presence(address, presence) {
            for peer in core.peers.others() {
                peer.send(Item::Presence { address, presence });
            }
        }
    }

    /// Matches a topic within the steps of this turn, and returns how far that went. `All` means
    /// that the caller can deliver to the receivers now. For `Many` and `InPart` the publication
    /// continues in later turns, as a [`Fan`](crate::shard::delivery::fans::Fan). `matches` is
    /// complete for `All` and `Many`, and empty for `InPart`.
    #[inline]
    pub(crate) fn match_at_once(
        &mut self,
        topic: &str,
        matches: &mut Matches,
        core: &mut Core,
    ) -> MatchExtent {
        let most = core.turn.at_once();
        // A visit of two nodes costs one step.
        let all = self.router.tree().matches_within(topic, most.saturating_mul(2), matches);
        core.turn.spend(matches.visited / 2);
        // The rules may decide about each receiver. Without rules nothing is divided: that costs as
        // much as the rest of this function.
        let most = match core.access.are_on() {
            true => most / core.access.most_steps(topic).saturating_add(1),
            false => most,
        };
        match all {
            false => MatchExtent::InPart,
            true if matches.subscribers.len() + matches.groups.len() > most as usize => MatchExtent::Many,
            true => MatchExtent::All,
        }
    }
}

/// Delivers the publication to the sessions of this shard in `matches`, to each session once.
/// Spends one step for each subscriber. Drops from a full queue spend steps, too: if they take
/// more than a portion of the turn, the other deliveries wait.
///
/// # Errors
/// The progress, if the other deliveries must wait for a later turn.
pub(crate) fn deliver_matches(
    now: Instant,
    publication: &mut Publication<'_>,
    matches: &mut Matches,
    turns: DeliveryTurns,
    core: &mut Core,
) -> Result<Outcome, MatchExtent> {
    let subscribers = &matches.subscribers;
    if let [only] = &subscribers[..] {
        // Nothing has to be sorted or counted for one receiver, and most messages have one.
        core.turn.spend(1);
        let target = Target::of(only, publication.publisher, core.here);
        return Ok(target.map_or(Outcome::Unmatched, |target| core.deliver(now, &target, publication)));
    }
    core.turn.spend(u32::try_from(subscribers.len()).unwrap_or(u32::MAX));
    let most = match turns {
        DeliveryTurns::ThisOne => u32::MAX,
        DeliveryTurns::Several => core.turn.portion_from_now(),
    };
    // The subscribers of one filter are in ascending order of their slots. Two filters that
    // overlap may name a session twice, and then the order is broken.
    if !subscribers.is_sorted_by(|a, b| a.session.0 < b.session.0) {
        return deliver_merged(now, publication, matches, most, core);
    }
    let mut outcome = Outcome::Unmatched;
    for (at, only) in subscribers.iter().enumerate() {
        if core.turn.is_beyond(most) {
            return Err(MatchExtent::Begun { at, outcome });
        }
        if let Some(target) = Target::of(only, publication.publisher, core.here) {
            outcome = outcome.or(core.deliver(now, &target, publication));
        }
    }
    Ok(outcome)
}

/// As [`deliver_matches`], where overlapping filters may name a session twice. Sorts the
/// subscribers and merges the subscriptions of each session. Stops beyond `most` steps of the turn.
#[inline(never)]
fn deliver_merged(
    now: Instant,
    publication: &mut Publication<'_>,
    matches: &mut Matches,
    most: u32,
    core: &mut Core,
) -> Result<Outcome, MatchExtent> {
    let Matches { subscribers, ids, .. } = matches;
    subscribers.sort_unstable_by_key(|s| s.session.0);
    let (mut outcome, mut at) = (Outcome::Unmatched, 0);
    for same in subscribers.chunk_by(|a, b| a.session == b.session) {
        if core.turn.is_beyond(most) {
            return Err(MatchExtent::Begun { at, outcome });
        }
        at += same.len();
        if let Some(target) = merge(same, publication.publisher, core.here, ids) {
            outcome = outcome.or(core.deliver(now, &target, publication));
        }
    }
    Ok(outcome)
}

/// Adds the publication to the peer batch of every interested peer.
pub(crate) fn forward(
    publication: &mut Publication<'_>,
    matches: &Matches,
    gate: Option<ReportTo>,
    routed: &mut Routed,
    core: &mut Core,
) {
    let message = publication.message(&mut core.scratch.bytes).clone();
    for shard in matches.peers.iter() {
        let transaction = core.durability.next_participant(publication);
        let Some(peer) = core.peers.peer(shard) else { continue };
        routed.gates += u32::from(gate.is_some());
        let item = Item::Publish {
            message: message.clone(),
            publisher: publication.publisher,
            transaction,
            set_mark: publication.set_mark,
        };
        peer.publish(item, message.size(), gate);
        if peer.is_full() {
            routed.full.insert(shard);
        }
    }
}
