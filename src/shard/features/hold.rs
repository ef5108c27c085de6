//! The queue policy `hold`: a message that a full queue cannot take waits outside it, and its
//! publisher's acknowledgement with it, until there is room or the time is up.
//!
//! A shared message that every member refuses is held with one of them: with that of this shard
//! that holds the fewest, or in the shard of another. It stays with that member until it has room,
//! and goes to another only if the member's session ends.
//!
//! Bounded by the publishers: each has at most Receive Maximum unanswered.

use crate::mqtt::outcome::Outcome;
use crate::mqtt::packet::QoS;
use crate::routing::shared_group::Member;
use crate::routing::subscription_tree::GroupId;
use crate::session::drops::{DropReason, Dropped};
use crate::session::outbound::queue::{Delivery, QueuePolicy};
use crate::shard::Shard;
use crate::shard::ended::EndedSession;
use crate::shard::exchange::outbound::{Gate, Item, Offered, SharedMessage};
use crate::shard::route::{Publication, Target};
use crate::shard::session_entry::HeldMessage;
use crate::shard::share::SharedDelivery;
use crate::shard::slots::SessionId;
use crate::time::Instant;
use std::sync::Arc;

/// Members of a group that are looked at for one to hold a message.
const LOOKED_AT: usize = 64;

/// Whether a peer is asked to hold a message that nobody here can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::shard) enum Asks {
    Peers,
    Nobody,
}

impl Shard {
    /// The queue may have room: takes in, in order, what waits for it.
    pub(in crate::shard) fn admit_held(&mut self, now: Instant, id: SessionId) {
        loop {
            let Shard { connections, sessions, settings, counters, .. } = self;
            let policy = &settings.session.send;
            let Some(session_entry) = sessions.get_mut(id) else { return };
            let Some(front) = session_entry.first_held() else { return };
            let size = front.delivery.size();
            let limits = session_entry.session.queue_limits(policy);
            if !session_entry.session.sender.make_room(now, size, limits, &mut counters.drops) {
                return self.report_drops(id);
            }
            let Some(HeldMessage { delivery, gate, .. }) = session_entry.pop_held() else { return };
            let head = session_entry.head();
            let sender = &mut session_entry.session.sender;
            let taken = sender.enqueue(now, delivery, head, limits, &mut counters.drops).is_ok();
            if let Some((connection_id, connection)) =
                session_entry.connection.and_then(|c| Some((c, connections.get_mut(c)?)))
            {
                session_entry.session.sender.pump(now, &mut connection.wire, policy, counters);
                self.touch(connection_id);
            }
            self.report_drops(id);
            self.answer_when_committed(now, gate, if taken { Outcome::Taken } else { Outcome::Refused });
        }
    }

    /// What has waited long enough is refused.
    pub(in crate::shard) fn give_up_held(&mut self, now: Instant, id: SessionId) {
        while let Some(session_entry) = self.sessions.get_mut(id)
            && session_entry.held_until() <= now
            && let Some(HeldMessage { gate, delivery, .. }) = session_entry.pop_held()
        {
            self.counters.drops.lose(Dropped::unsent(DropReason::QueueRefused, delivery.message));
            self.report_drops(id);
            self.answer_gate(now, gate, Outcome::HeldTooLong);
        }
    }

    /// The session has ended: nothing more gets into its queue.
    pub(in crate::shard) fn refuse_held(&mut self, now: Instant, held: HeldMessage, ended: &EndedSession) {
        let HeldMessage { gate, delivery, .. } = held;
        if let Some(share) = &delivery.share {
            return self.pass_on_held(now, &delivery, share, gate);
        }
        let Delivery { message, stored: _ends, .. } = delivery;
        self.lose_with_end(ended, Dropped::unsent(DropReason::SessionEnded, message));
        self.answer_when_committed(now, gate, Outcome::Refused);
    }

