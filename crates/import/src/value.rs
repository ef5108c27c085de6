//! The values of mosquitto's options, and their form in Homing's TOML.

use super::conf::ConfLine;

/// The value of an option cannot be used. The text says why, or what to write.
pub(super) type RefusedValue = String;

/// Returns the value of a line that has one.
pub(super) fn text(line: &ConfLine) -> Result<String, RefusedValue> {
    if line.value.is_empty() { Err("has no value".to_owned()) } else { Ok(line.value.clone()) }
}

/// Returns the path of a file. A file may have the name of a word of Homing's key, such as "off".
pub(super) fn path(line: &ConfLine) -> Result<String, RefusedValue> {
    let path = text(line)?;
    let is_word = ["off", "auto"].iter().any(|word| path.eq_ignore_ascii_case(word));
    Ok(if is_word { format!("./{path}") } else { path })
}

/// Returns the first word of a value. mosquitto ignores the text behind the word of a one-word
/// option: often a comment.
fn word(text: &str) -> &str {
    text.split(' ').next().unwrap_or_default()
}

/// Reads true or false.
pub(super) fn boolean(line: &ConfLine) -> Result<bool, RefusedValue> {
    match word(&line.value) {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err("must be true or false".to_owned()),
    }
}

/// Reads a number that fits its type.
pub(super) fn number<T: std::str::FromStr>(text: &str) -> Result<T, RefusedValue> {
    word(text).parse().map_err(|_| format!("{text:?} is not a number that mosquitto or Homing takes"))
}

/// Reads a limit that 0 and less turn off: `None`.
pub(super) fn limit(line: &ConfLine) -> Result<Option<u64>, RefusedValue> {
    let count: i64 = number(&line.value)?;
    Ok(u64::try_from(count).ok().filter(|count| *count > 0))
}

/// Returns a size as a string of TOML.
pub(super) fn quoted_bytes(bytes: u64) -> String {
    quoted(&format!("{bytes} B"))
}

/// Returns a duration as a string of TOML.
pub(super) fn quoted_seconds(seconds: u32) -> String {
    quoted(&format!("{seconds}s"))
}

/// Reads mosquitto's `14d`: seconds, hours, days, weeks, months and years. 0 is refused, as in
/// mosquitto.
pub(super) fn expiration(text: &str) -> Result<String, RefusedValue> {
    let text = word(text);
    const MOST_HOURS: u64 = 49_710 * 24;
    const MOST_SECONDS: u32 = 49_710 * 24 * 3_600;
    let allowed = || format!("{text:?} must be a number with s, h, d, w, m or y");
    let unit = text.chars().next_back().ok_or_else(allowed)?;
    let count = &text[..text.len() - unit.len_utf8()];
    if number::<u64>(count)? == 0 {
        return Err("must be above 0".to_owned());
    }
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
    use crate::conf::parse;
    use std::path::Path;

    #[test]
    fn expirations_are_seconds_or_hours() {
        assert_eq!(expiration("14d").unwrap(), "\"336h\"");
        assert_eq!(expiration("1m").unwrap(), "\"720h\"");
        assert_eq!(expiration("200y").unwrap(), "\"1193040h\"");
        assert_eq!(expiration("30s").unwrap(), "\"30s\"");
        assert_eq!(expiration("4294967295s").unwrap(), "\"4294944000s\"");
        for text in ["", "d", "14", "s", "1.5s", "-1d", "0d", "1é"] {
            assert!(expiration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_first_word_counts_where_an_option_has_one() {
        let line = |value: &str| {
            let line = parse(Path::new("m.conf"), &format!("x {value}\n")).into_iter().next();
            line.expect("an option")
        };
        for (text, read) in [("true", true), ("1", true), ("1 # on", true), ("false", false), ("0 ", false)] {
            assert_eq!(boolean(&line(text)), Ok(read), "{text}");
        }
        assert!(["yes", "TRUE", "2", "true\t# on"].iter().all(|text| boolean(&line(text)).is_err()));
        assert_eq!(["9 # most", "0", "-1"].map(|text| limit(&line(text))), [Ok(Some(9)), Ok(None), Ok(None)]);
        assert!(["9x", "99999999999999999999"].iter().all(|text| limit(&line(text)).is_err()));
    }

    #[test]
    fn a_file_with_the_name_of_a_word_is_a_file() {
        let lines = parse(Path::new("m.conf"), "acl_file off\nacl_file Auto\nacl_file off.acl\n");
        let paths: Vec<_> = lines.iter().map(|line| path(line).expect("a path")).collect();
        assert_eq!(paths, ["./off", "./Auto", "off.acl"]);
    }

    #[test]
    fn text_is_escaped_for_toml() {
        assert_eq!(quoted("a\"b\\c\n\u{1}\u{7f}"), r#""a\"b\\c\n\u0001\u007f""#);
    }
}
