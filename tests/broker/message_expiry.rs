//! Message Expiry Interval: counted down while the message waits, and the end of it.

use crate::support::launch::{default_broker, on_one_and_three_threads, start_broker};
use crate::support::{Connect, Message, Property, RawClient, V5, V311};
use std::time::Duration;

fn message(text: &str, seconds: u32) -> Message {
    Message::new("t", text).qos(1).with(Property::MessageExpiry(seconds))
}

/// Lets messages grow old, which only time can do.
fn let_pass(witness: &mut RawClient, time: Duration) {
    witness.expect_nothing_for(time);
}

// 5.0 [MQTT-3.3.2-6]
#[test]
fn v5_live_delivery_carries_the_interval_received() {
    on_one_and_three_threads(|broker| {
        let mut subscriber = broker.client(V5, "s");
        subscriber.subscribe(&[("t", 1)]);
        let mut publisher = broker.client(V5, "p");
        publisher.deliver(&message("x", 100));
        assert!(matches!(subscriber.expect_publish().expiry(), Some(99 | 100)));
        publisher.deliver(&Message::new("t", "never").qos(1));
        assert_eq!(subscriber.expect_publish().expiry(), None);
    });
}

// 5.0 [MQTT-3.3.2-5], [MQTT-3.3.2-6]
#[test]
fn v5_waiting_counts_down_and_ends() {
    on_one_and_three_threads(|broker| {
        let ids = ["s0", "s1", "s2", "s3"];
        for id in ids {
            let mut absentee = broker.persistent(V5, id);
            absentee.subscribe(&[("t", 1)]);
            absentee.disconnect();
        }
        let mut publisher = broker.client(V5, "p");
        publisher.deliver(&message("short", 1));
        publisher.deliver(&message("long", 100));
        publisher.deliver(&message("short", 1));
        publisher.deliver(&Message::new("t", "for ever").qos(1));
        let_pass(&mut publisher, Duration::from_millis(1400));
        for id in ids {
            let mut back = broker.persistent(V5, id);
            let long = back.expect_publish();
            assert_eq!(long.text(), "long");
            assert!(matches!(long.expiry(), Some(97..=99)), "{long:?}");
            assert_eq!(back.expect_publish().text(), "for ever");
            back.settle();
        }
    });
}

// 5.0 [MQTT-3.3.2-5]
#[test]
fn v5_message_expires_behind_a_full_window_too() {
    let broker = default_broker();
    let mut slow = broker.connect(&Connect::new(V5, "s").with(Property::ReceiveMaximum(1)));
    slow.subscribe(&[("t", 1)]);
    let mut publisher = broker.client(V5, "p");
    publisher.deliver(&message("in flight", 1));
    publisher.deliver(&message("expires", 1));
    publisher.deliver(&Message::new("t", "stays").qos(1));
    let first = slow.expect_publish();
    let_pass(&mut publisher, Duration::from_millis(1400));
    slow.complete(&first);
    assert_eq!(slow.expect_publish().text(), "stays");
}

#[test]
fn v5_expired_entries_make_room_before_anything_is_refused() {
    let broker = start_broker(|config| config.limits.queue_messages = 3);
    let mut absentee = broker.persistent(V5, "absentee");
    absentee.subscribe(&[("t", 1)]);
    absentee.disconnect();
    let mut publisher = broker.client(V5, "p");
    publisher.deliver(&Message::new("t", "first").qos(1));
    for _ in 0..2 {
        assert_eq!(publisher.deliver(&message("expires", 1)), 0);
    }
    assert_eq!(publisher.deliver(&Message::new("t", "refused").qos(1)), 0x97);
    let_pass(&mut publisher, Duration::from_millis(1400));
    for text in ["second", "third"] {
        assert_eq!(publisher.deliver(&Message::new("t", text).qos(1)), 0);
    }
    let mut absentee = broker.persistent(V5, "absentee");
    let texts: Vec<_> = absentee.drain().iter().map(|publish| publish.text().to_owned()).collect();
    assert_eq!(texts, ["first", "second", "third"]);
}

#[test]
fn expiry_set_by_a_5_0_publisher_holds_for_older_subscribers() {
    let broker = default_broker();
    let mut absentee = broker.persistent(V311, "absentee");
    absentee.subscribe(&[("t", 1)]);
    absentee.disconnect();
    let mut publisher = broker.client(V5, "p");
    publisher.deliver(&message("expires", 1));
    publisher.deliver(&message("stays", 100));
    let_pass(&mut publisher, Duration::from_millis(1400));
    let mut absentee = broker.persistent(V311, "absentee");
    assert_eq!(absentee.expect_publish().text(), "stays");
    absentee.settle();
}
