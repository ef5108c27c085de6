//! One rule of an ACL: a topic filter, or a pattern with `%u` and `%c`, and its match with a topic.
//!
//! The meaning is mosquitto's (mosquitto.conf(5), `acl_file`). Only a rule that begins with `$`
//! matches a topic that begins with `$`.

use crate::mqtt::topic::{TopicFilter, TopicFilterError, begins_with_dollar, levels_match};
use std::borrow::Cow;
use thiserror::Error;

/// The placeholder of the user name in a pattern.
const USER: &str = "%u";
/// The placeholder of the client identifier in a pattern.
const CLIENT: &str = "%c";

/// The access that one rule grants or denies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Messages of these topics may be received.
    Read,
    /// Messages may be published to these topics.
    Write,
    /// Both.
    ReadWrite,
    /// Neither, whatever other rules of the same list grant.
    Deny,
}

/// The effect of a rule, if it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The rule grants something. A name that could mean more than itself matches nothing.
    Grant,
    /// The rule denies something. A name is matched as its text, whatever is in it.
    Deny,
}

/// The names of the client whose access is checked.
#[derive(Clone, Copy, Debug)]
pub struct ClientNames<'a> {
    /// The authenticated user name, or `None` for an anonymous client.
    pub user: Option<&'a str>,
    /// The client identifier.
    pub client_id: &'a str,
    marks: NameMarks,
}

/// Facts about the names of a client for decisions. A session keeps them, because a look at each
/// byte of a long name takes as long as many decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NameMarks {
    /// True if a name has `+` or `#`.
    have_wildcard: bool,
    /// True if the client identifier has a slash.
    client_id_has_slash: bool,
}

impl<'a> ClientNames<'a> {
    /// Returns the names. Looks at each byte of them.
    pub const fn new(user: Option<&'a str>, client_id: &'a str) -> ClientNames<'a> {
        ClientNames { user, client_id, marks: NameMarks::of(user, client_id) }
    }

    /// Returns the names of which the marks are known.
    pub const fn known(user: Option<&'a str>, client_id: &'a str, marks: NameMarks) -> ClientNames<'a> {
        ClientNames { user, client_id, marks }
    }

    /// Returns true if a name has `+` or `#`. Such a name would be a wildcard in a pattern
    /// (CVE-2017-7650).
    pub fn have_wildcard(self) -> bool {
        self.marks.have_wildcard
    }

    /// Returns the bytes of the names.
    pub fn bytes(self) -> usize {
        self.client_id.len() + self.user.map_or(0, str::len)
    }
}

impl NameMarks {
    /// Returns the marks of the names of a client.
    pub const fn of(user: Option<&str>, client_id: &str) -> NameMarks {
        let of_user = match user {
            Some(user) => has(user, b'+') || has(user, b'#'),
            None => false,
        };
        NameMarks {
            have_wildcard: of_user || has(client_id, b'+') || has(client_id, b'#'),
            client_id_has_slash: has(client_id, b'/'),
        }
    }
}

/// Returns true if a text has an ASCII character. `str::contains` cannot make a constant.
const fn has(text: &str, wanted: u8) -> bool {
    let (bytes, mut at) = (text.as_bytes(), 0);
    while at < bytes.len() {
        if bytes[at] == wanted {
            return true;
        }
        at += 1;
    }
    false
}

/// The reason why a text cannot be the filter of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RuleError {
    /// The text is not a topic filter.
    #[error("{0}")]
    NotAFilter(#[from] TopicFilterError),
    /// The filter begins with `$share/`.
    #[error(
        "a rule for a shared subscription is the rule for its filter: leave out `$share/` and the share name"
    )]
    Shared,
    /// `%u` or `%c` is a part of a level.
    #[error("`%u` and `%c` stand for a whole level, between two slashes")]
    PartOfALevel,
}

/// The filter of one rule. A pattern is compared with the names of the client at each check, so all
/// clients share it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RuleFilter {
    text: Box<str>,
    shape: Shape,
}

/// Forms of a filter with matches of different cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Shape {
    /// No wildcard: one comparison.
    Exact,
    /// No wildcard but a last `/#`: one comparison of the text before it.
    Subtree,
    /// Other wildcards. The text before `literal` has none and ends with a slash, or is empty.
    Wildcards { literal: usize },
    /// A pattern with a placeholder. `literal` as above.
    Pattern { literal: usize, has_user: bool, has_client: bool },
}

