//! Handles a client's PUBLISH: checks, retained message, routing, acknowledgement.

use crate::durability::publication::{Publication, Routed, expires};
use crate::events::refusals::RefusedKind;
use crate::login::access_rules::DeniedPublish;
use crate::mqtt::audit::AuditTag;
use crate::mqtt::message::Parts;
use crate::mqtt::outcome::Outcome;
use crate::mqtt::packet::{PacketId, Publish, QoS, ReasonCode};
use crate::peers::peer_batch::ReportTo;
use crate::persistence::records::SessionKey;
use crate::routing::subscription_tree::{SessionSlot, ShardSet};
use crate::session::drops::DropReason;
use crate::session::inbound::{AckToken, Due, Receiver};
use crate::session::topic_alias::IncomingAliases;
use crate::session::trace_steps::StepKind;
use crate::session::{Admitted, Session, Violation, publish_refusal};
use crate::shard::Shard;
use crate::shard::admission::{Change, Want};
use crate::shard::clients::pause::Pause;
use crate::shard::core::Core;
use crate::shard::delivery::fans::{DeliveryTurns, MatchExtent, PublicationOrigin};
use crate::shard::delivery::published::Published;
use crate::shard::features::delayed::{delayed_topic, is_delayed};
use crate::shard::features::redelivery_request::{RequestedTimes, request_time};
use crate::shard::turn::flow::Flow;
use crate::slots::{ConnectionId, SessionId};
use crate::time::Instant;
use std::num::NonZeroU16;

/// Pending acknowledgements that one step looks at, for a repetition of a QoS 2 PUBLISH.
const LOOKED_AT: usize = 64;

/// The refusal of a payload that exceeds `limits.payload_size`. "Packet too large" is no code of
/// PUBACK and PUBREC.
pub(super) const TOO_LARGE: (ReasonCode, DropReason) =
    (ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR, DropReason::TooLarge);

/// 5.0 [MQTT-3.2.2-14] binds the client.
const RETAIN_REFUSED: Violation = Violation {
    reason: ReasonCode::RETAIN_NOT_SUPPORTED,
    what: "Retain 1, although CONNACK has Retain Available 0 (limits.retained_messages)",
};

/// A PUBLISH of an established connection that is being handled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientPublish<'a> {
    now: Instant,
    pub(in crate::shard) connection: ConnectionId,
    session: SessionId,
    publish: &'a Publish<'a>,
    /// The token of the pending acknowledgement; `None` at QoS 0.
    token: Option<(SessionId, AckToken)>,
}

/// Returns the bytes of the message that a PUBLISH makes: topic, payload and forwarded properties.
/// `topic` is an argument, because the packet may have a Topic Alias in its place.
pub(super) fn message_bytes(publish: &Publish<'_>, topic: &str) -> usize {
    topic.len() + publish.payload.len() + publish.properties.forwarded.len()
}

/// Returns true if the payload exceeds `limits.payload_size`.
pub(super) fn is_too_large(publish: &Publish<'_>, core: &Core) -> bool {
    publish.payload.len() > core.settings.session.payload_size
}

/// Returns why nobody may publish such a message, or `None` if somebody may.
#[inline]
pub(super) fn refused_as(
    publish: &Publish<'_>,
    topic: &str,
    core: &Core,
) -> Option<(ReasonCode, DropReason)> {
    if let Some(cause) = core.settings.topic_refusal(topic) {
        let deep = cause == DropReason::TopicTooDeep;
        let reason = if deep { ReasonCode::TOPIC_NAME_INVALID } else { ReasonCode::NOT_AUTHORIZED };
        return Some((reason, cause));
    }
    is_too_large(publish, core).then_some(TOO_LARGE)
}

/// Returns why memory or disk has no room for a message, or `None` if there is room.
#[inline]
pub(super) fn refused_for_want(
    publish: &Publish<'_>,
    topic: &str,
    core: &Core,
) -> Option<(ReasonCode, DropReason)> {
    if !core.shared.is_short() {
        return None;
    }
    // A PUBLISH that erases a retained message frees memory.
    let frees = if publish.retain && publish.payload.is_empty() { core.shared.frees(topic) } else { 0 };
    let bytes = message_bytes(publish, topic);
    let want = core.admits(Change::Publish { qos: publish.qos, bytes, frees }).err()?;
    Some((ReasonCode::QUOTA_EXCEEDED, want.cause()))
}

