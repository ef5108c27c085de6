//! From a publication to its receivers.

use super::exchange::{Gate, Item, Publisher};
use super::{SessionId, Shard};
use crate::journal::ledger::Body;
use crate::journal::record::{MoveNumber, SessionKey};
use crate::mqtt::message::{Message, Parts};
use crate::mqtt::packet::{PacketId, QoS};
use crate::mqtt::session::receiver::{AckToken, Outcome};
use crate::mqtt::session::wire::FrameKind;
use crate::routing::subscription_tree::{Matches, SessionSlot, ShardId, ShardSet, Subscriber};
use crate::time::Instant;
use std::rc::Rc;

/// A message on its way, before and after it has a body of its own: at QoS 0, with receivers that take it at once, it
/// never gets one.
#[derive(Debug)]
pub(super) struct Publication<'a> {
    pub parts: Parts<'a>,
    pub publisher: Option<Publisher>,
    /// The client id of the publisher, where messages keep it.
    pub publisher_name: &'a str,
    message: Option<Message>,
    /// Whom to tell of a message that is held; none where nobody waits: then it is refused instead.
    pub gate: Option<Gate>,
    /// How often it is held.
    pub held: u32,
    /// Its row in the store, once a receiver here is in there.
    pub body: Option<Rc<Body>>,
    /// What it leads to, in all shards, is committed at once, with what this shard has recorded of where it comes from; and
    /// nothing of it leaves before.
    pub whole: bool,
    /// A member of a shared group had it before, whose session ended: it is lost if nobody takes it now.
    pub owed: bool,
    /// The move that it is, or is a part of.
    pub moving: Option<MoveNumber>,
    /// How far it is with each of the shard's frames.
    pub framed: [Framed; FrameKind::COUNT],
}

/// How far a publication is with the packet that all receivers of one kind get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framed {
    /// Nobody had it.
    Unsent,
    /// One had it, written straight into its outbox: most messages have one receiver, and a frame would be copied once for it.
    Once,
    /// The frame is laid out.
    LaidOut,
}

impl<'a> Publication<'a> {
    pub fn new(parts: Parts<'a>, publisher: Option<SessionSlot>, here: ShardId) -> Publication<'a> {
        let publisher = publisher.map(|session| Publisher { shard: here, session });
        Publication {
            parts,
            publisher,
            publisher_name: "",
            message: None,
            gate: None,
            held: 0,
            body: None,
            whole: false,
            owed: false,
            moving: None,
            framed: [Framed::Unsent; FrameKind::COUNT],
        }
    }

    /// Of a message that exists.
    pub fn of(message: &'a Message, publisher: Option<Publisher>) -> Publication<'a> {
        let header = message.header();
        let parts = Parts {
            qos: header.qos,
            retain: header.retain,
            expires: header.expires,
            topic: message.topic(),
            forwarded: message.forwarded(),
            payload: message.payload(),
        };
        let mut publication = Publication::new(parts, None, ShardId(0));
        publication.publisher = publisher;
        publication.publisher_name = message.publisher();
        publication.message = Some(message.clone());
        publication
    }

    /// The body that its receivers share; made when first asked for.
    pub fn message(&mut self, scratch: &mut Vec<u8>) -> &Message {
        let Publication { parts, publisher_name, message, .. } = self;
        message.get_or_insert_with(|| Message::published_by(publisher_name, *parts, scratch))
    }

    pub fn existing(&self) -> Option<&Message> {
        self.message.as_ref()
    }

    /// What there is to say of a delivery that had this outcome, as far as the store goes: what is held is in there.
    pub fn taken_over(&self, outcome: Outcome) -> Outcome {
        if self.held > 0 { Outcome::Taken } else { outcome }
    }
}

/// Where a publication went.
#[derive(Clone, Copy, Debug)]
pub(super) struct Routed {
    /// What is known already.
    pub outcome: Outcome,
    /// Answers that are still to come.
    pub gates: u32,
    /// The peers that have as much from here as they should.
    pub full: ShardSet,
}

/// A receiver with its overlapping subscriptions merged.
pub(super) struct Target<'a> {
    pub session: SessionSlot,
    /// The highest granted.
    pub qos: QoS,
    pub retain_as_published: bool,
    pub ids: &'a [u32],
}

impl Shard {
    /// Hands a publication to everybody who is to have it. `acknowledgement`: the publisher's that waits for answers.
    pub(super) fn route(
        &mut self,
        now: Instant,
        publication: &mut Publication<'_>,
        acknowledgement: Option<(SessionId, AckToken)>,
    ) -> Routed {
        let mut matches = std::mem::take(&mut self.matches);
        self.tree.matches(publication.parts.topic, &mut matches);
        self.turn.charge(matches.visited / 2);
        publication.gate = acknowledgement.map(|(session, token)| Gate::Here { session, token });
        let routed = self.route_matched(now, publication, &mut matches);
        self.matches = matches;
        routed
    }

