//! Messages that operators publish: the same way, limits and answers as those of clients.

use crate::client::{client, connect, enter, named_at, publication, subscribe, take};
use crate::driver::{self, MemoryDriver};
use homing::mqtt::packet::{Connect, ConnectProperties, Publish, QoS, ReasonCode};
use homing::operators::command::Command;
use homing::operators::publish_command::{
    NotPublished, PublicationNumber, PublishCommand, TooManyUnanswered,
};
use homing::session::drops::DropReason;
use homing::session::outbound::queue::QueuePolicy;
use homing::session::outbound::stall::SocketView;
use homing::shard::ShardSettings;
use std::time::Duration;

const REFUSED: fn(ReasonCode, DropReason) -> Result<PublicationNumber, NotPublished> =
    |reason, cause| Err(NotPublished::Refused(reason, cause));

fn at_qos_1<'a>(topic: &'a str, payload: &'a [u8]) -> Publish<'a> {
    Publish { qos: QoS::AtLeastOnce, ..publication(topic, payload) }
}

/// Publishes in the first shard.
fn publish(driver: &mut MemoryDriver, publish: Publish<'_>) -> Result<PublicationNumber, NotPublished> {
    let command = PublishCommand::new("http:ann", publish).expect("a lawful PUBLISH");
    driver.shards[0].begin_turn();
    let done = command.carry_out(driver.now, SocketView::default(), &mut driver.shards[0]);
    assert_eq!(done.commit, None, "the answer follows by itself");
    driver.settle();
    done.outcome
}

/// The reason codes that came since the last call.
fn answers(driver: &mut MemoryDriver) -> Vec<ReasonCode> {
    std::mem::take(&mut driver.answers).into_iter().map(|answer| answer.reason).collect()
}

/// Connects a client whose session is stored.
fn stored(driver: &mut MemoryDriver, name: &str) -> usize {
    let properties =
        ConnectProperties { session_expiry: Some(3_600), receive_maximum: Some(1), ..Default::default() };
    enter(driver, Connect { properties, ..connect(name) })
}

#[test]
fn subscribers_of_every_shard_get_it_and_the_answer_says_if_there_was_one() {
    let mut driver = MemoryDriver::new(&driver::settings(), 2);
    for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
        assert!(publish(&mut driver, Publish { qos, ..publication("t", b"p") }).is_ok());
    }
    assert_eq!(answers(&mut driver), [ReasonCode::NO_MATCHING_SUBSCRIBERS; 3]);
    for shard in [0, 1] {
        let link = client(&mut driver, &named_at("sub", shard, 2), 10);
        subscribe(&mut driver, link, &[&*format!("t/{shard}")], QoS::AtLeastOnce);
        publish(&mut driver, at_qos_1(&format!("t/{shard}"), b"p")).expect("it is published");
        assert_eq!(take(&mut driver, link, true), [format!("t/{shard}")]);
        assert_eq!(answers(&mut driver), [ReasonCode::SUCCESS], "shard {shard}");
    }
}

#[test]
fn the_answer_waits_for_the_commit_of_the_queues_of_every_shard() {
    for shard in [0, 1] {
        let mut driver = MemoryDriver::new(&driver::settings(), 2);
        driver.keep_in_store();
        let link = stored(&mut driver, &named_at("sub", shard, 2));
        subscribe(&mut driver, link, &["t"], QoS::AtLeastOnce);
        driver.close(link);
        driver.delays_commits = true;
        publish(&mut driver, at_qos_1("t", b"p")).expect("it is published");
        assert_eq!(answers(&mut driver), [], "nothing is committed");
        driver.commit();
        assert_eq!(answers(&mut driver), [ReasonCode::SUCCESS], "shard {shard}");
    }
}

#[test]
fn a_retained_and_a_delayed_message_wait_for_their_commit_too() {
    let mut driver = MemoryDriver::new(&driver::settings(), 1);
    driver.keep_in_store();
    for (topic, retain, reason) in
        [("t", true, ReasonCode::NO_MATCHING_SUBSCRIBERS), ("$delayed/5/t", false, ReasonCode::SUCCESS)]
    {
        driver.delays_commits = true;
        publish(&mut driver, Publish { retain, ..at_qos_1(topic, b"p") }).expect("it is published");
        assert_eq!(answers(&mut driver), [], "{topic}");
        driver.commit();
        assert_eq!(answers(&mut driver), [reason], "{topic}");
    }
}

#[test]
fn a_delayed_message_comes_when_it_is_due() {
    let mut driver = MemoryDriver::new(&driver::settings(), 1);
    let link = client(&mut driver, "sub", 10);
    subscribe(&mut driver, link, &["t"], QoS::AtLeastOnce);
    publish(&mut driver, at_qos_1("$delayed/5/t", b"p")).expect("it is kept");
    assert_eq!((answers(&mut driver), take(&mut driver, link, true)), (vec![ReasonCode::SUCCESS], vec![]));
    driver.advance(Duration::from_secs(6));
    assert_eq!(take(&mut driver, link, true), ["t"]);
}

