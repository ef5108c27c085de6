//! Whether the recovery of a new owner goes on. A large store takes its time, and a disk that hangs
//! must not keep the cell: a recovery that does nothing for a while sends no beats, so a standby
//! claims. It may go on all the same. If nobody has claimed by then, it keeps the cell.

use super::{Progress, Timing};
use crate::time::Instant;

/// What a recovery had done, and since when it has done no more.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecoveryWatch {
    done: u64,
    since: Instant,
}

impl RecoveryWatch {
    pub(super) fn new(now: Instant) -> RecoveryWatch {
        RecoveryWatch { done: 0, since: now }
    }

    /// Takes how much is done by now, and returns whether the recovery goes on.
    pub(super) fn look(&mut self, done: u64, now: Instant, timing: &Timing) -> Progress {
        if done != self.done {
            *self = RecoveryWatch { done, since: now };
        }
        if now.since(self.since) >= timing.recovery { Progress::Stuck } else { Progress::Moving }
    }
}
