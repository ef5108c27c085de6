//! A binary heap with lazy deletion: a move pushes a new entry, and stale entries are discarded
//! when they reach the top.

use super::Expiry;
use homing::expiry::queue::DeadlineKey;
use homing::time::Instant;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

#[derive(Default)]
pub struct Heap {
    entries: BinaryHeap<Reverse<(u64, u32, u32)>>,
    /// The true deadline of each slot.
    deadlines: Vec<u64>,
    live: usize,
}

const NONE: u64 = u64::MAX;

impl Heap {
    /// Rebuilds the heap when most of it is stale. Otherwise a heap of moving deadlines grows
    /// without bound.
    fn compact(&mut self) {
        if self.entries.len() > 2 * self.live + 64 {
            let deadlines = &self.deadlines;
            self.entries.retain(|Reverse((deadline, slot, _))| deadlines[*slot as usize] == *deadline);
        }
    }
}

impl Expiry for Heap {
    const NAME: &'static str = "binary heap";

    fn new() -> Self {
        Heap::default()
    }

    fn update(&mut self, key: DeadlineKey, deadline: Instant) {
        let slot = key.slot as usize;
        if slot >= self.deadlines.len() {
            self.deadlines.resize(slot + 1, NONE);
        }
        let old = std::mem::replace(&mut self.deadlines[slot], deadline.as_millis());
        self.live += usize::from(old == NONE);
        if old != deadline.as_millis() {
            self.entries.push(Reverse((deadline.as_millis(), key.slot, key.generation)));
            self.compact();
        }
    }

    fn remove(&mut self, key: DeadlineKey) {
        self.deadlines[key.slot as usize] = NONE;
        self.live -= 1;
        self.compact();
    }

    fn expire(
        &mut self,
        now: Instant,
        out: &mut Vec<DeadlineKey>,
        round: &mut dyn FnMut(&mut Vec<DeadlineKey>),
    ) {
        while let Some(Reverse((deadline, slot, generation))) = self.entries.peek().copied() {
            if deadline > now.as_millis() {
                break;
            }
            self.entries.pop();
            if self.deadlines[slot as usize] == deadline {
                self.deadlines[slot as usize] = NONE;
                self.live -= 1;
                out.push(DeadlineKey { slot, generation });
            }
        }
        round(out);
    }
}
