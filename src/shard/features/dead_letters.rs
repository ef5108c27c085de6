//! Dead letters: dropped messages that are published to `$dead/<client id>/<original topic>`, if
//! the redelivery policy of their receiver says so.
//!
//! Off by default, and then a message does not even know its publisher. They are routed at the end
//! of the turn, when nothing else is, or in later turns, to whoever subscribes to `$dead/...`; not
//! retained, without the Message Expiry Interval, which would end those that expired at once. A
//! dead letter never makes another.

use crate::mqtt::codec::property;
use crate::mqtt::message::Message;
use crate::mqtt::packet::{Property, QoS, ReasonCode};
use crate::mqtt::topic::{begins_with_dollar, escape_level};
use crate::session::drops::{DropReason, Dropped, Sent};
use crate::session::session_redelivery::SessionRedelivery;
use crate::shard::settings::is_reserved;
use crate::time::Instant;
use std::collections::VecDeque;

/// A message to be published as a dead letter.
#[derive(Debug)]
pub(crate) struct DeadLetter {
    pub topic: String,
    pub message: Message,
    cause: DropReason,
    code: Option<ReasonCode>,
    sent: Sent,
    /// Its message was in the store, and ends in the batch that is being filled. Of a message that
    /// another shard sent here in a transaction, it ends in that transaction, which a crash may
    /// leave without the dead letter.
    pub stored: bool,
}

impl DeadLetter {
    /// The dead letter that a loss makes, if it makes one: never of what is the broker's own, dead
    /// letters among it. `stored`: whether that session is in the store, and with it all it was
    /// owed above QoS 0.
    pub(crate) fn of(
        lost: Dropped,
        client_id: &str,
        redelivery: &SessionRedelivery,
        stored: bool,
    ) -> Option<DeadLetter> {
        let Dropped { cause, message, sent, code } = lost;
        let message = message?;
        if begins_with_dollar(message.topic()) && is_reserved(message.topic()) {
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
    pub(crate) fn properties(&self, wall: WallClock) -> Vec<u8> {
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

/// The time of day: milliseconds since 1970 at [`Instant::ZERO`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WallClock(u64);

impl WallClock {
    fn at(self, instant: Instant) -> u64 {
        self.0.saturating_add(instant.as_millis())
    }
}

/// The dead letters of one shard that are not published yet.
#[derive(Debug)]
pub(crate) struct DeadLetters {
    waiting: VecDeque<DeadLetter>,
    wall: WallClock,
    keep_publisher: bool,
}

impl DeadLetters {
    /// `keep_publisher`: true if some rule asks for dead letters.
    pub(crate) fn new(keep_publisher: bool) -> DeadLetters {
        DeadLetters { waiting: VecDeque::new(), wall: WallClock::default(), keep_publisher }
    }

    /// True if a message keeps who published it, for its dead letter.
    #[inline]
    pub(crate) fn keep_publisher(&self) -> bool {
        self.keep_publisher
    }

    /// True if none waits.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Adds the dead letter that a drop makes, if it makes one.
    pub(crate) fn add(&mut self, dead_letter: Option<DeadLetter>) {
        self.waiting.extend(dead_letter);
    }

    /// Sets the time of day, in milliseconds since 1970. For readers, never for a deadline.
    pub(crate) fn set_wall_clock(&mut self, now: Instant, unix_millis: u64) {
        self.wall = WallClock(unix_millis.saturating_sub(now.as_millis()));
    }

    /// Returns the time of day.
    pub(crate) fn wall(&self) -> WallClock {
        self.wall
    }

    /// Takes out the oldest dead letter.
    pub(crate) fn pop(&mut self) -> Option<DeadLetter> {
        self.waiting.pop_front()
    }

    /// Puts the oldest dead letter back.
    pub(crate) fn put_back(&mut self, dead_letter: DeadLetter) {
        self.waiting.push_front(dead_letter);
    }
}
