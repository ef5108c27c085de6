//! The messages that an operator looks for.

use crate::mqtt::message::Message;
use crate::mqtt::topic::{
    TopicFilter, begins_with_dollar, first_chars, has_wildcard, is_topic_name, matches,
};
use crate::operators::budget::QuestionBudget;

/// A Topic Name, or a Topic Filter for each topic that it matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedTopic {
    text: Box<str>,
    is_filter: bool,
}

impl WantedTopic {
    /// Reads the text of an operator.
    ///
    /// # Errors
    /// The text is neither a Topic Name nor a Topic Filter without a share name. Says why.
    pub fn read(text: &str) -> Result<WantedTopic, String> {
        let filter = TopicFilter::parse(text, usize::MAX)
            .map_err(|error| format!("topic {text:?} is neither a topic nor a topic filter: {error}"))?;
        if filter.is_shared() {
            return Err(format!("topic {text:?} is a shared subscription; leave its $share/<group>/ out"));
        }
        let is_filter = has_wildcard(text);
        if !is_filter && !is_topic_name(text) {
            return Err(format!("topic {text:?} is no topic"));
        }
        Ok(WantedTopic { text: text.into(), is_filter })
    }

    /// Returns the text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns true if the text has a wildcard.
    pub fn is_filter(&self) -> bool {
        self.is_filter
    }

    /// Returns true if a topic is wanted.
    pub fn is(&self, topic: &str) -> bool {
        if self.is_filter { matches(&self.text, topic) } else { *self.text == *topic }
    }

    /// Returns true if a topic may be wanted of which the first `most` characters are known, or
    /// all if it has fewer.
    pub fn may_be(&self, known: &str, most: usize) -> bool {
        if known.len() < most {
            return self.is(known);
        }
        match self.is_filter {
            true => self.is(known) || may_match(&self.text, known),
            false => first_chars(&self.text, most) == known,
        }
    }

    /// As [`Self::is`], and spends the steps of the comparison.
    pub(super) fn is_within(&self, topic: &str, budget: &mut QuestionBudget) -> bool {
        if self.is_filter || self.text.len() == topic.len() {
            budget.spend_bytes(topic.len());
        }
        self.is(topic)
    }
}

/// Returns true if some topic matches that begins like this. The last level may go on.
fn may_match(filter: &str, beginning: &str) -> bool {
    if begins_with_dollar(beginning) && filter.starts_with(['+', '#']) {
        return false;
    }
    let mut levels = beginning.split('/').peekable();
    for wanted in filter.split('/') {
        let Some(level) = levels.next() else { return true };
        if wanted == "#" {
            return true;
        }
        if levels.peek().is_none() {
            return wanted == "+" || wanted.starts_with(level);
        }
        if wanted != "+" && wanted != level {
            return false;
        }
    }
    false
}

/// The messages that are looked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The topic; `None` for any.
    pub topic: Option<WantedTopic>,
    /// The publisher's Client Identifier; `None` for any. Messages keep it only if a redelivery
    /// policy asks for dead letters; a message without it fits any publisher.
    pub publisher: Option<Box<str>>,
    /// The receiver's Client Identifier; `None` for any.
    pub receiver: Option<Box<str>>,
}

impl Wanted {
    /// Returns true if a message is wanted.
    pub fn is(&self, message: &Message) -> bool {
        self.is_of(message.topic(), message.publisher())
    }

    /// Returns true if a message with this topic is wanted, by this publisher or by one that is not
    /// known.
    pub fn is_of(&self, topic: &str, publisher: &str) -> bool {
        self.topic.as_ref().is_none_or(|wanted| wanted.is(topic)) && self.is_by_publisher(publisher)
    }

    fn is_by_publisher(&self, publisher: &str) -> bool {
        self.publisher.as_deref().is_none_or(|name| publisher.is_empty() || publisher == name)
    }

    /// As [`Self::is`], and spends the steps of the comparison.
    pub(super) fn is_within(&self, message: &Message, budget: &mut QuestionBudget) -> bool {
        let is_topic = self.topic.as_ref().is_none_or(|topic| topic.is_within(message.topic(), budget));
        is_topic && self.is_by_publisher(message.publisher())
    }

    /// Returns true if a PUBREL is wanted. Its topic is gone with its message.
    pub(super) fn is_release(&self) -> bool {
        self.topic.is_none() && self.publisher.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(text: &str) -> WantedTopic {
        WantedTopic::read(text).expect("a topic or a filter")
    }

    #[test]
    fn a_text_with_a_wildcard_stands_for_each_topic_that_it_matches() {
        assert!(topic("t/#").is("t/1") && topic("t/+").is("t/1") && topic("t/1").is("t/1"));
        assert!(!topic("t/+").is("t/1/2") && !topic("t/1").is("t/2") && !topic("#").is("$SYS/a"));
        assert_eq!([topic("t/#").is_filter(), topic("t/1").is_filter()], [true, false]);
        for wrong in ["", "t/#/a", "a+", "$share/g/t/#"] {
            assert!(WantedTopic::read(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_topic_that_is_cut_may_be_wanted_if_it_begins_like_one_that_is() {
        for (wanted, known, may_be) in [
            ("a/bcd", "a/bc", true),
            ("a/bdd", "a/bc", false),
            ("a/+", "a/bc", true),
            ("a/#", "a/bc", true),
            ("a/bc/#", "a/bc", true),
            ("a/bcd/+", "a/bc", true),
            ("a/d/#", "a/bc", false),
            ("+/+/+", "a/bc", true),
            ("a", "a/bc", false),
            ("+/bc", "$a/b", false),
        ] {
            assert_eq!(topic(wanted).may_be(known, 4), may_be, "{wanted} {known}");
        }
        assert!(!topic("a/bcd").may_be("a/b", 4), "a text with fewer characters is not cut");
    }
}
