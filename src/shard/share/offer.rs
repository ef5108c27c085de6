//! The choice of a member, and the offer of a message to it.

use crate::mqtt::outcome::Outcome;
use crate::mqtt::packet::QoS;
use crate::routing::shared_group::{Member, MemberAddress, Presence};
use crate::routing::subscription_tree::{GroupId, SessionSlot};
use crate::shard::core::Core;
use crate::shard::exchange::outbound::{Chosen, Readers, Round};
use crate::shard::publication::Publication;
use crate::shard::publication::Target;
use crate::shard::route::Routing;
use crate::shard::share::{DENIED, LOOKED_AT, chosen, presence_in};
use crate::time::Instant;
use std::sync::Arc;

/// Maximum number of members without apparent room to which a shard offers a message in one round.
/// Such a member may still take the message, because another message in its queue may have expired
/// or may be dropped in favour of this one.
const OFFERED_REGARDLESS: usize = 64;

impl Routing<'_> {
    /// Returns the next member to which the message is offered. `refused` are the members that are
    /// left out. `round` advances when the members of a round are used up, and never returns to an
    /// earlier round for the same message. Each call looks at [`LOOKED_AT`] members at most in each
    /// round.
    pub(super) fn choose(
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

    /// Offers a message to a member of this shard.
    pub(super) fn offer(
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
    pub(super) fn offer_chosen(
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
            publication.readers = Readers::In(self.core.here);
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
            publication.readers = Readers::In(self.core.here);
        }
        outcome
    }

    /// Offers a message to the members of this shard in one round, in turn, within the bounds of
    /// the module. Returns the first `Taken`, or `Refused` if no member takes the message. Returns
    /// `Unmatched` if the group is gone.
    pub(super) fn offer_here(
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
        let (mut next, mut readers, mut denied) = (turn, 0, 0);
        for place in (turn..own.end).chain(own.start..turn) {
            if readers == LOOKED_AT || denied == DENIED {
                publication.readers.note_unasked();
                break;
            }
            next = if place + 1 == own.end { own.start } else { place + 1 };
            self.core.turn.charge(1);
            let Some(member) = self.routes.router.group(group).and_then(|g| g.at(presence, place)) else {
                break;
            };
            if !self.core.may_read(member.session, publication.parts.topic) {
                denied += 1;
                continue;
            }
            readers += 1;
            let has_room = match round {
                Round::Ready => self.takes_more(&member),
                _ => self.has_room_in_queue(&member),
            };
            if !has_room {
                if regardless == 0 {
                    publication.readers = Readers::In(here);
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
