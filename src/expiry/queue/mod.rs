//! The bucketed expiry queue: every deadline of the broker, rounded up to buckets. Pure: told the time.
//!
//! ZooKeeper's `ExpiryQueue` is the idea: a deadline counts as the end of the interval it is in, so that one that moves
//! seldom changes its bucket and one tick takes out everything due. The two hash maps it keeps are not:
//! a ring of buckets holds the slots, an index by slot says when each is due and where in its bucket it is. A deadline beyond
//! the ring's span waits in its bucket and is passed over until its round has come, as in a hashed wheel.
//!
//! Costs: `update` and `remove` touch at most two slots in buckets and two cells of the index; an update that changes
//! nothing reads one cell. `poll` looks at no more slots than its budget. 20 bytes a key, and a chunk of slack a bucket.
//!
//! Not here: the owners' true deadlines. What is polled may be stale, since owners register lazily; they compare
//! with their own deadline before they act, so a stale key is harmless.

mod bucket;
mod index;
#[cfg(test)]
mod tests;

use crate::time::Instant;
use bucket::Bucket;
use index::{Cell, Index};
use std::collections::BTreeMap;
use std::time::Duration;

/// Buckets in the ring: 256 s at an interval of 250 ms, so keep alives and all but the longest
/// retransmit intervals never go round. 32 KiB of bucket heads.
const SPAN: u32 = 1024;

/// Dense slot plus generation: which owner and which life of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    pub slot: u32,
    pub generation: u32,
}

/// Whether another `poll` at the same time would hand out more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum More {
    /// The budget ended before what is due did.
    Due,
    Nothing,
}

/// Segments of the index that a survey looks at in one go.
const SURVEYED: usize = 128;

/// A count of keys whose buckets end by each of some times, made in stretches.
#[derive(Clone, Copy, Debug)]
pub struct Survey<const N: usize> {
    until: [Instant; N],
    pub due: [usize; N],
    segment: usize,
}

impl<const N: usize> Survey<N> {
    pub fn new(until: [Instant; N]) -> Survey<N> {
        Survey { until, due: [0; N], segment: 0 }
    }
}

/// See the module's text.
pub struct ExpiryQueue {
    interval_ms: u64,
    /// The ring, a power of two, then the bucket of what was registered too late for its own.
    buckets: Box<[Bucket]>,
    index: Index,
    /// The first bucket not wholly polled, by number: it is due at `next * interval`.
    next: u64,
    /// Slots of that bucket a poll has yet to look at, from its start; nothing while none has begun.
    unseen: Option<u32>,
    len: usize,
}

impl ExpiryQueue {
    /// An empty queue of buckets `interval` apart (counted as a millisecond if shorter).
    pub fn new(interval: Duration, now: Instant) -> ExpiryQueue {
        Self::with_span(interval, now, SPAN)
    }

