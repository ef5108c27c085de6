//! Redelivery: live and timed in 3.1 and 3.1.1, at reconnect alone in 5.0.
//!
//! Times are bounded from both sides by what can be known outside: a resend may not come earlier
//! than its spacing after the message was *published*, nor later than the spacing, one expiry tick
//! and a tolerance after the last *arrived*.

use crate::support::launch::{
    TestBroker, on_configured_threads, on_one_and_three_threads, start_broker, versions,
};
use crate::support::{Connect, Kind, Message, Packet, Property, Publish, RawClient, V5, V311, Version, now};
use homing::config::{Config, OnExhausted, RedeliveryRule};
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_secs(1);
const BUCKET: Duration = Duration::from_millis(250);
/// Lateness that a busy machine may add.
const TOLERANCE: Duration = Duration::from_millis(500);
/// The broker counts whole milliseconds.
const GRANULARITY: Duration = Duration::from_millis(5);

fn every_second(config: &mut Config) {
    config.redelivery.interval = INTERVAL;
    config.redelivery.max_backoff = Duration::from_secs(60);
    config.redelivery.backoff = 1.0;
    config.redelivery.jitter = 0.0;
    config.redelivery.attempts = 0;
}

/// `times` spacings have passed since `published`, and one since `last` arrived.
fn assert_in_time(arrived: Instant, published: Instant, times: u32, last: Instant, spacing: Duration) {
    let since_published = arrived - published;
    assert!(
        since_published + GRANULARITY >= spacing * times,
        "early: resend {times} after {since_published:?}"
    );
    let since_last = arrived - last;
    assert!(since_last <= spacing + BUCKET + TOLERANCE, "late: resend {times} after {since_last:?}");
}

fn assert_again(first: &Publish, again: &Publish) {
    assert!(again.dup, "{again:?}");
    assert_eq!(
        (again.id, again.qos, again.retain, &again.topic, &again.payload),
        (first.id, first.qos, first.retain, &first.topic, &first.payload)
    );
}

fn unacknowledged_publish_comes_again_with_dup_at_the_interval(version: Version) {
    on_configured_threads(every_second, |broker| {
        let mut publisher = broker.client(version, "p");
        for qos in [1, 2] {
            let mut subscriber = broker.client(version, "s");
            subscriber.subscribe(&[("t", qos)]);
            let published = now();
            publisher.deliver(&Message::new("t", "x").qos(qos));
            let first = subscriber.expect_publish();
            assert!(!first.dup);
            let mut last = first.at;
            for times in 1..=3 {
                let again = subscriber.expect_publish();
                assert_again(&first, &again);
                assert_in_time(again.at, published, times, last, INTERVAL);
                last = again.at;
            }
            subscriber.complete(&first);
            subscriber.expect_nothing_for(INTERVAL + BUCKET + TOLERANCE);
            subscriber.settle();
        }
    });
}
// 3.1.1 [MQTT-3.3.1-1]
versions!(unacknowledged_publish_comes_again_with_dup_at_the_interval: v31, v311);

// 5.0 [MQTT-4.4.0-1]
#[test]
fn v5_unacknowledged_publish_and_pubrel_never_come_again_on_a_live_connection() {
    on_configured_threads(every_second, |broker| {
        // The positive control: under the same settings 3.1.1 is resent to.
        let mut older = broker.client(V311, "older");
        older.subscribe(&[("t", 1)]);
        let mut subscriber = broker.persistent(V5, "s");
        subscriber.subscribe(&[("t", 2)]);
        let mut publisher = broker.client(V5, "p");
        publisher.deliver(&Message::new("t", "one").qos(1));
        publisher.deliver(&Message::new("t", "two").qos(2));
        publisher.deliver(&Message::new("t", "three").qos(2));
        let held = subscriber.expect_publishes(3);
        subscriber.ack(Kind::Pubrec, held[2].id);
        subscriber.expect_ack(Kind::Pubrel, held[2].id);
        for _ in 0..3 {
            older.expect_publishes(3);
        }
        subscriber.settle();
    });
}

