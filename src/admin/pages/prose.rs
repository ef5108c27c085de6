//! Texts of the documentation on pages: the code in them is between backticks, as in Markdown.

/// A text in its parts, each with true for code.
pub(super) type Prose = Vec<(bool, String)>;

/// Returns the parts of a text. A backtick without its second one stays as it is.
pub(super) fn prose(text: &str) -> Prose {
    let mut parts: Prose =
        text.split('`').enumerate().map(|(at, part)| (at % 2 == 1, part.to_owned())).collect();
    if parts.len().is_multiple_of(2)
        && let Some((is_code, last)) = parts.last_mut()
    {
        (*is_code, *last) = (false, format!("`{last}"));
    }
    parts.retain(|(_, part)| !part.is_empty());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_in_a_text_is_a_part_of_its_own() {
        let part = |is_code, text: &str| (is_code, text.to_owned());
        assert_eq!(
            prose("With `limit`: `10`"),
            [part(false, "With "), part(true, "limit"), part(false, ": "), part(true, "10")]
        );
        assert_eq!(prose("5` long"), [part(false, "5"), part(false, "` long")]);
    }
}
