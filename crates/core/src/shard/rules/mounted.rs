//! The clients of a listener with a mount point: their PUBLISH packets, their wills, and their
//! sessions.
//!
//! All code behind this module, and the ACL, sees the full topics. [`MountPoint`] has the rules.
//! The way back is in the connection's [`Wire`](crate::session::wire::Wire).

use crate::mqtt::packet::ReasonCode;
use crate::session::connect::ConnectRefusal;
use crate::session::drops::DropReason;
use crate::session::mount_point::MountPoint;
use crate::shard::Shard;
use crate::shard::core::Core;
use crate::shard::delivery::publish::ClientPublish;
use crate::shard::features::delayed::{delayed_topic, is_delayed};
use crate::shard::turn::flow::Flow;
use crate::slots::{ConnectionId, SessionId};
use std::sync::Arc;

/// Filters of a session that are looked at in one step of a turn.
const FILTERS_PER_STEP: usize = 8;

/// Returns the mount point of a client that is connected; `None` without one.
pub(in crate::shard) fn mount_point_of(id: ConnectionId, core: &Core) -> Option<Arc<MountPoint>> {
    core.connections.get(id)?.wire.mount_point().cloned()
}

/// Returns the mount point that new clients of a connection's listener get; `None` without one.
pub(in crate::shard) fn mount_point_of_listener(id: ConnectionId, core: &Core) -> Option<Arc<MountPoint>> {
    core.connections.get(id)?.listener.mount_point.clone()
}

/// Writes into `full` the topic that a PUBLISH to `topic` has inside the broker.
///
/// A client has no `$` topics of its own behind a mount point: a subscription to `#` would get
/// them, which the standard forbids.
///
/// # Errors
/// Why the PUBLISH must not be routed.
// 3.1.1, 5.0 [MQTT-4.7.2-1]
fn put_topic(
    mount_point: &MountPoint,
    topic: &str,
    full: &mut String,
) -> Result<(), (ReasonCode, DropReason)> {
    // The mount point is put before the topic to which a delayed message is published later.
    let (before, own) = match delayed_topic(topic) {
        Some(later) => topic.split_at(topic.len() - later.len()),
        None => ("", topic),
    };
    if own.is_empty() || own.starts_with('$') {
        let reason =
            if is_delayed(topic) { ReasonCode::TOPIC_NAME_INVALID } else { ReasonCode::NOT_AUTHORIZED };
        return Err((reason, DropReason::ReservedTopic));
    }
    mount_point
        .put_topic(before, own, full)
        .map_err(|_| (ReasonCode::TOPIC_NAME_INVALID, DropReason::TopicTooDeep))
}

impl ClientPublish<'_> {
    /// Handles an admitted PUBLISH of a client that may be behind a mount point. `topic` is the
    /// client's name of the topic.
    pub(in crate::shard) fn publish_mounted(&self, shard: &mut Shard, topic: &str) -> Flow {
        let Core { connections, scratch, .. } = &mut shard.core;
        let Some(mount_point) =
            connections.get(self.connection).and_then(|connection| connection.wire.mount_point())
        else {
            return self.publish_named(shard, topic);
        };
        let mut full = std::mem::take(&mut scratch.mounted);
        let flow = match put_topic(mount_point, topic, &mut full) {
            Ok(()) => self.publish_named(shard, &full),
            // The requests under `$homing/` have no mount point.
            Err(refusal) => self.refuse_or_grant(shard, topic, refusal),
        };
        shard.core.scratch.mounted = full;
        flow
    }
}

/// Returns the topic that a will has inside the broker.
///
/// # Errors
/// The refusal of the CONNECT. A will that was dropped later would be a silent loss.
pub(in crate::shard) fn will_topic(mount_point: &MountPoint, topic: &str) -> Result<String, ConnectRefusal> {
    let mut full = String::new();
    let refuse = |what| Err(ConnectRefusal::new(ReasonCode::NOT_AUTHORIZED, what));
    if topic.starts_with('$') {
        return refuse("the topic of the will begins with $, and this listener has a mount point");
    }
    match mount_point.put_topic("", topic, &mut full) {
        Ok(()) => Ok(full),
        Err(_) => refuse("the topic of the will is too long behind the mount point of this listener"),
    }
}