fn resent_publishes_keep_their_order(version: Version) {
    on_configured_threads(every_second, |broker| {
        let mut subscriber = broker.client(version, "s");
        subscriber.subscribe(&[("t", 2)]);
        let mut publisher = broker.client(version, "p");
        for n in 0..10_u8 {
            publisher.deliver(&Message::new("t", n.to_string()).qos(1 + n % 2));
        }
        let mut waiting = subscriber.expect_publishes(10);
        for _ in 0..2 {
            for first in &waiting {
                assert_again(first, &subscriber.expect_publish());
            }
        }
        // The others keep their order when some have been acknowledged.
        for acknowledged in [7, 4, 0] {
            let publish = waiting.remove(acknowledged);
            subscriber.complete(&publish);
        }
        for first in &waiting {
            assert_again(first, &subscriber.expect_publish());
        }
    });
}
// 3.1.1 [MQTT-4.6.0-1], [MQTT-4.6.0-6]
versions!(resent_publishes_keep_their_order: v31, v311);

fn younger_publish_is_never_resent_before_an_older(version: Version) {
    let broker = start_broker(every_second);
    let mut subscriber = broker.client(version, "s");
    subscriber.subscribe(&[("t", 1)]);
    let mut publisher = broker.client(version, "p");
    for n in 0..4 {
        publisher.deliver(&Message::new("t", n.to_string()).qos(1));
        subscriber.expect_publish();
        // Their deadlines lie apart, in different buckets.
        publisher.expect_nothing_for(Duration::from_millis(300));
    }
    let mut resent = [0_u32; 4];
    for _ in 0..12 {
        let again = subscriber.expect_publish();
        let n: usize = again.text().parse().expect("a number");
        resent[n] += 1;
        assert!(resent[..n].iter().all(|older| *older >= resent[n]), "{n} overtakes: {resent:?}");
    }
}
// 3.1.1 [MQTT-4.6.0-1]
versions!(younger_publish_is_never_resent_before_an_older: v31, v311);

fn pubrel_comes_again_and_publish_never_after_pubrec(version: Version) {
    on_configured_threads(every_second, |broker| {
        let mut subscriber = broker.client(version, "s");
        subscriber.subscribe(&[("t", 2)]);
        let mut publisher = broker.client(version, "p");
        for n in 0..3 {
            publisher.deliver(&Message::new("t", n.to_string()).qos(2));
        }
        let mut ids: Vec<u16> = subscriber.expect_publishes(3).iter().map(|publish| publish.id).collect();
        ids.rotate_left(1);
        let answered = now();
        ids.iter().for_each(|id| subscriber.ack(Kind::Pubrec, *id));
        let mut last: Vec<Instant> =
            ids.iter().map(|id| subscriber.expect_ack(Kind::Pubrel, *id).at).collect();
        // In the order of the PUBRECs; the raw client holds the flags to 0010.
        for times in 1..=2 {
            for (id, last) in ids.iter().zip(&mut last) {
                let again = subscriber.expect_ack(Kind::Pubrel, *id);
                assert_in_time(again.at, answered, times, *last, INTERVAL);
                *last = again.at;
            }
        }
        ids.iter().for_each(|id| subscriber.ack(Kind::Pubcomp, *id));
        subscriber.expect_nothing_for(INTERVAL + BUCKET + TOLERANCE);
        subscriber.settle();
    });
}
// 3.1.1 [MQTT-4.3.3-1], [MQTT-4.6.0-4], [MQTT-3.6.1-1]
versions!(pubrel_comes_again_and_publish_never_after_pubrec: v31, v311);

fn spacing_of_resends_grows_up_to_its_cap(version: Version) {
    let broker = start_broker(|config| {
        every_second(config);
        config.redelivery.interval = Duration::from_millis(500);
        config.redelivery.backoff = 2.0;
        config.redelivery.max_backoff = Duration::from_millis(1500);
    });
    let mut subscriber = broker.client(version, "s");
    subscriber.subscribe(&[("t", 1)]);
    let published = now();
    broker.client(version, "p").deliver(&Message::new("t", "x").qos(1));
    let first = subscriber.expect_publish();
    let (mut last, mut due) = (first.at, Duration::ZERO);
    for spacing in [500, 1000, 1500, 1500].map(Duration::from_millis) {
        let again = subscriber.expect_publish();
        assert_again(&first, &again);
        due += spacing;
        assert!(again.at - published + GRANULARITY >= due, "early: {:?} of {due:?}", again.at - published);
        assert!(
            again.at - last <= spacing + BUCKET + TOLERANCE,
            "late: {:?} of {spacing:?}",
            again.at - last
        );
        last = again.at;
    }
}
versions!(spacing_of_resends_grows_up_to_its_cap: v31, v311);

