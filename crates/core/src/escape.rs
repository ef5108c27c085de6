//! Escapes of characters that could act on a reader's terminal or log.

use std::borrow::Cow;
use std::fmt::{self, Write};

/// Returns true for control characters, for line and paragraph separators, and for characters that
/// change the direction of text: they write on a terminal, break a line, or show a name as another.
pub fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Writes a character; harmful characters in Rust's escapes, such as `\u{1b}`.
///
/// # Errors
/// The writer fails.
pub fn put(out: &mut impl Write, c: char) -> fmt::Result {
    if is_harmful(c) { write!(out, "{}", c.escape_default()) } else { out.write_char(c) }
}

/// Returns a text whose harmful characters are escaped as by [`put`].
pub fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    // Writing to a string cannot fail.
    let _ = text.chars().try_for_each(|c| put(&mut out, c));
    out
}

/// Returns a text of JSON whose harmful characters are escaped, which JSON allows. Line feeds stay,
/// because they separate the values.
pub fn json(text: &str) -> Cow<'_, str> {
    let is_escaped = |c: char| is_harmful(c) && c != '\n';
    if !text.contains(is_escaped) {
        return text.into();
    }
    text.chars()
        .fold(String::new(), |mut out, c| {
            if is_escaped(c) {
                // Writing to a string cannot fail. Each of these characters is one unit of UTF-16.
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            } else {
                out.push(c);
            }
            out
        })
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_on_a_reader_is_harmful_and_letters_are_not() {
        let harmful = "\0\u{7}\u{1b}\u{7f}\u{85}\u{9b}\u{61c}\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\u{202e}\u{2066}\u{2069}";
        assert!(harmful.chars().all(is_harmful));
        assert!(!"az \"\u{e9}\u{5d0}\u{200d}\u{1f600}".contains(is_harmful));
    }

    #[test]
    fn a_visible_text_shows_what_is_harmful() {
        assert_eq!(visible("a\u{1b}[31m\u{202e}b"), "a\\u{1b}[31m\\u{202e}b");
    }

    #[test]
    fn json_has_the_same_value_when_it_is_escaped() {
        let value = serde_json::json!({ "a": "x\u{202e}\u{2028}\u{9b}y\n", "b": 1 });
        let text = serde_json::to_string_pretty(&value).expect("JSON");
        let escaped = json(&text);
        assert!(
            escaped.contains("\\u202e\\u2028\\u009by") && !escaped.contains(|c| is_harmful(c) && c != '\n')
        );
        assert_eq!(serde_json::from_str::<serde_json::Value>(&escaped).ok(), Some(value));
        assert!(matches!(json("{}\n"), Cow::Borrowed(_)));
    }
}
