//! Shared subscriptions: one member of the group gets the message.
//!
//! The publisher's shard chooses, among all members of all shards: those online in turn that can
//! take more, then the other ones online, whose queue decides, then, for QoS 1 and 2, those whose
//! session waits for them. The shard of a member that refuses chooses the next, and so it goes on,
//! in the same transaction if it has one; only when all have refused it is it lost, and counted; or
//! held, as the queue policy may say; or kept for whoever has room first, if a member had it
//! before.
//!
//! After [`IN_TURN`] refusals every shard sees to its own members in one go, round by round, so a
//! message is on its way from shard to shard [`IN_TURN`] times and three times for each shard at
//! most. A shard looks at [`LOOKED_AT`] members and asks [`ASKED`] that seem to have no room, for
//! each round of a message: where more are connected and full, the message is refused by those, and
//! the next one is offered to the others.

use crate::mqtt::message::Message;
use crate::mqtt::outcome::Outcome;
use crate::mqtt::packet::QoS;
use crate::routing::shared_group::{Member, MemberAddress, Presence};
use crate::routing::subscription_tree::{GroupId, SessionSlot, ShardId, ShardSet};
use crate::session::drops::DropReason;
use crate::session::outbound::queue::QueuePolicy;
use crate::shard::core::Core;
use crate::shard::exchange::outbound::{Chosen, Gate, Item, Offered, Round, SharedMessage};
use crate::shard::features::orphaned_queues::{GroupRoom, Peers};
use crate::shard::publication::Publication;
use crate::shard::publication::Routed;
use crate::shard::publication::Target;
use crate::shard::route::Routing;
use crate::time::Instant;
use std::sync::Arc;

/// Members that one message is offered to in turn, whatever shard they are in.
const IN_TURN: usize = 16;

/// Members that a shard looks at for one message and round.
const LOOKED_AT: usize = 2_048;

/// Members that a shard offers a message to in one round although they have no room, as it seems:
/// something may have expired, or may be dropped for it.
const ASKED: usize = 64;

/// Members of a group that are looked at for one to hold a message.
const HOLDERS_LOOKED_AT: usize = 64;

/// Whether peers may hold a message that no member of this shard can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    /// Peers may.
    Peers,
    /// A peer passed the message on already.
    Nobody,
}

/// The state of a shared delivery.
pub(crate) enum SharedDelivery {
    /// The outcome is known.
    Settled(Outcome),
    /// The message is held with a member of this shard. The gate is answered later.
    Held,
    /// The message is on its way to another shard, whose ticket or late answer has the outcome.
    Underway { full: ShardSet },
}

