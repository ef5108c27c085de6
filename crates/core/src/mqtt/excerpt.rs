//! The beginning of a text that may be long, with the length of the whole text.

use crate::mqtt::topic::first_chars;
use std::fmt;

/// The beginning of a Topic Name or of a Client Identifier, for tables of operators with many rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    beginning: Box<str>,
    /// The length of the whole text in bytes.
    bytes: usize,
}

impl Excerpt {
    /// Returns the first `most` characters of a text.
    pub fn of(text: &str, most: usize) -> Excerpt {
        Excerpt { beginning: first_chars(text, most).into(), bytes: text.len() }
    }

    /// Returns true if no character is left out.
    pub fn is_whole(&self) -> bool {
        self.beginning.len() == self.bytes
    }

    /// Returns the characters that are kept.
    pub fn beginning(&self) -> &str {
        &self.beginning
    }
}

/// Shows a text that is cut with a mark and with the length of the whole text.
impl fmt::Display for Excerpt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_whole() {
            true => f.write_str(&self.beginning),
            false => write!(f, "{}... ({} bytes)", self.beginning, self.bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_cut_has_a_mark_and_its_whole_length() {
        for (text, shown) in [
            ("", ""),
            ("a/bc", "a/bc"),
            ("a/bcd", "a/bc... (5 bytes)"),
            ("\u{e9}\u{e9}\u{e9}\u{e9}", "\u{e9}\u{e9}\u{e9}\u{e9}"),
            ("\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}", "\u{e9}\u{e9}\u{e9}\u{e9}... (10 bytes)"),
        ] {
            assert_eq!(Excerpt::of(text, 4).to_string(), shown, "{text}");
        }
    }
}
