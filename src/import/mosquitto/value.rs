//! The values of mosquitto's options, and their form in Homing's TOML.

use super::conf::ConfLine;

/// The value of an option cannot be used. The text says why, or what to write.
pub(super) type RefusedValue = String;

/// Returns the value of a line that has one.
pub(super) fn text(line: &ConfLine) -> Result<String, RefusedValue> {
    if line.value.is_empty() { Err("has no value".to_owned()) } else { Ok(line.value.clone()) }
}

/// Reads true or false.
pub(super) fn boolean(line: &ConfLine) -> Result<bool, RefusedValue> {
    match line.value.as_str() {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err("must be true or false".to_owned()),
    }
}

/// Reads a number that fits its type.
pub(super) fn number<T: std::str::FromStr>(text: &str) -> Result<T, RefusedValue> {
    text.trim().parse().map_err(|_| format!("{text:?} is not a number that Homing takes"))
}

/// A count where mosquitto's 0 means no limit.
pub(super) fn bounded(text: &str, most: u64) -> Result<u64, RefusedValue> {
    let count: u64 = number(text)?;
    Ok(if count == 0 { most } else { count.min(most) })
}

/// Bytes, or `None` for mosquitto's 0, which means no limit of its own.
pub(super) fn bytes(line: &ConfLine) -> Result<Option<String>, RefusedValue> {
    let count: u64 = number(&line.value)?;
    Ok((count > 0).then(|| quoted(&format!("{count} B"))))
}

/// Returns a duration as a string of TOML.
pub(super) fn quoted_seconds(seconds: u32) -> String {
    quoted(&format!("{seconds}s"))
}

/// Reads mosquitto's `14d`: seconds, hours, days, weeks, months and years.
pub(super) fn expiration(text: &str) -> Result<String, RefusedValue> {
    const MOST_HOURS: u64 = 49_710 * 24;
    const MOST_SECONDS: u32 = 49_710 * 24 * 3_600;
    let allowed = || format!("{text:?} must be a number with s, h, d, w, m or y");
    let unit = text.chars().next_back().ok_or_else(allowed)?;
    let count = &text[..text.len() - unit.len_utf8()];
    let hours = match unit {
        's' => return Ok(quoted_seconds(number::<u32>(count)?.min(MOST_SECONDS))),
        'h' => 1,
        'd' => 24,
        'w' => 7 * 24,
        'm' => 30 * 24,
        'y' => 365 * 24,
        _ => return Err(allowed()),
    };
    let count: u64 = number(count)?;
    Ok(quoted(&format!("{}h", count.saturating_mul(hours).min(MOST_HOURS))))
}

/// Returns the text as a string of TOML.
pub(super) fn quoted(text: &str) -> String {
    // JSON's form of a text is TOML's as well, but TOML wants DEL escaped.
    serde_json::Value::String(text.to_owned()).to_string().replace('\u{7f}', "\\u007f")
}

/// Returns the texts as an array of TOML.
pub(super) fn quoted_list(texts: &[impl AsRef<str>]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| quoted(text.as_ref())).collect();
    format!("[{}]", texts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expirations_are_seconds_or_hours() {
        assert_eq!(expiration("14d").unwrap(), "\"336h\"");
        assert_eq!(expiration("1m").unwrap(), "\"720h\"");
        assert_eq!(expiration("200y").unwrap(), "\"1193040h\"");
        assert_eq!(expiration("30s").unwrap(), "\"30s\"");
        assert_eq!(expiration("4294967295s").unwrap(), "\"4294944000s\"");
        for text in ["", "d", "14", "s", "1.5s", "-1d", "1é"] {
            assert!(expiration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn zero_means_no_limit() {
        assert_eq!((bounded("0", 10), bounded("11", 10), bounded("9", 10)), (Ok(10), Ok(10), Ok(9)));
        assert!(bounded("-1", 10).is_err());
    }

    #[test]
    fn text_is_escaped_for_toml() {
        assert_eq!(quoted("a\"b\\c\n\u{1}\u{7f}"), r#""a\"b\\c\n\u0001\u007f""#);
    }
}
