//! A publication that takes more than a turn: it has very many receivers here, or its topic visits
//! very many nodes of the index.
//!
//! It goes on from turn to turn, in portions: first it is matched, then delivered, and then its
//! shared groups are served. There is one at a time in a shard. Its publisher is paused, and no other client's PUBLISH is begun
//! meanwhile, so the order of what each publisher sends to each receiver is what it would be
//! without. Other packets are handled as ever. Batches of peers wait behind it, in their order.
//! What the broker itself publishes (wills, delayed messages, dead letters, `$SYS`) passes if it is
//! done within a turn, and waits if it is not. The will of the publisher's own session waits too:
//! its connection may end in between, but its client takes that session over, and a deadline ends
//! it, when the publication is through.
//!
//! Wills that wait are published before any client's next PUBLISH: whoever returns does not pass
//! its own will.
//!
//! The publisher's acknowledgement waits for the last portion, as for one gate more. Where all that
//! the publication leads to is committed at once (QoS 2 of a stored session, a part of a peer's
//! transaction) neither a batch nor a peer batch is sealed until it is through: one transaction has
//! it all, as ever. That holds back commits for as long as the deliveries take, and not longer:
//! what one publication holds back is sealed before the next begins.
//!
//! A session that ends in between gets no more, nor does one that takes its slot. Who unsubscribes
//! in between may still get this one: it was on its way.

use crate::mqtt::charge::Charge;
use crate::mqtt::message::Message;
use crate::mqtt::outcome::Outcome;
use crate::persistence::records::TransactionNumber;
use crate::persistence::rows::Body;
use crate::routing::subscription_tree::{Matches, SessionSlot, ShardSet, Subscriber, Walk};
use crate::session::drops::DropReason;
use crate::shard::Shard;
use crate::shard::connection::Pause;
use crate::shard::exchange::inbound::Underway;
use crate::shard::exchange::outbound::{Gate, PeerBatch, Publisher};
use crate::shard::publish::Published;
use crate::shard::route::{Publication, Routed, merge};
use crate::shard::slots::{ConnectionId, SessionId};
use crate::shard::turn::Job;
use crate::time::Instant;
use std::collections::{HashSet, VecDeque};
use std::rc::Rc;

/// Subscribers that are put in order at once.
const SORTED_AT_ONCE: usize = 16 * 1024;

/// Publications of the broker's own that wait, wills apart. Beyond that they are dropped and
/// counted as QoS 0 that a receiver is too slow for: each is a figure or an event, and the next of
/// its kind follows.
const OWN_AT_MOST: usize = 4_096;

/// Subscribers that are copied for the price of a step.
const COPIES: usize = 64;

/// A publication that takes more than one turn, and how far it is.
#[derive(Debug)]
pub(super) struct Fan {
    message: Message,
    publisher: Option<Publisher>,
    gate: Option<Gate>,
    body: Option<Rc<Body>>,
    pub atomic: bool,
    transaction: Option<TransactionNumber>,
    /// While it is still matched.
    walk: Option<Walk>,
    matches: Box<Matches>,
    /// How many of the subscribers are delivered to, and how many are in order.
    at: usize,
    ordered: usize,
    pub outcome: Outcome,
    /// True once the peers have it.
    forwarded: bool,
    /// Groups that are served.
    groups_served: usize,
    /// How often it is held.
    pub held: u32,
    /// Gates that its publisher's acknowledgement waits for, those of held messages included.
    gates: u32,
    /// Peers that have as much from here as they should.
    full: ShardSet,
    pub origin: PublicationOrigin,
}

/// Where it comes from, and who is told.
#[derive(Debug)]
pub(super) enum PublicationOrigin {
    /// A client of this shard, which is paused.
    Client(Published),
    /// The peer batch that is under way.
    PeerBatch,
    /// The broker itself: nobody is told.
    Broker,
}

/// A publication of the broker's own that waits.
#[derive(Debug)]
struct Own {
    message: Message,
    /// Whose will it is.
    of: Option<SessionId>,
    atomic: bool,
    _charge: Charge,
}

