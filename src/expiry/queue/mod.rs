//! The bucketed expiry queue: every deadline of the broker, rounded up to buckets. Pure: told the time.
//!
//! ZooKeeper's `ExpiryQueue` is the idea: a deadline counts as the end of the interval it is in, so that one that moves
//! seldom changes its bucket and one tick takes out everything due. The two hash maps it keeps are not:
//! a ring of lists holds the entries, an index by slot says where each one is. A deadline beyond
//! the ring's span waits in its bucket and is passed over until its round has come, as in a hashed wheel.
//!
//! Costs: `update` and `remove` touch at most two entries and two index cells. `poll` looks at no more
//! entries than its budget. 16 bytes a key, and under 2 for the tables that find chunks.
//!
//! Not here: the owners' true deadlines. What is polled may be stale, since owners register lazily; they compare
//! with their own deadline before they act, so a stale key is harmless.

mod lists;
mod positions;
#[cfg(test)]
mod tests;

use crate::time::Instant;
use lists::{Entry, Lists, NONE};
use positions::Positions;
use std::collections::BTreeMap;
use std::time::Duration;

/// Buckets in the ring: 256 s at an interval of 250 ms, so keep alives and all but the longest
/// retransmit intervals never go round. 8 KiB of list heads.
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

/// See the module's text.
pub struct ExpiryQueue {
    interval_ms: u64,
    /// Ring of `overdue` lists, one a bucket, then the list of what was registered too late for its bucket.
    lists: Lists,
    /// The number of buckets, a power of two, and of the list behind them.
    overdue: u32,
    positions: Positions,
    /// The first bucket not wholly polled, by number: it is due at `next * interval`.
    next: u64,
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
            lists: Lists::new(buckets + 1),
            overdue: buckets,
            positions: Positions::default(),
            next: (now.as_millis() / interval_ms).saturating_add(1),
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
        let location = self.positions.of(key.slot);
        let registered = (location != NONE).then(|| self.lists.entry(location));
        if registered.is_some_and(|entry| is_older(key.generation, entry.generation)) {
            return None;
        }
        if deadline.is_never() {
            if registered.is_some() {
                self.take(location, key.slot);
            }
            return None;
        }
        let tick = self.tick(deadline);
        match registered {
            Some(entry) if self.holds(location, entry, tick) => {
                if entry.generation == key.generation {
                    return None;
                }
                self.lists.entry_mut(location).generation = key.generation;
            }
            Some(_) => {
                self.take(location, key.slot);
                self.place(key, tick);
            }
            None => self.place(key, tick),
        }
        Some(self.bucket(deadline))
    }

    /// Forgets a key; false if it, in this generation, is not registered.
    pub fn remove(&mut self, key: Key) -> bool {
        let location = self.positions.of(key.slot);
        if location == NONE || self.lists.entry(location).generation != key.generation {
            return false;
        }
        self.take(location, key.slot);
        true
    }

    /// The end of the first bucket with anything in it; past if something is due since. Looks at each list head at most once.
    ///
    /// A bucket whose entries all wait for a later round counts: polling it is then cheap and hands out nothing.
    pub fn next_boundary(&self) -> Option<Instant> {
        if self.len == 0 {
            return None;
        }
        if self.lists.len(self.overdue) > 0 {
            return Some(self.boundary(self.next - 1));
        }
        (self.next..self.next + u64::from(self.overdue))
            .find(|tick| self.lists.len(self.list(*tick)) > 0)
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
        let passed = (now.as_millis() / self.interval_ms).min(self.last_tick());
        let mut budget = budget.max(1);
        self.poll_overdue(&mut budget, out);
        while self.next <= passed {
            self.skip(passed);
            if !self.poll_bucket(passed, &mut budget, out) {
                return More::Due;
            }
            self.next += 1;
        }
        if self.lists.len(self.overdue) > 0 { More::Due } else { More::Nothing }
    }

    /// Buckets with keys in them, earliest first, with the end and size of each. Walks over every key: for an operator's eyes.
    pub fn dump(&self) -> Vec<(Instant, usize)> {
        let mut sizes = BTreeMap::new();
        for list in 0..self.overdue {
            for entry in self.lists.iter(list) {
                *sizes.entry(self.tick_of(list, entry.round)).or_insert(0) += 1;
            }
        }
        let overdue = self.lists.len(self.overdue);
        if overdue > 0 {
            *sizes.entry(self.next - 1).or_insert(0) += overdue;
        }
        sizes.into_iter().map(|(tick, size)| (self.boundary(tick), size)).collect()
    }

    /// How many keys' buckets end within `ahead`. Walks over every key, as [`dump`](Self::dump).
    pub fn due_within(&self, now: Instant, ahead: Duration) -> usize {
        let until = now + ahead;
        self.dump().into_iter().take_while(|(boundary, _)| *boundary <= until).map(|(_, size)| size).sum()
    }

    /// Lists of the ring in use; those of several rounds share one. Looks at each list head.
    pub fn buckets_in_use(&self) -> usize {
        (0..=self.overdue).filter(|list| self.lists.len(*list) > 0).count()
    }

    /// Bytes this queue has from the allocator.
    pub fn allocated(&self) -> usize {
        self.lists.allocated() + self.positions.allocated()
    }

    fn boundary(&self, tick: u64) -> Instant {
        Instant::from_millis(tick.saturating_mul(self.interval_ms))
    }

    /// The number of the bucket for a deadline, clamped to what an entry can hold: 2^32 rounds of the ring, 139 years at 1 ms.
    fn tick(&self, deadline: Instant) -> u64 {
        (deadline.as_millis() / self.interval_ms).saturating_add(1).min(self.last_tick())
    }

    fn last_tick(&self) -> u64 {
        (u64::from(u32::MAX) + 1) * u64::from(self.overdue) - 1
    }

    fn list(&self, tick: u64) -> u32 {
        (tick & u64::from(self.overdue - 1)) as u32
    }

    fn tick_of(&self, list: u32, round: u32) -> u64 {
        u64::from(round) * u64::from(self.overdue) + u64::from(list)
    }

    /// The first bucket that a new entry can go into: one for an earlier bucket belongs with the overdue.
    fn first_open(&self) -> u64 {
        // The walk over a bucket half polled does not see what is added behind it.
        self.next + u64::from(self.lists.is_sweeping())
    }

    /// Whether an entry is where one of this tick belongs.
    fn holds(&self, location: u32, entry: Entry, tick: u64) -> bool {
        let list = self.lists.list_of(location);
        if list == self.overdue { tick < self.first_open() } else { self.tick_of(list, entry.round) == tick }
    }

    fn place(&mut self, key: Key, tick: u64) {
        let list = if tick < self.first_open() { self.overdue } else { self.list(tick) };
        // At most `u32::MAX`: ticks are clamped to `last_tick`.
        let round = (tick / u64::from(self.overdue)) as u32;
        let Key { slot, generation } = key;
        let location = self.lists.push(list, Entry { slot, generation, round });
        self.positions.set(slot, location);
        self.len += 1;
    }

    fn take(&mut self, location: u32, slot: u32) {
        if let Some(moved) = self.lists.swap_remove(location) {
            self.positions.set(moved, location);
        }
        self.positions.set(slot, NONE);
        self.len -= 1;
    }

    fn poll_overdue(&mut self, budget: &mut usize, out: &mut Vec<Key>) {
        while *budget > 0 {
            let Some(Entry { slot, generation, .. }) = self.lists.pop(self.overdue) else { return };
            *budget -= 1;
            self.len -= 1;
            self.positions.set(slot, NONE);
            out.push(Key { slot, generation });
        }
    }

    /// Before a bucket is begun: passes over ticks whose buckets would only be visited again within `passed`.
    fn skip(&mut self, passed: u64) {
        if self.lists.is_sweeping() {
            return;
        }
        if self.len == 0 {
            self.next = passed;
        }
        // The last `overdue` ticks visit every list once, and a visit takes all that is due by `passed`.
        self.next = self.next.max((passed + 1).saturating_sub(u64::from(self.overdue)));
    }

    /// Takes what is due out of the bucket `next`; false if the budget ended before the bucket did.
    fn poll_bucket(&mut self, passed: u64, budget: &mut usize, out: &mut Vec<Key>) -> bool {
        let list = self.list(self.next);
        self.lists.begin_sweep(list);
        while *budget > 0 {
            let Some((location, entry)) = self.lists.step_sweep() else { return true };
            *budget -= 1;
            if self.tick_of(list, entry.round) <= passed {
                self.take(location, entry.slot);
                out.push(Key { slot: entry.slot, generation: entry.generation });
            }
        }
        !self.lists.sweep_has_more()
    }
}

/// Whether `a` is an earlier life than `b`, generations wrapping.
fn is_older(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) > u32::MAX / 2
}
