//! Large publications: publications that take more than one turn. Such a publication has very many
//! receivers in this shard, or its topic visits very many nodes of the subscription tree.
//!
//! A large publication continues from turn to turn, in portions. First its topic is matched, then
//! the message is delivered to sessions, and then it is sent to peers and shared groups. A shard
//! has one large publication at a time.
//!
//! # Order
//!
//! The order in which each receiver gets the messages of each publisher must not change (3.1.1
//! [MQTT-4.6.0-6]; 5.0 [MQTT-4.6.0-5]). So while a large publication is not complete:
//!
//! - Its publisher is paused, and no other client's PUBLISH begins. Packets other than PUBLISH are
//!   handled as usual.
//! - Peer batches wait behind the large publication, in the order in which they came.
//! - A publication of the broker (a will, a delayed message, a dead letter, `$SYS`) passes the
//!   large publication if it fits into one turn. Otherwise it waits.
//! - The will of the publisher's own session waits in any case. The publisher's connection may end,
//!   but the session is taken over, or expires, only when the large publication is complete.
//!
//! Wills that wait are published before any client's next PUBLISH. So a client that returns does
//! not pass its own will.
//!
//! # Acknowledgement and commit
//!
//! The publisher's acknowledgement waits for the last portion, as it waits for a gate. No batch and
//! no peer batch is sealed before an atomic publication is complete, so that one transaction covers
//! the whole publication. An atomic publication is a QoS 2 PUBLISH of a stored session or a part of
//! a peer's transaction, for example. Commits in this shard are delayed for as long as the
//! deliveries take. The records of one atomic publication are sealed before the next one begins, so
//! that the delays do not add up.
//!
//! # Sessions and subscriptions that end
//!
//! A session that ends meanwhile gets no further delivery, nor does a new session in its slot. A
//! client that unsubscribes meanwhile may still get the message, because the server had received it
//! before. Each delivery is checked by the rules that hold now, so the client gets the message only
//! if they allow it.

use crate::durability::publication::{Publication, Routed};
use crate::routing::subscription_tree::Subscriber;
use crate::shard::Shard;
use crate::shard::core::Core;
use crate::shard::delivery::fans::{Fan, Fans, OwnPublication, PublicationOrigin};
use crate::shard::delivery::own_publications::publisher;
use crate::shard::delivery::receivers::forward;
use crate::shard::delivery::target::merge;
use crate::shard::subscriptions::routes::Routes;
use crate::time::Instant;

/// Maximum number of subscribers that one sort puts in order.
const SORTED_AT_ONCE: usize = 16 * 1024;

/// Number of subscribers that one step copies.
const COPIES: usize = 64;

impl Fan {
    /// Runs one portion. Returns the publication if it is not complete.
    pub(crate) fn go_on(mut self: Box<Self>, now: Instant, shard: &mut Shard) -> Option<Box<Fan>> {
        if !self.match_portion(&mut shard.routes, &mut shard.core) {
            return Some(self);
        }
        let message = self.message.clone();
        let mut publication = Publication::of(&message, self.publisher);
        publication.gate = self.gate;
        publication.atomic = self.atomic;
        publication.transaction = self.transaction;
        publication.set_mark = self.set_mark;
        publication.outgoing.body = self.body.take();
        let participates = matches!(self.origin, PublicationOrigin::PeerBatch) && self.atomic;
        if let (true, Some(write_buffer)) = (participates, shard.core.durability.write_buffer()) {
            write_buffer.resume_participation();
        }
        self.deliver_portion(now, &mut publication, &mut shard.core, &shard.fans);
        let mut routed = Routed { outcome: self.outcome, gates: publication.held, full: self.full };
        let is_complete = self.at == self.matches.subscribers.len()
            && (matches!(self.origin, PublicationOrigin::PeerBatch)
                || self.route_portion(
                    now,
                    &mut publication,
                    &mut routed,
                    &mut shard.routes,
                    &mut shard.core,
                ));
        (self.outcome, self.full) = (routed.outcome, routed.full);
        self.held += publication.held;
        self.gates += routed.gates;
        if let PublicationOrigin::Publisher(published) = &mut self.origin {
            published.dead_letters |= shard.core.begin_for_dead_letters();
            published.expect(routed.gates, &mut shard.core);
        }
        if is_complete {
            publication.held = self.held;
            self.end(now, &mut publication, shard);
            return None;
        }
        if let (true, Some(write_buffer)) = (participates, shard.core.durability.write_buffer()) {
            write_buffer.suspend_participation();
        }
        self.body = publication.outgoing.body.take();
        self.transaction = publication.transaction;
        Some(self)
    }

