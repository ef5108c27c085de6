//! What the expiry queue is measured against: the same work done in the ways other brokers and runtimes do it.
//!
//! Each is written as its origin has it, not tuned to lose: nothing is boxed needlessly, and the maps may hash with foldhash too.

pub mod delay_queue;
pub mod hashed_wheel;
pub mod heap;
pub mod two_maps;

use homing::expiry::queue::{DeadlineKey, ExpiryQueue, More};
use homing::time::Instant;
use std::time::Duration;

pub const INTERVAL: Duration = Duration::from_millis(250);
/// Entries a poll looks at, as in the expiry actor.
pub const ROUND: usize = 8_192;

/// The work of an expiry queue, as far as it is measured.
pub trait Expiry {
    const NAME: &'static str;
    fn new() -> Self;
    fn update(&mut self, key: DeadlineKey, deadline: Instant);
    fn remove(&mut self, key: DeadlineKey);
    /// Hands out everything due, through `out`, in rounds if it knows them; `round` is told the end of each.
    fn expire(
        &mut self,
        now: Instant,
        out: &mut Vec<DeadlineKey>,
        round: &mut dyn FnMut(&mut Vec<DeadlineKey>),
    );
}

pub fn bucket(t: Instant) -> u64 {
    t.as_millis() / INTERVAL.as_millis() as u64 + 1
}

impl Expiry for ExpiryQueue {
    const NAME: &'static str = "ring";

    fn new() -> Self {
        ExpiryQueue::new(INTERVAL, Instant::ZERO)
    }

    fn update(&mut self, key: DeadlineKey, deadline: Instant) {
        ExpiryQueue::update(self, key, deadline);
    }

    fn remove(&mut self, key: DeadlineKey) {
        ExpiryQueue::remove(self, key);
    }

    fn expire(
        &mut self,
        now: Instant,
        out: &mut Vec<DeadlineKey>,
        round: &mut dyn FnMut(&mut Vec<DeadlineKey>),
    ) {
        while self.poll(now, ROUND, out) == More::Due {
            round(out);
        }
        round(out);
    }
}
