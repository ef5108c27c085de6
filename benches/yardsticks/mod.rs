//! Other queues that do the same work as the expiry queue, as other brokers and runtimes do it.
//!
//! Each is written like its original and not slowed down: nothing is boxed without need, and the
//! maps may also hash with foldhash.

pub mod delay_queue;
pub mod hashed_wheel;
pub mod heap;
pub mod two_maps;

use homing::expiry::queue::{DeadlineKey, ExpiryQueue, More};
use homing::time::Instant;
use std::time::Duration;

pub const INTERVAL: Duration = Duration::from_millis(250);
/// Maximum number of entries in one poll, as in the expiry actor.
pub const ROUND: usize = 8_192;

/// The operations of an expiry queue that are measured.
pub trait Expiry {
    const NAME: &'static str;
    fn new() -> Self;
    fn update(&mut self, key: DeadlineKey, deadline: Instant);
    fn remove(&mut self, key: DeadlineKey);
    /// Removes everything that is due and appends it to `out`. Works in rounds if the queue has
    /// rounds, and calls `round` at the end of each.
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
