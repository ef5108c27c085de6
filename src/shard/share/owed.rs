//! Messages that an ended session owes to its group.

use crate::mqtt::message::Message;
use crate::mqtt::outcome::Outcome;
use crate::routing::shared_group::Presence;
use crate::session::drops::DropReason;
use crate::shard::core::Core;
use crate::shard::exchange::outbound::{Gate, Offered, SharedMessage};
use crate::shard::features::orphaned_queues::{GroupRoom, Peers, Wanted};
use crate::shard::publication::Publication;
use crate::shard::route::Routing;
use crate::shard::share::DENIED;
use crate::shard::share::{LOOKED_AT, SharedDelivery};
use crate::time::Instant;
use std::sync::Arc;

impl Routing<'_> {
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
        let mut publication = Publication::of(&message, None);
        publication.atomic = stored;
        if !waits || !self.keep_owed(now, &message, share, &mut publication) {
            self.share_again(now, message, share, stored, None);
        }
    }

    /// Returns where members of a group may have room for a QoS 1 or 2 message, or `None` if there
    /// is no such group. Members of this shard that may not read the message do not count. Looks at
    /// [`LOOKED_AT`] members at most that may read the message, and at [`DENIED`] that may not.
    /// Stops at the first member of this shard that has room.
    pub(crate) fn room_in_group(&mut self, now: Instant, wanted: Wanted<'_>) -> Option<GroupRoom> {
        let Wanted { share, topic, size } = wanted;
        let group = self.routes.router.group_of(share).and_then(|id| self.routes.router.group(id))?;
        let Core { sessions, access, settings, turn, here, .. } = &mut *self.core;
        let own = [Presence::Online, Presence::Offline]
            .map(|presence| (presence, group.of_shard(presence, *here).0));
        let elsewhere = group.len() > own.iter().map(|(_, places)| places.len()).sum::<usize>();
        let mut room = GroupRoom { elsewhere, ..GroupRoom::default() };
        let (mut readers, mut denied) = (0, 0);
        for (presence, places) in own {
            for member in places.filter_map(|place| group.at(presence, place)) {
                if readers == LOOKED_AT || denied == DENIED {
                    room.is_unsure = true;
                    return Some(room);
                }
                turn.charge(1);
                // The session of a member may have ended before the member leaves the group.
                let Some((_, session_entry)) = sessions.at_mut(member.session.0) else { continue };
                if access.are_on() && !session_entry.may_read(access, topic) {
                    (room.denied_here, denied) = (true, denied + 1);
                    continue;
                }
                (room.members_here, readers) = (true, readers + 1);
                if session_entry.has_room_for_owed(now, size, &settings.session.send) {
                    room.here = true;
                    return Some(room);
                }
            }
        }
        Some(room)
    }

    /// Keeps a message that an ended session left and that all members refused. A peer without a
    /// member that may read the message sent it here. Drops the message if no queue can ever take
    /// it.
    pub(super) fn take_share_to_keep(
        &mut self,
        now: Instant,
        share: &SharedMessage,
        publication: &mut Publication<'_>,
    ) -> SharedDelivery {
        let SharedMessage { message, filter, .. } = share;
        if self.keep_owed(now, message, filter, publication) {
            // A member may have reported room while the message was on its way. In a group that is
            // too large to look at whole, the message would be offered and refused again and again.
            // There the next report of room leads to an offer, or the next housekeeping.
            let wanted = Wanted { share: filter, topic: message.topic(), size: message.size() };
            if self.room_in_group(now, wanted).is_none_or(|room| !room.is_unsure) {
                self.routes.orphaned_queues.nudge();
            }
        } else {
            let (message, stored) = (Some(message.clone()), self.core.durability.is_on());
            self.core.drop_of_group(filter, DropReason::QueueRefused, message, stored);
        }
        SharedDelivery::Settled(Outcome::Refused)
    }
}
