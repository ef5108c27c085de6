//! From a publication to its receivers.

use crate::mqtt::message::{Message, Parts};
use crate::mqtt::outcome::Outcome;
use crate::mqtt::packet::QoS;
use crate::persistence::records::TransactionNumber;
use crate::persistence::rows::Body;
use crate::routing::subscription_tree::{Matches, SessionSlot, ShardId, ShardSet, Subscriber};
use crate::session::wire::FrameKind;
use crate::shard::Shard;
use crate::shard::exchange::outbound::{Gate, Item, Publisher};
use crate::time::Instant;
use std::rc::Rc;

/// A message on its way, before and after it has a body of its own: at QoS 0, with receivers that
/// take it at once, it never gets one.
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
    /// What it leads to, in all shards, is committed at once, with what this shard has recorded of
    /// where it comes from; and nothing of it leaves before.
    pub atomic: bool,
    /// A member of a shared group had it before, whose session ended: it is lost if nobody takes it
    /// now.
    pub owed: bool,
    /// The transaction that it begins, or is a part of.
    pub transaction: Option<TransactionNumber>,
    /// How far it is with each of the shard's frames.
    pub framed: [Framed; FrameKind::COUNT],
}

/// How far a publication is with the packet that all receivers of one kind get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framed {
    /// Nobody had it.
    Unsent,
    /// One had it, written straight into its outbox: most messages have one receiver, and a frame
    /// would be copied once for it.
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
            atomic: false,
            owed: false,
            transaction: None,
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

    /// What there is to say of a delivery that had this outcome, as far as the store goes: what is
    /// held is in there.
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

impl<'a> Target<'a> {
    /// As [`merge`] of one subscription.
    fn of(only: &'a Subscriber, publisher: Option<Publisher>, here: ShardId) -> Option<Target<'a>> {
        let Subscriber { session, options, subscription_id } = only;
        if options.no_local() && publisher == Some(Publisher { shard: here, session: *session }) {
            return None;
        }
        let ids = if *subscription_id == 0 { &[] } else { std::slice::from_ref(subscription_id) };
        let retain_as_published = options.retain_as_published();
        Some(Target { session: *session, qos: options.qos(), retain_as_published, ids })
    }
}

impl Shard {
    /// Hands a publication to everybody whom it matched; `publication.gate` is the publisher's.
    pub(super) fn route_matched(
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

    /// What comes after the receivers here: peers and shared groups.
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
    pub(super) fn deliver_matches(
        &mut self,
        now: Instant,
        publication: &mut Publication<'_>,
        matches: &mut Matches,
    ) -> Outcome {
        let subscribers = &matches.subscribers;
        self.turn.charge(u32::try_from(subscribers.len()).unwrap_or(u32::MAX));
        // One filter's subscribers are in rising order; only overlapping filters name a session
        // twice.
        if !subscribers.is_sorted_by(|a, b| a.session.0 < b.session.0) {
            return self.deliver_merged(now, publication, matches);
        }
        let mut outcome = Outcome::Unmatched;
        for only in subscribers {
            if let Some(target) = Target::of(only, publication.publisher, self.here) {
                outcome = outcome.or(self.deliver(now, &target, publication));
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
            if let Some(target) = merge(same, publication.publisher, self.here, ids) {
                outcome = outcome.or(self.deliver(now, &target, publication));
            }
        }
        outcome
    }

    /// Puts the publication into the peer batch of every interested peer.
    pub(super) fn forward(
        &mut self,
        publication: &mut Publication<'_>,
        matches: &Matches,
        gate: Option<Gate>,
        routed: &mut Routed,
    ) {
        let message = publication.message(&mut self.scratch.bytes).clone();
        for shard in matches.peers.iter() {
            let transaction = self.next_participant(publication);
            let Some(peer) = self.exchange.peer(shard) else { continue };
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
