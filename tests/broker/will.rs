//! Will Messages: when they go out, when they do not, and as what.

use crate::support::launch::{TestBroker, default_broker, on_one_and_three_arbiters, start_broker, versions};
use crate::support::{Connect, Message, Property, RawClient, V5, V31, V311, Version, Will, now};
use std::time::Duration;

/// One expiry tick, and what a busy machine may add.
const LATENESS: Duration = Duration::from_millis(250 + 750);

fn observer(broker: &TestBroker, version: Version) -> RawClient {
    let mut observer = broker.client(version, "observer");
    observer.subscribe(&[("will/#", 2), ("marker", 1)]);
    observer
}

/// Nothing was published before this; asserted with a message that comes behind.
fn assert_no_will(observer: &mut RawClient, broker: &TestBroker) {
    broker.client(V311, "marker").deliver(&Message::new("marker", "").qos(1));
    let publish = observer.expect_publish();
    assert_eq!(publish.topic, "marker");
    observer.complete(&publish);
}

fn with_will(version: Version, id: &str) -> Connect {
    Connect::new(version, id).will(Will::new("will/t", "gone").qos(1))
}

fn will_goes_out_when_the_connection_breaks(version: Version) {
    on_one_and_three_arbiters(|broker| {
        let mut observer = observer(broker, version);
        for id in ["c0", "c1", "c2", "c3"] {
            for qos in [0, 1, 2] {
                let will = Will::new("will/t", id).qos(qos);
                broker.connect(&Connect::new(version, id).will(will)).vanish();
                let publish = observer.expect_publish();
                assert_eq!((publish.text(), publish.qos, publish.retain), (id, qos, false));
                observer.complete(&publish);
            }
        }
        // Once only, and not retained.
        assert_no_will(&mut observer, broker);
        observer.subscribe(&[("will/#", 0)]);
        observer.settle();
    });
}
versions!(will_goes_out_when_the_connection_breaks {
    mqtt31_will_goes_out_when_the_connection_breaks: V31,
    mqtt311_3_1_2_8_3_1_2_9_3_1_2_10_3_1_2_16_will_goes_out_once_when_the_connection_breaks: V311,
    mqtt5_3_1_2_7_3_1_2_8_3_1_2_10_3_1_2_14_will_goes_out_once_when_the_connection_breaks: V5,
});

fn disconnect_cancels_the_will(version: Version) {
    on_one_and_three_arbiters(|broker| {
        let mut observer = observer(broker, version);
        for id in ["c0", "c1", "c2", "c3"] {
            broker.connect(&with_will(version, id)).disconnect();
            // Nor does it stay with a session for the next connection.
            broker.connect(&Connect { will: None, ..with_will(version, id) }).vanish();
        }
        assert_no_will(&mut observer, broker);
    });
}
versions!(disconnect_cancels_the_will {
    mqtt31_disconnect_cancels_the_will: V31,
    mqtt311_3_14_4_3_3_1_2_10_3_1_2_12_disconnect_cancels_the_will: V311,
    mqtt5_3_14_4_3_3_1_2_10_disconnect_cancels_the_will: V5,
});

#[test]
fn mqtt5_3_1_2_8_disconnect_with_another_reason_sends_the_will() {
    let broker = default_broker();
    let mut observer = observer(&broker, V5);
    for code in [0x04, 0x80, 0x98] {
        broker.connect(&with_will(V5, "c")).disconnect_with(code, &[]);
        let publish = observer.expect_publish();
        assert_eq!(publish.text(), "gone");
        observer.complete(&publish);
    }
    broker.connect(&with_will(V5, "c")).disconnect_with(0x00, &[]);
    assert_no_will(&mut observer, &broker);
}

fn violation_sends_the_will(version: Version) {
    let broker = default_broker();
    let mut observer = observer(&broker, version);
    let mut client = broker.connect(&with_will(version, "c"));
    client.send(&[0x36, 0]);
    client.expect_closed();
    assert_eq!(observer.expect_publish().text(), "gone");
}
versions!(violation_sends_the_will {
    mqtt311_3_1_2_8_protocol_violation_sends_the_will: V311,
    mqtt5_3_1_2_8_protocol_violation_sends_the_will: V5,
});

