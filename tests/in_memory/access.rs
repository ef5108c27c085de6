//! The rules of an ACL over whole shards: shared messages that some members may not read, sessions
//! that get another user, and rules that change.

use crate::client::{
    connect, encoded, enter, named_at, publication, publish, send, subscribe, take, unsubscribe, will,
};
use crate::driver::{self, LinkId, MemoryDriver};
use homing::access::acl::Acl;
use homing::access::identity::{Identity, IdentitySource};
use homing::auth::acl_file;
use homing::login::access_rules::RetainSourceCheck;
use homing::login::authentication::AuthDecision;
use homing::login::listener_terms::ListenerTerms;
use homing::mqtt::packet::{
    Acknowledgement, Connect, ConnectProperties, Packet, PacketId, Properties, ProtocolVersion, Publish, QoS,
    Subscribe, SubscribeFilter, SubscriptionOptions, WillMessage,
};
use homing::session::authentication::{Anonymous, AuthMethod, AuthPolicy};
use homing::session::drops::DropReason;
use homing::session::outbound::queue::QueuePolicy;
use homing::shard::ShardSettings;
use homing::shard::turn::STEPS_PER_TURN;
use std::path::Path;
use std::sync::Arc;

const FIRST: PacketId = PacketId::new(1).expect("not 0");

/// `reader` may read everything, `other` nothing but its own topics. All may publish.
const RULES: &str = "\
user reader
topic read #
user other
topic read own/#
pattern write #
";

pub fn acl(text: &str) -> Arc<Acl> {
    Arc::new(acl_file::parse(Path::new("acl"), text.as_bytes()).expect("lawful rules"))
}

pub fn settings(queue: usize) -> ShardSettings {
    let mut settings = driver::settings();
    settings.access.files.broker = Some(acl(RULES));
    settings.access.counts_claims = true;
    settings.session.send.queue.messages = queue;
    settings
}

/// A client of a user whose name nothing verifies, with one message in flight at most.
pub fn user(driver: &mut MemoryDriver, user_name: &str, client_id: &str, session_expiry: u32) -> LinkId {
    let properties = ConnectProperties {
        receive_maximum: Some(1),
        session_expiry: Some(session_expiry),
        ..Default::default()
    };
    enter(driver, Connect { properties, user_name: Some(user_name), ..connect(client_id) })
}

pub fn dropped(driver: &MemoryDriver, reason: DropReason) -> u64 {
    driver.shards.iter().map(|shard| shard.snapshot().counters.drops.of(reason)).sum()
}

/// The shards of the leaving member and of the others, and the number of shards.
const PLACES: [(u8, u8, u8, u8); 6] =
    [(0, 0, 0, 1), (0, 1, 1, 2), (1, 0, 0, 2), (0, 1, 2, 3), (0, 0, 1, 2), (0, 1, 0, 2)];

/// A group with one member, in the shard `leaving` of `shards`, and the publisher of this number of
/// messages to it. The member acknowledges nothing.
fn group(
    settings: &ShardSettings,
    (leaving, shards): (u8, u8),
    stored: bool,
    messages: u16,
) -> (MemoryDriver, LinkId, LinkId) {
    let mut driver = MemoryDriver::new(settings, shards);
    if stored {
        driver.keep_in_store();
    }
    let leaver = user(&mut driver, "reader", &named_at("leaver", leaving, shards), 3_600);
    subscribe(&mut driver, leaver, &["$share/g/#"], QoS::AtLeastOnce);
    let publisher = user(&mut driver, "publisher", "publisher", 0);
    for id in 1..=messages {
        publish(&mut driver, publisher, "t", QoS::AtLeastOnce, id);
    }
    (driver, leaver, publisher)
}

#[test]
fn a_message_of_an_ended_session_that_no_member_may_read_is_dropped() {
    for (leaving, one, another, shards) in PLACES {
        for stored in [false, true] {
            let (mut driver, leaver, _) = group(&settings(10), (leaving, shards), stored, 3);
            for (shard, name) in [(one, "one"), (another, "another")] {
                let member = user(&mut driver, "other", &named_at(name, shard, shards), 3_600);
                subscribe(&mut driver, member, &["$share/g/#"], QoS::AtLeastOnce);
            }
            assert_eq!(take(&mut driver, leaver, false), ["t"]);
            // The same client, with a new session.
            user(&mut driver, "reader", &named_at("leaver", leaving, shards), 0);
            while driver.read_pages() > 0 {}
            assert_eq!(
                dropped(&driver, DropReason::NotAuthorized),
                3,
                "{leaving} {one} {another} of {shards}"
            );
        }
    }
}

