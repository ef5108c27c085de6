//! Many filters with one effect, and the search for a filter that matches a topic.
//!
//! Up to 8 filters are a list: each costs 2 to 30 ns. More are indexed: a filter without
//! wildcard and placeholder is found by its text, any other by its first level. So the cost grows
//! only with the filters of one first level, and with those that begin with a wildcard or a
//! placeholder.

use super::cover;
use super::rule::{ClientNames, Effect, RuleFilter};
use crate::mqtt::keyed::Keyed;
use hashbrown::{HashMap, HashSet};
use std::borrow::Cow;

/// The largest number of filters that are a list.
const LIST: usize = 8;

/// Filters that all grant, or all deny.
#[derive(Clone, Debug)]
pub struct RuleSet {
    effect: Effect,
    filters: Vec<RuleFilter>,
    /// The lines of the filters in their file; empty for filters that grant. Only a rule that
    /// denies explains a refusal.
    lines: Vec<u32>,
    index: Option<Box<RuleIndex>>,
    /// Filters that a topic is compared with, at most.
    most: usize,
}

/// Places in [`RuleSet::filters`].
#[derive(Clone, Debug, Default)]
struct RuleIndex {
    exact: HashSet<Box<str>, Keyed>,
    by_first_level: HashMap<Box<str>, Vec<u32>, Keyed>,
    others: Vec<u32>,
}

impl RuleSet {
    /// Returns the set of the filters, which all have this effect, each with its line in the file.
    /// Duplicate filters count once, with the first line.
    pub fn new(effect: Effect, filters: impl IntoIterator<Item = (RuleFilter, u32)>) -> RuleSet {
        let (mut unique, mut lines): (Vec<RuleFilter>, Vec<u32>) = Default::default();
        let mut seen: HashSet<RuleFilter, Keyed> = HashSet::default();
        for (filter, line) in filters {
            if seen.insert(filter.clone()) {
                unique.push(filter);
                lines.extend((effect == Effect::Deny).then_some(line));
            }
        }
        let index = (unique.len() > LIST).then(|| Box::new(RuleIndex::of(&unique)));
        let most = index.as_ref().map_or(unique.len(), |index| index.most());
        RuleSet { effect, filters: unique, lines, index, most }
    }

    /// Returns true if there is no filter.
    pub fn is_empty(&self) -> bool {
        self.filters.is_empty()
    }

    /// Returns the number of filters.
    pub fn len(&self) -> usize {
        self.filters.len()
    }

    /// Returns the number of filters that a topic is compared with, at most.
    pub(super) fn most_compared(&self) -> usize {
        self.most
    }

    /// Returns true if a filter matches the Topic Name for this client. Allocates nothing. Adds to
    /// `compared` the filters that the topic was compared with, at most.
    pub fn matches(&self, topic: &str, names: ClientNames<'_>, compared: &mut usize) -> bool {
        let Some(index) = &self.index else {
            *compared += self.filters.len();
            return self.filters.iter().any(|filter| filter.matches(topic, names, self.effect));
        };
        let mut any = |places: &[u32]| {
            *compared += places.len();
            places
                .iter()
                .filter_map(|place| self.filters.get(*place as usize))
                .any(|filter| filter.matches(topic, names, self.effect))
        };
        let first = topic.split('/').next().unwrap_or_default();
        index.exact.contains(topic)
            || index.by_first_level.get(first).is_some_and(|places| any(places))
            || any(&index.others)
    }

    /// Returns the line of the first filter that matches the Topic Name for this client. Looks at
    /// each filter; for filters that deny.
    pub(super) fn line_matching(&self, topic: &str, names: ClientNames<'_>) -> Option<u32> {
        self.line_of(|filter| filter.matches(topic, names, self.effect))
    }

    /// Returns the line of the first filter of which `fits` is true for its text with the names of
    /// the client; for filters that deny.
    pub(super) fn line_filled(&self, names: ClientNames<'_>, fits: impl Fn(&str) -> bool) -> Option<u32> {
        self.line_of(|filter| filter.filled(names, self.effect).is_some_and(|own| fits(&own)))
    }

    fn line_of(&self, fits: impl Fn(&RuleFilter) -> bool) -> Option<u32> {
        self.filters.iter().zip(&self.lines).find(|(filter, _)| fits(filter)).map(|(_, line)| *line)
    }

    /// Returns the filters with the names of the client filled in, without those that match nothing
    /// for this client.
    pub(super) fn filled<'a>(&'a self, names: ClientNames<'a>) -> impl Iterator<Item = Cow<'a, str>> {
        self.filters.iter().filter_map(move |filter| filter.filled(names, self.effect))
    }

    /// Returns true if one filter contains the other filter whole.
    pub(super) fn contains(&self, filter: &str, names: ClientNames<'_>) -> bool {
        self.filled(names).any(|own| cover::contains(&own, filter))
    }

    /// Returns true if a topic matches one of the filters and also the other filter.
    pub(super) fn overlaps(&self, filter: &str, names: ClientNames<'_>) -> bool {
        self.filled(names).any(|own| cover::overlaps(&own, filter))
    }
}

impl RuleIndex {
    fn of(filters: &[RuleFilter]) -> RuleIndex {
        let mut index = RuleIndex::default();
        for (place, filter) in (0_u32..).zip(filters) {
            if filter.is_exact() {
                index.exact.insert(filter.text().into());
            } else if let Some(first) = filter.first_level() {
                index.by_first_level.entry(first.into()).or_default().push(place);
            } else {
                index.others.push(place);
            }
        }
        index
    }

    fn most(&self) -> usize {
        1 + self.others.len() + self.by_first_level.values().map(Vec::len).max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANN: ClientNames<'_> = ClientNames::new(Some("ann"), "c");

    fn set(texts: &[String]) -> RuleSet {
        RuleSet::new(Effect::Grant, texts.iter().map(|text| (RuleFilter::pattern(text).unwrap(), 0)))
    }

    #[test]
    fn an_indexed_set_matches_as_a_list_does() {
        let topics: Vec<String> = (0..40)
            .flat_map(|n| {
                [
                    format!("l{n}"),
                    format!("l{n}/x"),
                    format!("l{n}/x/y"),
                    format!("$l{n}/x"),
                    "ann".to_owned(),
                ]
            })
            .collect();
        let others = ["+/x/y", "%u", "%u/#", "$l3/#", "l4/%u", "$l5/x", "l6/+"];
        let mut texts: Vec<String> = others.iter().map(|text| (*text).to_owned()).collect();
        texts.extend((10..30).flat_map(|n| [format!("l{n}"), format!("l{n}/x/#")]));
        let all = set(&texts);
        assert!(all.index.is_some() && all.len() == texts.len());
        for topic in &topics {
            let expected =
                texts.iter().any(|text| set(std::slice::from_ref(text)).matches(topic, ANN, &mut 0));
            let mut compared = 0;
            assert_eq!(all.matches(topic, ANN, &mut compared), expected, "{topic}");
            assert!(compared <= all.most_compared(), "{topic}");
        }
    }

    #[test]
    fn a_filter_counts_once() {
        let twice = set(&["a".to_owned(), "a".to_owned(), "b".to_owned()]);
        assert_eq!((twice.len(), twice.is_empty()), (2, false));
        assert!(set(&[]).is_empty() && !set(&[]).matches("a", ANN, &mut 0));
    }
}