fn retained_will_stays(version: Version) {
    on_one_and_three_arbiters(|broker| {
        let mut observer = observer(broker, version);
        let will = Will::new("will/status", "offline").qos(1).retained();
        broker.connect(&Connect::new(version, "c").will(will)).vanish();
        let live = observer.expect_publish();
        assert!(!live.retain);
        observer.complete(&live);
        let mut late = broker.client(version, "late");
        late.subscribe(&[("will/status", 1)]);
        let publish = late.expect_publish();
        assert_eq!((publish.retain, publish.text()), (true, "offline"));
    });
}
versions!(retained_will_stays {
    mqtt31_retained_will_stays: V31,
    mqtt311_3_1_2_17_retained_will_stays: V311,
    mqtt5_3_1_2_15_retained_will_stays: V5,
});

fn take_over_sends_the_will(version: Version) {
    on_one_and_three_arbiters(|broker| {
        let mut observer = observer(broker, version);
        for id in ["c0", "c1", "c2", "c3"] {
            let mut old = broker.connect(&Connect { clean: false, ..with_will(version, id) });
            let mut new = broker.connect(&Connect { clean: false, will: None, ..with_will(version, id) });
            old.expect_cut(0x8E);
            let publish = observer.expect_publish();
            assert_eq!(publish.text(), "gone");
            observer.complete(&publish);
            new.settle();
        }
    });
}
versions!(take_over_sends_the_will {
    mqtt31_take_over_sends_the_will: V31,
    mqtt311_3_1_2_8_take_over_sends_the_will: V311,
    mqtt5_3_1_4_3_3_1_2_8_take_over_sends_a_will_without_delay: V5,
});

fn delayed_will(id: &str, delay: u32, expiry: u32) -> Connect {
    let will = Will::new("will/t", "late").qos(1).with(Property::WillDelay(delay));
    Connect::new(V5, id).clean(false).with(Property::SessionExpiry(expiry)).will(will)
}

#[test]
fn mqtt5_3_1_2_8_will_goes_out_when_its_delay_has_passed() {
    on_one_and_three_arbiters(|broker| {
        let mut observer = observer(broker, V5);
        let left = now();
        broker.connect(&delayed_will("c", 1, 60)).vanish();
        let publish = observer.expect_publish();
        let passed = publish.at - left;
        assert!(passed >= Duration::from_millis(995), "early: {passed:?}");
        assert!(passed <= Duration::from_secs(1) + LATENESS, "late: {passed:?}");
        // The delay is the broker's business alone.
        assert_eq!(publish.properties, []);
    });
}

#[test]
fn mqtt5_3_1_2_8_will_goes_out_at_the_end_of_its_session_if_that_comes_first() {
    let broker = default_broker();
    let mut observer = observer(&broker, V5);
    broker.connect(&delayed_will("at once", 60, 0)).vanish();
    let publish = observer.expect_publish();
    observer.complete(&publish);
    let left = now();
    broker.connect(&delayed_will("in a second", 60, 1)).vanish();
    let passed = observer.expect_publish().at - left;
    assert!(passed >= Duration::from_millis(995), "early: {passed:?}");
    assert!(passed <= Duration::from_secs(1) + LATENESS, "late: {passed:?}");
}

#[test]
fn mqtt5_3_1_3_9_return_within_the_delay_cancels_the_will() {
    on_one_and_three_arbiters(|broker| {
        let mut observer = observer(broker, V5);
        broker.connect(&delayed_will("c", 1, 60)).vanish();
        let mut back = broker.persistent(V5, "c");
        assert!(back.session_present());
        observer.expect_nothing_for(Duration::from_millis(1300));
        back.settle();
        back.disconnect();
        assert_no_will(&mut observer, broker);
    });
}

#[test]
fn mqtt5_3_1_3_9_take_over_of_the_same_session_cancels_a_delayed_will() {
    on_one_and_three_arbiters(|broker| {
        let mut observer = observer(broker, V5);
        let mut old = broker.connect(&delayed_will("c", 1, 60));
        let mut new = broker.persistent(V5, "c");
        old.expect_cut(0x8E);
        observer.expect_nothing_for(Duration::from_millis(1300));
        new.settle();
    });
}

