//! Shared subscriptions: one member of the group gets the message.
//!
//! The publisher's shard chooses a member among the members in all shards, in three rounds
//! ([`Round`]):
//!
//! - First come the online members that can take more, in turn: the outbox and the queue have room.
//!   A full in-flight window does not count; the message then waits in the queue of the member. A
//!   shard does not know the room of members in other shards, so it assumes that these members can
//!   take more.
//! - Then come the other online members. The queue policy of each member decides: with `drop_oldest` a
//!   full one takes the message before any offline member does.
//! - Offline members come last, and only for QoS 1 and 2, because an offline session queues no QoS
//!   0.
//!
//! If the chosen member refuses the message, the shard of that member chooses the next member. The
//! message stays in its transaction, if it has one. If all members refuse the message, one of three
//! things happens:
//!
//! - If a member had the message before and its session ended, the message waits in an orphaned
//!   queue until a member has room.
//! - Under the queue policy `hold`, a member holds the message, and the publisher's acknowledgement
//!   waits.
//! - Otherwise the message is dropped and counted.
//!
//! A member that may not read the message (`acl.file`) refuses it. If no member may read it, then
//! nobody is subscribed to the message, and only a message of an ended session counts as dropped.
//! If a group is so large that not all members were asked, the message counts as dropped in any
//! case, with the reason `not_authorized`. A waiting message is kept in a shard with a member that
//! may read it, because only such a member can report room.
//!
//! # Bounds
//!
//! The message carries a list of the members that refused it. The members are chosen one by one at
//! first, and the message is sent to another shard [`IN_TURN`] times at most. After [`IN_TURN`]
//! refusals the list is dropped, and the shards go through all members. In each of the three
//! rounds, each shard offers the message to its own members and then sends the message to the next
//! shard. In each of these rounds the message is sent to each shard once at most. Under the queue
//! policy `hold`, one more send asks another shard to hold the message.
//!
//! Each choice of one member looks at [`offer::LOOKED_AT`] members at most in each round. A shard
//! that goes through its own members looks in each round at [`offer::LOOKED_AT`] members at most
//! with the right to read the message, and at [`offer::DENIED`] without. Among the former, it
//! offers the message to 64 members at most that seem to have no room. The shard does not offer
//! this message to its other members without room. If a shard has more members, the turn passes to
//! the first member that the shard did not look at. So the next message begins there.

mod arrival;
mod hold;
mod offer;
mod orphaned;

use crate::durability::publication::{Publication, Routed};
use crate::mqtt::outcome::Outcome;
use crate::mqtt::packet::QoS;
use crate::peers::peer_batch::{Offered, Readers, ReportTo, Round};
use crate::routing::subscription_tree::{GroupId, ShardSet};
use crate::session::drops::{DropReason, Dropped};
use crate::shard::core::Core;
use crate::shard::subscriptions::routes::Routes;
use crate::time::Instant;
use hold::HolderIn;
use offer::{chosen, offer, presence_in, send_share};
use std::sync::Arc;

pub(crate) use offer::{PeerOffers, SharedDelivery, WantedRoom};

/// Maximum number of members, in any shard, to which a message is offered singly. The shards go
/// through all members after that.
const IN_TURN: usize = 16;

/// Shared groups, and the messages that wait for a member.
impl Routes {
    /// Delivers a publication to one member of a shared group whose filter matched. Adds the
    /// outcome, the pending gates and the full peers to `routed`.
    pub(crate) fn share(
        &mut self,
        now: Instant,
        group: GroupId,
        publication: &mut Publication<'_>,
        gate: Option<ReportTo>,
        routed: &mut Routed,
        core: &mut Core,
    ) {
        let nobody = (Offered::InTurn(Vec::new()), DropReason::QueueRefused);
        match self.share_to_next(now, group, publication, nobody, gate, core) {
            SharedDelivery::Settled(outcome) => routed.outcome = routed.outcome.or(outcome),
            SharedDelivery::Held => routed.gates += 1,
            SharedDelivery::Underway { full } => {
                routed.gates += u32::from(gate.is_some());
                routed.full = routed.full.union(full);
            }
        }
    }

    /// Offers the message to the next members. Stops when a member of this shard takes the message,
    /// or when the message is sent to another shard. If all members refuse the message, ends it
    /// with [`Self::end_refused`]. Returns `Unmatched` if the group is gone, or no member is
    /// eligible or may read the message. `offered` tells which members refused the message before.
    /// `cause` is the drop reason that is counted if every member refuses.
    fn share_to_next(
        &mut self,
        now: Instant,
        group: GroupId,
        publication: &mut Publication<'_>,
        (offered, cause): (Offered, DropReason),
        gate: Option<ReportTo>,
        core: &mut Core,
    ) -> SharedDelivery {
        let Some(share) = self.router.full_filter(group).cloned() else {
            return SharedDelivery::Settled(Outcome::Unmatched);
        };
        let (mut round, mut seen) = (Round::Ready, ShardSet::EMPTY);
        match offered {
            Offered::ByShard { round: under_way, seen: behind } => (round, seen) = (under_way, behind),
            Offered::ToAll => return self.end_refused(now, (group, &share), publication, cause, gate, core),
            Offered::InTurn(mut refused) => {
                let mut choice_round = Round::Ready;
                while refused.len() < IN_TURN {
                    let Some(member) =
                        self.choose(group, publication.outgoing.parts.qos, &refused, &mut choice_round, core)
                    else {
                        if refused.is_empty() {
                            return SharedDelivery::Settled(Outcome::Unmatched);
                        }
                        return self.end_refused(now, (group, &share), publication, cause, gate, core);
                    };
                    refused.push(member.address());
                    if member.shard == core.peers.here() {
                        if offer(now, &member, publication, &share, core) == Outcome::Taken {
                            return SharedDelivery::Settled(Outcome::Taken);
                        }
                        continue;
                    }
                    let chosen = chosen(&member, publication);
                    let to = (member.shard, Some(chosen));
                    return send_share(to, share, Offered::InTurn(refused), publication, gate, core);
                }
            }
        }
        loop {
            if seen.insert(core.peers.here())
                && self.offer_here(now, group, round, publication, &share, core) == Outcome::Taken
            {
                return SharedDelivery::Settled(Outcome::Taken);
            }
            let elsewhere = self.router.group(group).and_then(|g| g.shard_beside(presence_in(round), seen));
            if let Some(shard) = elsewhere {
                return send_share(
                    (shard, None),
                    share,
                    Offered::ByShard { round, seen },
                    publication,
                    gate,
                    core,
                );
            }
            round = match round {
                Round::Ready => Round::Online,
                Round::Online if publication.outgoing.parts.qos != QoS::AtMostOnce => Round::Offline,
                _ => return self.end_refused(now, (group, &share), publication, cause, gate, core),
            };
            seen = ShardSet::EMPTY;
        }
    }

