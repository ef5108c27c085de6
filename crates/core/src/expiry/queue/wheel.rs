//! A count of all keys by bucket and kind, made in stretches while the queue changes.
//!
//! The count is exact at the moment when its last stretch ends. The queue reports each change of a
//! slot that was counted already, and the count follows it. While nobody counts, a change costs one
//! comparison more. Each bucket could count its own keys instead, but then every move of a deadline
//! would pay for it, and the kinds would be missing.

use super::index::{Index, SEGMENT};
use crate::expiry::deadline::DeadlineKind;
use crate::expiry::slot::SlotSpace;
use crate::time::Instant;
use std::time::Duration;

/// Segments of the index in a stretch: 65,536 slots, some 0.3 ms.
const STRETCH: usize = 64;

/// Numbers of keys, by kind.
pub type KeysByKind = [u32; DeadlineKind::COUNT];

/// The keys of each bucket that is due within one round of the ring.
#[derive(Clone, Debug)]
pub struct WheelCount {
    interval_ms: u64,
    slots: SlotSpace,
    /// The number of the first bucket.
    first: u64,
    /// The keys of the buckets from `first` on.
    buckets: Vec<KeysByKind>,
    overdue: KeysByKind,
    later: KeysByKind,
    /// The segments before this one are counted.
    segment: usize,
}

impl WheelCount {
    /// Starts a count of `span` buckets, from the one that is polled next.
    pub(super) fn new(slots: SlotSpace, interval_ms: u64, first: u64, span: usize) -> WheelCount {
        WheelCount {
            interval_ms,
            slots,
            first,
            buckets: vec![[0; DeadlineKind::COUNT]; span],
            overdue: [0; DeadlineKind::COUNT],
            later: [0; DeadlineKind::COUNT],
            segment: 0,
        }
    }

    /// Counts the next stretch. Returns true if none is left.
    pub(super) fn count_on(&mut self, index: &Index) -> bool {
        for (slot, cell) in index.registered_from(self.segment, STRETCH) {
            *self.place(slot, cell.tick) += 1;
        }
        let next = index.stretch_end(self.segment, STRETCH);
        self.segment = next.unwrap_or(usize::MAX);
        next.is_none()
    }

    /// Follows a change of one slot: its bucket before, and its bucket now. `None` means that the
    /// slot is not registered. A slot that is not counted yet is counted with its bucket later.
    pub(super) fn moved(&mut self, slot: u32, before: Option<u64>, now: Option<u64>) {
        if slot as usize / SEGMENT >= self.segment {
            return;
        }
        if let Some(tick) = before {
            *self.place(slot, tick) -= 1;
        }
        if let Some(tick) = now {
            *self.place(slot, tick) += 1;
        }
    }

    fn place(&mut self, slot: u32, tick: u64) -> &mut u32 {
        let kind = self.slots.kind(slot) as usize;
        let place = match tick.checked_sub(self.first) {
            // Also the number of keys that came too late for their bucket.
            None => return &mut self.overdue[kind],
            Some(ahead) => usize::try_from(ahead).ok().filter(|at| *at < self.buckets.len()),
        };
        match place {
            Some(at) => &mut self.buckets[at][kind],
            None => &mut self.later[kind],
        }
    }

    /// Returns the width of a bucket.
    pub fn interval(&self) -> Duration {
        Duration::from_millis(self.interval_ms)
    }

    /// Returns the end and the keys of each bucket of the ring, the earliest first, with the empty
    /// ones.
    pub fn buckets(&self) -> impl Iterator<Item = (Instant, &KeysByKind)> {
        (self.first..)
            .zip(&self.buckets)
            .map(|(tick, keys)| (Instant::from_millis(tick.saturating_mul(self.interval_ms)), keys))
    }

    /// Returns the keys whose buckets had ended when the count began.
    pub fn overdue(&self) -> &KeysByKind {
        &self.overdue
    }

    /// Returns the keys that are due in a later round.
    pub fn later(&self) -> &KeysByKind {
        &self.later
    }

    /// Returns the number of all keys.
    pub fn keys(&self) -> u64 {
        let all = self.buckets.iter().chain([&self.overdue, &self.later]);
        all.flatten().map(|keys| u64::from(*keys)).sum()
    }
}
