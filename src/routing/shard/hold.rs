//! The queue policy `hold`: a message that a full queue cannot take waits outside it, and its publisher's
//! acknowledgement with it, until there is room or the time is up.
//!
//! A shared message that every member refuses is held with one of them: with that of this shard that holds the fewest, or in
//! the shard of another. It stays with that member until it has room, and goes to another only if the member's session ends.
//!
//! Bounded by the publishers: each has at most Receive Maximum unanswered.

use super::exchange::{Gate, Item, Offered, Share};
use super::route::{Publication, Target};
use super::share::Shared;
use super::{Resident, SessionId, Shard};
use crate::mqtt::charge::Charge;
use crate::mqtt::packet::QoS;
use crate::mqtt::session::loss::{LossCause, Losses, Lost};
use crate::mqtt::session::queue::{Delivery, QueueLimits, QueuePolicy};
use crate::mqtt::session::receiver::Outcome;
use crate::routing::shared::Member;
use crate::routing::subscription_tree::GroupId;
use crate::time::Instant;
use std::sync::Arc;

/// Members of a group that are looked at for one to hold a message.
const LOOKED_AT: usize = 64;

/// Whether a peer is asked to hold a message that nobody here can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asks {
    Peers,
    Nobody,
}

/// A message that waits for room.
#[derive(Debug)]
pub(super) struct Held {
    pub delivery: Delivery,
    pub gate: Gate,
    pub until: Instant,
    /// Its place in the row.
    pub _charge: Charge,
}

/// What a message that is held takes beside its bytes.
pub(super) const HELD: usize = size_of::<Held>();

impl Resident {
    /// Whether a delivery has to wait: the policy says so, and there is no room or others wait already. One that no
    /// queue of this size can ever take does not wait.
    pub(super) fn must_hold(
        &mut self,
        now: Instant,
        delivery: &Delivery,
        limits: &QueueLimits,
        losses: &mut Losses,
    ) -> bool {
        let size = delivery.size();
        limits.policy == QueuePolicy::Hold
            && size <= limits.bytes
            && (self.held.is_some() || !self.session.sender.make_room(now, size, limits, losses))
    }

    /// How many wait.
    pub(super) fn held_messages(&self) -> usize {
        self.held.as_ref().map_or(0, |h| h.len())
    }

    pub(super) fn holds(&self) -> bool {
        self.held.is_some()
    }

    pub(super) fn hold(&mut self, held: Held) {
        self.held.get_or_insert_default().push_back(held);
    }

    /// When the first of those that wait has waited long enough. They wait equally long, so it is the oldest.
    pub(super) fn held_until(&self) -> Instant {
        self.held.as_ref().and_then(|h| h.front()).map_or(Instant::NEVER, |h| h.until)
    }

    fn pop_held(&mut self) -> Option<Held> {
        let held = self.held.as_mut()?;
        let front = held.pop_front();
        if held.is_empty() {
            self.held = None;
        }
        front
    }
}

impl Shard {
    /// The queue may have room: takes in, in order, what waits for it.
    pub(super) fn admit_held(&mut self, now: Instant, id: SessionId) {
        loop {
            let Shard { connections, sessions, settings, tally, .. } = self;
            let policy = &settings.session.send;
            let Some(resident) = sessions.get_mut(id) else { return };
            let Some(front) = resident.held.as_ref().and_then(|h| h.front()) else { return };
            let size = front.delivery.size();
            let limits = resident.session.queue_limits(policy);
            if !resident.session.sender.make_room(now, size, limits, &mut tally.losses) {
                return self.settle_losses(id);
            }
            let Some(Held { delivery, gate, .. }) = resident.pop_held() else { return };
            let head = resident.head();
            let sender = &mut resident.session.sender;
            let taken = sender.enqueue(now, delivery, head, limits, &mut tally.losses).is_ok();
            if let Some((connection_id, connection)) =
                resident.connection.and_then(|c| Some((c, connections.get_mut(c)?)))
            {
                resident.session.sender.pump(now, &mut connection.wire, policy, tally);
                self.touch(connection_id);
            }
            self.settle_losses(id);
            self.answer_when_committed(now, gate, if taken { Outcome::Taken } else { Outcome::Refused });
        }
    }

