//! A publication that takes more than a turn: it has very many receivers here, or its topic visits very many nodes of the index.
//!
//! It goes on from turn to turn: first it is matched, then delivered, in portions of a turn. There is one at a time in a
//! shard. Its publisher is paused, and no other client's PUBLISH is begun meanwhile, so the order of what each publisher sends
//! to each receiver is what it would be without. Other packets are handled as ever. Parcels of peers wait behind it, in their
//! order. What the broker itself publishes (wills, delayed messages, dead letters, `$SYS`) passes, but for the will of its
//! own publisher: that connection does not end before it is through.
//!
//! The publisher's acknowledgement waits for the last portion, as for one gate more. Where all that the publication leads to
//! is committed at once (QoS 2 of a stored session, a part of a peer's move) neither a batch nor a parcel is sealed until
//! it is through: one transaction has it all, as ever. That holds back commits for as long as the deliveries take, and not
//! longer: what one publication holds back is sealed before the next begins.
//!
//! A session that ends in between gets no more, nor does one that takes its slot. Who unsubscribes in between may still get
//! this one: it was on its way.

use super::connection::Pause;
use super::exchange::{Gate, Parcel, Publisher};
use super::parcels::Underway;
use super::publish::Published;
use super::route::{Publication, Routed, merge};
use super::turn::{Job, PORTIONS};
use super::{ConnectionId, Shard};
use crate::journal::ledger::Body;
use crate::journal::record::MoveNumber;
use crate::mqtt::message::Message;
use crate::mqtt::session::receiver::Outcome;
use crate::routing::subscription_tree::{Matches, ShardSet, Subscriber, Walk};
use crate::time::Instant;
use std::collections::{HashSet, VecDeque};
use std::rc::Rc;

/// Subscribers that are put in order at once.
const SORTED_AT_ONCE: usize = 16 * 1024;

/// Subscribers that are copied for the price of a step.
const COPIES: usize = 64;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Fan {
    message: Message,
    publisher: Option<Publisher>,
    gate: Option<Gate>,
    body: Option<Rc<Body>>,
    pub whole: bool,
    moving: Option<MoveNumber>,
    /// While it is still matched.
    walk: Option<Walk>,
    matches: Matches,
    /// How many of the subscribers are delivered to, and how many are in order.
    at: usize,
    ordered: usize,
    pub outcome: Outcome,
    /// How often it is held.
    pub held: u32,
    pub origin: Origin,
}

/// Where it comes from, and who is told.
#[derive(Debug)]
pub(super) enum Origin {
    /// A client of this shard, which is paused.
    Client(Published),
    /// The parcel that is under way.
    Parcel,
}

/// What a shard does one publication at a time.
#[derive(Debug, Default)]
pub(super) struct Fans {
    pub present: Option<Box<Fan>>,
    /// Slots of sessions that ended since it began.
    gone: HashSet<u32, foldhash::fast::RandomState>,
    /// Clients that have a PUBLISH to begin.
    waiting: Vec<ConnectionId>,
    /// Parcels that wait, the first of them taken in part.
    pub underway: Option<Box<Underway>>,
    pub parcels: VecDeque<Parcel>,
}

impl Fans {
    /// Whether there is something to go on with.
    pub fn any(&self) -> bool {
        self.len() > 0
    }

    /// How much there is to go on with.
    pub fn len(&self) -> usize {
        usize::from(self.present.is_some()) + usize::from(self.underway.is_some()) + self.parcels.len()
    }

    /// Whether nothing may be sealed.
    pub fn holds_seals(&self) -> bool {
        self.present.as_ref().is_some_and(|fan| fan.whole)
    }

    /// A session ended.
    pub fn session_ended(&mut self, slot: u32) {
        if self.present.is_some() {
            self.gone.insert(slot);
        }
    }
}

