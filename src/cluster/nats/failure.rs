//! Why a request has no good answer.
//!
//! | code | text | meaning here |
//! |---|---|---|
//! | 10071 | wrong last sequence: N | the position, or the revision of a row, is another one. The leader checks this before it proposes, and counts what it has proposed. N is no position of an applied frame |
//! | 10164 | wrong last sequence | the same, where the leader cannot know a number |
//! | 10077 | maximum bytes exceeded | the stream is full. The leader checks this before it proposes |
//! | 10077 | any other text | a store failed, and the frame may be in the log of another server |
//! | 10059 | stream not found | `homing cluster init` was not run |
//! | 10037 | no message found | the row is not there |
//! | 10005 | no suitable peers for placement | fewer than three servers are up |
//! | 10008, 10009 | temporarily unavailable, not leader | no leader yet |
//! | 10054, 10060, 10109 | too large, another stream, sealed | refused before it was proposed |
//! | 10158 | duplicate message id is in process | an earlier attempt is not decided |

use async_nats::client::{RequestError, RequestErrorKind};

/// The reason why a request has no good answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// Nothing came in time.
    NoAnswer,
    /// The server knows nobody who would answer.
    NoResponders,
    /// The client did not send it.
    NotSent(String),
    /// JetStream's error, with its number.
    Refused(u64, String),
    /// The answer is none.
    Malformed(String),
}

impl Failure {
    /// Returns true if no leader with a majority has answered.
    pub(super) fn has_no_leader(&self) -> bool {
        matches!(self, Failure::NoAnswer | Failure::NoResponders | Failure::Refused(10008 | 10009, _))
    }

    /// Returns true if a sequence was expected that is not the last.
    pub(super) fn is_wrong_last(&self) -> bool {
        matches!(self, Failure::Refused(10071 | 10164, _))
    }

    /// Returns true if the stream has no room.
    pub(super) fn is_full(&self) -> bool {
        matches!(self, Failure::Refused(10077, text) if text.contains("maximum bytes"))
    }

    /// Returns true if there is no such stream.
    pub(super) fn is_missing_stream(&self) -> bool {
        matches!(self, Failure::Refused(10059, _))
    }

    /// Returns true if there is no such message.
    pub(super) fn is_missing_message(&self) -> bool {
        matches!(self, Failure::Refused(10037, _))
    }

    /// Returns true if the request was refused for certain, and will be again.
    pub(super) fn is_final(&self) -> bool {
        matches!(self, Failure::NotSent(_) | Failure::Refused(10054 | 10060 | 10109, _))
    }
}

impl From<RequestError> for Failure {
    fn from(error: RequestError) -> Failure {
        match error.kind() {
            RequestErrorKind::TimedOut => Failure::NoAnswer,
            RequestErrorKind::NoResponders => Failure::NoResponders,
            RequestErrorKind::InvalidSubject | RequestErrorKind::MaxPayloadExceeded => {
                Failure::NotSent(error.to_string())
            }
            // The connection broke while it was on its way.
            RequestErrorKind::Other => Failure::NoAnswer,
        }
    }
}
