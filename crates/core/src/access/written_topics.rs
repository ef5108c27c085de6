//! The topics that a client publishes to again and again, so that they need no look at the rules.

use super::ordered::Direction;
use super::permit::{Decision, Permit};
use super::rule::ClientNames;

/// The number of topics that are remembered. Most clients publish to one or two.
const TOPICS: usize = 4;

/// The longest topic in bytes that is remembered.
const LONGEST: usize = 128;

/// The last topics that a client was allowed to publish to. Takes 8 bytes until the first one, and
/// at most 700 bytes. The topics are kept only while the client is connected.
///
/// A topic that is denied is not remembered: its publisher pays for each look at the rules.
#[derive(Debug, Default)]
pub struct WrittenTopics(Option<Box<Remembered>>);

#[derive(Debug, Default)]
struct Remembered {
    topics: [Option<String>; TOPICS],
    /// The place of the next topic. The oldest one makes room.
    next: usize,
}

impl WrittenTopics {
    /// Decides if the client may publish to the Topic Name. The permit and the names must be
    /// those of the calls before, or [`Self::clear`] must come first. `All` costs one branch, and a
    /// remembered topic a comparison of texts.
    #[inline]
    pub fn may_write(&mut self, permit: &Permit, topic: &str, names: ClientNames<'_>) -> Decision {
        if matches!(permit, Permit::All) || self.has(topic) {
            return Decision::FREE;
        }
        self.look_up(permit, topic, names)
    }

    /// Forgets all topics.
    pub fn clear(&mut self) {
        self.0 = None;
    }

    #[inline]
    fn has(&self, topic: &str) -> bool {
        self.0.as_ref().is_some_and(|known| known.topics.iter().flatten().any(|known| known == topic))
    }

    fn look_up(&mut self, permit: &Permit, topic: &str, names: ClientNames<'_>) -> Decision {
        let decision = permit.decide(Direction::Write, topic, names);
        if decision.is_granted && topic.len() <= LONGEST {
            let Remembered { topics, next } = &mut **self.0.get_or_insert_default();
            if let Some(place) = topics.get_mut(*next) {
                // The text before leaves its bytes to this one.
                let text = place.get_or_insert_default();
                text.clear();
                text.push_str(topic);
            }
            *next = (*next + 1) % TOPICS;
        }
        decision
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::permit::{RuleLists, UserRules};
    use crate::access::rule::{Access, RuleFilter};
    use std::sync::Arc;

    const ANN: ClientNames<'_> = ClientNames::new(Some("ann"), "c");

    fn permit(filter: &str) -> Permit {
        let own = RuleLists::new([(Access::Write, RuleFilter::topic(filter).unwrap(), 1)]);
        Permit::Rules(Arc::new(UserRules::new(own, Arc::default())))
    }

    #[test]
    fn a_topic_is_allowed_as_the_permit_says_whatever_came_before() {
        let (permit, mut written) = (permit("a/#"), WrittenTopics::default());
        for round in 0..3 {
            for topic in ["a/1", "a/2", "b", "", "a/3", "a/1", "a/4", "a/5", "a/5", "b", "a/1"] {
                let expected = permit.may_write(topic, ANN);
                assert_eq!(
                    written.may_write(&permit, topic, ANN).is_granted,
                    expected,
                    "{topic:?} in round {round}"
                );
            }
        }
        let long = format!("a/{}", "x".repeat(LONGEST));
        assert!(written.may_write(&permit, &long, ANN).is_granted && !written.has(&long));
    }

    #[test]
    fn only_allowed_topics_are_remembered_until_they_are_forgotten() {
        let mut written = WrittenTopics::default();
        assert!(written.may_write(&Permit::All, "a", ANN).is_granted && written.0.is_none());
        assert!(!written.may_write(&permit("a"), "b", ANN).is_granted && written.0.is_none());
        assert!(written.may_write(&permit("a"), "a", ANN).is_granted && written.has("a"));
        written.clear();
        assert!(!written.may_write(&permit("b"), "a", ANN).is_granted, "other rules hold");
        for n in 0..=TOPICS {
            assert!(written.may_write(&permit("+"), &n.to_string(), ANN).is_granted);
        }
        assert!(!written.has("0") && (1..=TOPICS).all(|n| written.has(&n.to_string())));
    }
}
