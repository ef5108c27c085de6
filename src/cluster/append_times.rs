//! How long the engine takes to store a frame of this node.

use super::view::lock;
use std::sync::Mutex;
use std::time::Duration;

/// The last appends that count: some seconds under load, and minutes of beats.
const KEPT: usize = 512;

/// The times of the last appends, in microseconds. Takes 2 KiB.
#[derive(Debug, Default)]
pub(super) struct AppendTimes(Mutex<Ring>);

#[derive(Debug, Default)]
struct Ring {
    micros: Vec<u32>,
    next: usize,
}

impl AppendTimes {
    /// Notes an append that was stored.
    pub(super) fn note(&self, took: Duration) {
        let micros = u32::try_from(took.as_micros()).unwrap_or(u32::MAX);
        let mut ring = lock(&self.0);
        if ring.micros.len() < KEPT {
            ring.micros.push(micros);
            return;
        }
        let at = ring.next;
        ring.micros[at] = micros;
        ring.next = (at + 1) % KEPT;
    }

    /// Returns the time within which 99 % of them were stored; `None` without any.
    pub(super) fn p99(&self) -> Option<Duration> {
        let mut micros = lock(&self.0).micros.clone();
        if micros.is_empty() {
            return None;
        }
        micros.sort_unstable();
        let at = (micros.len() * 99).div_ceil(100) - 1;
        Some(Duration::from_micros(micros[at].into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_appends_count() {
        let times = AppendTimes::default();
        assert_eq!(times.p99(), None);
        times.note(Duration::from_secs(3));
        assert_eq!(times.p99(), Some(Duration::from_secs(3)));
        (0..100).for_each(|at| times.note(Duration::from_micros(at)));
        assert_eq!(times.p99(), Some(Duration::from_micros(99)), "one of a hundred may take longer");
        (0..KEPT).for_each(|_| times.note(Duration::from_millis(1)));
        assert_eq!(times.p99(), Some(Duration::from_millis(1)));
    }
}