#[test]
fn the_limits_of_clients_hold_for_operators() {
    let mut settings = driver::settings();
    settings.session.payload_size = 100;
    settings.session.connect.packet_size = 1_000;
    let mut driver = MemoryDriver::new(&settings, 1);
    let (deep, long) = (["a"; 17].join("/"), "x".repeat(1_000));
    let mut refused = |message| publish(&mut driver, message);
    let reserved = REFUSED(ReasonCode::NOT_AUTHORIZED, DropReason::ReservedTopic);
    assert_eq!(refused(at_qos_1("$SYS/x", b"p")), reserved);
    let too_deep = REFUSED(ReasonCode::TOPIC_NAME_INVALID, DropReason::TopicTooDeep);
    assert_eq!(refused(at_qos_1(&deep, b"p")), too_deep);
    let no_topic = REFUSED(ReasonCode::TOPIC_NAME_INVALID, DropReason::ReservedTopic);
    assert_eq!(refused(at_qos_1("$delayed/t", b"p")), no_topic);
    let large = |reason| REFUSED(reason, DropReason::TooLarge);
    assert_eq!(refused(at_qos_1("t", &[0; 101])), large(ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR));
    assert_eq!(refused(at_qos_1(&long, b"p")), large(ReasonCode::PACKET_TOO_LARGE));
    assert_eq!(answers(&mut driver), []);
    assert_eq!(
        driver.shards[0].snapshot().counters.drops.of(DropReason::TopicTooDeep),
        1,
        "a refusal is counted"
    );
}

#[test]
fn a_message_is_not_retained_where_nothing_is() {
    let mut settings = driver::settings();
    settings.session.connect.retain_available = false;
    let mut driver = MemoryDriver::new(&settings, 1);
    let refused = publish(&mut driver, Publish { retain: true, ..at_qos_1("t", b"p") });
    assert_eq!(refused, REFUSED(ReasonCode::RETAIN_NOT_SUPPORTED, DropReason::RetainedFull));
}

#[test]
fn a_full_queue_refuses_it_at_once_or_holds_it_until_there_is_room() {
    for (policy, expected) in
        [(QueuePolicy::Refuse, ReasonCode::QUOTA_EXCEEDED), (QueuePolicy::Hold, ReasonCode::SUCCESS)]
    {
        let mut settings: ShardSettings = driver::settings();
        (settings.session.send.queue.messages, settings.session.send.queue.policy) = (1, policy);
        let mut driver = MemoryDriver::new(&settings, 1);
        let link = client(&mut driver, "sub", 1);
        subscribe(&mut driver, link, &["t"], QoS::AtLeastOnce);
        for _ in 0..2 {
            publish(&mut driver, at_qos_1("t", b"p")).expect("one is in flight and one in the queue");
        }
        assert_eq!(answers(&mut driver), [ReasonCode::SUCCESS; 2]);
        publish(&mut driver, at_qos_1("t", b"p")).expect("it is routed");
        let held = answers(&mut driver);
        assert_eq!(held.is_empty(), policy == QueuePolicy::Hold, "{held:?}");
        take(&mut driver, link, true);
        assert_eq!([held, answers(&mut driver)].concat(), [expected]);
    }
}

#[test]
fn a_message_for_very_many_is_answered_when_the_last_one_has_it() {
    let settings = ShardSettings { steps_per_turn: 100, ..driver::settings() };
    let mut driver = MemoryDriver::new(&settings, 1);
    let links: Vec<_> = (0..300).map(|n| client(&mut driver, &format!("sub {n}"), 10)).collect();
    links.iter().for_each(|link| subscribe(&mut driver, *link, &["t"], QoS::AtLeastOnce));
    let command = PublishCommand::new("http:ann", at_qos_1("t", b"p")).expect("a lawful PUBLISH");
    driver.shards[0].begin_turn();
    let mut published =
        || command.carry_out(driver.now, SocketView::default(), &mut driver.shards[0]).outcome;
    assert!(published().is_ok());
    assert_eq!(published(), Err(NotPublished::Busy), "the first one must be complete");
    driver.settle();
    assert_eq!(answers(&mut driver), [ReasonCode::SUCCESS]);
    assert!(links.iter().all(|link| take(&mut driver, *link, true) == ["t"]));
}

#[test]
fn answers_that_never_come_are_bounded() {
    let mut driver = MemoryDriver::new(&driver::settings(), 1);
    driver.keep_in_store();
    driver.delays_commits = true;
    let mut published = 0;
    let refused = loop {
        match publish(&mut driver, Publish { retain: true, ..at_qos_1("t", b"p") }) {
            Ok(_) => published += 1,
            Err(refused) => break refused,
        }
    };
    assert_eq!((published, refused), (256, NotPublished::TooMany(TooManyUnanswered::OfPublisher)));
}

#[test]
fn a_receiver_that_holds_all_messages_of_one_publisher_leaves_places_to_the_others() {
    let mut settings: ShardSettings = driver::settings();
    (settings.session.send.queue.messages, settings.session.send.queue.policy) = (1, QueuePolicy::Hold);
    let mut driver = MemoryDriver::new(&settings, 1);
    let stuck = client(&mut driver, "stuck", 1);
    subscribe(&mut driver, stuck, &["t"], QoS::AtLeastOnce);
    let refused = loop {
        if let Err(refused) = publish(&mut driver, at_qos_1("t", b"p")) {
            break refused;
        }
    };
    assert_eq!(refused, NotPublished::TooMany(TooManyUnanswered::OfPublisher));
    driver.answers.clear();
    let command = PublishCommand::new("http:bob", at_qos_1("other", b"p")).expect("a lawful PUBLISH");
    driver.shards[0].begin_turn();
    let done = command.carry_out(driver.now, SocketView::default(), &mut driver.shards[0]);
    driver.settle();
    assert!(done.outcome.is_ok());
    assert_eq!(answers(&mut driver), [ReasonCode::NO_MATCHING_SUBSCRIBERS]);
}