/// Checks that the client identifier of a CONNECT is not in use behind another mount point.
/// Otherwise the clients of one tenant could disconnect those of another.
///
/// # Errors
/// The refusal, if it is.
pub(in crate::shard) fn check_client(
    id: ConnectionId,
    existing: Option<SessionId>,
    core: &Core,
) -> Result<(), ConnectRefusal> {
    let present = existing.and_then(|session| core.sessions.get(session)?.connection);
    let mount_point = |id| core.connections.get(id).and_then(|connection| connection.wire.mount_point());
    match present {
        Some(present) if mount_point(present) != mount_point(id) => Err(ConnectRefusal::new(
            ReasonCode::CLIENT_IDENTIFIER_NOT_VALID,
            "a client of another mount point is connected with this client id",
        )),
        _ => Ok(()),
    }
}

/// Returns true if a session belongs to another mount point than a client's: the session's client
/// came last by a listener with another mount point or none, or the session has subscriptions
/// outside the mount point. This client must not resume the session: a will of another tenant would
/// be discarded, and a new message could be taken for a repetition of the other client's message.
/// The topic of the granted redelivery time says nothing, because it is the same behind each mount
/// point.
///
/// The session knows the mount point, also after a restart. For a client that came last without
/// one, only the listener tells. After a restart, or when nobody is connected by the old settings
/// of a listener any more, the listener is not known, and the subscriptions alone tell. A client
/// behind a mount point resumes a session without any then, and gets no message from outside its
/// mount point all the same.
pub(in crate::shard) fn is_of_another(id: ConnectionId, session: SessionId, core: &mut Core) -> bool {
    let Core { connections, sessions, turn, .. } = core;
    let mount_point = connections.get(id).and_then(|connection| connection.wire.mount_point());
    // A session that has ended is not resumed either.
    let Some(session_entry) = sessions.get(session) else { return false };
    let mount_point = mount_point.map(|mount_point| &**mount_point);
    let own = session_entry.mount_point();
    if own != mount_point && (own.is_some() || session_entry.listener().is_some()) {
        return true;
    }
    // Without a mount point every subscription is inside.
    let Some(mount_point) = mount_point else { return false };
    let subscriptions = &session_entry.session.subscriptions;
    turn.spend(u32::try_from(subscriptions.len() / FILTERS_PER_STEP).unwrap_or(u32::MAX));
    !subscriptions.iter().all(|filter| mount_point.has_filter(filter))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(topic: &str) -> Result<String, (ReasonCode, DropReason)> {
        let mount_point = "tenant/".parse().expect("a mount point");
        let mut full = String::new();
        put_topic(&mount_point, topic, &mut full).map(|()| full)
    }

    #[test]
    fn a_delayed_message_is_published_below_the_mount_point() {
        assert_eq!(full("a/b").as_deref(), Ok("tenant/a/b"));
        assert_eq!(full("$delayed/5/a/b").as_deref(), Ok("$delayed/5/tenant/a/b"));
    }

    #[test]
    fn no_topic_with_a_dollar_leaves_or_enters_the_mount_point() {
        let reserved = |reason| Err((reason, DropReason::ReservedTopic));
        for topic in ["$SYS/a", "$dead/c/a", "$homing/session/ack-timeout", "$share/g/a", "$own/a", "$"] {
            assert_eq!(full(topic), reserved(ReasonCode::NOT_AUTHORIZED), "{topic}");
        }
        for topic in
            ["$delayed/5/$SYS/a", "$delayed/5/$delayed/5/a", "$delayed/5/", "$delayed/a", "$delayed/"]
        {
            assert_eq!(full(topic), reserved(ReasonCode::TOPIC_NAME_INVALID), "{topic}");
        }
    }

    #[test]
    fn a_topic_that_becomes_too_long_is_refused() {
        let refusal = (ReasonCode::TOPIC_NAME_INVALID, DropReason::TopicTooDeep);
        assert_eq!(full(&"a".repeat(65_530)), Err(refusal));
        let mount_point: MountPoint = "tenant/".parse().expect("a mount point");
        let will = |topic: &str| will_topic(&mount_point, topic).map_err(|refusal| refusal.reason);
        assert_eq!(will("a").as_deref(), Ok("tenant/a"));
        for topic in ["$SYS/a", "$own", "$delayed/5/a", &"a".repeat(65_530)] {
            assert_eq!(will(topic), Err(ReasonCode::NOT_AUTHORIZED));
        }
    }
}