/// What a shard does one publication at a time.
#[derive(Debug, Default)]
pub(super) struct Fans {
    pub present: Option<Box<Fan>>,
    /// Slots of sessions that ended since it began.
    gone: HashSet<u32, foldhash::fast::RandomState>,
    /// Clients that have a PUBLISH to begin.
    waiting: Vec<ConnectionId>,
    /// Peer batches that wait, the first of them taken in part.
    pub underway: Option<Box<Underway>>,
    pub peer_batches: VecDeque<PeerBatch>,
    /// What the broker has to publish, how much of it is committed at once, and how many wills are
    /// among it.
    own: VecDeque<Own>,
    own_whole: usize,
    wills: usize,
}

impl Fans {
    /// Whether there is something to go on with.
    pub fn any(&self) -> bool {
        self.len() > 0
    }

    /// How much there is to go on with.
    pub fn len(&self) -> usize {
        usize::from(self.present.is_some())
            + usize::from(self.underway.is_some())
            + self.peer_batches.len()
            + self.own.len()
    }

    /// Whether no client's PUBLISH is begun.
    pub fn holds_publishes(&self) -> bool {
        self.present.is_some() || self.wills > 0
    }

    /// Whether what the broker publishes, and what leads to it, waits for another publication.
    pub fn holds_own(&self) -> bool {
        self.present.is_some() || !self.own.is_empty()
    }

    /// Whether nothing may be sealed.
    pub fn holds_seals(&self) -> bool {
        self.own_whole > 0 || self.present.as_ref().is_some_and(|fan| fan.atomic)
    }

    /// A session ended.
    pub fn session_ended(&mut self, slot: u32) {
        if self.present.is_some() {
            self.gone.insert(slot);
        }
    }
}

impl Shard {
    /// Matches a publication within this turn; false if it is to become a [`Fan`]. Then the matches
    /// have nothing, or all.
    pub(super) fn match_at_once(&mut self, topic: &str, matches: &mut Matches) -> MatchedReceivers {
        let most = self.turn.at_once();
        // Two nodes are a step.
        let all = self.router.tree().matches_within(topic, most.saturating_mul(2), matches);
        self.turn.charge(matches.visited / 2);
        match all {
            false => MatchedReceivers::InPart,
            true if matches.subscribers.len() + matches.groups.len() > most as usize => {
                MatchedReceivers::Many
            }
            true => MatchedReceivers::All,
        }
    }

    /// A client's PUBLISH waits for the present one to be through.
    pub(super) fn read_behind_fan(&mut self, now: Instant, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        if !connection.pauses.has(Pause::Turn) {
            connection.pause(Pause::Turn, now);
            self.fans.waiting.push(id);
        }
    }

    /// The publication goes on in later turns.
    pub(super) fn fan_out(
        &mut self,
        publication: &mut Publication<'_>,
        matched: MatchedReceivers,
        matches: Box<Matches>,
        origin: PublicationOrigin,
    ) {
        debug_assert!(self.fans.present.is_none(), "there is one at a time");
        self.fans.gone.clear();
        self.fans.present = Some(Box::new(Fan {
            message: publication.message(&mut self.scratch.bytes).clone(),
            publisher: publication.publisher,
            gate: publication.gate,
            body: publication.body.take(),
            atomic: publication.atomic,
            transaction: publication.transaction,
            walk: (matched == MatchedReceivers::InPart).then(Walk::default),
            matches,
            at: 0,
            ordered: 0,
            outcome: Outcome::Unmatched,
            forwarded: false,
            groups_served: 0,
            held: 0,
            gates: 0,
            full: ShardSet::EMPTY,
            origin,
        }));
    }

    /// One portion of the present publication, or of the peer batches behind it.
    pub(super) fn go_on_with_fans(&mut self, now: Instant) {
        while !self.turn.is_over() {
            if let Some(fan) = self.fans.present.take() {
                let atomic = fan.atomic;
                // Who waits for one of the broker's own goes before its next one.
                let others = matches!(fan.origin, PublicationOrigin::Broker) && !self.fans.waiting.is_empty();
                let through = self.go_on_with(now, fan);
                if !through || atomic || others {
                    // What it held back is sealed before the next begins.
                    return;
                }
            } else if let Some(own) = self.fans.own.pop_front() {
                self.go_on_with_own(now, own);
            } else if let Some(underway) = self.fans.underway.take() {
                self.take_up_peer_batch(now, underway);
            } else if let Some(peer_batch) = self.fans.peer_batches.pop_front() {
                self.take_up_peer_batch(now, Box::new(Underway::new(peer_batch)));
            } else {
                return;
            }
        }
    }

