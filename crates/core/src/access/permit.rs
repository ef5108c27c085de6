//! All rules of one user, and their decisions.
//!
//! Rules are in two lists: those of the user, and the patterns of all users. Each list denies
//! first. The list of the user decides first: a topic that it grants is granted, whatever the
//! patterns deny. The order is mosquitto's. Access that no rule grants is denied.

use super::cover;
use super::ordered::{Direction, OrderedRule, OrderedRules};
use super::rule::{Access, ClientNames, Effect, RuleFilter};
use super::rule_set::RuleSet;
use std::sync::Arc;

/// The topics that a client may write and read. Takes 8 bytes, and a clone costs one counter.
#[derive(Clone, Debug, Default)]
pub enum Permit {
    /// Every topic: the broker has no rules.
    #[default]
    All,
    /// The topics that the rules grant.
    Rules(Arc<UserRules>),
}

/// Filters that a topic is compared with in one step of a turn, if topic and names are short.
const PER_STEP: usize = 8;

/// Bytes of a topic, a filter and names that are compared in one step of a turn.
const BYTES_PER_STEP: usize = 1024;

/// A decision about one topic, and its cost in steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// True if the client has the permission.
    pub is_granted: bool,
    /// The steps that the decision took.
    pub steps: u32,
}

impl Decision {
    /// The decision that needs no look at the rules.
    pub const FREE: Decision = Decision { is_granted: true, steps: 0 };
}

/// Returns the steps of comparisons of a topic with some filters. `bytes` are those of the topic
/// and of the names in the filters.
pub fn steps(compared: usize, bytes: usize) -> u32 {
    let steps = compared / PER_STEP + compared.saturating_mul(bytes) / BYTES_PER_STEP;
    u32::try_from(steps).unwrap_or(u32::MAX)
}

/// The relation between a topic filter and the topics that a client may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// The client may read every topic of the filter.
    Covered,
    /// The client may read no topic of the filter.
    Disjoint,
    /// The client may read some topics of the filter, so each message has to be checked. Also
    /// returned where only a union of several rules would cover the filter.
    Partial,
}

/// The rules of one user. All its sessions share them.
#[derive(Clone, Debug, Default)]
pub struct UserRules {
    pub(super) own: RuleLists,
    pub(super) patterns: Arc<RuleLists>,
    /// Counts in place of both lists.
    pub(super) ordered: Option<OrderedRules>,
}

/// Rules with one precedence: denied first, then granted.
#[derive(Clone, Debug)]
pub struct RuleLists {
    pub(super) deny: RuleSet,
    write: RuleSet,
    read: RuleSet,
}

impl Permit {
    /// Returns true if the client may publish to the Topic Name.
    pub fn may_write(&self, topic: &str, names: ClientNames<'_>) -> bool {
        self.decide(Direction::Write, topic, names).is_granted
    }

    /// Returns true if the client may receive messages of the Topic Name.
    pub fn may_read(&self, topic: &str, names: ClientNames<'_>) -> bool {
        self.decide(Direction::Read, topic, names).is_granted
    }

    /// Decides about a Topic Name. `All` costs one branch.
    #[inline]
    pub fn decide(&self, direction: Direction, topic: &str, names: ClientNames<'_>) -> Decision {
        match self {
            Permit::All => Decision::FREE,
            Permit::Rules(rules) => {
                let mut compared = 0;
                let is_granted = rules.grants(direction, topic, names, &mut compared);
                Decision { is_granted, steps: steps(compared, topic.len() + names.bytes()) }
            }
        }
    }

    /// Returns the number of filters that a topic is compared with in one decision, at most.
    pub fn most_compared(&self) -> usize {
        match self {
            Permit::All => 0,
            Permit::Rules(rules) => rules.most_compared(),
        }
    }

    /// Returns the part of a topic filter that the client may read. The filter has no
    /// `$share/NAME/`. Costs [`Permit::coverage_cost`]; allocates.
    pub fn coverage(&self, filter: &str, names: ClientNames<'_>) -> Coverage {
        match self {
            Permit::All => Coverage::Covered,
            Permit::Rules(rules) => rules.coverage(filter, names),
        }
    }

    /// Returns the number of comparisons that [`Permit::coverage`] makes of one filter, at most. A
    /// comparison of two filters takes about 50 ns.
    pub fn coverage_cost(&self) -> usize {
        match self {
            Permit::All => 0,
            Permit::Rules(rules) => rules.coverage_cost(),
        }
    }

