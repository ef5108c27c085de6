//! Traces of operators: which steps they have, and that they change nothing.

use crate::client::{self, connect, encoded, enter, publish, send, subscribe};
use crate::driver::{self, LinkId, MemoryDriver};
use homing::events::trace::{TraceWatch, TracedPayloads};
use homing::mqtt::packet::{
    Acknowledgement, Connect, ConnectProperties, Packet, PacketId, ProtocolVersion, Publish, QoS, ReasonCode,
};
use homing::session::outbound::queue::QueuePolicy;
use homing::session::trace_steps::StepKind;
use homing::shard::Input;
use std::sync::Arc;
use std::time::Duration;

fn watch(clients: &[&str], filters: &[&str]) -> TraceWatch {
    let texts = |all: &[&str]| all.iter().map(|text| (*text).into()).collect();
    TraceWatch { clients: texts(clients), filters: texts(filters), payloads: TracedPayloads::Hidden }
}

fn follow(driver: &mut MemoryDriver, watch: TraceWatch) {
    let watch = Arc::new(watch);
    let now = driver.now;
    driver.shards.iter_mut().for_each(|shard| shard.input(now, Input::Traces(Some(Arc::clone(&watch)))));
}

/// Returns the steps since the last call: the kind and the client of each.
fn steps(driver: &mut MemoryDriver) -> Vec<(StepKind, String)> {
    let taken = std::mem::take(&mut driver.trace_steps);
    taken.into_iter().map(|step| (step.kind, step.client_id.into())).collect()
}

fn kinds(driver: &mut MemoryDriver) -> Vec<StepKind> {
    steps(driver).into_iter().map(|(kind, _)| kind).collect()
}

fn persistent(driver: &mut MemoryDriver, name: &str) -> LinkId {
    let properties =
        ConnectProperties { session_expiry: Some(600), receive_maximum: Some(1), ..Default::default() };
    enter(driver, Connect { clean_start: false, properties, ..connect(name) })
}

#[test]
fn a_traced_publisher_shows_the_way_of_its_message_through_every_shard() {
    for shards in [1, 4] {
        let mut driver = MemoryDriver::new(&driver::settings(), shards);
        let receivers: Vec<LinkId> =
            ["one", "two", "three"].map(|name| client::client(&mut driver, name, 10)).into();
        for receiver in &receivers {
            subscribe(&mut driver, *receiver, &["a/#"], QoS::AtLeastOnce);
        }
        follow(&mut driver, watch(&["app"], &[]));
        let publisher = client::client(&mut driver, "app", 10);
        let connected = kinds(&mut driver);
        assert!(connected.contains(&StepKind::PacketIn) && connected.contains(&StepKind::PacketOut));
        publish(&mut driver, publisher, "a/b", QoS::AtLeastOnce, 1);
        for receiver in receivers {
            client::take(&mut driver, receiver, true);
        }
        let all = steps(&mut driver);
        assert_eq!(all.first(), Some(&(StepKind::Received, "app".to_owned())), "{all:?}");
        for name in ["one", "two", "three"] {
            let of: Vec<StepKind> =
                all.iter().filter(|(_, who)| who == name).map(|(kind, _)| *kind).collect();
            assert_eq!(of, [StepKind::Sent, StepKind::Acknowledged], "{all:?}");
        }
        let of_all = |kind| all.iter().filter(|(step, _)| *step == kind).count();
        assert_eq!((of_all(StepKind::Matched), of_all(StepKind::PublisherAcknowledged)), (1, 1), "{all:?}");
    }
}

