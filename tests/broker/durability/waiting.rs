//! Each gate: what leaves when, while the commit is stopped.

use super::{Stored, on_stored_brokers};
use crate::support::client::subscribe_packet;
use crate::support::launch::with_one_and_three_threads;
use crate::support::memory_store::Memory;
use crate::support::{Connect, Kind, Message, Packet, Property, RawClient, V5, V311};
use std::net::Shutdown;
use std::time::Duration;

/// A message for `t` at a QoS.
fn message(qos: u8) -> Message {
    Message::new("t", "x").qos(qos)
}

/// A durable session that is subscribed at QoS 2 and away.
fn away(stored: &Stored, name: &str) {
    let mut subscriber = stored.durable(V311, name);
    subscriber.subscribe(&[("t", 2)]);
    subscriber.disconnect();
}

/// The client sends something, and hears nothing before the commit that it leads to.
fn answer_waits<T>(stored: &Stored, client: &mut RawClient, send: impl FnOnce(&mut RawClient) -> T) -> T {
    stored.gate.close();
    let sent = send(client);
    stored.gate.wait_for_commit();
    stored.assert_nothing_came([&mut *client]);
    stored.gate.open();
    sent
}

#[test]
fn puback_waits_for_the_commit() {
    on_stored_brokers(|stored| {
        away(stored, "away");
        for mut publisher in [stored.passing("passing"), stored.durable(V311, "durable")] {
            let id = answer_waits(stored, &mut publisher, |c| c.publish(&message(1)));
            publisher.expect_ack(Kind::Puback, id);
        }
    });
}

#[test]
fn puback_leaves_before_the_commit_once_every_durable_receiver_has_acknowledged() {
    on_stored_brokers(|stored| {
        let mut receivers = [stored.durable(V311, "one"), stored.broker.persistent(V5, &stored.id("two", 2))];
        receivers.iter_mut().for_each(|r| drop(r.subscribe(&[("t", 2)])));
        let mut publisher = stored.passing("p");
        stored.gate.close();
        let id = publisher.publish(&message(1));
        let came = receivers.each_mut().map(|r| r.expect_publish().id);
        receivers[0].ack(Kind::Puback, came[0]);
        receivers[0].settle();
        stored.assert_nothing_came([&mut publisher]);
        receivers[1].ack(Kind::Puback, came[1]);
        publisher.expect_ack(Kind::Puback, id);
    });
}

#[test]
fn puback_waits_for_the_commit_while_one_durable_receiver_is_away() {
    on_stored_brokers(|stored| {
        away(stored, "away");
        let mut here = stored.durable(V311, "here");
        here.subscribe(&[("t", 1)]);
        let mut publisher = stored.passing("p");
        stored.gate.close();
        let id = publisher.publish(&message(1));
        let came = here.expect_publish();
        here.complete(&came);
        here.settle();
        stored.assert_nothing_came([&mut publisher]);
        stored.gate.open();
        publisher.expect_ack(Kind::Puback, id);
    });
}

#[test]
fn puback_of_a_retained_message_waits_for_the_commit() {
    on_stored_brokers(|stored| {
        let mut publisher = stored.passing("p");
        for message in [message(1).retained(), Message::new("t", "").qos(1).retained()] {
            let id = answer_waits(stored, &mut publisher, |c| c.publish(&message));
            publisher.expect_ack(Kind::Puback, id);
        }
    });
}

#[test]
fn pubrec_waits_for_the_commit_and_so_does_onward_delivery_of_qos_2() {
    on_stored_brokers(|stored| {
        let mut receivers = [stored.durable(V311, "durable"), stored.passing("s")];
        receivers.iter_mut().for_each(|r| drop(r.subscribe(&[("t", 2)])));
        let mut lowered = stored.broker.connect(&Connect::new(V311, &stored.id("lowered", 2)));
        lowered.subscribe(&[("t", 0)]);
        let mut publisher = stored.broker.persistent(V5, &stored.id("p", 0));
        stored.gate.close();
        let id = publisher.publish(&message(2));
        stored.gate.wait_for_commit();
        stored.assert_nothing_came([&mut publisher]);
        stored.assert_nothing_came(&mut receivers);
        stored.assert_nothing_came([&mut lowered]);
        stored.gate.open();
        publisher.expect_ack(Kind::Pubrec, id);
        receivers.iter_mut().for_each(|r| assert_eq!(r.expect_publish().qos, 2));
        assert_eq!(lowered.expect_publish().qos, 0);
    });
}

#[test]
fn pubrec_waits_for_its_identifier_though_nobody_is_subscribed() {
    on_stored_brokers(|stored| {
        let mut publisher = stored.durable(V311, "p");
        let id = answer_waits(stored, &mut publisher, |c| c.publish(&message(2)));
        publisher.expect_ack(Kind::Pubrec, id);
    });
}