#[test]
fn a_message_of_an_ended_session_waits_for_the_member_that_may_read_it() {
    for (leaving, denied, full, shards) in PLACES {
        for stored in [false, true] {
            let case = format!("{leaving} {denied} {full} of {shards}, stored: {stored}");
            let (mut driver, _, publisher) = group(&settings(1), (leaving, shards), stored, 2);
            let member = user(&mut driver, "other", &named_at("denied", denied, shards), 3_600);
            subscribe(&mut driver, member, &["$share/g/#"], QoS::AtLeastOnce);
            let reader = user(&mut driver, "reader", &named_at("full", full, shards), 3_600);
            subscribe(&mut driver, reader, &["$share/g/#", "full"], QoS::AtLeastOnce);
            for id in 3..=4 {
                publish(&mut driver, publisher, "full", QoS::AtLeastOnce, id);
            }
            user(&mut driver, "reader", &named_at("leaver", leaving, shards), 0);
            while driver.read_pages() > 0 {}
            let mut topics = Vec::new();
            while let more @ [_, ..] = &take(&mut driver, reader, true)[..] {
                topics.extend_from_slice(more);
                while driver.read_pages() > 0 {}
            }
            topics.sort();
            assert_eq!(topics, ["full", "full", "t", "t"], "{case}");
            assert!(take(&mut driver, member, true).is_empty(), "{case}");
        }
    }
}

#[test]
fn a_shared_message_that_no_member_may_read_has_no_subscriber() {
    for shards in [1, 2] {
        let mut driver = MemoryDriver::new(&settings(1), shards);
        for shard in 0..shards {
            let member = user(&mut driver, "other", &named_at("member", shard, shards), 0);
            subscribe(&mut driver, member, &["$share/g/#"], QoS::AtLeastOnce);
        }
        let publisher = user(&mut driver, "publisher", "publisher", 0);
        driver.links[publisher].received.clear();
        publish(&mut driver, publisher, "t", QoS::AtLeastOnce, 1);
        // 0x10, No matching subscribers.
        assert!(driver.links[publisher].received.ends_with(&[0x40, 3, 0, 1, 0x10]), "{shards} shards");
        assert_eq!(driver.shards.iter().map(|s| s.snapshot().counters.drops.total()).sum::<u64>(), 0);
    }
}

/// Anonymous clients may read everything, `ann` only her own topics.
const ADOPTION: &str = "\
topic #
user ann
topic read own/#
";

/// A setting in which passwords prove names.
fn with_passwords(rules: &str, queue: usize) -> ShardSettings {
    let mut settings = settings(queue);
    settings.access.files.broker = Some(acl(rules));
    settings.auth = AuthPolicy { anonymous: Anonymous::Always, methods: vec![AuthMethod::Password] };
    settings
}

/// A client of a user who knows the password, and keeps the session.
fn verified<'a>(driver: &mut MemoryDriver, user_name: &'a str, client_id: &'a str) -> LinkId {
    let properties = ConnectProperties { session_expiry: Some(3_600), ..Default::default() };
    let (user_name, password) = (Some(user_name), Some(&b"password"[..]));
    let connect = Connect { properties, clean_start: false, user_name, password, ..connect(client_id) };
    let link = enter(driver, connect);
    let user = Identity::new(user_name.expect("a name"), IdentitySource::Password);
    driver.decide(AuthDecision::Allow(Arc::new(user).into()));
    link
}

/// An anonymous client that keeps its session, with one message in flight at most.
fn anonymous(driver: &mut MemoryDriver, client_id: &str) -> LinkId {
    let properties =
        ConnectProperties { receive_maximum: Some(1), session_expiry: Some(3_600), ..Default::default() };
    enter(driver, Connect { properties, ..connect(client_id) })
}

