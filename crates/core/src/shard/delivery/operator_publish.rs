//! A message that an operator publishes. It takes the way of a client's PUBLISH: the limits, the
//! receivers and the outcome are the same. The rules of the ACL are about clients, so they do not
//! decide about it.

use crate::durability::publication::{Publication, expires};
use crate::mqtt::audit::AuditTag;
use crate::mqtt::message::Parts;
use crate::mqtt::outcome::Outcome;
use crate::mqtt::packet::{Publish, QoS, ReasonCode};
use crate::mqtt::publisher_name::PublisherName;
use crate::peers::peer_batch::PublicationNumber;
use crate::peers::peer_batch::ReportTo;
use crate::session::drops::DropReason;
use crate::shard::Shard;
use crate::shard::admission::Change;
use crate::shard::delivery::fans::{DeliveryTurns, MatchExtent, PublicationOrigin};
use crate::shard::delivery::publish::{TOO_LARGE, is_too_large, message_bytes, refused_as, refused_for_want};
use crate::shard::delivery::published::Published;
use crate::shard::features::delayed::is_delayed;
use crate::shard::features::unanswered::TooManyUnanswered;
use crate::time::Instant;
use std::sync::Arc;

/// The reason why a message of an operator is not published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotPublished {
    /// Other work must be complete first. Nothing happened.
    Busy,
    /// Too many messages wait for their answers. Nothing happened.
    TooMany(TooManyUnanswered),
    /// A client would get this reason code. The drop is counted under its cause.
    Refused(ReasonCode, DropReason),
}

/// A message of an operator that is being published.
pub(crate) struct OperatorPublish<'a> {
    now: Instant,
    number: PublicationNumber,
    publish: &'a Publish<'a>,
    publisher: &'a Arc<str>,
    audit: AuditTag,
}