impl RuleFilter {
    /// Returns the filter of a `topic` rule. `%u` and `%c` have no special meaning there.
    ///
    /// # Errors
    /// The text is not a topic filter, or is one of a shared subscription.
    pub fn topic(text: &str) -> Result<RuleFilter, RuleError> {
        let shape = match check(text)? {
            None => Shape::Exact,
            Some(first) if first + 1 == text.len() && text.ends_with("/#") => Shape::Subtree,
            Some(first) => Shape::Wildcards { literal: first },
        };
        Ok(RuleFilter { text: text.into(), shape })
    }

    /// Returns the filter of a `pattern` rule, with `%u` for the user name and `%c` for the client
    /// identifier.
    ///
    /// # Errors
    /// As [`RuleFilter::topic`], and a placeholder that is not a whole level. mosquitto 2.0
    /// replaces it, mosquitto 2.1 does not; so its meaning is not clear.
    pub fn pattern(text: &str) -> Result<RuleFilter, RuleError> {
        check(text)?;
        let (mut literal, mut at) = (None, 0);
        for level in text.split('/') {
            if level != USER && level != CLIENT && (level.contains(USER) || level.contains(CLIENT)) {
                return Err(RuleError::PartOfALevel);
            }
            if literal.is_none() && matches!(level, USER | CLIENT | "+" | "#") {
                literal = Some(at);
            }
            at += level.len() + 1;
        }
        let has_user = text.split('/').any(|level| level == USER);
        let has_client = text.split('/').any(|level| level == CLIENT);
        match literal {
            Some(literal) if has_user || has_client => {
                Ok(RuleFilter { text: text.into(), shape: Shape::Pattern { literal, has_user, has_client } })
            }
            _ => RuleFilter::topic(text),
        }
    }

    /// Returns the text, spelled as in the file.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns true if a name of the client is a part of the filter.
    pub(super) fn is_pattern(&self) -> bool {
        matches!(self.shape, Shape::Pattern { .. })
    }

    /// Returns the first level if all matching topics share it.
    pub(super) fn first_level(&self) -> Option<&str> {
        let first = self.text.split('/').next().unwrap_or_default();
        let is_pattern = matches!(self.shape, Shape::Pattern { literal: 0, .. });
        (!is_pattern && !matches!(first, "+" | "#")).then_some(first)
    }

    /// Returns true if exactly one topic matches, whoever the client is.
    pub(super) fn is_exact(&self) -> bool {
        self.shape == Shape::Exact
    }

    /// Returns true if the rule matches the Topic Name for this client. Allocates nothing.
    ///
    /// A pattern matches as its text would with the names filled in. So a user name with a slash is
    /// several levels, as in mosquitto. A rule that grants differs from mosquitto in two points. A
    /// client identifier with a slash does not match `%c`: clients choose their identifiers, and
    /// `ann/keys` would reach into the topics of `ann`. An empty name matches nothing. A rule that
    /// denies matches both, so no name escapes it. `%u` matches nothing for a client without a
    /// user, whatever the effect. The caller checks [`ClientNames::have_wildcard`].
    pub fn matches(&self, topic: &str, names: ClientNames<'_>, effect: Effect) -> bool {
        match self.shape {
            Shape::Exact => *self.text == *topic,
            Shape::Subtree => topic
                .strip_prefix(&self.text[..self.text.len() - "/#".len()])
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
            Shape::Wildcards { literal } => self
                .behind_literal(topic, literal)
                .is_some_and(|rest| levels_match(self.text[literal..].split('/'), rest)),
            Shape::Pattern { literal, .. } => {
                self.has_names(names, effect)
                    && self
                        .behind_literal(topic, literal)
                        .is_some_and(|rest| levels_match(fill(&self.text[literal..], names), rest))
            }
        }
    }

