//! Delivery objectives: the end of each delivery counts once, whatever way it takes.

use crate::client::{self, connect, enter, publish, send, subscribe};
use crate::driver::{self, LinkId, MemoryDriver};
use homing::mqtt::packet::{Acknowledgement, Connect, ConnectProperties, Packet, PacketId, QoS, ReasonCode};
use homing::session::objectives::{Objective, ObjectiveCounts, Objectives};
use homing::session::outbound::queue::QueuePolicy;
use homing::shard::ShardSettings;
use std::time::Duration;

/// Returns an objective of five seconds, whose name is its filter.
fn objective(topic: &str, glob: Option<&str>) -> Objective {
    Objective {
        name: topic.into(),
        topic: topic.into(),
        client_id: glob.map(|glob| glob.parse().expect("a glob")),
        within: Duration::from_secs(5),
        target: 0.99,
    }
}

/// Settings with one objective, for each message of `alarms/#`.
fn settings() -> ShardSettings {
    ShardSettings { objectives: vec![objective("alarms/#", None)].into(), ..driver::settings() }
}

/// Takes what the receivers have got, and acknowledges it.
fn take_all(driver: &mut MemoryDriver, receivers: &[LinkId]) {
    receivers.iter().for_each(|receiver| drop(client::take(driver, *receiver, true)));
}

/// Settings with these objectives: filters, and globs over receivers.
fn with(list: &[(&str, &str)]) -> ShardSettings {
    let objectives = list.iter().map(|(topic, glob)| objective(topic, Some(glob))).collect();
    ShardSettings { objectives, ..driver::settings() }
}

fn reload(driver: &mut MemoryDriver, settings: &ShardSettings) {
    driver.shards.iter_mut().for_each(|shard| shard.replace_settings(settings.clone()));
}

/// Returns the objectives with the counts of all shards.
fn total(driver: &MemoryDriver) -> Objectives {
    let mut total = Objectives::default();
    driver.shards.iter().for_each(|shard| total.add(&shard.snapshot().counters.objectives));
    total
}

/// Returns the name of each objective, and the numbers of its deliveries in time and of its open
/// ones.
fn in_time_and_open(driver: &MemoryDriver) -> Vec<(String, u64, u64)> {
    total(driver).counts().map(|(one, counts)| (one.name.to_string(), counts.in_time, counts.open)).collect()
}

fn counts(driver: &MemoryDriver) -> ObjectiveCounts {
    total(driver).counts().next().map(|(_, counts)| counts).expect("an objective")
}

fn persistent(driver: &mut MemoryDriver, name: &str) -> LinkId {
    let properties =
        ConnectProperties { session_expiry: Some(600), receive_maximum: Some(2), ..Default::default() };
    enter(driver, Connect { clean_start: false, properties, ..connect(name) })
}

fn id(number: u16) -> PacketId {
    PacketId::new(number).expect("not 0")
}

#[test]
fn puback_and_pubrec_in_time_are_good_and_silence_is_late() {
    for shards in [1, 3] {
        let mut driver = MemoryDriver::new(&settings(), shards);
        let publisher = client::client(&mut driver, "publisher", 10);
        let receiver = persistent(&mut driver, "receiver");
        subscribe(&mut driver, receiver, &["alarms/#", "other"], QoS::ExactlyOnce);
        publish(&mut driver, publisher, "other", QoS::AtLeastOnce, 1);
        client::take(&mut driver, receiver, true);
        publish(&mut driver, publisher, "alarms/1", QoS::AtLeastOnce, 2);
        client::take(&mut driver, receiver, true);
        assert_eq!(counts(&driver), ObjectiveCounts { in_time: 1, ..Default::default() });
        publish(&mut driver, publisher, "alarms/2", QoS::ExactlyOnce, 3);
        driver.advance(Duration::from_secs(4));
        send(&mut driver, receiver, &Packet::Pubrec(Acknowledgement::success(id(3))));
        assert_eq!(counts(&driver), ObjectiveCounts { in_time: 2, ..Default::default() });
        publish(&mut driver, publisher, "alarms/3", QoS::AtLeastOnce, 4);
        assert_eq!(counts(&driver).open, 1);
        driver.advance(Duration::from_secs(6));
        assert_eq!(counts(&driver), ObjectiveCounts { in_time: 2, late: 1, ..Default::default() });
        client::take(&mut driver, receiver, true);
        assert_eq!(counts(&driver), ObjectiveCounts { in_time: 2, late: 1, ..Default::default() });
    }
}

