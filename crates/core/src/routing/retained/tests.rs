//! The store against the naive matcher, its limits and its deadlines.

use super::*;
use crate::mqtt::message::Parts;
use crate::mqtt::packet::QoS;
use crate::routing::subscription_tree::test_topics::{topic_filter, topic_name};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const NOW: Instant = Instant::ZERO;

fn message(topic: &str, payload: &str) -> Message {
    expiring(topic, payload, Instant::NEVER)
}

fn expiring(topic: &str, payload: &str, expires: Instant) -> Message {
    let (qos, payload) = (QoS::AtLeastOnce, payload.as_bytes());
    Message::new(Parts { qos, retain: true, expires, topic, forwarded: &[], payload }, &mut Vec::new())
}

fn store() -> Retained {
    Retained::new(RetainedLimits::UNLIMITED)
}

fn topics(messages: &[Message]) -> Vec<&str> {
    messages.iter().map(Message::topic).collect()
}

fn matching(retained: &Retained, filter: &str, now: Instant) -> Vec<Message> {
    let mut out = Vec::new();
    retained.matching(filter, now, &mut out);
    out
}

fn assert_empty(retained: &Retained) {
    assert_eq!((retained.len(), retained.bytes()), (0, 0));
    assert!(retained.topics.is_empty() && retained.deadlines.is_empty());
}

proptest! {
    #[test]
    fn a_filter_finds_just_the_topics_the_naive_matcher_finds(
        names in prop::collection::vec(topic_name(), 0..60),
        filters in prop::collection::vec(topic_filter(), 1..20),
        budget in 1..5_usize,
    ) {
        let mut retained = store();
        for name in &names {
            retained.set(message(name, ""), NOW).unwrap();
        }
        let names: BTreeSet<_> = names.iter().map(String::as_str).collect();
        for filter in &filters {
            let expected: Vec<_> = names.iter().copied().filter(|n| topic::matches(filter, n)).collect();
            let whole = matching(&retained, filter, NOW);
            let mut found = topics(&whole);
            found.sort_unstable();
            prop_assert_eq!(found, expected, "{}", filter);
            let mut cursor = Cursor::default();
            let mut parts = Vec::new();
            while retained.matching_from(&mut cursor, filter, NOW, &mut { budget }, &mut parts) == SearchProgress::More {}
            prop_assert_eq!(topics(&parts), topics(&whole), "{} in parts", filter);
        }
    }

    #[test]
    fn any_row_of_changes_leaves_what_the_model_has_and_undone_leaves_nothing(
        steps in prop::collection::vec((topic_name(), 0..6_u64, "[ab]{0,3}"), 0..80),
    ) {
        let mut retained = store();
        let mut model = BTreeMap::new();
        for (name, kind, payload) in steps {
            // 0 removes, 5 never expires.
            let expires = if kind == 5 { Instant::NEVER } else { Instant::from_millis(kind) };
            let old = if kind == 0 {
                retained.remove(&name)
            } else {
                retained.set(expiring(&name, &payload, expires), NOW).unwrap()
            };
            let old = old.map(|m| m.payload().to_vec());
            let expected = if kind == 0 {
                model.remove(&name)
            } else {
                model.insert(name, (expires, payload))
            };
            prop_assert_eq!(old, expected.map(|(_, payload)| payload.into_bytes()));
        }
        let bytes: usize = model.iter().map(|(t, (e, p))| expiring(t, p, *e).size()).sum();
        prop_assert_eq!((retained.len(), retained.bytes()), (model.len(), bytes));
        let now = Instant::from_millis(2);
        let alive = model.iter().filter(|(t, (e, _))| *e > now && !t.starts_with('$')).count();
        prop_assert_eq!(matching(&retained, "#", now).len(), alive);
        let dead = model.values().filter(|(e, _)| *e <= now).count();
        prop_assert_eq!(retained.expire(now, usize::MAX), dead);
        for name in model.keys() {
            retained.remove(name);
        }
        assert_empty(&retained);
    }
}

// 5.0 [MQTT-4.7.2-1]; 3.1.1 [MQTT-4.7.2-1]
#[test]
fn leading_wildcards_pass_over_dollar_topics() {
    let mut retained = store();
    for name in ["$SYS/a", "$SYS", "a", "a/b", "!", "%"] {
        retained.set(message(name, "x"), NOW).unwrap();
    }
    assert_eq!(topics(&matching(&retained, "#", NOW)), ["!", "%", "a", "a/b"]);
    assert_eq!(topics(&matching(&retained, "+/b", NOW)), ["a/b"]);
    assert_eq!(topics(&matching(&retained, "$SYS/#", NOW)), ["$SYS", "$SYS/a"]);
    assert_eq!(topics(&matching(&retained, "$SYS/+", NOW)), ["$SYS/a"]);
}

