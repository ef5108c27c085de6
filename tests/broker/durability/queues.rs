//! A new broker on what a killed one left: what was in flight, and what waited behind it.

use super::{Stored, on_stored_brokers};
use crate::support::memory_store::{Image, Memory};
use crate::support::{Connect, Kind, Message, Property, Publish, RawClient, V5, V311, Version};
use homing::config::Config;
use std::time::Duration;

fn message(n: usize) -> Message {
    Message::new("t", n.to_string()).qos(1 + (n % 2) as u8)
}

/// Each is committed when its publisher is answered, with the identifiers that it is sent under.
fn deliver(publisher: &mut RawClient, count: usize) {
    for n in 0..count {
        assert!(publisher.deliver(&message(n)) < 0x80);
    }
}

fn narrow(version: Version, window: u16) -> Connect {
    let connect = Connect::persistent(version, "s");
    if version == V5 { connect.with(Property::ReceiveMaximum(window)) } else { connect }
}

/// A session with so many messages, of which those were received that its window allows.
fn with_messages(
    stored: &Stored,
    connect: &Connect,
    count: usize,
    window: usize,
) -> (RawClient, Vec<Publish>) {
    let mut subscriber = stored.connect(connect);
    subscriber.subscribe(&[("t", 2)]);
    let mut publisher = stored.client(V5, "publisher");
    deliver(&mut publisher, count);
    let came = subscriber.expect_publishes(window.min(count));
    (subscriber, came)
}

fn after(image: Image, threads: u8) -> Stored {
    Stored::after_a_crash(image, threads, Duration::ZERO)
}

fn numbers(came: &[Publish]) -> Vec<usize> {
    came.iter().map(|p| p.text().parse().expect("a number")).collect()
}

fn what_was_in_flight_comes_again(version: Version) {
    for (first, second) in [(1, 1), (3, 1), (1, 3)] {
        let stored = Stored::new(first);
        let (_subscriber, before) = with_messages(&stored, &narrow(version, 5), 12, 5);
        let broker = after(stored.image(), second);
        let mut back = broker.connect(&narrow(version, 5));
        assert!(back.session_present());
        let again = back.expect_publishes(5);
        for (old, new) in before.iter().zip(&again) {
            assert_eq!((old.id, old.qos, &old.payload, true), (new.id, new.qos, &new.payload, new.dup));
        }
        // Then the queue, each message once.
        let mut all = numbers(&again);
        again.iter().for_each(|p| back.complete(p));
        while all.len() < 12 {
            let publish = back.expect_publish();
            back.complete(&publish);
            all.push(publish.text().parse().expect("a number"));
        }
        assert_eq!(all, (0..12).collect::<Vec<_>>());
        back.settle();
    }
}

// 3.1.1 [MQTT-4.4.0-1], [MQTT-4.6.0-1]
#[test]
fn v311_what_was_in_flight_comes_again_as_it_was_and_before_the_queue() {
    what_was_in_flight_comes_again(V311);
}

// 5.0 [MQTT-4.4.0-1], [MQTT-4.6.0-1]
#[test]
fn v5_what_was_in_flight_comes_again_as_it_was_and_before_the_queue() {
    what_was_in_flight_comes_again(V5);
}

// 5.0 [MQTT-4.3.3-6]
#[test]
fn v5_what_had_its_pubrec_is_released_and_not_published_again() {
    for (first, second) in [(1, 1), (3, 3), (3, 1)] {
        let stored = Stored::new(first);
        let (mut subscriber, before) = with_messages(&stored, &narrow(V5, 10), 4, 4);
        // Numbers 1 and 3 are QoS 2; in another order than they came.
        for at in [3, 1] {
            subscriber.ack(Kind::Pubrec, before[at].id);
            subscriber.expect_ack(Kind::Pubrel, before[at].id);
        }
        let broker = after(stored.image(), second);
        let mut back = broker.connect(&narrow(V5, 10));
        for _ in 0..2 {
            back.wait_for(Kind::Pubrel);
        }
        let again = back.drain();
        assert_eq!(numbers(&again), [0, 2]);
        for at in [3, 1] {
            back.ack(Kind::Pubcomp, before[at].id);
        }
        again.iter().for_each(|p| back.complete(p));
        back.settle();
        back.disconnect();
        broker.connect(&narrow(V5, 10)).settle();
    }
}

