//! Messages that an ended session owes to its group.

use crate::durability::publication::Publication;
use crate::mqtt::message::Message;
use crate::mqtt::outcome::Outcome;
use crate::mqtt::packet::QoS;
use crate::peers::peer_batch::{Offered, Readers, ReportTo, SharedMessage};
use crate::session::drops::{DropReason, Dropped};
use crate::shard::core::Core;
use crate::shard::share::offer::{GroupRoom, SharedDelivery, WantedRoom};
use crate::shard::subscriptions::routes::Routes;
use crate::time::Instant;
use std::sync::Arc;

/// Messages that an ended session owes to its group.
impl Routes {
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
        gate: Option<ReportTo>,
        core: &mut Core,
    ) -> SharedDelivery {
        // 5.0 [MQTT-3.3.2-5]: delivery to the next member has not begun, so an expired message is
        // dropped, even if the ended session had received it.
        if message.is_expired(now) {
            core.drop_of_group(share, Dropped::unsent(DropReason::Expired, message), stored);
            return SharedDelivery::Settled(Outcome::Refused);
        }
        let mut publication = Publication::of(&message, None);
        (publication.atomic, publication.is_orphaned) = (stored, true);
        let nobody = (Offered::InTurn(Vec::new()), DropReason::SessionEnded);
        self.share_by_name(now, share, &mut publication, nobody, gate, core)
    }

    /// As [`Self::share_again`], at the end of a session, without a gate. If no member has room
    /// now, the message is kept until one has.
    pub(crate) fn share_again_or_keep(
        &mut self,
        now: Instant,
        message: Message,
        share: &Arc<Box<str>>,
        stored: bool,
        core: &mut Core,
    ) {
        if let Some(room) = self.must_wait(now, &message, share, core) {
            let mut publication = Publication::of(&message, None);
            publication.atomic = stored;
            if self.keep_orphaned(now, &message, share, &mut publication, Some(room), core) {
                return;
            }
        }
        self.share_again(now, message, share, stored, None, core);
    }

    /// Keeps a message until a member of its group takes it, because no member has room now. If the
    /// publication is atomic, the message was in the store and stays there: the batch or part that
    /// records the end of its old entry records the new entry too. The publication has the stored
    /// body that all entries of the message in this shard share. A missing body is made. `room` is
    /// the room that the caller has found in the group, if it has looked. Returns false if no queue
    /// can ever take the message, because it is too large or QoS 0. The caller then drops the
    /// message.
    pub(crate) fn keep_orphaned(
        &mut self,
        now: Instant,
        message: &Message,
        share: &Arc<Box<str>>,
        publication: &mut Publication<'_>,
        room: Option<GroupRoom>,
        core: &mut Core,
    ) -> bool {
        let (size, qos) = (message.size(), message.header().qos);
        let most = core.durability.largest_queue_bytes(&core.settings.session.send);
        if qos == QoS::AtMostOnce || size > most {
            return false;
        }
        // A member of this shard that refused the message reports when it has room. If the group
        // has no member in this shard, no report would come. The queue is then looked at when the
        // turn ends. The member may have left since it refused, so it is looked for again; only in
        // a group that is too large for that, the refusal counts. There the next housekeeping
        // offers the message to other shards.
        let wanted = WantedRoom { share, topic: message.topic(), size };
        let refused_here = publication.readers == Readers::In(core.peers.here());
        let has_member_here = room
            .or_else(|| self.room_in_group(now, wanted, core))
            .is_some_and(|room| room.members_here || (room.is_unsure && refused_here));
        self.orphaned_queues.keep(message, share, publication, core);
        if !has_member_here {
            self.orphaned_queues.nudge();
        }
        true
    }

    /// Keeps a message that an ended session left and that all members refused. A peer without a
    /// member that may read the message sent it here. Drops the message if no queue can ever take
    /// it.
    pub(super) fn take_share_to_keep(
        &mut self,
        now: Instant,
        share: &SharedMessage,
        publication: &mut Publication<'_>,
        core: &mut Core,
    ) -> SharedDelivery {
        let SharedMessage { message, filter, .. } = share;
        let wanted = WantedRoom { share: filter, topic: message.topic(), size: message.size() };
        let room = self.room_in_group(now, wanted, core);
        if self.keep_orphaned(now, message, filter, publication, room, core) {
            // A member may have reported room while the message was on its way. In a group that is
            // too large to look at whole, the message would be offered and refused again and again.
            // There the next report of room leads to an offer, or the next housekeeping.
            if room.is_none_or(|room| !room.is_unsure) {
                self.orphaned_queues.nudge();
            }
        } else {
            let lost = Dropped::unsent(DropReason::QueueRefused, message.clone());
            core.drop_of_group(filter, lost, core.durability.is_on());
        }
        SharedDelivery::Settled(Outcome::Refused)
    }
}
