//! Sessions: taken up, taken over, ended, and the queue that waits for an absent client.

use crate::support::client::Event;
use crate::support::launch::{TestBroker, on_one_and_three_threads, start_broker, versions};
use crate::support::{
    Connect, Kind, Message, PATIENCE, Packet, Property, RawClient, V5, V31, V311, Version, Will, now,
};
use homing::config::QueuePolicy;
use std::time::Duration;

const IDS: [&str; 6] = ["c0", "c1", "c2", "c3", "c4", "c5"];

/// 3.1 has no Session Present.
fn assert_present(client: &RawClient, present: bool) {
    assert_eq!(client.session_present(), present && client.version() != V31);
}

fn session_is_taken_up(version: Version) {
    on_one_and_three_threads(|broker| {
        for id in IDS {
            let mut client = broker.persistent(version, id);
            assert_present(&client, false);
            client.subscribe(&[("t", 1)]);
            client.disconnect();
            let mut client = broker.persistent(version, id);
            assert_present(&client, true);
            // The subscription is still there.
            broker.client(version, "p").deliver(&Message::new("t", id).qos(1));
            let publish = client.expect_publish();
            assert_eq!(publish.text(), id);
            client.complete(&publish);
            client.unsubscribe(&["t"]);
            client.disconnect();
        }
    });
}
// 3.1.1 [MQTT-3.1.2-4], [MQTT-3.2.2-2], [MQTT-3.2.2-3]; 5.0 [MQTT-3.1.2-5], [MQTT-3.1.2-6],
// [MQTT-3.2.2-3]
versions!(session_is_taken_up: v31, v311, v5);

fn clean_connect_discards_the_session(version: Version) {
    on_one_and_three_threads(|broker| {
        for id in IDS {
            let mut client = broker.persistent(version, id);
            client.subscribe(&[("t", 1)]);
            client.disconnect();
            broker.client(version, "p").deliver(&Message::new("t", "queued").qos(1));
            let mut client = broker.client(version, id);
            assert_present(&client, false);
            broker.client(version, "p").deliver(&Message::new("t", "live").qos(1));
            client.settle();
            client.disconnect();
            assert_present(&broker.persistent(version, id), false);
        }
    });
}
// 3.1.1 [MQTT-3.1.2-6], [MQTT-3.2.2-1], [MQTT-3.1.4-3]; 5.0 [MQTT-3.1.2-4], [MQTT-3.2.2-2],
// [MQTT-3.1.4-4]
versions!(clean_connect_discards_the_session: v31, v311, v5);

fn second_connection_takes_the_session_over(version: Version) {
    on_one_and_three_threads(|broker| {
        for id in IDS {
            let mut old = broker.persistent(version, id);
            old.subscribe(&[("t", 1)]);
            let mut new = broker.persistent(version, id);
            assert_present(&new, true);
            old.expect_disconnected(0x8E);
            broker.client(version, "p").deliver(&Message::new("t", id).qos(1));
            let publish = new.expect_publish();
            new.complete(&publish);
            new.unsubscribe(&["t"]);
            new.settle();
        }
    });
}
// 3.1.1 [MQTT-3.1.4-2]; 5.0 [MQTT-3.1.4-3]
versions!(second_connection_takes_the_session_over: v31, v311, v5);

fn clean_take_over_begins_afresh(version: Version) {
    on_one_and_three_threads(|broker| {
        for id in IDS {
            let mut old = broker.persistent(version, id);
            old.subscribe(&[("t", 1)]);
            let mut new = broker.client(version, id);
            assert_present(&new, false);
            old.expect_disconnected(0x8E);
            broker.client(version, "p").deliver(&Message::new("t", id).qos(1));
            new.settle();
        }
    });
}
// 3.1.1 [MQTT-3.1.4-2], [MQTT-3.1.2-6]; 5.0 [MQTT-3.1.4-3], [MQTT-3.1.2-4]
versions!(clean_take_over_begins_afresh: v311, v5);