impl<'a> ClientPublish<'a> {
    /// Handles a PUBLISH of an established connection.
    pub(in crate::shard) fn handle(
        now: Instant,
        id: ConnectionId,
        publish: &'a Publish<'a>,
        shard: &mut Shard,
    ) -> Flow {
        if let Some(alias) = publish.properties.topic_alias
            && let Err(violation) = resolve_topic_alias(id, alias, publish.topic, &mut shard.core)
        {
            shard.fail(now, id, violation);
            return Flow::Closed;
        }
        // No `Client`: its nine borrows cost each PUBLISH 25 instructions.
        let Core { connections, sessions, scratch, counters, .. } = &mut shard.core;
        // The packets before this one may have ended the connection.
        let Some(connection) = connections.get_mut(id) else { return Flow::Closed };
        // The decoder accepts no PUBLISH before CONNECT, so the connection has a session.
        let Some(session) = connection.session else { return Flow::Closed };
        let Some(entry) = sessions.get_mut(session) else { return Flow::Closed };
        if publish.retain && connection.refuses_retain {
            shard.fail(now, id, RETAIN_REFUSED);
            return Flow::Closed;
        }
        let before = connection.begin_write(&mut scratch.pool);
        let is_mounted = connection.wire.mount_point().is_some();
        let sent = &mut counters.packets_sent;
        let admitted = entry.session.admit(publish, &mut connection.wire, sent);
        let Admitted::ToRoute(token) = admitted else {
            return end_unrouted(now, id, admitted, before, shard);
        };
        let token = token.map(|token| (session, token));
        let this = ClientPublish { now, connection: id, session, publish, token };
        if !publish.topic.is_empty() && !is_mounted {
            return this.publish_named(shard, publish.topic);
        }
        this.publish_renamed(shard)
    }

    /// Handles an admitted PUBLISH that has a Topic Alias in place of its topic, or whose client is
    /// behind a mount point. The alias refers to the topic that the client names.
    #[inline(never)]
    fn publish_renamed(&self, shard: &mut Shard) -> Flow {
        let aliased = std::mem::take(&mut shard.core.scratch.topic);
        let topic = if self.publish.topic.is_empty() { &*aliased } else { self.publish.topic };
        let flow = self.publish_mounted(shard, topic);
        shard.core.scratch.topic = aliased;
        flow
    }

    /// Handles an admitted PUBLISH whose topic inside the broker is known.
    pub(in crate::shard) fn publish_named(&self, shard: &mut Shard, topic: &str) -> Flow {
        let ClientPublish { now, session, publish, .. } = *self;
        if is_delayed(topic) {
            self.begin_trace(shard, topic);
            return self.publish_later(shard, topic);
        }
        if let Some(refusal) = self.refusal(&mut shard.core, topic) {
            let (_, cause) = refusal;
            let audit = self.begin_trace(shard, topic);
            if audit.is_some() {
                shard.core.recorder().add_refusal(now, audit, cause);
            }
            return self.refuse_or_grant(shard, topic, refusal);
        }
        let parts = Parts {
            qos: publish.qos,
            retain: publish.retain,
            expires: expires(now, publish.properties.message_expiry),
            topic,
            forwarded: &publish.properties.forwarded,
            payload: publish.payload,
        };
        let mut publication =
            Publication::new(parts, Some(SessionSlot(session.slot)), shard.core.peers.here());
        if shard.core.dead_letters.keep_publisher() {
            publication.outgoing.publisher_name = shard.core.publisher_name(session);
        }
        if shard.core.tracer.is_on() {
            publication.outgoing.audit = self.begin_trace(shard, topic);
        }
        self.publish_admitted(shard, &mut publication)
    }

    /// Returns the place to which the outcome is reported; `None` at QoS 0.
    #[inline]
    fn gate(&self) -> Option<ReportTo> {
        self.token.map(|(session, token)| ReportTo::Here { session, token })
    }

