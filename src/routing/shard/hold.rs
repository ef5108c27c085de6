//! The queue policy `hold`: a message that a full queue cannot take waits outside it, and its publisher's
//! acknowledgement with it, until there is room or the time is up.
//!
//! Bounded by the publishers: each has at most Receive Maximum unanswered.

use super::exchange::{Gate, Item};
use super::{Resident, SessionId, Shard};
use crate::mqtt::session::loss::{LossCause, Losses, Lost};
use crate::mqtt::session::queue::{Delivery, QueueLimits, QueuePolicy};
use crate::mqtt::session::receiver::Outcome;
use crate::time::Instant;

/// A message that waits for room.
#[derive(Debug)]
pub(super) struct Held {
    pub delivery: Delivery,
    pub gate: Gate,
    pub until: Instant,
}

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
        let size = delivery.message.size();
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
            let size = front.delivery.message.size();
            if !resident.session.sender.make_room(now, size, &policy.queue, &mut tally.losses) {
                return self.settle_losses(id);
            }
            let Some(Held { delivery, gate, .. }) = resident.pop_held() else { return };
            let head = resident.head();
            let sender = &mut resident.session.sender;
            let taken = sender.enqueue(now, delivery, head, &policy.queue, &mut tally.losses).is_ok();
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
            self.tally.losses.lose(Lost::unsent(LossCause::SessionEnded, delivery.message));
            self.settle_losses(id);
            self.answer_gate(now, gate, Outcome::Refused);
        }
    }

    pub(super) fn answer_gate(&mut self, now: Instant, gate: Gate, outcome: Outcome) {
        match gate {
            Gate::Here { session, token } => self.gate_answered(now, session, token, outcome),
            Gate::Peer { shard, number, index } => {
                if let Some(peer) = self.peers.get_mut(usize::from(shard.0)) {
                    peer.tell_late(Item::Late { number, index, outcome });
                }
            }
        }
    }
}
