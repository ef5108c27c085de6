//! Relations between two topic filters, as sets of topics.
//!
//! Both functions take valid filters without `$share/NAME/`. Their cost is linear in the lengths.
//! SUBSCRIBE and the start call these functions; no message does.
//!
//! `#` also matches the parent level. The parent of the whole filters `#` and `/#` would be the
//! empty text, which is no topic. So they equal `+/#` and `/+/#`.

use crate::mqtt::topic::begins_with_dollar;

/// Returns true if `wide` matches each topic that `narrow` matches.
pub fn contains(wide: &str, narrow: &str) -> bool {
    // 5.0 and 3.1.1 [MQTT-4.7.2-1]
    if begins_with_dollar(narrow) && wide.starts_with(['+', '#']) {
        return false;
    }
    let mut levels = Levels::of(narrow);
    for wanted in Levels::of(wide) {
        if wanted == "#" {
            return true;
        }
        match levels.next() {
            Some("#") | None => return false,
            Some(level) if wanted == "+" || wanted == level => {}
            Some(_) => return false,
        }
    }
    levels.next().is_none()
}

/// Returns the filter that matches the topics that both filters match. Returns `None` if no topic
/// matches both.
pub fn intersection(one: &str, other: &str) -> Option<String> {
    // 5.0 and 3.1.1 [MQTT-4.7.2-1]
    let has_no_dollar = |filter: &str| filter.starts_with(['+', '#']);
    if (begins_with_dollar(one) && has_no_dollar(other)) || (begins_with_dollar(other) && has_no_dollar(one))
    {
        return None;
    }
    let (mut ones, mut others) = (Levels::of(one), Levels::of(other));
    let mut both: Vec<&str> = Vec::new();
    loop {
        match (ones.next(), others.next()) {
            (None, None) | (Some("#"), None) | (None, Some("#")) => break,
            (Some("#"), Some(level)) => {
                both.push(level);
                both.extend(others);
                break;
            }
            (Some(level), Some("#")) => {
                both.push(level);
                both.extend(ones);
                break;
            }
            (Some("+"), Some(level)) => both.push(level),
            (Some(level), Some(wanted)) if wanted == "+" || wanted == level => both.push(level),
            _ => return None,
        }
    }
    Some(both.join("/"))
}

/// Returns true if some topic matches both filters.
pub fn overlaps(one: &str, other: &str) -> bool {
    intersection(one, other).is_some()
}

/// The levels of a filter. The whole filters `#` and `/#` have the levels of their equals.
struct Levels<'a>(std::str::Split<'a, char>);

impl<'a> Levels<'a> {
    fn of(filter: &'a str) -> Levels<'a> {
        let equal = match filter {
            "#" => "+/#",
            "/#" => "/+/#",
            other => other,
        };
        Levels(equal.split('/'))
    }
}

impl<'a> Iterator for Levels<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        self.0.next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqtt::topic::{TopicFilter, matches};

    /// All texts of up to `depth` levels over an alphabet.
    fn texts(alphabet: &[&str], depth: usize) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        let mut last: Vec<String> = alphabet.iter().map(|level| (*level).to_owned()).collect();
        for _ in 0..depth {
            all.extend(last.iter().cloned());
            last = last
                .iter()
                .flat_map(|text| alphabet.iter().map(move |level| format!("{text}/{level}")))
                .collect();
        }
        all.retain(|text| !text.is_empty());
        all
    }

    fn filters() -> Vec<String> {
        let mut filters = texts(&["a", "", "$b", "+", "#"], 3);
        filters.retain(|filter| TopicFilter::parse(filter, 8).is_ok());
        filters
    }

    /// Topics over more levels and one more word than the filters have, so that no union of words
    /// is all words.
    fn topics() -> Vec<String> {
        texts(&["a", "", "$b", "other"], 4)
    }

    #[test]
    fn containment_and_overlap_agree_with_all_topics() {
        let (filters, topics) = (filters(), topics());
        assert!(filters.len() > 80 && topics.len() > 300, "{} {}", filters.len(), topics.len());
        let sets: Vec<Vec<bool>> = filters
            .iter()
            .map(|filter| topics.iter().map(|topic| matches(filter, topic)).collect())
            .collect();
        for (one, one_set) in filters.iter().zip(&sets) {
            for (other, other_set) in filters.iter().zip(&sets) {
                let pairs = || one_set.iter().zip(other_set);
                let contained = pairs().all(|(one, other)| *one || !*other);
                assert_eq!(contains(one, other), contained, "{one} contains {other}");
                let overlapping = pairs().any(|(one, other)| *one && *other);
                assert_eq!(overlaps(one, other), overlapping, "{one} overlaps {other}");
                let Some(both) = intersection(one, other) else { continue };
                assert!(TopicFilter::parse(&both, 8).is_ok(), "{one} and {other}: {both}");
                for (topic, (one_matches, other_matches)) in topics.iter().zip(pairs()) {
                    let expected = *one_matches && *other_matches;
                    assert_eq!(matches(&both, topic), expected, "{one} and {other}: {both} on {topic}");
                }
            }
        }
    }
}
