//! The form that the client identifiers of one listener have.

use std::fmt;
use std::str::FromStr;

/// A form of client identifiers: `%u` stands for the name of the user, and `*` for any text, which
/// may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientIdRule {
    /// The texts between the `*`, each with `%u` in it. At least one.
    parts: Box<[Box<str>]>,
}

/// The rule has a `%` that is not followed by `u`, or is no text of 1 to 256 printable bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidClientIdRule;

impl FromStr for ClientIdRule {
    type Err = InvalidClientIdRule;

    fn from_str(text: &str) -> Result<ClientIdRule, InvalidClientIdRule> {
        let has_other_percent = text.match_indices('%').any(|(at, _)| !text[at..].starts_with("%u"));
        if !(1..=256).contains(&text.len()) || text.contains(char::is_control) || has_other_percent {
            return Err(InvalidClientIdRule);
        }
        Ok(ClientIdRule { parts: text.split('*').map(Into::into).collect() })
    }
}

impl fmt::Display for ClientIdRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.parts.join("*"))
    }
}

impl ClientIdRule {
    /// Returns true if a client with this user name may use this client identifier. A rule with
    /// `%u` admits no client without a user name.
    ///
    /// Costs one look at the client identifier for each `*`, because the first place of a part is
    /// as good as any later one.
    pub fn admits(&self, user: Option<&str>, client_id: &str) -> bool {
        if user.is_none() && self.parts.iter().any(|part| part.contains("%u")) {
            return false;
        }
        // A `*` in a user name stands for itself, because the rule was split before.
        let part = |part: &str| part.replace("%u", user.unwrap_or_default());
        let [first, middle @ .., last] = &*self.parts else {
            return self.parts.first().is_some_and(|only| part(only) == client_id);
        };
        let Some(mut rest) = client_id.strip_prefix(&part(first)) else { return false };
        for middle in middle {
            let text = part(middle);
            let Some((_, behind)) = rest.split_once(&text) else { return false };
            rest = behind;
        }
        rest.ends_with(&part(last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_admits_the_client_ids_of_its_user() {
        let cases = [
            ("%u", Some("ann"), "ann", true),
            ("%u", Some("ann"), "ann2", false),
            ("%u", None, "", false),
            ("%u-*", Some("ann"), "ann-", true),
            ("%u-*", Some("ann"), "ann-phone", true),
            ("%u-*", Some("ann"), "anna-phone", false),
            ("%u-*", Some("ann"), "bob-ann-phone", false),
            ("%u-*", Some("a*"), "abc-phone", false),
            ("%u-*", Some("a*"), "a*-phone", true),
            ("dev-*", None, "dev-7", true),
            ("dev-*", None, "7-dev-", false),
            ("*-%u-*-x", Some("ann"), "1-ann-2-x", true),
            ("*-%u-*-x", Some("ann"), "1-ann-x", false),
            ("a*a", None, "a", false),
            ("a*a", None, "aa", true),
            ("*", None, "", true),
        ];
        for (rule, user, client_id, admits) in cases {
            let rule: ClientIdRule = rule.parse().unwrap();
            assert_eq!(rule.admits(user, client_id), admits, "{rule} {user:?} {client_id}");
        }
    }

    #[test]
    fn a_rule_with_another_variable_is_refused() {
        for text in ["", "%c", "100%", "%U-*", "a\nb"] {
            assert_eq!(text.parse::<ClientIdRule>(), Err(InvalidClientIdRule), "{text}");
        }
    }
}
