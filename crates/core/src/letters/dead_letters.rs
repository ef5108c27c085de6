//! Dead letters: dropped messages that are published to `$dead/<client id>/<original topic>`, if
//! the receiver's redelivery policy asks for it.
//!
//! Dead letters are off by default, and then messages do not store their publisher. A dead letter
//! is routed at the end of the turn, when no other publication is being routed, or in a later turn.
//! A dead letter is not retained, and has no Message Expiry Interval, because the dead letter of an
//! expired message would expire at once. A dead letter that is dropped makes no other dead letter.

use crate::events::drop_reports::DropReceiver;
use crate::letters::stored_letters::StoredLetters;
use crate::mqtt::codec::property;
use crate::mqtt::message::Message;
use crate::mqtt::packet::{Property, QoS, ReasonCode};
use crate::mqtt::topic::is_reserved;
use crate::mqtt::topic::{begins_with_dollar, escape_level};
use crate::persistence::letter::{LetterNumber, LetterPlace, StoredLetter};
use crate::session::drops::{DropReason, Dropped, REASON, Sent};
use crate::time::Instant;
use std::collections::VecDeque;

/// Bytes of the properties that a dead letter adds at most, beside the name of the publisher, which
/// the size of its message has. A character of the receiver's Reason String has four at most.
pub(crate) const PROPERTIES: usize = 256 + 4 * REASON;

/// A message to be published as a dead letter.
#[derive(Debug)]
pub(crate) struct DeadLetter {
    pub topic: String,
    /// The Client Identifier of the receiver, or `$share/<group>`.
    receiver: Box<str>,
    pub message: Message,
    pub cause: DropReason,
    code: Option<ReasonCode>,
    reason: Option<Box<str>>,
    sent: Sent,
    /// True if the message was in the store, and its end is recorded in the open batch. The dead
    /// letter is committed with that batch. If a peer sent the message in a transaction, that
    /// transaction records the end, and a crash may then lose the dead letter.
    pub stored: bool,
}

impl DeadLetter {
    /// Returns the dead letter for a dropped message, or `None` if the redelivery policy does not
    /// ask for one. A message of the broker makes no dead letter.
    pub(crate) fn of(dropped: Dropped, receiver: &DropReceiver<'_>) -> Option<DeadLetter> {
        let Dropped { cause, message, sent, code, reason, .. } = dropped;
        let DropReceiver { client_id, redelivery, stored, .. } = *receiver;
        let message = message?;
        if begins_with_dollar(message.topic()) && is_reserved(message.topic()) {
            return None;
        }
        if !redelivery.of(message.topic()).wants_dead_letter(cause) {
            return None;
        }
        let topic = dead_letter_topic(client_id, message.topic());
        let stored = stored && message.header().qos != QoS::AtMostOnce;
        Some(DeadLetter { topic, receiver: client_id.into(), message, cause, code, reason, sent, stored })
    }

    /// Returns the dead letter for the store, which dates it to `now`.
    pub(crate) fn to_store(&self, now: Instant, number: LetterNumber, wall: WallClock) -> StoredLetter {
        let Sent { times, first, last } = self.sent;
        StoredLetter {
            place: LetterPlace { dropped_ms: wall.at(now), number },
            receiver: self.receiver.clone(),
            cause: self.cause.name().into(),
            code: self.code,
            attempts: times,
            sent_ms: wall
                .sent_at(last)
                .filter(|_| times > 0)
                .map(|last| (wall.sent_at(first).unwrap_or(0), last)),
            message: self.message.clone(),
        }
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
        if let Some(reason) = &self.reason {
            say("reason-string", reason);
        }
        say("attempts", &self.sent.times.to_string());
        if self.sent.times > 0 {
            for (name, at) in [("first-sent", self.sent.first), ("last-sent", self.sent.last)] {
                if let Some(unix_ms) = wall.sent_at(at) {
                    say(name, &unix_ms.to_string());
                }
            }
        }
        if !self.message.publisher().is_empty() {
            say("publisher", self.message.publisher());
        }
        say("original-qos", &self.message.header().qos.bits().to_string());
        out
    }
}

/// Returns the topic of the dead letter of a client's message.
pub(crate) fn dead_letter_topic(client_id: &str, topic: &str) -> String {
    format!("$dead/{}/{topic}", escape_level(client_id))
}

