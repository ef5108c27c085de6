//! Topic Names and Topic Filters: validity, the parts of a shared filter, and a reference matcher.
//!
//! The index that finds the filters of a topic is [`crate::routing::subscription_tree`]. Its tests
//! compare it with [`matches()`], which follows the words of the standard. Policy rules use
//! [`matches()`] too, because each of them compares one filter with one topic.
//!
//! Levels are compared byte for byte: no normalisation, no case folding (5.0 and 3.1.1
//! [MQTT-4.7.3-4]).

use std::borrow::Cow;
use thiserror::Error;

const SHARE_PREFIX: &str = "$share/";

/// True if `topic` is a Topic Name: one character or more, no wildcard, no U+0000.
///
/// An empty PUBLISH topic beside a 5.0 Topic Alias is not a Topic Name. The session handles that
/// case.
pub fn is_topic_name(topic: &str) -> bool {
    // 5.0 and 3.1.1 [MQTT-4.7.3-1]; 5.0 [MQTT-4.7.0-1], 3.1.1 [MQTT-4.7.1-1]; both [MQTT-4.7.3-2],
    // [MQTT-3.3.2-2]
    !topic.is_empty() && !has_null_or_wildcard(topic.as_bytes())
}

/// True if the bytes have U+0000, `+` or `#`.
///
/// One pass looks for all three, without early exit, so that the compiler uses vector compares. The
/// pass takes 16 bytes at a time, then 8, then single bytes. A plain loop takes a tail of up to 31
/// bytes byte by byte (31 bytes: 7.2 instead of 11.6 ns).
#[inline]
pub(crate) fn has_null_or_wildcard(bytes: &[u8]) -> bool {
    let any = |bytes: &[u8]| {
        bytes.iter().fold(false, |found, &byte| found | (byte == 0) | (byte == b'+') | (byte == b'#'))
    };
    let (sixteens, rest) = bytes.as_chunks::<16>();
    let (eights, rest) = rest.as_chunks::<8>();
    let found = sixteens.iter().fold(false, |found, chunk| found | any(chunk));
    eights.iter().fold(found, |found, chunk| found | any(chunk)) | any(rest)
}

/// Returns the number of topic levels: the number of slashes plus one.
pub fn levels(topic_or_filter: &str) -> usize {
    1 + topic_or_filter.bytes().filter(|b| *b == b'/').count()
}

/// True for a topic or filter that begins with `$`. A wildcard in the first level does not match
/// such a topic.
pub fn begins_with_dollar(topic: &str) -> bool {
    topic.starts_with('$')
}

/// A valid Topic Filter that borrows its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TopicFilter<'a> {
    /// The whole text, as the client sent it.
    pub full: &'a str,
    /// The part that is compared with topics: the text without `$share/NAME/`.
    pub filter: &'a str,
    /// NAME of `$share/NAME/FILTER`; `None` for an ordinary filter.
    pub share_name: Option<&'a str>,
}

/// The reason why a text is not a Topic Filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TopicFilterError {
    /// The filter has no character.
    #[error("the topic filter is empty")]
    Empty,
    /// The filter or its share name has U+0000.
    #[error("the topic filter has U+0000")]
    Nul,
    /// `#` is not a whole level, or another level follows.
    #[error("# is not a whole level or not the last")]
    MisplacedMultiLevelWildcard,
    /// `+` is not a whole level.
    #[error("+ is not a whole level")]
    MisplacedSingleLevelWildcard,
    /// NAME of `$share/NAME/FILTER` is empty or has a wildcard.
    #[error("the share name is empty or has a wildcard")]
    ShareName,
    /// `$share/` without a second slash, or with nothing behind it.
    #[error("no topic filter follows the share name")]
    ShareWithoutFilter,
    /// More levels than the operator allows. All other errors are the standard's.
    #[error("the topic filter has more levels than allowed")]
    TooManyLevels,
}

