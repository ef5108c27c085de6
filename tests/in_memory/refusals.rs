//! Refused requests of clients: each is reported with its reason, and found again.

use crate::access::{acl, user};
use crate::client::{
    V5, connect, encoded, enter, packet, publication, publish, send, string, subscribe, will,
};
use crate::driver::{self, LinkId, MemoryDriver};
use homing::events::refusals::RefusedKind;
use homing::mqtt::packet::{
    Connect, ConnectProperties, Packet, PacketId, ProtocolVersion, Publish, QoS, ReasonCode,
};
use homing::operators::client_commands::{OperatorAction, OperatorCommand};
use homing::operators::command::{Command, CommandOutcome};
use homing::operators::dropped::FoundDrops;
use homing::operators::query::{Query, QueryAnswer, ROWS, SessionName};
use homing::operators::wanted::{Wanted, WantedTopic};
use homing::session::drops::DropReason;
use homing::session::outbound::stall::SocketView;
use homing::session::publish_refusal::ends_connection;
use homing::shard::ShardSettings;
use std::time::Duration;

const S: fn(u64) -> Duration = Duration::from_secs;

const RULES: &str = "\
user ann
topic write homes/ann/#
topic deny homes/ann/keys
topic read homes/#
";

/// Narrow bounds, and the rules.
fn settings() -> ShardSettings {
    let mut settings = driver::settings();
    settings.access.files.broker = Some(acl(RULES));
    settings.access.counts_claims = true;
    settings.session.payload_size = 10;
    settings.session.topic_levels = 4;
    settings.session.subscriptions.filters = 1;
    settings.delayed.messages = 0;
    settings
}

fn found(driver: &MemoryDriver, topic: Option<&str>, client: Option<(&str, RefusedKind)>) -> FoundDrops {
    let topic = topic.map(|topic| WantedTopic::read(topic).expect("a topic"));
    let (mut wanted, name) = (Wanted { topic, ..Wanted::default() }, client.map(|(name, _)| name.into()));
    match client {
        Some((_, RefusedKind::Subscription)) => wanted.receiver = name,
        _ => wanted.publisher = name,
    }
    let answer = Query::Dropped { wanted, most: ROWS }.answer(driver.now, &driver.shards[0]);
    let QueryAnswer::Dropped(found) = answer else { panic!("{answer:?}") };
    *found
}

/// A client of 3.1.1 of the user `ann`.
fn old(driver: &mut MemoryDriver, client_id: &str) -> LinkId {
    let link = driver.open();
    let body = [b"\0\x04MQTT\x04\x82\0\0", &*string(client_id), &*string("ann")].concat();
    driver.send(link, &packet(0x10, &body));
    driver.links[link].received.clear();
    link
}

/// The causes for which a PUBLISH is refused, each with such a PUBLISH, as far as one packet can
/// be refused for it.
fn refused_publishes() -> Vec<(DropReason, Publish<'static>)> {
    let qos1 = |topic, payload| {
        let (qos, packet_id) = (QoS::AtLeastOnce, PacketId::new(1));
        Publish { qos, packet_id, ..publication(topic, payload) }
    };
    vec![
        (DropReason::NotAuthorized, qos1("homes/ann/keys", b"x")),
        (DropReason::ReservedTopic, qos1("$SYS/x", b"x")),
        (DropReason::TopicTooDeep, qos1("homes/ann/a/b/c", b"x")),
        (DropReason::TooLarge, qos1("homes/ann/a", b"more than ten bytes")),
        (DropReason::DelayedFull, qos1("$delayed/5/homes/ann/a", b"x")),
    ]
}

#[test]
fn each_refused_publish_is_reported_with_its_cause_and_its_reason_and_counted() {
    for (cause, publish) in refused_publishes() {
        let mut driver = MemoryDriver::new(&settings(), 1);
        let link = user(&mut driver, "ann", "ann1", 0);
        send(&mut driver, link, &Packet::Publish(publish.clone()));
        driver.advance(S(1));
        let [refusal] = &*driver.refusals else { panic!("{cause}: {:?}", driver.refusals) };
        assert_eq!((refusal.kind, refusal.cause), (RefusedKind::Publish, cause.name()));
        assert_eq!((&*refusal.client_id.to_string(), refusal.times), ("ann1", 1));
        assert_eq!(refusal.topic.to_string(), publish.topic, "{cause}");
        let why = refusal.why.to_string();
        match cause {
            DropReason::NotAuthorized => assert_eq!(why, "line 3 of acl denies it"),
            DropReason::ReservedTopic => assert!(why.contains("reserved"), "{why}"),
            _ => assert!(why.contains("limits."), "{cause}: {why}"),
        }
        let counters = driver.shards[0].snapshot().counters;
        assert_eq!((counters.refused_publishes.of(cause), counters.refused_publishes.total()), (1, 1));
        assert_eq!(found(&driver, None, Some(("ann1", RefusedKind::Publish))).refused.len(), 1, "{cause}");
        assert!(found(&driver, None, Some(("ann2", RefusedKind::Publish))).refused.is_empty());
        assert!(found(&driver, Some("never"), None).refused.is_empty());
    }
}

