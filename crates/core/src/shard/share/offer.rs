//! The choice of a member, and the offer of a message to it.

use crate::durability::publication::Publication;
use crate::mqtt::message::Message;
use crate::mqtt::outcome::Outcome;
use crate::mqtt::packet::QoS;
use crate::peers::peer_batch::{Chosen, Item, Offered, Readers, ReportTo, Round, SharedMessage};
use crate::routing::shared_group::{Member, MemberAddress, Presence};
use crate::routing::subscription_tree::{GroupId, SessionSlot, ShardId, ShardSet};
use crate::session::policy::SendPolicy;
use crate::shard::clients::connections::Connections;
use crate::shard::clients::sessions::Sessions;
use crate::shard::core::Core;
use crate::shard::delivery::target::Target;
use crate::shard::subscriptions::routes::Routes;
use crate::time::Instant;
use std::sync::Arc;

/// Maximum number of members tried in one round of a call. Where a call checks who may read the
/// message, only members with the permission count, and [`DENIED`] bounds the others. Later calls
/// for the same message may try as many again.
pub(super) const LOOKED_AT: usize = 2_048;

/// Maximum number of members that one round passes over in this shard because they may not read the
/// message. A check of a rule takes 20 to 400 ns.
pub(super) const DENIED: usize = 8_192;

/// Maximum number of members without apparent room to which a shard offers a message in one round
/// after the first. In the first round, [`Round::Ready`], there is no such offer. Such a member may
/// still take the message, because another message in its queue may have expired or may be dropped
/// in favour of this one.
const OFFERED_REGARDLESS: usize = 64;

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

/// The message and the group for which room is looked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WantedRoom<'a> {
    /// The full filter, `$share/...`.
    pub share: &'a str,
    /// The Topic Name of the message.
    pub topic: &'a str,
    /// The size of the message in bytes.
    pub size: usize,
}

/// The offers that an orphaned queue makes to members in other shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerOffers {
    /// Any number of messages, because no other shard refused the last ones.
    Freely,
    /// One message, to find out if another shard has room.
    Once,
    /// None until the next housekeeping, until a member leaves, or until the rules of the ACL
    /// change, because another shard refused a message or has not answered. A group without members
    /// in this shard is an exception (see [`Routes::may_offer`]).
    No,
}

/// The room for one message in a group, as far as this shard knows it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GroupRoom {
    /// True if a member of this shard that may read the message has room.
    pub here: bool,
    /// True if this shard has too many members to look at all of them.
    pub is_unsure: bool,
    /// True if some of the members that were looked at are in this shard and may read the message.
    pub members_here: bool,
    /// True if some of the members that were looked at are in this shard and may not read the
    /// message.
    pub denied_here: bool,
    /// True if some members are in other shards. Their room is not known.
    pub elsewhere: bool,
}

impl GroupRoom {
    /// Returns the result of [`Routes::may_offer`] for a group with this room.
    fn admits_offer(self, peers: PeerOffers) -> bool {
        let GroupRoom { here, is_unsure, members_here, denied_here, elsewhere } = self;
        // If the group has no member in this shard that may read the message, this shard never
        // learns of room. A shard with such a member does, so the message is sent there even after
        // a refusal.
        let may =
            if elsewhere { peers != PeerOffers::No || !members_here } else { !members_here && denied_here };
        here || is_unsure || may
    }
}

