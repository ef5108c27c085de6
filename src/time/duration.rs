//! Durations as people write them: `"20s"`, `"1500ms"`, `"1h 30m"`, `"7d"`, and `"off"` for zero.
//!
//! A plain number is refused: nobody can see whether 20 means seconds or milliseconds. Configuration and clients' wishes are
//! written so.

use std::time::Duration;

/// Units in milliseconds, largest first.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// Why a text is no duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a duration with a unit, such as \"20s\" (units: ms, s, m, h, d)")]
pub struct InvalidDuration;

/// Reads whole numbers with units, such as `1h 30m`; `off` is zero.
pub fn parse(text: &str) -> Result<Duration, InvalidDuration> {
    if text.eq_ignore_ascii_case("off") {
        return Ok(Duration::ZERO);
    }
    let mut rest = text;
    let mut millis = 0_u64;
    loop {
        let (part, after) = take_part(rest)?;
        millis = millis.checked_add(part).ok_or(InvalidDuration)?;
        if after.is_empty() {
            return Ok(Duration::from_millis(millis));
        }
        rest = after.trim_start_matches(' ');
    }
}

/// One number with its unit from the front, in milliseconds, and what follows.
fn take_part(text: &str) -> Result<(u64, &str), InvalidDuration> {
    let (number, rest) = split_while(text, |c| c.is_ascii_digit());
    let (unit, rest) = split_while(rest.trim_start_matches(' '), |c| c.is_ascii_alphabetic());
    let number: u64 = number.parse().map_err(|_| InvalidDuration)?;
    let (_, scale) = UNITS.iter().find(|(name, _)| *name == unit).ok_or(InvalidDuration)?;
    Ok((number.checked_mul(*scale).ok_or(InvalidDuration)?, rest))
}

fn split_while(text: &str, belongs: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !belongs(c)).unwrap_or(text.len()))
}

/// Exactly to the millisecond, in the largest unit that divides it.
pub fn format(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if millis == 0 {
        return "0s".to_owned();
    }
    let unit = UNITS.iter().find(|(_, scale)| millis.is_multiple_of(*scale));
    let (name, scale) = unit.copied().unwrap_or(("ms", 1));
    format!("{}{name}", millis / scale)
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
        ];
        for (text, millis) in cases {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn durations_without_a_clear_unit_are_refused() {
        for text in
            ["", "20", "s", "-1s", "1.5s", "1w", "5min", "20s,", "1 h 3", " 1s", "1s ", "1S", "300000000000d"]
        {
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
}