/// What `docs/conformance.md` promises a 3.x client is what it gets.
#[test]
fn a_refused_3_x_publisher_is_acknowledged_or_disconnected_as_the_document_says() {
    let document = include_str!("../../docs/conformance.md");
    let (_, section) = document.split_once("### A PUBLISH that is refused").expect("the section");
    let is_closed = |cause: DropReason| {
        let name = format!("`{}`", cause.name());
        let row = section.lines().find(|line| line.starts_with('|') && line.contains(&name));
        let cell = row.and_then(|row| row.rsplit('|').nth(1)).unwrap_or_else(|| panic!("no row of {cause}"));
        let (closed, taken) = (cell.trim() == "closed", cell.trim().starts_with("acknowledged"));
        assert!(closed != taken, "{cell}");
        closed
    };
    for cause in DropReason::ALL.into_iter().filter(|cause| cause.refuses_publishes()) {
        let ends = ends_connection(true, ReasonCode::QUOTA_EXCEEDED, Some(cause)).is_some();
        assert_eq!(ends, is_closed(cause), "{cause}");
    }
    for (cause, publish) in refused_publishes() {
        let mut driver = MemoryDriver::new(&settings(), 1);
        let link = old(&mut driver, "old");
        driver.send(link, &encoded(&Packet::Publish(publish), ProtocolVersion::V3_1_1));
        let received = &*driver.links[link].received;
        match is_closed(cause) {
            true => assert!(!driver.is_open(link) && received.is_empty(), "{cause}: {received:?}"),
            false => assert!(driver.is_open(link) && *received == [0x40, 2, 0, 1], "{cause}: {received:?}"),
        }
    }
}

