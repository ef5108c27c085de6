//! The queue by example, then against a naive model.

use super::*;
use crate::expiry::deadline::DeadlineKind;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::HashMap;

const INTERVAL: u64 = 10;
/// A ring so short that deadlines go round it often.
const SHORT: u32 = 8;

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

fn key(slot: u32) -> DeadlineKey {
    DeadlineKey { slot, generation: 0 }
}

fn queue() -> ExpiryQueue {
    ExpiryQueue::with_span(Duration::from_millis(INTERVAL), at(0), SHORT)
}

/// Polls once with room for everything.
fn due(queue: &mut ExpiryQueue, now: u64) -> Vec<u32> {
    let mut out = Vec::new();
    assert_eq!(queue.poll(at(now), usize::MAX, &mut out), More::Nothing);
    let mut slots: Vec<u32> = out.into_iter().map(|key| key.slot).collect();
    slots.sort_unstable();
    slots
}

#[test]
fn a_deadline_counts_as_the_end_of_its_interval() {
    let queue = queue();
    assert_eq!(queue.bucket(at(0)), at(10));
    assert_eq!(queue.bucket(at(9)), at(10));
    assert_eq!(queue.bucket(at(10)), at(20));
    assert_eq!(queue.bucket(Instant::NEVER), Instant::NEVER);
}

#[test]
fn a_key_is_handed_out_once_at_its_bucket_and_not_before() {
    let mut queue = queue();
    assert_eq!(queue.update(key(3), at(25)), Some(at(30)));
    assert!(due(&mut queue, 29).is_empty());
    assert_eq!(due(&mut queue, 30), [3]);
    assert!(due(&mut queue, 1_000).is_empty());
    assert!(queue.is_empty());
    assert_eq!(queue.update(key(3), at(1_001)), Some(at(1_010)));
    assert_eq!(due(&mut queue, 1_010), [3]);
}

#[test]
fn a_change_within_the_bucket_is_no_change() {
    let mut queue = queue();
    assert_eq!(queue.update(key(0), at(20)), Some(at(30)));
    assert_eq!(queue.update(key(0), at(29)), None);
    assert_eq!(queue.update(key(0), at(30)), Some(at(40)));
    assert_eq!(queue.update(key(0), at(5)), Some(at(10)), "earlier is a change too");
    assert_eq!(queue.len(), 1);
    assert_eq!(due(&mut queue, 10), [0]);
}

#[test]
fn a_deadline_in_the_past_is_due_at_once() {
    let mut queue = queue();
    assert!(due(&mut queue, 500).is_empty());
    assert_eq!(queue.update(key(1), at(100)), Some(at(110)));
    assert_eq!(queue.update(key(1), at(200)), None, "the next poll still");
    assert_eq!(queue.wait_time(at(505)), Duration::ZERO);
    assert_eq!(queue.dump(), [(at(500), 1)]);
    assert_eq!(due(&mut queue, 501), [1]);
}

#[test]
fn never_removes() {
    let mut queue = queue();
    assert_eq!(queue.update(key(1), Instant::NEVER), None);
    queue.update(key(1), at(10));
    assert_eq!(queue.update(key(1), Instant::NEVER), None);
    assert!(queue.is_empty());
    assert!(due(&mut queue, 1_000).is_empty());
}

#[test]
fn a_newer_generation_displaces_and_an_older_one_does_not() {
    let mut queue = queue();
    let life = |generation| DeadlineKey { slot: 7, generation };
    queue.update(life(u32::MAX), at(15));
    assert_eq!(queue.update(life(0), at(15)), Some(at(20)), "newer, wrapping, in the same bucket");
    assert_eq!(queue.update(life(u32::MAX), at(55)), None);
    assert_eq!(queue.update(life(u32::MAX), Instant::NEVER), None);
    assert!(!queue.remove(life(u32::MAX)));
    assert_eq!(queue.update(life(2), at(35)), Some(at(40)), "newer, in another bucket");
    assert_eq!(queue.len(), 1);
    let mut out = Vec::new();
    queue.poll(at(40), 10, &mut out);
    assert_eq!(out, [life(2)]);
    assert!(!queue.remove(life(2)), "polled, so gone");
}

#[test]
fn a_deadline_beyond_the_span_goes_round() {
    let mut queue = queue();
    let span = INTERVAL * u64::from(SHORT);
    queue.update(key(0), at(5));
    queue.update(key(1), at(5 + span));
    queue.update(key(2), at(5 + 3 * span));
    assert_eq!(queue.buckets_in_use(), 1);
    assert_eq!(queue.dump(), [(at(10), 1), (at(90), 1), (at(250), 1)]);
    assert_eq!(queue.due_within(at(0), Duration::from_millis(90)), 2);
    assert_eq!(due(&mut queue, 10), [0]);
    assert!(due(&mut queue, 10 + span - 1).is_empty());
    assert_eq!(due(&mut queue, 10 + span), [1]);
    assert!(due(&mut queue, 10 + 2 * span).is_empty());
    assert_eq!(due(&mut queue, 10 + 3 * span), [2]);
}

