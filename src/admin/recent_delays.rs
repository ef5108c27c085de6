//! The delays of the last minutes: the histograms count since the start, and a problem that is over
//! must not stay.

use crate::time::Instant;
use crate::time::histogram::{Distribution, bound_ms};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Time after which a stretch of counts begins anew. The counts of one or two stretches are looked
/// at; of a longer time if nobody looked.
const STRETCH: Duration = Duration::from_mins(1);

/// A delay from this bound on is felt, in milliseconds.
const SLOW_MS: u64 = 256;

/// A part of the broker that is slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlowPart {
    /// More than 1 % of the commits took 256 ms or longer.
    Commits,
    /// More than 1 % of the deadlines were found 256 ms late or later.
    Deadlines,
}

/// The counts at the beginnings of the present stretch and of the one before. Before the first look
/// both are those of the start.
#[derive(Debug, Default)]
pub(super) struct RecentDelays(Mutex<[DelayCounts; 2]>);

#[derive(Clone, Debug)]
struct DelayCounts {
    at: Instant,
    commits: Distribution,
    lateness: Distribution,
}

impl Default for DelayCounts {
    fn default() -> DelayCounts {
        DelayCounts { at: Instant::ZERO, commits: Distribution::default(), lateness: Distribution::default() }
    }
}

impl RecentDelays {
    /// Returns the parts that have been slow of late. The distributions are those since the start.
    pub(super) fn now(&self, now: Instant, commits: &Distribution, lateness: &Distribution) -> Vec<SlowPart> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if now.since(counts[1].at) >= STRETCH {
            let present = DelayCounts { at: now, commits: commits.clone(), lateness: lateness.clone() };
            counts.rotate_left(1);
            counts[1] = present;
        }
        let before = &counts[0];
        let parts = [
            (SlowPart::Commits, is_slow(commits, &before.commits)),
            (SlowPart::Deadlines, is_slow(lateness, &before.lateness)),
        ];
        parts.into_iter().filter(|(_, is_slow)| *is_slow).map(|(part, _)| part).collect()
    }
}

/// Returns true if more than 1 % of the durations since `before` are slow.
fn is_slow(now: &Distribution, before: &Distribution) -> bool {
    let new = now.counts.iter().zip(&before.counts).map(|(now, before)| now.saturating_sub(*before));
    let (mut all, mut slow) = (0, 0);
    for (bucket, count) in new.enumerate() {
        let least = bucket.checked_sub(1).and_then(bound_ms).unwrap_or(0);
        all += count;
        slow += if least >= SLOW_MS { count } else { 0 };
    }
    slow * 100 > all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::histogram::Histogram;

    #[test]
    fn slow_commits_are_reported_until_two_minutes_without_one() {
        let (delays, none) = (RecentDelays::default(), Distribution::default());
        let mut commits = Histogram::default();
        let at = |secs: u64| Instant::from_millis(secs * 1_000);
        (0..99).for_each(|_| commits.add(255));
        commits.add(256);
        assert_eq!(delays.now(at(1), &commits.distribution(), &none), []);
        commits.add(256);
        assert_eq!(delays.now(at(2), &commits.distribution(), &none), [SlowPart::Commits]);
        for (secs, slow) in [(59, true), (61, true), (120, true), (121, false), (200, false)] {
            let found = delays.now(at(secs), &commits.distribution(), &none);
            assert_eq!(!found.is_empty(), slow, "{secs} s: {found:?}");
        }
        assert_eq!(
            delays.now(at(201), &commits.distribution(), &commits.distribution()),
            [SlowPart::Deadlines]
        );
    }
}
