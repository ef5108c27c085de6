//! Changes of retained messages for which the present group has no room any more.
//!
//! They are not in the order of the batches. No change may be committed after a batch that came after
//! it, so while one waits here, no batch goes into a group.

use crate::persistence::records::RetainedRecord;
use crate::store::coalesce::CommitGroup;
use crate::time::Instant;

/// See the module.
#[derive(Debug)]
pub(super) struct RetainedQueue {
    /// The last change of each topic, in order. So a topic that changes again and again while the
    /// store waits has one.
    waiting: CommitGroup,
    /// The time at which the oldest one came; [`Instant::NEVER`] for none.
    since: Instant,
}

impl RetainedQueue {
    pub(super) fn new() -> RetainedQueue {
        RetainedQueue { waiting: CommitGroup::default(), since: Instant::NEVER }
    }

    /// Folds a change into the group if that is smaller than `most` bytes, and else keeps it.
    pub(super) fn take(
        &mut self,
        now: Instant,
        record: RetainedRecord,
        group: &mut CommitGroup,
        most: usize,
    ) {
        if self.is_empty() && group.size() < most {
            group.retain(record);
        } else {
            self.since = self.since.min(now);
            self.waiting.retain(record);
        }
    }

    /// Moves changes into a group until that has `most` bytes. Returns the time at which the oldest
    /// one came; [`Instant::NEVER`] if there was none.
    pub(super) fn give(&mut self, group: &mut CommitGroup, most: usize) -> Instant {
        if self.is_empty() || group.size() >= most {
            return Instant::NEVER;
        }
        let since = self.since;
        self.waiting.move_retained(group, most);
        if self.is_empty() {
            self.since = Instant::NEVER;
        }
        since
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.retained().is_empty()
    }

    /// Returns the number of changes that wait.
    pub(super) fn records(&self) -> u64 {
        self.waiting.recorded()
    }

    /// Returns the time at which the oldest one came; [`Instant::NEVER`] for none.
    pub(super) fn oldest(&self) -> Instant {
        self.since
    }
}