impl Shard {
    /// Matches a publication within this turn; false if it is to become a [`Fan`]. Then the matches have nothing, or all.
    pub(super) fn match_at_once(&mut self, topic: &str, matches: &mut Matches) -> Matched {
        let most = self.turn.left().max(self.settings.steps_per_turn / PORTIONS);
        // Two nodes are a step.
        let all = self.tree.matches_within(topic, most.saturating_mul(2), matches);
        self.turn.charge(matches.visited / 2);
        match all {
            false => Matched::InPart,
            true if matches.subscribers.len() > most as usize => Matched::Many,
            true => Matched::All,
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
        matched: Matched,
        matches: Matches,
        origin: Origin,
    ) {
        debug_assert!(self.fans.present.is_none(), "there is one at a time");
        self.fans.gone.clear();
        self.fans.present = Some(Box::new(Fan {
            message: publication.message(&mut self.scratch).clone(),
            publisher: publication.publisher,
            gate: publication.gate,
            body: publication.body.take(),
            whole: publication.whole,
            moving: publication.moving,
            walk: (matched == Matched::InPart).then(Walk::default),
            matches,
            at: 0,
            ordered: 0,
            outcome: Outcome::Unmatched,
            held: 0,
            origin,
        }));
    }

    /// One portion of the present publication, or of the parcels behind it.
    pub(super) fn go_on_with_fans(&mut self, now: Instant) {
        while !self.turn.is_over() {
            if let Some(fan) = self.fans.present.take() {
                let whole = fan.whole;
                let through = self.go_on_with(now, fan);
                if !through || whole {
                    // What it held back is sealed before the next begins.
                    return;
                }
            } else if let Some(underway) = self.fans.underway.take() {
                self.take_up_parcel(now, underway);
            } else if let Some(parcel) = self.fans.parcels.pop_front() {
                self.take_up_parcel(now, Box::new(Underway::new(parcel)));
            } else {
                return;
            }
        }
    }

    /// The connection is about to end: what it published goes to everybody before, its will after. Not bounded by the turn;
    /// such an end has other reasons than the client's packets, which are not read.
    pub(super) fn finish_fan_of(&mut self, now: Instant, id: ConnectionId) {
        let from = |fan: &Fan| matches!(&fan.origin, Origin::Client(of) if of.connection == id);
        while let Some(fan) = self.fans.present.take_if(|fan| from(fan)) {
            self.go_on_with(now, fan);
        }
    }

    /// One portion; whether it is through.
    fn go_on_with(&mut self, now: Instant, mut fan: Box<Fan>) -> bool {
        if let Some(walk) = &mut fan.walk {
            let most = self.turn.left().max(1).saturating_mul(2);
            let (visited, found) = (fan.matches.visited, fan.matches.subscribers.len());
            let all = self.tree.go_on(fan.message.topic(), walk, most, &mut fan.matches);
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
        publication.whole = fan.whole;
        publication.moving = fan.moving;
        publication.body = fan.body.take();
        let parted = matches!(fan.origin, Origin::Parcel) && fan.whole;
        if let (true, Some(ledger)) = (parted, self.ledger()) {
            ledger.resume_part();
        }
        self.deliver_portion(now, &mut fan, &mut publication);
        fan.held += publication.held;
        if let Origin::Client(of) = &mut fan.origin {
            of.letters |= self.owes_letters();
            self.expect(of, publication.held);
        }
        if fan.at < fan.matches.subscribers.len() {
            if let (true, Some(ledger)) = (parted, self.ledger()) {
                ledger.suspend_part();
            }
            fan.body = publication.body.take();
            fan.moving = publication.moving;
            self.fans.present = Some(fan);
            return false;
        }
        publication.held = fan.held;
        match fan.origin {
            Origin::Client(of) => {
                let mut routed = Routed { outcome: fan.outcome, gates: fan.held, full: ShardSet::EMPTY };
                self.route_on(now, &mut publication, &fan.matches, &mut routed);
                self.published(now, &of, &mut publication, routed, fan.held);
            }
            Origin::Parcel => self.item_delivered(&mut publication, fan.outcome),
        }
        fan.matches.clear();
        self.matches = fan.matches;
        self.jobs.extend(self.fans.waiting.drain(..).map(Job::Read));
        true
    }

    /// Delivers to as many as this turn has steps for, and one at least.
    fn deliver_portion(&mut self, now: Instant, fan: &mut Fan, publication: &mut Publication<'_>) {
        let mut ids = std::mem::take(&mut self.ids);
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
        self.ids = ids;
    }
}

/// How far a publication was matched at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Matched {
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

/// Puts the least sessions to the front, each whole and in order; how many entries that are. All, where they are in order
/// already or not many: a sort of 16,384 entries takes 0.5 ms, and to part a million takes 2 ms.
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
