//! Publishes the will of a session. The session may end in the same step.
//!
//! When a will is due, if ever, is decided in [`crate::session::will`], and noted when the
//! connection ends (`leave`). Its deadline ends in `session_deadlines`.

use crate::durability::publication::{Publication, expires};
use crate::events::refusals::RefusedKind;
use crate::mqtt::message::Parts;
use crate::mqtt::owner::Owner;
use crate::mqtt::publisher_name::PublisherName;
use crate::mqtt::retained_message::RetainedSource;
use crate::mqtt::will::Will;
use crate::routing::subscription_tree::SessionSlot;
use crate::session::drops::DropReason;
use crate::shard::Shard;
use crate::shard::admission::{Change, Want};
use crate::shard::core::Core;
use crate::slots::SessionId;
use crate::time::Instant;
use std::sync::Arc;

/// A will that its session has given away, with what is known only while the session is there.
pub(crate) struct DueWill {
    pub will: Arc<Will>,
    session: SessionId,
    /// The name of the client, for dead letters.
    publisher: Option<PublisherName>,
    /// True if the session was stored. Then the end of the will is committed together with its
    /// deliveries.
    stored: bool,
    /// The client as the source of a retained message.
    source: Option<Arc<RetainedSource>>,
    /// The client for which a retained message counts.
    owner: Option<Arc<Owner>>,
}

impl DueWill {
    /// Returns the will of a session if the rules still allow it. The rules may have changed since
    /// CONNECT. A will against the rules is dropped and counted.
    pub(crate) fn new(id: SessionId, will: Option<Arc<Will>>, core: &mut Core) -> Option<DueWill> {
        // The client had no will.
        let will = will?;
        let Core { sessions, access, turn, .. } = core;
        let is_denied = access.are_on()
            && sessions.get_mut(id).is_some_and(|entry| !entry.may_write_once(access, &will.topic, turn));
        if is_denied {
            core.counters.drops.count(DropReason::NotAuthorized);
            core.counters.refused_wills.add(DropReason::NotAuthorized, 1);
            core.note_refused_message(id, RefusedKind::Will, &will.topic, DropReason::NotAuthorized);
            return None;
        }
        let (source, owner) =
            if will.retain { (core.retained_source(id), core.owner_of(id)) } else { (None, None) };
        let (publisher, stored) = (core.publisher_name(id), core.sessions.is_stored(id));
        Some(DueWill { will, session: id, publisher, stored, source, owner })
    }

    /// Publishes the will of a session that goes on.
    pub(crate) fn publish_for(now: Instant, id: SessionId, will: Option<Arc<Will>>, shard: &mut Shard) {
        if let Some(mut due) = DueWill::new(id, will, &mut shard.core)
            && let Some(cause) = due.publish(now, shard)
        {
            shard.core.note_refused_message(id, RefusedKind::Will, &due.will.topic, cause);
        }
    }

    /// Publishes the will. A will without room, or whose topic is refused, is dropped and counted.
    /// Returns why the will is refused, or is not retained.
    pub(crate) fn publish(&mut self, now: Instant, shard: &mut Shard) -> Option<DropReason> {
        let Shard { core, routes, fans, .. } = shard;
        let will = &*self.will;
        let frees = if will.retain && will.payload.is_empty() { core.shared.frees(&will.topic) } else { 0 };
        let change = Change::Publish { qos: will.qos, bytes: will.size(), frees };
        let refused = core.settings.topic_refusal(&will.topic).or(core.admits(change).err().map(Want::cause));
        if let Some(cause) = refused {
            core.counters.drops.count(cause);
            core.counters.refused_wills.add(cause, 1);
            return refused;
        }
        let parts = Parts {
            qos: will.qos,
            retain: will.retain,
            expires: expires(now, will.message_expiry),
            topic: &will.topic,
            forwarded: &will.forwarded,
            payload: &will.payload,
        };
        let mut publication =
            Publication::new(parts, Some(SessionSlot(self.session.slot)), core.peers.here());
        publication.outgoing.publisher_name = self.publisher.take();
        publication.atomic = self.stored;
        if publication.atomic {
            // The end of the will is recorded in this batch, with the deliveries of the will. No
            // delivery leaves before the batch is committed.
            core.durability.begin();
        }
        let mut unretained = None;
        if will.retain {
            let (source, owner) = (self.source.take(), self.owner.take());
            unretained = routes.retain(now, &mut publication, source, owner, core).refused;
            unretained.inspect(|cause| core.counters.refused_wills.add(*cause, 1));
        }
        fans.route_own(now, &mut publication, Some(self.session), routes, core);
        unretained
    }
}
