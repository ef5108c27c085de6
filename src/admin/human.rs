//! Numbers and times as people read them: on the pages, and in the texts of `homing ctl`.
//!
//! Each kind of figure has one form. Durations have theirs in [`crate::time::duration`], because
//! the log writes them, too.

use crate::time::Instant;
use crate::time::age::Age;
use std::time::Duration;

pub(super) use crate::finding::size as bytes;
pub(super) use crate::time::duration::{long, seconds};

/// Returns the age of something that a shard has noted. The age of what is from before the start is
/// not known, but over that of the process.
pub(super) fn age(now: Instant, since: Instant) -> String {
    Age::since(now, since).to_string()
}

/// Returns the age of a message in an answer: so many seconds, and longer if the message was sent
/// before the start of the broker. Empty for a number that is no duration.
pub(super) fn sent_age(secs: f64, sent_before_start: bool) -> String {
    let age = |least| Age { least, is_over: sent_before_start }.to_string();
    Duration::try_from_secs_f64(secs).map(age).unwrap_or_default()
}

/// Returns a number with a comma behind each third digit.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Returns a number with its noun, such as `1 client` or `2 clients`.
pub(super) fn counted(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", count(number))
}

/// Returns a share in percent, with up to three decimals. The text never shows 100 % for less, so
/// it is cut and not rounded.
pub(super) fn percent(share: f64) -> String {
    // A share such as 0.999 is a little less in binary, so a billionth is added.
    let thousandths = (share * 100_000.0 + 1e-6).floor();
    let text = format!("{:.3}", thousandths / 1_000.0);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

/// Returns what is left of an error budget, as a share. A budget that is overdrawn is used up,
/// however far.
pub(super) fn budget(left: f64) -> String {
    if left <= 0.0 { "used up".to_owned() } else { percent(left) }
}

/// Returns a number with three digits at most, such as `8.1k`.
pub(super) fn rounded(number: f64) -> String {
    let (value, unit) = match number {
        number if number >= 999_500_000.0 => (number / 1e9, "G"),
        number if number >= 999_500.0 => (number / 1e6, "M"),
        number if number >= 999.5 => (number / 1e3, "k"),
        number => (number, ""),
    };
    if value > 0.0 && value < 0.05 {
        return "<0.1".to_owned();
    }
    let is_whole = (value - value.round()).abs() < 0.05 && unit.is_empty();
    if value < 9.95 && !is_whole { format!("{value:.1}{unit}") } else { format!("{value:.0}{unit}") }
}

/// Returns a rate with three digits at most.
pub(super) fn per_second(rate: f64) -> String {
    format!("{}/s", rounded(rate))
}

/// Returns the time of day, in UTC.
pub(super) fn clock_time(unix_ms: u64) -> String {
    let secs = unix_ms / 1_000;
    format!("{:02}:{:02}:{:02}", secs / 3_600 % 24, secs / 60 % 60, secs % 60)
}

/// Returns the date and the time of day, in UTC, such as `2026-11-24 09:02:11`.
pub(super) fn date_time(unix_ms: u64) -> String {
    let (year, month, day) = date_of(unix_ms / 86_400_000);
    format!("{year:04}-{month:02}-{day:02} {}", clock_time(unix_ms))
}

/// Returns the year, month and day of the Gregorian calendar, of days since 1970-01-01.
///
/// Counts from the first of March of year 0, so that the day of a leap year comes last. 400 years
/// have 146,097 days.
fn date_of(days: u64) -> (u64, u64, u64) {
    let since_march_0 = days + 719_468;
    let (cycle, day) = (since_march_0 / 146_097, since_march_0 % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month_from_march = (5 * day + 2) / 153;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = cycle * 400 + year + u64::from(month <= 2);
    (year, month, day - (153 * month_from_march + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_bytes_are_short_and_exact_enough() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([0, 1_023, 1_536, 5 << 30].map(bytes), ["0 B", "1023 B", "1.5 KiB", "5.0 GiB"]);
        assert_eq!([0, 1, 1_000].map(|n| counted(n, "client")), ["0 clients", "1 client", "1,000 clients"]);
    }

    #[test]
    fn a_share_has_the_decimals_that_it_needs_and_is_whole_only_if_nothing_is_missing() {
        let shares = [0.0, 0.5, 0.999, 0.999_99, 0.999_999_9, 1.0, 1.0 / 3.0];
        let texts = ["0 %", "50 %", "99.9 %", "99.999 %", "99.999 %", "100 %", "33.333 %"];
        assert_eq!(shares.map(percent), texts);
        assert_eq!([0.25, 0.0, -999.0].map(budget), ["25 %", "used up", "used up"]);
    }

    #[test]
    fn a_rate_has_three_digits_at_most() {
        let rates =
            [0.0, 0.02, 0.25, 3.0, 9.94, 9.96, 812.4, 999.6, 8_100.0, 24_000.0, 999_600.0, 1_234_567.0];
        let texts = [
            "0/s", "<0.1/s", "0.2/s", "3/s", "9.9/s", "10/s", "812/s", "1.0k/s", "8.1k/s", "24k/s", "1.0M/s",
            "1.2M/s",
        ];
        assert_eq!(rates.map(per_second), texts);
    }

    #[test]
    fn a_time_has_its_date_also_around_the_end_of_february() {
        let at = |secs: u64| date_time(secs * 1_000);
        assert_eq!(at(0), "1970-01-01 00:00:00");
        assert_eq!(at(951_782_399), "2000-02-28 23:59:59");
        assert_eq!(at(951_782_400), "2000-02-29 00:00:00");
        assert_eq!(at(951_868_800), "2000-03-01 00:00:00");
        assert_eq!(at(1_709_251_199), "2024-02-29 23:59:59");
        assert_eq!(at(1_735_689_599), "2024-12-31 23:59:59");
        assert_eq!(at(4_107_542_400), "2100-03-01 00:00:00");
    }
}