#[test]
fn a_refused_filter_is_reported_and_found_by_the_topics_that_it_matches() {
    let mut driver = MemoryDriver::new(&settings(), 1);
    let link = user(&mut driver, "ann", "bob1", 0);
    subscribe(&mut driver, link, &["alarms/#", "$share/g/alarms/+", "homes/1", "homes/2"], QoS::AtMostOnce);
    driver.advance(S(1));
    let [refusal] = &*driver.refusals else { panic!("{:?}", driver.refusals) };
    assert_eq!(
        (refusal.kind, refusal.cause, refusal.times),
        (RefusedKind::Subscription, "not_authorized", 3)
    );
    assert_eq!(refusal.why.to_string(), "no line of acl allows it");
    let topics = |topic| {
        let refused = found(&driver, Some(topic), None).refused;
        refused.iter().map(|row| row.topic.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(topics("alarms/1"), ["$share/g/alarms/+", "alarms/#"]);
    assert_eq!(topics("homes/2"), ["homes/2"]);
    let refused = found(&driver, Some("homes/2"), None).refused;
    assert_eq!((refused[0].cause, refused[0].times), ("quota_exceeded", 1));
    assert!(refused[0].why.to_string().contains("limits.subscriptions_per_client"));
    let counts = driver.shards[0].snapshot().counters.refused_subscriptions;
    assert_eq!((counts[0], counts[1]), (2, 1), "{counts:?}");
}

#[test]
fn a_refused_will_is_reported_at_connect_and_when_it_is_due() {
    let mut driver = MemoryDriver::new(&settings(), 1);
    let denied = connect("early");
    enter(&mut driver, Connect { will: Some(will("gone", b"x", 0)), user_name: Some("ann"), ..denied });
    let late = connect("late");
    let topic = "homes/ann/gone";
    let link =
        enter(&mut driver, Connect { will: Some(will(topic, b"x", 0)), user_name: Some("ann"), ..late });
    let rules = acl("user ann\ntopic write homes/ann/a\n").into();
    driver.shards[0].permission_changes().replace_acls(rules);
    driver.close(link);
    driver.advance(S(1));
    let mut told: Vec<_> = driver
        .refusals
        .iter()
        .map(|row| (row.client_id.to_string(), row.topic.to_string(), row.kind, row.cause))
        .collect();
    told.sort_by(|one, other| one.0.cmp(&other.0));
    let row = |client: &str, topic: &str| {
        (client.to_owned(), topic.to_owned(), RefusedKind::Will, DropReason::NotAuthorized.name())
    };
    assert_eq!(told, [row("early", "gone"), row("late", topic)]);
    assert_eq!(driver.shards[0].snapshot().counters.refused_wills.total(), 2);
}

#[test]
fn a_retained_message_without_room_is_reported_and_still_delivered() {
    let mut driver = MemoryDriver::new(&driver::settings(), 1);
    let [publisher, subscriber] = ["p", "s"].map(|name| enter(&mut driver, connect(name)));
    subscribe(&mut driver, subscriber, &["full/#"], QoS::AtMostOnce);
    let names: Vec<String> = (0..51).map(|n| format!("full/{n}")).collect();
    for name in &names {
        send(&mut driver, publisher, &Packet::Publish(Publish { retain: true, ..publication(name, b"x") }));
    }
    driver.advance(S(1));
    let [refusal] = &*driver.refusals else { panic!("{:?}", driver.refusals) };
    assert_eq!((refusal.cause, &*refusal.topic.to_string()), ("retained_full", "full/50"));
    let received = &driver.links[subscriber].received;
    assert!(received.windows(7).any(|bytes| bytes == b"full/50"), "it is delivered");
}

/// The drops of a receiver that is away name the topic, and no other topic is blamed.
#[test]
fn a_message_that_a_full_queue_refuses_keeps_its_topic_while_the_receiver_is_away() {
    for stored in [false, true] {
        let mut settings = driver::settings();
        settings.session.send.queue.messages = 1;
        let mut driver = MemoryDriver::new(&settings, 1);
        if stored {
            driver.keep_in_store();
        }
        let properties = ConnectProperties { session_expiry: Some(3_600), ..Default::default() };
        let away = enter(&mut driver, Connect { properties, ..connect("away") });
        subscribe(&mut driver, away, &["q/#"], QoS::AtLeastOnce);
        driver.close(away);
        let publisher = enter(&mut driver, connect("p"));
        let long = format!("q/{}", "x".repeat(500));
        for (id, topic) in [(1, "q/1"), (2, "q/1"), (3, "q/other"), (4, &*long), (5, "q/other")] {
            publish(&mut driver, publisher, topic, QoS::AtLeastOnce, id);
        }
        let count = |topic| {
            let found = found(&driver, Some(topic), None);
            assert!(found.without_topic.is_empty() && found.refused.is_empty());
            found.drops.iter().filter(|drop| drop.cause == DropReason::QueueRefused).count()
        };
        assert_eq!(
            [count("q/1"), count("q/other"), count(&long), count("q/never"), count("q/#")],
            [1, 2, 1, 0, 4],
            "stored: {stored}"
        );
    }
}

#[test]
fn a_client_that_is_disconnected_already_is_not_said_to_be_disconnected_now() {
    let mut driver = MemoryDriver::new(&driver::settings(), 1);
    let properties = ConnectProperties { session_expiry: Some(3_600), ..Default::default() };
    enter(&mut driver, Connect { properties, ..connect("c") });
    let mut kick = || {
        let command =
            OperatorCommand { client: SessionName::Client("c".into()), action: OperatorAction::Disconnect };
        command.carry_out(driver.now, SocketView::default(), &mut driver.shards[0]).outcome
    };
    assert_eq!([kick(), kick()], [CommandOutcome::Done, CommandOutcome::NotConnected]);
}

#[test]
fn a_flood_of_refused_publishes_makes_few_rows_and_one_report_in_ten_seconds() {
    let mut driver = MemoryDriver::new(&settings(), 1);
    let link = user(&mut driver, "ann", "loud", 0);
    let topics: Vec<String> = (0..2_000).map(|n| format!("alarms/{n}")).collect();
    for topic in &topics {
        driver.send(link, &encoded(&Packet::Publish(publication(topic, b"x")), V5));
    }
    driver.advance(S(1));
    driver.send(link, &encoded(&Packet::Publish(publication("alarms/1", b"x")), V5));
    driver.advance(S(1));
    assert_eq!(driver.refusals.iter().map(|row| row.times).collect::<Vec<_>>(), [2_000]);
    driver.advance(S(10));
    assert_eq!(driver.refusals.len(), 2);
    let rows = found(&driver, None, Some(("loud", RefusedKind::Publish))).refused;
    assert!(rows.len() < 40, "{}", rows.len());
    assert_eq!(rows.iter().map(|row| row.times).sum::<u64>(), 2_001);
}
