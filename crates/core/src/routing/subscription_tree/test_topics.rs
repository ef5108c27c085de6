//! Random Topic Names and Topic Filters over a small alphabet, for the tree and the retained
//! messages.

use crate::mqtt::topic;
use proptest::prelude::*;

/// Levels of few kinds, so that filters match topics often.
fn level() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just("a"), Just("b"), Just("ab"), Just(""), Just("$SYS"), Just("$")]
}

pub(in crate::routing) fn topic_name() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => prop::collection::vec(level(), 1..6),
        1 => prop::collection::vec(level(), 30..40),
    ]
    .prop_map(|levels| levels.join("/"))
    .prop_filter("a topic has one character", |topic| topic::is_topic_name(topic))
}

pub(in crate::routing) fn topic_filter() -> impl Strategy<Value = String> {
    let wildcard_or_level = prop_oneof![2 => level(), 1 => Just("+")];
    (prop::collection::vec(wildcard_or_level, 0..6), any::<bool>())
        .prop_map(|(mut levels, is_multi)| {
            if is_multi {
                levels.push("#");
            }
            levels.join("/")
        })
        .prop_filter("a filter has one character", |filter| !filter.is_empty())
}
