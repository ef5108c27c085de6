//! Topic Names and Topic Filters: validity, the parts of a shared filter, and a matcher that follows the
//! standard's words.
//!
//! Not here: the index that finds the filters for a topic ([`crate::routing::subscription_tree`]);
//! [`matches()`] is the reference it is tested against, and good enough where one filter meets one topic
//! (policy rules).
//!
//! Levels are compared byte for byte: no normalisation, no case folding (5.0 and 3.1.1 [MQTT-4.7.3-4]).

use std::borrow::Cow;
use thiserror::Error;

const SHARE_PREFIX: &str = "$share/";

/// Whether a client may publish to it: one character or more, no wildcard, no U+0000.
///
/// An empty PUBLISH topic that a 5.0 Topic Alias stands in for is the session's case, not a Topic Name.
pub fn is_topic_name(topic: &str) -> bool {
    // 5.0 and 3.1.1 [MQTT-4.7.3-1]; 5.0 [MQTT-4.7.0-1], 3.1.1 [MQTT-4.7.1-1]; both [MQTT-4.7.3-2],
    // [MQTT-3.3.2-2]
    !topic.is_empty() && !topic.bytes().any(|b| matches!(b, b'+' | b'#' | 0))
}

/// The number of topic levels: one more than there are slashes.
pub fn levels(topic_or_filter: &str) -> usize {
    1 + topic_or_filter.bytes().filter(|b| *b == b'/').count()
}

/// Whether a topic or filter is the broker's own kind, which wildcards in the first level pass over.
pub fn begins_with_dollar(topic: &str) -> bool {
    topic.starts_with('$')
}

/// A valid Topic Filter, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TopicFilter<'a> {
    /// As the client wrote it.
    pub full: &'a str,
    /// What is matched against topics: without `$share/NAME/`.
    pub filter: &'a str,
    /// NAME of `$share/NAME/FILTER`.
    pub share_name: Option<&'a str>,
}

/// Why a string is no Topic Filter we take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TopicFilterError {
    #[error("the topic filter is empty")]
    Empty,
    #[error("the topic filter has U+0000")]
    Nul,
    #[error("# is not a whole level or not the last")]
    MisplacedMultiLevelWildcard,
    #[error("+ is not a whole level")]
    MisplacedSingleLevelWildcard,
    #[error("the share name is empty or has a wildcard")]
    ShareName,
    #[error("no topic filter follows the share name")]
    ShareWithoutFilter,
    /// The only one which is the operator's choice and not the standard's.
    #[error("the topic filter has more levels than allowed")]
    TooManyLevels,
}

impl<'a> TopicFilter<'a> {
    /// Reads an ordinary filter or `$share/NAME/FILTER`, the latter in every protocol version: 3.x clients
    /// cannot mean anything else by it, and mosquitto takes it from them too.
    ///
    /// `max_levels` bounds the filter without the share prefix.
    pub fn parse(full: &'a str, max_levels: usize) -> Result<TopicFilter<'a>, TopicFilterError> {
        let (share_name, filter) = split_share(full)?;
        check(filter, max_levels)?;
        Ok(TopicFilter { full, filter, share_name })
    }

    pub fn is_shared(&self) -> bool {
        self.share_name.is_some()
    }

    pub fn has_wildcard(&self) -> bool {
        has_wildcard(self.filter)
    }
}

/// Whether a valid filter names more than one topic.
pub fn has_wildcard(filter: &str) -> bool {
    filter.bytes().any(|b| matches!(b, b'+' | b'#'))
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
    if filter.contains('\0') {
        return Err(TopicFilterError::Nul);
    }
    if levels(filter) > max_levels {
        return Err(TopicFilterError::TooManyLevels);
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

/// Whether a valid filter (without share prefix) matches a Topic Name. Linear in the topic, no allocation.
pub fn matches(filter: &str, topic: &str) -> bool {
    // 5.0 and 3.1.1 [MQTT-4.7.2-1]
    if begins_with_dollar(topic) && filter.starts_with(['+', '#']) {
        return false;
    }
    let mut levels = topic.split('/');
    for wanted in filter.split('/') {
        // `#` stands for the parent level too: `a/#` matches `a`.
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

/// A text as one level of a topic name: what would part levels or be a wildcard is written as its number, `%2F`.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(filter: &str) -> Result<TopicFilter<'_>, TopicFilterError> {
        TopicFilter::parse(filter, 8)
    }

    #[test]
    fn mqtt5_4_7_3_1_mqtt311_4_7_3_1_empty_topics_and_filters_are_refused() {
        assert!(!is_topic_name(""));
        assert_eq!(parse(""), Err(TopicFilterError::Empty));
        assert!(is_topic_name("/") && is_topic_name(" "));
        assert!(parse("/").is_ok());
    }

    #[test]
    fn mqtt5_4_7_0_1_mqtt311_4_7_1_1_wildcards_are_not_for_topic_names() {
        for topic in ["#", "+", "a/#", "a/+/b", "a+", "a#b"] {
            assert!(!is_topic_name(topic), "{topic}");
        }
        assert!(is_topic_name("a/b") && is_topic_name("$SYS/x"));
    }

    #[test]
    fn mqtt5_4_7_3_2_mqtt311_4_7_3_2_u0000_is_refused() {
        assert!(!is_topic_name("a\0"));
        assert_eq!(parse("a\0b"), Err(TopicFilterError::Nul));
        assert_eq!(parse("$share/g\0/a"), Err(TopicFilterError::Nul));
    }

    #[test]
    fn mqtt5_4_7_1_1_mqtt311_4_7_1_2_multi_level_wildcard_is_a_whole_level_and_the_last() {
        for filter in ["#", "a/#", "/#", "+/#", "$SYS/#"] {
            assert!(parse(filter).is_ok(), "{filter}");
        }
        for filter in ["a#", "a/#/b", "#/", "##", "a/#b", "#+"] {
            assert_eq!(parse(filter), Err(TopicFilterError::MisplacedMultiLevelWildcard), "{filter}");
        }
    }

    #[test]
    fn mqtt5_4_7_1_2_mqtt311_4_7_1_3_single_level_wildcard_is_a_whole_level() {
        for filter in ["+", "+/+", "a/+/b", "/+", "+/"] {
            assert!(parse(filter).is_ok(), "{filter}");
        }
        for filter in ["a+", "+a", "a/b+/c", "++"] {
            assert_eq!(parse(filter), Err(TopicFilterError::MisplacedSingleLevelWildcard), "{filter}");
        }
    }

    #[test]
    fn mqtt5_4_8_2_1_mqtt5_4_8_2_2_shared_filters_need_a_plain_name_and_a_filter() {
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
    fn mqtt5_4_7_2_1_mqtt311_4_7_2_1_leading_wildcards_pass_over_dollar_topics() {
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

    #[test]
    fn mqtt5_4_7_3_4_mqtt311_4_7_3_4_topics_are_compared_as_they_are() {
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
