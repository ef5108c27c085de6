//! A moment in a copy of a store: a position, or a time.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, UNIX_EPOCH};

/// The end of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// The frame at this position is the last one.
    Position(u64),
    /// The last frame is the one before the first that is later than this time, by the wall clock
    /// of the broker, in milliseconds since 1970.
    Time(u64),
}

impl FromStr for Until {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Until, &'static str> {
        if let Ok(position) = text.parse() {
            return Ok(Until::Position(position));
        }
        let time = humantime::parse_rfc3339(text).ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let millis = time.and_then(|since| u64::try_from(since.as_millis()).ok());
        millis.map(Until::Time).ok_or("must be a position, or a time such as 2027-01-31T12:00:00Z")
    }
}

/// A position of a log, and the time of its frame by the wall clock of the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached {
    /// The position.
    pub position: u64,
    /// Milliseconds since 1970.
    pub unix_millis: u64,
}

impl fmt::Display for Reached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = UNIX_EPOCH.checked_add(Duration::from_millis(self.unix_millis));
        write!(f, "position {}", self.position)?;
        match time {
            Some(time) => write!(f, " ({})", humantime::format_rfc3339_millis(time)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_and_a_time_are_read_and_others_are_refused() {
        assert_eq!("4711".parse(), Ok(Until::Position(4711)));
        assert_eq!("2026-11-28T17:00:00Z".parse(), Ok(Until::Time(1_795_885_200_000)));
        assert_eq!("2026-11-28T17:00:00.250Z".parse(), Ok(Until::Time(1_795_885_200_250)));
        for other in ["", "-1", "yesterday", "2026-11-28", "17:00", "99999999999999999999999"] {
            assert!(Until::from_str(other).is_err(), "{other}");
        }
    }

    #[test]
    fn what_was_reached_reads_back_as_an_end() {
        let reached = Reached { position: 7, unix_millis: 1_795_885_200_250 };
        let text = reached.to_string();
        assert_eq!(text, "position 7 (2026-11-28T17:00:00.250Z)");
        let time = text.split(['(', ')']).nth(1).unwrap();
        assert_eq!(time.parse(), Ok(Until::Time(reached.unix_millis)));
    }
}