    /// Begins to follow the PUBLISH, if a trace names its client or its topic. Cold, so that a
    /// routed PUBLISH pays one comparison; inlined, the function costs 8 instructions more.
    #[cold]
    fn begin_trace(&self, shard: &mut Shard, topic: &str) -> AuditTag {
        shard.core.recorder().begin(self.now, self.session, self.publish, topic)
    }

    /// Retains the message if the PUBLISH asks for it, routes it, and acknowledges the PUBLISH.
    fn publish_admitted(&self, shard: &mut Shard, publication: &mut Publication<'_>) -> Flow {
        let ClientPublish { now, connection: id, publish, .. } = *self;
        let is_identified = publish.qos == QoS::ExactlyOnce;
        let incoming = if is_identified { self.record_incoming(&shard.core) } else { None };
        publication.atomic = incoming.is_some();
        let (is_stored, refused) =
            if publish.retain { self.retain(shard, publication) } else { (false, None) };
        let waits = incoming.is_some() || is_stored;
        // The message could not be retained. An error in PUBREC says that no receiver has the
        // message. The client may send it again under another identifier, and it must not reach a
        // receiver twice. So at QoS 2 nothing is routed. At QoS 1 a repetition is allowed, so the
        // subscribers get the message now.
        if let Some(reason) = refused.filter(|_| is_identified) {
            return self.refuse_publish(shard, publication.outgoing.parts.topic, reason, None);
        }
        publication.gate = self.gate();
        let (extent, matches) = shard.routes.receivers(publication.outgoing.parts.topic, &mut shard.core);
        if extent == MatchExtent::All && matches.is_empty() {
            shard.core.counters.unmatched += 1;
        }
        if publication.outgoing.audit.is_some() {
            shard.core.recorder().add_matches(now, publication.outgoing.audit, &matches);
        }
        // Built where it is used: for nearly every PUBLISH it is not.
        let qos = publish.qos;
        let of = || {
            let (connection, gate) = (Some(id), self.gate());
            Published { connection, gate, incoming, waits, qos, dead_letters: false }
        };
        let turns = DeliveryTurns::Several;
        let receivers = (extent, matches);
        let mut routed = match shard.routes.route(now, publication, receivers, turns, &mut shard.core) {
            Ok(routed) => routed,
            Err((extent, matches)) => {
                let origin = Published { dead_letters: shard.core.begin_for_dead_letters(), ..of() };
                let origin = PublicationOrigin::Publisher(origin);
                shard.fans.fan_out(publication, extent, matches, origin, &mut shard.core);
                self.publish_on(shard, refused, publication.held);
                return Flow::Continue;
            }
        };
        // For nearly every PUBLISH nothing was recorded, and no transaction has to be ended.
        if waits
            || publication.outgoing.body.is_some()
            || publication.transaction.is_some()
            || shard.core.begin_for_dead_letters()
        {
            if publication.outgoing.audit.is_some() {
                shard.core.recorder().add_record(now, publication);
            }
            routed.gates += of().end_transaction(publication, &routed, &mut shard.core);
        }
        if !routed.full.is_empty() {
            shard.core.wait_for_peers(now, id, routed.full);
        }
        self.answer_routed(shard, routed, refused)
    }

    /// Retains the message. Returns true if the acknowledgement waits for the commit of the change,
    /// and the reason code for a 5.0 client whose message could not be retained.
    fn retain(&self, shard: &mut Shard, publication: &mut Publication<'_>) -> (bool, Option<ReasonCode>) {
        let ClientPublish { now, connection: id, session, .. } = *self;
        let source = shard.core.retained_source(session);
        let owner = shard.core.owner_of(session);
        let retaining = shard.routes.retain(now, publication, source, owner, &mut shard.core);
        match retaining.refused {
            Some(cause) => self.note_refusal(shard, publication.outgoing.parts.topic, cause),
            None if publication.outgoing.audit.is_some() => {
                shard.core.recorder().add(now, StepKind::Retained, publication.outgoing.audit, "");
            }
            None => {}
        }
        let is_informed = retaining.refused.is_some()
            && shard.core.connections.get(id).is_some_and(|c| c.version().is_v5());
        (retaining.waits, is_informed.then_some(ReasonCode::QUOTA_EXCEEDED))
    }

