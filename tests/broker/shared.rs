//! Shared subscriptions of 5.0.

use crate::support::launch::{TestBroker, default_broker, on_one_and_three_threads};
use crate::support::{Message, RawClient, V5};
use std::collections::HashSet;

fn members(broker: &TestBroker, filter: &str, qos: u8) -> Vec<RawClient> {
    let member = |n: usize| {
        let mut member = broker.client(V5, &format!("member{n}"));
        assert_eq!(member.subscribe(&[(filter, qos)]), [qos]);
        member
    };
    (0..4).map(member).collect()
}

// 5.0 [MQTT-4.8.2-1]
#[test]
fn v5_each_message_goes_to_one_member_and_to_all_in_turn() {
    on_one_and_three_threads(|broker| {
        let mut members = members(broker, "$share/group/s/+", 1);
        let mut other_group = broker.client(V5, "other group");
        other_group.subscribe(&[("$share/other/s/+", 0)]);
        let mut plain = broker.client(V5, "plain");
        plain.subscribe(&[("s/#", 0)]);
        let mut publisher = broker.client(V5, "p");
        for n in 0..200 {
            publisher.deliver(&Message::new("s/x", n.to_string()).qos(1));
            plain.expect_publish();
            other_group.expect_publish();
        }
        let shares: Vec<Vec<String>> =
            members.iter_mut().map(|m| m.drain().iter().map(|p| p.text().to_owned()).collect()).collect();
        let distinct: HashSet<&String> = shares.iter().flatten().collect();
        assert_eq!((distinct.len(), shares.iter().map(Vec::len).sum()), (200, 200));
        // In-flight and receive limits are 100: nobody had to be skipped.
        for share in &shares {
            assert!(
                (25..=75).contains(&share.len()),
                "{:?}",
                shares.iter().map(Vec::len).collect::<Vec<_>>()
            );
        }
    });
}

#[test]
fn v5_unacknowledged_qos_1_goes_to_another_member_when_a_session_ends() {
    on_one_and_three_threads(|broker| {
        let mut leaver = broker.client(V5, "leaver");
        leaver.subscribe(&[("$share/g/t", 1)]);
        let mut publisher = broker.client(V5, "p");
        for n in 0..5 {
            publisher.deliver(&Message::new("t", n.to_string()).qos(1));
        }
        let held = leaver.expect_publishes(5);
        leaver.complete(&held[0]);
        leaver.settle();
        let mut successor = broker.client(V5, "successor");
        successor.subscribe(&[("$share/g/t", 1)]);
        leaver.vanish();
        let mut inherited: Vec<String> = Vec::new();
        for publish in successor.expect_publishes(4) {
            // To this member it is a first delivery.
            assert!(!publish.dup);
            inherited.push(publish.text().to_owned());
            successor.complete(&publish);
        }
        inherited.sort();
        assert_eq!(inherited, ["1", "2", "3", "4"]);
        successor.settle();
    });
}

// 5.0 [MQTT-4.8.2-4]
#[test]
fn v5_interrupted_qos_2_delivery_is_finished_with_the_same_member() {
    on_one_and_three_threads(|broker| {
        let mut member = broker.persistent(V5, "member");
        member.subscribe(&[("$share/g/t", 2)]);
        let mut publisher = broker.client(V5, "p");
        publisher.deliver(&Message::new("t", "x").qos(2));
        let publish = member.expect_publish();
        member.vanish();
        let mut other = broker.client(V5, "other");
        other.subscribe(&[("$share/g/t", 2)]);
        let mut member = broker.persistent(V5, "member");
        let again = member.expect_publish();
        assert_eq!((again.id, again.dup, again.text()), (publish.id, true, "x"));
        member.complete(&again);
        other.settle();
    });
}

#[test]
fn v5_absent_members_are_skipped_while_one_is_present() {
    on_one_and_three_threads(|broker| {
        let mut absent = broker.persistent(V5, "absent");
        absent.subscribe(&[("$share/g/t", 1)]);
        absent.disconnect();
        let mut present = broker.client(V5, "present");
        present.subscribe(&[("$share/g/t", 1)]);
        let mut publisher = broker.client(V5, "p");
        for n in 0..10 {
            publisher.deliver(&Message::new("t", n.to_string()).qos(1));
            let publish = present.expect_publish();
            assert_eq!(publish.text(), n.to_string());
            present.complete(&publish);
        }
        let mut absent = broker.persistent(V5, "absent");
        absent.settle();
    });
}

#[test]
fn v5_message_waits_for_an_absent_member_where_all_are() {
    let broker = default_broker();
    let mut absent = broker.persistent(V5, "absent");
    absent.subscribe(&[("$share/g/t", 1)]);
    absent.disconnect();
    broker.client(V5, "p").deliver(&Message::new("t", "x").qos(1));
    assert_eq!(broker.persistent(V5, "absent").expect_publish().text(), "x");
}

#[test]
fn v5_unsubscribed_member_gets_nothing_more() {
    on_one_and_three_threads(|broker| {
        let mut members = members(broker, "$share/g/t", 0);
        let mut leaver = members.pop().expect("four members");
        assert_eq!(leaver.unsubscribe(&["$share/g/t"]), [0]);
        assert_eq!(leaver.unsubscribe(&["t"]), [0x11]);
        let mut publisher = broker.client(V5, "p");
        for _ in 0..20 {
            publisher.deliver(&Message::new("t", "").qos(1));
        }
        leaver.settle();
        assert_eq!(members.iter_mut().map(|member| member.drain().len()).sum::<usize>(), 20);
    });
}