/// The choice of a member, and the offer of a message to it.
impl Routes {
    /// Returns the next member to which the message is offered. `refused` are the members that are
    /// left out. `round` advances when the members of a round are used up, and never returns to an
    /// earlier round for the same message. Each call looks at [`LOOKED_AT`] members at most in each
    /// round. Returns `None` if the group is gone, or if no member is left. At QoS 0 offline
    /// members are not chosen.
    pub(super) fn choose(
        &mut self,
        group: GroupId,
        qos: QoS,
        refused: &[MemberAddress],
        round: &mut Round,
        core: &mut Core,
    ) -> Option<Member> {
        let here = core.peers.here();
        let Core { sessions, connections, settings, turn, .. } = core;
        let router = &mut self.router;
        let policy = &settings.session.send;
        let (members, caught_up) = router.group_caught_up(group)?;
        turn.spend(caught_up as u32);
        let unasked = |m: &Member| !refused.contains(&m.address());
        // The session of a member in this shard may have ended before the member leaves the group.
        let untried = |m: &Member| unasked(m) && (m.shard != here || sessions.at(m.session.0).is_some());
        let takes_more = |m: &Member| {
            turn.spend(1);
            if !unasked(m) {
                return false;
            }
            if m.shard != here {
                return true;
            }
            takes_more(m, sessions, connections, policy)
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

    /// Offers a message to the members of this shard in one round, in turn, within [`LOOKED_AT`],
    /// [`DENIED`] and [`OFFERED_REGARDLESS`]. Stops at the first member that takes it. Returns
    /// `Taken`, `Refused` if no member takes the message, or `Unmatched` if the group is gone.
    /// Notes in `publication` who may read the message.
    pub(super) fn offer_here(
        &mut self,
        now: Instant,
        group: GroupId,
        round: Round,
        publication: &mut Publication<'_>,
        share: &Arc<Box<str>>,
        core: &mut Core,
    ) -> Outcome {
        let (presence, here) = (presence_in(round), core.peers.here());
        // The last member has left the group.
        let Some(members) = self.router.group_mut(group) else { return Outcome::Unmatched };
        let (own, turn) = members.of_shard(presence, here);
        let mut regardless = if round == Round::Ready { 0 } else { OFFERED_REGARDLESS };
        let (mut next, mut readers, mut denied) = (turn, 0, 0);
        for place in (turn..own.end).chain(own.start..turn) {
            if readers == LOOKED_AT || denied == DENIED {
                publication.readers.note_unasked();
                break;
            }
            next = if place + 1 == own.end { own.start } else { place + 1 };
            core.turn.spend(1);
            let Some(member) = self.router.group(group).and_then(|g| g.at(presence, place)) else {
                break;
            };
            if !core.may_read(member.session, publication.outgoing.parts.topic) {
                denied += 1;
                continue;
            }
            readers += 1;
            let has_room = match round {
                Round::Ready => {
                    let policy = &core.settings.session.send;
                    takes_more(&member, &core.sessions, &core.connections, policy)
                }
                _ => has_room_in_queue(&member, core),
            };
            if !has_room {
                if regardless == 0 {
                    publication.readers = Readers::In(here);
                    continue;
                }
                regardless -= 1;
            }
            if offer(now, &member, publication, share, core) == Outcome::Taken {
                self.set_turn_in_group(group, presence, next);
                return Outcome::Taken;
            }
        }
        self.set_turn_in_group(group, presence, next);
        Outcome::Refused
    }

    /// Gives the turn of the group to the member at this place.
    fn set_turn_in_group(&mut self, group: GroupId, presence: Presence, place: usize) {
        if let Some(members) = self.router.group_mut(group) {
            members.set_turn(presence, place);
        }
    }

    /// Returns where members of a group may have room for a QoS 1 or 2 message, or `None` if there
    /// is no such group. Members of this shard that may not read the message do not count. Looks at
    /// [`LOOKED_AT`] members at most that may read the message, and at [`DENIED`] that may not.
    /// Stops at the first member of this shard that has room.
    pub(crate) fn room_in_group(
        &mut self,
        now: Instant,
        wanted: WantedRoom<'_>,
        core: &mut Core,
    ) -> Option<GroupRoom> {
        let WantedRoom { share, topic, size } = wanted;
        let group = self.router.group_of(share).and_then(|id| self.router.group(id))?;
        let here = core.peers.here();
        let Core { sessions, access, settings, turn, .. } = core;
        let own = [Presence::Online, Presence::Offline]
            .map(|presence| (presence, group.of_shard(presence, here).0));
        let elsewhere = group.len() > own.iter().map(|(_, places)| places.len()).sum::<usize>();
        let mut room = GroupRoom { elsewhere, ..GroupRoom::default() };
        let (mut readers, mut denied) = (0, 0);
        for (presence, places) in own {
            for member in places.filter_map(|place| group.at(presence, place)) {
                if readers == LOOKED_AT || denied == DENIED {
                    room.is_unsure = true;
                    return Some(room);
                }
                turn.spend(1);
                // The session of a member may have ended before the member leaves the group.
                let Some((_, session_entry)) = sessions.at_mut(member.session.0) else { continue };
                if access.are_on() && !session_entry.may_read(access, topic, turn) {
                    (room.denied_here, denied) = (true, denied + 1);
                    continue;
                }
                (room.members_here, readers) = (true, readers + 1);
                if session_entry.has_room_for_orphaned(now, size, &settings.session.send) {
                    room.here = true;
                    return Some(room);
                }
            }
        }
        Some(room)
    }

    /// Returns the room in the group if the message must wait: the group has no member in another
    /// shard, and no member of this shard has room ([`Self::may_offer`] with
    /// [`PeerOffers::Freely`]). An expired message does not wait, nor does one that is too large
    /// for every queue.
    pub(crate) fn must_wait(
        &mut self,
        now: Instant,
        message: &Message,
        share: &str,
        core: &mut Core,
    ) -> Option<GroupRoom> {
        let size = message.size();
        let most = core.durability.largest_queue_bytes(&core.settings.session.send);
        if size > most || message.is_expired(now) {
            return None;
        }
        let room = self.room_in_group(now, WantedRoom { share, topic: message.topic(), size }, core)?;
        (!room.admits_offer(PeerOffers::Freely)).then_some(room)
    }

    /// Returns true if a shared message may be offered: a member of this shard has room, or a
    /// member in another shard may have room and `peers` allows the offer. Also true if this shard
    /// has too many members to look at, or if the group is gone or no member may read the message,
    /// because there is nothing to wait for. With [`PeerOffers::No`], too, the message may go to
    /// another shard if no member of this shard may read it: this shard would never learn of room.
    pub(crate) fn may_offer(
        &mut self,
        now: Instant,
        wanted: WantedRoom<'_>,
        peers: PeerOffers,
        core: &mut Core,
    ) -> bool {
        self.room_in_group(now, wanted, core).is_none_or(|room| room.admits_offer(peers))
    }
}

/// Offers a message to a member of this shard.
pub(super) fn offer(
    now: Instant,
    member: &Member,
    publication: &mut Publication<'_>,
    share: &Arc<Box<str>>,
    core: &mut Core,
) -> Outcome {
    offer_chosen(now, &chosen(member, publication), publication, share, core)
}

/// Offers a message to a member that this shard or a peer chose. A message that an ended
/// session left is offered only if the member has room for it. A member that may not read the
/// message refuses it.
pub(super) fn offer_chosen(
    now: Instant,
    chosen: &Chosen,
    publication: &mut Publication<'_>,
    share: &Arc<Box<str>>,
    core: &mut Core,
) -> Outcome {
    if !core.may_read(chosen.session, publication.outgoing.parts.topic) {
        return Outcome::Refused;
    }
    if publication.is_orphaned && !takes_orphaned(now, chosen.session, publication, core) {
        publication.readers = Readers::In(core.peers.here());
        return Outcome::Refused;
    }
    let outcome = core.deliver(now, &Target::member(chosen, share), publication);
    if outcome == Outcome::Refused {
        publication.readers = Readers::In(core.peers.here());
    }
    outcome
}

/// Adds the message to the peer batch of another shard, for the chosen member or for a member
/// of that shard's choice. If the publication is atomic, that shard becomes a participant of
/// its transaction. If there is a `gate`, the other shard answers it later.
pub(super) fn send_share(
    (shard, chosen): (ShardId, Option<Chosen>),
    filter: Arc<Box<str>>,
    offered: Offered,
    publication: &mut Publication<'_>,
    gate: Option<ReportTo>,
    core: &mut Core,
) -> SharedDelivery {
    let transaction = core.durability.next_participant(publication);
    let message = publication.outgoing.message(&mut core.scratch.sending.bytes).clone();
    let size = message.size();
    let Some(peer) = core.peers.peer(shard) else {
        return SharedDelivery::Settled(Outcome::Refused);
    };
    let (is_orphaned, readers) = (publication.is_orphaned, publication.readers);
    let share = SharedMessage { message, filter, offered, is_orphaned, readers, chosen, transaction };
    peer.publish(Item::Share(share), size, gate);
    let mut full = ShardSet::EMPTY;
    if peer.is_full() {
        full.insert(shard);
    }
    SharedDelivery::Underway { full }
}

/// Returns the presence of the members to which a round offers the message.
pub(super) fn presence_in(round: Round) -> Presence {
    if round == Round::Offline { Presence::Offline } else { Presence::Online }
}

/// Returns the values that the member's own shard needs to deliver this publication.
pub(super) fn chosen(member: &Member, publication: &Publication<'_>) -> Chosen {
    Chosen {
        session: member.session,
        generation: member.generation,
        qos: publication.outgoing.parts.qos.min(member.options.qos()),
        retain: publication.outgoing.parts.retain && member.options.retain_as_published(),
        subscription_id: member.subscription_id,
    }
}

/// Returns true if a member of this shard is connected and has room in its outbox and its
/// queue. Compares only the number of messages in the queue, and not their bytes.
fn takes_more(member: &Member, sessions: &Sessions, connections: &Connections, policy: &SendPolicy) -> bool {
    sessions.at(member.session.0).is_some_and(|(_, entry)| {
        entry.takes_more(entry.connection.and_then(|id| connections.get(id)), policy)
    })
}

/// Returns true if the queue of a member of this shard has room for one more message. Compares
/// only the number of messages, and not their bytes.
fn has_room_in_queue(member: &Member, core: &Core) -> bool {
    let policy = &core.settings.session.send;
    let session_entry = core.sessions.at(member.session.0).map(|(_, session_entry)| session_entry);
    session_entry.is_some_and(|r| r.has_place(policy))
}

/// Returns true if a member of this shard has room for a message that an ended session left.
/// Such a message never pushes other messages out of the member's queue. QoS 0 has no queue, so
/// the result is true.
fn takes_orphaned(
    now: Instant,
    member: SessionSlot,
    publication: &mut Publication<'_>,
    core: &mut Core,
) -> bool {
    let size = publication.outgoing.message(&mut core.scratch.sending.bytes).size();
    let policy = &core.settings.session.send;
    let session_entry = core.sessions.at(member.0).map(|(_, session_entry)| session_entry);
    publication.outgoing.parts.qos == QoS::AtMostOnce
        || session_entry.is_some_and(|r| r.has_room_for_orphaned(now, size, policy))
}