    /// Lets a PUBLISH continue in later turns. The end of the routing is one gate of its
    /// acknowledgement, beside those of the `held` receivers that hold the message so far. The
    /// connection is not read until then. `reason` replaces the outcome in the acknowledgement.
    fn publish_on(&self, shard: &mut Shard, reason: Option<ReasonCode>, held: u32) {
        let ClientPublish { now, connection: id, publish, .. } = *self;
        if let Some(packet_id) = publish.packet_id {
            self.answer(&mut shard.core, |receiver| {
                receiver.report(packet_id, publish.qos, Outcome::Unmatched, 1 + held, reason)
            });
        }
        if let Some(connection) = shard.core.connections.get_mut(id) {
            connection.pause(Pause::Work, now);
        }
    }

    /// Acknowledges a routed PUBLISH at once, or when all its gates have answered. `reason`
    /// replaces the outcome in the acknowledgement.
    #[inline]
    fn answer_routed(&self, shard: &mut Shard, routed: Routed, reason: Option<ReasonCode>) -> Flow {
        let ClientPublish { connection: id, session, publish, .. } = *self;
        // The deliveries may have ended the connection of the publisher.
        if shard.core.connections.get_mut(id).is_none_or(|c| c.session != Some(session)) {
            return Flow::Closed;
        }
        // A call would cost a message of QoS 0 more than this.
        if let Some(packet_id) = publish.packet_id {
            self.answer(&mut shard.core, |receiver| {
                receiver.report(packet_id, publish.qos, routed.outcome, routed.gates, reason)
            });
        }
        Flow::Continue
    }

    /// Records the Packet Identifier of a QoS 2 PUBLISH from a stored session, in the same batch as
    /// its deliveries. Returns the session's key and the identifier. Returns `None`, and records
    /// nothing, for another QoS or a session that is not stored.
    fn record_incoming(&self, core: &Core) -> Option<(SessionKey, PacketId)> {
        let ClientPublish { session, publish, .. } = *self;
        let packet_id = publish.packet_id.filter(|_| publish.qos == QoS::ExactlyOnce)?;
        let row = core.sessions.get(session)?.session.row()?;
        row.incoming(packet_id);
        Some((row.key, packet_id))
    }

    /// Applies `report` to the [`Receiver`] of the publisher's session, and writes the
    /// acknowledgement that is due. Without one, pauses a 3.x client that has too many unanswered
    /// PUBLISH packets. Not inlined: that would cost a message of QoS 0 a call of its caller.
    #[inline(never)]
    fn answer(&self, core: &mut Core, report: impl FnOnce(&mut Receiver) -> Option<Due>) {
        let Core { connections, sessions, scratch, effects, counters, .. } = core;
        let Some(entry) = sessions.get_mut(self.session) else { return };
        let receiver = &mut entry.session.receiver;
        let due = report(receiver);
        let Some(connection) = connections.get_mut(self.connection) else { return };
        if let Some(due) = due {
            connection.begin_write(&mut scratch.pool);
            Session::answer(due, &mut connection.wire, &mut counters.packets_sent);
            // Without `end_write`: to count the bytes costs 20 instructions of each message, and an
            // acknowledgement without a reason has four.
            effects.unflushed += 4;
            connection.mark_dirty(self.connection, &mut effects.dirty);
        } else if receiver.owes_the_most() && !connection.version().is_v5() {
            // A 5.0 client respects Receive Maximum. 3.x has no such limit, so the broker stops
            // reading the client.
            connection.pause(Pause::Unanswered, self.now);
        }
    }

    /// Answers a PUBLISH for which [`Self::refusal`] returned a reason. If its topic is one of the
    /// redelivery requests under `$homing/`, grants or refuses the request.
    #[cold]
    pub(in crate::shard) fn refuse_or_grant(
        &self,
        shard: &mut Shard,
        topic: &str,
        (reason, cause): (ReasonCode, DropReason),
    ) -> Flow {
        let ClientPublish { now, connection: id, session, publish, .. } = *self;
        let (reason, cause) = match request_time(now, (id, session), topic, publish.payload, &mut shard.core)
        {
            RequestedTimes::NotRequested => match self.admits_identifier(&shard.core) {
                Ok(()) => (reason, Some(cause)),
                Err(want) => (ReasonCode::QUOTA_EXCEEDED, Some(want.cause())),
            },
            RequestedTimes::InvalidRequest => (ReasonCode::PAYLOAD_FORMAT_INVALID, None),
            RequestedTimes::Granted => (ReasonCode::SUCCESS, None),
            RequestedTimes::Refused(want) => (ReasonCode::QUOTA_EXCEEDED, Some(want.cause())),
        };
        self.refuse_publish(shard, topic, reason, cause)
    }