impl OperatorPublish<'_> {
    /// Publishes a message for the operator `publisher`. The answer is reported with the returned
    /// number, when a client would get its PUBACK; at QoS 0, once the message is routed in this
    /// shard.
    ///
    /// # Errors
    /// The message is not published.
    pub(crate) fn publish(
        now: Instant,
        publish: &Publish<'_>,
        publisher: &Arc<str>,
        shard: &mut Shard,
    ) -> Result<PublicationNumber, NotPublished> {
        let core = &mut shard.core;
        // A client's PUBLISH waits for the same.
        if shard.fans.blocks_publishes() || core.peers.is_any_full() || core.durability.is_stopping() {
            return Err(NotPublished::Busy);
        }
        let number = core.unanswered.next(publisher).map_err(NotPublished::TooMany)?;
        let topic = publish.topic;
        let mut audit = AuditTag::NONE;
        if core.tracer.is_on() {
            audit = core.recorder().begin_by(now, publisher, publish, topic);
        }
        let this = OperatorPublish { now, number, publish, publisher, audit };
        let done = if is_delayed(topic) { this.keep(shard) } else { this.route(shard) };
        let Err((reason, cause)) = done else { return Ok(number) };
        let core = &mut shard.core;
        core.counters.drops.count(cause);
        core.counters.refused_publishes.add(cause, 1);
        if audit.is_some() {
            core.recorder().add_refusal(now, audit, cause);
        }
        Err(NotPublished::Refused(reason, cause))
    }

    /// Returns the place to which the outcome is reported; `None` at QoS 0.
    fn gate(&self) -> Option<ReportTo> {
        (self.publish.qos != QoS::AtMostOnce).then_some(ReportTo::Operator(self.number))
    }

    /// Keeps a message for `$delayed/...`. The message counts for no client, like the broker's own
    /// messages.
    ///
    /// # Errors
    /// The reason code of the refusal, and its cause.
    fn keep(&self, shard: &mut Shard) -> Result<(), (ReasonCode, DropReason)> {
        let OperatorPublish { now, number, publish, publisher, .. } = *self;
        let bytes = message_bytes(publish, publish.topic);
        if is_too_large(publish, &shard.core) {
            return Err(TOO_LARGE);
        }
        let admitted = shard.core.admits(Change::Delayed { bytes });
        admitted.map_err(|want| (ReasonCode::QUOTA_EXCEEDED, want.cause()))?;
        shard.delayed.keep(now, None, publish, publish.topic, &mut shard.core)?;
        let core = &mut shard.core;
        let gates = core.durability.gate_publisher(self.gate(), None);
        core.unanswered.wait((number, publisher), (gates, Outcome::Taken), None, &mut core.effects);
        Ok(())
    }

    /// Routes the message, and retains it if its RETAIN flag is set.
    ///
    /// # Errors
    /// The reason code of the refusal, and its cause.
    fn route(&self, shard: &mut Shard) -> Result<(), (ReasonCode, DropReason)> {
        let OperatorPublish { now, number, publish, .. } = *self;
        let Shard { core, routes, fans, .. } = shard;
        let refusal = refused_as(publish, publish.topic, core);
        if let Some(refusal) = refusal.or_else(|| refused_for_want(publish, publish.topic, core)) {
            return Err(refusal);
        }
        if publish.retain && !core.settings.session.connect.retain_available {
            return Err((ReasonCode::RETAIN_NOT_SUPPORTED, DropReason::RetainedFull));
        }
        let parts = Parts {
            qos: publish.qos,
            retain: publish.retain,
            expires: expires(now, publish.properties.message_expiry),
            topic: publish.topic,
            forwarded: &publish.properties.forwarded,
            payload: publish.payload,
        };
        let mut publication = Publication::new(parts, None, core.peers.here());
        publication.outgoing.audit = self.audit;
        if core.dead_letters.keep_publisher() {
            publication.outgoing.publisher_name = Some(PublisherName::new(self.publisher));
        }
        let (mut waits, mut reason) = (false, None);
        if publish.retain {
            let retaining = routes.retain(now, &mut publication, None, None, core);
            waits = retaining.waits;
            // The subscribers get the message all the same, as that of a client at QoS 1.
            reason = retaining.refused.map(|_| ReasonCode::QUOTA_EXCEEDED);
        }
        publication.gate = self.gate();
        let (extent, matches) = routes.receivers(publish.topic, core);
        if extent == MatchExtent::All && matches.is_empty() {
            core.counters.unmatched += 1;
        }
        if self.audit.is_some() {
            core.recorder().add_matches(now, self.audit, &matches);
        }
        let goes_on = !matches.peers.is_empty() || !matches.groups.is_empty();
        let of = |dead_letters| {
            let (gate, qos) = (self.gate(), publish.qos);
            Published { connection: None, gate, incoming: None, waits, qos, dead_letters }
        };
        let turns = DeliveryTurns::Several;
        let (gates, outcome) = match routes.route(now, &mut publication, (extent, matches), turns, core) {
            Ok(routed) => {
                if self.audit.is_some() {
                    core.recorder().add_record(now, &publication);
                }
                let published = of(core.begin_for_dead_letters());
                let gates = routed.gates + published.end_transaction(&mut publication, &routed, core);
                // At QoS 0 nobody reports what the others did.
                let is_sent = goes_on && self.gate().is_none();
                (gates, if is_sent { Outcome::Taken } else { routed.outcome })
            }
            Err((extent, matches)) => {
                let origin = PublicationOrigin::Publisher(of(core.begin_for_dead_letters()));
                let held = publication.held;
                fans.fan_out(&mut publication, extent, matches, origin, core);
                // The end of the routing is one gate. Each receiver that holds the message is
                // another.
                match self.gate() {
                    Some(_) => (1 + held, Outcome::Unmatched),
                    None => (0, Outcome::Taken),
                }
            }
        };
        core.unanswered.wait((number, self.publisher), (gates, outcome), reason, &mut core.effects);
        Ok(())
    }
}