impl<'a> TopicFilter<'a> {
    /// Reads an ordinary filter or `$share/NAME/FILTER`.
    ///
    /// Shared filters are accepted in every protocol version: 3.x clients cannot mean anything else
    /// by them, and mosquitto accepts them too. `max_levels` bounds the levels without the share
    /// prefix.
    ///
    /// # Errors
    /// Returns the first rule of the standard that the text breaks, or
    /// [`TopicFilterError::TooManyLevels`].
    pub fn parse(full: &'a str, max_levels: usize) -> Result<TopicFilter<'a>, TopicFilterError> {
        let (share_name, filter) = split_share(full)?;
        check(filter, max_levels)?;
        Ok(TopicFilter { full, filter, share_name })
    }

    /// True for `$share/NAME/FILTER`.
    pub fn is_shared(&self) -> bool {
        self.share_name.is_some()
    }

    /// True if the filter can match more than one topic.
    pub fn has_wildcard(&self) -> bool {
        has_wildcard(self.filter)
    }
}

/// True if a valid filter has a wildcard, so that it can match more than one topic.
pub fn has_wildcard(filter: &str) -> bool {
    filter.bytes().any(|b| matches!(b, b'+' | b'#'))
}

/// Returns a filter without its `$share/NAME/`; a text that is no filter is not changed.
pub fn without_share(full: &str) -> &str {
    TopicFilter::parse(full, usize::MAX).map_or(full, |parsed| parsed.filter)
}

fn split_share(full: &str) -> Result<(Option<&str>, &str), TopicFilterError> {
    let Some(rest) = full.strip_prefix(SHARE_PREFIX) else {
        return Ok((None, full));
    };
    // 5.0 [MQTT-4.8.2-2]: the name ends at a slash, and a filter comes after it.
    let Some((name, filter)) = rest.split_once('/') else {
        return Err(TopicFilterError::ShareWithoutFilter);
    };
    // 5.0 [MQTT-4.8.2-1], [MQTT-4.8.2-2]
    if name.is_empty() || has_wildcard(name) {
        return Err(TopicFilterError::ShareName);
    }
    if name.contains('\0') {
        return Err(TopicFilterError::Nul);
    }
    if filter.is_empty() {
        return Err(TopicFilterError::ShareWithoutFilter);
    }
    Ok((Some(name), filter))
}

fn check(filter: &str, max_levels: usize) -> Result<(), TopicFilterError> {
    // 5.0 and 3.1.1 [MQTT-4.7.3-1]
    if filter.is_empty() {
        return Err(TopicFilterError::Empty);
    }
    // 5.0 and 3.1.1 [MQTT-4.7.3-2]
    if filter.bytes().any(|b| b == 0) {
        return Err(TopicFilterError::Nul);
    }
    if levels(filter) > max_levels {
        return Err(TopicFilterError::TooManyLevels);
    }
    if !has_wildcard(filter) {
        return Ok(());
    }
    let mut rest = filter.split('/').peekable();
    while let Some(level) = rest.next() {
        // 5.0 [MQTT-4.7.1-1], 3.1.1 [MQTT-4.7.1-2]
        if level.contains('#') && (level != "#" || rest.peek().is_some()) {
            return Err(TopicFilterError::MisplacedMultiLevelWildcard);
        }
        // 5.0 [MQTT-4.7.1-2], 3.1.1 [MQTT-4.7.1-3]
        if level.contains('+') && level != "+" {
            return Err(TopicFilterError::MisplacedSingleLevelWildcard);
        }
    }
    Ok(())
}

/// True if a valid filter without share prefix matches a Topic Name. Linear in the lengths, no
/// allocation.
pub fn matches(filter: &str, topic: &str) -> bool {
    // 5.0 and 3.1.1 [MQTT-4.7.2-1]
    if begins_with_dollar(topic) && filter.starts_with(['+', '#']) {
        return false;
    }
    levels_match(filter.split('/'), topic)
}

/// True if the levels of a valid filter match a text of levels, such as a Topic Name or the end of
/// one. Knows nothing of `$`. Linear in the lengths, no allocation.
#[inline]
pub fn levels_match<'a>(filter: impl Iterator<Item = &'a str>, topic: &str) -> bool {
    let mut levels = topic.split('/');
    for wanted in filter {
        // `#` matches the parent level too: `a/#` matches `a`.
        if wanted == "#" {
            return true;
        }
        match levels.next() {
            Some(level) if wanted == "+" || wanted == level => {}
            _ => return false,
        }
    }
    levels.next().is_none()
}