    /// As [`Self::share_to_next`], for the group with the full filter `share`. Returns `Unmatched`
    /// if the group is gone because its last member left, or if no member is eligible. A message of
    /// an ended session is then dropped, and the result is `Refused`.
    pub(crate) fn share_by_name(
        &mut self,
        now: Instant,
        share: &str,
        publication: &mut Publication<'_>,
        offered: (Offered, DropReason),
        gate: Option<ReportTo>,
        core: &mut Core,
    ) -> SharedDelivery {
        let went = match self.router.group_of(share) {
            Some(group) => self.share_to_next(now, group, publication, offered, gate, core),
            None => SharedDelivery::Settled(Outcome::Unmatched),
        };
        // Refused messages are counted already.
        if publication.is_orphaned && matches!(went, SharedDelivery::Settled(Outcome::Unmatched)) {
            let message = publication.outgoing.message(&mut core.scratch.sending.bytes).clone();
            let lost = Dropped::unsent(DropReason::SessionEnded, message);
            core.drop_of_group(share, lost, publication.atomic);
            return SharedDelivery::Settled(Outcome::Refused);
        }
        went
    }

    /// Ends a message that all members refused. A message that a member had before is kept until a
    /// member has room, unless it is QoS 0 or too large for every queue. Any other message is held
    /// if there is a `gate`, the queue policy is `hold`, and a member can hold it. Every message
    /// that is neither kept nor held is dropped. Returns `Unmatched` if no member may read the
    /// message and no session had it before.
    fn end_refused(
        &mut self,
        now: Instant,
        (group, share): (GroupId, &Arc<Box<str>>),
        publication: &mut Publication<'_>,
        cause: DropReason,
        gate: Option<ReportTo>,
        core: &mut Core,
    ) -> SharedDelivery {
        if core.access.are_on() && publication.readers != Readers::In(core.peers.here()) {
            match publication.readers {
                Readers::NotFound | Readers::NotAllAsked => {
                    return end_unreadable(share, publication, core);
                }
                // The members of this shard would never report room for the message. QoS 0 does not
                // wait for room.
                Readers::In(shard)
                    if publication.is_orphaned && publication.outgoing.parts.qos != QoS::AtMostOnce =>
                {
                    return send_share(
                        (shard, None),
                        Arc::clone(share),
                        Offered::ToAll,
                        publication,
                        gate,
                        core,
                    );
                }
                Readers::In(_) => {}
            }
        }
        if publication.is_orphaned {
            let message = publication.outgoing.message(&mut core.scratch.sending.bytes).clone();
            if self.keep_orphaned(now, &message, share, publication, None, core) {
                return SharedDelivery::Settled(Outcome::Refused);
            }
        } else if let Some(held) = gate.and_then(|gate| {
            self.hold_in_group(now, (group, share), publication, gate, HolderIn::AnyShard, core)
        }) {
            return held;
        }
        // The drop reason of QoS 0 is the full outbox, because QoS 0 waits in no queue.
        let at_most_once = publication.outgoing.parts.qos == QoS::AtMostOnce;
        let cause = if at_most_once { DropReason::OutboxFull } else { cause };
        let wanted =
            core.sessions.rules().nobody().of(publication.outgoing.parts.topic).wants_dead_letter(cause);
        let is_needed = wanted || publication.outgoing.audit.is_some();
        let message =
            is_needed.then(|| publication.outgoing.message(&mut core.scratch.sending.bytes).clone());
        // If there is a store, the dead letter is recorded in the open batch. The publisher's
        // acknowledgement waits for the commit of that batch.
        let lost = Dropped::new(cause, message).on(publication.outgoing.parts.topic);
        core.drop_of_group(share, lost, core.durability.is_on());
        SharedDelivery::Settled(Outcome::Refused)
    }
}

/// Ends a message for which no member was found that may read it. Drops the message if a
/// session had it before, or if some members were not asked. Otherwise the message has no
/// subscriber.
fn end_unreadable(share: &str, publication: &mut Publication<'_>, core: &mut Core) -> SharedDelivery {
    if !publication.is_orphaned && publication.readers == Readers::NotFound {
        return SharedDelivery::Settled(Outcome::Unmatched);
    }
    let message = publication.outgoing.message(&mut core.scratch.sending.bytes).clone();
    let stored = core.durability.is_on();
    core.drop_of_group(share, Dropped::unsent(DropReason::NotAuthorized, message), stored);
    SharedDelivery::Settled(Outcome::Refused)
}
