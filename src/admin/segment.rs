//! Client identifiers and other texts in URLs.

use std::fmt::Write;

/// Returns a text as one segment of a path or one value of a query.
pub(super) fn segment(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-_~".contains(&byte) {
            out.push(byte as char);
        } else {
            // Writing to a string cannot fail. A dot is written, too: a path may not have "..".
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}