#[test]
fn the_parent_level_matches_and_characters_below_the_slash_do_not_part_a_subtree() {
    let mut retained = store();
    for name in ["a", "a/b", "a/b/c", "a-b", "a\u{1}", "a/b-", "a//", "ab"] {
        retained.set(message(name, ""), NOW).unwrap();
    }
    assert_eq!(topics(&matching(&retained, "a/#", NOW)), ["a", "a//", "a/b", "a/b/c", "a/b-"]);
    assert_eq!(topics(&matching(&retained, "a/+", NOW)), ["a/b", "a/b-"]);
    assert_eq!(topics(&matching(&retained, "+", NOW)), ["a", "a\u{1}", "a-b", "ab"]);
    assert_eq!(topics(&matching(&retained, "a/+/+", NOW)), ["a//", "a/b/c"]);
    assert_eq!(topics(&matching(&retained, "a/b", NOW)), ["a/b"]);
}

#[test]
fn a_new_topic_beyond_the_number_is_refused_and_a_replacement_is_not() {
    let mut retained = Retained::new(RetainedLimits { messages: 2, bytes: usize::MAX });
    retained.set(message("a", "1"), NOW).unwrap();
    retained.set(message("b", "1"), NOW).unwrap();
    assert_eq!(retained.set(message("c", "1"), NOW).unwrap_err(), RetainedFull);
    let old = retained.set(message("a", "2"), NOW).unwrap().unwrap();
    assert_eq!(old.payload(), b"1");
    retained.remove("b");
    assert!(retained.set(message("c", "1"), NOW).unwrap().is_none());
    assert_eq!(retained.len(), 2);
}

#[test]
fn the_messages_of_the_broker_itself_do_not_count_as_those_of_clients() {
    let mut retained = store();
    for topic in ["a", "$SYS/broker/uptime", "$homing/events/x", "$SYSTEM"] {
        retained.set(message(topic, "1"), NOW).unwrap();
        retained.set(message(topic, "2"), NOW).unwrap();
    }
    assert_eq!((retained.len(), retained.of_clients()), (4, 2));
    retained.remove("$SYS/broker/uptime");
    retained.remove("a");
    assert_eq!((retained.len(), retained.of_clients()), (2, 1));
}

#[test]
fn bytes_are_bounded_and_a_refused_replacement_leaves_nothing_stale() {
    let one = message("a", "12345").size();
    let mut retained = Retained::new(RetainedLimits { messages: 10, bytes: 2 * one });
    retained.set(message("a", "12345"), NOW).unwrap();
    retained.set(message("b", "12345"), NOW).unwrap();
    assert_eq!(retained.set(message("c", ""), NOW).unwrap_err(), RetainedFull);
    assert_eq!(retained.set(message("b", "123456"), NOW).unwrap_err(), RetainedFull);
    assert!(retained.find("b", NOW).is_none(), "a value that is known to be stale");
    assert!(retained.set(message("b", "54321"), NOW).is_ok());
    assert!(retained.set(message("a", "1"), NOW).is_ok());
    assert!(retained.set(message("b", "123456"), NOW).is_ok());
    assert_eq!(retained.find("b", NOW).unwrap().payload(), b"123456");
}

/// Returns the earliest deadline of a message.
fn next_expiry(retained: &Retained) -> Instant {
    retained.deadlines.first().map_or(Instant::NEVER, |deadline| deadline.0.header().expires)
}

#[test]
fn what_has_expired_is_not_found_and_goes_before_a_new_topic_is_refused() {
    let soon = Instant::from_millis(10);
    let mut retained = Retained::new(RetainedLimits { messages: 2, bytes: usize::MAX });
    retained.set(expiring("a", "", soon), NOW).unwrap();
    retained.set(message("b", ""), NOW).unwrap();
    assert_eq!(next_expiry(&retained), soon);
    assert_eq!(topics(&matching(&retained, "#", Instant::from_millis(9))), ["a", "b"]);
    assert_eq!(topics(&matching(&retained, "#", soon)), ["b"]);
    assert!(retained.find("a", soon).is_none() && matching(&retained, "a", soon).is_empty());
    assert_eq!(retained.set(message("c", ""), Instant::from_millis(9)).unwrap_err(), RetainedFull);
    assert!(retained.set(message("c", ""), soon).is_ok());
    assert_eq!((retained.len(), next_expiry(&retained)), (2, Instant::NEVER));
}

#[test]
fn expiry_is_in_order_of_deadline_and_keeps_to_its_budget() {
    let mut retained = store();
    for i in 0..10_u64 {
        retained.set(expiring(&format!("t/{i}"), "", Instant::from_millis(100 - i)), NOW).unwrap();
    }
    // A replacement takes its deadline with it.
    retained.set(message("t/9", ""), NOW).unwrap();
    let now = Instant::from_millis(96);
    assert_eq!(retained.expire(now, 3), 3);
    assert!(retained.find("t/8", NOW).is_none() && retained.find("t/5", NOW).is_some());
    assert_eq!(retained.expire(now, 3), 2);
    assert_eq!(retained.len(), 5);
    assert_eq!(retained.expire(Instant::NEVER, 100), 4);
    assert_eq!(retained.len(), 1, "no expiry interval, no expiry");
}

