//! A plain hashed wheel, as in Netty: buckets of doubly linked nodes, here by slot number in one
//! vector.

use super::{Expiry, bucket};
use homing::expiry::queue::DeadlineKey;
use homing::time::Instant;

const NONE: u32 = u32::MAX;
const SPAN: u64 = 1024;

#[derive(Clone, Copy)]
struct Node {
    /// The number of the bucket; 0 if the slot is not registered.
    bucket: u64,
    generation: u32,
    previous: u32,
    next: u32,
}

pub struct HashedWheel {
    heads: Vec<u32>,
    nodes: Vec<Node>,
    next: u64,
}

impl HashedWheel {
    fn unlink(&mut self, slot: u32) {
        let Node { bucket, previous, next, .. } = self.nodes[slot as usize];
        if previous == NONE {
            self.heads[(bucket % SPAN) as usize] = next;
        } else {
            self.nodes[previous as usize].next = next;
        }
        if next != NONE {
            self.nodes[next as usize].previous = previous;
        }
        self.nodes[slot as usize].bucket = 0;
    }
}

impl Expiry for HashedWheel {
    const NAME: &'static str = "hashed wheel";

    fn new() -> Self {
        HashedWheel { heads: vec![NONE; SPAN as usize], nodes: Vec::new(), next: 1 }
    }

    fn update(&mut self, key: DeadlineKey, deadline: Instant) {
        let slot = key.slot as usize;
        if slot >= self.nodes.len() {
            self.nodes.resize(slot + 1, Node { bucket: 0, generation: 0, previous: NONE, next: NONE });
        }
        let (new, old) = (bucket(deadline), self.nodes[slot].bucket);
        if old == new {
            return;
        }
        if old != 0 {
            self.unlink(key.slot);
        }
        let head = std::mem::replace(&mut self.heads[(new % SPAN) as usize], key.slot);
        if head != NONE {
            self.nodes[head as usize].previous = key.slot;
        }
        self.nodes[slot] = Node { bucket: new, generation: key.generation, previous: NONE, next: head };
    }

    fn remove(&mut self, key: DeadlineKey) {
        self.unlink(key.slot);
    }

    fn expire(
        &mut self,
        now: Instant,
        out: &mut Vec<DeadlineKey>,
        round: &mut dyn FnMut(&mut Vec<DeadlineKey>),
    ) {
        while self.next < bucket(now) {
            let mut slot = self.heads[(self.next % SPAN) as usize];
            while slot != NONE {
                let Node { bucket, generation, next, .. } = self.nodes[slot as usize];
                if bucket <= self.next {
                    self.unlink(slot);
                    out.push(DeadlineKey { slot, generation });
                }
                slot = next;
            }
            self.next += 1;
            round(out);
        }
    }
}
