//! The rules of one session as text, for the store.
//!
//! The text is `superuser`, or one line for each rule in its order: `allow` or `deny`, `read`,
//! `write` or `all`, and the filter. `\n` and `\\` in a filter are a line feed and a backslash. So
//! an operator can read the rules in a copy of the store.

use super::grant::SessionRules;
use super::ordered::{Direction, OrderedRule, OrderedRules};
use super::permit::{Permit, UserRules};
use super::rule::RuleFilter;
use std::fmt::Write;
use std::sync::Arc;

const SUPERUSER: &str = "superuser";

impl SessionRules {
    /// Returns the rules as text. Linear in the number of rules.
    ///
    /// Only rules that have an order have a text, because tokens and services make no others. The
    /// text of any other rules denies everything.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        let rules = match self {
            SessionRules::Superuser | SessionRules::Permit(Permit::All) => return SUPERUSER.to_owned(),
            SessionRules::Permit(Permit::Rules(rules)) => rules.in_order(),
        };
        for OrderedRule { grants, direction, filter } in rules {
            let effect = if *grants { "allow" } else { "deny" };
            let direction = match direction {
                Some(Direction::Read) => "read",
                Some(Direction::Write) => "write",
                None => "all",
            };
            let filter = filter.text().replace('\\', "\\\\").replace('\n', "\\n");
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{effect} {direction} {filter}");
        }
        text
    }

    /// Returns the rules of a text. A text that [`SessionRules::to_text`] did not write gives rules
    /// that deny everything.
    pub fn of_text(text: &str) -> SessionRules {
        if text == SUPERUSER {
            return SessionRules::Superuser;
        }
        let rules: Option<Vec<OrderedRule>> = text.split_terminator('\n').map(rule).collect();
        let rules = UserRules::ordered(OrderedRules::new(rules.unwrap_or_default()));
        SessionRules::Permit(Permit::Rules(Arc::new(rules)))
    }
}

fn rule(line: &str) -> Option<OrderedRule> {
    let mut words = line.splitn(3, ' ');
    let grants = match words.next()? {
        "allow" => true,
        "deny" => false,
        _ => return None,
    };
    let direction = match words.next()? {
        "read" => Some(Direction::Read),
        "write" => Some(Direction::Write),
        "all" => None,
        _ => return None,
    };
    let filter = RuleFilter::pattern(&unescaped(words.next()?)).ok()?;
    Some(OrderedRule { grants, direction, filter })
}

fn unescaped(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        plain.push(match character {
            '\\' => match characters.next() {
                Some('n') => '\n',
                _ => '\\',
            },
            other => other,
        });
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::rule::ClientNames;
    use proptest::prelude::*;

    const ANN: ClientNames<'_> = ClientNames::new(Some("ann"), "c");

    #[test]
    fn rules_are_as_they_were_before_they_were_text() {
        let text = "deny all a/%u/secret\nallow read a/#\nallow write b/%c\n";
        let SessionRules::Permit(permit) = SessionRules::of_text(text) else { panic!("{text}") };
        assert!(permit.may_read("a/x", ANN) && !permit.may_write("a/x", ANN));
        assert!(!permit.may_read("a/ann/secret", ANN) && permit.may_write("b/c", ANN));
        assert_eq!(SessionRules::Permit(permit).to_text(), text);
        assert!(matches!(SessionRules::of_text("superuser"), SessionRules::Superuser));
        assert_eq!(SessionRules::Superuser.to_text(), "superuser");
    }

    #[test]
    fn a_text_that_is_not_understood_denies_everything() {
        for text in
            ["", "allow", "allow read", "permit read a", "allow all a\nallow see b", "allow read a/#/b"]
        {
            let SessionRules::Permit(permit) = SessionRules::of_text(text) else { panic!("{text}") };
            assert!(!permit.may_read("a", ANN) && !permit.may_write("a", ANN), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_filter_comes_back_from_its_text(filter in "[a\\\\n\n\r %u/+]{1,12}", grants in any::<bool>()) {
            let Ok(filter) = RuleFilter::pattern(&filter) else { return Ok(()) };
            let wanted = filter.clone();
            let rules = OrderedRules::new([OrderedRule { grants, direction: None, filter }]);
            let rules = SessionRules::Permit(Permit::Rules(Arc::new(UserRules::ordered(rules))));
            let SessionRules::Permit(Permit::Rules(found)) = SessionRules::of_text(&rules.to_text()) else {
                panic!("{}", rules.to_text())
            };
            let [rule] = found.in_order() else { panic!("{}", rules.to_text()) };
            prop_assert_eq!((rule.grants, &rule.filter), (grants, &wanted));
        }
    }
}
