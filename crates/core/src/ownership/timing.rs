//! The durations of ownership, and the relations between them that safety and fail-over need.

use crate::time::duration::format;
use std::time::Duration;

/// The durations of the ownership of a cell. The default is checked by a test.
///
/// An operator sets the lease, the suspicion and the isolation. The others follow from the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The longest time between two frames of an owner that works.
    pub beat: Duration,
    /// The longest time between a promise that no append covers, and a beat.
    pub early_beat: Duration,
    /// How long a stored append lets its owner promise, from the time when it was first sent.
    pub lease: Duration,
    /// A standby claims after this time without a frame.
    pub suspicion: Duration,
    /// How long the engine must have answered, with the log unmoved, before a standby suspects. So
    /// the retry of an owner lands first when an election of the engine is over.
    pub quiet: Duration,
    /// The time that each place in the list of nodes adds to the suspicion.
    pub rank_step: Duration,
    /// An append without an answer after this time is undecided.
    pub append_timeout: Duration,
    /// The time between a look for an undecided frame and its next attempt.
    pub retry: Duration,
    /// The time between two questions for the last position of the log.
    pub poll: Duration,
    /// An owner without an append for this time disconnects its clients. It is longer than an
    /// election of the engine.
    pub isolation: Duration,
    /// A recovery that has done nothing for this time is stuck, and its owner sends no beats.
    pub recovery: Duration,
    /// The engine lost frames if it reports less than was applied for this time.
    pub loss: Duration,
}

impl Timing {
    /// The durations of a cluster that sets none.
    pub const DEFAULT: Timing = {
        const fn millis(millis: u64) -> Duration {
            Duration::from_millis(millis)
        }
        Timing {
            beat: millis(1000),
            early_beat: millis(250),
            lease: millis(4000),
            suspicion: millis(6000),
            quiet: millis(1500),
            rank_step: millis(500),
            append_timeout: millis(1000),
            retry: millis(150),
            poll: millis(250),
            isolation: millis(10_000),
            recovery: millis(10_000),
            loss: millis(30_000),
        }
    };
}

impl Default for Timing {
    fn default() -> Timing {
        Timing::DEFAULT
    }
}

/// The error of [`Timing::check`]: one duration is too short for the others.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} ({}) must be {} {least_name} ({}): {reason}", format(*.value), .bound.words(), format(*.least))]
pub struct TimingError {
    name: &'static str,
    value: Duration,
    bound: Bound,
    least_name: &'static str,
    least: Duration,
    reason: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    /// The least value is allowed.
    AtLeast,
    /// The least value is not allowed.
    Above,
}

impl Bound {
    fn words(self) -> &'static str {
        match self {
            Bound::AtLeast => "at least",
            Bound::Above => "above",
        }
    }
}

impl Timing {
    /// Checks the durations against each other.
    ///
    /// # Errors
    /// Names the first duration that is too short, the least that the others allow, and the reason.
    pub fn check(&self) -> Result<(), TimingError> {
        match self.repeating().into_iter().chain(self.relations()).find(TimingError::is_broken) {
            Some(broken) => Err(broken),
            None => Ok(()),
        }
    }

    /// The durations after which something happens again.
    fn repeating(&self) -> [TimingError; 6] {
        let positive = |name, value| TimingError {
            name,
            value,
            bound: Bound::Above,
            least_name: "zero",
            least: Duration::ZERO,
            reason: "it repeats",
        };
        [
            positive("beat", self.beat),
            positive("early_beat", self.early_beat),
            positive("retry", self.retry),
            positive("poll", self.poll),
            positive("append_timeout", self.append_timeout),
            positive("recovery", self.recovery),
        ]
    }