#[test]
fn mqtt5_3_1_2_8_clean_take_over_ends_the_session_and_sends_a_delayed_will() {
    on_one_and_three_arbiters(|broker| {
        let mut observer = observer(broker, V5);
        let mut old = broker.connect(&delayed_will("c", 60, 600));
        let mut new = broker.client(V5, "c");
        old.expect_cut(0x8E);
        assert_eq!(observer.expect_publish().text(), "late");
        new.settle();
        // So does a clean start in the place of a session that waits.
        broker.connect(&delayed_will("d", 60, 600)).vanish();
        broker.client(V5, "d").settle();
        assert_eq!(observer.expect_publish().text(), "late");
    });
}

#[test]
fn mqtt5_3_1_3_10_will_properties_travel_in_order() {
    let broker = default_broker();
    let mut observer = observer(&broker, V5);
    let properties = vec![
        Property::PayloadFormat(1),
        Property::ContentType("text".to_owned()),
        Property::ResponseTopic("r".to_owned()),
        Property::CorrelationData(vec![1, 2]),
        Property::user("b", "1"),
        Property::user("a", "2"),
        Property::user("b", "3"),
    ];
    let will =
        Will { properties: properties.clone(), ..Will::new("will/t", "x").with(Property::WillDelay(0)) };
    broker.connect(&Connect::new(V5, "c").will(will)).vanish();
    let publish = observer.expect_publish();
    assert_eq!(publish.user_properties(), [("b", "1"), ("a", "2"), ("b", "3")]);
    let mut others: Vec<_> = publish.properties.iter().filter(|p| p.id() != 0x26).cloned().collect();
    others.sort_by_key(Property::id);
    assert_eq!(others, properties[..4]);
}

#[test]
fn mqtt5_will_expiry_counts_from_its_publication() {
    let broker = default_broker();
    let mut observer = observer(&broker, V5);
    let will = Will::new("will/t", "x").with(Property::WillDelay(1)).with(Property::MessageExpiry(5));
    broker.connect(&Connect::persistent(V5, "c").will(will)).vanish();
    assert!(matches!(observer.expect_publish().expiry(), Some(4 | 5)));
}

fn silent_client_leaves_its_will(version: Version) {
    let broker = default_broker();
    let mut observer = observer(&broker, version);
    let mut silent = broker.connect(&with_will(version, "c").keep_alive(1));
    assert_eq!(observer.expect_publish().text(), "gone");
    silent.expect_cut(0x8D);
}
versions!(silent_client_leaves_its_will {
    mqtt311_3_1_2_24_silent_client_leaves_its_will: V311,
    mqtt5_3_1_2_22_silent_client_leaves_its_will: V5,
});

fn will_reaches_an_absent_subscriber(version: Version) {
    on_one_and_three_arbiters(|broker| {
        let mut absentee = broker.persistent(version, "absentee");
        absentee.subscribe(&[("will/#", 1)]);
        absentee.disconnect();
        let mut witness = observer(broker, version);
        broker.connect(&with_will(version, "c")).vanish();
        witness.expect_publish();
        assert_eq!(broker.persistent(version, "absentee").expect_publish().text(), "gone");
    });
}
versions!(will_reaches_an_absent_subscriber {
    mqtt311_4_5_0_1_will_reaches_an_absent_subscriber: V311,
    mqtt5_4_5_0_1_will_reaches_an_absent_subscriber: V5,
});

#[test]
fn will_on_the_brokers_own_topics_is_not_published() {
    let broker = start_broker(|config| config.sys.publish_interval = Duration::ZERO);
    let mut watcher = broker.client(V5, "watcher");
    watcher.subscribe(&[("$SYS/#", 0), ("$dead/#", 0), ("marker", 1)]);
    watcher.drain();
    let mut client = broker.open(V5);
    let will = Will::new("$SYS/broker/version", "forged");
    client.send(&Connect::new(V5, "c").will(will).encode());
    // Refused at CONNECT or dropped when due: either keeps it out.
    client.vanish();
    assert_no_will(&mut watcher, &broker);
}
