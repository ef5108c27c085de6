//! The bucketed expiry queue: every deadline of the broker, rounded up to the end of its bucket.
//! Pure: the time is an argument.
//!
//! The idea is ZooKeeper's `ExpiryQueue`. A deadline counts as the end of the interval that
//! contains it. So a deadline that moves seldom changes its bucket, and one tick removes everything
//! that is due. ZooKeeper keeps two hash maps; this queue has a ring of buckets with slots, and an
//! index by slot. The index has the bucket of each slot and the position in that bucket. A deadline
//! beyond the span of the ring waits in its bucket and is skipped until its round comes, as in a
//! hashed wheel.
//!
//! Costs: `update` and `remove` write at most two slots in buckets and two cells of the index. An
//! update that changes nothing reads one cell. `poll` looks at no more slots than its budget. Each
//! key takes 20 bytes, and each bucket one chunk of slack.
//!
//! The owners have the true deadlines. A polled key may be stale, since owners register lazily. A
//! stale key does no harm, because owners compare with their own deadline before they act.

mod bucket;
mod index;
#[cfg(test)]
mod tests;
mod wheel;

use super::slot::SlotSpace;
use crate::time::{Instant, millis};
use bucket::Bucket;
use index::{Cell, Index};
use std::collections::BTreeMap;
use std::time::Duration;
pub use wheel::{KeysByKind, WheelCount};

/// Buckets in the ring: 256 s with a tick of 250 ms. So Keep Alives up to 170 s, which count one
/// and a half times, and all but the longest retry intervals stay within one round. The bucket
/// heads take 32 KiB.
const SPAN: u32 = 1024;

/// The key of a registration: an owner, and the life of that owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeadlineKey {
    /// The number of the owner and kind over all shards ([`super::slot::SlotSpace`]). The numbers
    /// are dense.
    pub slot: u32,
    /// The life of the slot, since slots are reused. Generations may wrap.
    pub generation: u32,
}

/// The result of work in portions: more is due now, or nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum More {
    /// The budget ended before the work did. Another call at the same time continues.
    Due,
    /// Nothing more is due.
    Nothing,
}

/// Segments of the index that one call of [`ExpiryQueue::survey`] looks at.
const SURVEYED: usize = 128;

/// A count of the keys whose buckets end by each of `N` times, made in stretches.
#[derive(Clone, Copy, Debug)]
pub struct QueueSurvey<const N: usize> {
    until: [Instant; N],
    /// The keys counted so far, for each of the times.
    pub due: [usize; N],
    segment: usize,
}

impl<const N: usize> QueueSurvey<N> {
    /// Starts a count of the keys that are due by each time of `until`.
    pub fn new(until: [Instant; N]) -> QueueSurvey<N> {
        QueueSurvey { until, due: [0; N], segment: 0 }
    }
}

/// The registered deadlines, by bucket and by slot.
pub struct ExpiryQueue {
    interval_ms: u64,
    /// The ring, with a power of two of buckets. One more bucket follows for keys that came too
    /// late for their own.
    buckets: Box<[Bucket]>,
    index: Index,
    /// The number of the first bucket that is not wholly polled. The bucket is due at `next *
    /// interval`.
    next: u64,
    /// The number of slots, from the start of bucket `next`, that a poll has yet to look at. `None`
    /// while no poll of the bucket has begun.
    unseen: Option<u32>,
    len: usize,
    /// The count by bucket and kind, while one is made.
    count: Option<Box<WheelCount>>,
}

impl ExpiryQueue {
    /// Creates an empty queue with buckets of width `interval`, in whole milliseconds. Less than 1
    /// ms counts as 1 ms.
    pub fn new(interval: Duration, now: Instant) -> ExpiryQueue {
        Self::with_span(interval, now, SPAN)
    }

    /// As [`new`](Self::new), with a ring of `buckets`, rounded up to a power of two, at most 2^20;
    /// 0 counts as 1.
    pub fn with_span(interval: Duration, now: Instant, buckets: u32) -> ExpiryQueue {
        let interval_ms = millis(interval).max(1);
        let buckets = buckets.clamp(1, 1 << 20).next_power_of_two();
        ExpiryQueue {
            interval_ms,
            buckets: (0..=buckets).map(|_| Bucket::default()).collect(),
            index: Index::default(),
            next: (now.as_millis() / interval_ms).saturating_add(1),
            unseen: None,
            len: 0,
            count: None,
        }
    }

