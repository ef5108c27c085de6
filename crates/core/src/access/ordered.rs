//! Rules in an order: the first rule that matches decides. Tokens and HTTP services write them so.

use super::cover;
use super::permit::Coverage;
use super::rule::{ClientNames, Effect, RuleFilter};

/// The way of a message, seen from the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The client receives messages.
    Read,
    /// The client publishes messages.
    Write,
}

/// One rule of [`OrderedRules`].
#[derive(Clone, Debug)]
pub struct OrderedRule {
    /// True if the rule grants, false if it denies.
    pub grants: bool,
    /// The direction that the rule is about; `None` for both.
    pub direction: Option<Direction>,
    /// The topics.
    pub filter: RuleFilter,
}

impl OrderedRule {
    fn effect(&self) -> Effect {
        if self.grants { Effect::Grant } else { Effect::Deny }
    }
}

/// Ordered rules: the first matching rule decides. Access without a matching rule is denied.
#[derive(Clone, Debug, Default)]
pub struct OrderedRules {
    rules: Box<[OrderedRule]>,
    /// True if a filter has a name of the client in it.
    has_patterns: bool,
}

impl OrderedRules {
    /// Returns the rules in this order.
    pub fn new(rules: impl IntoIterator<Item = OrderedRule>) -> OrderedRules {
        let rules: Box<[OrderedRule]> = rules.into_iter().collect();
        let has_patterns = rules.iter().any(|rule| rule.filter.is_pattern());
        OrderedRules { rules, has_patterns }
    }

    /// Returns the place of the rule that denies an access, from 1 on: the first that denies and of
    /// which `fits` is true.
    pub(super) fn denying(&self, direction: Direction, fits: impl Fn(&OrderedRule) -> bool) -> Option<usize> {
        let mut of = self
            .rules
            .iter()
            .zip(1..)
            .filter(|(rule, _)| !rule.grants && rule.direction.is_none_or(|of| of == direction));
        of.find(|(rule, _)| fits(rule)).map(|(_, place)| place)
    }

    /// Returns true if a rule grants a topic of the filter, whatever other rules deny.
    pub(super) fn grants_part(&self, filter: &str, names: ClientNames<'_>) -> bool {
        self.of(Direction::Read).filter(|rule| rule.grants).any(|rule| {
            let own = rule.filter.filled(names, Effect::Grant);
            own.is_some_and(|own| cover::overlaps(&own, filter))
        })
    }

    /// Returns the rules in their order.
    pub(super) fn rules(&self) -> &[OrderedRule] {
        &self.rules
    }

    /// Returns true if the client may send or receive messages of the Topic Name. Linear in the
    /// number of rules.
    ///
    /// A client whose name has a wildcard is denied everything if a filter has a name in it. So is
    /// a client without a name that a rule needs in order to deny.
    pub(super) fn grants(&self, direction: Direction, topic: &str, names: ClientNames<'_>) -> bool {
        if self.has_patterns && self.is_unsure(names) {
            return false;
        }
        let found = self.of(direction).find(|rule| rule.filter.matches(topic, names, rule.effect()));
        found.is_some_and(|rule| rule.grants)
    }

    /// Returns the part of a topic filter that the client may read. Quadratic in the number of
    /// rules; allocates.
    pub(super) fn coverage(&self, filter: &str, names: ClientNames<'_>) -> Coverage {
        if self.has_patterns && self.is_unsure(names) {
            return Coverage::Disjoint;
        }
        let mut denied: Vec<String> = Vec::new();
        let mut has_part = false;
        for rule in self.of(Direction::Read) {
            let Some(own) = rule.filter.filled(names, rule.effect()) else { continue };
            if rule.grants {
                if cover::contains(&own, filter) && !denied.iter().any(|deny| cover::overlaps(deny, filter)) {
                    return Coverage::Covered;
                }
                has_part |= cover::intersection(&own, filter)
                    .is_some_and(|part| !denied.iter().any(|deny| cover::contains(deny, &part)));
            } else {
                denied.push(own.into_owned());
            }
        }
        if has_part { Coverage::Partial } else { Coverage::Disjoint }
    }