#[test]
fn a_user_who_adopts_a_session_gets_only_messages_that_it_may_read() {
    for stored in [false, true] {
        for (own, secret) in [(1, 3), (40, 160)] {
            let mut driver = MemoryDriver::new(&with_passwords(ADOPTION, 1_000), 1);
            if stored {
                driver.keep_in_store();
            }
            let device = anonymous(&mut driver, "device");
            subscribe(&mut driver, device, &["#"], QoS::AtLeastOnce);
            let publisher = anonymous(&mut driver, "publisher");
            // The first one is in flight when the client leaves.
            for n in 0..secret {
                publish(&mut driver, publisher, "secret", QoS::AtLeastOnce, n + 1);
            }
            driver.close(device);
            for n in 0..own {
                publish(&mut driver, publisher, "own/x", QoS::AtLeastOnce, n + 1);
            }
            let ann = verified(&mut driver, "ann", "device");
            let mut topics = take(&mut driver, ann, true);
            while driver.read_pages() > 0 {
                topics.extend(take(&mut driver, ann, true));
            }
            assert_eq!(topics, vec!["own/x"; usize::from(own)], "stored: {stored}");
            assert_eq!(dropped(&driver, DropReason::NotAuthorized), u64::from(secret), "stored: {stored}");
            publish(&mut driver, publisher, "secret", QoS::AtLeastOnce, 1);
            publish(&mut driver, publisher, "own/y", QoS::AtLeastOnce, 2);
            assert_eq!(take(&mut driver, ann, true), ["own/y"], "stored: {stored}");
        }
    }
}

#[test]
fn a_held_message_that_the_new_user_may_not_read_is_refused() {
    let mut settings = with_passwords(ADOPTION, 1);
    settings.session.send.queue.policy = QueuePolicy::Hold;
    let mut driver = MemoryDriver::new(&settings, 1);
    let device = anonymous(&mut driver, "device");
    subscribe(&mut driver, device, &["#"], QoS::AtLeastOnce);
    driver.close(device);
    let publisher = anonymous(&mut driver, "publisher");
    publish(&mut driver, publisher, "secret", QoS::AtLeastOnce, 1);
    driver.links[publisher].received.clear();
    publish(&mut driver, publisher, "secret", QoS::AtLeastOnce, 2);
    assert!(driver.links[publisher].received.is_empty(), "the message is held");
    let ann = verified(&mut driver, "ann", "device");
    assert!(take(&mut driver, ann, true).is_empty());
    assert!(!driver.links[publisher].received.is_empty(), "the publisher has its answer");
    assert_eq!(dropped(&driver, DropReason::NotAuthorized), 2);
}

pub fn change_rules(driver: &mut MemoryDriver, rules: &str) {
    let acl = acl(rules);
    driver
        .shards
        .iter_mut()
        .for_each(|shard| shard.permission_changes().replace_acls(Arc::clone(&acl).into()));
    driver.settle();
}

#[test]
fn queued_messages_that_a_change_of_the_rules_forbids_are_dropped() {
    for is_connected in [true, false] {
        let mut driver = MemoryDriver::new(&settings(100), 2);
        let reader = user(&mut driver, "reader", "reader", 3_600);
        subscribe(&mut driver, reader, &["#"], QoS::AtLeastOnce);
        let publisher = user(&mut driver, "publisher", "publisher", 0);
        for (id, topic) in [(1, "t"), (2, "own/x"), (3, "t"), (4, "t")] {
            publish(&mut driver, publisher, topic, QoS::AtLeastOnce, id);
        }
        let first = take(&mut driver, reader, false);
        assert_eq!(first, ["t"]);
        if !is_connected {
            driver.close(reader);
        }
        change_rules(&mut driver, "user reader\ntopic read own/#\npattern write #\n");
        assert_eq!(dropped(&driver, DropReason::NotAuthorized), if is_connected { 2 } else { 3 });
        let reader = match is_connected {
            true => {
                send(&mut driver, reader, &Packet::Puback(Acknowledgement::success(FIRST)));
                reader
            }
            false => {
                let properties = ConnectProperties { session_expiry: Some(3_600), ..Default::default() };
                let user_name = Some("reader");
                enter(&mut driver, Connect { properties, clean_start: false, user_name, ..connect("reader") })
            }
        };
        assert_eq!(take(&mut driver, reader, true), ["own/x"]);
        // A live subscription that may no longer be read delivers nothing.
        publish(&mut driver, publisher, "t", QoS::AtLeastOnce, 5);
        publish(&mut driver, publisher, "own/y", QoS::AtLeastOnce, 6);
        assert_eq!(take(&mut driver, reader, true), ["own/y"]);
    }
}