#[test]
fn a_topic_shows_queue_resend_and_drop_of_a_receiver_that_is_not_traced_itself() {
    let mut settings = driver::settings();
    settings.session.send.queue.messages = 1;
    settings.session.send.queue.policy = QueuePolicy::Refuse;
    let mut driver = MemoryDriver::new(&settings, 1);
    let receiver = driver.open();
    let v3 = ProtocolVersion::V3_1_1;
    let hello = Connect { version: v3, clean_start: false, ..connect("pump") };
    driver.send(receiver, &encoded(&Packet::Connect(Box::new(hello)), v3));
    driver.close(receiver);
    let publisher = client::client(&mut driver, "app", 10);
    let receiver = persistent(&mut driver, "slow");
    subscribe(&mut driver, receiver, &["a"], QoS::AtLeastOnce);
    follow(&mut driver, watch(&[], &["a"]));
    for packet_id in 1..4 {
        publish(&mut driver, publisher, "a", QoS::AtLeastOnce, packet_id);
    }
    publish(&mut driver, publisher, "other", QoS::AtLeastOnce, 4);
    let of_slow: Vec<StepKind> =
        steps(&mut driver).into_iter().filter(|(_, who)| who == "slow").map(|(kind, _)| kind).collect();
    assert_eq!(of_slow, [StepKind::Sent, StepKind::Queued, StepKind::Dropped]);
    driver.close(receiver);
    let receiver = persistent(&mut driver, "slow");
    assert_eq!(kinds(&mut driver), [StepKind::Resent]);
    send(&mut driver, receiver, &Packet::Puback(Acknowledgement::success(PacketId::new(1).expect("1"))));
    assert_eq!(kinds(&mut driver), [StepKind::Acknowledged, StepKind::Sent]);
}

#[test]
fn a_message_that_its_whole_group_refuses_is_dropped_in_the_name_of_the_group() {
    let mut settings = driver::settings();
    settings.session.send.queue.messages = 1;
    settings.session.send.queue.policy = QueuePolicy::Refuse;
    let mut driver = MemoryDriver::new(&settings, 1);
    let publisher = client::client(&mut driver, "app", 10);
    let member = persistent(&mut driver, "slow");
    subscribe(&mut driver, member, &["$share/g/a"], QoS::AtLeastOnce);
    follow(&mut driver, watch(&[], &["a"]));
    // One in flight, one in the queue, and one that the queue refuses.
    for packet_id in 1..4 {
        publish(&mut driver, publisher, "a", QoS::AtLeastOnce, packet_id);
    }
    let drops: Vec<String> = steps(&mut driver)
        .into_iter()
        .filter_map(|(kind, who)| (kind == StepKind::Dropped).then_some(who))
        .collect();
    assert_eq!(drops, ["$share/g"]);
}

#[test]
fn a_stored_message_shows_its_record_and_its_commit_and_keeps_its_number_in_the_store() {
    let mut settings = driver::settings();
    settings.session.send.queue.messages = 1_000;
    let mut driver = MemoryDriver::new(&settings, 1);
    driver.keep_in_store();
    let publisher = client::client(&mut driver, "app", 10);
    let receiver = persistent(&mut driver, "slow");
    subscribe(&mut driver, receiver, &["#"], QoS::AtLeastOnce);
    for packet_id in 1..=300 {
        publish(&mut driver, publisher, "b", QoS::AtLeastOnce, packet_id);
    }
    follow(&mut driver, watch(&[], &["a"]));
    publish(&mut driver, publisher, "a", QoS::AtLeastOnce, 400);
    let expected = [StepKind::Received, StepKind::Matched, StepKind::Queued, StepKind::Recorded];
    let first = kinds(&mut driver);
    assert_eq!(&first[..4], expected, "{first:?}");
    assert!(first.contains(&StepKind::Committed), "{first:?}");
    // The message is in the store alone, and is read back.
    let mut taken = 0;
    while taken < 301 {
        taken += client::take(&mut driver, receiver, true).len();
        driver.read_pages();
    }
    assert_eq!(kinds(&mut driver), [StepKind::Sent, StepKind::Acknowledged]);
    assert!(driver.shards.iter().all(|shard| shard.recount().is_ok()));
}

#[test]
fn a_trace_changes_no_byte_that_a_client_gets() {
    let run = |watched: Option<TraceWatch>| {
        let mut driver = MemoryDriver::new(&driver::settings(), 3);
        if let Some(watched) = watched {
            follow(&mut driver, watched);
        }
        let aliased = ConnectProperties { topic_alias_maximum: Some(5), ..Default::default() };
        let links = [
            client::client(&mut driver, "one", 10),
            enter(&mut driver, Connect { properties: aliased, ..connect("two") }),
            client::client(&mut driver, "three", 1),
        ];
        for link in links {
            subscribe(&mut driver, link, &["a/#", "+/b"], QoS::ExactlyOnce);
        }
        for (number, qos) in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce].into_iter().enumerate() {
            for n in 0..4 {
                let packet_id = if number == 0 { 0 } else { (number * 10 + n) as u16 };
                publish(&mut driver, links[n % 3], "a/b", qos, packet_id);
            }
        }
        driver.advance(Duration::from_secs(300));
        driver.links.iter().map(|link| link.received.clone()).collect::<Vec<_>>()
    };
    let plain = run(None);
    assert_eq!(run(Some(watch(&["one", "two"], &["a/#"]))), plain);
    assert_eq!(run(Some(watch(&[], &["#"]))), plain);
}