/// Returns the first `most` characters of `text`. A text of at most that many bytes is not read.
pub fn first_chars(text: &str, most: usize) -> &str {
    if text.len() <= most {
        return text;
    }
    match text.char_indices().nth(most) {
        Some((end, _)) => text.get(..end).unwrap_or_default(),
        None => text,
    }
}

/// Returns `text` as one level of a Topic Name. The characters `/`, `+`, `#` and `%` become `%2F`,
/// `%2B`, `%23` and `%25`. Allocates only if there is one of them.
pub fn escape_level(text: &str) -> Cow<'_, str> {
    const SPECIAL: [char; 4] = ['/', '+', '#', '%'];
    if !text.contains(SPECIAL) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '/' => escaped.push_str("%2F"),
            '+' => escaped.push_str("%2B"),
            '#' => escaped.push_str("%23"),
            '%' => escaped.push_str("%25"),
            other => escaped.push(other),
        }
    }
    Cow::Owned(escaped)
}

/// Returns true if a topic is reserved for the broker. A client's PUBLISH to such a topic is not
/// routed. The message is dropped and counted, unless the topic is a request of the client.
#[inline]
pub(crate) fn is_reserved(topic: &str) -> bool {
    topic.starts_with('$') && is_own(topic)
}

#[cold]
fn is_own(topic: &str) -> bool {
    ["$SYS", "$dead", "$homing", "$delayed", "$share"]
        .iter()
        .any(|own| topic.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(filter: &str) -> Result<TopicFilter<'_>, TopicFilterError> {
        TopicFilter::parse(filter, 8)
    }

    // 5.0 [MQTT-4.7.3-1]; 3.1.1 [MQTT-4.7.3-1]
    #[test]
    fn empty_topics_and_filters_are_refused() {
        assert!(!is_topic_name(""));
        assert_eq!(parse(""), Err(TopicFilterError::Empty));
        assert!(is_topic_name("/") && is_topic_name(" "));
        assert!(parse("/").is_ok());
    }

    // 5.0 [MQTT-4.7.0-1]; 3.1.1 [MQTT-4.7.1-1]
    #[test]
    fn wildcards_are_not_for_topic_names() {
        for topic in ["#", "+", "a/#", "a/+/b", "a+", "a#b"] {
            assert!(!is_topic_name(topic), "{topic}");
        }
        assert!(is_topic_name("a/b") && is_topic_name("$SYS/x"));
    }

    // 5.0 [MQTT-4.7.3-2]; 3.1.1 [MQTT-4.7.3-2]
    #[test]
    fn u0000_is_refused() {
        assert!(!is_topic_name("a\0"));
        assert_eq!(parse("a\0b"), Err(TopicFilterError::Nul));
        assert_eq!(parse("$share/g\0/a"), Err(TopicFilterError::Nul));
    }

    // 5.0 [MQTT-4.7.1-1]; 3.1.1 [MQTT-4.7.1-2]
    #[test]
    fn multi_level_wildcard_is_a_whole_level_and_the_last() {
        for filter in ["#", "a/#", "/#", "+/#", "$SYS/#"] {
            assert!(parse(filter).is_ok(), "{filter}");
        }
        for filter in ["a#", "a/#/b", "#/", "##", "a/#b", "#+"] {
            assert_eq!(parse(filter), Err(TopicFilterError::MisplacedMultiLevelWildcard), "{filter}");
        }
    }

    // 5.0 [MQTT-4.7.1-2]; 3.1.1 [MQTT-4.7.1-3]
    #[test]
    fn single_level_wildcard_is_a_whole_level() {
        for filter in ["+", "+/+", "a/+/b", "/+", "+/"] {
            assert!(parse(filter).is_ok(), "{filter}");
        }
        for filter in ["a+", "+a", "a/b+/c", "++"] {
            assert_eq!(parse(filter), Err(TopicFilterError::MisplacedSingleLevelWildcard), "{filter}");
        }
    }

    // 5.0 [MQTT-4.8.2-1], [MQTT-4.8.2-2]
    #[test]
    fn shared_filters_need_a_plain_name_and_a_filter() {
        let shared = parse("$share/group/a/+").unwrap();
        assert_eq!((shared.share_name, shared.filter), (Some("group"), "a/+"));
        assert!(shared.is_shared() && shared.has_wildcard());
        assert_eq!(shared.full, "$share/group/a/+");
        assert_eq!(parse("$share//a"), Err(TopicFilterError::ShareName));
        assert_eq!(parse("$share/g+/a"), Err(TopicFilterError::ShareName));
        assert_eq!(parse("$share/#/a"), Err(TopicFilterError::ShareName));
        assert_eq!(parse("$share/g"), Err(TopicFilterError::ShareWithoutFilter));
        assert_eq!(parse("$share/g/"), Err(TopicFilterError::ShareWithoutFilter));
        assert_eq!(parse("$share/"), Err(TopicFilterError::ShareWithoutFilter));
        assert_eq!(parse("$share/g/a#"), Err(TopicFilterError::MisplacedMultiLevelWildcard));
        assert_eq!(parse("$share/g//").unwrap().filter, "/");
        assert_eq!(parse("$shared/g/a").unwrap().share_name, None);
        assert_eq!(parse("$share").unwrap().share_name, None);
    }

    #[test]
    fn levels_beyond_the_operators_bound_are_refused() {
        assert!(TopicFilter::parse("a/b/c", 3).is_ok());
        assert!(TopicFilter::parse("$share/g/a/b/c", 3).is_ok());
        assert_eq!(TopicFilter::parse("a/b/c/", 3), Err(TopicFilterError::TooManyLevels));
        assert_eq!((levels("a"), levels("/"), levels("a/b/c")), (1, 2, 3));
    }

    #[test]
    fn the_first_characters_of_a_text_are_whole() {
        assert_eq!((first_chars("abc", 3), first_chars("abcd", 3), first_chars("", 0)), ("abc", "abc", ""));
        assert_eq!((first_chars("äöü", 3), first_chars("äöüß", 3), first_chars("ä", 0)), ("äöü", "äöü", ""));
    }

    // 5.0 [MQTT-4.7.2-1]; 3.1.1 [MQTT-4.7.2-1]
    #[test]
    fn leading_wildcards_pass_over_dollar_topics() {
        assert!(!matches("#", "$SYS/x") && !matches("+/x", "$SYS/x") && !matches("+", "$SYS"));
        assert!(matches("$SYS/#", "$SYS/x") && matches("$SYS/+", "$SYS/x") && matches("$SYS/#", "$SYS"));
        assert!(matches("+/#", "a/$b") && matches("a/+", "a/$b"));
    }

    #[test]
    fn wildcards_match_as_in_the_standards_examples() {
        let player = "sport/tennis/player1";
        assert!(matches("sport/tennis/player1/#", player));
        assert!(matches("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon"));
        assert!(matches("sport/#", "sport") && matches("#", "a"));
        assert!(matches("sport/tennis/+", player) && !matches("sport/tennis/+", "sport/tennis/player1/x"));
        assert!(!matches("sport/+", "sport") && matches("sport/+", "sport/"));
        assert!(matches("+/+", "/finance") && matches("/+", "/finance") && !matches("+", "/finance"));
    }

    // 5.0 [MQTT-4.7.3-4]; 3.1.1 [MQTT-4.7.3-4]
    #[test]
    fn topics_are_compared_as_they_are() {
        assert!(!matches("a", "A"));
        // The same glyph, composed and decomposed.
        assert!(!matches("\u{e9}", "e\u{301}"));
    }

    #[test]
    fn any_client_id_is_one_level() {
        assert_eq!(escape_level("plain-1"), "plain-1");
        assert_eq!(escape_level("a/+/#/100%"), "a%2F%2B%2F%23%2F100%25");
    }
}