#[test]
fn pubrec_waits_for_the_commit_where_the_publishers_session_is_not_kept() {
    on_stored_brokers(|stored| {
        away(stored, "away");
        let mut publisher = stored.passing("p");
        let id = answer_waits(stored, &mut publisher, |c| c.publish(&message(2)));
        publisher.expect_ack(Kind::Pubrec, id);
    });
}

#[test]
fn pubcomp_waits_for_the_removal_of_the_identifier() {
    on_stored_brokers(|stored| {
        let mut publisher = stored.durable(V5, "p");
        let id = publisher.publish(&message(2));
        publisher.expect_ack(Kind::Pubrec, id);
        answer_waits(stored, &mut publisher, |c| c.ack(Kind::Pubrel, id));
        publisher.expect_ack(Kind::Pubcomp, id);
    });
}

#[test]
fn qos_2_publish_waits_for_the_record_of_its_identifier() {
    on_stored_brokers(|stored| {
        let mut receiver = stored.durable(V311, "s");
        receiver.subscribe(&[("t", 2)]);
        // Its own session is not kept: nothing else is waited for.
        let mut publisher = stored.passing("p");
        stored.gate.close();
        publisher.publish(&message(2));
        stored.gate.wait_for_commit();
        stored.assert_nothing_came([&mut receiver]);
        stored.gate.open();
        assert_eq!(receiver.expect_publish().qos, 2);
    });
}

#[test]
fn qos_2_publish_out_of_a_queue_waits_for_the_record_of_its_identifier() {
    on_stored_brokers(|stored| {
        let narrow = Connect::persistent(V5, &stored.id("s", 1)).with(Property::ReceiveMaximum(1));
        let mut receiver = stored.connect(&narrow);
        receiver.subscribe(&[("t", 2)]);
        let mut publisher = stored.passing("p");
        publisher.deliver(&message(2));
        publisher.deliver(&message(2));
        let first = receiver.expect_publish();
        receiver.ack(Kind::Pubrec, first.id);
        receiver.expect_ack(Kind::Pubrel, first.id);
        answer_waits(stored, &mut receiver, |c| c.ack(Kind::Pubcomp, first.id));
        assert_ne!(receiver.expect_publish().id, first.id);
    });
}

#[test]
fn pubrel_waits_for_the_record_of_its_pubrec() {
    on_stored_brokers(|stored| {
        let mut receiver = stored.durable(V5, "s");
        receiver.subscribe(&[("t", 2)]);
        stored.passing("p").deliver(&message(2));
        let came = receiver.expect_publish();
        answer_waits(stored, &mut receiver, |c| c.ack(Kind::Pubrec, came.id));
        receiver.expect_ack(Kind::Pubrel, came.id);
    });
}

#[test]
fn suback_and_unsuback_of_a_durable_session_wait_for_the_commit() {
    on_stored_brokers(|stored| {
        for version in [V311, V5] {
            let mut client = stored.durable(version, "c");
            let unsubscribe: &[u8] = match version {
                V5 => &[0xA2, 6, 0, 2, 0, 0, 1, b't'],
                _ => &[0xA2, 5, 0, 2, 0, 1, b't'],
            };
            for (packet, kind) in [
                (subscribe_packet(version, 1, &[], &[("t", 1)]), Kind::Suback),
                (unsubscribe.to_vec(), Kind::Unsuback),
            ] {
                answer_waits(stored, &mut client, |c| c.send(&packet));
                client.expect_packet(kind);
            }
        }
    });
}

/// Sends a CONNECT whose CONNACK has to wait.
fn connack_waits(stored: &Stored, connect: &Connect) -> RawClient {
    let mut client = stored.open(connect.version);
    answer_waits(stored, &mut client, |c| c.send(&connect.encode()));
    assert_eq!(client.expect_connack().code, 0);
    client
}

#[test]
fn connack_of_a_durable_session_waits_for_the_commit() {
    on_stored_brokers(|stored| {
        for version in [V311, V5] {
            let connect = Connect::persistent(version, &stored.id("c", 1));
            connack_waits(stored, &connect).disconnect();
            let back = connack_waits(stored, &connect);
            assert!(back.session_present());
        }
    });
}

#[test]
fn connack_waits_for_the_deletion_of_a_durable_session_by_clean_start() {
    on_stored_brokers(|stored| {
        for version in [V311, V5] {
            let id = stored.id("c", 1);
            stored.persistent(version, &id).disconnect();
            // The one that begins is not kept.
            let afresh = connack_waits(stored, &Connect::new(version, &id));
            assert!(!afresh.session_present());
            afresh.disconnect();
            assert!(!stored.persistent(version, &id).session_present());
        }
    });
}

#[test]
fn sessions_that_end_with_their_connection_never_touch_the_store() {
    on_stored_brokers(|stored| {
        let mut receiver = stored.broker.connect(&Connect::new(V311, &stored.id("s", 1)));
        let mut publisher = stored.passing("p");
        let before = stored.gate.commits();
        // Whatever came there would stay.
        stored.gate.close();
        receiver.subscribe(&[("t", 2)]);
        for qos in [0, 1, 2, 1, 2] {
            publisher.deliver(&message(qos));
            let came = receiver.expect_publish();
            receiver.complete(&came);
        }
        receiver.unsubscribe(&["t"]);
        receiver.vanish();
        publisher.disconnect();
        assert_eq!(stored.gate.commits(), before);
    });
}

