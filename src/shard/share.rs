//! Shared subscriptions: one member of the group gets the message.
//!
//! The publisher's shard chooses a member among the members in all shards, in three rounds
//! ([`Round`]):
//!
//! - First come the online members that can take more, in turn. A shard does not know the room of
//!   members in other shards, so it assumes that these members can take more.
//! - Then come the other online members. The queue policy of each member decides.
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
//! A message that waits is kept in a shard with a member that may read it, because only such a
//! member can report room for it.
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
//! Each choice of one member looks at [`LOOKED_AT`] members at most in each round. When a shard
//! goes through its own members, it looks at [`LOOKED_AT`] members at most in each round. Among
//! them, it offers the message to [`OFFERED_REGARDLESS`] members at most that seem to have no room.
//! The shard does not offer this message to its other members without room. If the shard has more
//! than [`LOOKED_AT`] members, the turn passes to the first member that the shard did not look at.

use crate::mqtt::message::Message;
use crate::mqtt::outcome::Outcome;
use crate::mqtt::packet::QoS;
use crate::routing::shared_group::{Member, MemberAddress, Presence};
use crate::routing::subscription_tree::{GroupId, SessionSlot, ShardId, ShardSet};
use crate::session::drops::DropReason;
use crate::session::outbound::queue::QueuePolicy;
use crate::shard::core::Core;
use crate::shard::exchange::outbound::{Chosen, Gate, Item, Offered, Round, SharedMessage};
use crate::shard::features::orphaned_queues::{GroupRoom, Peers, Wanted};
use crate::shard::publication::Publication;
use crate::shard::publication::Routed;
use crate::shard::publication::Target;
use crate::shard::route::Routing;
use crate::time::Instant;
use std::sync::Arc;

/// Maximum number of members, in any shard, to which one message is offered one by one. The shards
/// go through all members after that.
const IN_TURN: usize = 16;

/// Maximum number of members that one call looks at in one round. Later calls for the same message
/// may look at as many again.
const LOOKED_AT: usize = 2_048;

/// Maximum number of members without apparent room to which a shard offers a message in one round.
/// Such a member may still take the message, because another message in its queue may have expired
/// or may be dropped in favour of this one.
const OFFERED_REGARDLESS: usize = 64;

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

/// The state of a shared delivery.
pub(crate) enum SharedDelivery {
    /// The outcome is known.
    Settled(Outcome),
    /// A member of this shard holds the message. The gate is answered later.
    Held,
    /// The message is sent to another shard. The ticket of that shard, or its deferred answer, has
    /// the outcome. `full` holds that shard if too many publications to it have no ticket.
    Underway { full: ShardSet },
}