#[test]
fn a_queue_is_checked_after_a_change_even_if_the_present_filters_may_be_read() {
    let mut driver = MemoryDriver::new(&settings(100), 1);
    let reader = user(&mut driver, "reader", "reader", 3_600);
    subscribe(&mut driver, reader, &["t", "own/x"], QoS::AtLeastOnce);
    let publisher = user(&mut driver, "publisher", "publisher", 0);
    for (id, topic) in [(1, "own/x"), (2, "t"), (3, "own/x")] {
        publish(&mut driver, publisher, topic, QoS::AtLeastOnce, id);
    }
    assert_eq!(take(&mut driver, reader, false), ["own/x"]);
    driver.send(reader, &unsubscribe("t"));
    change_rules(&mut driver, "user reader\ntopic read own/#\npattern write #\n");
    assert_eq!(dropped(&driver, DropReason::NotAuthorized), 1);
    send(&mut driver, reader, &Packet::Puback(Acknowledgement::success(FIRST)));
    assert_eq!(take(&mut driver, reader, true), ["own/x"]);
}

#[test]
fn a_shared_message_that_its_member_may_no_longer_read_goes_to_another_member() {
    for shards in [1, 2] {
        let mut driver = MemoryDriver::new(&settings(100), shards);
        let (last, both) = (shards - 1, "user reader\nuser next\ntopic read t\npattern write #\n");
        let reader = user(&mut driver, "reader", &named_at("reader", 0, shards), 3_600);
        subscribe(&mut driver, reader, &["$share/g/t"], QoS::AtLeastOnce);
        let publisher = user(&mut driver, "publisher", "publisher", 0);
        for id in 1..=4 {
            publish(&mut driver, publisher, "t", QoS::AtLeastOnce, id);
        }
        change_rules(&mut driver, &format!("{RULES}user next\ntopic read t\n"));
        let next = user(&mut driver, "next", &named_at("next", last, shards), 3_600);
        subscribe(&mut driver, next, &["$share/g/t"], QoS::AtLeastOnce);
        assert_eq!(take(&mut driver, reader, false), ["t"]);
        change_rules(&mut driver, both);
        assert_eq!(take(&mut driver, next, true), ["t", "t", "t"], "{shards} shards");
        assert_eq!(dropped(&driver, DropReason::NotAuthorized), 0);
    }
}

#[test]
fn a_message_that_waits_for_room_goes_to_a_member_that_a_change_of_the_rules_admits() {
    for shards in [1, 2] {
        let mut driver = MemoryDriver::new(&settings(1), shards);
        let leaver = user(&mut driver, "reader", &named_at("leaver", 0, shards), 0);
        let full = user(&mut driver, "reader", &named_at("full", 0, shards), 3_600);
        let publisher = user(&mut driver, "publisher", "publisher", 0);
        subscribe(&mut driver, full, &["full"], QoS::AtLeastOnce);
        publish(&mut driver, publisher, "full", QoS::AtLeastOnce, 1);
        publish(&mut driver, publisher, "full", QoS::AtLeastOnce, 2);
        subscribe(&mut driver, leaver, &["$share/g/#"], QoS::AtLeastOnce);
        publish(&mut driver, publisher, "t", QoS::AtLeastOnce, 3);
        subscribe(&mut driver, full, &["$share/g/#"], QoS::AtLeastOnce);
        let other = user(&mut driver, "other", &named_at("other", shards - 1, shards), 3_600);
        subscribe(&mut driver, other, &["$share/g/#"], QoS::AtLeastOnce);
        driver.close(leaver);
        assert!(take(&mut driver, other, true).is_empty(), "{shards} shards");
        change_rules(&mut driver, "user reader\ntopic read #\nuser other\ntopic read #\npattern write #\n");
        assert_eq!(take(&mut driver, other, true), ["t"], "{shards} shards");
    }
}

#[test]
fn a_change_of_the_rules_looks_at_some_sessions_in_a_turn() {
    let mut driver = MemoryDriver::new(&settings(1), 1);
    for n in 0..1_000 {
        let link = user(&mut driver, "reader", &format!("reader {n}"), 3_600);
        subscribe(&mut driver, link, &["a", "b", "c", "d", "e", "f", "g", "h"], QoS::AtLeastOnce);
        driver.close(link);
    }
    driver.shards[0].take_longest_turn();
    change_rules(&mut driver, RULES);
    let (longest, _) = driver.shards[0].take_longest_turn();
    assert!(longest < 6_000, "{longest} steps");
}

