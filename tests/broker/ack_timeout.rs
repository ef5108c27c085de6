//! The ack timeout of 5.0: a client that does not acknowledge in time is disconnected or reported.
//!
//! In 5.0 nothing is resent on a live connection.
//!
//! A disconnect may not come earlier than the ack timeout after the message was *published*, nor
//! later than the ack timeout, one expiry tick and a tolerance after it *arrived*.

use crate::support::launch::{TestBroker, on_configured_threads, start_broker};
use crate::support::packet::Disconnect;
use crate::support::{Connect, Kind, Message, PATIENCE, Packet, Property, RawClient, V5, V311, now};
use homing::config::{Config, OnAckTimeout};
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_millis(600);
const BUCKET: Duration = Duration::from_millis(250);
/// Lateness that a busy machine may add.
const TOLERANCE: Duration = Duration::from_millis(500);
/// The broker counts whole milliseconds.
const GRANULARITY: Duration = Duration::from_millis(5);

fn soon(config: &mut Config) {
    config.redelivery.ack_timeout = TIMEOUT;
    config.redelivery.max_ack_timeout = TIMEOUT * 4;
    config.sys.publish_interval = Duration::from_millis(100);
}

fn expect_disconnect_in_time(
    client: &mut RawClient,
    sent: Instant,
    arrived: Instant,
    timeout: Duration,
) -> Disconnect {
    let Packet::Disconnect(disconnect) = client.wait_for(Kind::Disconnect) else { unreachable!() };
    let at = now();
    assert!(at - sent + GRANULARITY >= timeout, "early: {:?} of {timeout:?}", at - sent);
    assert!(at - arrived <= timeout + BUCKET + TOLERANCE, "late: {:?} of {timeout:?}", at - arrived);
    assert_eq!(disconnect.code, 0x97);
    client.expect_closed();
    disconnect
}

fn reason_string(disconnect: &Disconnect) -> &str {
    let text = disconnect.properties.iter().find_map(|property| match property {
        Property::ReasonString(text) => Some(text.as_str()),
        _ => None,
    });
    text.expect("a Reason String")
}

/// Waits until a figure of the broker's is at least `least`.
fn await_figure(broker: &TestBroker, name: &str, least: u64) {
    let mut watcher = broker.client(V311, "watcher");
    watcher.subscribe(&[(&format!("$SYS/broker/{name}"), 0)]);
    let deadline = now() + PATIENCE;
    while watcher.expect_publish().text().parse::<u64>().expect("a number") < least {
        assert!(now() < deadline, "{name} never reaches {least}");
    }
}

// 5.0 [MQTT-4.4.0-1]
#[test]
fn v5_overdue_publish_disconnects_with_0x97_and_comes_again_at_the_return() {
    on_configured_threads(soon, |broker| {
        let mut publisher = broker.client(V5, "p");
        for qos in [1, 2] {
            let mut subscriber = broker.persistent(V5, "s");
            subscriber.subscribe(&[("t", 2)]);
            let published = now();
            publisher.deliver(&Message::new("t", "x").qos(qos));
            let first = subscriber.expect_publish();
            let disconnect = expect_disconnect_in_time(&mut subscriber, published, first.at, TIMEOUT);
            let text = reason_string(&disconnect);
            let named = format!("packet {} unacknowledged for ", first.id);
            assert!(text.starts_with(&named) && text.contains("sent 1 time;"), "{text}");
            assert!(text.ends_with("application: the client's host has it"), "{text}");
            let (age, _) = text[named.len()..].split_once(", ").expect("an age");
            let (number, unit) = age.split_once(' ').expect("a unit");
            let in_ms = if unit == "ms" { 1.0 } else { 1_000.0 };
            let age = number.parse::<f64>().expect("a number") * in_ms;
            assert!((600.0..2000.0).contains(&age), "{text}");

            let mut subscriber = broker.persistent(V5, "s");
            let again = subscriber.expect_publish();
            assert!(again.dup && again.id == first.id && again.text() == "x", "{again:?}");
            subscriber.complete(&again);
            subscriber.disconnect();
        }
    });
}

#[test]
fn each_disconnect_for_the_same_message_doubles_the_ack_timeout_up_to_its_cap() {
    let broker = start_broker(soon);
    let mut subscriber = broker.persistent(V5, "s");
    subscriber.subscribe(&[("t", 1)]);
    let published = now();
    broker.client(V5, "p").deliver(&Message::new("t", "stuck").qos(1));
    let first = subscriber.expect_publish();
    expect_disconnect_in_time(&mut subscriber, published, first.at, TIMEOUT);
    for (times, timeout) in [(2, TIMEOUT * 2), (3, TIMEOUT * 4), (4, TIMEOUT * 4)] {
        let returned = now();
        let mut subscriber = broker.persistent(V5, "s");
        let again = subscriber.expect_publish();
        let disconnect = expect_disconnect_in_time(&mut subscriber, returned, again.at, timeout);
        // The count of a message survives its connections.
        assert!(reason_string(&disconnect).contains(&format!("sent {times} times;")), "{disconnect:?}");
    }
    // Once it is finished, the next connection is held to the plain timeout.
    let mut subscriber = broker.persistent(V5, "s");
    let again = subscriber.expect_publish();
    subscriber.complete(&again);
    subscriber.disconnect();
    let mut subscriber = broker.persistent(V5, "s");
    let published = now();
    broker.client(V5, "p").deliver(&Message::new("t", "other").qos(1));
    let first = subscriber.expect_publish();
    expect_disconnect_in_time(&mut subscriber, published, first.at, TIMEOUT);
}

