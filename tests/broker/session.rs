//! Sessions: taken up, taken over, ended, and the queue that waits for an absent client.

use crate::support::client::Event;
use crate::support::launch::{TestBroker, default_broker, on_one_and_three_arbiters, start_broker, versions};
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
    on_one_and_three_arbiters(|broker| {
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
versions!(session_is_taken_up {
    mqtt31_session_is_taken_up: V31,
    mqtt311_3_1_2_4_3_2_2_2_3_2_2_3_session_is_taken_up: V311,
    mqtt5_3_1_2_5_3_1_2_6_3_2_2_3_session_is_taken_up: V5,
});

fn clean_connect_discards_the_session(version: Version) {
    on_one_and_three_arbiters(|broker| {
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
versions!(clean_connect_discards_the_session {
    mqtt31_clean_connect_discards_the_session: V31,
    mqtt311_3_1_2_6_3_2_2_1_3_1_4_3_clean_connect_discards_the_session: V311,
    mqtt5_3_1_2_4_3_2_2_2_3_1_4_4_clean_connect_discards_the_session: V5,
});

#[test]
fn mqtt5_3_1_2_23_clean_start_with_an_expiry_opens_a_session_that_stays() {
    let broker = default_broker();
    broker.connect(&Connect::persistent(V5, "c").clean(true)).disconnect();
    assert!(broker.persistent(V5, "c").session_present());
}

#[test]
fn mqtt5_3_1_2_23_absent_expiry_ends_the_session_with_its_connection() {
    let broker = default_broker();
    broker.connect(&Connect::new(V5, "c").clean(false)).disconnect();
    assert!(!broker.persistent(V5, "c").session_present());
}

fn other_client_identifiers_find_no_session(version: Version) {
    on_one_and_three_arbiters(|broker| {
        broker.persistent(version, "id").disconnect();
        for other in ["ID", "id ", "i", "idd"] {
            assert_present(&broker.persistent(version, other), false);
        }
        assert_present(&broker.persistent(version, "id"), true);
    });
}
versions!(other_client_identifiers_find_no_session {
    mqtt311_3_1_3_2_other_client_identifiers_find_no_session: V311,
    mqtt5_3_1_3_2_other_client_identifiers_find_no_session: V5,
});

fn second_connection_takes_the_session_over(version: Version) {
    on_one_and_three_arbiters(|broker| {
        for id in IDS {
            let mut old = broker.persistent(version, id);
            old.subscribe(&[("t", 1)]);
            let mut new = broker.persistent(version, id);
            assert_present(&new, true);
            old.expect_cut(0x8E);
            broker.client(version, "p").deliver(&Message::new("t", id).qos(1));
            let publish = new.expect_publish();
            new.complete(&publish);
            new.unsubscribe(&["t"]);
            new.settle();
        }
    });
}
versions!(second_connection_takes_the_session_over {
    mqtt31_second_connection_takes_the_session_over: V31,
    mqtt311_3_1_4_2_second_connection_takes_the_session_over: V311,
    mqtt5_3_1_4_3_second_connection_takes_the_session_over: V5,
});

fn clean_connection_takes_the_identifier_over_without_the_session(version: Version) {
    on_one_and_three_arbiters(|broker| {
        for id in IDS {
            let mut old = broker.persistent(version, id);
            old.subscribe(&[("t", 1)]);
            let mut new = broker.client(version, id);
            assert_present(&new, false);
            old.expect_cut(0x8E);
            broker.client(version, "p").deliver(&Message::new("t", id).qos(1));
            new.settle();
        }
    });
}
versions!(clean_connection_takes_the_identifier_over_without_the_session {
    mqtt311_3_1_4_2_3_1_2_6_clean_take_over_begins_afresh: V311,
    mqtt5_3_1_4_3_3_1_2_4_clean_take_over_begins_afresh: V5,
});

/// A 3.1.1 session taken over by a 5.0 client, and the other way round, is one session.
#[test]
fn session_is_taken_over_between_versions() {
    on_one_and_three_arbiters(|broker| {
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
        new.expect_cut(0x8E);
    });
}

#[test]
fn mqtt5_3_1_4_3_racing_connections_leave_exactly_one() {
    on_one_and_three_arbiters(|broker| {
        let mut racers: Vec<RawClient> = (0..12).map(|_| broker.open(V5)).collect();
        // Nobody waits for another: accepting arbiters hand over while the home one is busy with the last.
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
    on_one_and_three_arbiters(|broker| {
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
versions!(absent_client_finds_its_messages_in_order {
    mqtt31_absent_client_finds_its_messages_in_order: V31,
    mqtt311_3_1_2_5_4_6_0_6_absent_client_finds_its_messages_in_order: V311,
    mqtt5_4_1_0_1_4_6_0_5_absent_client_finds_its_messages_in_order: V5,
});

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
versions!(queued_messages_come_before_new_ones {
    mqtt311_4_6_0_6_queued_messages_come_before_new_ones: V311,
    mqtt5_4_6_0_5_queued_messages_come_before_new_ones: V5,
});

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
fn mqtt5_full_queue_refuses_and_tells_the_publisher_where_nobody_took_it() {
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
fn mqtt311_full_queue_refuses_and_acknowledges() {
    let broker = five_and_an_absentee(V311, QueuePolicy::Refuse);
    let mut publisher = broker.client(V311, "p");
    for n in 0..8 {
        publisher.deliver(&Message::new("t", n.to_string()).qos(1));
    }
    assert_eq!(texts_for_the_absentee(&broker, V311), ["0", "1", "2", "3", "4"]);
}

fn full_queue_drops_the_oldest(version: Version) {
    let broker = five_and_an_absentee(version, QueuePolicy::DropOldest);
    let mut publisher = broker.client(version, "p");
    for n in 0..8 {
        assert_eq!(publisher.deliver(&Message::new("t", n.to_string()).qos(1)), 0);
    }
    assert_eq!(texts_for_the_absentee(&broker, version), ["3", "4", "5", "6", "7"]);
}
versions!(full_queue_drops_the_oldest {
    mqtt311_full_queue_drops_the_oldest_where_told_to: V311,
    mqtt5_full_queue_drops_the_oldest_where_told_to: V5,
});

fn full_queue_disconnects_the_receiver(version: Version) {
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
    slow.expect_cut(0x97);
    let mut slow = broker.persistent(version, "slow");
    for n in 0..5 {
        let publish = slow.expect_publish();
        assert_eq!(publish.text(), n.to_string());
        slow.complete(&publish);
    }
}
versions!(full_queue_disconnects_the_receiver {
    mqtt311_full_queue_disconnects_the_receiver_where_told_to: V311,
    mqtt5_full_queue_disconnects_the_receiver_where_told_to: V5,
});

fn full_queue_holds_the_publisher(version: Version) {
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
versions!(full_queue_holds_the_publisher {
    mqtt311_full_queue_holds_the_publisher_where_told_to: V311,
    mqtt5_full_queue_holds_the_publisher_where_told_to: V5,
});

#[test]
fn mqtt5_held_publisher_is_refused_when_its_time_is_up() {
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
versions!(queue_is_bounded_in_bytes {
    mqtt311_queue_is_bounded_in_bytes: V311,
    mqtt5_queue_is_bounded_in_bytes: V5,
});

/// The end of a session is seen from outside by its will, which goes out then if its delay is longer.
fn will_at_session_end(connect: Connect) -> Connect {
    connect.will(Will::new("session/end", "").with(Property::WillDelay(60)))
}

const TOLERANCE: Duration = Duration::from_millis(750);

#[test]
fn mqtt5_4_1_0_2_session_ends_when_its_expiry_has_run_out() {
    on_one_and_three_arbiters(|broker| {
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

#[test]
fn mqtt5_3_14_2_disconnect_changes_the_session_expiry() {
    let broker = default_broker();
    let mut observer = broker.client(V5, "observer");
    observer.subscribe(&[("session/end", 0)]);
    let left = now();
    // 0x04 keeps the will, so that the end is seen.
    broker
        .connect(&will_at_session_end(Connect::persistent(V5, "c")))
        .disconnect_with(0x04, &[Property::SessionExpiry(1)]);
    let ended = observer.expect_publish().at - left;
    assert!(ended >= Duration::from_millis(995), "early: {ended:?}");
    assert!(ended <= Duration::from_millis(1250) + TOLERANCE, "late: {ended:?}");
    assert!(!broker.persistent(V5, "c").session_present());

    broker.persistent(V5, "d").disconnect_with(0, &[Property::SessionExpiry(0)]);
    assert!(!broker.persistent(V5, "d").session_present());

    let short = Connect::new(V5, "e").clean(false).with(Property::SessionExpiry(1));
    broker.connect(&short).disconnect_with(0, &[Property::SessionExpiry(3600)]);
    observer.expect_nothing_for(Duration::from_millis(1600));
    assert!(broker.persistent(V5, "e").session_present());
}

#[test]
fn mqtt5_3_14_2_session_expiry_may_not_be_raised_from_zero() {
    let broker = default_broker();
    let mut client = broker.client(V5, "c");
    // Reason 0x00, property length 5, Session Expiry Interval 10.
    client.send(&[0xE0, 7, 0x00, 5, 0x11, 0, 0, 0, 10]);
    client.expect_cut(0x82);
    assert!(!broker.persistent(V5, "c").session_present());
}

fn granted_session_expiry_is_bounded_by_the_operator(version: Version) {
    let broker = start_broker(|config| config.limits.session_expiry = Duration::from_secs(1));
    broker.persistent(version, "c").disconnect();
    let back = broker.persistent(version, "c");
    assert!(back.session_present());
    back.disconnect();
    let mut witness = broker.client(version, "witness");
    witness.expect_nothing_for(Duration::from_millis(1250) + TOLERANCE);
    assert!(!broker.persistent(version, "c").session_present());
}
versions!(granted_session_expiry_is_bounded_by_the_operator {
    mqtt311_session_is_kept_as_long_as_the_operator_lets_it: V311,
    mqtt5_session_is_kept_as_long_as_the_operator_lets_it: V5,
});
