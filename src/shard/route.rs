//! Routing: from a publication to its receivers in this shard, at the peers and in shared groups.
//! The shard's subscriptions are entered and removed here too.

use crate::mqtt::outcome::Outcome;
use crate::mqtt::topic::TopicFilter;
use crate::routing::shared_group::Member;
use crate::routing::shared_group::MemberAddress;
use crate::routing::shared_group::Presence;
use crate::routing::subscription_tree::Interest;
use crate::routing::subscription_tree::PackedOptions;
use crate::routing::subscription_tree::Subscribed;
use crate::routing::subscription_tree::Unsubscribed;
use crate::routing::subscription_tree::{Matches, SessionSlot, ShardSet, Subscriber};
use crate::shard::core::Core;
use crate::shard::exchange::outbound::{Gate, Item};
use crate::shard::fans::{DeliveryTurns, MatchExtent};
use crate::shard::publication::Publication;
use crate::shard::publication::Routed;
use crate::shard::publication::Target;
use crate::shard::publication::merge;
use crate::shard::routes::Routes;
use crate::shard::share::Sharing;
use crate::shard::slots::SessionId;
use crate::time::Instant;

/// The middle layer of a shard: [`Core`] with the routes, borrowed for one call.
#[derive(Debug)]
pub(crate) struct Routing<'a> {
    pub core: &'a mut Core,
    pub routes: &'a mut Routes,
}

