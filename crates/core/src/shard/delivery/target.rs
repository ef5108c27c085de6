//! One receiver of a publication, as the matching subscriptions of a session describe it.

use crate::mqtt::packet::QoS;
use crate::peers::peer_batch::{Chosen, Publisher};
use crate::routing::subscription_tree::{SessionSlot, ShardId, Subscriber};
use std::sync::Arc;

/// A receiver, with its overlapping subscriptions merged.
pub(crate) struct Target<'a> {
    /// The slot of the receiver's session.
    pub session: SessionSlot,
    /// The highest QoS that its subscriptions were granted.
    pub qos: QoS,
    /// True if one of its subscriptions has Retain As Published.
    pub retain_as_published: bool,
    /// The Subscription Identifiers of its subscriptions.
    pub ids: &'a [u32],
    /// The shared subscription that the message goes by, if any.
    pub share: Option<&'a Arc<Box<str>>>,
}

impl<'a> Target<'a> {
    /// As [`merge`], for a session with one matching subscription. Needs no buffer.
    pub(crate) fn of(
        only: &'a Subscriber,
        publisher: Option<Publisher>,
        here: ShardId,
    ) -> Option<Target<'a>> {
        let Subscriber { session, options, subscription_id } = only;
        if options.no_local() && publisher == Some(Publisher { shard: here, session: *session }) {
            return None;
        }
        let (ids, retain_as_published) = (as_list(subscription_id), options.retain_as_published());
        Some(Target { session: *session, qos: options.qos(), retain_as_published, ids, share: None })
    }

    /// Returns the chosen member of a shared group. `share` is the full filter of the group.
    pub(crate) fn member(chosen: &'a Chosen, share: &'a Arc<Box<str>>) -> Target<'a> {
        let Chosen { session, qos, retain, subscription_id, .. } = chosen;
        let (ids, share) = (as_list(subscription_id), Some(share));
        Target { session: *session, qos: *qos, retain_as_published: *retain, ids, share }
    }
}

/// Returns a Subscription Identifier as a list, which is empty for 0.
fn as_list(subscription_id: &u32) -> &[u32] {
    if *subscription_id == 0 { &[] } else { std::slice::from_ref(subscription_id) }
}

/// Merges the matching subscriptions of one session. Returns `None` if No Local excludes all of
/// them. `ids` is a buffer for the Subscription Identifiers.
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
    Some(Target { session, qos, retain_as_published, ids, share: None })
}