    /// Informs the source of the publication, and lets the clients that wait behind the publication
    /// continue.
    fn end(self, now: Instant, publication: &mut Publication<'_>, shard: &mut Shard) {
        let Fan { origin, mut matches, outcome, gates, full, .. } = self;
        match origin {
            PublicationOrigin::Publisher(published) => {
                published.end(now, publication, Routed { outcome, gates, full }, shard);
            }
            PublicationOrigin::PeerBatch => {
                if let Some(mut underway) = shard.fans.take_underway() {
                    underway.end_publication(publication, outcome, publication.held, &mut shard.core);
                    shard.fans.put_off_batch(underway);
                }
            }
            PublicationOrigin::Broker => {}
        }
        matches.clear();
        shard.routes.router.give_back_matches(matches);
        shard.work.read_waiting(&mut shard.fans);
    }

    /// Visits as many nodes of the subscription tree as this turn has steps for. Returns true if
    /// all receivers are known.
    fn match_portion(&mut self, routes: &mut Routes, core: &mut Core) -> bool {
        let Some(walk) = &mut self.walk else { return true };
        let most = core.turn.left().max(1).saturating_mul(2);
        let (visited, found) = (self.matches.visited, self.matches.subscribers.len());
        let all = routes.router.tree().go_on(self.message.topic(), walk, most, &mut self.matches);
        let found = (self.matches.subscribers.len() - found) / COPIES;
        core.turn.spend((self.matches.visited - visited) / 2 + found as u32 + 1);
        if all {
            self.walk = None;
        }
        all
    }

    /// Delivers to as many sessions as this turn has steps for, but at least to one.
    fn deliver_portion(
        &mut self,
        now: Instant,
        publication: &mut Publication<'_>,
        core: &mut Core,
        fans: &Fans,
    ) {
        let mut ids = std::mem::take(&mut self.matches.ids);
        while self.at < self.matches.subscribers.len() {
            if self.at == self.ordered {
                self.ordered += order(&mut self.matches.subscribers[self.at..]);
            }
            let same = same_session(&self.matches.subscribers[self.at..self.ordered]);
            self.at += same.len();
            core.turn.spend(1 + (same.len() / COPIES) as u32);
            if let Some(first) = same.first()
                && !fans.is_gone(first.session)
                // After a change of the rules the session may have left this filter. A session that
                // may read all of its other filters is not guarded any more.
                && core.permits_read(first.session, publication.outgoing.parts.topic)
                && let Some(target) = merge(same, self.publisher, core.peers.here(), &mut ids)
            {
                self.outcome = self.outcome.or(core.deliver(now, &target, publication));
            }
            if core.turn.is_over() {
                break;
            }
        }
        self.matches.ids = ids;
    }

    /// Forwards the publication to its peers at once. Then delivers to as many shared groups as
    /// this turn has steps for, but at least to one. Returns true if no group is left.
    fn route_portion(
        &mut self,
        now: Instant,
        publication: &mut Publication<'_>,
        routed: &mut Routed,
        routes: &mut Routes,
        core: &mut Core,
    ) -> bool {
        // The gate is taken out, as in `route_on`. A member of a group without room then refuses
        // the message and does not hold it, so that the message is offered to another member.
        let gate = publication.gate.take();
        if !std::mem::replace(&mut self.forwarded, true) && !self.matches.peers.is_empty() {
            forward(publication, &self.matches, gate, routed, core);
        }
        while let Some(group) = self.matches.groups.get(self.groups_served) {
            self.groups_served += 1;
            core.turn.spend(1);
            routes.share(now, *group, publication, gate, routed, core);
            if core.turn.is_over() {
                break;
            }
        }
        self.groups_served == self.matches.groups.len()
    }
}