    /// Returns the width of a bucket.
    pub fn interval(&self) -> Duration {
        Duration::from_millis(self.interval_ms)
    }

    /// Returns the time at which a deadline `t` counts as passed: the end of the interval that
    /// contains `t`.
    pub fn bucket(&self, t: Instant) -> Instant {
        self.boundary((t.as_millis() / self.interval_ms).saturating_add(1))
    }

    /// Returns the number of registered keys.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if no key is registered.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Registers or moves a key. Returns the end of its new bucket, or `None` if nothing changed.
    ///
    /// A slot has one registration. A newer generation replaces an older one, and an older one is
    /// ignored while a newer one is registered. "Newer" means less than 2^31 ahead, with wrapping.
    /// A deadline in a bucket that was already polled expires with the next poll.
    /// [`Instant::NEVER`] removes the key and returns `None`.
    pub fn update(&mut self, key: DeadlineKey, deadline: Instant) -> Option<Instant> {
        if deadline.is_never() {
            self.forget(key);
            return None;
        }
        let tick = self.tick(deadline);
        let old = self.index.cell(key.slot);
        if old.tick == tick && old.generation == key.generation {
            return None;
        }
        if old.is_registered() && is_older(key.generation, old.generation) {
            return None;
        }
        let open = if tick < self.first_open() { Cell::LATE } else { tick };
        if old.tick == tick || old.tick == open {
            self.index.cell_mut(key.slot).generation = key.generation;
            return (old.generation != key.generation).then(|| self.boundary(tick));
        }
        // Before the push: if the new deadline is in the same bucket in another round, the position
        // would be wrong.
        if old.is_registered() {
            self.leave(old);
        }
        if let Some(count) = &mut self.count {
            count.moved(key.slot, old.is_registered().then_some(old.tick), Some(open));
        }
        let position = self.bucket_of(open).push(key.slot);
        let new = Cell { tick: open, generation: key.generation, position };
        if old.is_registered() {
            *self.index.cell_mut(key.slot) = new;
        } else {
            self.index.insert(key.slot, new);
            self.len += 1;
        }
        Some(self.boundary(tick))
    }

    /// Removes a key. Returns false if the slot is not registered with this generation.
    pub fn remove(&mut self, key: DeadlineKey) -> bool {
        self.index.cell(key.slot).generation == key.generation && self.forget(key)
    }

    /// Returns the end of the first bucket with a key in it, which may be in the past; `None`
    /// without keys.
    ///
    /// Looks at each bucket head at most once. A bucket whose keys all wait for a later round
    /// counts too: polling it is then cheap and returns nothing.
    pub fn next_boundary(&self) -> Option<Instant> {
        if self.len == 0 {
            return None;
        }
        if self.late().len() > 0 {
            return Some(self.boundary(self.next - 1));
        }
        (self.next..self.next + self.span())
            .find(|tick| self.buckets[self.at(*tick)].len() > 0)
            .map(|tick| self.boundary(tick))
    }

    /// Returns the time in which nothing can be due: zero if a key is due, [`Duration::MAX`]
    /// without keys.
    #[cfg(test)]
    pub fn wait_time(&self, now: Instant) -> Duration {
        self.next_boundary().map_or(Duration::MAX, |boundary| boundary.since(now))
    }

