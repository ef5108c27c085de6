//! The messages of operators whose answers wait: for the commit of their deliveries, for other
//! shards, or for room in a full queue. An answer is due when a client would get its PUBACK.
//!
//! One publisher has a share of the places. So a receiver that holds the messages of one publisher
//! leaves places to the others.

use crate::mqtt::outcome::Outcome;
use crate::mqtt::packet::ReasonCode;
use crate::peers::peer_batch::PublicationNumber;
use crate::shard::turn::effects::Effects;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum number of messages that wait in one shard: 64 KiB. A store that hangs answers none of
/// them.
pub const UNANSWERED: usize = 1_024;

/// Maximum number of messages of one publisher among them.
pub const UNANSWERED_OF_ONE: usize = UNANSWERED / 4;

/// The answer to a message that an operator published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicationAnswer {
    /// The message.
    pub number: PublicationNumber,
    /// The reason code that a PUBACK would have.
    pub reason: ReasonCode,
}

/// The messages that have all places for messages that wait for their answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TooManyUnanswered {
    /// [`UNANSWERED_OF_ONE`] messages of the publisher.
    OfPublisher,
    /// [`UNANSWERED`] messages of all publishers of the shard.
    OfAll,
}

/// The messages of operators that are not answered.
#[derive(Debug, Default)]
pub(crate) struct UnansweredPublications {
    waiting: BTreeMap<PublicationNumber, Unanswered>,
    /// The last number.
    last: u64,
}

#[derive(Debug)]
struct Unanswered {
    publisher: Arc<str>,
    /// Number of answers that are pending.
    gates: u32,
    outcome: Outcome,
    /// Replaces the outcome in the answer.
    reason: Option<ReasonCode>,
}

impl UnansweredPublications {
    /// Returns the number of a new message of a publisher.
    ///
    /// # Errors
    /// Too many messages wait, of this publisher or of all.
    pub(crate) fn next(&mut self, publisher: &str) -> Result<PublicationNumber, TooManyUnanswered> {
        // A scan of 1,024 at most, once for each message of an operator.
        let own = self.waiting.values().filter(|own| *own.publisher == *publisher).count();
        if own >= UNANSWERED_OF_ONE {
            return Err(TooManyUnanswered::OfPublisher);
        }
        if self.waiting.len() >= UNANSWERED {
            return Err(TooManyUnanswered::OfAll);
        }
        self.last += 1;
        Ok(PublicationNumber(self.last))
    }

    /// Lets a message wait for this number of answers, or answers at once if there is none to wait
    /// for. `outcome` is that so far, and `reason` replaces it in the answer.
    pub(crate) fn wait(
        &mut self,
        (number, publisher): (PublicationNumber, &Arc<str>),
        (gates, outcome): (u32, Outcome),
        reason: Option<ReasonCode>,
        effects: &mut Effects,
    ) {
        let unanswered = Unanswered { publisher: Arc::clone(publisher), gates, outcome, reason };
        if gates == 0 {
            return effects.answered.push(unanswered.answer(number));
        }
        self.waiting.insert(number, unanswered);
    }

    /// Adds to the answers that a message waits for.
    pub(crate) fn expect(&mut self, number: PublicationNumber, gates: u32) {
        if let Some(unanswered) = self.waiting.get_mut(&number) {
            unanswered.gates += gates;
        }
    }

    /// Notes one answer that a message waits for. The last one is the answer to the operator.
    pub(crate) fn answer(&mut self, number: PublicationNumber, outcome: Outcome, effects: &mut Effects) {
        let Some(unanswered) = self.waiting.get_mut(&number) else { return };
        unanswered.outcome = unanswered.outcome.or(outcome);
        unanswered.gates = unanswered.gates.saturating_sub(1);
        if unanswered.gates == 0 {
            effects.answered.push(unanswered.answer(number));
            self.waiting.remove(&number);
        }
    }
}

impl Unanswered {
    fn answer(&self, number: PublicationNumber) -> PublicationAnswer {
        let reason = self.reason.unwrap_or_else(|| self.outcome.reason());
        PublicationAnswer { number, reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_answer_that_a_message_waits_for_ends_it_with_the_best_outcome() {
        let (mut unanswered, mut effects) = (UnansweredPublications::default(), Effects::default());
        let number = unanswered.next("ann").expect("there is room");
        unanswered.wait((number, &"ann".into()), (1, Outcome::Unmatched), None, &mut effects);
        unanswered.expect(number, 1);
        unanswered.answer(number, Outcome::Taken, &mut effects);
        assert!(effects.answered.is_empty());
        unanswered.answer(number, Outcome::Refused, &mut effects);
        unanswered.answer(number, Outcome::Refused, &mut effects);
        assert_eq!(effects.answered, [PublicationAnswer { number, reason: ReasonCode::SUCCESS }]);
    }

    #[test]
    fn a_reason_replaces_the_outcome_and_nothing_to_wait_for_is_answered_at_once() {
        let (mut unanswered, mut effects) = (UnansweredPublications::default(), Effects::default());
        let number = unanswered.next("ann").expect("there is room");
        let reason = ReasonCode::QUOTA_EXCEEDED;
        unanswered.wait((number, &"ann".into()), (0, Outcome::Taken), Some(reason), &mut effects);
        assert_eq!(effects.answered, [PublicationAnswer { number, reason }]);
    }

    #[test]
    fn messages_that_are_never_answered_are_bounded_for_each_publisher_and_for_all() {
        let (mut unanswered, mut effects) = (UnansweredPublications::default(), Effects::default());
        let mut wait = |unanswered: &mut UnansweredPublications, publisher: &str| {
            let number = unanswered.next(publisher)?;
            unanswered.wait((number, &publisher.into()), (1, Outcome::Taken), None, &mut effects);
            Ok(number)
        };
        for publisher in ["ann", "bob", "cid", "dan"] {
            for _ in 0..UNANSWERED_OF_ONE {
                assert!(wait(&mut unanswered, publisher).is_ok());
            }
            assert_eq!(wait(&mut unanswered, publisher), Err(TooManyUnanswered::OfPublisher));
        }
        assert_eq!(wait(&mut unanswered, "eve"), Err(TooManyUnanswered::OfAll));
        unanswered.answer(PublicationNumber(1), Outcome::Taken, &mut Effects::default());
        assert_eq!(wait(&mut unanswered, "bob"), Err(TooManyUnanswered::OfPublisher));
        assert!(wait(&mut unanswered, "ann").is_ok());
        for number in 2..=1 + UNANSWERED as u64 {
            unanswered.answer(PublicationNumber(number), Outcome::Taken, &mut Effects::default());
        }
        assert!(unanswered.waiting.is_empty());
    }
}