    /// Returns true if both are the same value in memory, so that they decide equally for one
    /// client. False says nothing.
    pub fn is_same(&self, other: &Permit) -> bool {
        match (self, other) {
            (Permit::All, Permit::All) => true,
            (Permit::Rules(one), Permit::Rules(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

impl UserRules {
    /// Returns the rules of one user: its own, and the patterns that all users share.
    pub fn new(own: RuleLists, patterns: Arc<RuleLists>) -> UserRules {
        UserRules { own, patterns, ordered: None }
    }

    /// Returns ordered rules, of which the first matching rule decides.
    pub fn ordered(rules: OrderedRules) -> UserRules {
        UserRules { ordered: Some(rules), ..UserRules::default() }
    }

    /// Returns the rules in their order; none for rules of a file, which have no order.
    pub(super) fn in_order(&self) -> &[OrderedRule] {
        self.ordered.as_ref().map_or(&[], OrderedRules::rules)
    }

    /// Decides about a topic. Adds to `compared` the filters that it was compared with, at most.
    fn grants(
        &self,
        direction: Direction,
        topic: &str,
        names: ClientNames<'_>,
        compared: &mut usize,
    ) -> bool {
        if let Some(ordered) = &self.ordered {
            *compared += ordered.most_compared();
            return ordered.grants(direction, topic, names);
        }
        let mut matches = |set: &RuleSet| set.matches(topic, names, compared);
        if matches(&self.own.deny) {
            return false;
        }
        if matches(self.own.of(direction)) {
            return true;
        }
        // A name with a wildcard matches no pattern, and so is denied here.
        !names.have_wildcard() && matches(self.patterns.of(direction)) && !matches(&self.patterns.deny)
    }

    fn most_compared(&self) -> usize {
        match &self.ordered {
            Some(ordered) => ordered.most_compared(),
            None => self.own.most_compared() + self.patterns.most_compared(),
        }
    }

    /// Each filter that grants is compared with the wanted filter, and their intersection with each
    /// filter that denies.
    fn coverage_cost(&self) -> usize {
        if let Some(ordered) = &self.ordered {
            return ordered.coverage_cost();
        }
        let UserRules { own, patterns, .. } = self;
        let own_cost = own.read.len().saturating_mul(1 + own.deny.len());
        let denies = 1 + own.deny.len() + patterns.deny.len();
        own_cost.saturating_add(patterns.read.len().saturating_mul(denies)).saturating_add(denies)
    }

    fn coverage(&self, filter: &str, names: ClientNames<'_>) -> Coverage {
        if let Some(ordered) = &self.ordered {
            return ordered.coverage(filter, names);
        }
        let patterns = (!names.have_wildcard()).then_some(&*self.patterns);
        let is_covered = !self.own.deny.overlaps(filter, names)
            && (self.own.read.contains(filter, names)
                || patterns.is_some_and(|patterns| {
                    patterns.read.contains(filter, names) && !patterns.deny.overlaps(filter, names)
                }));
        if is_covered {
            return Coverage::Covered;
        }
        // A part that a rule grants, and that no single rule denies whole.
        let own_part = self.own.read.filled(names).any(|granted| {
            cover::intersection(&granted, filter).is_some_and(|part| !self.own.deny.contains(&part, names))
        });
        let has_part = own_part
            || patterns.is_some_and(|patterns| {
                patterns.read.filled(names).any(|granted| {
                    cover::intersection(&granted, filter).is_some_and(|part| {
                        !self.own.deny.contains(&part, names) && !patterns.deny.contains(&part, names)
                    })
                })
            });
        if has_part { Coverage::Partial } else { Coverage::Disjoint }
    }
}

impl RuleLists {
    /// Returns the filters that grant this direction.
    pub(super) fn of(&self, direction: Direction) -> &RuleSet {
        match direction {
            Direction::Read => &self.read,
            Direction::Write => &self.write,
        }
    }

    fn most_compared(&self) -> usize {
        self.deny.most_compared() + self.write.most_compared().max(self.read.most_compared())
    }

    /// Returns the lists of the rules, each with its line in its file. Their order has no meaning.
    pub fn new(rules: impl IntoIterator<Item = (Access, RuleFilter, u32)>) -> RuleLists {
        let (mut deny, mut write, mut read) = (Vec::new(), Vec::new(), Vec::new());
        for (access, filter, line) in rules {
            match access {
                Access::Deny => deny.push((filter, line)),
                Access::Write => write.push((filter, line)),
                Access::Read => read.push((filter, line)),
                Access::ReadWrite => {
                    write.push((filter.clone(), line));
                    read.push((filter, line));
                }
            }
        }
        let granted = |filters| RuleSet::new(Effect::Grant, filters);
        RuleLists { deny: RuleSet::new(Effect::Deny, deny), write: granted(write), read: granted(read) }
    }
}

impl Default for RuleLists {
    /// Returns lists without rules.
    fn default() -> RuleLists {
        RuleLists::new([])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqtt::topic;
    use proptest::prelude::*;

    const ANN: ClientNames<'_> = ClientNames::new(Some("ann"), "c");

    fn permit(own: &[(Access, &str)], patterns: &[(Access, &str)]) -> Permit {
        let own = own.iter().map(|(access, text)| (*access, RuleFilter::topic(text).unwrap(), 1));
        let patterns = patterns.iter().map(|(access, text)| (*access, RuleFilter::pattern(text).unwrap(), 2));
        Permit::Rules(Arc::new(UserRules::new(RuleLists::new(own), Arc::new(RuleLists::new(patterns)))))
    }

    #[test]
    fn a_permit_takes_one_pointer() {
        assert_eq!(size_of::<Permit>(), 8);
        assert!(Permit::All.may_read("a", ANN) && Permit::All.may_write("$SYS/a", ANN));
        assert_eq!(Permit::All.coverage("#", ANN), Coverage::Covered);
        let rules = permit(&[], &[]);
        assert!(rules.is_same(&rules.clone()) && Permit::All.is_same(&Permit::All));
        assert!(!rules.is_same(&permit(&[], &[])) && !rules.is_same(&Permit::All));
    }

    #[test]
    fn without_a_rule_everything_is_denied() {
        let none = permit(&[], &[]);
        assert!(!none.may_read("a", ANN) && !none.may_write("a", ANN));
        assert_eq!(none.coverage("a", ANN), Coverage::Disjoint);
    }

    #[test]
    fn reading_and_writing_are_granted_apart() {
        let permit =
            permit(&[(Access::Read, "in/#"), (Access::Write, "out/#"), (Access::ReadWrite, "both")], &[]);
        assert!(permit.may_read("in/x", ANN) && !permit.may_write("in/x", ANN));
        assert!(!permit.may_read("out/x", ANN) && permit.may_write("out/x", ANN));
        assert!(permit.may_read("both", ANN) && permit.may_write("both", ANN));
    }

    #[test]
    fn deny_wins_over_grants_of_the_same_list_only() {
        let own =
            permit(&[(Access::ReadWrite, "a/#"), (Access::Deny, "a/secret")], &[(Access::ReadWrite, "a/#")]);
        assert!(
            own.may_read("a/x", ANN) && !own.may_read("a/secret", ANN) && !own.may_write("a/secret", ANN)
        );
        let both = permit(&[(Access::Read, "a/%u")], &[(Access::Deny, "a/#"), (Access::Read, "#")]);
        assert!(both.may_read("a/%u", ANN), "the user's own list decides first");
        assert!(!both.may_read("a/x", ANN) && both.may_read("b", ANN));
    }

    #[test]
    fn only_a_dollar_rule_matches_a_dollar_topic() {
        let all = permit(&[(Access::ReadWrite, "#")], &[]);
        assert!(!all.may_read("$SYS/x", ANN) && all.may_read("x", ANN));
        assert_eq!(all.coverage("#", ANN), Coverage::Covered);
        assert_eq!(all.coverage("$SYS/#", ANN), Coverage::Disjoint);
        let sys = permit(&[(Access::Read, "$SYS/#")], &[]);
        assert!(sys.may_read("$SYS/x", ANN) && sys.coverage("$SYS/+", ANN) == Coverage::Covered);
    }

    #[test]
    fn names_with_wildcards_match_no_pattern() {
        let permit =
            permit(&[(Access::Read, "own")], &[(Access::ReadWrite, "homes/%u/#"), (Access::Read, "news")]);
        for names in [ClientNames::new(Some("+"), "c"), ClientNames::new(Some("ann"), "#")] {
            assert!(!permit.may_read("homes/ann/x", names) && !permit.may_read("homes/+/x", names));
            assert!(!permit.may_read("news", names) && permit.may_read("own", names));
            assert_eq!(permit.coverage("homes/#", names), Coverage::Disjoint);
            assert_eq!(permit.coverage("own", names), Coverage::Covered);
        }
        assert!(permit.may_read("homes/ann/x", ANN) && permit.may_read("news", ANN));
    }

    #[test]
    fn a_name_with_a_slash_escapes_no_deny() {
        let permit = permit(&[], &[(Access::Read, "pumps/#"), (Access::Deny, "pumps/%c/keys")]);
        for (client_id, topic) in [("a", "pumps/a/keys"), ("a/b", "pumps/a/b/keys")] {
            let names = ClientNames::new(Some("ann"), client_id);
            assert!(!permit.may_read(topic, names) && permit.may_read("pumps/x/keys", names), "{client_id}");
            assert_eq!(permit.coverage("pumps/#", names), Coverage::Partial, "{client_id}");
            assert_eq!(permit.coverage(topic, names), Coverage::Disjoint, "{client_id}");
        }
    }

    #[test]
    fn coverage_tells_whole_filters_from_parts() {
        let permit = permit(
            &[(Access::Read, "a/#"), (Access::Deny, "a/b/#"), (Access::Read, "dead"), (Access::Deny, "dead")],
            &[(Access::Read, "homes/%u/#")],
        );
        assert_eq!(permit.coverage("a/c/#", ANN), Coverage::Covered);
        assert_eq!(permit.coverage("a/#", ANN), Coverage::Partial);
        assert_eq!(permit.coverage("#", ANN), Coverage::Partial);
        assert_eq!(permit.coverage("a/b/c", ANN), Coverage::Disjoint);
        assert_eq!(permit.coverage("dead", ANN), Coverage::Disjoint);
        assert_eq!(permit.coverage("homes/ann/+", ANN), Coverage::Covered);
        assert_eq!(permit.coverage("homes/+/x", ANN), Coverage::Partial);
        assert_eq!(permit.coverage("homes/bob/x", ANN), Coverage::Disjoint);
    }

    /// One line of a file, as (is a pattern, access, text).
    type Line = (bool, Access, String);

    /// Decides as a reader of mosquitto's documentation would, line by line.
    fn naive(lines: &[Line], wanted: Access, topic: &str, names: ClientNames<'_>) -> bool {
        let filled = |text: &str| text.replace("%u", names.user.unwrap_or("")).replace("%c", names.client_id);
        let matching = |of_patterns: bool| -> Vec<Access> {
            let list = lines.iter().filter(|(is_pattern, ..)| *is_pattern == of_patterns);
            let list = list.filter(|(is_pattern, _, text)| match is_pattern {
                true => {
                    (names.user.is_some() || !text.contains("%u"))
                        && text.starts_with('$') == topic.starts_with('$')
                        && topic::matches(&filled(text), topic)
                }
                false => topic::matches(text, topic),
            });
            list.map(|(_, access, _)| *access).collect()
        };
        let is_wanted = |access: &Access| *access == wanted || *access == Access::ReadWrite;
        for of_patterns in [false, true] {
            let found = matching(of_patterns);
            if found.contains(&Access::Deny) {
                return false;
            }
            if found.iter().any(is_wanted) {
                return true;
            }
        }
        false
    }

    fn level() -> impl Strategy<Value = &'static str> {
        prop_oneof![
            Just("a"),
            Just("b"),
            Just(""),
            Just("%u"),
            Just("%c"),
            Just("ann"),
            Just("+"),
            Just("$x")
        ]
    }

    fn filter() -> impl Strategy<Value = String> {
        (proptest::collection::vec(level(), 0..4), any::<bool>())
            .prop_map(|(levels, hash)| {
                let mut text = levels.join("/");
                if hash {
                    text = if levels.is_empty() { "#".to_owned() } else { format!("{text}/#") };
                }
                text
            })
            .prop_filter("a filter has a character", |text| !text.is_empty())
    }

    fn line() -> impl Strategy<Value = Line> {
        let access =
            prop_oneof![Just(Access::Read), Just(Access::Write), Just(Access::ReadWrite), Just(Access::Deny)];
        (any::<bool>(), access, filter())
    }

    fn all_topics() -> Vec<String> {
        let words = ["a", "b", "", "ann", "c", "$x", "z"];
        let mut topics: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let mut last = topics.clone();
        for _ in 0..3 {
            last = last.iter().flat_map(|t| words.iter().map(move |word| format!("{t}/{word}"))).collect();
            topics.extend(last.iter().cloned());
        }
        topics.retain(|topic| !topic.is_empty());
        topics
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn a_permit_decides_as_a_naive_reading_of_the_file(
            lines in proptest::collection::vec(line(), 0..14),
            subscription in filter().prop_filter("no placeholder", |text| !text.contains('%')),
            is_anonymous in any::<bool>(),
        ) {
            let names = ClientNames::new((!is_anonymous).then_some("ann"), "c");
            let of = |wanted: bool| -> Vec<(Access, &str)> {
                let list = lines.iter().filter(|(is_pattern, ..)| *is_pattern == wanted);
                list.map(|(_, access, text)| (*access, text.as_str())).collect()
            };
            let permit = permit(&of(false), &of(true));
            let (mut readable, mut unreadable) = (0, 0);
            for topic in all_topics() {
                let may_read = naive(&lines, Access::Read, &topic, names);
                prop_assert_eq!(permit.may_read(&topic, names), may_read, "read {}", topic);
                prop_assert_eq!(
                    permit.may_write(&topic, names),
                    naive(&lines, Access::Write, &topic, names),
                    "write {}", topic
                );
                if topic::matches(&subscription, &topic) {
                    if may_read { readable += 1 } else { unreadable += 1 }
                }
            }
            match permit.coverage(&subscription, names) {
                Coverage::Covered => prop_assert_eq!(unreadable, 0, "{} is not covered", subscription),
                Coverage::Disjoint => prop_assert_eq!(readable, 0, "{} is not disjoint", subscription),
                Coverage::Partial => {}
            }
        }
    }
}