    /// Another member of the group gets what one held whose session ends, or holds it in turn. Its
    /// row ends with it, in the batch that says who has it now.
    fn pass_on_held(&mut self, now: Instant, held: &Delivery, share: &Arc<Box<str>>, gate: Gate) {
        let mut publication = Publication::of(&held.message, None);
        publication.atomic = held.stored.is_some();
        let nobody = (Offered::InTurn(Vec::new()), DropReason::SessionEnded);
        match self.share_by_name(now, share, &mut publication, nobody, Some(gate)) {
            SharedDelivery::Held | SharedDelivery::Underway { .. } => {}
            SharedDelivery::Settled(Outcome::Taken) => self.answer_when_committed(now, gate, Outcome::Taken),
            SharedDelivery::Settled(outcome) => {
                if outcome == Outcome::Unmatched {
                    let (cause, message) = (DropReason::SessionEnded, Some(held.message.clone()));
                    self.drop_of_group(share, cause, message, publication.atomic);
                }
                self.answer_when_committed(now, gate, Outcome::Refused);
            }
        }
    }

    /// Every member of a group has refused a message: one of them holds it, if the policy says so.
    /// `None` if none can.
    pub(in crate::shard) fn hold_in_group(
        &mut self,
        now: Instant,
        (group, share): (GroupId, &Arc<Box<str>>),
        publication: &mut Publication<'_>,
        gate: Gate,
        asks: Asks,
    ) -> Option<SharedDelivery> {
        let (policy, bytes) = (self.settings.session.send.queue.policy, self.largest_queue_bytes());
        if policy != QueuePolicy::Hold
            || publication.parts.qos == QoS::AtMostOnce
            || publication.message(&mut self.scratch.bytes).size() > bytes
        {
            return None;
        }
        let members = || self.router.group(group).into_iter().flat_map(|g| g.members());
        let mut here: Vec<Member> =
            members().filter(|m| m.shard == self.here).take(LOOKED_AT).copied().collect();
        let elsewhere = members().find(|m| m.shard != self.here && asks == Asks::Peers).copied();
        here.sort_by_key(|m| self.sessions.at(m.session.0).map_or(usize::MAX, |(_, r)| r.held_messages()));
        for member in here {
            let qos = publication.parts.qos.min(member.options.qos());
            let ids = [member.subscription_id];
            let target = Target {
                session: member.session,
                qos,
                retain_as_published: member.options.retain_as_published(),
                ids: if member.subscription_id == 0 { &[] } else { &ids },
            };
            let before = publication.held;
            let gate_before = publication.gate.replace(gate);
            let outcome = self.deliver_shared(now, &target, publication, Some(share));
            publication.gate = gate_before;
            if outcome == Outcome::Taken {
                return Some(SharedDelivery::Settled(outcome));
            }
            if publication.held > before {
                return Some(SharedDelivery::Held);
            }
        }
        let to = (elsewhere?.shard, None);
        Some(self.send_share(to, Arc::clone(share), Offered::ToAll, publication, Some(gate)))
    }

    /// A peer has nobody to hold a shared message; somebody here holds it, or it is refused.
    pub(in crate::shard) fn take_share_to_hold(
        &mut self,
        now: Instant,
        share: &SharedMessage,
        publication: &mut Publication<'_>,
        gate: Gate,
    ) -> SharedDelivery {
        let group = self.router.group_of(&share.filter);
        let held = group.and_then(|group| {
            self.hold_in_group(now, (group, &share.filter), publication, gate, Asks::Nobody)
        });
        held.unwrap_or_else(|| {
            let message = Some(share.message.clone());
            self.drop_of_group(&share.filter, DropReason::QueueRefused, message, self.stored.is_some());
            SharedDelivery::Settled(Outcome::Refused)
        })
    }

    pub(in crate::shard) fn answer_gate(&mut self, now: Instant, gate: Gate, outcome: Outcome) {
        match gate {
            Gate::Here { session, token } => self.gate_answered(now, session, token, outcome),
            Gate::OrphanedQueue => self.orphaned_queue_answered(now, outcome),
            Gate::Peer { shard, number, index } => {
                if let Some(peer) = self.exchange.peer(shard) {
                    peer.tell_late(Item::Late { number, index, outcome });
                }
            }
        }
    }
}