    /// Appends to `out` the keys whose bucket has ended, and removes their registrations. Keys of
    /// one bucket come in any order.
    ///
    /// Looks at `budget` entries at most, and at least one. Entries that wait for a later round
    /// count too, so the time of a poll is bounded however much is due. The next poll continues at
    /// the same place. After a stall longer than the span of the ring, every bucket is visited
    /// once, not once for each missed tick.
    pub fn poll(&mut self, now: Instant, budget: usize, out: &mut Vec<DeadlineKey>) -> More {
        let passed = (now.as_millis() / self.interval_ms).min(u64::MAX - 1);
        let mut budget = budget.max(1);
        let late = self.span() as usize;
        let unseen = self.late().len();
        self.sweep(late, unseen, passed, &mut budget, out);
        while self.next <= passed {
            self.skip(passed);
            let at = self.at(self.next);
            // There are fewer if some were removed since.
            let unseen = self.buckets[at].len().min(self.unseen.unwrap_or(u32::MAX));
            let unseen = self.sweep(at, unseen, passed, &mut budget, out);
            self.unseen = (unseen > 0).then_some(unseen);
            if unseen > 0 {
                return More::Due;
            }
            self.next += 1;
        }
        if self.late().len() > 0 { More::Due } else { More::Nothing }
    }

    /// Returns the end and the number of keys of each bucket with keys, earliest first. Walks over
    /// every key, so it is for an operator only.
    pub fn dump(&self) -> Vec<(Instant, usize)> {
        let mut sizes = BTreeMap::new();
        for (_, cell) in self.index.registered() {
            let tick = self.ends(*cell);
            *sizes.entry(tick).or_insert(0) += 1;
        }
        sizes.into_iter().map(|(tick, size)| (self.boundary(tick), size)).collect()
    }

    /// Returns the slot of every key and the end of its bucket. Walks over every key, as
    /// [`dump`](Self::dump).
    pub fn walk(&self) -> impl Iterator<Item = (u32, Instant)> {
        self.index.registered().map(|(slot, cell)| (slot, self.boundary(self.ends(*cell))))
    }

    /// Returns the number of keys whose buckets end within `ahead`. Walks over every key, as
    /// [`dump`](Self::dump).
    #[cfg(test)]
    pub fn due_within(&self, now: Instant, ahead: Duration) -> usize {
        let mut survey = QueueSurvey::new([now + ahead]);
        while self.survey(&mut survey) == More::Due {}
        survey.due[0]
    }

    /// Continues a survey with the next 131,072 slots. Returns [`More::Due`] while slots are left.
    /// Do not call it again after [`More::Nothing`]: the last slots would count twice.
    ///
    /// Costs one comparison for each slot and time, some 0.3 ms in all, and no allocation. A key
    /// that moves between two calls counts with its bucket at the time when its slot is visited.
    pub fn survey<const N: usize>(&self, survey: &mut QueueSurvey<N>) -> More {
        let last = survey.until.map(|until| until.as_millis() / self.interval_ms);
        for (_, cell) in self.index.registered_from(survey.segment, SURVEYED) {
            let tick = self.ends(*cell);
            for (count, last) in survey.due.iter_mut().zip(last) {
                *count += usize::from(tick <= last);
            }
        }
        match self.index.stretch_end(survey.segment, SURVEYED) {
            Some(next) => {
                survey.segment = next;
                More::Due
            }
            None => More::Nothing,
        }
    }

    /// Starts a count of all keys by bucket and kind, unless one is under way. `slots` is the
    /// numbering of the keys' slots.
    pub fn begin_count(&mut self, slots: SlotSpace) {
        if self.count.is_none() {
            let span = self.buckets.len() - 1;
            self.count = Some(Box::new(WheelCount::new(slots, self.interval_ms, self.next, span)));
        }
    }

    /// Continues the count with the next 65,536 slots, some 0.3 ms. Returns the count at its end,
    /// when it has every key once; `None` before that, and if no count is under way.
    pub fn count_on(&mut self) -> Option<Box<WheelCount>> {
        let is_done = self.count.as_mut()?.count_on(&self.index);
        if is_done { self.count.take() } else { None }
    }

    /// Returns the number of buckets with keys. Buckets of several rounds share one place. Looks at
    /// each bucket head.
    pub fn buckets_in_use(&self) -> usize {
        self.buckets.iter().filter(|bucket| bucket.len() > 0).count()
    }

    /// Returns the bytes that this queue requested from the allocator, without a count under way.
    pub fn allocated(&self) -> usize {
        let slots: usize = self.buckets.iter().map(Bucket::allocated).sum();
        slots + size_of_val::<[Bucket]>(&self.buckets) + self.index.allocated()
    }