impl OwnPublication {
    /// Routes this publication of the broker, which waited. The caller makes sure that no large
    /// publication is present.
    pub(crate) fn go_on(self, now: Instant, shard: &mut Shard) {
        let here = shard.core.peers.here();
        let of = self.of.filter(|id| shard.core.sessions.get(*id).is_some());
        let mut publication = Publication::of(&self.message, of.map(|id| publisher(here, id)));
        publication.atomic = self.atomic;
        publication.set_mark = self.set_mark;
        shard.routes.retained_order.note_routed(self.set_mark);
        if self.atomic {
            shard.core.durability.begin();
        }
        shard.core.turn.spend(1);
        shard.fans.route_own_now(now, &mut publication, &mut shard.routes, &mut shard.core);
        if !shard.fans.blocks_publishes() {
            shard.work.read_waiting(&mut shard.fans);
        }
    }
}

/// Returns the subscriptions of the first session in `subscribers`.
fn same_session(subscribers: &[Subscriber]) -> &[Subscriber] {
    subscribers.chunk_by(|a, b| a.session == b.session).next().unwrap_or_default()
}

/// Moves the subscriptions of the sessions with the lowest slots to the front, in the order of the
/// slots. All subscriptions of a session stay together. Returns the number of subscriptions in
/// front. Sorts all subscriptions if there are at most [`SORTED_AT_ONCE`] of them, or if they are
/// in order already. A sort of 16,384 entries takes 0.5 ms, and a partition of a million entries
/// takes 2 ms.
fn order(subscribers: &mut [Subscriber]) -> usize {
    if subscribers.is_sorted_by(|a, b| a.session.0 <= b.session.0) {
        return subscribers.len();
    }
    if subscribers.len() > SORTED_AT_ONCE {
        let (_, last, _) = subscribers.select_nth_unstable_by_key(SORTED_AT_ONCE, |s| s.session.0);
        let last = last.session.0;
        let mut front = 0;
        for at in 0..subscribers.len() {
            if subscribers[at].session.0 <= last {
                subscribers.swap(at, front);
                front += 1;
            }
        }
        subscribers[..front].sort_unstable_by_key(|s| s.session.0);
        return front;
    }
    subscribers.sort_unstable_by_key(|s| s.session.0);
    subscribers.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::subscription_tree::{PackedOptions, SessionSlot};

    fn subscriber(session: u32) -> Subscriber {
        Subscriber { session: SessionSlot(session), options: PackedOptions::default(), subscription_id: 0 }
    }

    #[test]
    fn many_subscribers_are_put_in_order_in_parts_and_no_session_is_in_two() {
        let n = 5 * SORTED_AT_ONCE as u32;
        let mut subscribers: Vec<_> =
            (0..n).map(|i| subscriber(i.wrapping_mul(2_654_435_761) % (n / 2))).collect();
        let mut expected: Vec<_> = subscribers.iter().map(|s| s.session.0).collect();
        expected.sort_unstable();
        let mut at = 0;
        while at < subscribers.len() {
            let ordered = order(&mut subscribers[at..]);
            assert!(ordered > 0);
            at += ordered;
            let next = subscribers.get(at).map(|s| s.session.0);
            let after = subscribers[at..].iter().map(|s| s.session.0).min();
            assert!(next.is_none() || after > Some(subscribers[at - 1].session.0));
        }
        assert!(subscribers.iter().map(|s| s.session.0).eq(expected));
    }
}
