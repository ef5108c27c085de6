//! The routes of a shard: its subscriptions, here and at the peers, and its retained messages.
//! `delivery/receivers.rs` follows the routes from a publication to its receivers.

use crate::durability::publication::Publication;
use crate::mqtt::owner::Owner;
use crate::mqtt::retained_message::{RetainedMessage, RetainedSource};
use crate::mqtt::topic::TopicFilter;
use crate::peers::peer_batch::Item;
use crate::persistence::records::stored_bytes;
use crate::routing::retained;
use crate::routing::retained_order::RetainedOrder;
use crate::routing::router::Router;
use crate::routing::shared_group::{Member, MemberAddress, Presence};
use crate::routing::subscription_tree::{
    Interest, PackedOptions, SessionSlot, ShardId, Subscribed, Subscriber, Unsubscribed,
};
use crate::session::drops::DropReason;
use crate::shard::admission::Change;
use crate::shard::core::Core;
use crate::shard::features::orphaned_queues::OrphanedQueues;
use crate::slots::SessionId;
use crate::time::Instant;
use std::sync::Arc;

/// The subscriptions, the shared groups, the messages that wait for a member of a group, and the
/// order between subscriptions and retained messages.
#[derive(Debug)]
pub(crate) struct Routes {
    pub router: Router,
    pub orphaned_queues: OrphanedQueues,
    pub retained_order: RetainedOrder,
}

/// The result of retaining a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetainedUpdate {
    /// True if the store has to commit the change before the publisher is acknowledged.
    pub waits: bool,
    /// Why there was no room for the message, if there was none.
    pub refused: Option<DropReason>,
}

impl Routes {
    /// Returns the routes of the shard `here`, without subscriptions.
    pub(crate) fn new(here: ShardId) -> Routes {
        Routes {
            router: Router::new(here),
            orphaned_queues: OrphanedQueues::default(),
            retained_order: RetainedOrder::new(here),
        }
    }
}

/// Retained messages.
impl Routes {
    /// Sets, replaces or erases the retained message of a topic.
    ///
    /// If there is no room for the message, the old retained message is erased all the same. A
    /// subscriber is better served with no value than with a value that is known to be old.
    ///
    /// `source` is the client that published the message, from [`Core::retained_source`], and
    /// `owner` the client for which it counts, from [`Core::owner_of`].
    // 3.1.1 [MQTT-3.3.1-5], [MQTT-3.3.1-7], [MQTT-3.3.1-10], [MQTT-3.3.1-11];
    // 5.0 [MQTT-3.3.1-5], [MQTT-3.3.1-6], [MQTT-3.3.1-7]
    pub(crate) fn retain(
        &mut self,
        now: Instant,
        publication: &mut Publication<'_>,
        source: Option<Arc<RetainedSource>>,
        owner: Option<Arc<Owner>>,
        core: &mut Core,
    ) -> RetainedUpdate {
        let topic = publication.outgoing.parts.topic;
        let stored = core.durability.is_on() && retained::is_kept(topic);
        let refused = if publication.outgoing.parts.payload.is_empty() {
            core.shared.retained().remove(topic);
            None
        } else {
            let message = publication.outgoing.message(&mut core.scratch.sending.bytes).clone();
            let mut retained = core.shared.retained();
            let bytes = message.size();
            let want = if stored && core.shared.store_is_short() {
                core.admits(Change::Retain { bytes, replaces: retained.size_of(topic) }).err()
            } else {
                None
            };
            match want {
                Some(want) => {
                    retained.remove(topic);
                    Some(want.cause())
                }
                None => {
                    let mark = self.retained_order.set();
                    let set = retained.set_by(mark, RetainedMessage { message, source, owner }, now);
                    publication.set_mark = mark;
                    set.err().map(|_| DropReason::RetainedFull)
                }
            }
        };
        if let Some(cause) = refused {
            core.counters.drops.count(cause);
        }
        if stored && let Some(write_buffer) = core.durability.write_buffer() {
            // The change is recorded in the list of retained changes, whose order all shards share.
            // The open batch of this shard must be committed after it, so it is sealed even if it
            // is empty.
            write_buffer.begin();
            if refused.is_none() {
                write_buffer.weigh(stored_bytes(topic.len() + publication.outgoing.parts.payload.len()));
            }
            core.effects.retained = true;
        }
        RetainedUpdate { waits: stored, refused }
    }
}

