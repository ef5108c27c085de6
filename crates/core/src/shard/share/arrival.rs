//! Shared messages that a peer sent to this shard.

use crate::durability::publication::Publication;
use crate::mqtt::outcome::Outcome;
use crate::mqtt::packet::QoS;
use crate::peers::peer_batch::{Offered, ReportTo, SharedMessage};
use crate::session::drops::{DropReason, Dropped};
use crate::shard::core::Core;
use crate::shard::share::SharedDelivery;
use crate::shard::share::offer::offer_chosen;
use crate::shard::subscriptions::routes::Routes;
use crate::time::Instant;

/// Shared messages that a peer sent to this shard.
impl Routes {
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
        gate: ReportTo,
        core: &mut Core,
    ) -> SharedDelivery {
        (publication.is_orphaned, publication.readers) = (share.is_orphaned, share.readers);
        // 5.0 [MQTT-3.3.2-5]: the message may expire on its way between two shards. Delivery to
        // this member has not begun, so the rule of [`Self::share_again`] holds here too.
        if share.is_orphaned && share.message.is_expired(now) {
            let lost = Dropped::unsent(DropReason::Expired, share.message.clone());
            core.drop_of_group(&share.filter, lost, core.durability.is_on());
            // `Refused` would say that the members of this shard have no room.
            return SharedDelivery::Settled(Outcome::Taken);
        }
        if matches!(share.offered, Offered::ToAll) {
            if share.is_orphaned {
                return self.take_share_to_keep(now, share, publication, core);
            }
            return self.take_share_to_hold(now, share, publication, gate, core);
        }
        let mut offered = share.offered.clone();
        let mut cause = DropReason::QueueRefused;
        if let Some(chosen) = &share.chosen {
            let current = core.sessions.at(chosen.session.0).map(|(id, _)| id.generation);
            if current == Some(chosen.generation) {
                let outcome = if core.permits_read(chosen.session, publication.outgoing.parts.topic) {
                    offer_chosen(now, chosen, publication, &share.filter, core)
                } else {
                    Outcome::Refused
                };
                match outcome {
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
        let gate = Some(gate).filter(|_| publication.outgoing.parts.qos != QoS::AtMostOnce);
        self.share_by_name(now, &share.filter, publication, (offered, cause), gate, core)
    }
}