/// The time of day, as the milliseconds since 1970 at [`Instant::ZERO`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WallClock(u64);

impl WallClock {
    /// Returns the milliseconds since 1970 at `instant`.
    pub(crate) fn at(self, instant: Instant) -> u64 {
        self.0.saturating_add(instant.as_millis())
    }

    /// Returns the time of a transmission; `None` if it was before the start, so that nobody knows
    /// it.
    fn sent_at(self, instant: Instant) -> Option<u64> {
        (instant != Instant::ZERO).then(|| self.at(instant))
    }
}

/// The dead letters of one shard: unpublished letters, and stored letters.
#[derive(Debug)]
pub(crate) struct DeadLetters {
    waiting: VecDeque<DeadLetter>,
    wall: WallClock,
    keep_publisher: bool,
    pub(crate) stored: StoredLetters,
}

impl DeadLetters {
    /// Returns an empty collection. `keep_publisher` is true if some redelivery policy asks for
    /// dead letters.
    pub(crate) fn new(keep_publisher: bool) -> DeadLetters {
        DeadLetters {
            waiting: VecDeque::new(),
            wall: WallClock::default(),
            keep_publisher,
            stored: StoredLetters::default(),
        }
    }

    /// Returns true if messages store their publisher, because a dead letter names the publisher.
    #[inline]
    pub(crate) fn keep_publisher(&self) -> bool {
        self.keep_publisher
    }

    /// Sets if messages store their publisher, from the next message on.
    pub(crate) fn set_keep_publisher(&mut self, keep_publisher: bool) {
        self.keep_publisher = keep_publisher;
    }

    /// Returns true if no dead letter waits.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns the number of dead letters that wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Adds the dead letter of a drop, if there is one.
    pub(crate) fn add(&mut self, dead_letter: Option<DeadLetter>) {
        self.waiting.extend(dead_letter);
    }

