//! The ages of things that a shard noted, some of which are from before the start of the broker.

use crate::time::Instant;
use crate::time::duration::{long, seconds};
use std::fmt;
use std::time::Duration;

/// The age of something. What was there before the start of the process has [`Instant::ZERO`] as
/// its time, so only a lower bound of its age is known: the age of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Age {
    /// The age, or its lower bound.
    pub least: Duration,
    /// True if `least` is the lower bound, and the true age is longer.
    pub is_over: bool,
}

impl Age {
    /// Returns the age at `now` of what is there since a time.
    pub fn since(now: Instant, then: Instant) -> Age {
        Age { least: now.since(then), is_over: then == Instant::ZERO }
    }

    /// Returns the age in its two largest units, such as `over 3 d 4 h`.
    pub fn long(self) -> String {
        format!("{}{}", self.over(), long(self.least))
    }

    /// Returns the word before the number: `over ` before a lower bound, else nothing.
    pub const fn over(self) -> &'static str {
        if self.is_over { "over " } else { "" }
    }
}

/// Writes the age for people, as [`seconds`] does.
impl fmt::Display for Age {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.over(), seconds(self.least))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_from_before_the_start_is_over_that_of_the_process() {
        let now = Instant::from_millis(90_000);
        let (exact, before) = (Age::since(now, Instant::from_millis(30_000)), Age::since(now, Instant::ZERO));
        assert_eq!([exact, before].map(|age| age.to_string()), ["1 min", "over 1 min 30 s"]);
        assert_eq!([exact, before].map(Age::long), ["1 min", "over 1 min 30 s"]);
        assert!(exact < before, "what is from before the start is the oldest");
    }
}