    /// Returns the rule as a topic filter, with the names of the client filled in. Returns `None`
    /// if the rule matches no topic for this client.
    pub fn filled(&self, names: ClientNames<'_>, effect: Effect) -> Option<Cow<'_, str>> {
        if !matches!(self.shape, Shape::Pattern { .. }) {
            return Some(Cow::Borrowed(&self.text));
        }
        if !self.has_names(names, effect) {
            return None;
        }
        let filled = fill(&self.text, names).collect::<Vec<_>>().join("/");
        // A name that begins with `$` does not make a rule for `$` topics.
        (begins_with_dollar(&filled) == begins_with_dollar(&self.text)).then_some(Cow::Owned(filled))
    }

    /// Returns the topic behind the part of the filter without wildcards, if it begins with it.
    fn behind_literal<'t>(&self, topic: &'t str, literal: usize) -> Option<&'t str> {
        // 5.0 and 3.1.1 [MQTT-4.7.2-1]
        if literal == 0 && begins_with_dollar(topic) {
            return None;
        }
        topic.strip_prefix(&self.text[..literal])
    }

    /// Returns true if the client has the names that the filter needs for this effect.
    pub(super) fn has_names(&self, names: ClientNames<'_>, effect: Effect) -> bool {
        let Shape::Pattern { has_user, has_client, .. } = self.shape else { return true };
        match effect {
            Effect::Deny => !has_user || names.user.is_some(),
            Effect::Grant => {
                (!has_user || names.user.is_some_and(|user| !user.is_empty()))
                    && (!has_client || !names.client_id.is_empty() && !names.marks.client_id_has_slash)
            }
        }
    }
}

/// Checks a filter, and returns the place of its first wildcard.
fn check(text: &str) -> Result<Option<usize>, RuleError> {
    if TopicFilter::parse(text, usize::MAX)?.is_shared() {
        return Err(RuleError::Shared);
    }
    Ok(text.find(['+', '#']))
}