    /// Returns why a PUBLISH must not be routed, or `None` if it may be. The reason code is for a
    /// 5.0 client, and the drop reason is counted.
    fn refusal(&self, core: &mut Core, topic: &str) -> Option<(ReasonCode, DropReason)> {
        let ClientPublish { publish, .. } = *self;
        if let Some(refusal) = refused_as(publish, topic, core) {
            return Some(refusal);
        }
        if core.access.are_on() && !self.may_write(core, topic) {
            return Some((ReasonCode::NOT_AUTHORIZED, DropReason::NotAuthorized));
        }
        refused_for_want(publish, topic, core)
    }

    /// Returns true if the client may publish to a topic.
    #[inline(never)]
    fn may_write(&self, core: &mut Core, topic: &str) -> bool {
        let Core { sessions, access, turn, .. } = core;
        sessions
            .get_mut(self.session)
            .is_none_or(|session_entry| session_entry.may_write(access, topic, turn))
    }

    /// Checks, at QoS 2, that there is memory for the Packet Identifier of a PUBLISH that is not
    /// routed. A 3.x client gets a positive acknowledgement for such a PUBLISH, so its identifier
    /// is kept. All versions share the check.
    ///
    /// # Errors
    /// The resource that is short.
    fn admits_identifier(&self, core: &Core) -> Result<(), Want> {
        if self.publish.qos == QoS::ExactlyOnce { core.admits(Change::Identifier) } else { Ok(()) }
    }

    /// Keeps the message of a PUBLISH to `$delayed/...` and acknowledges the PUBLISH, or refuses
    /// it.
    fn publish_later(&self, shard: &mut Shard, topic: &str) -> Flow {
        let ClientPublish { now, publish, .. } = *self;
        // A delayed message is kept at every QoS, and it frees no memory.
        let bytes = message_bytes(publish, topic);
        let denied = shard.core.access.are_on()
            && delayed_topic(topic).is_some_and(|target| !self.may_write(&mut shard.core, target));
        let kept = match shard.core.admits(Change::Delayed { bytes }) {
            _ if is_too_large(publish, &shard.core) => Err(TOO_LARGE),
            _ if denied => Err((ReasonCode::NOT_AUTHORIZED, DropReason::NotAuthorized)),
            Err(want) => Err((ReasonCode::QUOTA_EXCEEDED, want.cause())),
            Ok(()) => {
                let owner = shard.core.owner_of(self.session);
                shard.delayed.keep(now, owner, publish, topic, &mut shard.core)
            }
        };
        if let Err((reason, cause)) = kept {
            return self.refuse_publish(shard, topic, reason, Some(cause));
        }
        self.record_incoming(&shard.core);
        let gates = shard.core.durability.gate_publisher(self.gate(), None);
        let routed = Routed { outcome: Outcome::Taken, gates, full: ShardSet::EMPTY };
        self.answer_routed(shard, routed, None)
    }

    /// Counts and keeps that the message is refused, or is not retained. `topic` is that of the
    /// PUBLISH.
    #[cold]
    fn note_refusal(&self, shard: &mut Shard, topic: &str, cause: DropReason) {
        shard.core.counters.refused_publishes.add(cause, 1);
        // The rules are about the topic to which a delayed message is published later.
        let topic = delayed_topic(topic).filter(|_| cause == DropReason::NotAuthorized).unwrap_or(topic);
        shard.core.note_refused_message(self.session, RefusedKind::Publish, topic, cause);
    }