#[test]
fn online_forwarding_of_qos_1_does_not_wait() {
    on_stored_brokers(|stored| {
        let mut durable = stored.durable(V5, "durable");
        durable.subscribe(&[("t", 1)]);
        let mut passing = stored.passing("passing");
        passing.subscribe(&[("t", 1)]);
        let mut publisher = stored.broker.persistent(V5, &stored.id("p", 0));
        stored.gate.close();
        let id = publisher.publish(&message(1));
        durable.expect_publish();
        passing.expect_publish();
        stored.gate.wait_for_commit();
        stored.assert_nothing_came([&mut publisher]);
        stored.gate.open();
        publisher.expect_ack(Kind::Puback, id);
    });
}

#[test]
fn what_comes_while_a_commit_is_under_way_waits_for_the_next() {
    on_stored_brokers(|stored| {
        away(stored, "away");
        let mut publisher = stored.passing("p");
        // With it the end of that connection is committed: what waits is the first message.
        publisher.deliver(&message(1));
        stored.gate.close();
        let first = publisher.publish(&message(1));
        stored.gate.wait_for_commit();
        let second = publisher.publish(&message(1));
        publisher.settle();
        stored.gate.let_one();
        publisher.expect_ack(Kind::Puback, first);
        stored.assert_nothing_came([&mut publisher]);
        stored.gate.open();
        publisher.expect_ack(Kind::Puback, second);
    });
}

#[test]
fn acknowledgements_leave_in_the_order_of_what_they_answer_whatever_each_waits_for() {
    on_stored_brokers(|stored| {
        away(stored, "away");
        let mut publisher = stored.durable(V5, "p");
        stored.gate.close();
        let ids = [1, 2, 1].map(|qos| publisher.publish(&message(qos)));
        // Nothing has to be kept of it.
        let nobody = publisher.publish(&Message::new("nobody", "").qos(1));
        stored.gate.wait_for_commit();
        stored.assert_nothing_came([&mut publisher]);
        stored.gate.open();
        let answers: Vec<(Kind, u16)> = (0..4)
            .map(|_| match publisher.receive() {
                Packet::Ack(ack) => (ack.kind, ack.id),
                other => panic!("{other:?}"),
            })
            .collect();
        let expected =
            [(Kind::Puback, ids[0]), (Kind::Pubrec, ids[1]), (Kind::Puback, ids[2]), (Kind::Puback, nobody)];
        assert_eq!(answers, expected);
    });
}

#[test]
fn a_message_for_more_shared_groups_than_a_byte_counts_is_taken_over_whole() {
    on_stored_brokers(|stored| {
        let groups: Vec<String> = (0..300).map(|n| format!("$share/g{n}/t")).collect();
        let filters: Vec<(&str, u8)> = groups.iter().map(|group| (group.as_str(), 1)).collect();
        let mut member = stored.durable(V5, "member");
        member.subscribe(&filters);
        let mut publisher = stored.broker.persistent(V5, &stored.id("p", 0));
        let id = publisher.publish(&message(2));
        for _ in 0..groups.len() {
            let publish = member.expect_publish();
            member.complete(&publish);
        }
        assert_eq!(publisher.expect_ack(Kind::Pubrec, id).code, 0);
    });
}

// 3.1.1 [MQTT-4.3.2-2]; 5.0 [MQTT-4.3.2-4]
#[test]
fn what_waits_for_the_commit_comes_to_a_client_that_has_closed_its_side() {
    on_stored_brokers(|stored| {
        away(stored, "away");
        for version in [V311, V5] {
            let mut publisher = stored.broker.client(version, "p");
            stored.gate.close();
            publisher.publish(&message(1));
            publisher.stream().shutdown(Shutdown::Write).expect("a socket that is open");
            stored.gate.wait_for_commit();
            stored.assert_nothing_came([&mut publisher]);
            stored.gate.open();
            let came = publisher.read_to_end();
            assert!(matches!(came[..], [Packet::Ack(_)]), "{came:?}");
        }
    });
}

#[test]
fn a_client_that_has_closed_its_side_waits_for_no_commit_beyond_the_write_timeout() {
    with_one_and_three_threads(|threads| {
        let stored = Stored::configured(Memory::default(), threads, Duration::ZERO, |config| {
            config.network.write_timeout = Duration::from_millis(500);
        });
        away(&stored, "away");
        let mut publisher = stored.passing("p");
        stored.gate.close();
        publisher.publish(&message(1));
        publisher.stream().shutdown(Shutdown::Write).expect("a socket that is open");
        stored.gate.wait_for_commit();
        assert_eq!(publisher.read_to_end(), []);
    });
}
