//! Dead letters: messages that were given up, published to `$dead/<client id>/<original topic>` where the terms of their
//! receiver say so.
//!
//! Off by default, and then a message does not even know its publisher. They are routed at the end of the turn, when
//! nothing else is, to whoever subscribes to `$dead/...`; not retained, without the Message Expiry Interval, which would
//! end those that expired at once. A dead letter never makes another.

use super::Shard;
use super::admission::Change;
use super::route::Publication;
use crate::mqtt::codec::property;
use crate::mqtt::message::{Message, Parts};
use crate::mqtt::packet::{Property, QoS, ReasonCode};
use crate::mqtt::session::loss::{LossCause, Lost, Sent};
use crate::mqtt::session::terms::SessionTerms;
use crate::mqtt::topic::{begins_with_dollar, escape_level};
use crate::time::Instant;

/// A message to be published as a dead letter.
#[derive(Debug)]
pub(super) struct Letter {
    topic: String,
    message: Message,
    cause: LossCause,
    code: Option<ReasonCode>,
    sent: Sent,
    /// Its message was in the store, and ends in the batch that is being filled. Of what another shard has moved here, it ends
    /// in that move, which a crash may leave without the letter.
    stored: bool,
}

impl Letter {
    /// The letter that a loss makes, if it makes one: never of what is the broker's own, dead letters among it. `stored`:
    /// whether that session is in the store, and with it all it was owed above QoS 0.
    pub fn of(lost: Lost, client_id: &str, terms: &SessionTerms, stored: bool) -> Option<Letter> {
        let Lost { cause, message, sent, code } = lost;
        let message = message?;
        if begins_with_dollar(message.topic()) && super::publish::is_reserved(message.topic()) {
            return None;
        }
        if !terms.of(message.topic()).wants_letter(cause) {
            return None;
        }
        let topic = format!("$dead/{}/{}", escape_level(client_id), message.topic());
        let stored = stored && message.header().qos != QoS::AtMostOnce;
        Some(Letter { topic, message, cause, code, sent, stored })
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

/// What time it is outside: milliseconds since 1970 at [`Instant::ZERO`], as far as the shard was told.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WallClock(u64);

impl WallClock {
    fn at(self, instant: Instant) -> u64 {
        self.0.saturating_add(instant.as_millis())
    }
}

impl Shard {
    /// It is `unix_millis` now. For what people read, never for a deadline.
    pub fn tell_wall_clock(&mut self, now: Instant, unix_millis: u64) {
        self.wall = WallClock(unix_millis.saturating_sub(now.as_millis()));
    }

    /// Whether dead letters wait for the end of this turn, where there is a store. They are committed with the batch that is
    /// being filled, so whoever waits for that batch waits for them.
    pub(super) fn owes_letters(&self) -> bool {
        if self.letters.is_empty() {
            return false;
        }
        let Some(ledger) = self.ledger() else { return false };
        ledger.begin();
        true
    }

    /// Publishes the dead letters of this turn, before its batch is sealed. What they lose in turn makes none.
    pub(super) fn post_letters(&mut self, now: Instant) {
        if self.letters.is_empty() {
            return;
        }
        for letter in std::mem::take(&mut self.letters) {
            let qos = letter.message.header().qos.max(QoS::AtLeastOnce);
            if let Err(want) =
                self.admits(Change::Publish { qos, bytes: letter.message.size(), erases: false })
            {
                self.tally.losses.count(want.cause());
                continue;
            }
            if u16::try_from(letter.topic.len()).is_err() {
                self.tally.losses.count(LossCause::TooLarge);
                continue;
            }
            let forwarded = letter.properties(self.wall);
            let parts = Parts {
                qos,
                retain: false,
                expires: Instant::NEVER,
                topic: &letter.topic,
                forwarded: &forwarded,
                payload: letter.message.payload(),
            };
            self.tally.dead_letters += 1;
            let mut publication = Publication::new(parts, None, self.here);
            // That the message is no longer owed is recorded with who has the letter.
            publication.whole = letter.stored;
            self.route(now, &mut publication, None);
        }
    }
}