#[test]
fn a_name_that_nothing_verifies_counts_only_if_the_operator_says_so() {
    for counts_claims in [true, false] {
        let mut settings = settings(10);
        settings.access.files.broker =
            Some(acl("topic write #\nuser ann\ntopic read own/#\npattern read homes/%u\n"));
        settings.access.counts_claims = counts_claims;
        let mut driver = MemoryDriver::new(&settings, 1);
        let ann = user(&mut driver, "ann", "ann", 0);
        driver.links[ann].received.clear();
        subscribe(&mut driver, ann, &["own/#", "homes/ann"], QoS::AtLeastOnce);
        let code = if counts_claims { 1 } else { 0x87 };
        assert!(driver.links[ann].received.ends_with(&[code, code]), "{counts_claims}");
    }
}

#[test]
fn filters_of_a_user_with_many_rules_are_entered_over_several_turns() {
    let mut settings = settings(10);
    let grants: String = (0..300).map(|n| format!("topic read g/{n}/#\n")).collect();
    let denies: String = (0..100).map(|n| format!("topic deny d/{n}\n")).collect();
    settings.access.files.broker = Some(acl(&format!("user reader\n{grants}{denies}")));
    let mut driver = MemoryDriver::new(&settings, 1);
    let reader = user(&mut driver, "reader", "reader", 0);
    driver.links[reader].received.clear();
    let texts: Vec<String> = (0..20).map(|n| format!("g/{n}/x")).collect();
    let options = SubscriptionOptions { qos: QoS::AtLeastOnce, ..Default::default() };
    let filters = texts.iter().map(|filter| SubscribeFilter { filter, options }).collect();
    let subscribe =
        Subscribe { packet_id: FIRST, subscription_id: None, properties: Properties::EMPTY, filters };
    driver.shards[0].take_longest_turn();
    driver.send_unsettled(reader, &encoded(&Packet::Subscribe(subscribe), ProtocolVersion::V5));
    assert_eq!((driver.shards[0].usage().jobs, driver.links[reader].received.len()), (1, 0));
    driver.settle();
    assert!(driver.links[reader].received.ends_with(&[1; 20]));
    let (longest, late) = driver.shards[0].take_longest_turn();
    assert!(longest < 2 * STEPS_PER_TURN && late == 0, "{longest} steps, {late} late");
}

#[test]
fn a_claimed_name_stands_in_a_client_id_rule_only_if_the_operator_says_so() {
    for counts_claims in [true, false] {
        let mut settings = settings(10);
        settings.access.counts_claims = counts_claims;
        let mut driver = MemoryDriver::new(&settings, 1);
        let client_id = Some("%u-*".parse().expect("a lawful rule"));
        driver.listener = Arc::new(ListenerTerms { client_id, ..ListenerTerms::default() });
        let ann = user(&mut driver, "ann", "ann-1", 0);
        assert_eq!(driver.links[ann].received[3], if counts_claims { 0 } else { 0x85 });
        let other = user(&mut driver, "ann", "bob-1", 0);
        assert_eq!(driver.links[other].received[3], 0x85);
    }
}

#[test]
fn a_client_identifier_with_a_slash_reaches_no_topics_of_another_client() {
    let mut settings = settings(10);
    settings.access.files.broker = Some(acl("pattern readwrite pumps/%c/#\n"));
    let mut driver = MemoryDriver::new(&settings, 1);
    for (client_id, filter, code) in
        [("ann", "pumps/ann/keys/x", 1), ("ann/keys", "pumps/ann/keys/x", 0x87), ("+", "pumps/ann/x", 0x87)]
    {
        let client = anonymous(&mut driver, client_id);
        driver.links[client].received.clear();
        subscribe(&mut driver, client, &[filter], QoS::AtLeastOnce);
        assert!(driver.links[client].received.ends_with(&[code]), "{client_id}");
    }
}

fn publish_retained(driver: &mut MemoryDriver, link: LinkId, topic: &str) {
    let (qos, packet_id) = (QoS::AtLeastOnce, Some(FIRST));
    let publish = Publish { qos, packet_id, retain: true, ..publication(topic, b"x") };
    send(driver, link, &Packet::Publish(publish));
}

/// The topics of retained messages that a new client of the user `reader` gets.
fn retained_topics(driver: &mut MemoryDriver, client_id: &str) -> Vec<String> {
    let reader = user(driver, "reader", client_id, 0);
    subscribe(driver, reader, &["#"], QoS::AtLeastOnce);
    take(driver, reader, true)
}