    /// Hands a publication of the broker's own to everybody who is to have it. `of`: the session
    /// whose will it is. It waits for a later turn if this one is over, if others wait, or if the
    /// session's last PUBLISH is not through.
    pub(super) fn route_own(
        &mut self,
        now: Instant,
        publication: &mut Publication<'_>,
        of: Option<SessionId>,
    ) {
        if !self.own_waits(of) && self.route_own_now(now, publication) {
            return;
        }
        if of.is_none() && self.fans.own.len() >= OWN_AT_MOST {
            return self.counters.drops.count(DropReason::OutboxFull);
        }
        let message = publication.message(&mut self.scratch.bytes).clone();
        let own = Own { message, of, atomic: publication.atomic, _charge: Charge::new(size_of::<Own>()) };
        self.fans.own_whole += usize::from(own.atomic);
        self.fans.wills += usize::from(of.is_some());
        self.fans.own.push_back(own);
    }

    /// Whether what the broker publishes waits for a later turn; `of`: the session whose will it
    /// is.
    pub(super) fn own_waits(&self, of: Option<SessionId>) -> bool {
        self.turn.is_over() || !self.fans.own.is_empty() || of.is_some_and(|id| self.fans_out_for(id))
    }

    /// Whether the present publication is one of this session.
    pub(super) fn fans_out_for(&self, id: SessionId) -> bool {
        let publisher = Publisher { shard: self.here, session: SessionSlot(id.slot) };
        self.fans.present.as_ref().is_some_and(|fan| fan.publisher == Some(publisher))
    }

    /// The same at once, in portions if it takes more than this turn. Returns false if it would,
    /// and another one does.
    pub(super) fn route_own_now(&mut self, now: Instant, publication: &mut Publication<'_>) -> bool {
        let mut matches = self.router.take_matches();
        let matched = self.match_at_once(publication.parts.topic, &mut matches);
        if matched == MatchedReceivers::All {
            self.route_matched(now, publication, &mut matches);
        } else if self.fans.present.is_some() {
            matches.clear();
        } else {
            self.fan_out(publication, matched, matches, PublicationOrigin::Broker);
            return true;
        }
        self.router.give_back_matches(matches);
        matched == MatchedReceivers::All
    }

    /// The next of the broker's own has its turn. There is no other publication that takes several.
    fn go_on_with_own(&mut self, now: Instant, own: Own) {
        self.fans.own_whole -= usize::from(own.atomic);
        self.fans.wills -= usize::from(own.of.is_some());
        let publisher = own.of.filter(|id| self.sessions.get(*id).is_some());
        let publisher = publisher.map(|id| Publisher { shard: self.here, session: SessionSlot(id.slot) });
        let mut publication = Publication::of(&own.message, publisher);
        publication.atomic = own.atomic;
        if let (true, Some(write_buffer)) = (own.atomic, self.write_buffer()) {
            write_buffer.begin();
        }
        self.turn.charge(1);
        self.route_own_now(now, &mut publication);
        if !self.fans.holds_publishes() {
            self.jobs.extend(self.fans.waiting.drain(..).map(Job::Read));
        }
    }