fn jitter_only_adds(version: Version) {
    let broker = start_broker(|config| {
        every_second(config);
        config.redelivery.interval = Duration::from_millis(500);
        config.redelivery.jitter = 1.0;
    });
    let mut subscriber = broker.client(version, "s");
    subscriber.subscribe(&[("t", 1)]);
    let published = now();
    broker.client(version, "p").deliver(&Message::new("t", "x").qos(1));
    let mut last = subscriber.expect_publish().at;
    for times in 1..=4 {
        let again = subscriber.expect_publish();
        assert!(again.at - published + GRANULARITY >= Duration::from_millis(500) * times);
        assert!(again.at - last <= Duration::from_secs(1) + BUCKET + TOLERANCE);
        last = again.at;
    }
}
versions!(jitter_only_adds: v31, v311);

fn two_attempts(config: &mut Config) {
    every_second(config);
    config.redelivery.interval = Duration::from_millis(500);
    config.redelivery.attempts = 2;
}

fn used_up_attempts_disconnect_a_client_whose_session_stays(version: Version) {
    on_configured_threads(two_attempts, |broker| {
        let mut subscriber = broker.persistent(version, "s");
        subscriber.subscribe(&[("t", 1)]);
        let mut publisher = broker.client(version, "p");
        publisher.deliver(&Message::new("t", "one").qos(1));
        publisher.deliver(&Message::new("t", "two").qos(1));
        let first = subscriber.expect_publishes(2);
        for _ in 0..2 {
            for first in &first {
                assert_again(first, &subscriber.expect_publish());
            }
        }
        subscriber.expect_closed();
        // Not dropped: it is there at the return, and the count begins anew.
        let mut subscriber = broker.persistent(version, "s");
        for first in &first {
            assert_again(first, &subscriber.expect_publish());
        }
        for first in &first {
            let again = subscriber.expect_publish();
            assert_again(first, &again);
            subscriber.complete(&again);
        }
        subscriber.settle();
    });
}
// 3.1.1 [MQTT-4.4.0-1]
versions!(used_up_attempts_disconnect_a_client_whose_session_stays: v31, v311);

fn used_up_attempts_go_on_where_the_session_would_end(version: Version) {
    let broker = start_broker(|config| {
        two_attempts(config);
        config.redelivery.max_backoff = Duration::from_millis(500);
    });
    let mut subscriber = broker.client(version, "s");
    subscriber.subscribe(&[("t", 1)]);
    broker.client(version, "p").deliver(&Message::new("t", "x").qos(1));
    let first = subscriber.expect_publish();
    for _ in 0..5 {
        assert_again(&first, &subscriber.expect_publish());
    }
    subscriber.complete(&first);
    subscriber.settle();
}
versions!(used_up_attempts_go_on_where_the_session_would_end: v31, v311);

fn used_up_attempts_go_on_where_configured(version: Version) {
    let broker = start_broker(|config| {
        two_attempts(config);
        config.redelivery.max_backoff = Duration::from_millis(500);
        config.redelivery.on_exhausted = OnExhausted::Keep;
    });
    let mut subscriber = broker.persistent(version, "s");
    subscriber.subscribe(&[("t", 1)]);
    broker.client(version, "p").deliver(&Message::new("t", "x").qos(1));
    let first = subscriber.expect_publish();
    for _ in 0..5 {
        assert_again(&first, &subscriber.expect_publish());
    }
}
versions!(used_up_attempts_go_on_where_configured: v311);

fn interval_zero_turns_live_redelivery_off(version: Version) {
    let broker = start_broker(|config| {
        every_second(config);
        config.redelivery.interval = Duration::ZERO;
        let on =
            RedeliveryRule { topic: Some("u".to_owned()), interval: Some(INTERVAL), ..Default::default() };
        config.redelivery.rules = vec![on];
    });
    let mut subscriber = broker.persistent(version, "s");
    let mut resent_to = broker.client(version, "resent to");
    let mut publisher = broker.client(version, "p");
    for (client, topic) in [(&mut subscriber, "t"), (&mut resent_to, "u")] {
        client.subscribe(&[(topic, 1)]);
        publisher.deliver(&Message::new(topic, "x").qos(1));
    }
    let first = subscriber.expect_publish();
    // The positive control: a message to a topic whose rule sets an interval comes three times.
    resent_to.expect_publishes(3);
    subscriber.settle();
    subscriber.vanish();
    assert_again(&first, &broker.persistent(version, "s").expect_publish());
}
versions!(interval_zero_turns_live_redelivery_off: v311);