#[test]
fn a_survey_in_stretches_counts_every_key_once() {
    let mut queue = queue();
    let stretch = (SURVEYED * index::SEGMENT) as u32;
    // The first and last slot of each stretch, and one alone beyond an empty one.
    for slot in [0, stretch - 1, stretch, 2 * stretch - 1, 3 * stretch + 7] {
        queue.update(key(slot), at(5));
    }
    queue.update(key(9), at(25));
    let mut survey = QueueSurvey::new([at(10), at(30)]);
    let mut calls = 1;
    while queue.survey(&mut survey) == More::Due {
        calls += 1;
    }
    assert_eq!((survey.due, calls), ([5, 6], 4));
}

/// Counts to the end, with `change` between the stretches.
fn counted(queue: &mut ExpiryQueue, mut change: impl FnMut(&mut ExpiryQueue)) -> WheelCount {
    queue.begin_count(SlotSpace::new(1));
    loop {
        match queue.count_on() {
            Some(count) => return *count,
            None => change(queue),
        }
    }
}

fn sums(count: &WheelCount) -> Vec<(u64, u32)> {
    let all = count.buckets().map(|(end, keys)| (end.as_millis(), keys.iter().sum()));
    all.filter(|(_, keys)| *keys > 0).collect()
}

#[test]
fn a_count_has_the_keys_of_each_bucket_by_kind_and_those_of_later_rounds_apart() {
    let mut queue = queue();
    let slots = SlotSpace::new(1);
    let [first, second] = [DeadlineKind::ALL[0], DeadlineKind::ALL[1]];
    queue.update(key(slots.global(0, first, 7)), at(5));
    queue.update(key(slots.global(0, second, 7)), at(9));
    queue.update(key(slots.global(0, second, 8)), at(25));
    queue.update(key(slots.global(0, first, 9)), at(5 + 3 * INTERVAL * u64::from(SHORT)));
    let count = counted(&mut queue, |_| ());
    assert_eq!(sums(&count), [(10, 2), (30, 1)]);
    let (_, keys) = count.buckets().next().expect("a bucket");
    assert_eq!((keys[first as usize], keys[second as usize]), (1, 1));
    assert_eq!((count.later()[first as usize], count.overdue(), count.keys()), (1, &[0; 5], 4));
    assert!(due(&mut queue, 500).len() == 4);
    queue.update(key(3), at(100));
    assert_eq!(counted(&mut queue, |_| ()).overdue().iter().sum::<u32>(), 1, "late");
}

#[test]
fn a_count_of_a_million_keys_is_exact_while_they_move_expire_and_go() {
    const KEYS: u32 = 1_000_000;
    let mut queue = ExpiryQueue::new(Duration::from_millis(250), at(0));
    let place = |n: u32| at(u64::from(n.wrapping_mul(2_654_435_761) % 300_000));
    for slot in 0..KEYS {
        queue.update(key(slot), place(slot));
    }
    let (mut round, mut out) = (0, Vec::new());
    let count = counted(&mut queue, |queue| {
        round += 1;
        for n in 0..20_000_u32 {
            let slot = (n * 7_919 + round) % KEYS;
            if n % 4 == 0 {
                queue.remove(key(slot));
            } else {
                queue.update(key(if n % 4 == 1 { slot + KEYS } else { slot }), place(slot ^ round));
            }
        }
        queue.poll(at(u64::from(round) * 500), 5_000, &mut out);
    });
    assert!(round > 10, "{round}");
    assert_eq!(count.keys(), queue.len() as u64);
    // The late bucket shows in a dump with the last polled bucket.
    let (span_end, _) = count.buckets().last().expect("buckets");
    let ring = queue.dump().into_iter().filter(|(end, _)| *end <= span_end);
    let in_ring: usize = ring.map(|(_, keys)| keys).sum();
    let counted: u32 = count.buckets().flat_map(|(_, keys)| keys).chain(count.overdue()).sum();
    assert_eq!(counted as usize, in_ring);
    let sizes: HashMap<u64, usize> = queue.dump().into_iter().map(|(end, n)| (end.as_millis(), n)).collect();
    let open = queue.next_boundary().expect("keys").as_millis();
    for (end, keys) in sums(&count).into_iter().filter(|(end, _)| *end > open) {
        assert_eq!(sizes.get(&end), Some(&(keys as usize)), "the bucket that ends at {end} ms");
    }
}