#[test]
fn a_receiver_that_is_away_is_excluded_and_one_that_leaves_later_is_late() {
    let mut driver = MemoryDriver::new(&settings(), 1);
    let publisher = client::client(&mut driver, "publisher", 10);
    let receiver = persistent(&mut driver, "receiver");
    subscribe(&mut driver, receiver, &["alarms/#"], QoS::AtLeastOnce);
    publish(&mut driver, publisher, "alarms/1", QoS::AtLeastOnce, 1);
    driver.close(receiver);
    publish(&mut driver, publisher, "alarms/2", QoS::AtLeastOnce, 2);
    assert_eq!(counts(&driver), ObjectiveCounts { open: 1, excluded: 1, ..Default::default() });
    driver.advance(Duration::from_secs(6));
    assert_eq!(counts(&driver), ObjectiveCounts { late: 1, excluded: 1, ..Default::default() });
    let receiver = persistent(&mut driver, "receiver");
    assert_eq!(client::take(&mut driver, receiver, true).len(), 2);
    assert_eq!(counts(&driver), ObjectiveCounts { late: 1, excluded: 1, ..Default::default() });
}

#[test]
fn refused_and_negatively_acknowledged_messages_and_those_of_an_ended_session_are_dropped() {
    let mut settings = settings();
    settings.session.send.queue.messages = 1;
    settings.session.send.queue.policy = QueuePolicy::Refuse;
    let mut driver = MemoryDriver::new(&settings, 1);
    let publisher = client::client(&mut driver, "publisher", 10);
    let receiver = persistent(&mut driver, "receiver");
    subscribe(&mut driver, receiver, &["alarms/#"], QoS::AtLeastOnce);
    // Two in flight, one in the queue, and one that the queue refuses.
    for packet_id in 1..5 {
        publish(&mut driver, publisher, "alarms/1", QoS::AtLeastOnce, packet_id);
    }
    assert_eq!(counts(&driver), ObjectiveCounts { open: 3, dropped: 1, ..Default::default() });
    let refusal =
        Acknowledgement { reason: ReasonCode::UNSPECIFIED_ERROR, ..Acknowledgement::success(id(1)) };
    send(&mut driver, receiver, &Packet::Puback(refusal));
    assert_eq!(counts(&driver), ObjectiveCounts { open: 2, dropped: 2, ..Default::default() });
    driver.close(receiver);
    let again = client::client(&mut driver, "receiver", 2);
    driver.settle();
    assert!(driver.is_open(again));
    assert_eq!(counts(&driver), ObjectiveCounts { dropped: 4, ..Default::default() });
}

#[test]
fn a_message_that_waits_in_the_store_keeps_its_time() {
    let mut settings = settings();
    settings.session.send.queue.messages = 1_000;
    let mut driver = MemoryDriver::new(&settings, 1);
    driver.keep_in_store();
    let publisher = client::client(&mut driver, "publisher", 10);
    let receiver = persistent(&mut driver, "receiver");
    subscribe(&mut driver, receiver, &["alarms/#"], QoS::AtLeastOnce);
    for packet_id in 1..=400 {
        publish(&mut driver, publisher, "alarms/1", QoS::AtLeastOnce, packet_id);
    }
    assert_eq!(counts(&driver).open, 400);
    let mut taken = 0;
    while taken < 400 {
        taken += client::take(&mut driver, receiver, true).len();
        driver.read_pages();
    }
    assert_eq!(counts(&driver), ObjectiveCounts { in_time: 400, ..Default::default() });
    assert!(driver.shards.iter().all(|shard| shard.recount().is_ok()));
}