impl Routing<'_> {
    /// Delivers a publication to one member of a group that matched.
    pub(crate) fn share(
        &mut self,
        now: Instant,
        group: GroupId,
        publication: &mut Publication<'_>,
        gate: Option<Gate>,
        routed: &mut Routed,
    ) {
        let nobody = (Offered::InTurn(Vec::new()), DropReason::QueueRefused);
        match self.share_to_next(now, group, publication, nobody, gate) {
            SharedDelivery::Settled(outcome) => routed.outcome = routed.outcome.or(outcome),
            SharedDelivery::Held => routed.gates += 1,
            SharedDelivery::Underway { full } => {
                routed.gates += u32::from(gate.is_some());
                routed.full = routed.full.union(full);
            }
        }
    }

    /// Offers the message to members until one takes it or it is on its way to another shard.
    fn share_to_next(
        &mut self,
        now: Instant,
        group: GroupId,
        publication: &mut Publication<'_>,
        (offered, cause): (Offered, DropReason),
        gate: Option<Gate>,
    ) -> SharedDelivery {
        let Some(share) = self.routes.router.full_filter(group).cloned() else {
            return SharedDelivery::Settled(Outcome::Unmatched);
        };
        let (mut round, mut seen) = (Round::Ready, ShardSet::EMPTY);
        match offered {
            Offered::ByShard { round: under_way, seen: behind } => (round, seen) = (under_way, behind),
            Offered::ToAll => return self.nobody_takes(now, (group, &share), publication, cause, gate),
            Offered::InTurn(mut refused) => {
                let mut asking = Round::Ready;
                while refused.len() < IN_TURN {
                    let Some(member) = self.choose(group, publication.parts.qos, &refused, &mut asking)
                    else {
                        if refused.is_empty() {
                            return SharedDelivery::Settled(Outcome::Unmatched);
                        }
                        return self.nobody_takes(now, (group, &share), publication, cause, gate);
                    };
                    refused.push(member.address());
                    if member.shard == self.core.here {
                        if self.offer(now, &member, publication, &share) == Outcome::Taken {
                            return SharedDelivery::Settled(Outcome::Taken);
                        }
                        continue;
                    }
                    let chosen = chosen(&member, publication);
                    let to = (member.shard, Some(chosen));
                    return self.send_share(to, share, Offered::InTurn(refused), publication, gate);
                }
            }
        }
        loop {
            if seen.insert(self.core.here)
                && self.offer_here(now, group, round, publication, &share) == Outcome::Taken
            {
                return SharedDelivery::Settled(Outcome::Taken);
            }
            let elsewhere =
                self.routes.router.group(group).and_then(|g| g.shard_beside(presence_in(round), seen));
            if let Some(shard) = elsewhere {
                return self.send_share(
                    (shard, None),
                    share,
                    Offered::ByShard { round, seen },
                    publication,
                    gate,
                );
            }
            round = match round {
                Round::Ready => Round::Online,
                Round::Online if publication.parts.qos != QoS::AtMostOnce => Round::Offline,
                _ => return self.nobody_takes(now, (group, &share), publication, cause, gate),
            };
            seen = ShardSet::EMPTY;
        }
    }

    /// Ends a message that all members refused. If a member had it before, it waits for the first
    /// that has room. Otherwise it is held for its publisher, or dropped.
    fn nobody_takes(
        &mut self,
        now: Instant,
        (group, share): (GroupId, &Arc<Box<str>>),
        publication: &mut Publication<'_>,
        cause: DropReason,
        gate: Option<Gate>,
    ) -> SharedDelivery {
        if publication.owed {
            let message = publication.message(&mut self.core.scratch.bytes).clone();
            if self.keep_owed(now, &message, share, publication.atomic, &mut publication.body) {
                return SharedDelivery::Settled(Outcome::Refused);
            }
        } else if let Some(held) =
            gate.and_then(|gate| self.hold_in_group(now, (group, share), publication, gate, Asks::Peers))
        {
            return held;
        }
        // QoS 0 waits in no queue.
        let at_most_once = publication.parts.qos == QoS::AtMostOnce;
        let cause = if at_most_once { DropReason::OutboxFull } else { cause };
        let wanted = self.core.sessions.rules().nobody().of(publication.parts.topic).wants_dead_letter(cause);
        let message = wanted.then(|| publication.message(&mut self.core.scratch.bytes).clone());
        // Its publisher's acknowledgement waits for the dead letter, in whichever shard that is
        // stored.
        self.core.drop_of_group(share, cause, message, self.core.durability.is_on());
        SharedDelivery::Settled(Outcome::Refused)
    }

    /// Offers a message to a member here.
    fn offer(
        &mut self,
        now: Instant,
        member: &Member,
        publication: &mut Publication<'_>,
        share: &Arc<Box<str>>,
    ) -> Outcome {
        self.offer_chosen(now, &chosen(member, publication), publication, share)
    }

    fn offer_chosen(
        &mut self,
        now: Instant,
        chosen: &Chosen,
        publication: &mut Publication<'_>,
        share: &Arc<Box<str>>,
    ) -> Outcome {
        if publication.owed && !self.takes_owed(now, chosen.session, publication) {
            return Outcome::Refused;
        }
        let ids = [chosen.subscription_id];
        let target = Target {
            session: chosen.session,
            qos: chosen.qos,
            retain_as_published: chosen.retain,
            ids: if chosen.subscription_id == 0 { &[] } else { &ids },
        };
        self.core.deliver_shared(now, &target, publication, Some(share))
    }

    /// Offers a message to the members here, in one round.
    fn offer_here(
        &mut self,
        now: Instant,
        group: GroupId,
        round: Round,
        publication: &mut Publication<'_>,
        share: &Arc<Box<str>>,
    ) -> Outcome {
        let (presence, here) = (presence_in(round), self.core.here);
        let Some(members) = self.routes.router.group_mut(group) else { return Outcome::Unmatched };
        let (own, turn) = members.of_shard(presence, here);
        let mut regardless = if round == Round::Ready { 0 } else { ASKED };
        let mut next = turn;
        for place in (turn..own.end).chain(own.start..turn).take(LOOKED_AT) {
            next = if place + 1 == own.end { own.start } else { place + 1 };
            self.core.turn.charge(1);
            let Some(member) = self.routes.router.group(group).and_then(|g| g.at(presence, place)) else {
                break;
            };
            let has_room = match round {
                Round::Ready => self.takes_more(&member),
                _ => self.has_room_in_queue(&member),
            };
            if !has_room {
                if regardless == 0 {
                    continue;
                }
                regardless -= 1;
            }
            if self.offer(now, &member, publication, share) == Outcome::Taken {
                self.set_turn_in_group(group, presence, next);
                return Outcome::Taken;
            }
        }
        self.set_turn_in_group(group, presence, next);
        Outcome::Refused
    }

    fn set_turn_in_group(&mut self, group: GroupId, presence: Presence, place: usize) {
        if let Some(members) = self.routes.router.group_mut(group) {
            members.set_turn(presence, place);
        }
    }

    /// Returns true if a member of this shard is connected and has room in its outbox and its
    /// queue.
    fn takes_more(&self, member: &Member) -> bool {
        let policy = &self.core.settings.session.send;
        let Some((_, session_entry)) = self.core.sessions.at(member.session.0) else { return false };
        session_entry
            .takes_more(session_entry.connection.and_then(|id| self.core.connections.get(id)), policy)
    }

    /// Returns true if the queue of a member of this shard has room.
    fn has_room_in_queue(&self, member: &Member) -> bool {
        let policy = &self.core.settings.session.send;
        let session_entry = self.core.sessions.at(member.session.0).map(|(_, session_entry)| session_entry);
        session_entry.is_some_and(|r| r.has_place(policy))
    }

    pub(crate) fn send_share(
        &mut self,
        (shard, chosen): (ShardId, Option<Chosen>),
        filter: Arc<Box<str>>,
        offered: Offered,
        publication: &mut Publication<'_>,
        gate: Option<Gate>,
    ) -> SharedDelivery {
        let transaction = self.core.durability.next_participant(publication);
        let message = publication.message(&mut self.core.scratch.bytes).clone();
        let size = message.size();
        let Some(peer) = self.core.exchange.peer(shard) else {
            return SharedDelivery::Settled(Outcome::Refused);
        };
        let share = SharedMessage { message, filter, offered, owed: publication.owed, chosen, transaction };
        peer.publish(Item::Share(share), size, gate);
        let mut full = ShardSet::EMPTY;
        if peer.is_full() {
            full.insert(shard);
        }
        SharedDelivery::Underway { full }
    }

    /// The next member to offer a message to, in turn. Each `round` ends once, and is not begun
    /// again for this message.
    fn choose(
        &mut self,
        group: GroupId,
        qos: QoS,
        refused: &[MemberAddress],
        round: &mut Round,
    ) -> Option<Member> {
        let Core { sessions, connections, settings, here, turn, .. } = &mut *self.core;
        let router = &mut self.routes.router;
        let policy = &settings.session.send;
        let (members, caught_up) = router.group_caught_up(group)?;
        turn.charge(caught_up as u32);
        let unasked = |m: &Member| !refused.contains(&m.address());
        // A member whose session has ended may not have left the group yet.
        let untried = |m: &Member| unasked(m) && (m.shard != *here || sessions.at(m.session.0).is_some());
        let takes_more = |m: &Member| {
            turn.charge(1);
            if !unasked(m) {
                return false;
            }
            if m.shard != *here {
                return true;
            }
            let Some((_, session_entry)) = sessions.at(m.session.0) else { return false };
            session_entry.takes_more(session_entry.connection.and_then(|id| connections.get(id)), policy)
        };
        if *round == Round::Ready {
            if let Some(member) = members.choose(LOOKED_AT, takes_more) {
                return Some(member);
            }
            *round = Round::Online;
        }
        if *round == Round::Online {
            if let Some(member) = members.choose(LOOKED_AT, untried) {
                return Some(member);
            }
            *round = Round::Offline;
        }
        if qos == QoS::AtMostOnce { None } else { members.choose_offline(LOOKED_AT, untried) }
    }

    /// A share came for a session here, which has it, or another member does. `gate`: whom to tell,
    /// if that is elsewhere.
    pub(crate) fn take_share(
        &mut self,
        now: Instant,
        share: &SharedMessage,
        publication: &mut Publication<'_>,
        gate: Gate,
    ) -> SharedDelivery {
        publication.owed = share.owed;
        if matches!(share.offered, Offered::ToAll) {
            return self.take_share_to_hold(now, share, publication, gate);
        }
        let mut offered = share.offered.clone();
        let mut cause = DropReason::QueueRefused;
        if let Some(chosen) = &share.chosen {
            let current = self.core.sessions.at(chosen.session.0).map(|(id, _)| id.generation);
            if current == Some(chosen.generation) {
                match self.offer_chosen(now, chosen, publication, &share.filter) {
                    Outcome::Taken => return SharedDelivery::Settled(Outcome::Taken),
                    Outcome::Unmatched => cause = DropReason::SessionEnded,
                    _ => {}
                }
            } else {
                cause = DropReason::SessionEnded;
                if let Offered::InTurn(members) = &mut offered {
                    // Who has the slot now was not asked, and may be a member too.
                    members.pop();
                }
            }
        }
        let gate = Some(gate).filter(|_| publication.parts.qos != QoS::AtMostOnce);
        self.share_by_name(now, &share.filter, publication, (offered, cause), gate)
    }

    /// Gives a message to another member of its group, because the session of a member ended that
    /// had not acknowledged it.
    // 5.0 [MQTT-4.8.2-5] forbids it for QoS 2 alone.
    /// `stored` is true if the message was stored for that member: its end is recorded with its new
    /// owner. `gate` is answered by another shard, if one gets the message.
    pub(crate) fn share_again(
        &mut self,
        now: Instant,
        message: Message,
        share: &Arc<Box<str>>,
        stored: bool,
        gate: Option<Gate>,
    ) -> SharedDelivery {
        // 5.0 [MQTT-3.3.2-5]: delivery to that member has not begun, whatever this one had.
        if message.is_expired(now) {
            self.core.drop_of_group(share, DropReason::Expired, Some(message), stored);
            return SharedDelivery::Settled(Outcome::Refused);
        }
        let mut publication = Publication::of(&message, None);
        (publication.atomic, publication.owed) = (stored, true);
        let nobody = (Offered::InTurn(Vec::new()), DropReason::SessionEnded);
        self.share_by_name(now, share, &mut publication, nobody, gate)
    }

    /// As [`Self::share_again`] at the end of a session; where no member has room now, the message
    /// waits for one that has.
    pub(crate) fn share_again_or_keep(
        &mut self,
        now: Instant,
        message: Message,
        share: &Arc<Box<str>>,
        stored: bool,
    ) {
        let waits = !message.is_expired(now) && !self.may_offer(now, share, message.size(), Peers::Freely);
        if !waits || !self.keep_owed(now, &message, share, stored, &mut None) {
            self.share_again(now, message, share, stored, None);
        }
    }

    /// As [`Self::share_to_next`], of a group that may have gone with its last member: then nobody
    /// is subscribed any more, and what was owed is lost.
    pub(crate) fn share_by_name(
        &mut self,
        now: Instant,
        share: &str,
        publication: &mut Publication<'_>,
        offered: (Offered, DropReason),
        gate: Option<Gate>,
    ) -> SharedDelivery {
        let went = match self.routes.router.group_of(share) {
            Some(group) => self.share_to_next(now, group, publication, offered, gate),
            None => SharedDelivery::Settled(Outcome::Unmatched),
        };
        // A refused message is counted already.
        if publication.owed && matches!(went, SharedDelivery::Settled(Outcome::Unmatched)) {
            let message = publication.message(&mut self.core.scratch.bytes).clone();
            self.core.drop_of_group(share, DropReason::SessionEnded, Some(message), publication.atomic);
            return SharedDelivery::Settled(Outcome::Refused);
        }
        went
    }

    /// Who of a group may take a message above QoS 0 of this size; `None` where there is no such
    /// group. Looks at [`LOOKED_AT`] members at most, until one here has room; beyond that it says
    /// that some has.
    pub(crate) fn room_in_group(&mut self, now: Instant, share: &str, size: usize) -> Option<GroupRoom> {
        let members = self.routes.router.group_of(share).and_then(|id| self.routes.router.group(id))?;
        let policy = &self.core.settings.session.send;
        let mut room = GroupRoom { here: members.len() > LOOKED_AT, ..GroupRoom::default() };
        for m in members.members().take(LOOKED_AT) {
            self.core.turn.charge(1);
            if m.shard != self.core.here {
                room.elsewhere = true;
                continue;
            }
            // One whose session has ended may not have left the group yet.
            let Some((_, session_entry)) = self.core.sessions.at(m.session.0) else { continue };
            room.members_here = true;
            if session_entry.has_room_for_owed(now, size, policy) {
                room.here = true;
                break;
            }
        }
        Some(room)
    }

    /// Whether a member here has room for a message that an ended session leaves: one never pushes
    /// out what others wait for.
    fn takes_owed(&mut self, now: Instant, member: SessionSlot, publication: &mut Publication<'_>) -> bool {
        let size = publication.message(&mut self.core.scratch.bytes).size();
        let policy = &self.core.settings.session.send;
        let session_entry = self.core.sessions.at(member.0).map(|(_, session_entry)| session_entry);
        publication.parts.qos == QoS::AtMostOnce
            || session_entry.is_some_and(|r| r.has_room_for_owed(now, size, policy))
    }
}