    /// The same with what it matched; `publication.gate` is the publisher's.
    pub(super) fn route_matched(
        &mut self,
        now: Instant,
        publication: &mut Publication<'_>,
        matches: &mut Matches,
    ) -> Routed {
        let outcome = self.deliver_matches(now, publication, matches);
        let mut routed = Routed { outcome, gates: publication.held, full: ShardSet::EMPTY };
        self.route_on(now, publication, matches, &mut routed);
        routed
    }

    /// What comes after the receivers here: peers and shared groups.
    pub(super) fn route_on(
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
    pub(super) fn deliver_matches(
        &mut self,
        now: Instant,
        publication: &mut Publication<'_>,
        matches: &mut Matches,
    ) -> Outcome {
        let subscribers = &mut matches.subscribers;
        // One filter's subscribers are in rising order; only overlapping filters name a session twice.
        if !subscribers.is_sorted_by(|a, b| a.session.0 < b.session.0) {
            subscribers.sort_unstable_by_key(|s| s.session.0);
        }
        self.turn.charge(u32::try_from(subscribers.len()).unwrap_or(u32::MAX));
        let mut outcome = Outcome::Unmatched;
        let mut ids = std::mem::take(&mut self.ids);
        for same in subscribers.chunk_by(|a, b| a.session == b.session) {
            if let Some(target) = merge(same, publication.publisher, self.here, &mut ids) {
                outcome = outcome.or(self.deliver(now, &target, publication));
            }
        }
        self.ids = ids;
        outcome
    }

    /// Puts the publication into the parcel of every interested peer.
    fn forward(
        &mut self,
        publication: &mut Publication<'_>,
        matches: &Matches,
        gate: Option<Gate>,
        routed: &mut Routed,
    ) {
        let message = publication.message(&mut self.scratch).clone();
        for shard in matches.peers.iter() {
            let part_of = self.next_part(publication);
            let Some(peer) = self.peers.get_mut(usize::from(shard.0)) else { continue };
            routed.gates += u32::from(gate.is_some());
            let item = Item::Publish { message: message.clone(), publisher: publication.publisher, part_of };
            peer.publish(item, message.size(), gate);
            if peer.is_full() {
                routed.full.insert(shard);
            }
        }
    }
}

impl Shard {
    /// One more peer takes part in what has to be committed at once: in which move, if it has to. Of what is a peer's part
    /// here already, it is one more of the same move.
    pub(super) fn next_part(&self, publication: &mut Publication<'_>) -> Option<MoveNumber> {
        let ledger = self.ledger().filter(|_| publication.whole)?;
        let number = *publication.moving.get_or_insert_with(|| ledger.begin_move());
        ledger.add_part(number);
        Some(number)
    }

    /// A publication was routed: if it is a move, that ends with what it came to here, and for the publisher's identifier, if
    /// it has one, with what it comes to in all.
    pub(super) fn end_move(
        &self,
        publication: &Publication<'_>,
        outcome: Outcome,
        incoming: Option<(SessionKey, PacketId)>,
    ) {
        if let (Some(number), Some(ledger)) = (publication.moving, self.ledger()) {
            ledger.end_move(number, publication.taken_over(outcome), incoming);
        }
    }
}

/// One session's matching subscriptions as one; `None` where No Local leaves none.
// 3.1.1 [MQTT-3.3.5-1]; 5.0 [MQTT-3.3.4-2], [MQTT-3.3.4-3], [MQTT-3.3.4-4], [MQTT-3.8.3-3]
pub(super) fn merge<'a>(
    subscriptions: &[Subscriber],
    publisher: Option<Publisher>,
    here: ShardId,
    ids: &'a mut Vec<u32>,
) -> Option<Target<'a>> {
    ids.clear();
    let mut merged: Option<(QoS, bool)> = None;
    let session = subscriptions.first()?.session;
    let own = publisher == Some(Publisher { shard: here, session });
    for s in subscriptions {
        if own && s.options.no_local() {
            continue;
        }
        let (qos, rap) = merged.unwrap_or((QoS::AtMostOnce, false));
        merged = Some((qos.max(s.options.qos()), rap || s.options.retain_as_published()));
        if s.subscription_id != 0 {
            ids.push(s.subscription_id);
        }
    }
    let (qos, retain_as_published) = merged?;
    Some(Target { session, qos, retain_as_published, ids })
}
