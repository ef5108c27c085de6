//! Messages of the broker's own: states, events, dead letters, last-disconnect records.

use crate::durability::publication::Publication;
use crate::letters::dead_letters::DeadLetter;
use crate::mqtt::message::Parts;
use crate::mqtt::packet::QoS;
use crate::session::drops::{DropReason, Dropped};
use crate::session::trace_steps::{StepKind, cut};
use crate::shard::Shard;
use crate::shard::admission::Change;
use crate::shard::core::Core;
use crate::shard::delivery::own_publications::OwnProgress;
use crate::shard::features::letter_keeping;
use crate::time::Instant;

impl Shard {
    /// Publishes a message of the broker's own, not retained. At QoS 0 no receiver can be overdue
    /// with it, so an event about a client never causes another event.
    pub fn announce(&mut self, now: Instant, topic: &str, payload: &[u8]) {
        let mut publication = Publication::new(own_parts(topic, payload), None, self.core.peers.here());
        self.fans.route_own(now, &mut publication, None, &mut self.routes, &mut self.core);
    }
}

impl Core {
    /// Begins the batch in which the dead letters of this turn are published, even if nothing else
    /// is recorded in it. Returns true if there is a store and such a letter. An acknowledgement
    /// that depends on a dead letter waits for that batch.
    pub(crate) fn begin_for_dead_letters(&self) -> bool {
        let has_letters = self.durability.is_on() && !self.dead_letters.is_empty();
        if has_letters {
            self.durability.begin();
        }
        has_letters
    }
}

/// Publishes a retained message of the broker's own, at QoS 0.
pub(crate) fn publish_own(now: Instant, topic: &str, payload: &[u8], shard: &mut Shard) {
    let parts = Parts { retain: true, ..own_parts(topic, payload) };
    let mut publication = Publication::new(parts, None, shard.core.peers.here());
    shard.routes.retain(now, &mut publication, None, None, &mut shard.core);
    shard.fans.route_own(now, &mut publication, None, &mut shard.routes, &mut shard.core);
}

/// Publishes dead letters before the batch of this turn is sealed: as many as the turn has
/// steps for, and at least one. If some are left, the batch is not sealed in this turn. A
/// dropped dead letter becomes no further dead letter.
pub(crate) fn publish_dead_letters(now: Instant, shard: &mut Shard) {
    while let Some(dead_letter) = shard.core.dead_letters.pop() {
        if !publish_dead_letter(now, &dead_letter, shard) {
            return shard.core.dead_letters.put_back(dead_letter);
        }
        if shard.core.turn.is_over() {
            return;
        }
    }
}

/// Publishes a dead letter. Returns false, and publishes nothing, if the dead letter needs
/// several turns while another publication takes several turns.
fn publish_dead_letter(now: Instant, dead_letter: &DeadLetter, shard: &mut Shard) -> bool {
    let qos = dead_letter.message.header().qos.max(QoS::AtLeastOnce);
    shard.core.turn.spend(1);
    if u16::try_from(dead_letter.topic.len()).is_err() {
        let lost = Dropped::new(DropReason::TooLarge, None).on(&dead_letter.topic);
        shard.core.drop_of_nobody(&lost);
        return true;
    }
    let forwarded = dead_letter.properties(shard.core.dead_letters.wall());
    // The topic and the properties are longer than those of the dropped message.
    let bytes = dead_letter.topic.len() + forwarded.len() + dead_letter.message.payload().len();
    // A message was parked only if there was room, and it would be lost here.
    if dead_letter.cause != DropReason::Parked
        && let Err(want) = shard.core.admits(Change::Publish { qos, bytes, frees: 0 })
    {
        shard.core.drop_of_nobody(&Dropped::new(want.cause(), None).on(&dead_letter.topic));
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
    let mut publication = Publication::new(parts, None, shard.core.peers.here());
    // The end of the dropped message is committed together with the deliveries of the dead
    // letter.
    publication.atomic = dead_letter.stored;
    publication.outgoing.audit = dead_letter.message.audit();
    if publication.outgoing.audit.is_some() {
        let topic = String::from(cut(&dead_letter.topic));
        shard.core.recorder().add(now, StepKind::DeadLetter, publication.outgoing.audit, topic);
    }
    let progress = shard.fans.route_own_now(now, &mut publication, &mut shard.routes, &mut shard.core);
    let is_published = progress != OwnProgress::Waits;
    if is_published {
        shard.core.counters.dead_letters.add(dead_letter.cause, 1);
        letter_keeping::keep(now, dead_letter, &mut shard.core);
    }
    is_published
}

/// Publishes a retained last-disconnect record. Removes the oldest record if there are then
/// more than the maximum. Does nothing if the memory budget is exceeded.
pub(crate) fn keep_last_disconnect(now: Instant, topic: &str, text: &str, shard: &mut Shard) {
    if shard.core.settings.last_disconnects == 0 || shard.core.admits(Change::Record).is_err() {
        return;
    }
    publish_own(now, topic, text.as_bytes(), shard);
    let oldest =
        shard.core.shared.totals.last_disconnects().keep(topic, shard.core.settings.last_disconnects);
    if let Some(oldest) = oldest {
        shard.core.shared.retained().remove(&oldest);
    }
}

/// Returns a message of the broker's own at QoS 0, not retained, and without a Message Expiry
/// Interval.
pub(in crate::shard) fn own_parts<'a>(topic: &'a str, payload: &'a [u8]) -> Parts<'a> {
    let (qos, expires) = (QoS::AtMostOnce, Instant::NEVER);
    Parts { qos, retain: false, expires, topic, forwarded: &[], payload }
}