#[test]
fn a_shared_message_that_moves_to_another_member_counts_for_that_member() {
    let mut driver = MemoryDriver::new(&settings(), 1);
    let publisher = client::client(&mut driver, "publisher", 10);
    let first = client::client(&mut driver, "first", 10);
    subscribe(&mut driver, first, &["$share/g/alarms/#"], QoS::AtLeastOnce);
    publish(&mut driver, publisher, "alarms/1", QoS::AtLeastOnce, 1);
    assert_eq!(counts(&driver).open, 1);
    let second = client::client(&mut driver, "second", 10);
    subscribe(&mut driver, second, &["$share/g/alarms/#"], QoS::AtLeastOnce);
    driver.close(first);
    assert_eq!(counts(&driver), ObjectiveCounts { open: 1, ..Default::default() });
    assert_eq!(client::take(&mut driver, second, true), ["alarms/1"]);
    assert_eq!(counts(&driver), ObjectiveCounts { in_time: 1, ..Default::default() });
}

#[test]
fn objectives_of_a_reload_count_what_begins_after_it_for_clients_that_were_there() {
    for shards in [1, 3] {
        let mut driver = MemoryDriver::new(&driver::settings(), shards);
        let publisher = client::client(&mut driver, "publisher", 10);
        let receivers = ["siren-1", "lamp-1"].map(|name| persistent(&mut driver, name));
        for receiver in receivers {
            subscribe(&mut driver, receiver, &["alarms/#", "other"], QoS::AtLeastOnce);
        }
        let row = |name: &str, in_time, open| (name.to_owned(), in_time, open);
        publish(&mut driver, publisher, "alarms/1", QoS::AtLeastOnce, 1);
        reload(&mut driver, &with(&[("alarms/#", "siren-*")]));
        assert_eq!(in_time_and_open(&driver), [row("alarms/#", 0, 0)]);
        take_all(&mut driver, &receivers);
        assert_eq!(in_time_and_open(&driver), [row("alarms/#", 0, 0)], "they began before");
        publish(&mut driver, publisher, "alarms/2", QoS::AtLeastOnce, 2);
        assert_eq!(in_time_and_open(&driver), [row("alarms/#", 0, 1)], "one of the two receivers");
        // Another objective comes before it, while a delivery is open.
        reload(&mut driver, &with(&[("other", "lamp-*"), ("alarms/#", "*")]));
        take_all(&mut driver, &receivers);
        assert_eq!(in_time_and_open(&driver), [row("other", 0, 0), row("alarms/#", 1, 0)]);
        for topic in ["other", "alarms/3"] {
            publish(&mut driver, publisher, topic, QoS::AtLeastOnce, 3);
            take_all(&mut driver, &receivers);
        }
        assert_eq!(in_time_and_open(&driver), [row("other", 1, 0), row("alarms/#", 3, 0)]);
        reload(&mut driver, &driver::settings());
        publish(&mut driver, publisher, "alarms/4", QoS::AtLeastOnce, 4);
        take_all(&mut driver, &receivers);
        assert_eq!(in_time_and_open(&driver), []);
    }
}

#[test]
fn without_objectives_nothing_is_counted() {
    let mut driver = MemoryDriver::new(&driver::settings(), 1);
    let link = client::client(&mut driver, "both", 10);
    subscribe(&mut driver, link, &["alarms/#"], QoS::AtLeastOnce);
    publish(&mut driver, link, "alarms/1", QoS::AtLeastOnce, 1);
    client::take(&mut driver, link, true);
    assert_eq!(driver.shards[0].snapshot().counters.objectives.counts().count(), 0);
}