/// Messages that wait for room, under the policy `hold`.
impl Routing<'_> {
    /// Every member of a group has refused a message: one of them holds it, if the policy says so.
    /// `None` if none can.
    pub(crate) fn hold_in_group(
        &mut self,
        now: Instant,
        (group, share): (GroupId, &Arc<Box<str>>),
        publication: &mut Publication<'_>,
        gate: Gate,
        asks: Asks,
    ) -> Option<SharedDelivery> {
        let (policy, bytes) = (
            self.core.settings.session.send.queue.policy,
            self.core.settings.largest_queue_bytes(&self.core.durability),
        );
        if policy != QueuePolicy::Hold
            || publication.parts.qos == QoS::AtMostOnce
            || publication.message(&mut self.core.scratch.bytes).size() > bytes
        {
            return None;
        }
        let members = || self.routes.router.group(group).into_iter().flat_map(|g| g.members());
        let mut here: Vec<Member> =
            members().filter(|m| m.shard == self.core.here).take(HOLDERS_LOOKED_AT).copied().collect();
        let elsewhere = members().find(|m| m.shard != self.core.here && asks == Asks::Peers).copied();
        here.sort_by_key(|m| {
            self.core.sessions.at(m.session.0).map_or(usize::MAX, |(_, r)| r.held_messages())
        });
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
            let outcome = self.core.deliver_shared(now, &target, publication, Some(share));
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
    pub(crate) fn take_share_to_hold(
        &mut self,
        now: Instant,
        share: &SharedMessage,
        publication: &mut Publication<'_>,
        gate: Gate,
    ) -> SharedDelivery {
        let group = self.routes.router.group_of(&share.filter);
        let held = group.and_then(|group| {
            self.hold_in_group(now, (group, &share.filter), publication, gate, Asks::Nobody)
        });
        held.unwrap_or_else(|| {
            let message = Some(share.message.clone());
            self.core.drop_of_group(
                &share.filter,
                DropReason::QueueRefused,
                message,
                self.core.durability.is_on(),
            );
            SharedDelivery::Settled(Outcome::Refused)
        })
    }
}

/// Returns the presence of the members of a round.
fn presence_in(round: Round) -> Presence {
    if round == Round::Offline { Presence::Offline } else { Presence::Online }
}

/// A member as its own shard needs it, for this publication.
fn chosen(member: &Member, publication: &Publication<'_>) -> Chosen {
    Chosen {
        session: member.session,
        generation: member.generation,
        qos: publication.parts.qos.min(member.options.qos()),
        retain: publication.parts.retain && member.options.retain_as_published(),
        subscription_id: member.subscription_id,
    }
}