impl Routing<'_> {
    /// Delivers a publication to one member of a shared group whose filter matched. Adds the
    /// outcome, the pending gates and the full peers to `routed`.
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
        gate: Option<Gate>,
    ) -> SharedDelivery {
        let Some(share) = self.routes.router.full_filter(group).cloned() else {
            return SharedDelivery::Settled(Outcome::Unmatched);
        };
        let (mut round, mut seen) = (Round::Ready, ShardSet::EMPTY);
        match offered {
            Offered::ByShard { round: under_way, seen: behind } => (round, seen) = (under_way, behind),
            Offered::ToAll => return self.end_refused(now, (group, &share), publication, cause, gate),
            Offered::InTurn(mut refused) => {
                let mut choice_round = Round::Ready;
                while refused.len() < IN_TURN {
                    let Some(member) = self.choose(group, publication.parts.qos, &refused, &mut choice_round)
                    else {
                        if refused.is_empty() {
                            return SharedDelivery::Settled(Outcome::Unmatched);
                        }
                        return self.end_refused(now, (group, &share), publication, cause, gate);
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
                _ => return self.end_refused(now, (group, &share), publication, cause, gate),
            };
            seen = ShardSet::EMPTY;
        }
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
        gate: Option<Gate>,
    ) -> SharedDelivery {
        if self.core.access.are_on() && publication.reader != Some(self.core.here) {
            match publication.reader {
                None => return self.end_unreadable(share, publication),
                // The members of this shard would never report room for the message.
                Some(shard) if publication.owed => {
                    return self.send_share(
                        (shard, None),
                        Arc::clone(share),
                        Offered::ToAll,
                        publication,
                        gate,
                    );
                }
                Some(_) => {}
            }
        }
        if publication.owed {
            let message = publication.message(&mut self.core.scratch.bytes).clone();
            if self.keep_owed(now, &message, share, publication.atomic, &mut publication.body) {
                return SharedDelivery::Settled(Outcome::Refused);
            }
        } else if let Some(held) = gate
            .and_then(|gate| self.hold_in_group(now, (group, share), publication, gate, HolderIn::AnyShard))
        {
            return held;
        }
        // The drop reason of QoS 0 is the full outbox, because QoS 0 waits in no queue.
        let at_most_once = publication.parts.qos == QoS::AtMostOnce;
        let cause = if at_most_once { DropReason::OutboxFull } else { cause };
        let wanted = self.core.sessions.rules().nobody().of(publication.parts.topic).wants_dead_letter(cause);
        let message = wanted.then(|| publication.message(&mut self.core.scratch.bytes).clone());
        // If there is a store, the dead letter is recorded in the open batch. The publisher's
        // acknowledgement waits for the commit of that batch.
        self.core.drop_of_group(share, cause, message, self.core.durability.is_on());
        SharedDelivery::Settled(Outcome::Refused)
    }

    /// Ends a message that no member may read. Drops the message if a session had it before.
    fn end_unreadable(&mut self, share: &str, publication: &mut Publication<'_>) -> SharedDelivery {
        if !publication.owed {
            return SharedDelivery::Settled(Outcome::Unmatched);
        }
        let message = publication.message(&mut self.core.scratch.bytes).clone();
        let stored = self.core.durability.is_on();
        self.core.drop_of_group(share, DropReason::NotAuthorized, Some(message), stored);
        SharedDelivery::Settled(Outcome::Refused)
    }

    /// Offers a message to a member of this shard.
    fn offer(
        &mut self,
        now: Instant,
        member: &Member,
        publication: &mut Publication<'_>,
        share: &Arc<Box<str>>,
    ) -> Outcome {
        self.offer_chosen(now, &chosen(member, publication), publication, share)
    }

    /// Offers a message to a member that this shard or a peer chose. A message that an ended
    /// session left is offered only if the member has room for it. A member that may not read the
    /// message refuses it.
    fn offer_chosen(
        &mut self,
        now: Instant,
        chosen: &Chosen,
        publication: &mut Publication<'_>,
        share: &Arc<Box<str>>,
    ) -> Outcome {
        if !self.core.may_read(chosen.session, publication.parts.topic) {
            return Outcome::Refused;
        }
        if publication.owed && !self.takes_owed(now, chosen.session, publication) {
            publication.reader = Some(self.core.here);
            return Outcome::Refused;
        }
        let ids = [chosen.subscription_id];
        let target = Target {
            session: chosen.session,
            qos: chosen.qos,
            retain_as_published: chosen.retain,
            ids: if chosen.subscription_id == 0 { &[] } else { &ids },
        };
        let outcome = self.core.deliver_shared(now, &target, publication, Some(share));
        if outcome == Outcome::Refused {
            publication.reader = Some(self.core.here);
        }
        outcome
    }

    /// Offers a message to the members of this shard in one round, in turn, within the bounds of
    /// the module. Returns the first `Taken`, or `Refused` if no member takes the message. Returns
    /// `Unmatched` if the group is gone.
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
        let mut regardless = if round == Round::Ready { 0 } else { OFFERED_REGARDLESS };
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
                    if publication.reader != Some(here)
                        && self.core.may_read(member.session, publication.parts.topic)
                    {
                        publication.reader = Some(here);
                    }
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

    /// Gives the turn of the group to the member at this place.
    fn set_turn_in_group(&mut self, group: GroupId, presence: Presence, place: usize) {
        if let Some(members) = self.routes.router.group_mut(group) {
            members.set_turn(presence, place);
        }
    }

    /// Returns true if a member of this shard is connected and has room in its outbox and its
    /// queue. Compares only the number of messages in the queue, and not their bytes.
    fn takes_more(&self, member: &Member) -> bool {
        let policy = &self.core.settings.session.send;
        let Some((_, session_entry)) = self.core.sessions.at(member.session.0) else { return false };
        session_entry
            .takes_more(session_entry.connection.and_then(|id| self.core.connections.get(id)), policy)
    }

    /// Returns true if the queue of a member of this shard has room for one more message. Compares
    /// only the number of messages, and not their bytes.
    fn has_room_in_queue(&self, member: &Member) -> bool {
        let policy = &self.core.settings.session.send;
        let session_entry = self.core.sessions.at(member.session.0).map(|(_, session_entry)| session_entry);
        session_entry.is_some_and(|r| r.has_place(policy))
    }

    /// Adds the message to the peer batch of another shard, for the chosen member or for a member
    /// of that shard's choice. If the publication is atomic, that shard becomes a participant of
    /// its transaction. If there is a `gate`, the other shard answers it later.
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
        let (owed, reader) = (publication.owed, publication.reader);
        let share = SharedMessage { message, filter, offered, owed, reader, chosen, transaction };
        peer.publish(Item::Share(share), size, gate);
        let mut full = ShardSet::EMPTY;
        if peer.is_full() {
            full.insert(shard);
        }
        SharedDelivery::Underway { full }
    }

    /// Returns the next member to which the message is offered. `refused` are the members that are
    /// left out. `round` advances when the members of a round are used up, and never returns to an
    /// earlier round for the same message. Each call looks at [`LOOKED_AT`] members at most in each
    /// round.
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
        // The session of a member in this shard may have ended before the member leaves the group.
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

    /// Takes in a shared message that a peer sent here. Offers the message to the chosen member
    /// first, then to other members of the group. If all members refused the message before
    /// ([`Offered::ToAll`]), a member of this shard holds it instead, or it waits here if an ended
    /// session left it. Drops a message that an ended
    /// session left and that has expired. `gate` is the peer's, and is answered if another shard or
    /// a holder decides the outcome.
    pub(crate) fn take_share(
        &mut self,
        now: Instant,
        share: &SharedMessage,
        publication: &mut Publication<'_>,
        gate: Gate,
    ) -> SharedDelivery {
        (publication.owed, publication.reader) = (share.owed, share.reader);
        // 5.0 [MQTT-3.3.2-5]: the message may expire on its way between two shards. Delivery to
        // this member has not begun, so the rule of [`Self::share_again`] holds here too.
        if share.owed && share.message.is_expired(now) {
            let (message, stored) = (Some(share.message.clone()), self.core.durability.is_on());
            self.core.drop_of_group(&share.filter, DropReason::Expired, message, stored);
            // `Refused` would say that the members of this shard have no room.
            return SharedDelivery::Settled(Outcome::Taken);
        }
        if matches!(share.offered, Offered::ToAll) {
            if share.owed {
                return self.take_share_to_keep(now, share, publication);
            }
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
                    // The session of the chosen member ended. A new session may have its slot and
                    // be a member too, and was not offered the message. So the address is taken off
                    // the list.
                    members.pop();
                }
            }
        }
        let gate = Some(gate).filter(|_| publication.parts.qos != QoS::AtMostOnce);
        self.share_by_name(now, &share.filter, publication, (offered, cause), gate)
    }

    /// Offers a message to another member of its group, because the session of a member ended
    /// before that session acknowledged the message. `stored` is true if the message was stored for
    /// that session. The batch that records the end of the old delivery then records the new owner
    /// too. `gate` is answered if another shard gets the message.
    // 5.0 [MQTT-4.8.2-5] forbids this for a QoS 2 delivery that was sent. The caller leaves such
    // deliveries out.
    pub(crate) fn share_again(
        &mut self,
        now: Instant,
        message: Message,
        share: &Arc<Box<str>>,
        stored: bool,
        gate: Option<Gate>,
    ) -> SharedDelivery {
        // 5.0 [MQTT-3.3.2-5]: delivery to the next member has not begun, so an expired message is
        // dropped, even if the ended session had received it.
        if message.is_expired(now) {
            self.core.drop_of_group(share, DropReason::Expired, Some(message), stored);
            return SharedDelivery::Settled(Outcome::Refused);
        }
        let mut publication = Publication::of(&message, None);
        (publication.atomic, publication.owed) = (stored, true);
        let nobody = (Offered::InTurn(Vec::new()), DropReason::SessionEnded);
        self.share_by_name(now, share, &mut publication, nobody, gate)
    }

    /// Does the same as [`Self::share_again`] at the end of a session, without a gate. If no member
    /// has room now, the message is kept until one has.
    pub(crate) fn share_again_or_keep(
        &mut self,
        now: Instant,
        message: Message,
        share: &Arc<Box<str>>,
        stored: bool,
    ) {
        let wanted = Wanted { share, topic: message.topic(), size: message.size() };
        let waits = !message.is_expired(now) && !self.may_offer(now, wanted, Peers::Freely);
        if !waits || !self.keep_owed(now, &message, share, stored, &mut None) {
            self.share_again(now, message, share, stored, None);
        }
    }

    /// Does the same as [`Self::share_to_next`], for the group with the full filter `share`.
    /// Returns `Unmatched` if the group is gone because its last member left, or if no member is
    /// eligible. A message that was owed to the group is then dropped, and the result is `Refused`.
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
        // Refused messages are counted already.
        if publication.owed && matches!(went, SharedDelivery::Settled(Outcome::Unmatched)) {
            let message = publication.message(&mut self.core.scratch.bytes).clone();
            self.core.drop_of_group(share, DropReason::SessionEnded, Some(message), publication.atomic);
            return SharedDelivery::Settled(Outcome::Refused);
        }
        went
    }

    /// Returns where members of a group may have room for a QoS 1 or 2 message, or `None` if there
    /// is no such group. Members of this shard that may not read the message do not count. Looks at
    /// [`LOOKED_AT`] members at most, and stops at the first member of this shard that has room. A
    /// group of more than [`LOOKED_AT`] members counts as one with room here.
    pub(crate) fn room_in_group(&mut self, now: Instant, wanted: Wanted<'_>) -> Option<GroupRoom> {
        let Wanted { share, topic, size } = wanted;
        let members = self.routes.router.group_of(share).and_then(|id| self.routes.router.group(id))?;
        let mut room = GroupRoom { here: members.len() > LOOKED_AT, ..GroupRoom::default() };
        for m in members.members().take(LOOKED_AT) {
            self.core.turn.charge(1);
            if m.shard != self.core.here {
                room.elsewhere = true;
                continue;
            }
            // The session of a member may have ended before the member leaves the group.
            let Core { sessions, access, settings, .. } = &mut *self.core;
            let policy = &settings.session.send;
            let Some((_, session_entry)) = sessions.at_mut(m.session.0) else { continue };
            if access.are_on() && !session_entry.may_read(access, topic) {
                room.denied_here = true;
                continue;
            }
            room.members_here = true;
            if session_entry.has_room_for_owed(now, size, policy) {
                room.here = true;
                break;
            }
        }
        Some(room)
    }

    /// Returns true if a member of this shard has room for a message that an ended session left.
    /// Such a message never pushes other messages out of the member's queue. QoS 0 has no queue, so
    /// the result is true.
    fn takes_owed(&mut self, now: Instant, member: SessionSlot, publication: &mut Publication<'_>) -> bool {
        let size = publication.message(&mut self.core.scratch.bytes).size();
        let policy = &self.core.settings.session.send;
        let session_entry = self.core.sessions.at(member.0).map(|(_, session_entry)| session_entry);
        publication.parts.qos == QoS::AtMostOnce
            || session_entry.is_some_and(|r| r.has_room_for_owed(now, size, policy))
    }
}

