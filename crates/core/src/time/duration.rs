//! Durations as people write them: `"20s"`, `"1500ms"`, `"1h 30m"`, `"7d"`, and `"off"` for zero.
//! The crate `humantime` reads them.
//!
//! Configuration, command lines and the times that clients request are written so. A plain number
//! is refused, because nobody can see whether 20 means seconds or milliseconds.

use crate::time::millis;
use std::time::Duration;

/// Units in milliseconds, largest first. [`format()`] writes durations in these units.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// The error of [`parse`]: the text is not a duration with a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a duration with a unit, such as \"20s\" (units: ms, s, m, h, d)")]
pub struct InvalidDuration;

/// Reads numbers with units, such as `1h 30m`. Returns zero for `off`, in any case of letters.
///
/// # Errors
/// Returns [`InvalidDuration`] for a number without a unit, for a fraction of a millisecond, and
/// for more than 2^64 - 1 milliseconds.
pub fn parse(text: &str) -> Result<Duration, InvalidDuration> {
    if text.eq_ignore_ascii_case("off") {
        return Ok(Duration::ZERO);
    }
    // humantime reads "0" as zero and ignores spaces at both ends.
    if !text.starts_with(|c: char| c.is_ascii_digit()) || !text.ends_with(|c: char| c.is_ascii_alphabetic()) {
        return Err(InvalidDuration);
    }
    let duration = humantime::parse_duration(text).map_err(|_| InvalidDuration)?;
    let is_whole = duration.subsec_nanos().is_multiple_of(1_000_000);
    let fits = u64::try_from(duration.as_millis()).is_ok();
    if is_whole && fits { Ok(duration) } else { Err(InvalidDuration) }
}

/// Writes a duration to the millisecond, in the largest unit that divides it. Zero gives `0s`.
///
/// `humantime` would write two units ("1m 30s"), which a client would have to add up.
pub fn format(duration: Duration) -> String {
    let millis = millis(duration);
    if millis == 0 {
        return "0s".to_owned();
    }
    let unit = UNITS.iter().find(|(_, scale)| millis.is_multiple_of(*scale));
    let (name, scale) = unit.copied().unwrap_or(("ms", 1));
    format!("{}{name}", millis / scale)
}

/// Returns a duration for people: milliseconds below a second, tenths of seconds below a minute,
/// else the two largest units.
pub fn seconds(duration: Duration) -> String {
    match duration.as_millis() {
        0 => "0 s".to_owned(),
        millis @ 1..1_000 => format!("{millis} ms"),
        1_000..60_000 => format!("{:.1} s", duration.as_secs_f64()),
        _ => long(duration),
    }
}

/// Returns a duration in its two largest units, such as `3 d 4 h`.
pub fn long(duration: Duration) -> String {
    let secs = duration.as_secs();
    let units = [(86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")];
    let first = units.iter().position(|(size, _)| secs >= *size).unwrap_or(units.len() - 1);
    let mut left = secs;
    let mut parts = Vec::new();
    for (size, name) in units.into_iter().skip(first).take(2) {
        if left >= size || parts.is_empty() {
            parts.push(format!("{} {name}", left / size));
        }
        left %= size;
    }
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_people_write_them() {
        let cases = [
            ("20s", 20_000),
            ("1500ms", 1500),
            ("5m", 300_000),
            ("2h", 7_200_000),
            ("7d", 604_800_000),
            ("0s", 0),
            ("off", 0),
            ("1h 30m", 5_400_000),
            ("1m30s", 90_000),
            ("10 s", 10_000),
            ("5min", 300_000),
            ("1.5s", 1500),
            ("1w", 604_800_000),
        ];
        for (text, millis) in cases {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn durations_without_a_clear_unit_are_refused() {
        for text in [
            "",
            "0",
            "20",
            "s",
            "-1s",
            "20s,",
            "1 h 3",
            " 1s",
            "1s ",
            "1S",
            "100us",
            "1.0005s",
            "300000000000d",
        ] {
            assert_eq!(parse(text), Err(InvalidDuration), "{text:?}");
        }
    }

    #[test]
    fn a_duration_is_written_as_it_reads() {
        for millis in [0, 1, 250, 1000, 1500, 60_000, 90_000, 3_600_000, 604_800_000] {
            let duration = Duration::from_millis(millis);
            assert_eq!(parse(&format(duration)), Ok(duration));
        }
        assert_eq!(format(Duration::from_secs(90)), "90s");
        assert_eq!(format(Duration::from_secs(7 * 86_400)), "7d");
    }

    #[test]
    fn durations_for_people_have_their_two_largest_units() {
        let text = |secs| long(Duration::from_secs(secs));
        assert_eq!([0, 59, 60, 3_661, 270_000].map(text), ["0 s", "59 s", "1 min", "1 h 1 min", "3 d 3 h"]);
        assert_eq!(
            [0, 4, 999, 11_240].map(|ms| seconds(Duration::from_millis(ms))),
            ["0 s", "4 ms", "999 ms", "11.2 s"]
        );
        assert_eq!(seconds(Duration::from_secs(604_664)), "6 d 23 h");
    }
}
