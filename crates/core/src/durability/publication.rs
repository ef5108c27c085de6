//! A publication on its way to its receivers: a read-only view of the message, and the state of its
//! delivery.

use crate::mqtt::message::{Message, Parts};
use crate::mqtt::outcome::Outcome;
use crate::peers::peer_batch::{Publisher, Readers, ReportTo};
use crate::persistence::records::TransactionNumber;
use crate::routing::retained::SetMark;
use crate::routing::subscription_tree::{SessionSlot, ShardId, ShardSet};
use crate::session::objectives::{ObjectiveSet, Objectives};
use crate::session::outbound::outgoing::OutgoingMessage;
use crate::time::Instant;
use std::time::Duration;

/// A message on its way to its receivers. A QoS 0 publication allocates nothing if all receivers
/// are in this shard and take the message at once.
#[derive(Debug)]
pub(crate) struct Publication<'a> {
    /// The message, with all that its receivers in this shard share.
    pub outgoing: OutgoingMessage<'a>,
    /// The session that published the message, for No Local. `None` for a message of the broker,
    /// and for a message to a shared subscription, which cannot have No Local.
    pub publisher: Option<Publisher>,
    /// The gate that is answered with the outcome of a held message. Without a gate, a message is
    /// refused instead of held.
    pub gate: Option<ReportTo>,
    /// Number of receivers for which the message is held.
    pub held: u32,
    /// True if one commit must cover the deliveries in all shards and the change that caused the
    /// publication. Such a change is, for example, the Packet Identifier of a QoS 2 PUBLISH, the
    /// end of a will, or the end of a delayed message. No packet of the message leaves a shard
    /// before that commit.
    pub atomic: bool,
    /// True if a member of a shared group had the message before, and the session of that member
    /// ended. The message is dropped if no other member takes it.
    pub is_orphaned: bool,
    /// The members of the shared group that may read the message, as far as the offers show.
    pub readers: Readers,
    /// The transaction that the publication began in this shard, or in which this shard
    /// participates.
    pub transaction: Option<TransactionNumber>,
    /// The mark of the message if it was retained with this publication.
    pub set_mark: SetMark,
    /// The objectives that name the topic, once a delivery asked for them.
    objectives: Option<ObjectiveSet>,
}

impl<'a> Publication<'a> {
    /// Returns the publication of a message that has no body yet. `publisher` is a session of the
    /// shard `here`.
    // A call, and the copy of what it returns, cost 40 instructions a message.
    #[inline(always)]
    pub(crate) fn new(parts: Parts<'a>, publisher: Option<SessionSlot>, here: ShardId) -> Publication<'a> {
        let publisher = publisher.map(|session| Publisher { shard: here, session });
        Publication {
            outgoing: OutgoingMessage::new(parts),
            publisher,
            gate: None,
            held: 0,
            atomic: false,
            is_orphaned: false,
            readers: Readers::default(),
            transaction: None,
            set_mark: SetMark::NONE,
            objectives: None,
        }
    }

    /// Returns a publication of an existing message.
    pub(crate) fn of(message: &'a Message, publisher: Option<Publisher>) -> Publication<'a> {
        let mut publication = Publication::new(message.parts(), None, ShardId(0));
        (publication.outgoing, publication.publisher) = (OutgoingMessage::of(message), publisher);
        publication
    }

    /// Returns the objectives that name the topic.
    pub(crate) fn objectives(&mut self, all: &Objectives) -> ObjectiveSet {
        *self.objectives.get_or_insert_with(|| all.of_topic(self.outgoing.parts.topic))
    }

    /// Returns the outcome that the store records: `Taken` if the message is held for a receiver,
    /// because a held message is stored too. Otherwise returns `outcome`.
    pub(crate) fn recorded_outcome(&self, outcome: Outcome) -> Outcome {
        if self.held > 0 { Outcome::Taken } else { outcome }
    }
}

/// The result of routing a publication.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Routed {
    /// The outcome so far.
    pub outcome: Outcome,
    /// Number of answers that are pending.
    pub gates: u32,
    /// The peers whose batch is full. The publisher waits for them.
    pub full: ShardSet,
}

/// Returns the time at which a message with this Message Expiry Interval, in seconds, expires.
/// Returns [`Instant::NEVER`] if there is no interval.
pub(crate) fn expires(now: Instant, secs: Option<u32>) -> Instant {
    secs.map_or(Instant::NEVER, |secs| now + Duration::from_secs(secs.into()))
}