    /// Returns the number of filters that a topic is compared with, at most.
    pub(super) fn most_compared(&self) -> usize {
        self.rules.len()
    }

    /// Returns the number of comparisons of [`OrderedRules::coverage`], at most.
    pub(super) fn coverage_cost(&self) -> usize {
        let denies = self.rules.iter().filter(|rule| !rule.grants).count();
        (self.rules.len() - denies).saturating_mul(1 + denies).saturating_add(denies)
    }

    /// Returns true if a rule that denies has no clear meaning for this client.
    pub(super) fn is_unsure(&self, names: ClientNames<'_>) -> bool {
        names.have_wildcard()
            || self.rules.iter().any(|rule| !rule.grants && !rule.filter.has_names(names, Effect::Grant))
    }

    fn of(&self, direction: Direction) -> impl Iterator<Item = &OrderedRule> {
        self.rules.iter().filter(move |rule| rule.direction.is_none_or(|of| of == direction))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqtt::topic;
    use proptest::prelude::*;

    const ANN: ClientNames<'_> = ClientNames::new(Some("ann"), "c");

    fn rule(grants: bool, direction: Option<Direction>, text: &str) -> OrderedRule {
        OrderedRule { grants, direction, filter: RuleFilter::pattern(text).unwrap() }
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        use Direction::{Read, Write};
        let rules = OrderedRules::new([
            rule(true, Some(Write), "a/x"),
            rule(false, None, "a/#"),
            rule(true, Some(Read), "#"),
            rule(true, None, "homes/%u/%c"),
        ]);
        assert!(rules.grants(Write, "a/x", ANN) && !rules.grants(Read, "a/x", ANN));
        assert!(!rules.grants(Write, "a/y", ANN) && !rules.grants(Write, "b", ANN));
        assert!(rules.grants(Read, "b", ANN) && rules.grants(Write, "homes/ann/c", ANN));
        let names = ClientNames::new(Some("+"), "c");
        assert!(!rules.grants(Read, "b", names) && rules.coverage("b", names) == Coverage::Disjoint);
        let denies = OrderedRules::new([rule(false, None, "a/%c/#"), rule(true, None, "#")]);
        let names = ClientNames::new(Some("ann"), "x/y");
        assert!(!denies.grants(Read, "a/x/y", names) && denies.grants(Read, "a/b", ANN));
        assert!(!OrderedRules::default().grants(Read, "b", ANN));
    }

    #[test]
    fn a_last_deny_of_all_changes_nothing() {
        let rules = OrderedRules::new([rule(true, None, "a/#"), rule(false, None, "#")]);
        assert_eq!(rules.coverage("a/+", ANN), Coverage::Covered);
        assert_eq!(rules.coverage("#", ANN), Coverage::Partial);
        assert_eq!(rules.coverage("b", ANN), Coverage::Disjoint);
    }

    fn filter() -> impl Strategy<Value = String> {
        proptest::sample::select(vec![
            "a", "a/b", "a/#", "a/+", "+/b", "#", "+", "%u/#", "%c", "$x/#", "a/%u",
        ])
        .prop_map(str::to_owned)
    }

    proptest! {
        #[test]
        fn the_coverage_of_a_filter_agrees_with_its_topics(
            list in proptest::collection::vec((any::<bool>(), filter()), 0..6),
            wanted in filter().prop_filter("no placeholder", |text| !text.contains('%')),
        ) {
            let rules = OrderedRules::new(list.iter().map(|(grants, text)| rule(*grants, None, text)));
            let topics = ["a", "b", "c", "ann", "a/b", "a/c", "a/ann", "b/b", "ann/b", "a/b/c", "$x/a", "$x"];
            for topic in topics.into_iter().filter(|topic| topic::matches(&wanted, topic)) {
                let is_granted = rules.grants(Direction::Read, topic, ANN);
                match rules.coverage(&wanted, ANN) {
                    Coverage::Covered => prop_assert!(is_granted, "{}", topic),
                    Coverage::Disjoint => prop_assert!(!is_granted, "{}", topic),
                    Coverage::Partial => {}
                }
            }
        }
    }
}
