//! Shared messages that are held under the queue policy `hold`.

use crate::durability::publication::Publication;
use crate::mqtt::outcome::Outcome;
use crate::mqtt::packet::QoS;
use crate::peers::peer_batch::{Offered, Readers, ReportTo, SharedMessage};
use crate::routing::shared_group::{Member, Presence};
use crate::routing::subscription_tree::{GroupId, ShardSet};
use crate::session::drops::{DropReason, Dropped};
use crate::session::outbound::queue::QueuePolicy;
use crate::shard::core::Core;
use crate::shard::delivery::target::Target;
use crate::shard::share::offer::{DENIED, SharedDelivery, chosen, send_share};
use crate::shard::subscriptions::routes::Routes;
use crate::time::Instant;
use std::sync::Arc;

/// Maximum number of members of this shard that are considered as the holder of a message.
const HOLDERS_LOOKED_AT: usize = 64;

/// The shards in which a member may hold a shared message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HolderIn {
    /// This shard first, then another shard.
    AnyShard,
    /// Only this shard, because a peer sent the message here to be held.
    ThisShard,
}

/// Shared messages that are held.
impl Routes {
    /// Lets a member of a group hold a message that every member refused. The queue policy must be
    /// `hold`, and the message must be above QoS 0 and no larger than the largest queue. Looks at
    /// [`HOLDERS_LOOKED_AT`] members of this shard at most. Members with the fewest held messages
    /// are tried first. A member that has room by now takes the message instead. If no member of
    /// this shard takes or holds the message, it is sent to another shard, if `holder_in` allows
    /// that. Returns `None` if no member can hold the message.
    pub(crate) fn hold_in_group(
        &mut self,
        now: Instant,
        (group, share): (GroupId, &Arc<Box<str>>),
        publication: &mut Publication<'_>,
        gate: ReportTo,
        holder_in: HolderIn,
        core: &mut Core,
    ) -> Option<SharedDelivery> {
        let (policy, bytes) = (
            core.settings.session.send.queue.policy,
            core.durability.largest_queue_bytes(&core.settings.session.send),
        );
        if policy != QueuePolicy::Hold
            || publication.outgoing.parts.qos == QoS::AtMostOnce
            || publication.outgoing.message(&mut core.scratch.sending.bytes).size() > bytes
        {
            return None;
        }
        let mut own = ShardSet::EMPTY;
        own.insert(core.peers.here());
        let members = self.router.group(group)?;
        let elsewhere = match holder_in {
            HolderIn::AnyShard => [Presence::Online, Presence::Offline]
                .into_iter()
                .find_map(|presence| members.shard_beside(presence, own)),
            HolderIn::ThisShard => None,
        };
        let mut here = self.holders(group, publication.outgoing.parts.topic, core);
        here.sort_by_key(|m| core.sessions.at(m.session.0).map_or(usize::MAX, |(_, r)| r.held_messages()));
        for member in here {
            let chosen = chosen(&member, publication);
            let before = publication.held;
            let gate_before = publication.gate.replace(gate);
            let outcome = core.deliver(now, &Target::member(&chosen, share), publication);
            publication.gate = gate_before;
            if outcome == Outcome::Taken {
                return Some(SharedDelivery::Settled(outcome));
            }
            if publication.held > before {
                return Some(SharedDelivery::Held);
            }
        }
        let to = match publication.readers {
            Readers::In(shard) if shard != core.peers.here() && core.access.are_on() => {
                elsewhere.map(|_| shard)
            }
            _ => elsewhere,
        };
        let to = (to?, None);
        Some(send_share(to, Arc::clone(share), Offered::ToAll, publication, Some(gate), core))
    }

    /// Returns the first members of this shard that may read a topic, [`HOLDERS_LOOKED_AT`] of them
    /// at most. Looks at [`DENIED`] members of each presence at most.
    fn holders(&mut self, group: GroupId, topic: &str, core: &mut Core) -> Vec<Member> {
        let mut holders = Vec::new();
        for presence in [Presence::Online, Presence::Offline] {
            let Some(members) = self.router.group(group) else { break };
            let (own, _) = members.of_shard(presence, core.peers.here());
            for place in own.take(DENIED) {
                let member = self.router.group(group).and_then(|group| group.at(presence, place));
                let Some(member) = member.filter(|_| holders.len() < HOLDERS_LOOKED_AT) else { break };
                if core.may_read(member.session, topic) {
                    holders.push(member);
                } else {
                    core.turn.spend(1);
                }
            }
        }
        holders
    }

    /// Lets a member of this shard hold a shared message for which a peer found no holder. Drops
    /// the message if no member of this shard can hold it.
    pub(crate) fn take_share_to_hold(
        &mut self,
        now: Instant,
        share: &SharedMessage,
        publication: &mut Publication<'_>,
        gate: ReportTo,
        core: &mut Core,
    ) -> SharedDelivery {
        let group = self.router.group_of(&share.filter);
        let held = group.and_then(|group| {
            self.hold_in_group(now, (group, &share.filter), publication, gate, HolderIn::ThisShard, core)
        });
        held.unwrap_or_else(|| {
            let lost = Dropped::unsent(DropReason::QueueRefused, share.message.clone());
            core.drop_of_group(&share.filter, lost, core.durability.is_on());
            SharedDelivery::Settled(Outcome::Refused)
        })
    }
}