/// A 3.1.1 session taken over by a 5.0 client, and the other way round, is one session.
#[test]
fn session_is_taken_over_between_versions() {
    on_one_and_three_threads(|broker| {
        let mut old = broker.persistent(V311, "c");
        old.subscribe(&[("t", 1)]);
        let mut new = broker.persistent(V5, "c");
        assert!(new.session_present());
        assert_eq!(old.expect_closed(), None);
        broker.client(V5, "p").deliver(&Message::new("t", "x").qos(1));
        let publish = new.expect_publish();
        new.complete(&publish);
        let back = broker.persistent(V311, "c");
        assert!(back.session_present());
        new.expect_disconnected(0x8E);
    });
}

// 5.0 [MQTT-3.1.4-3]
#[test]
fn v5_racing_connections_leave_exactly_one() {
    on_one_and_three_threads(|broker| {
        let mut racers: Vec<RawClient> = (0..12).map(|_| broker.open(V5)).collect();
        // Nobody waits for another: the accepting threads hand over while the session's own thread
        // is busy with the one before.
        for racer in &mut racers {
            racer.send(&Connect::persistent(V5, "one").encode());
        }
        // Once each has been answered all take-overs have been decided.
        for racer in &mut racers {
            racer.expect_connack();
        }
        let alive = racers.iter_mut().filter_map(|racer| answers_a_ping(racer).then_some(())).count();
        assert_eq!(alive, 1);
    });
}

fn answers_a_ping(client: &mut RawClient) -> bool {
    client.ping();
    loop {
        match client.next(now() + PATIENCE) {
            Event::Packet(Packet::Disconnect(disconnect)) => assert_eq!(disconnect.code, 0x8E),
            Event::Packet(Packet::Pingresp) => return true,
            Event::Closed => return false,
            other => panic!("{other:?}"),
        }
    }
}

fn absent_client_finds_its_messages_in_order(version: Version) {
    on_one_and_three_threads(|broker| {
        for id in IDS {
            let mut client = broker.persistent(version, id);
            client.subscribe(&[("q/#", 2)]);
            client.disconnect();
        }
        let mut publisher = broker.client(version, "p");
        for n in 0..30_u8 {
            publisher.deliver(&Message::new(format!("q/{}", n % 3), n.to_string()).qos(1 + n % 2));
        }
        for id in IDS {
            let mut client = broker.persistent(version, id);
            let mut last = [None; 2];
            for _ in 0..30 {
                let publish = client.expect_publish();
                let n: u8 = publish.text().parse().expect("a number");
                assert_eq!((publish.qos, publish.dup), (1 + n % 2, false));
                // Order holds per QoS.
                let last = &mut last[usize::from(n % 2)];
                assert!(last.is_none_or(|last| last < n), "{n} after {last:?}");
                *last = Some(n);
                client.complete(&publish);
            }
            client.settle();
        }
    });
}
// 3.1.1 [MQTT-3.1.2-5], [MQTT-4.6.0-6]; 5.0 [MQTT-4.1.0-1], [MQTT-4.6.0-5]
versions!(absent_client_finds_its_messages_in_order: v31, v311, v5);

fn queued_messages_come_before_new_ones(version: Version) {
    let broker = start_broker(|config| config.limits.in_flight = 5);
    let mut client = broker.persistent(version, "c");
    client.subscribe(&[("t", 1)]);
    client.disconnect();
    let mut publisher = broker.client(version, "p");
    for n in 0..20 {
        publisher.deliver(&Message::new("t", n.to_string()).qos(1));
    }
    let mut client = broker.persistent(version, "c");
    for n in 20..40 {
        publisher.deliver(&Message::new("t", n.to_string()).qos(1));
    }
    for n in 0..40 {
        let publish = client.expect_publish();
        assert_eq!(publish.text(), n.to_string());
        client.complete(&publish);
    }
}
// 3.1.1 [MQTT-4.6.0-6]; 5.0 [MQTT-4.6.0-5]
versions!(queued_messages_come_before_new_ones: v311, v5);

/// A broker whose queues hold five messages, and an absent client that wants `t`.
fn five_and_an_absentee(version: Version, policy: QueuePolicy) -> TestBroker {
    let broker = start_broker(|config| {
        config.limits.queue_messages = 5;
        config.limits.queue_policy = policy;
    });
    let mut absentee = broker.persistent(version, "absentee");
    absentee.subscribe(&[("t", 1)]);
    absentee.disconnect();
    broker
}