    /// As [`new`](Self::new) with a ring of `buckets`, rounded up to a power of two.
    pub fn with_span(interval: Duration, now: Instant, buckets: u32) -> ExpiryQueue {
        let interval_ms = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX).max(1);
        let buckets = buckets.clamp(1, 1 << 20).next_power_of_two();
        ExpiryQueue {
            interval_ms,
            buckets: (0..=buckets).map(|_| Bucket::default()).collect(),
            index: Index::default(),
            next: (now.as_millis() / interval_ms).saturating_add(1),
            unseen: None,
            len: 0,
        }
    }

    pub fn interval(&self) -> Duration {
        Duration::from_millis(self.interval_ms)
    }

    /// When a deadline counts as passed: the end of the interval that `t` is in.
    pub fn bucket(&self, t: Instant) -> Instant {
        self.boundary((t.as_millis() / self.interval_ms).saturating_add(1))
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Registers or moves a key; answers its new bucket, or nothing where that is unchanged.
    ///
    /// One registration a slot: a newer generation takes the place of an older one, an older one is ignored while a
    /// newer one is registered. "Newer" is less than 2^31 ahead, wrapping, so generations may. A bucket
    /// already polled means the next poll. [`Instant::NEVER`] removes, and answers nothing.
    pub fn update(&mut self, key: Key, deadline: Instant) -> Option<Instant> {
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
        // Before the push: of the same bucket, in another round, the position would not hold.
        if old.is_registered() {
            self.leave(old);
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

    /// Forgets a key; false if it, in this generation, is not registered.
    pub fn remove(&mut self, key: Key) -> bool {
        self.index.cell(key.slot).generation == key.generation && self.forget(key)
    }

    /// The end of the first bucket with anything in it; past if something is due since. Looks at each list head at most once.
    ///
    /// A bucket whose entries all wait for a later round counts: polling it is then cheap and hands out nothing.
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

    /// How long nothing can be due: zero if something is, [`Duration::MAX`] if nothing is registered.
    pub fn wait_time(&self, now: Instant) -> Duration {
        self.next_boundary().map_or(Duration::MAX, |boundary| boundary.since(now))
    }

    /// Hands out keys whose bucket has ended, in no order within a bucket; they are registered no more.
    ///
    /// Looks at `budget` entries at most (at least one), those that go round again included, so a poll's time is bounded
    /// however much is due; it goes on where it stopped. After a stall longer than the ring's span
    /// every bucket is visited once, not once a missed tick.
    pub fn poll(&mut self, now: Instant, budget: usize, out: &mut Vec<Key>) -> More {
        let passed = (now.as_millis() / self.interval_ms).min(u64::MAX - 1);
        let mut budget = budget.max(1);
        let late = self.span() as usize;
        let unseen = self.late().len();
        self.sweep(late, unseen, passed, &mut budget, out);
        while self.next <= passed {
            self.skip(passed);
            let at = self.at(self.next);
            // Fewer are left if some were taken out since.
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

    /// Buckets with keys in them, earliest first, with the end and size of each. Walks over every key: for an operator's eyes.
    pub fn dump(&self) -> Vec<(Instant, usize)> {
        let mut sizes = BTreeMap::new();
        for (_, cell) in self.index.registered() {
            let tick = self.ends(*cell);
            *sizes.entry(tick).or_insert(0) += 1;
        }
        sizes.into_iter().map(|(tick, size)| (self.boundary(tick), size)).collect()
    }

    /// Every key's slot, and the end of its bucket. Walks over every key, as [`dump`](Self::dump).
    pub fn walk(&self) -> impl Iterator<Item = (u32, Instant)> {
        self.index.registered().map(|(slot, cell)| (slot, self.boundary(self.ends(*cell))))
    }

    /// How many keys' buckets end within `ahead`. Walks over every key, as [`dump`](Self::dump).
    pub fn due_within(&self, now: Instant, ahead: Duration) -> usize {
        let mut survey = Survey::new([now + ahead]);
        while self.survey(&mut survey) == More::Due {}
        survey.due[0]
    }

    /// Counts on in a survey: one comparison a time for each of the next 131,072 slots, some 0.3 ms, and no allocation. A key that
    /// moves between two calls is counted as it is when its slot's turn comes.
    pub fn survey<const N: usize>(&self, survey: &mut Survey<N>) -> More {
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

    /// Buckets of the ring in use; those of several rounds share one. Looks at each of them.
    pub fn buckets_in_use(&self) -> usize {
        self.buckets.iter().filter(|bucket| bucket.len() > 0).count()
    }

    /// Bytes this queue has from the allocator.
    pub fn allocated(&self) -> usize {
        let slots: usize = self.buckets.iter().map(Bucket::allocated).sum();
        slots + size_of_val::<[Bucket]>(&self.buckets) + self.index.allocated()
    }

    /// The number of the bucket that a registration counts as: what came too late counts as the last one polled.
    fn ends(&self, cell: Cell) -> u64 {
        if cell.tick == Cell::LATE { self.next - 1 } else { cell.tick }
    }

    fn boundary(&self, tick: u64) -> Instant {
        Instant::from_millis(tick.saturating_mul(self.interval_ms))
    }

    /// The number of the bucket for a deadline, from 1, and short of that of [`Cell::NOTHING`].
    fn tick(&self, deadline: Instant) -> u64 {
        (deadline.as_millis() / self.interval_ms).saturating_add(1).min(u64::MAX - 1)
    }

    fn span(&self) -> u64 {
        self.buckets.len() as u64 - 1
    }

    /// Where in the ring the bucket of this number is.
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

    /// The first bucket that a key can yet be put into: one for an earlier bucket is late.
    fn first_open(&self) -> u64 {
        // A poll half through a bucket does not see what is added behind it.
        self.next + u64::from(self.unseen.is_some())
    }

    /// Takes a key out unless a newer generation is registered.
    fn forget(&mut self, key: Key) -> bool {
        let cell = self.index.cell(key.slot);
        if !cell.is_registered() || is_older(key.generation, cell.generation) {
            return false;
        }
        self.leave(cell);
        self.index.remove(key.slot);
        self.len -= 1;
        true
    }

    /// Takes the slot of `cell`, which is no longer true after, out of its bucket.
    fn leave(&mut self, cell: Cell) {
        let moved = self.bucket_of(cell.tick).swap_remove(cell.position);
        self.index.cell_mut(moved).position = cell.position;
    }

    /// Before a bucket is begun: passes over ticks whose buckets would only be visited again within `passed`.
    fn skip(&mut self, passed: u64) {
        if self.unseen.is_some() {
            return;
        }
        if self.len == 0 {
            self.next = passed;
        }
        // The last ticks, as many as the ring has, visit every bucket once, and a visit takes all that is due by `passed`.
        self.next = self.next.max((passed + 1).saturating_sub(self.span()));
    }

    /// Takes what is due by `passed` out of the bucket `at`. Looks at its first `unseen` slots, as far as the budget goes;
    /// answers how many are left.
    fn sweep(&mut self, at: usize, unseen: u32, passed: u64, budget: &mut usize, out: &mut Vec<Key>) -> u32 {
        let bucket = &mut self.buckets[at];
        let left = unseen.saturating_sub(u32::try_from(*budget).unwrap_or(u32::MAX));
        *budget -= (unseen - left) as usize;
        let before = out.len();
        // From the end down, so that filling a hole with the last slot never hides one.
        for position in (left..unseen).rev() {
            let slot = bucket.slot(position);
            let Some(generation) = self.index.take_due(slot, passed) else { continue };
            out.push(Key { slot, generation });
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

/// Whether `a` is an earlier life than `b`, generations wrapping.
fn is_older(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) > u32::MAX / 2
}
