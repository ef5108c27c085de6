//! Messages of the broker's own: states, events, dead letters, last-disconnect records.

use crate::mqtt::message::Parts;
use crate::mqtt::packet::QoS;
use crate::session::drops::{DropReason, Dropped};
use crate::session::trace_steps::{StepKind, cut};
use crate::shard::Shard;
use crate::shard::admission::Change;
use crate::shard::delivery::own_publications::OwnProgress;
use crate::shard::delivery::publication::Publication;
use crate::shard::features::dead_letters::DeadLetter;
use crate::shard::features::letter_keeping;
use crate::time::Instant;

impl Shard {
    /// Publishes a retained message of the broker's own, at QoS 0.
    pub fn publish_own(&mut self, now: Instant, topic: &str, payload: &[u8]) {
        let mut publication =
            Publication::new(Parts { retain: true, ..own_parts(topic, payload) }, None, self.core.here);
        self.routes.retain(now, &mut publication, None, None, &mut self.core);
        self.fans.route_own(now, &mut publication, None, &mut self.routes, &mut self.core);
    }

    /// Publishes a message of the broker's own, not retained. At QoS 0 no receiver can be overdue
    /// with it, so an event about a client never causes another event.
    pub fn announce(&mut self, now: Instant, topic: &str, payload: &[u8]) {
        let mut publication = Publication::new(own_parts(topic, payload), None, self.core.here);
        self.fans.route_own(now, &mut publication, None, &mut self.routes, &mut self.core);
    }

    /// Publishes dead letters before the batch of this turn is sealed: as many as the turn has
    /// steps for, and at least one. If some are left, the batch is not sealed in this turn. A
    /// dropped dead letter becomes no further dead letter.
    pub(crate) fn publish_dead_letters(&mut self, now: Instant) {
        while let Some(dead_letter) = self.core.dead_letters.pop() {
            if !self.publish_dead_letter(now, &dead_letter) {
                return self.core.dead_letters.put_back(dead_letter);
            }
            if self.core.turn.is_over() {
                return;
            }
        }
    }

    /// Publishes a dead letter. Returns false, and publishes nothing, if the dead letter needs
    /// several turns while another publication takes several turns.
    fn publish_dead_letter(&mut self, now: Instant, dead_letter: &DeadLetter) -> bool {
        let qos = dead_letter.message.header().qos.max(QoS::AtLeastOnce);
        self.core.turn.spend(1);
        if u16::try_from(dead_letter.topic.len()).is_err() {
            let lost = Dropped::new(DropReason::TooLarge, None).on(&dead_letter.topic);
            self.core.drop_of_nobody(&lost);
            return true;
        }
        let forwarded = dead_letter.properties(self.core.dead_letters.wall());
        // The topic and the properties are longer than those of the dropped message.
        let bytes = dead_letter.topic.len() + forwarded.len() + dead_letter.message.payload().len();
        // A message was parked only if there was room, and it would be lost here.
        if dead_letter.cause != DropReason::Parked
            && let Err(want) = self.core.admits(Change::Publish { qos, bytes, frees: 0 })
        {
            self.core.drop_of_nobody(&Dropped::new(want.cause(), None).on(&dead_letter.topic));
            return true;
        }
        let parts = Parts {
            qos,
            retain: false,
            expires: Instant::NEVER,
            topic: &dead_letter.topic,
            forwarded: &forwarded,
            payload: dead_letter.message.payload(),
        };
        let mut publication = Publication::new(parts, None, self.core.here);
        // The end of the dropped message is committed together with the deliveries of the dead
        // letter.
        publication.atomic = dead_letter.stored;
        publication.audit = dead_letter.message.audit();
        if publication.audit.is_some() {
            let topic = String::from(cut(&dead_letter.topic));
            self.core.recorder().add(now, StepKind::DeadLetter, publication.audit, topic);
        }
        let progress = self.fans.route_own_now(now, &mut publication, &mut self.routes, &mut self.core);
        let is_published = progress != OwnProgress::Waits;
        if is_published {
            self.core.counters.dead_letters.add(dead_letter.cause, 1);
            letter_keeping::keep(now, dead_letter, &mut self.core);
        }
        is_published
    }

    /// Publishes a retained last-disconnect record. Removes the oldest record if there are then
    /// more than the maximum. Does nothing if the memory budget is exceeded.
    pub(crate) fn keep_last_disconnect(&mut self, now: Instant, topic: &str, text: &str) {
        if self.core.settings.last_disconnects == 0 || self.core.admits(Change::Record).is_err() {
            return;
        }
        self.publish_own(now, topic, text.as_bytes());
        let oldest =
            self.core.shared.totals.last_disconnects().keep(topic, self.core.settings.last_disconnects);
        if let Some(oldest) = oldest {
            self.core.shared.retained().remove(&oldest);
        }
    }
}

/// Returns a message of the broker's own at QoS 0, not retained, and without a Message Expiry
/// Interval.
pub(in crate::shard) fn own_parts<'a>(topic: &'a str, payload: &'a [u8]) -> Parts<'a> {
    let (qos, expires) = (QoS::AtMostOnce, Instant::NEVER);
    Parts { qos, retain: false, expires, topic, forwarded: &[], payload }
}