    /// What safety and fail-over need between two durations.
    fn relations(&self) -> [TimingError; 8] {
        use Bound::{Above, AtLeast};
        let rule = |name, value, bound, least_name, least, reason| TimingError {
            name,
            value,
            bound,
            least_name,
            least,
            reason,
        };
        let attempts = self.append_timeout + self.retry;
        [
            rule(
                "suspect_after",
                self.suspicion,
                AtLeast,
                "1.5 times the lease",
                suspicion_of(self.lease),
                "a standby must not claim while the owner's lease runs, also if one clock is 20 % fast \
                 and the other 20 % slow",
            ),
            rule(
                "quiet",
                self.quiet,
                Above,
                "append_timeout and retry together",
                attempts,
                "after an election of the engine the owner's next attempt must land before a claim",
            ),
            rule(
                "quiet",
                self.quiet,
                Above,
                "poll",
                self.poll,
                "it is the time between two answers at least",
            ),
            rule(
                "append_timeout",
                self.append_timeout,
                Above,
                "poll",
                self.poll,
                "two answers of the engine are in a row if they are at most this apart",
            ),
            rule("lease", self.lease, AtLeast, "two beats", self.beat * 2, "a beat must come before its end"),
            rule(
                "lease",
                self.lease,
                Above,
                "append_timeout",
                self.append_timeout,
                "an answer must come before its end",
            ),
            rule(
                "suspect_after",
                self.suspicion,
                Above,
                "beat, append_timeout and retry together",
                self.beat + attempts,
                "a frame that needs a second attempt is no reason for a claim",
            ),
            rule(
                "isolation_timeout",
                self.isolation,
                Above,
                "the lease",
                self.lease,
                "an owner that may promise must not disconnect its clients",
            ),
        ]
    }

    /// Returns the time without a frame after which a standby claims, if its owner's lease is
    /// `lease`. Both nodes may have different settings, and the longer time counts.
    pub(super) fn suspicion_for(&self, lease: Duration) -> Duration {
        self.suspicion.max(suspicion_of(lease))
    }
}

impl TimingError {
    fn is_broken(&self) -> bool {
        match self.bound {
            Bound::AtLeast => self.value < self.least,
            Bound::Above => self.value <= self.least,
        }
    }
}

/// Returns the shortest suspicion for a lease. The half more is the margin for the rates of clocks:
/// 1.5 times a lease on a clock that is 20 % fast is as long as the lease on one that is 20 % slow.
fn suspicion_of(lease: Duration) -> Duration {
    lease + lease / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(change: impl FnOnce(&mut Timing)) -> String {
        let mut timing = Timing::default();
        change(&mut timing);
        timing.check().expect_err("the change is refused").to_string()
    }

    #[test]
    fn the_default_and_the_shortest_of_the_design_are_accepted() {
        assert_eq!(Timing::default().check(), Ok(()));
        let seconds = Duration::from_secs;
        let short = Timing { lease: seconds(2), suspicion: seconds(3), ..Timing::default() };
        assert_eq!(short.check(), Ok(()));
    }

    #[test]
    fn a_duration_that_is_too_short_is_named_with_its_bound() {
        let millis = Duration::from_millis;
        let text = broken(|timing| timing.suspicion = millis(5_999));
        assert!(
            text.starts_with("suspect_after (5999ms) must be at least 1.5 times the lease (6s): a standby")
        );
        let text = broken(|timing| timing.quiet = millis(1_150));
        assert!(
            text.starts_with("quiet (1150ms) must be above append_timeout and retry together (1150ms): ")
        );
        let text = broken(|timing| timing.retry = Duration::ZERO);
        assert_eq!(text, "retry (0s) must be above zero (0s): it repeats");
        let text = broken(|timing| timing.beat = millis(2_001));
        assert!(text.starts_with("lease (4s) must be at least two beats (4002ms): "), "{text}");
        let text = broken(|timing| timing.isolation = millis(4_000));
        assert!(text.starts_with("isolation_timeout (4s) must be above the lease (4s): "));
    }

    #[test]
    fn a_longer_lease_of_the_owner_makes_a_longer_suspicion() {
        let timing = Timing::default();
        let seconds = Duration::from_secs;
        assert_eq!([2, 4, 8].map(|lease| timing.suspicion_for(seconds(lease))), [6, 6, 12].map(seconds));
    }
}