    /// Returns the number of the bucket of a registration. A key that came too late counts to the
    /// last polled bucket.
    fn ends(&self, cell: Cell) -> u64 {
        if cell.tick == Cell::LATE { self.next - 1 } else { cell.tick }
    }

    fn boundary(&self, tick: u64) -> Instant {
        Instant::from_millis(tick.saturating_mul(self.interval_ms))
    }

    /// Returns the number of the bucket for a deadline: from 1, and below the number of
    /// [`Cell::NOTHING`].
    fn tick(&self, deadline: Instant) -> u64 {
        (deadline.as_millis() / self.interval_ms).saturating_add(1).min(u64::MAX - 1)
    }

    fn span(&self) -> u64 {
        self.buckets.len() as u64 - 1
    }

    /// Returns the place of a bucket number in the ring.
    fn at(&self, tick: u64) -> usize {
        (tick & (self.span() - 1)) as usize
    }

    fn late(&self) -> &Bucket {
        &self.buckets[self.buckets.len() - 1]
    }

    fn bucket_of(&mut self, tick: u64) -> &mut Bucket {
        let at = if tick == Cell::LATE { self.buckets.len() - 1 } else { self.at(tick) };
        &mut self.buckets[at]
    }

    /// Returns the first bucket that accepts keys. A key for an earlier bucket is late.
    fn first_open(&self) -> u64 {
        // A poll that is half through a bucket does not see keys that are appended behind it.
        self.next + u64::from(self.unseen.is_some())
    }

    /// Removes a key unless a newer generation is registered. Returns true if it was removed.
    fn forget(&mut self, key: DeadlineKey) -> bool {
        let cell = self.index.cell(key.slot);
        if !cell.is_registered() || is_older(key.generation, cell.generation) {
            return false;
        }
        self.leave(cell);
        self.index.remove(key.slot);
        self.len -= 1;
        if let Some(count) = &mut self.count {
            count.moved(key.slot, Some(cell.tick), None);
        }
        true
    }

    /// Removes the slot of `cell` from its bucket. The caller must replace or remove the cell
    /// afterwards.
    fn leave(&mut self, cell: Cell) {
        let moved = self.bucket_of(cell.tick).swap_remove(cell.position);
        self.index.cell_mut(moved).position = cell.position;
    }

    /// Skips ticks whose buckets a later tick up to `passed` visits again. Does nothing in the
    /// middle of a bucket.
    fn skip(&mut self, passed: u64) {
        if self.unseen.is_some() {
            return;
        }
        if self.len == 0 {
            self.next = passed;
        }
        // As many last ticks as the ring has buckets visit every bucket once. Each visit takes all
        // that is due by `passed`.
        self.next = self.next.max((passed + 1).saturating_sub(self.span()));
    }

    /// Moves the keys that are due by `passed` from the bucket `at` to `out`. Looks at the first
    /// `unseen` slots of the bucket, as far as `budget` allows. Returns the number of slots that
    /// are left.
    fn sweep(
        &mut self,
        at: usize,
        unseen: u32,
        passed: u64,
        budget: &mut usize,
        out: &mut Vec<DeadlineKey>,
    ) -> u32 {
        let bucket = &mut self.buckets[at];
        let left = unseen.saturating_sub(u32::try_from(*budget).unwrap_or(u32::MAX));
        *budget -= (unseen - left) as usize;
        let before = out.len();
        // From the end down, so that a last slot that fills a hole was always looked at before.
        for position in (left..unseen).rev() {
            let slot = bucket.slot(position);
            let before = self.count.is_some().then(|| self.index.cell(slot).tick);
            let Some(generation) = self.index.take_due(slot, passed) else { continue };
            if let Some(count) = &mut self.count {
                count.moved(slot, before, None);
            }
            out.push(DeadlineKey { slot, generation });
            if position + 1 == bucket.len() {
                bucket.pop();
            } else {
                let moved = bucket.swap_remove(position);
                self.index.cell_mut(moved).position = position;
            }
        }
        self.len -= out.len() - before;
        left
    }
}

/// True if `a` is an earlier life than `b`. Generations wrap.
fn is_older(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) > u32::MAX / 2
}