    /// Takes back the dead letters of a refused message that never expires: those behind the first
    /// `len`, except messages that expired or were dropped as the oldest of a full queue. These
    /// left their queues for the refused message, and are in no other place.
    pub(crate) fn take_back(&mut self, len: usize) {
        let newer = self.waiting.split_off(len.min(self.waiting.len()));
        let is_other =
            |letter: &DeadLetter| matches!(letter.cause, DropReason::Expired | DropReason::QueueOverflow);
        self.waiting.extend(newer.into_iter().filter(is_other));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqtt::message::Parts;
    use crate::mqtt::packet::Properties;
    use crate::mqtt::publisher_name::PublisherName;
    use crate::session::drops::ReceiverState;
    use crate::session::redelivery_policy::RedeliveryPolicy;
    use crate::session::session_redelivery::SessionRedelivery;

    /// Settings under which expired messages alone become dead letters.
    fn redelivery() -> SessionRedelivery {
        let dead_letters = [DropReason::Expired].into_iter().collect();
        SessionRedelivery::new(&RedeliveryPolicy { dead_letters, ..RedeliveryPolicy::sample() }, Vec::new())
    }

    fn letter_of(dropped: Dropped, stored: bool) -> Option<DeadLetter> {
        let (client_id, redelivery, state) = ("a/b", &redelivery(), ReceiverState::None);
        DeadLetter::of(dropped, &DropReceiver { client_id, redelivery, stored, state })
    }

    fn dead_letter(topic: &str, qos: QoS, cause: DropReason, stored: bool) -> Option<DeadLetter> {
        letter_of(Dropped::unsent(cause, Message::sample(topic, qos, b"p")), stored)
    }

    fn expired(topic: &str) -> Option<DeadLetter> {
        dead_letter(topic, QoS::AtLeastOnce, DropReason::Expired, false)
    }

    #[test]
    fn only_a_message_whose_cause_the_policy_names_becomes_a_dead_letter() {
        assert!(expired("t").is_some());
        assert!(dead_letter("t", QoS::AtLeastOnce, DropReason::QueueRefused, false).is_none());
        let without_message = Dropped::new(DropReason::Expired, None);
        assert!(letter_of(without_message, false).is_none());
    }

    #[test]
    fn a_client_identifier_is_one_level_of_the_topic() {
        assert_eq!(expired("t/u").map(|letter| letter.topic).as_deref(), Some("$dead/a%2Fb/t/u"));
    }

    #[test]
    fn a_message_of_the_broker_makes_no_dead_letter() {
        for reserved in ["$dead/a/t", "$SYS/broker/uptime", "$homing/session/granted"] {
            assert!(expired(reserved).is_none(), "{reserved}");
        }
        assert!(expired("$deadly/t").is_some());
    }

    #[test]
    fn a_dead_letter_of_qos_0_is_committed_with_nothing() {
        for (qos, stored, expected) in [
            (QoS::AtMostOnce, true, false),
            (QoS::AtLeastOnce, true, true),
            (QoS::ExactlyOnce, true, true),
            (QoS::ExactlyOnce, false, false),
        ] {
            let letter = dead_letter("t", qos, DropReason::Expired, stored).expect("a dead letter");
            assert_eq!(letter.stored, expected, "{qos:?} {stored}");
        }
    }

    /// The User Properties of the dead letter of a message with the User Property `own`.
    fn properties(publisher: &str, sent: Sent, code: Option<ReasonCode>) -> Vec<String> {
        let mut forwarded = Vec::new();
        property::put(&mut forwarded, Property::UserProperty("own", "x")).expect("short");
        let parts = Parts {
            qos: QoS::ExactlyOnce,
            retain: false,
            expires: Instant::NEVER,
            topic: "t",
            forwarded: &forwarded,
            payload: b"p",
        };
        let publisher = PublisherName::shared(publisher, &mut None);
        let message = Some(Message::published_by(publisher, parts, &mut Vec::new()));
        let lost = Dropped { sent, code, ..Dropped::new(DropReason::Expired, message) };
        let letter = letter_of(lost, false).expect("a dead letter");
        let mut dead_letters = DeadLetters::new(true);
        dead_letters.set_wall_clock(Instant::from_millis(500), 10_500);
        let bytes = letter.properties(dead_letters.wall());
        let text = |property| match property {
            Property::UserProperty(name, value) => format!("{name}={value}"),
            other => format!("{other:?}"),
        };
        property::iter(Properties(&bytes)).map(text).collect()
    }

    #[test]
    fn the_properties_of_the_message_come_first_and_then_how_its_delivery_went() {
        assert_eq!(
            properties("", Sent::default(), None),
            ["own=x", "cause=expired", "attempts=0", "original-qos=2"]
        );
        let sent = Sent { times: 2, first: Instant::from_millis(1_000), last: Instant::from_millis(3_000) };
        assert_eq!(
            properties("p", sent, Some(ReasonCode::QUOTA_EXCEEDED)),
            [
                "own=x",
                "cause=expired",
                "reason-code=0x97",
                "attempts=2",
                "first-sent=11000",
                "last-sent=13000",
                "publisher=p",
                "original-qos=2"
            ]
        );
    }

    #[test]
    fn a_transmission_before_the_start_has_no_time() {
        let at = Instant::from_millis;
        let sent = |last| Sent { times: 2, first: Instant::ZERO, last };
        let expected = ["own=x", "cause=expired", "attempts=2", "original-qos=2"];
        assert_eq!(properties("", sent(Instant::ZERO), None), expected);
        let again = properties("", sent(at(3_000)), None);
        assert_eq!(again, [&expected[..3], &["last-sent=13000"], &expected[3..]].concat());
    }

    #[test]
    fn dead_letters_leave_in_order_and_one_that_is_put_back_leaves_first() {
        let mut dead_letters = DeadLetters::new(true);
        dead_letters.add(None);
        assert!(dead_letters.is_empty());
        ["1", "2", "3"].into_iter().for_each(|topic| dead_letters.add(expired(topic)));
        let first = dead_letters.pop().expect("the first");
        dead_letters.put_back(first);
        let topics: Vec<String> =
            std::iter::from_fn(|| dead_letters.pop()).map(|letter| letter.topic).collect();
        assert_eq!(topics, ["$dead/a%2Fb/1", "$dead/a%2Fb/2", "$dead/a%2Fb/3"]);
        assert!(dead_letters.is_empty());
    }

    #[test]
    fn a_wall_clock_behind_the_boot_counts_from_1970() {
        let mut dead_letters = DeadLetters::new(true);
        dead_letters.set_wall_clock(Instant::from_millis(5_000), 10);
        assert_eq!(dead_letters.wall().at(Instant::from_millis(7)), 7);
    }
}