#[test]
fn what_was_acknowledged_does_not_come_again() {
    let stored = Stored::new(1);
    let (mut subscriber, before) = with_messages(&stored, &narrow(V5, 10), 6, 6);
    before.iter().take(3).for_each(|p| subscriber.complete(p));
    // Acknowledgements of QoS 1 are recorded lazily: behind them, something that is waited for.
    subscriber.subscribe(&[("other", 1)]);
    let broker = after(stored.image(), 1);
    assert_eq!(numbers(&broker.connect(&narrow(V5, 10)).drain()), [3, 4, 5]);
}

/// Longer than what is kept in memory and what is read back at once.
#[test]
fn a_long_queue_drains_in_order_after_a_restart_in_its_midst() {
    const COUNT: usize = 700;
    for (first, second) in [(1, 1), (3, 3), (1, 3)] {
        let stored = Stored::new(first);
        let mut subscriber = stored.persistent(V311, "s");
        subscriber.subscribe(&[("t", 2)]);
        subscriber.disconnect();
        let mut publisher = stored.client(V5, "publisher");
        deliver(&mut publisher, COUNT);
        let mut all = Vec::new();
        let mut image = stored.image();
        drop(stored);
        for until in [200, 450, COUNT] {
            let broker = after(image, second);
            let mut back = broker.persistent(V311, "s");
            while all.len() < until {
                let came = back.expect_publish();
                back.complete(&came);
                all.push(came.text().parse::<usize>().expect("a number"));
            }
            // As above.
            back.subscribe(&[("other", 1)]);
            image = broker.image();
        }
        assert_eq!(all, (0..COUNT).collect::<Vec<_>>());
    }
}

#[test]
fn a_message_for_many_sessions_is_there_for_each() {
    let stored = Stored::new(3);
    let names: Vec<String> = (0..30).map(|n| format!("s{n}")).collect();
    for name in &names {
        let mut subscriber = stored.persistent(V5, name);
        subscriber.subscribe(&[("t", 2)]);
        subscriber.disconnect();
    }
    let mut publisher = stored.persistent(V5, "publisher");
    deliver(&mut publisher, 4);
    let mut image = stored.image();
    // Bodies are shared within a shard: there are other shards each time.
    for threads in [1, 2, 3] {
        let broker = after(image, threads);
        for name in &names {
            let mut back = broker.persistent(V5, name);
            // Read back from the store, where they were not sent before.
            let came = back.expect_publishes(4);
            assert_eq!(numbers(&came), [0, 1, 2, 3], "{name} with {threads} threads");
            back.settle();
        }
        image = broker.image();
    }
}

/// A session of more shared messages than are kept in memory, which is away; who else there is in
/// its group.
fn with_a_long_share(stored: &Stored, count: usize) -> RawClient {
    let mut away = stored.persistent(V5, &stored.id("leaver", 0));
    away.subscribe(&[("$share/g/t", 2)]);
    away.disconnect();
    let mut publisher = stored.client(V5, "publisher");
    deliver(&mut publisher, count);
    let mut successor = stored.persistent(V5, &stored.id("successor", 1));
    successor.subscribe(&[("$share/g/t", 2)]);
    successor
}

fn take(successor: &mut RawClient, count: usize) -> Vec<usize> {
    let one = |_| {
        let came = successor.expect_publish();
        successor.complete(&came);
        came.text().parse().expect("a number")
    };
    (0..count).map(one).collect()
}