/// Shared messages that are held under the queue policy `hold`.
impl Routing<'_> {
    /// Lets a member of a group hold a message that every member refused. The queue policy must be
    /// `hold`, and the message must be above QoS 0 and no larger than the largest queue. Looks at
    /// [`HOLDERS_LOOKED_AT`] members of this shard at most. Those that hold the fewest messages are
    /// tried first. A member that has room by now takes the message instead. If no member of this
    /// shard takes or holds the message, it is sent to another shard, if `holder_in` allows that.
    /// Returns `None` if no member can hold the message.
    pub(crate) fn hold_in_group(
        &mut self,
        now: Instant,
        (group, share): (GroupId, &Arc<Box<str>>),
        publication: &mut Publication<'_>,
        gate: Gate,
        holder_in: HolderIn,
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
        let elsewhere =
            members().find(|m| m.shard != self.core.here && holder_in == HolderIn::AnyShard).copied();
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
        let reader = publication.reader.filter(|shard| *shard != self.core.here);
        let reader = reader.filter(|_| self.core.access.are_on() && holder_in == HolderIn::AnyShard);
        let to = (reader.or(elsewhere.map(|member| member.shard))?, None);
        Some(self.send_share(to, Arc::clone(share), Offered::ToAll, publication, Some(gate)))
    }

    /// Keeps a message that an ended session left and that all members refused. A peer without a
    /// member that may read the message sent it here. Drops the message if no queue can ever take
    /// it.
    fn take_share_to_keep(
        &mut self,
        now: Instant,
        share: &SharedMessage,
        publication: &mut Publication<'_>,
    ) -> SharedDelivery {
        let SharedMessage { message, filter, .. } = share;
        if self.keep_owed(now, message, filter, publication.atomic, &mut publication.body) {
            // A member may have reported room while the message was on its way.
            self.routes.orphaned_queues.nudge();
        } else {
            let (message, stored) = (Some(message.clone()), self.core.durability.is_on());
            self.core.drop_of_group(filter, DropReason::QueueRefused, message, stored);
        }
        SharedDelivery::Settled(Outcome::Refused)
    }

    /// Lets a member of this shard hold a shared message for which a peer found no holder. Drops
    /// the message if no member of this shard can hold it.
    pub(crate) fn take_share_to_hold(
        &mut self,
        now: Instant,
        share: &SharedMessage,
        publication: &mut Publication<'_>,
        gate: Gate,
    ) -> SharedDelivery {
        let group = self.routes.router.group_of(&share.filter);
        let held = group.and_then(|group| {
            self.hold_in_group(now, (group, &share.filter), publication, gate, HolderIn::ThisShard)
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

/// Returns the presence of the members to which a round offers the message.
fn presence_in(round: Round) -> Presence {
    if round == Round::Offline { Presence::Offline } else { Presence::Online }
}

/// Returns the values that the member's own shard needs to deliver this publication.
fn chosen(member: &Member, publication: &Publication<'_>) -> Chosen {
    Chosen {
        session: member.session,
        generation: member.generation,
        qos: publication.parts.qos.min(member.options.qos()),
        retain: publication.parts.retain && member.options.retain_as_published(),
        subscription_id: member.subscription_id,
    }
}