#[test]
fn nothing_is_noted_before_a_trace_and_after_it() {
    let mut driver = MemoryDriver::new(&driver::settings(), 1);
    let link = client::client(&mut driver, "app", 10);
    subscribe(&mut driver, link, &["a"], QoS::AtLeastOnce);
    publish(&mut driver, link, "a", QoS::AtLeastOnce, 1);
    assert!(steps(&mut driver).is_empty());
    follow(&mut driver, watch(&["app"], &["a"]));
    publish(&mut driver, link, "a", QoS::AtLeastOnce, 2);
    assert!(!steps(&mut driver).is_empty());
    let now = driver.now;
    driver.shards.iter_mut().for_each(|shard| shard.input(now, Input::Traces(None)));
    publish(&mut driver, link, "a", QoS::AtLeastOnce, 3);
    client::take(&mut driver, link, true);
    assert!(steps(&mut driver).is_empty());
}

/// An acknowledgement is looked at because of the mark of its delivery, so each way of a message
/// must mark it.
#[test]
fn each_acknowledgement_of_a_traced_message_is_a_step_whatever_way_the_message_went() {
    let mut driver = MemoryDriver::new(&driver::settings(), 1);
    let away = persistent(&mut driver, "away");
    subscribe(&mut driver, away, &["a"], QoS::AtLeastOnce);
    driver.close(away);
    let publisher = client::client(&mut driver, "app", 10);
    follow(&mut driver, watch(&[], &["a"]));
    let (qos, packet_id) = (QoS::AtLeastOnce, PacketId::new(1));
    let retained = Publish { retain: true, qos, packet_id, ..client::publication("a", b"x") };
    send(&mut driver, publisher, &Packet::Publish(retained));
    let late = client::client(&mut driver, "late", 10);
    subscribe(&mut driver, late, &["a"], QoS::ExactlyOnce);
    let away = persistent(&mut driver, "away");
    driver.trace_steps.clear();
    let first = PacketId::new(1).expect("1");
    send(&mut driver, late, &Packet::Puback(Acknowledgement::success(first)));
    assert_eq!(steps(&mut driver), [(StepKind::Acknowledged, "late".to_owned())], "a retained message");
    let refusal = Acknowledgement { reason: ReasonCode::QUOTA_EXCEEDED, ..Acknowledgement::success(first) };
    send(&mut driver, away, &Packet::Puback(refusal));
    let of_away = [StepKind::Negative, StepKind::Acknowledged].map(|kind| (kind, "away".to_owned()));
    assert_eq!(steps(&mut driver), of_away, "a message that waited for its receiver");
}

#[test]
fn a_step_has_a_reason_code_only_if_the_version_of_its_client_sends_one() {
    for version in [ProtocolVersion::V3_1_1, ProtocolVersion::V5] {
        let mut driver = MemoryDriver::new(&driver::settings(), 1);
        follow(&mut driver, watch(&["c"], &[]));
        let link = driver.open();
        let connect = Connect { version, ..connect("c") };
        driver.send(link, &encoded(&Packet::Connect(Box::new(connect)), version));
        let (qos, packet_id) = (QoS::ExactlyOnce, PacketId::new(1).expect("1"));
        let publish = Publish { qos, packet_id: Some(packet_id), ..client::publication("a", b"x") };
        driver.send(link, &encoded(&Packet::Publish(publish), version));
        driver.send(link, &encoded(&Packet::Pubrel(Acknowledgement::success(packet_id)), version));
        let coded: Vec<&str> =
            driver.trace_steps.iter().filter(|step| step.reason.is_some()).map(|step| step.packet).collect();
        let expected: &[&str] = if version.is_v5() { &["PUBREC", "PUBREL", "PUBCOMP"] } else { &[] };
        assert_eq!(coded, expected);
    }
}
