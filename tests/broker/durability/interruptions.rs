//! Connections that end, and sessions that are taken over, while a commit is under way.

use super::Stored;
use crate::support::launch::with_one_and_three_threads;
use crate::support::memory_store::Memory;
use crate::support::{Connect, Kind, Message, RawClient, V5, V311};
use std::time::Duration;

/// Runs a test against stored brokers of one and of three threads. A client that closes its side
/// while a commit is stopped is gone soon, although it is owed an answer.
fn on_stored_brokers(test: impl Fn(&Stored)) {
    with_one_and_three_threads(|threads| {
        test(&Stored::configured(Memory::default(), threads, Duration::ZERO, |config| {
            config.network.write_timeout = Duration::from_millis(100);
        }));
    });
}

fn message(qos: u8) -> Message {
    Message::new("t", "x").qos(qos)
}

/// A durable subscriber at QoS 2, and a durable publisher whose PUBLISH has gone as far as the
/// commit.
fn publish_without_answer(stored: &Stored, qos: u8) -> (RawClient, RawClient, u16) {
    let mut subscriber = stored.durable(V311, "s");
    subscriber.subscribe(&[("t", 2)]);
    let mut publisher = stored.broker.persistent(V5, &stored.id("p", 0));
    stored.gate.close();
    let id = publisher.publish(&message(qos));
    stored.gate.wait_for_commit();
    (subscriber, publisher, id)
}

/// Sends a CONNECT and does not wait for its answer.
fn connecting(stored: &Stored) -> RawClient {
    let mut back = stored.open(V5);
    back.send(&Connect::persistent(V5, &stored.id("p", 0)).encode());
    back
}

#[test]
fn a_message_whose_publisher_is_gone_before_the_commit_is_delivered_all_the_same() {
    on_stored_brokers(|stored| {
        for qos in [1, 2] {
            let (mut subscriber, publisher, _) = publish_without_answer(stored, qos);
            publisher.vanish();
            stored.gate.open();
            let came = subscriber.expect_publish();
            assert_eq!(came.qos, qos);
            subscriber.complete(&came);
            subscriber.disconnect();
        }
    });
}

fn repeated_publish_waits_for_the_same_commit(end: impl Fn(RawClient)) {
    on_stored_brokers(|stored| {
        let (mut subscriber, publisher, id) = publish_without_answer(stored, 2);
        end(publisher);
        let mut back = connecting(stored);
        back.publish_as(&message(2).duplicate(), id);
        stored.assert_nothing_came([&mut back]);
        stored.assert_nothing_came([&mut subscriber]);
        stored.gate.open();
        assert!(back.expect_connack().session_present);
        back.expect_ack(Kind::Pubrec, id);
        back.ack(Kind::Pubrel, id);
        back.expect_ack(Kind::Pubcomp, id);
        let came = subscriber.expect_publish();
        subscriber.complete(&came);
        subscriber.settle();
    });
}

#[test]
fn qos_2_publish_repeated_after_its_connection_died_before_the_commit_waits_for_it_and_comes_once() {
    repeated_publish_waits_for_the_same_commit(RawClient::vanish);
}

#[test]
fn qos_2_publish_repeated_after_a_take_over_before_the_commit_waits_for_it_and_comes_once() {
    // It stays until the other one comes.
    repeated_publish_waits_for_the_same_commit(std::mem::forget);
}

#[test]
fn a_take_over_before_the_commit_gets_no_answer_to_what_the_other_connection_asked() {
    on_stored_brokers(|stored| {
        let (mut subscriber, mut publisher, _) = publish_without_answer(stored, 1);
        let mut back = connecting(stored);
        publisher.expect_disconnected(0x8E);
        stored.gate.open();
        assert!(back.expect_connack().session_present);
        back.settle();
        let came = subscriber.expect_publish();
        subscriber.complete(&came);
    });
}

#[test]
fn a_session_whose_connack_was_never_seen_is_there() {
    on_stored_brokers(|stored| {
        stored.gate.close();
        let client = connecting(stored);
        stored.gate.wait_for_commit();
        client.vanish();
        let mut back = connecting(stored);
        stored.assert_nothing_came([&mut back]);
        stored.gate.open();
        assert!(back.expect_connack().session_present);
    });
}

#[test]
fn a_subscription_whose_suback_was_never_seen_is_in_force() {
    on_stored_brokers(|stored| {
        let mut client = stored.broker.persistent(V5, &stored.id("p", 0));
        stored.gate.close();
        client.send(&crate::support::client::subscribe_packet(V5, 1, &[], &[("t", 1)]));
        stored.gate.wait_for_commit();
        client.vanish();
        stored.gate.open();
        stored.passing("publisher").deliver(&message(1));
        let mut back = connecting(stored);
        assert!(back.expect_connack().session_present);
        back.expect_publish();
    });
}

#[test]
fn a_receiver_that_breaks_off_before_its_identifier_is_recorded_gets_it_once_it_is_back() {
    on_stored_brokers(|stored| {
        let (subscriber, _publisher, _) = publish_without_answer(stored, 2);
        subscriber.vanish();
        let mut back = stored.open(V311);
        back.send(&Connect::persistent(V311, &stored.id("s", 1)).encode());
        stored.assert_nothing_came([&mut back]);
        stored.gate.open();
        assert!(back.expect_connack().session_present);
        let came = back.expect_publish();
        // Nothing of it had left.
        assert!(!came.dup);
        back.complete(&came);
        back.settle();
    });
}