fn texts_for_the_absentee(broker: &TestBroker, version: Version) -> Vec<String> {
    let mut absentee = broker.persistent(version, "absentee");
    absentee.drain().iter().map(|publish| publish.text().to_owned()).collect()
}

#[test]
fn v5_full_queue_refuses_and_tells_the_publisher_where_nobody_took_it() {
    let broker = five_and_an_absentee(V5, QueuePolicy::Refuse);
    let mut publisher = broker.client(V5, "p");
    for (n, qos) in (0..8).zip([1, 2, 1, 2, 1, 1, 2, 1]) {
        let code = publisher.deliver(&Message::new("t", n.to_string()).qos(qos));
        assert_eq!(code, if n < 5 { 0 } else { 0x97 }, "message {n}");
    }
    let mut witness = broker.client(V5, "witness");
    witness.subscribe(&[("t", 0)]);
    assert_eq!(publisher.deliver(&Message::new("t", "taken by another").qos(1)), 0);
    assert_eq!(witness.expect_publish().text(), "taken by another");
    assert_eq!(texts_for_the_absentee(&broker, V5), ["0", "1", "2", "3", "4"]);
}

#[test]
fn v311_full_queue_refuses_and_acknowledges() {
    let broker = five_and_an_absentee(V311, QueuePolicy::Refuse);
    let mut publisher = broker.client(V311, "p");
    for n in 0..8 {
        publisher.deliver(&Message::new("t", n.to_string()).qos(1));
    }
    assert_eq!(texts_for_the_absentee(&broker, V311), ["0", "1", "2", "3", "4"]);
}

fn full_queue_drops_the_oldest_where_configured(version: Version) {
    let broker = five_and_an_absentee(version, QueuePolicy::DropOldest);
    let mut publisher = broker.client(version, "p");
    for n in 0..8 {
        assert_eq!(publisher.deliver(&Message::new("t", n.to_string()).qos(1)), 0);
    }
    assert_eq!(texts_for_the_absentee(&broker, version), ["3", "4", "5", "6", "7"]);
}
versions!(full_queue_drops_the_oldest_where_configured: v311, v5);

fn full_queue_disconnects_the_receiver_where_configured(version: Version) {
    let broker = start_broker(|config| {
        config.limits.queue_messages = 3;
        config.limits.in_flight = 2;
        config.limits.queue_policy = QueuePolicy::Disconnect;
    });
    let mut slow = broker.persistent(version, "slow");
    slow.subscribe(&[("t", 1)]);
    let mut publisher = broker.client(version, "p");
    for n in 0..6 {
        publisher.deliver(&Message::new("t", n.to_string()).qos(1));
    }
    slow.expect_publishes(2);
    slow.expect_disconnected(0x97);
    let mut slow = broker.persistent(version, "slow");
    for n in 0..5 {
        let publish = slow.expect_publish();
        assert_eq!(publish.text(), n.to_string());
        slow.complete(&publish);
    }
}
versions!(full_queue_disconnects_the_receiver_where_configured: v311, v5);

fn full_queue_holds_the_publisher_where_configured(version: Version) {
    let broker = start_broker(|config| {
        config.limits.queue_messages = 2;
        config.limits.in_flight = 1;
        config.limits.queue_policy = QueuePolicy::Hold;
    });
    let mut slow = broker.client(version, "slow");
    slow.subscribe(&[("t", 1)]);
    let mut publisher = broker.client(version, "p");
    for n in 0..3 {
        publisher.deliver(&Message::new("t", n.to_string()).qos(1));
    }
    let held = publisher.publish(&Message::new("t", "3").qos(1));
    publisher.settle();
    let first = slow.expect_publish();
    slow.complete(&first);
    publisher.expect_ack(Kind::Puback, held);
    for n in 1..4 {
        let publish = slow.expect_publish();
        assert_eq!(publish.text(), n.to_string());
        slow.complete(&publish);
    }
}
versions!(full_queue_holds_the_publisher_where_configured: v311, v5);

#[test]
fn v5_held_publisher_is_refused_when_its_time_is_up() {
    let broker = start_broker(|config| {
        config.limits.queue_messages = 1;
        config.limits.queue_policy = QueuePolicy::Hold;
        config.limits.hold_timeout = Duration::from_millis(500);
    });
    let mut absentee = broker.persistent(V5, "absentee");
    absentee.subscribe(&[("t", 1)]);
    absentee.disconnect();
    let mut publisher = broker.client(V5, "p");
    assert_eq!(publisher.deliver(&Message::new("t", "0").qos(1)), 0);
    let sent = now();
    assert_eq!(publisher.deliver(&Message::new("t", "1").qos(1)), 0x97);
    assert!(sent.elapsed() >= Duration::from_millis(495), "{:?}", sent.elapsed());
}