#[test]
fn a_move_to_another_round_of_the_same_bucket_keeps_its_neighbours() {
    let mut queue = queue();
    let span = INTERVAL * u64::from(SHORT);
    queue.update(key(0), at(5));
    queue.update(key(1), at(5));
    assert_eq!(queue.update(key(0), at(5 + span)), Some(at(10 + span)));
    assert_eq!(due(&mut queue, 10), [1]);
    assert!(queue.remove(key(0)));
    assert!(queue.is_empty());
}

#[test]
fn the_farthest_deadline_is_not_early() {
    let mut queue = ExpiryQueue::new(Duration::from_millis(1), at(0));
    queue.update(key(0), at(u64::MAX - 1));
    let years = 136 * 365 * 24 * 3_600 * 1_000;
    assert!(due(&mut queue, years).is_empty());
    assert_eq!(queue.len(), 1);
}

#[test]
fn a_stall_is_caught_up_in_bounded_rounds() {
    let mut queue = queue();
    for slot in 0..10_000 {
        queue.update(key(slot), at(u64::from(slot)));
    }
    let (mut out, mut rounds) = (Vec::new(), 0);
    loop {
        let before = out.len();
        let more = queue.poll(at(1_000_000), 300, &mut out);
        assert!(out.len() - before <= 300);
        rounds += 1;
        if more == More::Nothing {
            break;
        }
    }
    out.sort_unstable_by_key(|key| key.slot);
    out.dedup();
    assert_eq!(out.len(), 10_000);
    assert_eq!(rounds, 10_000_usize.div_ceil(300));
}

#[test]
fn entries_passed_over_count_towards_the_budget() {
    let mut queue = queue();
    let span = INTERVAL * u64::from(SHORT);
    for slot in 0..100 {
        queue.update(key(slot), at(5 + span * 1_000));
    }
    queue.update(key(100), at(5));
    let mut out = Vec::new();
    let rounds = (1..).find(|_| queue.poll(at(10), 10, &mut out) == More::Nothing);
    assert_eq!(rounds, Some(101_usize.div_ceil(10)));
    assert_eq!(out, [key(100)]);
    assert_eq!(queue.len(), 100);
}

#[test]
fn what_is_registered_in_the_middle_of_a_bucket_is_not_passed_by() {
    let mut queue = queue();
    for slot in 0..100 {
        queue.update(key(slot), at(5));
    }
    let mut out = Vec::new();
    assert_eq!(queue.poll(at(10), 40, &mut out), More::Due);
    queue.update(key(200), at(5));
    queue.update(key(201), at(5 + INTERVAL * u64::from(SHORT)));
    let waiting = (0..100).find(|slot| !out.contains(&key(*slot)));
    assert_eq!(waiting.and_then(|slot| queue.update(key(slot), at(7))), None, "still in its bucket");
    assert_eq!(queue.poll(at(10), 1_000, &mut out), More::Nothing);
    assert_eq!(out.len(), 101);
    assert!(out.contains(&key(200)));
    assert_eq!(queue.len(), 1);
}

#[test]
fn wait_time_is_until_the_first_bucket_in_use() {
    let mut queue = queue();
    assert_eq!(queue.wait_time(at(3)), Duration::MAX);
    queue.update(key(0), at(45));
    assert_eq!(queue.wait_time(at(3)), Duration::from_millis(47));
    queue.update(key(1), at(15));
    assert_eq!(queue.wait_time(at(3)), Duration::from_millis(17));
    assert_eq!(queue.wait_time(at(77)), Duration::ZERO);
    queue.remove(key(1));
    assert_eq!(queue.wait_time(at(3)), Duration::from_millis(47));
}

#[test]
fn keys_cost_at_most_24_bytes_and_emptied_buckets_give_memory_back() {
    let mut queue = ExpiryQueue::new(Duration::from_millis(250), at(0));
    let empty = queue.allocated();
    let keys = 200_000_u32;
    for slot in 0..keys {
        queue.update(key(slot), at(u64::from(slot) * 7_919 % 90_000));
    }
    assert!(queue.allocated() / keys as usize <= 24, "{} B", queue.allocated());
    assert_eq!(due(&mut queue, 100_000).len(), keys as usize);
    // What stays: the table of segments.
    assert!(queue.allocated() - empty < keys as usize / 10, "{} B", queue.allocated());
}