    /// One portion; whether it is through.
    fn go_on_with(&mut self, now: Instant, mut fan: Box<Fan>) -> bool {
        if let Some(walk) = &mut fan.walk {
            let most = self.turn.left().max(1).saturating_mul(2);
            let (visited, found) = (fan.matches.visited, fan.matches.subscribers.len());
            let all = self.router.tree().go_on(fan.message.topic(), walk, most, &mut fan.matches);
            let found = (fan.matches.subscribers.len() - found) / COPIES;
            self.turn.charge((fan.matches.visited - visited) / 2 + found as u32 + 1);
            if !all {
                self.fans.present = Some(fan);
                return false;
            }
            fan.walk = None;
        }
        let message = fan.message.clone();
        let mut publication = Publication::of(&message, fan.publisher);
        publication.gate = fan.gate;
        publication.atomic = fan.atomic;
        publication.transaction = fan.transaction;
        publication.body = fan.body.take();
        let parted = matches!(fan.origin, PublicationOrigin::PeerBatch) && fan.atomic;
        if let (true, Some(write_buffer)) = (parted, self.write_buffer()) {
            write_buffer.resume_participation();
        }
        self.deliver_portion(now, &mut fan, &mut publication);
        let mut routed = Routed { outcome: fan.outcome, gates: publication.held, full: fan.full };
        let through = fan.at == fan.matches.subscribers.len()
            && (matches!(fan.origin, PublicationOrigin::PeerBatch)
                || self.route_portion(now, &mut fan, &mut publication, &mut routed));
        (fan.outcome, fan.full) = (routed.outcome, routed.full);
        fan.held += publication.held;
        fan.gates += routed.gates;
        if let PublicationOrigin::Client(of) = &mut fan.origin {
            of.dead_letters |= self.has_dead_letters();
            self.expect(of, routed.gates);
        }
        if !through {
            if let (true, Some(write_buffer)) = (parted, self.write_buffer()) {
                write_buffer.suspend_participation();
            }
            fan.body = publication.body.take();
            fan.transaction = publication.transaction;
            self.fans.present = Some(fan);
            return false;
        }
        publication.held = fan.held;
        match fan.origin {
            PublicationOrigin::Client(of) => {
                let routed = Routed { outcome: fan.outcome, gates: fan.gates, full: fan.full };
                self.published(now, &of, &mut publication, routed, fan.gates);
            }
            PublicationOrigin::PeerBatch => self.item_delivered(&mut publication, fan.outcome),
            PublicationOrigin::Broker => {}
        }
        fan.matches.clear();
        self.router.give_back_matches(fan.matches);
        self.jobs.extend(self.fans.waiting.drain(..).map(Job::Read));
        true
    }

    /// Hands the publication to its peers at once, then to as many groups as this turn has steps for, and one at least.
    /// Returns true if no group is left.
    fn route_portion(
        &mut self,
        now: Instant,
        fan: &mut Fan,
        publication: &mut Publication<'_>,
        routed: &mut Routed,
    ) -> bool {
        // As in `route_on`: a shared message that one member has no room for goes to another.
        let gate = publication.gate.take();
        if !std::mem::replace(&mut fan.forwarded, true) && !fan.matches.peers.is_empty() {
            self.forward(publication, &fan.matches, gate, routed);
        }
        while let Some(group) = fan.matches.groups.get(fan.groups_served) {
            fan.groups_served += 1;
            self.turn.charge(1);
            self.share(now, *group, publication, gate, routed);
            if self.turn.is_over() {
                break;
            }
        }
        fan.groups_served == fan.matches.groups.len()
    }

    /// Delivers to as many as this turn has steps for, and one at least.
    fn deliver_portion(&mut self, now: Instant, fan: &mut Fan, publication: &mut Publication<'_>) {
        let mut ids = std::mem::take(&mut fan.matches.ids);
        let gone = std::mem::take(&mut self.fans.gone);
        while fan.at < fan.matches.subscribers.len() {
            if fan.at == fan.ordered {
                fan.ordered += order(&mut fan.matches.subscribers[fan.at..]);
            }
            let same = same_session(&fan.matches.subscribers[fan.at..fan.ordered]);
            fan.at += same.len();
            self.turn.charge(1 + (same.len() / COPIES) as u32);
            if let Some(first) = same.first()
                && !gone.contains(&first.session.0)
                && let Some(target) = merge(same, fan.publisher, self.here, &mut ids)
            {
                fan.outcome = fan.outcome.or(self.deliver(now, &target, publication));
            }
            if self.turn.is_over() {
                break;
            }
        }
        self.fans.gone = gone;
        fan.matches.ids = ids;
    }
}

/// How far a publication was matched at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MatchedReceivers {
    All,
    /// All, and these are more than the turn delivers to.
    Many,
    /// It takes more nodes than the turn visits.
    InPart,
}

/// The subscriptions of the first session.
fn same_session(subscribers: &[Subscriber]) -> &[Subscriber] {
    subscribers.chunk_by(|a, b| a.session == b.session).next().unwrap_or_default()
}

/// Puts the least sessions to the front, each whole and in order; how many entries that are. All,
/// where they are in order already or not many: a sort of 16,384 entries takes 0.5 ms, and to part
/// a million takes 2 ms.
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
    use crate::routing::subscription_tree::PackedOptions;

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