/// Subscriptions, here and at the peers.
impl Routes {
    /// Adds a subscription: to the subscription tree, or as a member with this presence to a shared
    /// group. Tells the peers of the member, or of a filter that had no subscriber in this shard.
    pub(crate) fn insert_filter(
        &mut self,
        session: SessionId,
        filter: &TopicFilter<'_>,
        options: PackedOptions,
        subscription_id: u32,
        presence: Presence,
        core: &mut Core,
    ) {
        let (slot, filter, group) = (SessionSlot(session.slot), filter.filter, filter.share_name);
        let Some(group) = group else {
            let subscriber = Subscriber { session: slot, options, subscription_id };
            if let Subscribed::New { first_here: true } = self.router.subscribe(filter, subscriber) {
                for peer in core.peers.others() {
                    peer.send(Item::Interest { filter: filter.into(), interest: Interest::Present });
                }
            }
            return;
        };
        let member = Member {
            shard: core.peers.here(),
            session: slot,
            generation: session.generation,
            options,
            subscription_id,
            online: presence == Presence::Online,
        };
        self.router.join(group, filter, member);
        for peer in core.peers.others() {
            peer.send(Item::Join { group: group.into(), filter: filter.into(), member });
        }
    }

    /// Removes a subscription without a shared group from the subscription tree. Tells the peers if
    /// it was the last one of its filter in this shard. Returns false if there was no such
    /// subscription.
    fn leave_index(&mut self, filter: &str, session: SessionId, core: &mut Core) -> bool {
        match self.router.unsubscribe(filter, SessionSlot(session.slot)) {
            Unsubscribed::Removed { last_here } => {
                if last_here {
                    for peer in core.peers.others() {
                        peer.send(Item::Interest { filter: filter.into(), interest: Interest::Absent });
                    }
                }
                true
            }
            Unsubscribed::NotFound => false,
        }
    }

    /// Removes one subscription of a session, shared or not, and tells the peers that have to know.
    /// `full` is the filter as in SUBSCRIBE. Returns false if there was no such subscription.
    pub(crate) fn leave_filter(&mut self, id: SessionId, full: &str, core: &mut Core) -> bool {
        // A filter that is not valid has no subscription.
        let Ok(filter) = TopicFilter::parse(full, usize::MAX) else { return false };
        match filter.share_name {
            Some(group) => {
                let address = MemberAddress { shard: core.peers.here(), session: SessionSlot(id.slot) };
                self.leave_group(group, filter.filter, address, core)
            }
            None => self.leave_index(filter.filter, id, core),
        }
    }

    /// Removes a member of this shard from a group, in this shard and at every peer. Returns false
    /// if the session was not a member.
    fn leave_group(&mut self, group: &str, filter: &str, address: MemberAddress, core: &mut Core) -> bool {
        let left = self.drop_member(group, filter, address);
        if left {
            for peer in core.peers.others() {
                peer.send(Item::Leave { group: group.into(), filter: filter.into(), address });
            }
        }
        left
    }

    /// Removes a member of any shard from a group in this shard's routing. Returns false if the
    /// session was not a member.
    pub(crate) fn drop_member(&mut self, group: &str, filter: &str, address: MemberAddress) -> bool {
        self.orphaned_queues.member_left();
        self.router.leave(group, filter, address)
    }

    /// Notes that a session connected or disconnected, in this shard and at every peer. The
    /// session's groups then choose members accordingly. Costs one item for each peer, however many
    /// groups the session is in.
    pub(crate) fn set_presence(&mut self, id: SessionId, presence: Presence, core: &mut Core) {
        let address = MemberAddress { shard: core.peers.here(), session: SessionSlot(id.slot) };
        if self.router.set_presence(address, presence) {
            for peer in core.peers.others() {
                peer.send(Item::Presence { address, presence });
            }
        }
    }
}
