//! A publication on its way to its receivers: an immutable view of the message, and the state of
//! its delivery.

use crate::mqtt::message::{Message, Parts};
use crate::mqtt::outcome::Outcome;
use crate::mqtt::packet::QoS;
use crate::persistence::records::TransactionNumber;
use crate::persistence::rows::Body;
use crate::routing::subscription_tree::{SessionSlot, ShardId, ShardSet, Subscriber};
use crate::session::wire::FrameKind;
use crate::shard::exchange::outbound::{Gate, Publisher};
use crate::time::Instant;
use std::rc::Rc;
use std::time::Duration;

/// A message on its way, before and after it has a body of its own: at QoS 0, with receivers that
/// take it at once, it never gets one.
#[derive(Debug)]
pub(crate) struct Publication<'a> {
    pub parts: Parts<'a>,
    pub publisher: Option<Publisher>,
    /// The client id of the publisher, where messages keep it.
    pub publisher_name: &'a str,
    message: Option<Message>,
    /// Who waits for the outcome of a held message. Without a gate a message is refused instead of
    /// held.
    pub gate: Option<Gate>,
    /// Number of receivers for which it is held.
    pub held: u32,
    /// Its row in the store, once a receiver here is in there.
    pub body: Option<Rc<Body>>,
    /// True if its deliveries in all shards are committed at once, together with the record of its
    /// origin in this shard. Nothing of it leaves before.
    pub atomic: bool,
    /// True if a member of a shared group had it before, and its session ended. The message is
    /// dropped if no other member takes it.
    pub owed: bool,
    /// The transaction that it begins, or has a part in.
    pub transaction: Option<TransactionNumber>,
    /// The state of each of the shard's frames.
    pub framed: [Framed; FrameKind::COUNT],
}

/// The state of the packet that all receivers of one kind get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framed {
    /// No receiver had it.
    Unsent,
    /// One receiver had it, written straight into its outbox. Most messages have one receiver, and
    /// a frame would be copied once for it.
    Once,
    /// The frame is laid out.
    LaidOut,
}

impl<'a> Publication<'a> {
    pub(crate) fn new(parts: Parts<'a>, publisher: Option<SessionSlot>, here: ShardId) -> Publication<'a> {
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
    pub(crate) fn of(message: &'a Message, publisher: Option<Publisher>) -> Publication<'a> {
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
    pub(crate) fn message(&mut self, scratch: &mut Vec<u8>) -> &Message {
        let Publication { parts, publisher_name, message, .. } = self;
        message.get_or_insert_with(|| Message::published_by(publisher_name, *parts, scratch))
    }

    pub(crate) fn existing(&self) -> Option<&Message> {
        self.message.as_ref()
    }

    /// What there is to say of a delivery that had this outcome, as far as the store goes: what is
    /// held is in there.
    pub(crate) fn recorded_outcome(&self, outcome: Outcome) -> Outcome {
        if self.held > 0 { Outcome::Taken } else { outcome }
    }
}

/// The result of routing a publication.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Routed {
    /// The outcome so far.
    pub outcome: Outcome,
    /// Number of answers that are still to come.
    pub gates: u32,
    /// Peers whose batch is full.
    pub full: ShardSet,
}

/// A receiver with its overlapping subscriptions merged.
pub(crate) struct Target<'a> {
    pub session: SessionSlot,
    /// The highest granted.
    pub qos: QoS,
    pub retain_as_published: bool,
    pub ids: &'a [u32],
}

impl<'a> Target<'a> {
    /// As [`merge`] of one subscription.
    pub(crate) fn of(
        only: &'a Subscriber,
        publisher: Option<Publisher>,
        here: ShardId,
    ) -> Option<Target<'a>> {
        let Subscriber { session, options, subscription_id } = only;
        if options.no_local() && publisher == Some(Publisher { shard: here, session: *session }) {
            return None;
        }
        let ids = if *subscription_id == 0 { &[] } else { std::slice::from_ref(subscription_id) };
        let retain_as_published = options.retain_as_published();
        Some(Target { session: *session, qos: options.qos(), retain_as_published, ids })
    }
}

/// Merges the matching subscriptions of one session. Returns `None` if No Local leaves none.
// 3.1.1 [MQTT-3.3.5-1]; 5.0 [MQTT-3.3.4-2], [MQTT-3.3.4-3], [MQTT-3.3.4-4], [MQTT-3.8.3-3]
pub(crate) fn merge<'a>(
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

/// Returns the time at which a message with this Message Expiry Interval, in seconds, expires;
/// [`Instant::NEVER`] without one.
pub(crate) fn expires(now: Instant, secs: Option<u32>) -> Instant {
    secs.map_or(Instant::NEVER, |secs| now + Duration::from_secs(secs.into()))
}