#[derive(Clone, Debug)]
enum Step {
    Update { slot: u32, newer: bool, in_ms: u64 },
    Late { slot: u32, ago_ms: u64 },
    Never { slot: u32 },
    Remove { slot: u32, stale: bool },
    Poll { after_ms: u64, budget: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let slot = 0..150_u32;
    prop_oneof![
        8 => (slot.clone(), any::<bool>(), 0..400_u64)
            .prop_map(|(slot, newer, in_ms)| Step::Update { slot, newer, in_ms }),
        1 => (slot.clone(), 0..200_u64).prop_map(|(slot, ago_ms)| Step::Late { slot, ago_ms }),
        1 => slot.clone().prop_map(|slot| Step::Never { slot }),
        2 => (slot, any::<bool>()).prop_map(|(slot, stale)| Step::Remove { slot, stale }),
        2 => (0..25_u64, 1..40_usize).prop_map(|(after_ms, budget)| Step::Poll { after_ms, budget }),
        1 => (0..2_000_u64, 1..10_usize).prop_map(|(after_ms, budget)| Step::Poll { after_ms, budget }),
    ]
}

/// Deadlines by slot, and nothing clever.
#[derive(Default)]
struct Model {
    now: u64,
    registered: HashMap<u32, (u32, u64)>,
    generations: HashMap<u32, u32>,
}

impl Model {
    fn key(&mut self, slot: u32, newer: bool) -> DeadlineKey {
        // Starts short of the end, so that generations wrap.
        let generation = self.generations.entry(slot).or_insert(u32::MAX - 1);
        *generation = generation.wrapping_add(u32::from(newer));
        DeadlineKey { slot, generation: *generation }
    }

    fn end_of(deadline: u64) -> u64 {
        (deadline / INTERVAL + 1) * INTERVAL
    }

    fn update(&mut self, queue: &mut ExpiryQueue, key: DeadlineKey, deadline: u64) {
        let moved = queue.update(key, at(deadline));
        let old = self.registered.insert(key.slot, (key.generation, deadline));
        let same = old.is_some_and(|(generation, old)| {
            generation == key.generation && Self::end_of(old) == Self::end_of(deadline)
        });
        if same && Self::end_of(deadline) > self.now {
            assert_eq!(moved, None);
        } else if old.is_none_or(|(generation, _)| generation != key.generation) {
            assert_eq!(moved, Some(at(Self::end_of(deadline))));
        }
    }

    /// Takes what one round handed out: each registered, in its generation, and not early.
    fn hand_out(&mut self, out: &[DeadlineKey]) {
        for key in out {
            let (generation, deadline) = self.registered.remove(&key.slot).expect("registered once");
            assert_eq!(generation, key.generation);
            assert!(Self::end_of(deadline) <= self.now, "early");
        }
    }

    fn poll(&mut self, queue: &mut ExpiryQueue, budget: usize) {
        let waited = queue.wait_time(at(self.now));
        let mut out = Vec::new();
        let more = queue.poll(at(self.now), budget, &mut out);
        assert!(out.len() <= budget);
        assert!(out.is_empty() || waited.is_zero(), "something was due while there was time to wait");
        self.hand_out(&out);
        let due =
            self.registered.values().filter(|(_, deadline)| Self::end_of(*deadline) <= self.now).count();
        assert!(more == More::Due || due == 0, "{due} keys late");
    }

    fn step(&mut self, queue: &mut ExpiryQueue, step: Step) {
        match step {
            Step::Update { slot, newer, in_ms } => {
                let key = self.key(slot, newer);
                self.update(queue, key, self.now + in_ms);
            }
            Step::Late { slot, ago_ms } => {
                let key = self.key(slot, false);
                self.update(queue, key, self.now.saturating_sub(ago_ms));
            }
            Step::Never { slot } => {
                let key = self.key(slot, false);
                assert_eq!(queue.update(key, Instant::NEVER), None);
                self.registered.remove(&slot);
            }
            Step::Remove { slot, stale } => {
                let mut key = self.key(slot, false);
                key.generation = key.generation.wrapping_sub(u32::from(stale));
                let had = self.registered.get(&slot).is_some_and(|(g, _)| *g == key.generation);
                assert_eq!(queue.remove(key), had);
                if had {
                    self.registered.remove(&slot);
                }
            }
            Step::Poll { after_ms, budget } => {
                self.now += after_ms;
                self.poll(queue, budget);
            }
        }
    }
}

proptest! {
    #[test]
    fn as_a_naive_model_never_early_never_late_none_lost(steps in vec(step(), 1..600)) {
        let mut queue = queue();
        let mut model = Model::default();
        for step in steps {
            model.step(&mut queue, step);
            prop_assert_eq!(queue.len(), model.registered.len());
        }
        let count = counted(&mut queue, |_| ());
        prop_assert_eq!(count.keys(), model.registered.len() as u64);
        let left = queue.len();
        prop_assert_eq!(queue.dump().iter().map(|(_, size)| size).sum::<usize>(), left);
        model.now += 10_000;
        let mut out = Vec::new();
        while queue.poll(at(model.now), 7, &mut out) == More::Due {}
        prop_assert_eq!(out.len(), left);
        model.hand_out(&out);
    }
}