fn queue_is_bounded_in_bytes(version: Version) {
    let broker = start_broker(|config| config.limits.queue_bytes = "8 KiB".parse().expect("a size"));
    let mut absentee = broker.persistent(version, "absentee");
    absentee.subscribe(&[("t", 1)]);
    absentee.disconnect();
    let mut publisher = broker.client(version, "p");
    for _ in 0..20 {
        publisher.deliver(&Message::new("t", [b'x'; 1024]).qos(1));
    }
    let kept = texts_for_the_absentee(&broker, version).len();
    // Each message is charged its body and something for what surrounds it.
    assert!((4..=8).contains(&kept), "{kept}");
}
versions!(queue_is_bounded_in_bytes: v311, v5);

/// The end of a session is seen from outside by its will, which goes out then if its delay is
/// longer.
fn will_at_session_end(connect: Connect) -> Connect {
    connect.will(Will::new("session/end", "").with(Property::WillDelay(60)))
}

const TOLERANCE: Duration = Duration::from_millis(750);

// 5.0 [MQTT-4.1.0-2]
#[test]
fn v5_session_ends_when_its_expiry_has_run_out() {
    on_one_and_three_threads(|broker| {
        let mut observer = broker.client(V5, "observer");
        observer.subscribe(&[("session/end", 0)]);
        let connect = Connect::new(V5, "c").clean(false).with(Property::SessionExpiry(1));
        // Within its time it is there, and the time begins anew at each end of a connection.
        broker.connect(&connect).disconnect();
        assert!(broker.connect(&connect).session_present());
        let client = broker.connect(&will_at_session_end(connect.clone()));
        assert!(client.session_present());
        let left = now();
        client.vanish();
        let ended = observer.expect_publish().at - left;
        assert!(ended >= Duration::from_millis(995), "early: {ended:?}");
        assert!(ended <= Duration::from_millis(1250) + TOLERANCE, "late: {ended:?}");
        assert!(!broker.connect(&connect).session_present());
    });
}

fn session_is_kept_as_long_as_the_operator_lets_it(version: Version) {
    let broker = start_broker(|config| config.limits.session_expiry = Duration::from_secs(1));
    broker.persistent(version, "c").disconnect();
    let back = broker.persistent(version, "c");
    assert!(back.session_present());
    back.disconnect();
    let mut witness = broker.client(version, "witness");
    witness.expect_nothing_for(Duration::from_millis(1250) + TOLERANCE);
    assert!(!broker.persistent(version, "c").session_present());
}
versions!(session_is_kept_as_long_as_the_operator_lets_it: v311, v5);

// 5.0 [MQTT-3.14.4-3]; section 3.14.2.2.2 speaks of the interval in CONNECT.
#[test]
fn v5_disconnect_may_name_an_expiry_that_connect_asked_for_in_vain() {
    let broker = start_broker(|config| config.limits.session_expiry = Duration::ZERO);
    let mut observer = broker.client(V5, "observer");
    observer.subscribe(&[("gone", 1)]);
    let connect = Connect::new(V5, "c").will(Will::new("gone", "").qos(1));
    let mut client = broker.connect(&connect.clone().with(Property::SessionExpiry(100)));
    client.send(&[0xE0, 7, 0, 5, 0x11, 0, 0, 0, 50]);
    assert_eq!(client.expect_closed(), None);
    observer.settle();
    assert!(!broker.persistent(V5, "c").session_present(), "the operator keeps no session");
    // A CONNECT that asks for no session cannot change its mind.
    for connect in [connect.clone(), connect.with(Property::SessionExpiry(0))] {
        let mut client = broker.connect(&connect);
        client.send(&[0xE0, 7, 0, 5, 0x11, 0, 0, 0, 50]);
        assert_eq!(client.expect_closed(), Some(0x82));
        let publish = observer.expect_publish();
        observer.complete(&publish);
    }
}