/// The levels of a pattern with the names in the places of `%u` and `%c`.
fn fill<'a>(pattern: &'a str, names: ClientNames<'a>) -> impl Iterator<Item = &'a str> {
    pattern.split('/').flat_map(move |level| match level {
        USER => names.user.unwrap_or_default().split('/'),
        CLIENT => names.client_id.split('/'),
        level => level.split('/'),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqtt::topic::matches;

    const ANN: ClientNames<'_> = ClientNames::new(Some("ann"), "pump-1");
    const NOBODY: ClientNames<'_> = ClientNames::new(None, "pump-1");

    fn pattern(text: &str) -> RuleFilter {
        RuleFilter::pattern(text).unwrap()
    }

    #[test]
    fn a_rule_matches_as_a_subscription_does() {
        let words = ["a", "b", "", "$x"];
        let mut topics: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        for _ in 0..2 {
            let longer: Vec<String> = topics
                .iter()
                .flat_map(|topic| words.iter().map(move |word| format!("{topic}/{word}")))
                .collect();
            topics.extend(longer);
        }
        let filters = [
            "a", "a/b", "#", "a/#", "/#", "+", "+/#", "a/+/#", "a/+", "+/b", "$x/#", "$x/+", "a//#", "/",
            "a/b/#",
        ];
        for filter in filters {
            let (rule, as_pattern) = (RuleFilter::topic(filter).unwrap(), pattern(filter));
            for topic in topics.iter().filter(|topic| !topic.is_empty()) {
                assert_eq!(
                    rule.matches(topic, ANN, Effect::Grant),
                    matches(filter, topic),
                    "{filter} {topic}"
                );
                assert_eq!(
                    as_pattern.matches(topic, ANN, Effect::Grant),
                    matches(filter, topic),
                    "{filter} {topic}"
                );
            }
        }
    }

    #[test]
    fn a_pattern_stands_for_the_names_of_the_client() {
        let rule = pattern("homes/%u/pumps/%c/#");
        assert!(
            rule.matches("homes/ann/pumps/pump-1", ANN, Effect::Grant)
                && rule.matches("homes/ann/pumps/pump-1/x", ANN, Effect::Grant)
        );
        assert!(
            !rule.matches("homes/bob/pumps/pump-1/x", ANN, Effect::Grant)
                && !rule.matches("homes/ann/pumps/pump-2", ANN, Effect::Grant)
        );
        assert!(!rule.matches("homes/ann/pumps/pump-1/x", NOBODY, Effect::Grant));
        assert_eq!(rule.filled(ANN, Effect::Grant).as_deref(), Some("homes/ann/pumps/pump-1/#"));
        assert_eq!(rule.filled(NOBODY, Effect::Grant), None);
        assert!(pattern("pumps/%c").matches("pumps/pump-1", NOBODY, Effect::Grant));
        // `topic` rules have no placeholders.
        assert!(RuleFilter::topic("homes/%u").unwrap().matches("homes/%u", ANN, Effect::Grant));
    }

    #[test]
    fn a_name_with_a_slash_stands_for_several_levels() {
        let names = ClientNames::new(Some("plant/ann"), "c");
        assert!(pattern("u/%u/x").matches("u/plant/ann/x", names, Effect::Grant));
        assert!(!pattern("u/%u/x").matches("u/plant/x", names, Effect::Grant));
        assert_eq!(pattern("u/%u/x").filled(names, Effect::Grant).as_deref(), Some("u/plant/ann/x"));
    }

    #[test]
    fn a_client_identifier_with_a_slash_matches_no_placeholder() {
        let names = ClientNames::new(Some("ann"), "ann/keys");
        let rule = pattern("pumps/%c/#");
        assert!(
            !rule.matches("pumps/ann/keys/x", names, Effect::Grant)
                && rule.filled(names, Effect::Grant).is_none()
        );
        assert!(pattern("homes/%u/#").matches("homes/ann/x", names, Effect::Grant));
    }

    #[test]
    fn no_name_escapes_a_rule_that_denies() {
        for (client_id, topic, filled) in
            [("ann/keys", "pumps/ann/keys/x", "pumps/ann/keys/#"), ("", "pumps//x", "pumps//#")]
        {
            let names = ClientNames::new(Some("ann"), client_id);
            let rule = pattern("pumps/%c/#");
            assert!(rule.matches(topic, names, Effect::Deny) && !rule.matches(topic, names, Effect::Grant));
            assert!(!rule.matches("pumps/bob/x", names, Effect::Deny));
            assert_eq!(rule.filled(names, Effect::Deny).as_deref(), Some(filled));
        }
        let names = ClientNames::new(Some(""), "c");
        assert!(pattern("homes/%u/x").matches("homes//x", names, Effect::Deny));
        // As in mosquitto, a client without a user has no topics of a user.
        assert!(!pattern("homes/%u/x").matches("homes//x", NOBODY, Effect::Deny));
        assert_eq!(pattern("homes/%u/x").filled(NOBODY, Effect::Deny), None);
    }

    #[test]
    fn an_empty_name_matches_nothing() {
        let names = ClientNames::new(Some(""), "");
        assert!(
            !pattern("%u").matches("x", names, Effect::Grant)
                && !pattern("a/%u").matches("a/", names, Effect::Grant)
        );
        assert!(
            !pattern("a/%c").matches("a/", names, Effect::Grant)
                && pattern("a/%c").filled(names, Effect::Grant).is_none()
        );
    }

    #[test]
    fn a_name_with_a_dollar_makes_no_rule_for_dollar_topics() {
        let names = ClientNames::new(Some("$SYS"), "c");
        assert!(!pattern("%u/#").matches("$SYS/broker", names, Effect::Grant));
        assert_eq!(pattern("%u/#").filled(names, Effect::Grant), None);
        assert!(pattern("a/%u/#").matches("a/$SYS/broker", names, Effect::Grant));
        assert!(pattern("$SYS/%u").matches("$SYS/$SYS", names, Effect::Grant));
    }

    #[test]
    fn what_is_not_a_filter_is_refused() {
        assert_eq!(RuleFilter::topic(""), Err(RuleError::NotAFilter(TopicFilterError::Empty)));
        assert!(matches!(RuleFilter::topic("a/#/b"), Err(RuleError::NotAFilter(_))));
        assert_eq!(RuleFilter::topic("$share/g/a"), Err(RuleError::Shared));
        assert_eq!(RuleFilter::pattern("pumps-%c/x"), Err(RuleError::PartOfALevel));
        assert_eq!(RuleFilter::pattern("%u%c"), Err(RuleError::PartOfALevel));
        assert!(RuleFilter::pattern("100%/x").is_ok());
    }

    #[test]
    fn wildcards_in_names_are_seen() {
        assert!(!ANN.have_wildcard() && !NOBODY.have_wildcard());
        assert!(ClientNames::new(Some("a+"), "c").have_wildcard());
        assert!(ClientNames::new(None, "#").have_wildcard());
    }
}
