//! The messages of operators whose answers wait: for the commit of their deliveries, for other
//! shards, or for room in a full queue. An answer is due when a client would get its PUBACK.

use crate::mqtt::outcome::Outcome;
use crate::mqtt::packet::ReasonCode;
use crate::peers::peer_batch::PublicationNumber;
use crate::shard::turn::effects::Effects;
use std::collections::BTreeMap;

/// Maximum number of messages that wait in one shard: 64 KiB. A store that hangs answers none of
/// them.
const MOST: usize = 1_024;

/// The answer to a message that an operator published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicationAnswer {
    /// The message.
    pub number: PublicationNumber,
    /// The reason code that a PUBACK would have.
    pub reason: ReasonCode,
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
    /// Number of answers that are pending.
    gates: u32,
    outcome: Outcome,
    /// Replaces the outcome in the answer.
    reason: Option<ReasonCode>,
}

impl UnansweredPublications {
    /// Returns the number of a new message, or `None` if too many wait.
    pub(crate) fn next(&mut self) -> Option<PublicationNumber> {
        if self.waiting.len() >= MOST {
            return None;
        }
        self.last += 1;
        Some(PublicationNumber(self.last))
    }

    /// Lets a message wait for this number of answers, or answers at once if there is none to wait
    /// for. `outcome` is that so far, and `reason` replaces it in the answer.
    pub(crate) fn wait(
        &mut self,
        number: PublicationNumber,
        (gates, outcome): (u32, Outcome),
        reason: Option<ReasonCode>,
        effects: &mut Effects,
    ) {
        self.waiting.insert(number, Unanswered { gates, outcome, reason });
        if gates == 0 {
            self.end(number, effects);
        }
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
            self.end(number, effects);
        }
    }

    fn end(&mut self, number: PublicationNumber, effects: &mut Effects) {
        if let Some(Unanswered { outcome, reason, .. }) = self.waiting.remove(&number) {
            let reason = reason.unwrap_or_else(|| outcome.reason());
            effects.answered.push(PublicationAnswer { number, reason });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_answer_that_a_message_waits_for_ends_it_with_the_best_outcome() {
        let (mut unanswered, mut effects) = (UnansweredPublications::default(), Effects::default());
        let number = unanswered.next().expect("there is room");
        unanswered.wait(number, (1, Outcome::Unmatched), None, &mut effects);
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
        let number = unanswered.next().expect("there is room");
        let reason = ReasonCode::QUOTA_EXCEEDED;
        unanswered.wait(number, (0, Outcome::Taken), Some(reason), &mut effects);
        assert_eq!(effects.answered, [PublicationAnswer { number, reason }]);
    }

    #[test]
    fn messages_that_are_never_answered_are_bounded() {
        let (mut unanswered, mut effects) = (UnansweredPublications::default(), Effects::default());
        for _ in 0..MOST {
            let number = unanswered.next().expect("there is room");
            unanswered.wait(number, (1, Outcome::Taken), None, &mut effects);
        }
        assert!(unanswered.next().is_none());
        unanswered.answer(PublicationNumber(1), Outcome::Taken, &mut effects);
        assert!(unanswered.next().is_some());
    }
}
