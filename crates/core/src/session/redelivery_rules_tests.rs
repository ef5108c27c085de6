//! Rules, in file order, by client, user and topic.

use crate::access::glob::Pattern;
use crate::mqtt::packet::ProtocolVersion;
use crate::session::drops::DropReason;
use crate::session::outbound::retry::{AckPolicy, OnAckTimeout, RetryPolicy};
use crate::session::redelivery_policy::SetBy;
use crate::session::redelivery_rules::*;
use crate::session::wire::Wire;
use crate::time::Instant;
use std::time::Duration;

const SECS: fn(u64) -> Duration = Duration::from_secs;

fn defaults() -> RedeliveryPolicy {
    let retry = RetryPolicy {
        interval: SECS(20),
        backoff: 2.0,
        min_interval: SECS(1),
        max_interval: SECS(300),
        jitter: 0.0,
        attempts: 5,
        on_exhausted: OnExhausted::Disconnect,
        resends_per_tick: 100,
    };
    let ack = AckPolicy { timeout: SECS(60), max_timeout: SECS(3600), on_timeout: OnAckTimeout::Auto };
    RedeliveryPolicy::new(retry, ack)
}

fn glob(text: &str) -> Option<Pattern> {
    Some(text.parse().unwrap())
}

fn every(secs: u64) -> RedeliveryRule {
    RedeliveryRule { interval: Some(SECS(secs)), ..RedeliveryRule::default() }
}

fn topic(filter: &str, rule: RedeliveryRule) -> RedeliveryRule {
    RedeliveryRule { topic: Some(filter.into()), ..rule }
}

#[test]
fn globs_match_whole_names_across_slashes() {
    for (glob, yes, no) in [
        ("sensor-*", "sensor-1/a", "a sensor-1"),
        ("*", "", "\0never"),
        ("a?c", "abc", "ac"),
        ("{a,b}-[0-9]", "b-7", "c-7"),
        ("a\\*", "a*", "ab"),
        ("a**b", "a/x/b", "ab/"),
    ] {
        let pattern: Pattern = glob.parse().unwrap();
        assert!(pattern.matches(yes), "{glob} {yes}");
        assert!(glob == "*" || !pattern.matches(no), "{glob} {no}");
    }
    for bad in ["[a", "{a", "a\\"] {
        assert!(bad.parse::<Pattern>().is_err(), "{bad}");
    }
}

#[test]
fn the_first_match_in_file_order_counts_for_each_setting() {
    let rules = [
        RedeliveryRule { user_name: glob("ops"), attempts: Some(1), ..RedeliveryRule::default() },
        RedeliveryRule { client_id: glob("s-*"), attempts: Some(2), ..every(2) },
        RedeliveryRule { client_id: glob("s-1"), attempts: Some(3), backoff: Some(1.5), ..every(3) },
    ];
    let mut rules = Rules::new(&defaults(), &rules);
    let mut of = |client: &str, user: Option<&str>| {
        let retry = &rules.resolve(client, user).own.retry;
        (retry.interval.as_secs(), retry.attempts, retry.backoff)
    };
    assert_eq!(of("other", None), (20, 5, 2.0));
    assert_eq!(of("s-2", None), (2, 2, 2.0));
    assert_eq!(of("s-1", None), (2, 2, 1.5));
    assert_eq!(of("s-1", Some("ops")), (2, 1, 1.5));
    assert_eq!(of("x", Some("ops")), (20, 1, 2.0));
}

#[test]
fn sessions_that_the_same_rules_concern_share_their_terms() {
    let rules = [RedeliveryRule { client_id: glob("s-*"), ..every(2) }, topic("a/#", every(3))];
    let mut rules = Rules::new(&defaults(), &rules);
    let one = rules.resolve("s-1", None);
    assert!(Arc::ptr_eq(&one, &rules.resolve("s-2", Some("x"))));
    assert!(Arc::ptr_eq(&rules.resolve("t", None), rules.nobody()));
    drop(one);
    assert_eq!(rules.resolve("s-3", None).own.retry.interval, SECS(2));
}