    /// What has waited long enough is refused.
    pub(super) fn give_up_held(&mut self, now: Instant, id: SessionId) {
        while let Some(resident) = self.sessions.get_mut(id)
            && resident.held_until() <= now
            && let Some(Held { gate, delivery, .. }) = resident.pop_held()
        {
            self.tally.losses.lose(Lost::unsent(LossCause::QueueRefused, delivery.message));
            self.settle_losses(id);
            self.answer_gate(now, gate, Outcome::HeldTooLong);
        }
    }

    /// The session ends: nothing more gets into its queue.
    pub(super) fn refuse_held(&mut self, now: Instant, id: SessionId) {
        while let Some(resident) = self.sessions.get_mut(id)
            && let Some(Held { gate, delivery, .. }) = resident.pop_held()
        {
            if let Some(share) = &delivery.share {
                self.pass_on_held(now, &delivery, share, gate);
                continue;
            }
            self.tally.losses.lose(Lost::unsent(LossCause::SessionEnded, delivery.message));
            self.settle_losses(id);
            self.answer_when_committed(now, gate, Outcome::Refused);
        }
    }

    /// Another member of the group gets what one held whose session ends, or holds it in turn. Its row ends with it, in the batch
    /// that says who has it now.
    fn pass_on_held(&mut self, now: Instant, held: &Delivery, share: &Arc<Box<str>>, gate: Gate) {
        let mut publication = Publication::of(&held.message, None);
        publication.whole = held.stored.is_some();
        let nobody = (Offered::InTurn(Vec::new()), LossCause::SessionEnded);
        match self.share_by_name(now, share, &mut publication, nobody, Some(gate)) {
            Shared::Held | Shared::Underway { .. } => {}
            Shared::Settled(Outcome::Taken) => self.answer_when_committed(now, gate, Outcome::Taken),
            Shared::Settled(outcome) => {
                if outcome == Outcome::Unmatched {
                    let (cause, message) = (LossCause::SessionEnded, Some(held.message.clone()));
                    self.lose_of_group(share, cause, message, publication.whole);
                }
                self.answer_when_committed(now, gate, Outcome::Refused);
            }
        }
    }

    /// Every member of a group has refused a message: one of them holds it, if the policy says so. `None` if none can.
    pub(super) fn hold_in_group(
        &mut self,
        now: Instant,
        (group, share): (GroupId, &Arc<Box<str>>),
        publication: &mut Publication<'_>,
        gate: Gate,
        asks: Asks,
    ) -> Option<Shared> {
        let (policy, bytes) = (self.settings.session.send.queue.policy, self.largest_queue_bytes());
        if policy != QueuePolicy::Hold
            || publication.parts.qos == QoS::AtMostOnce
            || publication.message(&mut self.scratch).size() > bytes
        {
            return None;
        }
        let members = || self.tree.group(group).into_iter().flat_map(|g| g.members());
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
                return Some(Shared::Settled(outcome));
            }
            if publication.held > before {
                return Some(Shared::Held);
            }
        }
        let to = (elsewhere?.shard, None);
        Some(self.send_share(to, Arc::clone(share), Offered::ToAll, publication, Some(gate)))
    }

    /// A peer has nobody to hold a shared message; somebody here holds it, or it is refused.
    pub(super) fn take_share_to_hold(
        &mut self,
        now: Instant,
        share: &Share,
        publication: &mut Publication<'_>,
        gate: Gate,
    ) -> Shared {
        let group = self.group_of(&share.filter);
        let held = group.and_then(|group| {
            self.hold_in_group(now, (group, &share.filter), publication, gate, Asks::Nobody)
        });
        held.unwrap_or_else(|| {
            let message = Some(share.message.clone());
            self.lose_of_group(&share.filter, LossCause::QueueRefused, message, self.stored.is_some());
            Shared::Settled(Outcome::Refused)
        })
    }

    pub(super) fn answer_gate(&mut self, now: Instant, gate: Gate, outcome: Outcome) {
        match gate {
            Gate::Here { session, token } => self.gate_answered(now, session, token, outcome),
            Gate::Estate => self.estate_answered(now, outcome),
            Gate::Peer { shard, number, index } => {
                if let Some(peer) = self.peers.get_mut(usize::from(shard.0)) {
                    peer.tell_late(Item::Late { number, index, outcome });
                }
            }
        }
    }
}