#[test]
fn a_retained_message_is_kept_back_while_its_publisher_may_not_write() {
    for (check, expected) in
        [(RetainSourceCheck::Check, &["pumps/b"][..]), (RetainSourceCheck::Ignore, &["pumps/a", "pumps/b"])]
    {
        let mut settings = settings(10);
        settings.access.retain_source = check;
        let mut driver = MemoryDriver::new(&settings, 2);
        for name in ["a", "b"] {
            let publisher = user(&mut driver, name, name, 0);
            publish_retained(&mut driver, publisher, &format!("pumps/{name}"));
        }
        assert_eq!(retained_topics(&mut driver, "first"), ["pumps/a", "pumps/b"]);
        change_rules(&mut driver, "user reader\ntopic read #\nuser b\ntopic write #\n");
        assert_eq!(retained_topics(&mut driver, "second"), expected, "{check:?}");
        // The message is still there, for rules that allow it again.
        change_rules(&mut driver, RULES);
        assert_eq!(retained_topics(&mut driver, "third"), ["pumps/a", "pumps/b"]);
    }
}

#[test]
fn a_rule_with_the_client_identifier_counts_for_the_publisher_of_a_retained_message() {
    let mut settings = settings(10);
    settings.access.retain_source = RetainSourceCheck::Check;
    let mut driver = MemoryDriver::new(&settings, 1);
    for (name, topic) in [("a", "own/a"), ("b", "own/a/b")] {
        let publisher = user(&mut driver, "pumps", name, 0);
        publish_retained(&mut driver, publisher, topic);
    }
    change_rules(&mut driver, "user reader\ntopic read #\npattern write own/%c\n");
    assert_eq!(retained_topics(&mut driver, "reader"), ["own/a"]);
}

#[test]
fn a_retained_will_has_its_client_as_source() {
    let mut settings = settings(10);
    settings.access.retain_source = RetainSourceCheck::Check;
    for session_expiry in [0, 3_600] {
        let mut driver = MemoryDriver::new(&settings, 1);
        let will = WillMessage { retain: true, ..will("gone", b"x", 0) };
        let properties = ConnectProperties { session_expiry: Some(session_expiry), ..Default::default() };
        let connect = Connect { will: Some(will), properties, user_name: Some("pumps"), ..connect("pump") };
        let pump = enter(&mut driver, connect);
        driver.close(pump);
        assert_eq!(retained_topics(&mut driver, "first"), ["gone"]);
        change_rules(&mut driver, "user reader\ntopic read #\n");
        assert!(retained_topics(&mut driver, "second").is_empty(), "{session_expiry}");
    }
}

#[test]
fn a_retained_message_has_the_source_of_its_last_publisher() {
    let mut settings = settings(10);
    settings.access.retain_source = RetainSourceCheck::Check;
    let mut driver = MemoryDriver::new(&settings, 1);
    let topics: Vec<String> = (0..8).map(|n| format!("pumps/{n}")).collect();
    for name in ["a", "b"] {
        let publisher = user(&mut driver, name, name, 0);
        topics.iter().for_each(|topic| publish_retained(&mut driver, publisher, topic));
    }
    change_rules(&mut driver, "user reader\ntopic read #\nuser b\ntopic write #\n");
    assert_eq!(retained_topics(&mut driver, "reader"), topics);
}

#[test]
fn a_will_that_a_change_of_the_rules_forbids_is_dropped_and_counted() {
    for session_expiry in [0, 3_600] {
        let mut driver = MemoryDriver::new(&settings(10), 1);
        let reader = user(&mut driver, "reader", "reader", 0);
        subscribe(&mut driver, reader, &["#"], QoS::AtLeastOnce);
        let properties = ConnectProperties { session_expiry: Some(session_expiry), ..Default::default() };
        let will = Some(will("gone", b"x", 0));
        let pump =
            enter(&mut driver, Connect { will, properties, user_name: Some("pumps"), ..connect("pump") });
        change_rules(&mut driver, "user reader\ntopic read #\n");
        driver.close(pump);
        assert!(take(&mut driver, reader, true).is_empty(), "{session_expiry}");
        assert_eq!(dropped(&driver, DropReason::NotAuthorized), 1, "{session_expiry}");
    }
}
