//! Dead letters: dropped messages that are published to `$dead/<client id>/<original topic>`, if
//! the redelivery policy of their receiver says so.
//!
//! Off by default, and then a message does not even know its publisher. They are routed at the end
//! of the turn, when nothing else is, or in later turns, to whoever subscribes to `$dead/...`; not
//! retained, without the Message Expiry Interval, which would end those that expired at once. A
//! dead letter never makes another.

use crate::mqtt::codec::property;
use crate::mqtt::message::{Message, Parts};
use crate::mqtt::packet::{Property, QoS, ReasonCode};
use crate::mqtt::topic::{begins_with_dollar, escape_level};
use crate::session::drops::{DropReason, Dropped, Sent};
use crate::session::session_redelivery::SessionRedelivery;
use crate::shard::Shard;
use crate::shard::admission::Change;
use crate::shard::route::Publication;
use crate::time::Instant;
use std::collections::VecDeque;

/// A message to be published as a dead letter.
#[derive(Debug)]
pub(in crate::shard) struct DeadLetter {
    topic: String,
    message: Message,
    cause: DropReason,
    code: Option<ReasonCode>,
    sent: Sent,
    /// Its message was in the store, and ends in the batch that is being filled. Of a message that
    /// another shard sent here in a transaction, it ends in that transaction, which a crash may
    /// leave without the dead letter.
    stored: bool,
}

impl DeadLetter {
    /// The dead letter that a loss makes, if it makes one: never of what is the broker's own, dead
    /// letters among it. `stored`: whether that session is in the store, and with it all it was
    /// owed above QoS 0.
    pub fn of(
        lost: Dropped,
        client_id: &str,
        redelivery: &SessionRedelivery,
        stored: bool,
    ) -> Option<DeadLetter> {
        let Dropped { cause, message, sent, code } = lost;
        let message = message?;
        if begins_with_dollar(message.topic()) && crate::shard::publish::is_reserved(message.topic()) {
            return None;
        }
        if !redelivery.of(message.topic()).wants_dead_letter(cause) {
            return None;
        }
        let topic = format!("$dead/{}/{}", escape_level(client_id), message.topic());
        let stored = stored && message.header().qos != QoS::AtMostOnce;
        Some(DeadLetter { topic, message, cause, code, sent, stored })
    }

    /// The properties of the message, then what there is to say of its end.
    fn properties(&self, wall: WallClock) -> Vec<u8> {
        let mut out = self.message.forwarded().to_vec();
        let mut say = |name: &str, value: &str| {
            // Each value is shorter than the protocol's bound on a string.
            let _ = property::put(&mut out, Property::UserProperty(name, value));
        };
        say("cause", self.cause.name());
        if let Some(code) = self.code {
            say("reason-code", &format!("0x{:02X}", code.byte()));
        }
        say("attempts", &self.sent.times.to_string());
        if self.sent.times > 0 {
            say("first-sent", &wall.at(self.sent.first).to_string());
            say("last-sent", &wall.at(self.sent.last).to_string());
        }
        if !self.message.publisher().is_empty() {
            say("publisher", self.message.publisher());
        }
        say("original-qos", &self.message.header().qos.bits().to_string());
        out
    }
}

/// What time it is outside: milliseconds since 1970 at [`Instant::ZERO`], as far as the shard was
/// told.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::shard) struct WallClock(u64);

impl WallClock {
    fn at(self, instant: Instant) -> u64 {
        self.0.saturating_add(instant.as_millis())
    }
}

/// The dead letters of one shard that are not published yet.
#[derive(Debug)]
pub(in crate::shard) struct DeadLetters {
    waiting: VecDeque<DeadLetter>,
    wall: WallClock,
    keep_publisher: bool,
}

impl DeadLetters {
    /// `keep_publisher`: true if some rule asks for dead letters.
    pub fn new(keep_publisher: bool) -> DeadLetters {
        DeadLetters { waiting: VecDeque::new(), wall: WallClock::default(), keep_publisher }
    }

    /// True if a message keeps who published it, for its dead letter.
    #[inline]
    pub fn keep_publisher(&self) -> bool {
        self.keep_publisher
    }

    /// True if none waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Adds the dead letter that a drop makes, if it makes one.
    pub fn add(&mut self, dead_letter: Option<DeadLetter>) {
        self.waiting.extend(dead_letter);
    }
}

impl Shard {
    /// It is `unix_millis` now. For what people read, never for a deadline.
    pub fn tell_wall_clock(&mut self, now: Instant, unix_millis: u64) {
        self.dead_letters.wall = WallClock(unix_millis.saturating_sub(now.as_millis()));
    }

    /// Whether dead letters wait for the end of this turn, where there is a store. They are
    /// committed with the batch that is being filled, so whoever waits for that batch waits for
    /// them.
    pub(in crate::shard) fn has_dead_letters(&self) -> bool {
        if self.dead_letters.is_empty() {
            return false;
        }
        let Some(write_buffer) = self.write_buffer() else { return false };
        write_buffer.begin();
        true
    }

    /// Publishes dead letters before the batch of this turn is sealed: as many as the turn has
    /// steps for, and one at least. The batch waits for those that are left. What they lose in turn
    /// makes none.
    pub(in crate::shard) fn publish_dead_letters(&mut self, now: Instant) {
        while let Some(dead_letter) = self.dead_letters.waiting.pop_front() {
            if !self.publish_dead_letter(now, &dead_letter) {
                return self.dead_letters.waiting.push_front(dead_letter);
            }
            if self.turn.is_over() {
                return;
            }
        }
    }

    /// Returns false if it takes several turns, and another publication does.
    fn publish_dead_letter(&mut self, now: Instant, dead_letter: &DeadLetter) -> bool {
        let qos = dead_letter.message.header().qos.max(QoS::AtLeastOnce);
        self.turn.charge(1);
        if u16::try_from(dead_letter.topic.len()).is_err() {
            self.counters.drops.count(DropReason::TooLarge);
            return true;
        }
        let forwarded = dead_letter.properties(self.dead_letters.wall);
        // Its topic and its properties are longer than those of its message.
        let bytes = dead_letter.topic.len() + forwarded.len() + dead_letter.message.payload().len();
        if let Err(want) = self.admits(Change::Publish { qos, bytes, frees: 0 }) {
            self.counters.drops.count(want.cause());
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
        let mut publication = Publication::new(parts, None, self.here);
        // That the message is no longer owed is recorded with who has the dead letter.
        publication.atomic = dead_letter.stored;
        let is_posted = self.route_own_now(now, &mut publication);
        self.counters.dead_letters += u64::from(is_posted);
        is_posted
    }
}