#[test]
fn overdue_pubcomp_disconnects_and_the_pubrel_comes_again_at_the_return() {
    let broker = start_broker(soon);
    let mut subscriber = broker.persistent(V5, "s");
    subscriber.subscribe(&[("t", 2)]);
    broker.client(V5, "p").deliver(&Message::new("t", "x").qos(2));
    let first = subscriber.expect_publish();
    let received = now();
    subscriber.ack(Kind::Pubrec, first.id);
    let pubrel = subscriber.expect_ack(Kind::Pubrel, first.id);
    expect_disconnect_in_time(&mut subscriber, received, pubrel.at, TIMEOUT);
    let mut subscriber = broker.persistent(V5, "s");
    subscriber.expect_ack(Kind::Pubrel, first.id);
    subscriber.ack(Kind::Pubcomp, first.id);
    subscriber.settle();
}

#[test]
fn acknowledgements_in_time_disconnect_nobody() {
    let broker = start_broker(soon);
    let mut subscriber = broker.persistent(V5, "s");
    subscriber.subscribe(&[("t", 1)]);
    let mut publisher = broker.client(V5, "p");
    // Twice the timeout in all, each acknowledged within half of it.
    for _ in 0..4 {
        publisher.deliver(&Message::new("t", "x").qos(1));
        let publish = subscriber.expect_publish();
        subscriber.expect_nothing_for(TIMEOUT / 2);
        subscriber.complete(&publish);
    }
    subscriber.settle();
}

#[test]
fn a_session_that_would_end_is_reported_and_kept() {
    on_configured_threads(soon, |broker| {
        let mut subscriber = broker.client(V5, "s");
        subscriber.subscribe(&[("t", 1)]);
        broker.client(V5, "p").deliver(&Message::new("t", "x").qos(1));
        let first = subscriber.expect_publish();
        // Once every timeout.
        await_figure(broker, "redelivery/stalled", 2);
        subscriber.complete(&first);
        subscriber.settle();
    });
}

#[test]
fn alarm_keeps_a_session_that_stays() {
    let broker = start_broker(|config| {
        soon(config);
        config.redelivery.on_ack_timeout = OnAckTimeout::Alarm;
    });
    let mut subscriber = broker.persistent(V5, "s");
    subscriber.subscribe(&[("t", 1)]);
    broker.client(V5, "p").deliver(&Message::new("t", "x").qos(1));
    subscriber.expect_publish();
    await_figure(&broker, "redelivery/stalled", 2);
    subscriber.settle();
}

#[test]
fn on_disconnect_a_session_that_ends_with_it() {
    let broker = start_broker(|config| {
        soon(config);
        config.redelivery.on_ack_timeout = OnAckTimeout::Disconnect;
    });
    let mut subscriber = broker.client(V5, "s");
    subscriber.subscribe(&[("t", 1)]);
    let published = now();
    broker.client(V5, "p").deliver(&Message::new("t", "x").qos(1));
    let first = subscriber.expect_publish();
    expect_disconnect_in_time(&mut subscriber, published, first.at, TIMEOUT);
    await_figure(&broker, "redelivery/disconnected", 1);
}

#[test]
fn ack_timeout_zero_waits_for_ever() {
    let broker = start_broker(|config| {
        soon(config);
        config.redelivery.ack_timeout = Duration::ZERO;
    });
    let mut subscriber = broker.persistent(V5, "s");
    subscriber.subscribe(&[("t", 1)]);
    broker.client(V5, "p").deliver(&Message::new("t", "x").qos(1));
    subscriber.expect_publish();
    subscriber.expect_nothing_for(TIMEOUT * 2);
    subscriber.settle();
}

/// The time counts only while the client's kernel has the message.
#[test]
fn a_client_that_has_not_got_the_message_is_not_disconnected() {
    let broker = start_broker(soon);
    let mut slow = broker.open(V5);
    socket2::SockRef::from(slow.stream()).set_recv_buffer_size(8 * 1024).expect("SO_RCVBUF");
    slow.send(&Connect::persistent(V5, "slow").encode());
    slow.expect_connack();
    slow.subscribe(&[("t", 1)]);
    let mut publisher = broker.client(V5, "p");
    // No message fits the receive buffer whole.
    let payload = vec![b'x'; 150_000];
    for _ in 0..2 {
        publisher.deliver(&Message::new("t", &payload).qos(1));
    }
    await_figure(&broker, "redelivery/stalled", 2);
    for _ in 0..2 {
        let publish = slow.expect_publish();
        slow.complete(&publish);
    }
    // The positive control: a message that it has received and does not acknowledge ends the
    // connection.
    let published = now();
    publisher.deliver(&Message::new("t", "x").qos(1));
    let first = slow.expect_publish();
    expect_disconnect_in_time(&mut slow, published, first.at, TIMEOUT);
}

#[test]
fn ack_timeout_is_nothing_to_3_1_1() {
    let broker = start_broker(soon);
    let mut older = broker.persistent(V311, "older");
    let mut newer = broker.persistent(V5, "newer");
    let mut publisher = broker.client(V5, "p");
    for (subscriber, topic) in [(&mut older, "a"), (&mut newer, "b")] {
        subscriber.subscribe(&[(topic, 1)]);
        publisher.deliver(&Message::new(topic, "x").qos(1));
        subscriber.expect_publish();
    }
    // The positive control: under the same settings a client of 5.0 is disconnected, and its
    // message came later.
    newer.expect_disconnected(0x97);
    older.settle();
}