    /// Ends a PUBLISH that is not routed. The acknowledgement carries `reason`; QoS 0 has no
    /// acknowledgement. If a 3.x client could not see the refusal, its connection ends. Counts a
    /// drop if there is a `cause`. `cause` is `None` if no drop is to be counted, for example
    /// because the PUBLISH was a request of the client.
    fn refuse_publish(
        &self,
        shard: &mut Shard,
        topic: &str,
        reason: ReasonCode,
        cause: Option<DropReason>,
    ) -> Flow {
        let ClientPublish { now, connection: id, session, publish, .. } = *self;
        if let Some(cause) = cause {
            shard.core.counters.drops.count(cause);
            self.note_refusal(shard, topic, cause);
        }
        let Some(connection) = shard.core.connections.get(id) else { return Flow::Closed };
        let (version, is_bridge) = (connection.version(), connection.listener.serves_bridge());
        // Behind a bridge the other broker would send the message again, and the bridge would never
        // come to the next one.
        if cause == Some(DropReason::NotAuthorized)
            && shard.core.access.on_denied_publish() == DeniedPublish::Disconnect
            && !is_bridge
        {
            if let (Some(packet_id), Some(session_entry)) =
                (publish.packet_id, shard.core.sessions.get_mut(session))
            {
                session_entry.session.receiver.forget(packet_id);
            }
            let what = "the client may not publish to this topic (acl.on_denied_publish)";
            shard.fail(now, id, Violation { reason, what });
            return Flow::Closed;
        }
        // QoS 0 has no acknowledgement.
        let Some(packet_id) = publish.packet_id else { return Flow::Continue };
        let discards_refused = !version.is_v5() || is_bridge;
        if let Some(violation) = publish_refusal::ends_connection(discards_refused, reason, cause) {
            if let Some(session_entry) = shard.core.sessions.get_mut(session) {
                session_entry.session.receiver.forget(packet_id);
            }
            shard.fail(now, id, violation);
            return Flow::Closed;
        }
        self.answer(&mut shard.core, |receiver| receiver.decline(version, packet_id, publish.qos, reason));
        Flow::Continue
    }
}

/// Ends a PUBLISH that is not routed, because it is a repetition or breaks a rule. `before` is the
/// value of [`Connection::begin_write`].
#[cold]
fn end_unrouted(
    now: Instant,
    id: ConnectionId,
    admitted: Admitted,
    before: usize,
    shard: &mut Shard,
) -> Flow {
    // The session has looked at the packet just now.
    let Some(mut client) = shard.core.client(id) else { return Flow::Closed };
    let written = client.end_write(before);
    // A repetition was looked for among the pending acknowledgements.
    let looked_at = client.entry.session.receiver.looked_at();
    client.turn.spend_bytes(written);
    if let Admitted::Fail(violation) = admitted {
        shard.fail(now, id, violation);
        return Flow::Closed;
    }
    shard.core.turn.spend((looked_at / LOOKED_AT) as u32);
    Flow::Continue
}

/// Resolves or sets the Topic Alias of a PUBLISH. If the packet has no topic, the topic goes into
/// `scratch.topic`. Called also for a PUBLISH that is not routed: a repetition may be the first
/// packet of its connection that sets the alias.
///
/// # Errors
/// The violation that ends the connection: the alias is above the maximum or was never set, or there
/// is no memory for it.
fn resolve_topic_alias(
    id: ConnectionId,
    alias: NonZeroU16,
    topic: &str,
    core: &mut Core,
) -> Result<(), Violation> {
    let Core { connections, sessions, scratch, shared, durability, peers, .. } = core;
    // The packets before this one may have ended the connection.
    let Some(connection) = connections.get_mut(id) else { return Ok(()) };
    let session = connection.session;
    let aliases = connection.rare_mut().aliases.get_or_insert_with(|| {
        let announced =
            session.and_then(|id| sessions.get(id)).map(|entry| entry.session.receiver.announced());
        Box::new(IncomingAliases::new(announced.unwrap_or_default().topic_alias_maximum))
    });
    if aliases.grow(alias, topic)? {
        Change::Alias.check(shared, durability, peers).map_err(Want::violation)?;
    }
    if let Some(name) = aliases.resolve(alias, topic)? {
        scratch.topic.clear();
        scratch.topic.push_str(name);
    }
    Ok(())
}
