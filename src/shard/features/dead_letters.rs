//! Dead letters: dropped messages that are published to `$dead/<client id>/<original topic>`, if
//! the receiver's redelivery policy asks for it.
//!
//! Dead letters are off by default, and then messages do not store their publisher. A dead letter
//! is routed at the end of the turn, when no other publication is being routed, or in a later turn.
//! A dead letter is not retained, and has no Message Expiry Interval, because the dead letter of an
//! expired message would expire at once. A dead letter that is dropped makes no other dead letter.

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
    /// True if the message was in the store, and its end is recorded in the open batch. The dead
    /// letter is committed with that batch. If a peer sent the message in a transaction, that
    /// transaction records the end, and a crash may then lose the dead letter.
    pub stored: bool,
}

impl DeadLetter {
    /// Returns the dead letter for a dropped message, or `None` if the redelivery policy does not
    /// ask for one. A message of the broker makes no dead letter. `stored` is true if the
    /// receiver's session is in the store, with all messages above QoS 0 for it.
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

    /// Returns the properties of the dead letter: those of the message, then User Properties with
    /// the reason of the drop and the attempts to deliver the message.
    pub(crate) fn properties(&self, wall: WallClock) -> Vec<u8> {
        let mut out = self.message.forwarded().to_vec();
        let mut say = |name: &str, value: &str| {
            // Cannot fail: each value is shorter than the protocol's bound on a string.
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

/// The time of day, as the milliseconds since 1970 at [`Instant::ZERO`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WallClock(u64);

impl WallClock {
    /// Returns the milliseconds since 1970 at `instant`.
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
    /// Returns an empty collection. `keep_publisher` is true if some redelivery policy asks for
    /// dead letters.
    pub(crate) fn new(keep_publisher: bool) -> DeadLetters {
        DeadLetters { waiting: VecDeque::new(), wall: WallClock::default(), keep_publisher }
    }

    /// Returns true if messages store their publisher, because a dead letter names the publisher.
    #[inline]
    pub(crate) fn keep_publisher(&self) -> bool {
        self.keep_publisher
    }

    /// Returns true if no dead letter waits.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Adds the dead letter of a drop, if there is one.
    pub(crate) fn add(&mut self, dead_letter: Option<DeadLetter>) {
        self.waiting.extend(dead_letter);
    }

    /// Sets the time of day, in milliseconds since 1970. Dead letters show this time to their
    /// readers. No deadline uses it.
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
