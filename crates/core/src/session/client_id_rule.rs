//! The form that the client identifiers of one listener have.

use std::fmt;
use std::str::FromStr;

/// A form of client identifiers: `%u` is the name of the user, and `*` any text, which may be
/// empty.
///
/// The identifiers of two users are never the same, whatever their names: the text of a `*` has
/// none of the characters beside `%u` on the side of the `*`. So the number of these characters
/// behind the name is the same in each identifier, and tells where the name ends. The same holds
/// for its begin. Otherwise `ann` could use `ann-bob-phone` of `ann-bob` by `%u-*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientIdRule {
    /// The texts between the `*`, each with `%u` in it. At least one.
    parts: Box<[Box<str>]>,
    /// The characters that the text of a `*` has not.
    bounds: Box<[char]>,
}

/// The rule has a `%` that is not followed by `u`, a `%u` directly beside a `*`, or is no text of 1
/// to 256 printable bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidClientIdRule;

impl FromStr for ClientIdRule {
    type Err = InvalidClientIdRule;

    fn from_str(text: &str) -> Result<ClientIdRule, InvalidClientIdRule> {
        let has_other_percent = text.match_indices('%').any(|(at, _)| !text[at..].starts_with("%u"));
        let is_open = text.contains("%u*") || text.contains("*%u");
        if !(1..=256).contains(&text.len()) || text.contains(char::is_control) || has_other_percent || is_open
        {
            return Err(InvalidClientIdRule);
        }
        Ok(ClientIdRule { parts: text.split('*').map(Into::into).collect(), bounds: bounds(text) })
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
        // A `*` in a user name is literal, because the rule was split before.
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
        rest.ends_with(&part(last)) && self.bounds_are_kept(user.unwrap_or_default(), client_id)
    }

    /// Returns true if the texts of the `*` have none of the bounds: the whole identifier has no
    /// more of them than the rule with the name of the user.
    fn bounds_are_kept(&self, user: &str, client_id: &str) -> bool {
        let count = |text: &str, bound: char| text.matches(bound).count();
        let in_part = |part: &str, bound| {
            count(&part.replace("%u", ""), bound) + part.matches("%u").count() * count(user, bound)
        };
        let in_parts = |bound| self.parts.iter().map(|part| in_part(part, bound)).sum::<usize>();
        self.bounds.iter().all(|bound| count(client_id, *bound) == in_parts(*bound))
    }
}

/// Returns the characters directly beside each `%u`: the next one if a `*` follows anywhere, and
/// the previous one if a `*` precedes anywhere.
fn bounds(rule: &str) -> Box<[char]> {
    let mut bounds = Vec::new();
    for (at, name) in rule.match_indices("%u") {
        let (before, behind) = (&rule[..at], &rule[at + name.len()..]);
        bounds.extend(before.chars().next_back().filter(|_| before.contains('*')));
        bounds.extend(behind.chars().next().filter(|_| behind.contains('*')));
    }
    bounds.into()
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
            ("%u-*", Some("ann"), "ann-bob-phone", false),
            ("%u-*", Some("ann-bob"), "ann-bob-phone", true),
            ("%u-*", Some("ann"), "ann-living_room", true),
            ("*-%u", Some("bob"), "phone-ann-bob", false),
            ("*-%u", Some("ann-bob"), "phone-ann-bob", true),
            ("dev-%u/*", Some("ann"), "dev-ann/living-room", true),
            ("dev-%u/*", Some("ann"), "dev-ann/a/b", false),
        ];
        for (rule, user, client_id, admits) in cases {
            let rule: ClientIdRule = rule.parse().unwrap();
            assert_eq!(rule.admits(user, client_id), admits, "{rule} {user:?} {client_id}");
        }
    }

    #[test]
    fn a_client_id_belongs_to_one_user() {
        let rules = ["%u", "%u-*", "*-%u", "%u-*-*", "*-%u-*", "*x%u-*", "%u-*-%u", "%u-x*", "-%u-*x*-%u-"];
        let texts = |most: u32| {
            (0..=most).flat_map(|n| {
                (0..4_u32.pow(n)).map(move |code| -> String {
                    (0..n).map(|at| b"ab-x"[(code / 4_u32.pow(at) % 4) as usize] as char).collect()
                })
            })
        };
        let users: Vec<String> = texts(2).collect();
        for rule in rules.map(|text| text.parse::<ClientIdRule>().unwrap()) {
            for client_id in texts(5) {
                let is_admitted = |user: &&String| rule.admits(Some(user), &client_id);
                let owners: Vec<_> = users.iter().filter(is_admitted).collect();
                assert!(owners.len() < 2, "{rule} {client_id}: {owners:?}");
            }
        }
    }

    #[test]
    fn a_rule_with_another_variable_is_refused() {
        for text in ["", "%c", "100%", "%U-*", "a\nb", "%u*", "*%u", "a-%u*b"] {
            assert_eq!(text.parse::<ClientIdRule>(), Err(InvalidClientIdRule), "{text}");
        }
    }
}
