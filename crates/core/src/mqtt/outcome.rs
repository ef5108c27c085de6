//! The result of a publication: taken, unmatched, refused, or held too long.

use super::packet::ReasonCode;

/// The result of a publication at one place: a receiver, a shard, or all of them together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// At least one receiver took the message.
    Taken,
    /// No subscription at this place matches.
    Unmatched,
    /// Every receiver at this place that should have the message refused it.
    Refused,
    /// The message was held for a receiver with a full queue, and the queue got no room in time.
    HeldTooLong,
}

impl Outcome {
    /// Combines the results of two places. A message that one receiver took is not refused.
    ///
    /// The order is: taken, held too long, refused, unmatched.
    pub fn or(self, other: Outcome) -> Outcome {
        match (self, other) {
            (Outcome::Taken, _) | (_, Outcome::Taken) => Outcome::Taken,
            (Outcome::HeldTooLong, _) | (_, Outcome::HeldTooLong) => Outcome::HeldTooLong,
            (Outcome::Refused, _) | (_, Outcome::Refused) => Outcome::Refused,
            _ => Outcome::Unmatched,
        }
    }

    /// Returns the reason code for the acknowledgement to a 5.0 publisher.
    pub fn reason(self) -> ReasonCode {
        match self {
            Outcome::Taken => ReasonCode::SUCCESS,
            Outcome::Unmatched => ReasonCode::NO_MATCHING_SUBSCRIBERS,
            Outcome::Refused | Outcome::HeldTooLong => ReasonCode::QUOTA_EXCEEDED,
        }
    }
}