/// The clock of a resend counts only while the peer's kernel has the packet: what is still on its
/// way is not resent, however long that takes.
fn what_the_peer_has_not_got_is_not_resent(version: Version) {
    let broker = start_broker(every_second);
    let mut slow = broker.open(version);
    socket2::SockRef::from(slow.stream()).set_recv_buffer_size(64 * 1024).expect("SO_RCVBUF");
    slow.send(&Connect::new(version, "slow").encode());
    slow.expect_connack();
    slow.subscribe(&[("t", 1)]);
    let mut publisher = broker.client(version, "p");
    // No message fits the receive buffer whole.
    let payload = vec![b'x'; 900_000];
    for _ in 0..5 {
        publisher.deliver(&Message::new("t", &payload).qos(1));
    }
    publisher.expect_nothing_for(INTERVAL * 3);
    for _ in 0..5 {
        let publish = slow.expect_publish();
        assert!(!publish.dup, "{} was resent before it had arrived", publish.id);
        slow.complete(&publish);
    }
    // The positive control: what it has got and does not acknowledge comes again.
    publisher.deliver(&Message::new("t", "x").qos(1));
    let first = slow.expect_publish();
    assert_again(&first, &slow.expect_publish());
}
versions!(what_the_peer_has_not_got_is_not_resent: v31, v311);

