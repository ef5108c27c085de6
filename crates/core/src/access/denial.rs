//! The rule for which an access is denied, for operators.
//!
//! A decision itself notes nothing. A refusal asks again, so only refusals pay for the answer.

use super::cover;
use super::ordered::{Direction, OrderedRule};
use super::permit::{Permit, UserRules};
use super::rule::{ClientNames, Effect};

/// An access that is denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeniedAccess<'a> {
    /// A PUBLISH to this Topic Name, or a Will Message with it.
    Publish(&'a str),
    /// The delivery of a message with this Topic Name.
    Receive(&'a str),
    /// A subscription to this Topic Filter, without `$share/NAME/`.
    Subscribe(&'a str),
}

/// The rule that decides about a denied access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DenyingRule {
    /// The rule in this line of the ACL file.
    Line(u32),
    /// The rule with this number, from 1 on, among rules that have an order.
    Number(usize),
    /// No rule grants the access.
    NoGrant,
    /// No pattern counts for the client, because one of its names has a wildcard or is missing.
    Names,
}

impl Permit {
    /// Returns the rule for which an access is denied. Compares the access with each rule, and
    /// allocates.
    pub fn denying_rule(&self, denied: DeniedAccess<'_>, names: ClientNames<'_>) -> DenyingRule {
        match self {
            Permit::All => DenyingRule::NoGrant,
            Permit::Rules(rules) => rules.denying_rule(denied, names),
        }
    }
}

impl Permit {
    /// Returns the number of rules that [`Self::denying_rule`] compares a Topic Name with, at most.
    pub fn denying_rules(&self) -> usize {
        match self {
            Permit::All => 0,
            Permit::Rules(rules) => match &rules.ordered {
                Some(ordered) => ordered.rules().len(),
                None => rules.own.deny.len() + rules.patterns.deny.len(),
            },
        }
    }
}

impl UserRules {
    fn denying_rule(&self, denied: DeniedAccess<'_>, names: ClientNames<'_>) -> DenyingRule {
        if let Some(rules) = &self.ordered {
            if rules.is_unsure(names) {
                return DenyingRule::Names;
            }
            let number = match denied {
                DeniedAccess::Publish(topic) | DeniedAccess::Receive(topic) => {
                    let matches = |rule: &OrderedRule| rule.filter.matches(topic, names, Effect::Deny);
                    rules.denying(denied.direction(), matches)
                }
                DeniedAccess::Subscribe(filter) => {
                    let denying = |fits: fn(&str, &str) -> bool| {
                        rules.denying(Direction::Read, |rule| {
                            rule.filter.filled(names, Effect::Deny).is_some_and(|own| fits(&own, filter))
                        })
                    };
                    let grants_part = || rules.grants_part(filter, names);
                    denying(cover::contains).or_else(|| denying(cover::overlaps).filter(|_| grants_part()))
                }
            };
            return number.map_or(DenyingRule::NoGrant, DenyingRule::Number);
        }
        let sets = [&self.own.deny, &self.patterns.deny];
        let line = match denied {
            DeniedAccess::Publish(topic) | DeniedAccess::Receive(topic) => {
                sets.iter().find_map(|set| set.line_matching(topic, names))
            }
            // A rule that denies the whole filter says more than a rule that denies a part of it. A
            // part is denied only if another rule grants the rest.
            DeniedAccess::Subscribe(filter) => {
                let line = |fits: fn(&str, &str) -> bool| {
                    sets.iter().find_map(|set| set.line_filled(names, |own| fits(own, filter)))
                };
                let reads = [&self.own, &*self.patterns].map(|lists| lists.of(Direction::Read));
                let grants_part = || reads.iter().any(|set| set.overlaps(filter, names));
                line(cover::contains).or_else(|| line(cover::overlaps).filter(|_| grants_part()))
            }
        };
        match line {
            Some(line) => DenyingRule::Line(line),
            None if names.have_wildcard() && !self.patterns.of(denied.direction()).is_empty() => {
                DenyingRule::Names
            }
            None => DenyingRule::NoGrant,
        }
    }
}

impl DeniedAccess<'_> {
    fn direction(self) -> Direction {
        match self {
            DeniedAccess::Publish(_) => Direction::Write,
            DeniedAccess::Receive(_) | DeniedAccess::Subscribe(_) => Direction::Read,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::acl::{Acl, AclBuilder};
    use crate::access::ordered::OrderedRules;
    use crate::access::rule::{Access, RuleFilter};
    use DeniedAccess::{Publish, Subscribe};
    use std::sync::Arc;

    const ANN: ClientNames<'_> = ClientNames::new(Some("ann"), "c");

    fn acl() -> Acl {
        let mut builder = AclBuilder::default();
        let topic = |text| RuleFilter::topic(text).unwrap();
        builder.topic(Some("ann"), Access::ReadWrite, topic("homes/#"), 2);
        builder.topic(Some("ann"), Access::Deny, topic("homes/keys/#"), 3);
        builder.pattern(Access::Deny, RuleFilter::pattern("logs/%c").unwrap(), 7);
        builder.pattern(Access::ReadWrite, RuleFilter::pattern("own/%c").unwrap(), 8);
        builder.build("acl")
    }

    #[test]
    fn the_line_that_denies_is_named_or_that_none_grants() {
        let rule = |denied, names: ClientNames<'_>| acl().permit_of(names.user).denying_rule(denied, names);
        for (denied, expected) in [
            (Publish("homes/keys/1"), DenyingRule::Line(3)),
            (Publish("logs/c"), DenyingRule::Line(7)),
            (Publish("alarms/1"), DenyingRule::NoGrant),
            (Subscribe("homes/keys/+"), DenyingRule::Line(3)),
            (Subscribe("logs/c"), DenyingRule::Line(7)),
            (Subscribe("alarms/#"), DenyingRule::NoGrant),
            (Subscribe("logs/+"), DenyingRule::NoGrant),
        ] {
            assert_eq!(rule(denied, ANN), expected, "{denied:?}");
        }
        let wild = ClientNames::new(Some("ann"), "+");
        assert_eq!(rule(Publish("own/c"), wild), DenyingRule::Names);
    }

    #[test]
    fn ordered_rules_have_numbers() {
        let rule = |grants, text| {
            let filter = RuleFilter::pattern(text).unwrap();
            OrderedRule { grants, direction: None, filter }
        };
        let rules = OrderedRules::new([rule(true, "a/b"), rule(false, "a/#"), rule(true, "#")]);
        let permit = Permit::Rules(Arc::new(UserRules::ordered(rules)));
        assert_eq!(permit.denying_rule(Publish("a/c"), ANN), DenyingRule::Number(2));
        assert_eq!(permit.denying_rule(Subscribe("a/c/#"), ANN), DenyingRule::Number(2));
        assert_eq!(permit.denying_rule(Publish("$x"), ANN), DenyingRule::NoGrant);
    }
}
