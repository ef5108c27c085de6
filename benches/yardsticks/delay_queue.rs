//! `tokio_util::time::DelayQueue` under the paused time of tokio: the timer wheel that an async
//! program would use first.
//!
//! The wheel rounds to a millisecond and has no buckets, so a change within a bucket costs as much
//! as any other.

use super::Expiry;
use homing::expiry::queue::DeadlineKey;
use homing::time::Instant;
use std::sync::LazyLock;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio_util::time::{DelayQueue, delay_queue};

/// The runtime. The bench enters the runtime once, so that no operation includes that cost.
pub static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime")
});

pub struct Delays {
    queue: DelayQueue<DeadlineKey>,
    keys: Vec<Option<delay_queue::Key>>,
    start: tokio::time::Instant,
}

impl Delays {
    fn take(&mut self, expired: delay_queue::Expired<DeadlineKey>, out: &mut Vec<DeadlineKey>) {
        let key = expired.into_inner();
        self.keys[key.slot as usize] = None;
        out.push(key);
    }
}

impl Expiry for Delays {
    const NAME: &'static str = "DelayQueue";

    fn new() -> Self {
        let start = RUNTIME.block_on(async { tokio::time::Instant::now() });
        Delays { queue: DelayQueue::new(), keys: Vec::new(), start }
    }

    fn update(&mut self, key: DeadlineKey, deadline: Instant) {
        let slot = key.slot as usize;
        if slot >= self.keys.len() {
            self.keys.resize(slot + 1, None);
        }
        let when = self.start + Duration::from_millis(deadline.as_millis());
        match &self.keys[slot] {
            Some(delay) => self.queue.reset_at(delay, when),
            None => self.keys[slot] = Some(self.queue.insert_at(key, when)),
        }
    }

    fn remove(&mut self, key: DeadlineKey) {
        if let Some(delay) = self.keys[key.slot as usize].take() {
            self.queue.remove(&delay);
        }
    }

    fn expire(
        &mut self,
        now: Instant,
        out: &mut Vec<DeadlineKey>,
        round: &mut dyn FnMut(&mut Vec<DeadlineKey>),
    ) {
        // The task budget would end a poll after 128 keys, so it is turned off. Paused time
        // advances by itself to each next deadline; all measured deadlines are due by `now`.
        let until = self.start + Duration::from_millis(now.as_millis());
        RUNTIME.block_on(tokio::task::unconstrained(async {
            while let Some(expired) = std::future::poll_fn(|task| self.queue.poll_expired(task)).await {
                debug_assert!(expired.deadline() <= until);
                self.take(expired, out);
            }
        }));
        round(out);
    }
}