/// A session with QoS 1 and 2 in every state, at its return.
fn reconnect_restores_what_was_in_flight(version: Version) {
    on_one_and_three_threads(|broker| {
        for id in ["s0", "s1", "s2", "s3"] {
            let mut subscriber = broker.persistent(version, id);
            subscriber.subscribe(&[("t", 2)]);
            let mut publisher = broker.client(version, "p");
            for n in 0..8_u8 {
                publisher.deliver(&Message::new("t", n.to_string()).qos(1 + n % 2));
            }
            let first = subscriber.expect_publishes(8);
            // 0 and 3 are finished; 1 and 5 have been released in the other order; the others are
            // untouched.
            subscriber.complete(&first[0]);
            subscriber.complete(&first[3]);
            for released in [5, 1] {
                subscriber.ack(Kind::Pubrec, first[released].id);
                subscriber.expect_ack(Kind::Pubrel, first[released].id);
            }
            subscriber.vanish();
            publisher.deliver(&Message::new("t", "new").qos(1));

            let mut subscriber = broker.persistent(version, id);
            let (mut publishes, mut pubrels) = (Vec::new(), Vec::new());
            while publishes.len() + pubrels.len() < 7 {
                match subscriber.receive() {
                    Packet::Publish(publish) => publishes.push(publish),
                    Packet::Ack(ack) => pubrels.push(ack.id),
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(pubrels, [first[5].id, first[1].id]);
            for (first, again) in [2, 4, 6, 7].map(|n| &first[n]).into_iter().zip(&publishes) {
                assert_again(first, again);
            }
            assert_eq!((publishes[4].text(), publishes[4].dup), ("new", false));
            pubrels.iter().for_each(|id| subscriber.ack(Kind::Pubcomp, *id));
            publishes.iter().for_each(|publish| subscriber.complete(publish));
            subscriber.settle();
            subscriber.unsubscribe(&["t"]);
        }
    });
}
// 3.1.1 [MQTT-4.4.0-1], [MQTT-3.3.1-1], [MQTT-4.6.0-1], [MQTT-4.6.0-4]; 5.0 [MQTT-4.4.0-1],
// [MQTT-3.3.1-1], [MQTT-4.3.3-6]
versions!(reconnect_restores_what_was_in_flight: v31, v311, v5);

fn take_over_restores_what_was_in_flight(version: Version) {
    on_one_and_three_threads(|broker| {
        let mut old = broker.persistent(version, "s");
        old.subscribe(&[("t", 2)]);
        let mut publisher = broker.client(version, "p");
        for qos in [1, 2] {
            publisher.deliver(&Message::new("t", "x").qos(qos));
        }
        let first = old.expect_publishes(2);
        let mut new = broker.persistent(version, "s");
        for first in &first {
            assert_again(first, &new.expect_publish());
        }
        old.expect_disconnected(0x8E);
    });
}
// 3.1.1 [MQTT-4.4.0-1]; 5.0 [MQTT-4.4.0-1]
versions!(take_over_restores_what_was_in_flight: v31, v311, v5);

fn with_receive_maximum(broker: &TestBroker, maximum: u16) -> RawClient {
    broker.connect(&Connect::persistent(V5, "s").with(Property::ReceiveMaximum(maximum)))
}

// 5.0 [MQTT-4.4.0-1], [MQTT-3.3.4-9]
#[test]
fn v5_reconnect_keeps_to_the_new_receive_maximum() {
    on_one_and_three_threads(|broker| {
        let mut subscriber = with_receive_maximum(broker, 10);
        subscriber.subscribe(&[("t", 2)]);
        let mut publisher = broker.client(V5, "p");
        for n in 0..8_u8 {
            publisher.deliver(&Message::new("t", n.to_string()).qos(1 + n % 2));
        }
        let first = subscriber.expect_publishes(8);
        subscriber.ack(Kind::Pubrec, first[1].id);
        subscriber.expect_ack(Kind::Pubrel, first[1].id);
        subscriber.vanish();
        publisher.deliver(&Message::new("t", "new").qos(1));

        let mut subscriber = with_receive_maximum(broker, 2);
        // The PUBREL stands outside the quota.
        subscriber.wait_for(Kind::Pubrel);
        subscriber.ack(Kind::Pubcomp, first[1].id);
        let mut waiting = subscriber.drain();
        assert_eq!(waiting.len(), 2, "{waiting:?}");
        let mut again = Vec::new();
        while !waiting.is_empty() {
            let publish = waiting.remove(0);
            subscriber.complete(&publish);
            again.push(publish);
            waiting.extend(subscriber.drain());
            assert!(waiting.len() <= 2, "{waiting:?}");
        }
        for (first, again) in [0, 2, 3, 4, 5, 6, 7].map(|n| &first[n]).into_iter().zip(&again) {
            assert_again(first, again);
        }
        assert_eq!((again.len(), again[7].text(), again[7].dup), (8, "new", false));
    });
}

// 5.0 [MQTT-3.1.2-25]
#[test]
fn v5_reconnect_gives_up_what_exceeds_the_new_maximum_packet_size() {
    on_one_and_three_threads(|broker| {
        let mut subscriber = broker.persistent(V5, "s");
        subscriber.subscribe(&[("t", 2)]);
        let mut publisher = broker.client(V5, "p");
        for (payload, qos) in
            [("x".repeat(200), 1), ("small".to_owned(), 1), ("y".repeat(200), 2), ("tiny".to_owned(), 2)]
        {
            publisher.deliver(&Message::new("t", payload).qos(qos));
        }
        let first = subscriber.expect_publishes(4);
        subscriber.vanish();
        let mut subscriber =
            broker.connect(&Connect::persistent(V5, "s").with(Property::MaximumPacketSize(100)));
        for first in [&first[1], &first[3]] {
            let again = subscriber.expect_publish();
            assert_again(first, &again);
            subscriber.complete(&again);
        }
        subscriber.settle();
    });
}

fn what_was_acknowledged_is_not_sent_again(version: Version) {
    let broker = start_broker(every_second);
    let mut subscriber = broker.persistent(version, "s");
    subscriber.subscribe(&[("t", 1)]);
    broker.client(version, "p").deliver(&Message::new("t", "x").qos(1));
    let first = subscriber.expect_publish();
    subscriber.vanish();
    let mut subscriber = broker.persistent(version, "s");
    assert_again(&first, &subscriber.expect_publish());
    subscriber.complete(&first);
    subscriber.settle();
    subscriber.vanish();
    broker.persistent(version, "s").settle();
}
// 3.1.1 [MQTT-4.3.2-1]; 5.0 [MQTT-4.3.2-3]
versions!(what_was_acknowledged_is_not_sent_again: v31, v311, v5);