#[test]
fn rules_by_topic_stand_in_one_order_with_the_others() {
    let rules = [
        topic("a/b", RedeliveryRule { attempts: Some(9), ..RedeliveryRule::default() }),
        RedeliveryRule { client_id: glob("first"), ..every(1) },
        topic("a/#", every(4)),
        RedeliveryRule { client_id: glob("*"), ..every(7) },
    ];
    let mut rules = Rules::new(&defaults(), &rules);
    let mut of = |client: &str, topic: &str| {
        let redelivery = rules.resolve(client, None);
        let redelivery = redelivery.of(topic).into_owned();
        (redelivery.retry.interval.as_secs(), redelivery.retry.attempts, redelivery.interval_by)
    };
    assert_eq!(of("s", "x"), (7, 5, SetBy::Session));
    assert_eq!(of("s", "a"), (4, 5, SetBy::Topic));
    assert_eq!(of("s", "a/b"), (4, 9, SetBy::Topic));
    // The rule for this client stands before the one for the topic.
    assert_eq!(of("first", "a/b"), (1, 9, SetBy::Session));
}

#[test]
fn a_rule_for_a_topic_beats_the_clients_wish_unless_it_says_otherwise() {
    let rules = [
        topic("fixed/#", RedeliveryRule { ack_timeout: Some(SECS(5)), ..every(4) }),
        topic("open/#", RedeliveryRule { client_may_override: true, ..every(4) }),
    ];
    let redelivery = Rules::new(&defaults(), &rules).resolve("s", None);
    let mut wire = Wire::new(ProtocolVersion::V3_1_1, 1);
    wire.set_ack_wait(SECS(20));
    let due = |topic: &str, wire: &Wire| redelivery.of(topic).due(Instant::ZERO, 0, wire).as_millis() / 1000;
    assert_eq!([due("fixed/1", &wire), due("open/1", &wire), due("other", &wire)], [4, 4, 20]);
    wire.set_ack_wait(SECS(9));
    wire.requested = true;
    assert_eq!([due("fixed/1", &wire), due("open/1", &wire), due("other", &wire)], [4, 9, 9]);
    let mut wire = Wire::new(ProtocolVersion::V5, 1);
    wire.set_ack_wait(SECS(60));
    (wire.requested, wire.disconnects) = (true, 2);
    assert_eq!([due("fixed/1", &wire), due("open/1", &wire)], [20, 60]);
}

#[test]
fn a_publisher_is_kept_only_where_a_dead_letter_may_tell_of_it() {
    let keeps = |rule: RedeliveryRule| Rules::new(&defaults(), &[rule]).keep_dead_letters();
    assert!(!keeps(every(1)));
    assert!(!keeps(RedeliveryRule { negative_ack: Some(false), ..RedeliveryRule::default() }));
    assert!(keeps(RedeliveryRule { negative_ack: Some(true), ..RedeliveryRule::default() }));
    assert!(keeps(RedeliveryRule {
        on_exhausted: Some(OnExhausted::DeadLetter),
        ..RedeliveryRule::default()
    }));
    let causes = DropReasons::from_iter([DropReason::Expired]);
    assert!(causes.has(DropReason::Expired) && !causes.has(DropReason::QueueRefused));
    assert!(keeps(RedeliveryRule { dead_letters: Some(causes), ..RedeliveryRule::default() }));
}

#[test]
fn the_first_rule_that_sets_a_setting_is_its_source_and_rules_for_topics_stand_apart() {
    let rules = [
        topic("alarms/#", every(1)),
        RedeliveryRule { client_id: glob("pump-*"), ..every(2) },
        RedeliveryRule { user_name: glob("ops"), attempts: Some(9), ..RedeliveryRule::default() },
        RedeliveryRule { on_exhausted: Some(OnExhausted::Keep), ..every(4) },
    ];
    let rules = Rules::new(&defaults(), &rules);
    let common = RuleSources { on_exhausted: Some(4), by_topic: vec![1], ..RuleSources::default() };
    let of = |client, user| rules.sources(client, user);
    assert_eq!(of("pump-7", None), RuleSources { interval: Some(2), ..common.clone() });
    let by_user = RuleSources { interval: Some(2), attempts: Some(3), ..common.clone() };
    assert_eq!(of("pump-7", Some("ops")), by_user);
    assert_eq!(of("lamp", None), RuleSources { interval: Some(4), ..common });
    assert_eq!(Rules::new(&defaults(), &[]).sources("lamp", None), RuleSources::default());
}
