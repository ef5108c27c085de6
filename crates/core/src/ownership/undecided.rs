//! One append until its outcome is certain.
//!
//! The engine may store a frame and lose the answer. It also refuses the retry of a frame that its
//! leader has, but that is not committed: then "wrong last sequence" is about our own frame. So
//! neither a timeout nor a refusal says that the frame is not stored. The next position of the log
//! does: it holds this frame, or the frame of another node. While it holds nothing, the same bytes
//! are sent again. No other frame leaves before the outcome is certain.

use super::{AppendId, AppendKind, AppendReply, NextFrame, Position};
use crate::time::Instant;
use std::time::Duration;

/// An append whose outcome is not known yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UndecidedAppend {
    pub(super) id: AppendId,
    pub(super) kind: AppendKind,
    /// The position that the frame gets if it is stored.
    pub(super) position: Position,
    /// The time of the first attempt: the lease counts from here, and a retry adds nothing.
    pub(super) first_sent: Instant,
    stage: Stage,
    may_be_stored: Certainty,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// An attempt is under way.
    Sent,
    /// The next position is being read.
    Reading,
    /// Nothing was found. The next attempt is due at this time.
    Waiting(Instant),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Certainty {
    /// Each attempt was refused before the engine took it.
    NotStored,
    /// An attempt may have been stored.
    Unknown,
}

/// What follows from an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing yet.
    Wait,
    /// Read the position of the frame.
    Read,
    /// Send the same bytes again.
    Resend,
    /// The log holds the frame.
    Stored,
    /// The log holds the frame of another node in its place.
    Fenced,
    /// The log is full, and does not hold the frame.
    Full,
}

impl UndecidedAppend {
    pub(super) fn new(id: AppendId, kind: AppendKind, position: Position, now: Instant) -> UndecidedAppend {
        UndecidedAppend {
            id,
            kind,
            position,
            first_sent: now,
            stage: Stage::Sent,
            may_be_stored: Certainty::NotStored,
        }
    }

    /// Takes an answer for an attempt. It may be late: a late answer is as true as one in time.
    pub(super) fn replied(&mut self, reply: AppendReply) -> Step {
        match reply {
            AppendReply::Stored => Step::Stored,
            AppendReply::Full if self.may_be_stored == Certainty::NotStored => Step::Full,
            AppendReply::Full | AppendReply::WrongLast | AppendReply::TimedOut => {
                self.may_be_stored = Certainty::Unknown;
                self.read_once()
            }
        }
    }

    fn read_once(&mut self) -> Step {
        if self.stage == Stage::Reading {
            return Step::Wait;
        }
        self.stage = Stage::Reading;
        Step::Read
    }

    /// Takes what the next position holds.
    pub(super) fn found(&mut self, next: NextFrame, now: Instant, retry: Duration) -> Step {
        match next {
            NextFrame::Ours => return Step::Stored,
            NextFrame::Another => return Step::Fenced,
            // A replica that lags shows nothing as well. An attempt too many is refused, one too
            // few would be the end.
            NextFrame::Nothing | NextFrame::Unknown if self.stage == Stage::Reading => {
                self.stage = Stage::Waiting(now + retry);
            }
            NextFrame::Nothing | NextFrame::Unknown => {}
        }
        Step::Wait
    }

    pub(super) fn tick(&mut self, now: Instant) -> Step {
        match self.stage {
            Stage::Waiting(until) if now >= until => {
                self.stage = Stage::Sent;
                Step::Resend
            }
            Stage::Waiting(_) | Stage::Sent | Stage::Reading => Step::Wait,
        }
    }

    /// Returns the time of the next attempt; [`Instant::NEVER`] while an answer is awaited.
    pub(super) fn wake_at(&self) -> Instant {
        match self.stage {
            Stage::Waiting(until) => until,
            Stage::Sent | Stage::Reading => Instant::NEVER,
        }
    }
}
