//! From a publication to its receivers.

use crate::mqtt::outcome::Outcome;
use crate::mqtt::topic::TopicFilter;
use crate::routing::shared_group::Member;
use crate::routing::shared_group::MemberAddress;
use crate::routing::shared_group::Presence;
use crate::routing::subscription_tree::Interest;
use crate::routing::subscription_tree::PackedOptions;
use crate::routing::subscription_tree::Subscribed;
use crate::routing::subscription_tree::Unsubscribed;
use crate::routing::subscription_tree::{Matches, SessionSlot, ShardId, ShardSet, Subscriber};
use crate::shard::core::Core;
use crate::shard::exchange::outbound::{Gate, Item};
use crate::shard::fans::MatchedReceivers;
use crate::shard::features::orphaned_queues::OrphanedQueues;
use crate::shard::publication::Publication;
use crate::shard::publication::Routed;
use crate::shard::publication::Target;
use crate::shard::publication::merge;
use crate::shard::router::Router;
use crate::shard::slots::SessionId;
use crate::time::Instant;

/// Subscriptions, shared groups, and the messages that wait for a member of a group.
#[derive(Debug)]
pub(crate) struct Routes {
    pub router: Router,
    pub orphaned_queues: OrphanedQueues,
}

impl Routes {
    /// Returns the routes of the shard `here`, without subscriptions.
    pub(crate) fn new(here: ShardId) -> Routes {
        Routes { router: Router::new(here), orphaned_queues: OrphanedQueues::default() }
    }
}

/// The middle layer of a shard: [`Core`] with the routes, borrowed for one call.
#[derive(Debug)]
pub(crate) struct Routing<'a> {
    pub core: &'a mut Core,
    pub routes: &'a mut Routes,
}

impl Routing<'_> {
    /// Hands a publication to every receiver that it matched. `publication.gate` is the
    /// publisher's.
    pub(crate) fn route_matched(
        &mut self,
        now: Instant,
        publication: &mut Publication<'_>,
        matches: &mut Matches,
    ) -> Routed {
        let outcome = self.deliver_matches(now, publication, matches);
        let mut routed = Routed { outcome, gates: publication.held, full: ShardSet::EMPTY };
        if !matches.peers.is_empty() || !matches.groups.is_empty() {
            self.route_on(now, publication, matches, &mut routed);
        }
        routed
    }

    /// Continues after the receivers of this shard: with peers and shared groups.
    fn route_on(
        &mut self,
        now: Instant,
        publication: &mut Publication<'_>,
        matches: &Matches,
        routed: &mut Routed,
    ) {
        // A shared message that one member has no room for goes to another: it is not held.
        let gate = publication.gate.take();
        if !matches.peers.is_empty() {
            self.forward(publication, matches, gate, routed);
        }
        for group in &matches.groups {
            self.share(now, *group, publication, gate, routed);
        }
    }

    /// Delivers to the local sessions of a match, each once.
    pub(crate) fn deliver_matches(
        &mut self,
        now: Instant,
        publication: &mut Publication<'_>,
        matches: &mut Matches,
    ) -> Outcome {
        let subscribers = &matches.subscribers;
        self.core.turn.charge(u32::try_from(subscribers.len()).unwrap_or(u32::MAX));
        // One filter's subscribers are in rising order; only overlapping filters name a session
        // twice.
        if !subscribers.is_sorted_by(|a, b| a.session.0 < b.session.0) {
            return self.deliver_merged(now, publication, matches);
        }
        let mut outcome = Outcome::Unmatched;
        for only in subscribers {
            if let Some(target) = Target::of(only, publication.publisher, self.core.here) {
                outcome = outcome.or(self.core.deliver(now, &target, publication));
            }
        }
        outcome
    }

    /// The same where a session may be named more than once.
    #[inline(never)]
    fn deliver_merged(
        &mut self,
        now: Instant,
        publication: &mut Publication<'_>,
        matches: &mut Matches,
    ) -> Outcome {
        let Matches { subscribers, ids, .. } = matches;
        subscribers.sort_unstable_by_key(|s| s.session.0);
        let mut outcome = Outcome::Unmatched;
        for same in subscribers.chunk_by(|a, b| a.session == b.session) {
            if let Some(target) = merge(same, publication.publisher, self.core.here, ids) {
                outcome = outcome.or(self.core.deliver(now, &target, publication));
            }
        }
        outcome
    }

    /// Puts the publication into the peer batch of every interested peer.
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
            let item =
                Item::Publish { message: message.clone(), publisher: publication.publisher, transaction };
            peer.publish(item, message.size(), gate);
            if peer.is_full() {
                routed.full.insert(shard);
            }
        }
    }
}

/// Subscriptions, here and at the peers.
impl Routing<'_> {
    /// Enters a plain filter into the index.
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

    /// Takes a plain filter of a session out of the index.
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

    /// Takes one filter of a session out of the index, and tells the peers where they must know.
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

    /// A member of this shard leaves a group; whether it was in it.
    pub(crate) fn leave_group(&mut self, group: &str, filter: &str, address: MemberAddress) -> bool {
        let left = self.drop_member(group, filter, address);
        if left {
            for peer in self.core.exchange.others() {
                peer.send(Item::Leave { group: group.into(), filter: filter.into(), address });
            }
        }
        left
    }

    /// A member of any shard leaves a group. Returns false if it was not in there.
    pub(crate) fn drop_member(&mut self, group: &str, filter: &str, address: MemberAddress) -> bool {
        self.routes.orphaned_queues.member_left();
        self.routes.router.leave(group, filter, address)
    }

    /// The session came or went: its groups choose accordingly, here and elsewhere. Costs the same
    /// in however many it is.
    pub(crate) fn set_presence(&mut self, id: SessionId, presence: Presence) {
        let address = MemberAddress { shard: self.core.here, session: SessionSlot(id.slot) };
        if self.routes.router.set_presence(address, presence) {
            for peer in self.core.exchange.others() {
                peer.send(Item::Presence { address, presence });
            }
        }
    }

    /// Matches a publication within this turn. If the result is not `All`, the publication continues
    /// in later turns, as a [`Fan`](crate::shard::fans::Fan). Then the matches have nothing, or all.
    pub(crate) fn match_at_once(&mut self, topic: &str, matches: &mut Matches) -> MatchedReceivers {
        let most = self.core.turn.at_once();
        // Two nodes are a step.
        let all = self.routes.router.tree().matches_within(topic, most.saturating_mul(2), matches);
        self.core.turn.charge(matches.visited / 2);
        match all {
            false => MatchedReceivers::InPart,
            true if matches.subscribers.len() + matches.groups.len() > most as usize => {
                MatchedReceivers::Many
            }
            true => MatchedReceivers::All,
        }
    }
}