impl Routing<'_> {
    /// Returns the shared groups.
    #[inline]
    pub(crate) fn sharing(&mut self) -> Sharing<'_> {
        Sharing { core: self.core, routes: self.routes }
    }

    /// Delivers a publication to every receiver in `matches`: to the sessions of this shard, to the
    /// peers, and to one member of each shared group. `publication.gate` is the gate of the
    /// publisher. Returns the outcome so far, and the number of answers that are pending.
    ///
    /// # Errors
    /// How far it came, if the rest must wait for a later turn. Only sessions of this shard have
    /// the message then.
    pub(crate) fn route_matched(
        &mut self,
        now: Instant,
        publication: &mut Publication<'_>,
        matches: &mut Matches,
        turns: DeliveryTurns,
    ) -> Result<Routed, MatchExtent> {
        let outcome = self.deliver_matches(now, publication, matches, turns)?;
        let mut routed = Routed { outcome, gates: publication.held, full: ShardSet::EMPTY };
        if !matches.peers.is_empty() || !matches.groups.is_empty() {
            self.route_on(now, publication, matches, &mut routed);
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
    ) {
        // The gate is taken out, because a message that one member of a group has no room for is
        // offered to another member before it is held.
        let gate = publication.gate.take();
        if !matches.peers.is_empty() {
            self.forward(publication, matches, gate, routed);
        }
        for group in &matches.groups {
            self.sharing().share(now, *group, publication, gate, routed);
        }
    }

    /// Delivers the publication to the sessions of this shard in `matches`, to each session once.
    /// Charges one step for each subscriber. What a delivery drops from a full queue is charged, too:
    /// if that takes more than a portion of the turn, the other deliveries wait.
    ///
    /// # Errors
    /// How far it came, if the other deliveries must wait for a later turn.
    pub(crate) fn deliver_matches(
        &mut self,
        now: Instant,
        publication: &mut Publication<'_>,
        matches: &mut Matches,
        turns: DeliveryTurns,
    ) -> Result<Outcome, MatchExtent> {
        let subscribers = &matches.subscribers;
        if let [only] = &subscribers[..] {
            // Nothing has to be sorted or counted for one receiver, and most messages have one.
            self.core.turn.charge(1);
            let target = Target::of(only, publication.publisher, self.core.here);
            return Ok(
                target.map_or(Outcome::Unmatched, |target| self.core.deliver(now, &target, publication))
            );
        }
        self.core.turn.charge(u32::try_from(subscribers.len()).unwrap_or(u32::MAX));
        let most = match turns {
            DeliveryTurns::ThisOne => u32::MAX,
            DeliveryTurns::Several => self.core.turn.portion_from_now(),
        };
        // The subscribers of one filter are in ascending order of their slots. Two filters that
        // overlap may name a session twice, and then the order is broken.
        if !subscribers.is_sorted_by(|a, b| a.session.0 < b.session.0) {
            return self.deliver_merged(now, publication, matches, most);
        }
        let mut outcome = Outcome::Unmatched;
        for (at, only) in subscribers.iter().enumerate() {
            if self.core.turn.is_beyond(most) {
                return Err(MatchExtent::Begun { at, outcome });
            }
            if let Some(target) = Target::of(only, publication.publisher, self.core.here) {
                outcome = outcome.or(self.core.deliver(now, &target, publication));
            }
        }
        Ok(outcome)
    }

    /// Does the same where overlapping filters may name a session more than once. Sorts the
    /// subscribers and merges the subscriptions of each session. Stops beyond `most` steps of the
    /// turn.
    #[inline(never)]
    fn deliver_merged(
        &mut self,
        now: Instant,
        publication: &mut Publication<'_>,
        matches: &mut Matches,
        most: u32,
    ) -> Result<Outcome, MatchExtent> {
        let Matches { subscribers, ids, .. } = matches;
        subscribers.sort_unstable_by_key(|s| s.session.0);
        let (mut outcome, mut at) = (Outcome::Unmatched, 0);
        for same in subscribers.chunk_by(|a, b| a.session == b.session) {
            if self.core.turn.is_beyond(most) {
                return Err(MatchExtent::Begun { at, outcome });
            }
            at += same.len();
            if let Some(target) = merge(same, publication.publisher, self.core.here, ids) {
                outcome = outcome.or(self.core.deliver(now, &target, publication));
            }
        }
        Ok(outcome)
    }

    /// Adds the publication to the peer batch of every interested peer.
    pub(crate) fn forward(
        &mut self,
        publication: &mut Publication<'_>,
        matches: &Matches,
        gate: Option<Gate>,
        routed: &mut Routed,
    ) {
        let message = publication.message(&mut self.core.scratch.bytes).clone();
        for shard in matches.peers.iter() {
            let transaction = self.core.durability.next_participant(publication);
            let Some(peer) = self.core.exchange.peer(shard) else { continue };
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
}

/// Subscriptions, here and at the peers.
impl Routing<'_> {
    /// Adds a subscription without a shared group to the subscription tree. Tells the peers if the
    /// filter had no subscriber in this shard.
    pub(crate) fn enter_index(
        &mut self,
        session: SessionId,
        filter: &str,
        options: PackedOptions,
        subscription_id: u32,
    ) {
        let subscriber = Subscriber { session: SessionSlot(session.slot), options, subscription_id };
        if let Subscribed::New { first_here: true } = self.routes.router.subscribe(filter, subscriber) {
            for peer in self.core.exchange.others() {
                peer.send(Item::Interest { filter: filter.into(), interest: Interest::Present });
            }
        }
    }

    /// Adds a member to a shared group, in this shard and at every peer.
    pub(crate) fn enter_group(
        &mut self,
        session: SessionId,
        group: &str,
        filter: &str,
        options: PackedOptions,
        subscription_id: u32,
        presence: Presence,
    ) {
        let member = Member {
            shard: self.core.here,
            session: SessionSlot(session.slot),
            generation: session.generation,
            options,
            subscription_id,
            online: presence == Presence::Online,
        };
        self.routes.router.join(group, filter, member);
        for peer in self.core.exchange.others() {
            peer.send(Item::Join { group: group.into(), filter: filter.into(), member });
        }
    }

    /// Removes a subscription without a shared group from the subscription tree. Tells the peers if
    /// it was the last one of its filter in this shard. Returns false if there was no such
    /// subscription.
    pub(crate) fn leave_index(&mut self, filter: &str, session: SessionId) -> bool {
        match self.routes.router.unsubscribe(filter, SessionSlot(session.slot)) {
            Unsubscribed::Removed { last_here } => {
                if last_here {
                    for peer in self.core.exchange.others() {
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
    pub(crate) fn leave_filter(&mut self, id: SessionId, full: &str) -> bool {
        let Ok(filter) = TopicFilter::parse(full, usize::MAX) else { return false };
        match filter.share_name {
            Some(group) => {
                let address = MemberAddress { shard: self.core.here, session: SessionSlot(id.slot) };
                self.leave_group(group, filter.filter, address)
            }
            None => self.leave_index(filter.filter, id),
        }
    }

    /// Removes a member of this shard from a group, in this shard and at every peer. Returns false
    /// if the session was not a member.
    pub(crate) fn leave_group(&mut self, group: &str, filter: &str, address: MemberAddress) -> bool {
        let left = self.drop_member(group, filter, address);
        if left {
            for peer in self.core.exchange.others() {
                peer.send(Item::Leave { group: group.into(), filter: filter.into(), address });
            }
        }
        left
    }

    /// Removes a member of any shard from a group in this shard's routing. Returns false if the
    /// session was not a member.
    pub(crate) fn drop_member(&mut self, group: &str, filter: &str, address: MemberAddress) -> bool {
        self.routes.orphaned_queues.member_left();
        self.routes.router.leave(group, filter, address)
    }

    /// Notes that a session connected or disconnected, in this shard and at every peer. The
    /// session's groups then choose members accordingly. Costs one item for each peer, however many
    /// groups the session is in.
    pub(crate) fn set_presence(&mut self, id: SessionId, presence: Presence) {
        let address = MemberAddress { shard: self.core.here, session: SessionSlot(id.slot) };
        if self.routes.router.set_presence(address, presence) {
            for peer in self.core.exchange.others() {
                peer.send(Item::Presence { address, presence });
            }
        }
    }

    /// Matches a topic within the steps of this turn, and returns how far that went. `All` means
    /// that the caller can deliver to the receivers now. For `Many` and `InPart` the publication
    /// continues in later turns, as a [`Fan`](crate::shard::fans::Fan). `matches` is complete for
    /// `All` and `Many`, and empty for `InPart`.
    #[inline]
    pub(crate) fn match_at_once(&mut self, topic: &str, matches: &mut Matches) -> MatchExtent {
        let most = self.core.turn.at_once();
        // A visit of two nodes costs one step.
        let all = self.routes.router.tree().matches_within(topic, most.saturating_mul(2), matches);
        self.core.turn.charge(matches.visited / 2);
        // The rules may decide about each receiver. Without rules nothing is divided: that costs as
        // much as the rest of this function.
        let most = match self.core.access.are_on() {
            true => most / self.core.access.most_steps(topic).saturating_add(1),
            false => most,
        };
        match all {
            false => MatchExtent::InPart,
            true if matches.subscribers.len() + matches.groups.len() > most as usize => MatchExtent::Many,
            true => MatchExtent::All,
        }
    }
}
