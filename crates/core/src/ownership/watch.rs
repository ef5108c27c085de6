//! What a node knows of the log from its frames and from the engine's answers: whether the owner is
//! silent, the log is whole, or frames are gone. `cell` claims.

use super::{Position, Timing};
use crate::time::Instant;
use std::time::Duration;

/// A node's view of the engine.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogWatch {
    /// The time when the last frame was seen; at first that of the start, which is later than any
    /// frame that the node has on its disk.
    seen_at: Instant,
    /// The answers in a row that showed the log unmoved.
    unmoved: Option<Span>,
    /// The answers in a row that showed less than was applied somewhere.
    short: Option<Span>,
    /// The time of the last question, while there is no answer.
    asked: Option<Instant>,
    /// The time of the last answer.
    answered: Option<Instant>,
    /// The time when the rows of all nodes were asked for.
    rows_read: Instant,
    /// The time of the last request to read the rows now.
    rows_asked: Option<Instant>,
}

/// The times of the first and the last of several answers in a row.
#[derive(Clone, Copy, Debug)]
struct Span {
    since: Instant,
    last: Instant,
}

/// The leader's answer to the question for the last position, with what the rows of all nodes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineAnswer {
    /// The last position of the log, as its leader says. A replica may lag for ever.
    pub last: Position,
    /// The highest position that a node has reported in its row.
    pub reported: Position,
    /// The time when the rows were asked for; [`Instant::ZERO`] if this process has read none.
    pub rows_read: Instant,
}

impl LogWatch {
    pub(super) fn new(now: Instant) -> LogWatch {
        LogWatch {
            seen_at: now,
            unmoved: None,
            short: None,
            asked: None,
            answered: None,
            rows_read: Instant::ZERO,
            rows_asked: None,
        }
    }

    /// A frame was seen: its owner was alive when it sent the frame, which is earlier.
    pub(super) fn frame_seen(&mut self, now: Instant) {
        self.seen_at = now;
        self.unmoved = None;
    }

    /// Takes an answer of the leader. `own` is the last position that this node has seen.
    pub(super) fn answered(&mut self, answer: EngineAnswer, own: Position, now: Instant, timing: &Timing) {
        self.asked = None;
        self.answered = Some(now);
        let EngineAnswer { last, reported, rows_read } = answer;
        self.rows_read = rows_read;
        if last < own.max(reported) {
            self.unmoved = None;
            self.short = Some(Span { since: self.short.map_or(now, |short| short.since), last: now });
            return;
        }
        self.short = None;
        let in_row = self.unmoved.filter(|unmoved| now.since(unmoved.last) <= timing.append_timeout);
        let since = in_row.map_or(now, |unmoved| unmoved.since);
        self.unmoved = (last == own).then_some(Span { since, last: now });
    }

    /// The leader did not answer. It may be in an election, and the owner as helpless as this node.
    /// Silence takes nothing back of what the leader lacked before.
    pub(super) fn unanswered(&mut self) {
        self.asked = None;
        self.unmoved = None;
    }

    /// Makes a question due at once, beside one that may be under way.
    pub(super) fn hurry(&mut self) {
        self.asked = None;
        self.answered = None;
    }

    /// Returns true if a question is due, and notes that it is asked.
    pub(super) fn asks(&mut self, now: Instant, timing: &Timing) -> bool {
        // A question without an answer is not repeated before it must have failed.
        let is_due = match self.asked {
            Some(asked) => now.since(asked) > timing.append_timeout,
            None => self.answered.is_none_or(|answered| now.since(answered) >= timing.poll),
        };
        if is_due {
            self.asked = Some(now);
        }
        is_due
    }

    /// Returns true if the log had no more than this node has when the leader answered last, and
    /// this answer is fresh.
    pub(super) fn is_current(&self, now: Instant, timing: &Timing) -> bool {
        self.unmoved.is_some_and(|unmoved| now.since(unmoved.last) <= timing.append_timeout)
    }

    /// Returns true if this process has read the rows of all nodes. An alarm is in them.
    pub(super) fn has_rows(&self) -> bool {
        self.rows_read > Instant::ZERO
    }

    /// Returns true if the log was silent for `suspicion`, though its engine works. The rows must be
    /// younger than the first of the answers that showed the log unmoved. If the engine had lost
    /// frames by then, others may have reported them.
    pub(super) fn is_silent(&self, suspicion: Duration, now: Instant, timing: &Timing) -> bool {
        self.is_quiet(suspicion, now, timing) && self.has_young_rows()
    }

    /// Returns true if a claim after `suspicion` waits for younger rows alone, and they are not asked
    /// for yet. Notes that they are.
    pub(super) fn asks_rows(&mut self, suspicion: Duration, now: Instant, timing: &Timing) -> bool {
        let is_asked = self.rows_asked.is_some_and(|asked| now.since(asked) <= timing.append_timeout);
        let asks = self.is_quiet(suspicion, now, timing) && !self.has_young_rows() && !is_asked;
        if asks {
            self.rows_asked = Some(now);
        }
        asks
    }

    fn is_quiet(&self, suspicion: Duration, now: Instant, timing: &Timing) -> bool {
        let quiet = self.unmoved.is_some_and(|unmoved| unmoved.last.since(unmoved.since) >= timing.quiet);
        quiet && self.is_current(now, timing) && now.since(self.seen_at) >= suspicion
    }

    fn has_young_rows(&self) -> bool {
        self.unmoved.is_some_and(|unmoved| self.rows_read >= unmoved.since)
    }

    /// Returns true if frames are gone: the leader has reported less than was applied for longer
    /// than a leader that is cut off stays one.
    pub(super) fn shows_loss(&self, timing: &Timing) -> bool {
        self.short.is_some_and(|short| short.last.since(short.since) >= timing.loss)
    }
}