fn assert_all(mut came: Vec<usize>, count: usize) {
    came.sort_unstable();
    assert_eq!(came, (0..count).collect::<Vec<_>>());
}

/// Most of them are in the store alone.
// 5.0 section 4.8.2
#[test]
fn v5_a_long_queue_of_shared_messages_goes_to_another_member_when_its_session_ends() {
    const COUNT: usize = 300;
    on_stored_brokers(|stored| {
        let mut successor = with_a_long_share(stored, COUNT);
        stored.client(V5, &stored.id("leaver", 0)).disconnect();
        assert_all(take(&mut successor, COUNT), COUNT);
        successor.settle();
    });
}

#[test]
fn what_an_ended_session_left_to_its_group_survives_a_crash_before_it_was_read() {
    const COUNT: usize = 300;
    for (first, second) in [(1, 1), (3, 3), (3, 1), (1, 3)] {
        let stored = Stored::new(first);
        let mut successor = with_a_long_share(&stored, COUNT);
        // Nobody takes more than its window; the others wait in the queue of whom they were given
        // to, or are nobody's yet.
        stored.client(V5, &stored.id("leaver", 0)).disconnect();
        let mut all = take(&mut successor, 40);
        // Acknowledgements of QoS 1 are recorded lazily: behind them, something that is waited for.
        successor.subscribe(&[("other", 1)]);
        let broker = after(stored.image(), second);
        let mut back = broker.persistent(V5, &stored.id("successor", 1));
        all.extend(take(&mut back, COUNT - all.len()));
        back.settle();
        assert_all(all, COUNT);
    }
}

#[test]
fn a_queue_that_is_stored_has_the_bounds_of_the_store_and_one_in_memory_its_own() {
    let set = |config: &mut Config| {
        config.limits.queue_messages = 3;
        config.limits.in_flight = 1;
        config.store.queue_messages = 9;
    };
    let stored = Stored::configured(Memory::default(), 1, Duration::ZERO, set);
    let away = stored.durable(V311, "away");
    let id = stored.id("away", 1);
    let mut away = away;
    away.subscribe(&[("kept", 1)]);
    away.disconnect();
    // It is connected and takes nothing: one message is in flight, the others wait.
    let mut passing = stored.passing("deaf");
    passing.subscribe(&[("passing", 1)]);
    let mut publisher = stored.client(V5, "publisher");
    let mut taken = |topic: &str| {
        (0..12).filter(|n| publisher.deliver(&Message::new(topic, n.to_string()).qos(1)) < 0x80).count()
    };
    assert_eq!((taken("kept"), taken("passing")), (9, 1 + 3));
    let mut back = stored.persistent(V311, &id);
    for n in 0..9 {
        let came = back.expect_publish();
        assert_eq!(came.text(), n.to_string());
        back.complete(&came);
    }
}

#[test]
fn what_an_ended_session_left_waits_until_another_member_has_room() {
    const OWN: usize = 900;
    const SHARED: usize = 300;
    let limit = |config: &mut Config| config.store.queue_messages = 1_000;
    let stored = Stored::configured(Memory::default(), 1, Duration::ZERO, limit);
    let mut successor = with_a_long_share(&stored, SHARED);
    successor.subscribe(&[("own", 1)]);
    successor.disconnect();
    let mut publisher = stored.client(V5, "publisher of more");
    for n in 0..OWN {
        assert!(publisher.deliver(&Message::new("own", n.to_string()).qos(1)) < 0x80);
    }
    stored.client(V5, &stored.id("leaver", 0)).disconnect();
    let mut back = stored.persistent(V5, &stored.id("successor", 1));
    let (mut shared, mut own) = (Vec::new(), Vec::new());
    while shared.len() < SHARED {
        let came = back.expect_publish();
        back.complete(&came);
        let number = came.text().parse::<usize>().expect("a number");
        if came.topic == "t" { shared.push(number) } else { own.push(number) }
    }
    back.settle();
    assert_all(own, OWN);
    assert_all(shared, SHARED);
}