#[test]
fn a_replacement_with_the_same_deadline_still_expires() {
    let soon = Instant::from_millis(2);
    let mut retained = store();
    retained.set(expiring("$SYS/ab", "", soon), NOW).unwrap();
    retained.set(expiring("$SYS/ab", "", soon), NOW).unwrap();
    assert_eq!(retained.expire(soon, 10), 1);
    assert_empty(&retained);
}

#[test]
fn a_look_up_in_parts_survives_changes_between_them() {
    let mut retained = store();
    for i in 0..100 {
        retained.set(message(&format!("t/{i:03}"), ""), NOW).unwrap();
    }
    let mut cursor = Cursor::default();
    let mut out = Vec::new();
    assert_eq!(retained.matching_from(&mut cursor, "t/+", NOW, &mut 40, &mut out), SearchProgress::More);
    let seen = out.len();
    for i in 0..90 {
        retained.remove(&format!("t/{i:03}"));
    }
    assert_eq!(retained.matching_from(&mut cursor, "t/+", NOW, &mut 40, &mut out), SearchProgress::Done);
    assert_eq!(topics(&out[seen..]).len(), 10);
    let distinct: BTreeSet<_> = topics(&out).into_iter().collect();
    assert_eq!(distinct.len(), out.len());
}

#[test]
fn what_had_no_room_at_the_start_is_erased_in_the_store_by_a_publish_to_its_topic() {
    let mut retained = Retained::new(RetainedLimits { messages: 1, bytes: usize::MAX });
    let at = |topic: &str| {
        let (qos, expires) = (QoS::AtLeastOnce, Instant::NEVER);
        let parts = Parts { qos, retain: true, expires, topic, forwarded: b"", payload: b"x" };
        Message::new(parts, &mut Vec::new())
    };
    assert!(retained.set(at("a"), Instant::ZERO).is_ok());
    assert!(retained.set(at("b"), Instant::ZERO).is_err() && retained.set(at("c"), Instant::ZERO).is_err());
    retained.record_changes(1);
    assert!(retained.remove("b").is_none());
    // Refused, and what the store has is older.
    assert!(retained.set(at("c"), Instant::ZERO).is_err());
    let removed: Vec<_> = retained
        .take_changes()
        .into_iter()
        .map(|change| match change {
            RetainedRecord::Removed(removed) => removed.topic().to_owned(),
            RetainedRecord::Set(_) => panic!("nothing was retained"),
        })
        .collect();
    assert_eq!(removed, ["b", "c"]);
}

#[test]
fn a_source_stays_with_its_message_and_ends_with_it() {
    let mut retained = store();
    let source = |client: &str| Some(Arc::new(RetainedSource::new(client, None, None)));
    let clients = |retained: &Retained| -> Vec<Option<String>> {
        let found = retained.sources(&matching(retained, "#", NOW));
        found.into_iter().map(|source| source.map(|source| source.client_id.to_string())).collect()
    };
    let set = |retained: &mut Retained, topic: &str, client: Option<&str>| {
        let source = client.and_then(source);
        retained.set(RetainedMessage { message: message(topic, "1"), source, owner: None }, NOW).unwrap();
    };
    set(&mut retained, "a", Some("one"));
    set(&mut retained, "b", None);
    assert_eq!(clients(&retained), [Some("one".to_owned()), None]);
    set(&mut retained, "a", Some("another"));
    set(&mut retained, "b", Some("two"));
    assert_eq!(clients(&retained), [Some("another".to_owned()), Some("two".to_owned())]);
    let recounted = retained.recount();
    assert_eq!(recounted.in_use, recounted.charged);
    set(&mut retained, "a", None);
    assert_eq!(clients(&retained), [None, Some("two".to_owned())]);
    retained.remove("a");
    retained.remove("b");
    assert_eq!((retained.charged(), retained.sources.len()), (0, 0));
}

#[test]
fn a_client_has_its_part_of_what_is_retained_and_replacements_are_within_it() {
    let mut retained = Retained::new(RetainedLimits { messages: 8, bytes: usize::MAX });
    retained.limit_shares(ShareRules { client: 50, listeners: Vec::new() });
    let set = |retained: &mut Retained, client: &str, topic: &str| {
        let owner = Some(Owner::new(client, "l"));
        let message = RetainedMessage { message: message(topic, "1"), source: None, owner };
        retained.set(message, NOW).is_ok()
    };
    let topics = ["a", "b", "c", "d", "e", "f"];
    assert_eq!(topics.map(|topic| set(&mut retained, "one", topic)), [true, true, true, true, false, false]);
    assert!(set(&mut retained, "one", "a"), "a message in place of an own one");
    assert!(
        set(&mut retained, "two", "a") && set(&mut retained, "one", "e"),
        "the topic is of the other now"
    );
    assert!(!set(&mut retained, "one", "a"));
    assert!(retained.find("a", NOW).is_none(), "the old one is outdated");
    retained.remove("b");
    assert!(set(&mut retained, "one", "f") && !set(&mut retained, "one", "g"));
    assert!(retained.set(message("own", "1"), NOW).is_ok(), "the broker's own count for nobody");
}
